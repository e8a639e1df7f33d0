//! Latency of one tenant's calls while others attack the same replica in every known way at once.
//!
//! Turns of four slices: nothing beside the calls, the attacks, the same bytes sent to a [`crate::sink`], nothing once more
//! (the control). The sink gets as many requests a second as the gateway took. At the end the attacks run for a while without
//! a break, so that the memory that they may hold is held.
//!
//! The attackers, and the server whose tools they call, are one process at the lowest priority: what an attack costs its
//! sender is not the gateway's. The replica is one of its own, with the memory budget of a container of 512 MiB.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::attackers::{ATTACKS, Attackers, GATEWAY, SINK, Tallies, Targets, read};
use crate::beside::{CLIENTS, SLICE};
use crate::compare::{self, Compared, must};
use crate::cpu;
use crate::gateway::{Api, Gateway};
use crate::load::{self, Era, Slice, Until, Work};
use crate::sink::Sink;

/// Memory that the replica may give requests and answers: 60 % of 512 MiB, as in a container of that size.
const MEMORY_BYTES: usize = 512 * 1024 * 1024 / 100 * 60;
const TURNS: usize = 20;
/// Time between the start of an attack and the slice beside it, and between its end and the next slice.
const LEAD: Duration = Duration::from_millis(500);
/// Length of the attack without a break: bodies wait 5 s for memory.
const HOLD: Duration = Duration::from_secs(20);
/// Time without an attack before the memory that is left is read.
const CALM: Duration = Duration::from_secs(10);
/// Pause between two probes of `/livez`.
const PROBE_EVERY: Duration = Duration::from_millis(50);
/// Most that the attacks may multiply the 99th percentile by; and memory of the replica, MiB.
const RATIO_MAX: f64 = 1.3;
const MEMORY_MIB_MAX: f64 = 512.0;

/// Starts the replica that is attacked.
///
/// # Errors
/// As [`Gateway::start`].
pub fn start(database_url: &str, data_dir: &Path) -> Result<Gateway> {
    let memory = ("MCPPROXY__LIMITS__MEMORY_BYTES_MAX", MEMORY_BYTES.to_string());
    Gateway::start_on_with(database_url, data_dir, &[memory])
}

/// Figures of a run.
pub struct Attacks {
    in_turns: Compared,
    beside_sink: Compared,
    held: Compared,
    /// Slowest answer of `/livez`: beside nothing, the attacks, the sink.
    livez: [Duration; 3],
    peak_mib: Option<f64>,
    end_mib: Option<f64>,
    tallies: Tallies,
}

/// Returns the columns of the latencies.
pub fn columns() -> Vec<&'static str> {
    [&["attacks", "baseline"], &compare::COLUMNS[..]].concat()
}
/// Columns of the lines about the replica.
pub const REPLICA_COLUMNS: [&str; 3] = ["the replica", "value", "must"];
/// Columns of the lines about the attacks.
pub const ATTACK_COLUMNS: [&str; 5] =
    ["attack", "requests or connections a second", "answered", "with 200", "MiB a second"];

impl Attacks {
    /// Returns the lines of latencies.
    pub fn cells(&mut self) -> Vec<Vec<String>> {
        let lines = [
            ("a second at a time", "nothing", &mut self.in_turns),
            ("a second at a time", "the same bytes to a sink", &mut self.beside_sink),
            ("20 s without a break", "nothing", &mut self.held),
        ];
        let cells = lines.map(|(attacks, baseline, compared)| {
            [vec![attacks.to_owned(), baseline.to_owned()], compared.cells(RATIO_MAX)].concat()
        });
        cells.into()
    }

    /// Returns the lines about the replica.
    pub fn replica(&self) -> Vec<Vec<String>> {
        let mut rows = Vec::new();
        for (what, mib) in [("most memory (resident)", self.peak_mib), ("memory 10 s after", self.end_mib)] {
            let mib = mib.unwrap_or(f64::NAN);
            rows.push(vec![
                what.to_owned(),
                format!("{mib:.0} MiB"),
                must(mib, MEMORY_MIB_MAX, "", " MiB", false),
            ]);
        }
        for (beside, slowest) in ["nothing", "the attacks", "the sink"].iter().zip(self.livez) {
            let slowest = format!("{:.1} ms", slowest.as_secs_f64() * 1000.0);
            rows.push(vec![format!("slowest `/livez` beside {beside}"), slowest, String::new()]);
        }
        rows
    }

