//! Latency of calls to a healthy server while other callers call bad servers.
//!
//! Two baselines. Servers that hold their callers or lie are compared with as many callers of a good server. Servers that
//! flood are compared with the same bytes sent to a [`crate::sink`], a process that only reads them: what a flood costs
//! the machine by itself is in both figures, what the gateway adds to it is in one. Each turn measures the baseline
//! twice, so that a run shows by how much two equal loads differ (the control).
//!
//! The bad servers run in a process of their own at the lowest priority: what a flood costs its sender is not the
//! gateway's.

use std::io::{Read, Write};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::json;
use tokio::task::JoinSet;

use crate::compare::{self, Compared};
use crate::gateway::Api;
use crate::hostile::{Hostile, Vice};
use crate::load::{self, Door, Era, Slice, Until, Work};
use crate::process::{Priority, Process};
use crate::sink::{self, Sink};

/// Argument that makes the benchmark's binary the bad servers.
pub const ROLE: &str = "bad-servers";
/// Tenant of the bad servers and of the healthy one.
pub const TENANT: &str = "beside";
/// Clients of the healthy server: few enough that the processors have time left.
pub const CLIENTS: usize = 2;
/// Length of a slice.
pub const SLICE: Duration = Duration::from_secs(1);
/// Callers of each bad server, and the pause of each before it calls again.
#[derive(Clone, Copy)]
struct Pace {
    callers: usize,
    pause: Duration,
}

/// Pace of callers that do not give up.
const HAMMERING: Pace = Pace { callers: 8, pause: Duration::from_millis(250) };
/// Pace of an agent at work.
const WORKING: Pace = Pace { callers: 1, pause: Duration::from_secs(1) };

/// Load that a group of bad servers is compared with.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Baseline {
    /// Equal number of callers of a good server, at the same pace.
    GoodServer,
    /// Equal bytes from the same servers, read by the sink.
    Sink,
}

/// Bad servers that are measured together.
struct Group {
    name: &'static str,
    pace: Pace,
    baseline: Baseline,
    /// Turns of three slices: baseline, bad, baseline again.
    turns: usize,
    /// Most that the bad servers may multiply the 99th percentile of the healthy one by.
    ratio_max: f64,
    vices: &'static [(&'static str, Vice)],
}

