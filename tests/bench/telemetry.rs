//! What telling a collector costs: one and the same load on gateways that tell of nothing, of a tenth and of everything.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::{Context, Result, ensure};
use axum::Router;
use axum::extract::State;
use axum::routing::post;
use bytes::Bytes;
use tokio::net::TcpListener;

use crate::gateway::Gateway;
use crate::load::{Era, Work};
use crate::report::table;
use crate::say;
use crate::side::{CLIENTS, COLUMNS, Side};

/// The word that asks for this run.
pub const WORD: &str = "telemetry";
/// Turns, of which each gateway has one slice each.
const TURNS: u32 = 5;
/// Milliseconds between two batches: all of a slice's spans are sent within its turn.
const DELAY_MS: &str = "200";

/// Measures reads of both eras on replicas of the gateway whose database this is.
///
/// # Errors
/// A wrong answer, none, or spans that did not arrive.
pub async fn run(database_url: &str, data_dir: &Path, key: &str) -> Result<String> {
    let received = Arc::new(AtomicU64::new(0));
    let endpoint = collector(&received).await?;
    let mut out = String::new();
    for era in [Era::Handshake, Era::Modern] {
        let start = |ratio: Option<&str>| -> Result<Gateway> {
            let mut settings = vec![("OTEL_BSP_SCHEDULE_DELAY", DELAY_MS.to_owned())];
            if let Some(ratio) = ratio {
                settings.push(("MCPPROXY__TELEMETRY__OTLP_ENDPOINT", endpoint.clone()));
                settings.push(("MCPPROXY__TELEMETRY__SAMPLE_RATIO", ratio.to_owned()));
            }
            Gateway::start_on_with(database_url, data_dir, &settings)
        };
        let gateways = [("off", start(None)?), ("10 %", start(Some("0.1"))?), ("100 %", start(Some("1"))?)];
        let mut sides = Vec::new();
        for (what, gateway) in &gateways {
            gateway.first_list(key).await?;
            let side = Side::new(what, gateway.door(key), gateway.pid());
            side.warm_up(Work::Read, era).await?;
            sides.push(side);
        }
        for turn in 1..=TURNS {
            say(&format!("telemetry, {era:?}, turn {turn} of {TURNS}"));
            for (side, (_, gateway)) in sides.iter_mut().zip(&gateways) {
                side.turn(Work::Read, era, &[]).await.with_context(|| gateway.log())?;
            }
        }
        let rows: Vec<_> = sides.iter_mut().map(Side::cells).collect();
        let title = format!("Reads with traces, {CLIENTS} clients, {era:?}");
        let [calls, p50, p99, cpu, _] = COLUMNS;
        table(&mut out, &title, &["traced", calls, p50, p99, cpu], &rows);
    }
    let spans = received.load(Ordering::Relaxed);
    ensure!(spans > 0, "no batch of spans arrived");
    out.push_str(&format!("\n{spans} batches of spans arrived.\n"));
    Ok(out)
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