    /// Returns the lines about the attacks.
    pub fn attacks(&self) -> Vec<Vec<String>> {
        let each = ATTACKS.iter().zip(&self.tallies.each).map(|(attack, tally)| {
            let rate = |count: &AtomicU64| read(count) / self.tallies.seconds;
            let mut cells = vec![attack.name.to_owned()];
            cells.extend(
                [&tally.begun, &tally.answered, &tally.good].map(|count| format!("{:.1}", rate(count))),
            );
            cells.push(format!("{:.1}", rate(&tally.bytes) / 1024.0 / 1024.0));
            cells
        });
        each.collect()
    }
}

/// Asks `/livez` on new connections until told that it is enough; returns the slowest answer.
async fn probe(at: SocketAddr, enough: &AtomicBool) -> Result<Duration> {
    let mut slowest = Duration::ZERO;
    while !enough.load(Ordering::Relaxed) {
        let began = Instant::now();
        let mut tcp = TcpStream::connect(at).await?;
        tcp.write_all(b"GET /livez HTTP/1.1\r\nhost: kubelet\r\nconnection: close\r\n\r\n").await?;
        let mut answer = String::new();
        tcp.read_to_string(&mut answer).await?;
        ensure!(answer.starts_with("HTTP/1.1 200"), "/livez: {answer}");
        slowest = slowest.max(began.elapsed());
        tokio::time::sleep(PROBE_EVERY).await;
    }
    Ok(slowest)
}

/// Measures one tenant's calls and probes while something goes on beside them.
async fn slice(
    gateway: &Gateway,
    key: &str,
    attackers: &mut Attackers,
    target: Option<&str>,
    length: Duration,
) -> Result<(Slice, Duration, Option<Tallies>)> {
    if let Some(target) = target {
        attackers.begin(target)?;
    }
    tokio::time::sleep(LEAD).await;
    let (door, enough) = (gateway.door(key), AtomicBool::new(false));
    let calls = async {
        let slice = load::run(&door, Work::Read, Era::Handshake, CLIENTS, Until::Elapsed(length)).await;
        enough.store(true, Ordering::Relaxed);
        slice
    };
    let (calls, slowest) = tokio::join!(calls, probe(gateway.at, &enough));
    let tallies = target.map(|_| attackers.end()).transpose()?;
    tokio::time::sleep(LEAD).await;
    Ok((calls?, slowest?, tallies))
}

/// Attacks a replica while the tenant with this key calls its server through it.
///
/// # Errors
/// A wrong answer to that tenant or to a probe, or none.
pub async fn run(api: &Api<'_>, gateway: &Gateway, key: &str) -> Result<Attacks> {
    let mut attackers = Attackers::start()?;
    let url = attackers.url.clone();
    let sink = Sink::start()?;
    let targets = Targets {
        gateway: gateway.at,
        sink: sink.requests_at,
        schemas: api.tenant("attack-schemas", "bad", &url).await?,
        nodes: api.tenant("attack-nodes", "bad", &url).await?,
        slow: api.tenant("attack-slow", "bad", &url).await?,
    };
    attackers.aim(&targets)?;
    // what the gateway takes is known before the sink gets as much
    slice(gateway, key, &mut attackers, Some(GATEWAY), SLICE).await?;
    let kinds = [None, Some(GATEWAY), Some(SINK), None];
    let mut measured: [Slice; 4] = Default::default();
    let mut livez = [Duration::ZERO; 4];
    for turn in 0..TURNS {
        for place in compare::order(turn, kinds.len()) {
            let beside = kinds.get(place).copied().flatten();
            let (calls, slowest, _) = slice(gateway, key, &mut attackers, beside, SLICE).await?;
            if let (Some(sum), Some(most)) = (measured.get_mut(place), livez.get_mut(place)) {
                sum.add(calls);
                *most = slowest.max(*most);
            }
        }
    }
    let (held, slowest, tallies) = slice(gateway, key, &mut attackers, Some(GATEWAY), HOLD).await?;
    tokio::time::sleep(CALM).await;
    let [baseline, attacked, beside_sink, control] = measured;
    let [quiet, attacked_livez, sink_livez, quiet_again] = livez;
    let in_turns = Compared { baseline, control, bad: attacked };
    Ok(Attacks {
        beside_sink: Compared { baseline: beside_sink, control: Slice::default(), bad: in_turns.bad.clone() },
        held: Compared { bad: held, ..in_turns.clone() },
        in_turns,
        livez: [quiet.max(quiet_again), attacked_livez.max(slowest), sink_livez],
        peak_mib: cpu::resident_peak_mib(gateway.pid()),
        end_mib: cpu::resident_mib(gateway.pid()),
        tallies: tallies.context("no tallies")?,
    })
}
