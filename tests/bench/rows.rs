//! What is measured: rows of load, each offered in turns to everything that it is compared with.

use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use crate::cpu::Reading;
use crate::load::{self, Door, Era, Slice, Until, Work};
use crate::postgres::Postgres;

/// Turns of each row.
const TURNS: u32 = 3;
/// Length of a slice.
const SLICE: Duration = Duration::from_millis(1400);
/// Length of the slice before the first turn, which is not counted.
const WARM_UP: Duration = Duration::from_millis(300);
/// After a slice the gateway still writes its activity log, which belongs to the slice's cost: how often it is
/// looked at, how little it and its Postgres do in that time when they are done, and how long they are waited for.
const LOOK_EVERY: Duration = Duration::from_millis(150);
const QUIET: Duration = Duration::from_millis(5);
const SETTLE_MAX: Duration = Duration::from_secs(5);

/// Where load goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Through {
    /// To the upstream itself.
    Direct,
    /// Through nginx.
    Nginx,
    /// Through agentgateway.
    Agentgateway,
    /// Through the gateway.
    Gateway,
    /// Not at all: one committed insert instead of each call.
    Insert,
}

/// The table that a row belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Subject {
    /// Calls that only read.
    Reads,
    /// Calls whose record is committed first.
    Writes,
    /// What the gateway answers by itself.
    Lists,
}

/// One kind of load.
#[derive(Clone, Copy, Debug)]
pub struct Row {
    /// Its table.
    pub subject: Subject,
    /// Its name.
    pub name: &'static str,
    /// What is asked for.
    pub work: Work,
    /// How.
    pub era: Era,
    /// Clients at the same time, each on one connection.
    pub clients: usize,
    /// Requests a second over all clients; `None`: each client asks again once it has its answer.
    pub pace: Option<u32>,
    /// What is compared, in the order of the turns.
    pub through: &'static [Through],
}

/// What one row measured through one thing.
#[derive(Clone, Debug)]
pub struct Measured {
    /// Through what.
    pub through: Through,
    /// Latencies.
    pub slice: Slice,
    /// CPU time of the hop, nanoseconds.
    pub hop_ns: u64,
    /// CPU time of the gateway's Postgres, nanoseconds.
    pub postgres_ns: u64,
}

/// A row with what it measured.
pub struct Outcome {
    /// The row.
    pub row: Row,
    /// One per thing compared.
    pub measured: Vec<Measured>,
}

/// Every row, in the order of the report.
pub fn all() -> Vec<Row> {
    use Through::{Agentgateway, Direct, Gateway, Insert, Nginx};
    const HOPS: &[Through] = &[Direct, Nginx, Gateway];
    const PEERS: &[Through] = &[Direct, Nginx, Agentgateway, Gateway];
    let row = |subject, name, work, era, clients, through| Row {
        subject,
        name,
        work,
        era,
        clients,
        pace: None,
        through,
    };
    let mut rows = Vec::new();
    for era in [Era::Handshake, Era::Modern] {
        for clients in [1, 16, 64] {
            let through = if clients == 16 { PEERS } else { HOPS };
            rows.push(row(Subject::Reads, "read", Work::Read, era, clients, through));
        }
    }
    for era in [Era::Handshake, Era::Modern] {
        let read = row(Subject::Reads, "read, 3000 a second", Work::Read, era, 16, HOPS);
        rows.push(Row { pace: Some(3000), ..read });
    }
    rows.push(row(Subject::Reads, "read of 10 kB", Work::ReadBig, Era::Handshake, 16, HOPS));
    for clients in [1, 16] {
        let through = &[Direct, Insert, Gateway];
        rows.push(row(Subject::Writes, "write", Work::Write, Era::Handshake, clients, through));
    }
    for clients in [1, 16] {
        rows.push(row(Subject::Lists, "tools/list", Work::List, Era::Handshake, clients, HOPS));
    }
    for era in [Era::Handshake, Era::Modern] {
        let through = &[Direct, Gateway];
        for clients in [1, 16] {
            let name = "tools/list of 1000 tools, /mcp/direct";
            rows.push(row(Subject::Lists, name, Work::ListDirect, era, clients, through));
        }
    }
    for clients in [1, 16] {
        rows.push(row(
            Subject::Lists,
            "retrieve_tools, 1000 tools",
            Work::Search,
            Era::Handshake,
            clients,
            &[Gateway],
        ));
    }
    rows
}

