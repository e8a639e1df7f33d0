//! The benchmark: one run sets up an upstream, a gateway with its private Postgres and, where it is installed,
//! nginx and agentgateway; loads them in turns, so that ratios survive a noisy machine; and prints tables.
//!
//! Everything stays on the loopback. Every answer is checked, a wrong one ends the run. With words as arguments
//! only the rows whose name contains one of them are run; `soak` is the long run that looks at memory, `log` the one that
//! reads millions of activity records, `telemetry` the one that compares gateways with and without traces, `budget` the one
//! that counts instructions and allocations, `logins` the one that compares keys with tokens of people, `permissions` the one that compares tenants with and without rules and pending requests.

mod agentgateway;
mod attackers;
mod attacks;
mod beside;
mod budget;
mod compare;
mod cpu;
mod gateway;
#[path = "../it/support/hostile.rs"]
#[expect(
    dead_code,
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "the bad servers of the integration tests, where such things are allowed"
)]
mod hostile;
#[path = "../it/support/idp.rs"]
#[expect(
    dead_code,
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "the provider of the integration tests, where such things are allowed"
)]
mod idp;
mod listeners;
mod load;
mod log;
mod logins;
mod nginx;
mod permissions;
mod postgres;
mod process;
mod report;
mod rows;
mod side;
mod sink;
mod soak;
mod telemetry;
mod upstream;

use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use tokio::signal::unix::{SignalKind, signal};

use self::agentgateway::Agentgateway;
use self::beside::BadServers;
use self::gateway::{Api, Gateway};
use self::load::{Door, Era, Until, Work};
use self::logins::Person;
use self::nginx::Nginx;
use self::postgres::Postgres;
use self::report::{Count, Once, Report};
use self::rows::Bench;
use self::upstream::Upstream;

/// Longest run, with its starts and its stops.
const RUN_MAX: Duration = Duration::from_secs(900);
/// The same of the runs of their own.
const SOAK_MAX: Duration = Duration::from_secs(1200);
/// The words that ask for a run of its own instead of the rows.
const SOAK: &str = "soak";
const LOG: &str = "log";
/// How long a gateway is left alone before its memory is read.
const IDLE: Duration = Duration::from_secs(1);
/// Starts on a running database.
const STARTS: usize = 5;
/// Answers of each count.
const COUNTED: u64 = 1000;
/// Clients of each count.
const COUNTED_CLIENTS: usize = 16;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).filter(|word| !word.starts_with('-')).collect();
    let done = tokio::runtime::Builder::new_multi_thread().enable_all().build().map_err(Into::into).and_then(
        |runtime| match arguments.first() {
            Some(first) if first == upstream::ROLE => runtime.block_on(upstream::serve()),
            Some(first) if first == attackers::ROLE => runtime.block_on(attackers::serve()),
            Some(first) if first == beside::ROLE => runtime.block_on(beside::serve()),
            Some(first) if first == sink::ROLE => runtime.block_on(sink::serve()),
            _ => runtime.block_on(until_stopped(&arguments)),
        },
    );
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            say(&format!("failed: {error:#}"));
            ExitCode::FAILURE
        }
    }
}

/// Tells whoever watches what happens; the tables alone go to standard output.
fn say(text: &str) {
    // nobody may be listening
    drop(writeln!(std::io::stderr(), "bench: {text}"));
}

/// Runs, unless told to stop: whatever was started ends when the run is dropped.
async fn until_stopped(filter: &[String]) -> Result<()> {
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let limit = if asks_for(filter, SOAK) || asks_for(filter, LOG) { SOAK_MAX } else { RUN_MAX };
    tokio::select! {
        done = tokio::time::timeout(limit, Box::pin(run(filter))) => done.context("the run took too long")?,
        _ = terminate.recv() => bail!("terminated"),
        _ = interrupt.recv() => bail!("interrupted"),
    }
}

fn asks_for(words: &[String], what: &str) -> bool {
    words.iter().any(|word| word == what)
}

