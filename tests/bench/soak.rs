//! A long run: many calls and many sessions that come and go, and what memory is left in use by them.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use tokio::task::JoinSet;

use crate::cpu;
use crate::load::{self, Door, Era, Until, Work};
use crate::say;

/// Calls in all.
const CALLS: u64 = 1_000_000;
/// Sessions in all, each with an open stream.
const SESSIONS: usize = 10_000;
/// Both come in this many rounds, after a first one that is not counted.
const ROUNDS: u64 = 10;
/// Clients that call at the same time.
const CLIENTS: usize = 64;
/// Sessions that are open at the same time.
const OPEN: usize = 500;
/// How much more memory than at the start may be in use at the end.
const GROWTH_MAX: f64 = 1.10;
/// Memory is settled when it changes by less than this within [`LOOK_EVERY`].
const STEADY_MIB: f64 = 0.2;
const LOOK_EVERY: Duration = Duration::from_secs(2);
const SETTLE_MAX: Duration = Duration::from_secs(40);

/// Runs, and gives a table.
///
/// # Errors
/// A wrong answer, or more memory in use than [`GROWTH_MAX`] allows.
pub async fn run(gateway: &Door, pid: u32) -> Result<String> {
    let idle = memory(pid)?;
    round(gateway).await?;
    let start = settled(pid).await?;
    let mut table = format!(
        "| after | memory (PSS), MiB |\n| --- | --- |\n| the start | {idle:.1} |\n| a first round of {} calls \
         and {} sessions | {start:.1} |\n",
        CALLS / ROUNDS,
        SESSIONS / ROUNDS as usize
    );
    let mut end = start;
    for done in 1..=ROUNDS {
        round(gateway).await?;
        end = settled(pid).await?;
        say(&format!("round {done} of {ROUNDS}: {end:.1} MiB"));
        let (calls, sessions) = (CALLS / ROUNDS * done, SESSIONS / ROUNDS as usize * done as usize);
        table.push_str(&format!("| {calls} more calls, {sessions} more sessions | {end:.1} |\n"));
    }
    ensure!(end <= start * GROWTH_MAX, "memory grew from {start:.1} to {end:.1} MiB\n{table}");
    Ok(table)
}

async fn round(gateway: &Door) -> Result<()> {
    let each = CALLS / ROUNDS / 5;
    // most calls only read; the other kinds keep other things
    for (work, era, calls) in [
        (Work::Read, Era::Handshake, each * 2),
        (Work::Read, Era::Modern, each * 2),
        (Work::ReadBig, Era::Modern, each / 2),
        (Work::Write, Era::Handshake, each / 2),
    ] {
        load::run(gateway, work, era, CLIENTS, Until::Answers(calls)).await?;
    }
    for _ in 0..SESSIONS / ROUNDS as usize / OPEN {
        let mut opening = JoinSet::new();
        for number in 0..OPEN {
            let door = gateway.clone();
            opening.spawn(async move { load::open_session(&door, number).await });
        }
        let mut open = Vec::with_capacity(OPEN);
        while let Some(session) = opening.join_next().await {
            open.push(session??);
        }
        // all of them are there at once, and all go at once
        drop(open);
    }
    Ok(())
}

fn memory(pid: u32) -> Result<f64> {
    cpu::memory_mib(pid).context("the gateway is gone")
}

/// Memory in use once it does not change any more.
async fn settled(pid: u32) -> Result<f64> {
    let deadline = Instant::now() + SETTLE_MAX;
    let mut last = memory(pid)?;
    loop {
        tokio::time::sleep(LOOK_EVERY).await;
        let now = memory(pid)?;
        if (now - last).abs() < STEADY_MIB || Instant::now() >= deadline {
            return Ok(now);
        }
        last = now;
    }
}