/// The groups of bad servers, measured apart.
const GROUPS: [Group; 4] = [
    Group {
        name: "slow, silent, dribbling",
        pace: HAMMERING,
        baseline: Baseline::GoodServer,
        turns: 20,
        ratio_max: 1.1,
        vices: &HOLDING,
    },
    Group {
        name: "lying",
        pace: HAMMERING,
        baseline: Baseline::GoodServer,
        turns: 20,
        ratio_max: 1.1,
        vices: &LYING,
    },
    Group {
        name: "huge, flooding; one call a second each",
        pace: WORKING,
        baseline: Baseline::Sink,
        turns: 20,
        ratio_max: 1.1,
        vices: &FLOODING,
    },
    Group {
        name: "huge, flooding; 32 calls a second each",
        pace: HAMMERING,
        baseline: Baseline::Sink,
        turns: 20,
        ratio_max: 1.3,
        vices: &FLOODING,
    },
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
    /// Starts this program as the bad servers, in a child process.
    ///
    /// # Errors
    /// If they do not say where they listen.
    pub fn start() -> Result<BadServers> {
        let (process, lines) = Process::start_role(ROLE, Priority::Lowest)?;
        let count = all().count();
        let mut servers = Vec::with_capacity(count);
        for line in lines.take(count) {
            let line = line?;
            let (name, url) = line.split_once(' ').context("the bad servers did not start")?;
            servers.push((name.to_owned(), url.to_owned()));
        }
        ensure!(servers.len() == count, "the bad servers did not start");
        Ok(BadServers { _process: process, servers })
    }

    /// Returns the addresses of these.
    ///
    /// # Errors
    /// If one was not started.
    fn addresses(&self, vices: &[(&str, Vice)]) -> Result<Vec<(SocketAddr, Vice)>> {
        let address = |(name, vice): &(&str, Vice)| {
            let server = self.servers.iter().find(|(known, _)| known == name);
            let url = &server.with_context(|| format!("there is no bad server {name}"))?.1;
            let at = url.trim_start_matches("http://").trim_end_matches("/mcp").parse()?;
            Ok((at, *vice))
        };
        vices.iter().map(address).collect()
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

/// Latencies of the healthy server in one group.
pub struct Beside {
    group: &'static str,
    ratio_max: f64,
    compared: Compared,
    /// Answers that the callers of the bad servers got.
    bad_answers: u64,
}

/// Returns the columns of the report.
pub fn columns() -> Vec<&'static str> {
    [&["bad servers", "their answers"], &compare::COLUMNS[..]].concat()
}

impl Beside {
    /// Returns the cells of its line in the report.
    pub fn cells(&mut self) -> Vec<String> {
        [vec![self.group.to_owned(), self.bad_answers.to_string()], self.compared.cells(self.ratio_max)]
            .concat()
    }
}

/// The callers that run beside the healthy server's load.
#[derive(Clone, Copy)]
enum Callers<'a> {
    /// Callers of these tools through the gateway.
    Gateway(&'a [String]),
    /// Callers of these bad servers through the sink.
    Sink(&'a [(SocketAddr, Vice)]),
}

/// Measures every group in turns with its baseline.
///
/// # Errors
/// A wrong answer of the healthy server, or none.
pub async fn run(gateway: &Door, servers: &BadServers) -> Result<Vec<Beside>> {
    let sink = Sink::start()?;
    let mut groups = Vec::new();
    for Group { name: group, pace, baseline, turns, ratio_max, vices } in GROUPS {
        let tools: Vec<String> = vices.iter().map(|(name, _)| format!("{name}:act")).collect();
        let good = vec!["up:echo".to_owned(); tools.len()];
        let direct = servers.addresses(vices)?;
        let beside_bad = Callers::Gateway(&tools);
        let beside_baseline = match baseline {
            Baseline::GoodServer => Callers::Gateway(&good),
            Baseline::Sink => Callers::Sink(&direct),
        };
        let mut measured = [Slice::default(), Slice::default(), Slice::default()];
        let (counted, uncounted) = (Arc::new(AtomicU64::new(0)), Arc::default());
        for turn in 0..turns {
            for place in compare::order(turn, measured.len()) {
                let is_bad = place == 1;
                let (callers, answered) =
                    if is_bad { (beside_bad, &counted) } else { (beside_baseline, &uncounted) };
                let slice = slice(gateway, &sink, callers, pace, answered).await?;
                if let Some(sum) = measured.get_mut(place) {
                    sum.add(slice);
                }
            }
        }
        let [baseline, bad, control] = measured;
        let bad_answers = counted.load(Ordering::Relaxed);
        let compared = Compared { baseline, control, bad };
        groups.push(Beside { group, ratio_max, compared, bad_answers });
    }
    Ok(groups)
}

/// Runs one slice of the healthy server's load beside these callers.
async fn slice(
    gateway: &Door,
    sink: &Sink,
    callers: Callers<'_>,
    pace: Pace,
    answered: &Arc<AtomicU64>,
) -> Result<Slice> {
    let mut tasks = JoinSet::new();
    let servers = match callers {
        Callers::Gateway(tools) => tools.len(),
        Callers::Sink(servers) => servers.len(),
    };
    let all = servers * pace.callers;
    for number in 0..all {
        let answered = Arc::clone(answered);
        let wait = pace.pause.mul_f64(number as f64 / all as f64);
        match callers {
            Callers::Gateway(tools) => {
                let Some(tool) = tools.get(number % servers).cloned() else { continue };
                let door = gateway.clone();
                tasks.spawn(async move {
                    tokio::time::sleep(wait).await;
                    load::call_often(&door, &tool, pace.pause, &answered).await
                });
            }
            Callers::Sink(servers_of) => {
                let Some(&(at, vice)) = servers_of.get(number % servers) else { continue };
                let sink = sink.at;
                tasks.spawn(async move {
                    tokio::time::sleep(wait).await;
                    sink::call_often(sink, at, vice, pace.pause, &answered).await
                });
            }
        }
    }
    let slice = load::run(gateway, Work::Read, Era::Handshake, CLIENTS, Until::Elapsed(SLICE)).await?;
    if let Some(ended) = tasks.try_join_next() {
        ended??;
    }
    // calls under way are taken back
    tasks.shutdown().await;
    Ok(slice)
}
