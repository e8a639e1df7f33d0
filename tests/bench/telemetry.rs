//! What telling a collector costs: one and the same load on gateways that tell of nothing, of a tenth and of everything.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use axum::Router;
use axum::extract::State;
use axum::routing::post;
use bytes::Bytes;
use tokio::net::TcpListener;

use crate::cpu::Reading;
use crate::gateway::Gateway;
use crate::load::{self, Era, Slice, Until, Work};
use crate::report::table;
use crate::say;

/// The word that asks for this run.
pub const WORD: &str = "telemetry";
/// Turns, of which each gateway has one slice each.
const TURNS: u32 = 5;
const SLICE: Duration = Duration::from_millis(1400);
const WARM_UP: Duration = Duration::from_millis(300);
/// Clients at the same time.
const CLIENTS: usize = 16;
/// How long after a slice the gateway may still send what belongs to it.
const REST: Duration = Duration::from_millis(700);
/// Milliseconds between two batches: all of a slice's spans are sent within its turn.
const DELAY_MS: &str = "200";

/// A gateway that tells of a share of its requests.
struct Told {
    what: &'static str,
    gateway: Gateway,
    slice: Slice,
    cpu_ns: u64,
}

/// Measures reads of both eras on replicas of the gateway whose database this is.
///
/// # Errors
/// A wrong answer, none, or spans that did not arrive.
pub async fn run(database_url: &str, data_dir: &Path, key: &str) -> Result<String> {
    let received = Arc::new(AtomicU64::new(0));
    let endpoint = collector(&received).await?;
    let mut out = String::new();
    for era in [Era::Handshake, Era::Modern] {
        let start = |what, ratio: Option<&str>| -> Result<Told> {
            let mut settings = vec![("OTEL_BSP_SCHEDULE_DELAY", DELAY_MS.to_owned())];
            if let Some(ratio) = ratio {
                settings.push(("MCPPROXY__TELEMETRY__OTLP_ENDPOINT", endpoint.clone()));
                settings.push(("MCPPROXY__TELEMETRY__SAMPLE_RATIO", ratio.to_owned()));
            }
            let gateway = Gateway::start_on_with(database_url, data_dir, &settings)?;
            Ok(Told { what, gateway, slice: Slice::default(), cpu_ns: 0 })
        };
        let mut all = [start("off", None)?, start("10 %", Some("0.1"))?, start("100 %", Some("1"))?];
        for told in &all {
            told.gateway.first_list(key).await?;
            load::run(&told.gateway.door(key), Work::Read, era, CLIENTS, Until::Elapsed(WARM_UP)).await?;
        }
        for turn in 1..=TURNS {
            say(&format!("telemetry, {era:?}, turn {turn} of {TURNS}"));
            for told in &mut all {
                told.turn(key, era).await.with_context(|| told.gateway.log())?;
            }
        }
        let rows: Vec<_> = all.iter_mut().map(Told::cells).collect();
        let title = format!("Reads with traces, {CLIENTS} clients, {era:?}");
        table(&mut out, &title, &["traced", "calls/s", "p50 ms", "p99 ms", "CPU µs per call"], &rows);
    }
    let spans = received.load(Ordering::Relaxed);
    ensure!(spans > 0, "no batch of spans arrived");
    out.push_str(&format!("\n{spans} batches of spans arrived.\n"));
    Ok(out)
}

impl Told {
    async fn turn(&mut self, key: &str, era: Era) -> Result<()> {
        let pids = [self.gateway.pid()];
        let before = Reading::of(&pids);
        let slice =
            load::run(&self.gateway.door(key), Work::Read, era, CLIENTS, Until::Elapsed(SLICE)).await?;
        // records and spans of the slice belong to its cost
        let begun = Instant::now();
        tokio::time::sleep(REST.saturating_sub(begun.elapsed())).await;
        self.cpu_ns += Reading::of(&pids).since(&before);
        self.slice.add(slice);
        Ok(())
    }

    fn cells(&mut self) -> Vec<String> {
        self.slice.latencies.sort_unstable();
        let answers = self.slice.latencies.len() as f64;
        vec![
            self.what.to_owned(),
            format!("{:.0}", answers / self.slice.elapsed.as_secs_f64()),
            format!("{:.2}", self.slice.ms(0.5)),
            format!("{:.2}", self.slice.ms(0.99)),
            format!("{:.1}", self.cpu_ns as f64 / 1000.0 / answers),
        ]
    }
}

/// A collector that takes everything and looks at nothing; gives its endpoint.
async fn collector(received: &Arc<AtomicU64>) -> Result<String> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let endpoint = format!("http://{}", listener.local_addr()?);
    let take = async |State(received): State<Arc<AtomicU64>>, _body: Bytes| {
        received.fetch_add(1, Ordering::Relaxed);
    };
    let routes = Router::new().route("/v1/traces", post(take)).with_state(Arc::clone(received));
    tokio::spawn(async move { drop(axum::serve(listener, routes).await) });
    Ok(endpoint)
}