/// Everything that load can go through.
pub struct Bench {
    /// The upstream.
    pub direct: Door,
    /// nginx with its processes, where it is installed.
    pub nginx: Option<(Door, Vec<u32>)>,
    /// agentgateway with its process, where it is named.
    pub agentgateway: Option<(Door, Vec<u32>)>,
    /// The gateway's door for calls.
    pub gateway: Door,
    /// The gateway's door for the tenant with the large catalogue.
    pub catalogue: Door,
    /// The gateway's process.
    pub gateway_pid: u32,
    /// Its Postgres.
    pub postgres: Postgres,
}

impl Bench {
    /// Measures a row.
    ///
    /// # Errors
    /// A wrong answer, or none.
    pub async fn measure(&self, row: Row) -> Result<Outcome> {
        let there = |through: &Through| match through {
            Through::Nginx => self.nginx.is_some(),
            Through::Agentgateway => self.agentgateway.is_some(),
            _ => true,
        };
        let through: Vec<Through> = row.through.iter().copied().filter(there).collect();
        let empty = |through| Measured { through, slice: Slice::default(), hop_ns: 0, postgres_ns: 0 };
        let mut measured: Vec<Measured> = through.into_iter().map(empty).collect();
        for warmed in &measured {
            self.slice(row, warmed.through, WARM_UP).await?;
        }
        for _ in 0..TURNS {
            for so_far in &mut measured {
                self.turn(row, so_far).await.with_context(|| {
                    format!("{}, {} clients, {:?}, {:?}", row.name, row.clients, row.era, so_far.through)
                })?;
            }
        }
        Ok(Outcome { row, measured })
    }

    async fn turn(&self, row: Row, so_far: &mut Measured) -> Result<()> {
        let hop = match so_far.through {
            Through::Nginx => self.nginx.iter().flat_map(|(_, pids)| pids.clone()).collect(),
            Through::Agentgateway => self.agentgateway.iter().flat_map(|(_, pids)| pids.clone()).collect(),
            Through::Gateway => vec![self.gateway_pid],
            Through::Direct | Through::Insert => Vec::new(),
        };
        let before = (Reading::of(&hop), Reading::of(&self.postgres.pids()));
        let slice = self.slice(row, so_far.through, SLICE).await?;
        if so_far.through == Through::Gateway {
            self.settle().await;
        }
        let after = (Reading::of(&hop), Reading::of(&self.postgres.pids()));
        so_far.slice.add(slice);
        so_far.hop_ns += after.0.since(&before.0);
        so_far.postgres_ns += after.1.since(&before.1);
        Ok(())
    }

    /// Waits until the gateway has written what it still had to write.
    async fn settle(&self) {
        let used = || Reading::of(&[vec![self.gateway_pid], self.postgres.pids()].concat());
        let begun = Instant::now();
        let mut before = used();
        while begun.elapsed() < SETTLE_MAX {
            tokio::time::sleep(LOOK_EVERY).await;
            let now = used();
            if u128::from(now.since(&before)) < QUIET.as_nanos() {
                return;
            }
            before = now;
        }
    }

    async fn slice(&self, row: Row, through: Through, time: Duration) -> Result<Slice> {
        let door = match through {
            Through::Insert => return self.postgres.insert(row.clients, time).await,
            Through::Direct => &self.direct,
            Through::Nginx => self.nginx.as_ref().map_or(&self.direct, |(door, _)| door),
            Through::Agentgateway => self.agentgateway.as_ref().map_or(&self.direct, |(door, _)| door),
            Through::Gateway if matches!(row.work, Work::Search | Work::ListDirect) => &self.catalogue,
            Through::Gateway => &self.gateway,
        };
        let until = row.pace.map_or(Until::Elapsed(time), |pace| Until::Paced(pace, time));
        load::run(door, row.work, row.era, row.clients, until).await
    }
}