async fn run(filter: &[String]) -> Result<()> {
    let folder = tempfile::Builder::new().prefix("mcpproxy-bench-").tempdir()?;
    // a Postgres that runs as another user must get to its data
    std::fs::set_permissions(folder.path(), PermissionsExt::from_mode(0o755))?;
    let data_dir = folder.path().join("data");
    drop(rustls::crypto::ring::default_provider().install_default());
    let http = reqwest::Client::builder().no_proxy().timeout(Duration::from_secs(30)).build()?;
    let mut upstream = Upstream::start()?;

    say("first start, tenants");
    let bad = BadServers::start()?;
    let keys = prepare(&http, &data_dir, &upstream, &bad).await?;
    let gateway = Gateway::start_private(&data_dir)?;
    let start_private = gateway.first_list(&keys.calls).await?;
    tokio::time::sleep(IDLE).await;
    let mut once = Once { idle_mib: cpu::memory_mib(gateway.pid()), start_private, ..Once::default() };

    if asks_for(filter, LOG) {
        // an export takes longer than an answer may
        let patient = reqwest::Client::builder().no_proxy().timeout(RUN_MAX).build()?;
        let api = Api::new(&patient, &gateway, &data_dir)?;
        let tables = log::run(&api, &gateway, &keys.calls, &Postgres::find(&data_dir)?).await;
        return Ok(write!(std::io::stdout(), "{}", tables.with_context(|| gateway.log())?)?);
    }
    if asks_for(filter, SOAK) {
        let table = soak::run(&gateway.door(&keys.calls), gateway.pid()).await;
        return Ok(write!(std::io::stdout(), "{}", table.with_context(|| gateway.log())?)?);
    }
    if asks_for(filter, telemetry::WORD) {
        let postgres = Postgres::find(&data_dir)?;
        let tables = telemetry::run(&postgres.url, &data_dir, &keys.calls).await?;
        return Ok(write!(std::io::stdout(), "{tables}")?);
    }
    if asks_for(filter, budget::WORD) {
        let postgres = Postgres::find(&data_dir)?;
        let doors = [&keys.calls, &keys.catalogue, &keys.person.token].map(String::as_str);
        let table = budget::run(&postgres.url, &data_dir, doors).await?;
        return Ok(write!(std::io::stdout(), "{table}")?);
    }
    if asks_for(filter, permissions::WORD) {
        let api = Api::new(&http, &gateway, &data_dir)?;
        let upstream = format!("http://{}/mcp", upstream.at);
        let tables = permissions::run(&api, &gateway, &upstream, &Postgres::find(&data_dir)?).await;
        return Ok(write!(std::io::stdout(), "{}", tables.with_context(|| gateway.log())?)?);
    }
    if asks_for(filter, logins::WORD) {
        let tables = logins::run(&gateway, &keys.calls, &keys.person).await.with_context(|| gateway.log())?;
        write!(std::io::stdout(), "{tables}")?;
        ensure!(!compare::is_missed(&tables), "a bound is missed, or a control differs: see the verdicts");
        return Ok(());
    }
    let nginx = Nginx::start(&folder.path().join("nginx"), upstream.at)?;
    if nginx.is_none() {
        say("nginx is not installed: its rows are left out");
    }
    let agentgateway = Agentgateway::start(&folder.path().join("agentgateway"), upstream.at)?;
    if agentgateway.is_none() {
        say("AGENTGATEWAY names no program: its rows are left out");
    }
    let postgres = Postgres::find(&data_dir)?;
    postgres.prepare().await?;
    let bench = Bench {
        direct: Door { at: upstream.at, key: None },
        nginx: nginx.as_ref().map(|nginx| (Door { at: nginx.at, key: None }, nginx.pids())),
        agentgateway: agentgateway.as_ref().map(|peer| (Door { at: peer.at, key: None }, peer.pids())),
        gateway: gateway.door(&keys.calls),
        catalogue: gateway.door(&keys.catalogue),
        gateway_pid: gateway.pid(),
        postgres,
    };
    let counts = counts(&http, &upstream, &bench).await.with_context(|| gateway.log())?;
    let mut outcomes = Vec::new();
    let wanted = |name: &str| filter.is_empty() || filter.iter().any(|word| name.contains(word.as_str()));
    for row in rows::all().into_iter().filter(|row| wanted(row.name)) {
        say(&format!("{}, {} clients, {:?}", row.name, row.clients, row.era));
        outcomes.push(bench.measure(row).await.with_context(|| gateway.log())?);
    }
    let mut beside = Vec::new();
    if wanted("beside") {
        say("beside bad servers");
        beside = beside::run(&gateway.door(&keys.beside), &bad).await.with_context(|| gateway.log())?;
    }
    let mut attacked = None;
    if wanted("attacks") {
        say("every attack at once");
        let other = attacks::start(&bench.postgres.url, &data_dir)?;
        other.first_list(&keys.calls).await?;
        let api = Api::new(&http, &other, &data_dir)?;
        attacked = Some(attacks::run(&api, &other, &keys.calls).await.with_context(|| other.log())?);
    }
    let mut listening = Vec::new();
    if wanted("listeners") {
        say("listeners");
        let other = Gateway::start_on(&bench.postgres.url, &data_dir)?;
        let api = Api::new(&http, &gateway, &data_dir)?;
        let tenants = [
            listeners::Tenant { name: "bench", server: "up", key: keys.calls.clone(), tools: 3 },
            listeners::Tenant { name: "catalogue", server: "cat", key: keys.catalogue.clone(), tools: 1000 },
        ];
        for tenant in &tenants {
            other.first_list(&tenant.key).await?;
        }
        listening = listeners::run(&api, &tenants, &gateway, &other).await.with_context(|| gateway.log())?;
    }
    once.loaded_mib = cpu::memory_mib(gateway.pid());

    say("starts");
    for _ in 0..STARTS {
        let other = Gateway::start_on(&bench.postgres.url, &data_dir)?;
        once.start.push(other.first_list(&keys.calls).await?);
    }
    ensure!(upstream.is_running(), "the upstream ended during the run");
    let mut report = Report { outcomes, beside, attacks: attacked, listeners: listening, counts, once };
    let report = report.markdown();
    writeln!(std::io::stdout(), "{report}")?;
    ensure!(!compare::is_missed(&report), "a bound is missed, or a control differs: see the verdicts");
    Ok(())
}

