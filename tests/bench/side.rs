//! Side of a comparison: a door that takes its slices of load in turns with the others.

use std::time::Duration;

use anyhow::Result;

use crate::cpu::Reading;
use crate::load::{self, Door, Era, Slice, Until, Work};

/// Columns of [`Side::cells`] behind the name.
pub const COLUMNS: [&str; 5] =
    ["calls/s", "p50 ms", "p99 ms", "CPU µs per call, gateway", "CPU µs per call, Postgres"];
/// Clients at the same time.
pub const CLIENTS: usize = 16;
const SLICE: Duration = Duration::from_millis(1400);
const WARM_UP: Duration = Duration::from_millis(300);
/// Time that the gateway has after a slice to write and send what belongs to it.
const REST: Duration = Duration::from_millis(700);

/// A door with what was measured through it.
pub struct Side {
    what: String,
    door: Door,
    gateway: Vec<u32>,
    slice: Slice,
    gateway_ns: u64,
    postgres_ns: u64,
}

impl Side {
    /// Makes a side of a gateway's processes.
    pub fn new(what: &str, door: Door, gateway: u32) -> Side {
        let slice = Slice::default();
        Side { what: what.to_owned(), door, gateway: vec![gateway], slice, gateway_ns: 0, postgres_ns: 0 }
    }

    /// Sends load that is not counted.
    ///
    /// # Errors
    /// A wrong answer, or none.
    pub async fn warm_up(&self, work: Work, era: Era) -> Result<()> {
        load::run(&self.door, work, era, CLIENTS, Until::Elapsed(WARM_UP)).await.map(drop)
    }

    /// Takes a slice, and counts with it what the gateway and its Postgres do right after it.
    ///
    /// # Errors
    /// A wrong answer, or none.
    pub async fn turn(&mut self, work: Work, era: Era, postgres: &[u32]) -> Result<()> {
        let before = (Reading::of(&self.gateway), Reading::of(postgres));
        let slice = load::run(&self.door, work, era, CLIENTS, Until::Elapsed(SLICE)).await?;
        tokio::time::sleep(REST).await;
        self.gateway_ns += Reading::of(&self.gateway).since(&before.0);
        self.postgres_ns += Reading::of(postgres).since(&before.1);
        self.slice.add(slice);
        Ok(())
    }

    /// Returns the row of a table: the name, then [`COLUMNS`].
    pub fn cells(&mut self) -> Vec<String> {
        self.slice.latencies.sort_unstable();
        let answers = self.slice.latencies.len() as f64;
        let per_call = |ns: u64| format!("{:.1}", ns as f64 / 1000.0 / answers);
        vec![
            self.what.clone(),
            format!("{:.0}", answers / self.slice.elapsed.as_secs_f64()),
            format!("{:.2}", self.slice.ms(0.5)),
            format!("{:.2}", self.slice.ms(0.99)),
            per_call(self.gateway_ns),
            per_call(self.postgres_ns),
        ]
    }
}
