//! A healthy server beside bad ones: its p99 while others call them, against its p99 while as many call a good one
//! as often.
//!
//! The bad servers run in a process of their own that gets only the processor time that nobody else wants: what a
//! flood costs its sender is not what the gateway's other callers should be charged with.

use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::json;
use tokio::task::JoinSet;

use crate::gateway::Api;
use crate::hostile::{Hostile, Vice};
use crate::load::{self, Door, Era, Slice, Until, Work};
use crate::process::Process;

/// The argument that makes the benchmark's binary the bad servers.
pub const ROLE: &str = "bad-servers";
/// The tenant whose servers they are; the healthy one is its own as well.
pub const TENANT: &str = "beside";
/// Clients of the healthy server: few enough that the processors have time left.
const CLIENTS: usize = 2;
/// Turns of each group of bad servers.
const TURNS: u32 = 8;
/// Length of a slice.
const SLICE: Duration = Duration::from_secs(1);
/// How others call at the same time: so many callers of each server, each with a pause before it calls again.
#[derive(Clone, Copy)]
struct Pace {
    callers: usize,
    pause: Duration,
}

/// Many who do not give up.
const HAMMERING: Pace = Pace { callers: 8, pause: Duration::from_millis(250) };
/// As an agent at work.
const WORKING: Pace = Pace { callers: 1, pause: Duration::from_secs(1) };

/// Bad servers that are measured together.
struct Group {
    name: &'static str,
    pace: Pace,
    vices: &'static [(&'static str, Vice)],
}

/// What may go wrong, in groups that are measured apart.
const GROUPS: [Group; 4] = [
    Group { name: "slow, silent, dribbling", pace: HAMMERING, vices: &HOLDING },
    Group { name: "lying", pace: HAMMERING, vices: &LYING },
    Group { name: "huge, flooding; one call a second each", pace: WORKING, vices: &FLOODING },
    Group { name: "huge, flooding; 32 calls a second each", pace: HAMMERING, vices: &FLOODING },
];
const HOLDING: [(&str, Vice); 4] = [
    ("slow", Vice::Slow(1)),
    ("silent", Vice::Silent),
    ("dribbling", Vice::Dribbling),
    ("dribbling-body", Vice::DribblingBody),
];
const LYING: [(&str, Vice); 5] = [
    ("wrong-id", Vice::WrongId),
    ("html", Vice::Html),
    ("garbage", Vice::Garbage),
    ("short", Vice::Short),
    ("closing", Vice::Closing),
];
const FLOODING: [(&str, Vice); 5] = [
    ("huge", Vice::Huge),
    ("headers", Vice::Headers),
    ("flooding", Vice::Flooding),
    ("asking", Vice::Asking),
    ("deep", Vice::Deep),
];

/// Every bad server.
fn all() -> impl Iterator<Item = &'static (&'static str, Vice)> {
    HOLDING.iter().chain(&LYING).chain(&FLOODING)
}

/// The bad servers as a child process.
pub struct BadServers {
    _process: Process,
    /// Name and URL of each.
    servers: Vec<(String, String)>,
}

impl BadServers {
    /// Starts this very program as them.
    ///
    /// # Errors
    /// If they do not say where they listen.
    pub fn start() -> Result<BadServers> {
        let program = std::env::current_exe().context("the benchmark cannot find itself")?;
        // they end when their standard input does
        let mut command = Command::new("nice");
        command.args(["-n", "19"]).arg(program).arg(ROLE).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut process = Process::start(&mut command)?;
        let output = process.child().stdout.take().context("the bad servers have no output")?;
        let count = all().count();
        let mut servers = Vec::with_capacity(count);
        for line in BufReader::new(output).lines().take(count) {
            let line = line?;
            let (name, url) = line.split_once(' ').context("the bad servers did not start")?;
            servers.push((name.to_owned(), url.to_owned()));
        }
        ensure!(servers.len() == count, "the bad servers did not start");
        Ok(BadServers { _process: process, servers })
    }

    /// Adds them to [`TENANT`].
    ///
    /// # Errors
    /// If the gateway refuses one, or cannot list its tools.
    pub async fn add(&self, api: &Api<'_>) -> Result<()> {
        for (name, url) in &self.servers {
            // what hangs is given up before the run ends
            api.server(TENANT, name, url, &json!({"call_timeout_s": 5})).await?;
        }
        Ok(())
    }
}

/// Serves until standard input ends; says first on standard output where.
///
/// # Errors
/// If nobody listens to that.
pub async fn serve() -> Result<()> {
    let mut servers = Vec::new();
    for (name, vice) in all() {
        let server = Hostile::start(*vice).await;
        writeln!(std::io::stdout(), "{name} {}", server.url)?;
        servers.push(server);
    }
    tokio::task::spawn_blocking(|| std::io::stdin().read_to_end(&mut Vec::new())).await??;
    Ok(())
}

/// What one group did to the healthy server.
pub struct Beside {
    group: &'static str,
    beside_good: Slice,
    beside_bad: Slice,
    /// Answers that the callers of the bad servers got.
    bad_answers: u64,
}

impl Beside {
    /// Its line in the report.
    pub fn cells(&mut self) -> Vec<String> {
        let [good, bad] = [&mut self.beside_good, &mut self.beside_bad].map(|slice| {
            slice.latencies.sort_unstable();
            (slice.ms(0.5), slice.ms(0.99))
        });
        let mut cells = vec![self.group.to_owned(), self.bad_answers.to_string()];
        for (good, bad) in [(good.0, bad.0), (good.1, bad.1)] {
            cells.extend([format!("{good:.3}"), format!("{bad:.3}"), format!("{:.2}", bad / good)]);
        }
        cells
    }
}

/// Measures every group, in turns with its good counterpart.
///
/// # Errors
/// A wrong answer of the healthy server, or none.
pub async fn run(gateway: &Door) -> Result<Vec<Beside>> {
    let mut groups = Vec::new();
    for Group { name: group, pace, vices } in GROUPS {
        let bad: Vec<String> = vices.iter().map(|(name, _)| format!("{name}:act")).collect();
        // as many who call as often, but a good server
        let good = vec!["up:echo".to_owned(); bad.len()];
        let (mut beside_good, mut beside_bad) = (Slice::default(), Slice::default());
        let answered = Arc::new(AtomicU64::new(0));
        for _ in 0..TURNS {
            beside_good.add(slice(gateway, &good, pace, &Arc::default()).await?);
            beside_bad.add(slice(gateway, &bad, pace, &answered).await?);
        }
        groups.push(Beside { group, beside_good, beside_bad, bad_answers: answered.load(Ordering::Relaxed) });
    }
    Ok(groups)
}

/// One slice of the healthy server's load, while others call these tools.
async fn slice(gateway: &Door, tools: &[String], pace: Pace, answered: &Arc<AtomicU64>) -> Result<Slice> {
    let mut callers = JoinSet::new();
    let all = tools.len() * pace.callers;
    for (number, tool) in tools.iter().cycle().take(all).enumerate() {
        let (door, tool, answered) = (gateway.clone(), tool.clone(), Arc::clone(answered));
        let wait = pace.pause.mul_f64(number as f64 / all as f64);
        callers.spawn(async move {
            tokio::time::sleep(wait).await;
            load::call_often(&door, &tool, pace.pause, &answered).await
        });
    }
    let slice = load::run(gateway, Work::Read, Era::Handshake, CLIENTS, Until::Elapsed(SLICE)).await?;
    ensure!(callers.try_join_next().is_none(), "a caller of the other servers ended");
    // what they have under way is taken back
    callers.shutdown().await;
    Ok(slice)
}