/// Keys of the tenants.
struct Keys {
    calls: String,
    catalogue: String,
    beside: String,
    /// Of the tenant of `calls`.
    person: Person,
}

/// Makes the database and what is in it, and leaves it as a stopped gateway does.
async fn prepare(
    http: &reqwest::Client,
    data_dir: &Path,
    upstream: &Upstream,
    bad: &BadServers,
) -> Result<Keys> {
    let gateway = Gateway::start_private(data_dir)?;
    let api = Api::new(http, &gateway, data_dir)?;
    let calls = api.tenant("bench", "up", &format!("http://{}/mcp", upstream.at)).await?;
    let catalogue = api.tenant("catalogue", "cat", &format!("http://{}/catalogue", upstream.at)).await?;
    let beside = api.tenant(beside::TENANT, "up", &format!("http://{}/mcp", upstream.at)).await?;
    bad.add(&api).await?;
    let person = Person::of(&api, "bench").await?;
    Ok(Keys { calls, catalogue, beside, person })
}

/// Counts what a gateway that has not called anything yet asks of its upstream.
async fn counts(http: &reqwest::Client, upstream: &Upstream, bench: &Bench) -> Result<Vec<Count>> {
    let mut counts = Vec::new();
    for (what, work, door) in [
        ("read", Work::Read, &bench.gateway),
        ("write", Work::Write, &bench.gateway),
        ("tools/list", Work::List, &bench.gateway),
        ("retrieve_tools", Work::Search, &bench.catalogue),
    ] {
        let before = upstream.counts(http).await?;
        load::run(door, work, Era::Handshake, COUNTED_CLIENTS, Until::Answers(COUNTED)).await?;
        let after = upstream.counts(http).await?;
        counts.push(Count {
            what,
            answers: COUNTED,
            clients: COUNTED_CLIENTS,
            requests: after.requests - before.requests,
            connects: after.connections - before.connections,
        });
    }
    Ok(counts)
}
