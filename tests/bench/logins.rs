//! Calls with tokens of an identity provider: what they cost beside calls with a key, and what bad tokens cost others.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::json;
use tokio::task::JoinSet;

use crate::compare::{self, Compared};
use crate::gateway::{Api, Gateway};
use crate::idp::Idp;
use crate::load::{self, Era, Until, Work};
use crate::report::table;
use crate::say;
use crate::side::{CLIENTS, COLUMNS, Side};

/// Word that asks for this run.
pub const WORD: &str = "logins";
/// Turns, of which each side has one slice each: what is looked for is smaller than the machine's noise.
const TURNS: u32 = 12;
/// Turns of the comparison beside bad tokens.
const BAD_TURNS: usize = 8;
/// Length of a slice beside bad tokens.
const SLICE: Duration = Duration::from_millis(1400);
/// Bad tokens a second.
const BAD_PER_S: u64 = 1000;
/// Senders of bad tokens.
const SENDERS: u64 = 8;
/// Most that the 99th percentile of others may be multiplied by beside bad tokens.
const RATIO_MAX: f64 = 1.1;
/// Audience of the tokens.
const AUDIENCE: &str = "bench";

/// A person of a tenant, who calls as its agents do.
pub struct Person {
    idp: Idp,
    /// Token of the person, valid for longer than a run.
    pub token: String,
}

impl Person {
    /// Has the gateway accept a provider for a tenant, and returns a person of it.
    ///
    /// # Errors
    /// If the gateway refuses.
    pub async fn of(api: &Api<'_>, tenant: &str) -> Result<Person> {
        let idp = Idp::start().await;
        let issuer = json!({"name": tenant, "issuer": idp.url, "audiences": [AUDIENCE], "tenant": tenant});
        api.post(None, "/issuers", &issuer).await?;
        let rules = json!([{"role": "agent", "settings": {"direct_endpoint": true}}]);
        api.put(tenant, "/identity/rules", &json!({"version": 0, "rules": rules})).await?;
        // of the size that a company's provider gives
        let groups: Vec<String> = (0..20).map(|n| format!("00000000-0000-4000-8000-{n:012}")).collect();
        let more = json!({"email": "ana@example.com", "groups": groups, "exp": crate::idp::now_s() + 20_000});
        let token = idp.token("ana", AUDIENCE, more);
        Ok(Person { idp, token })
    }

    /// Returns a token that names a key of the provider and is not signed with it.
    fn forged(&self, number: u64) -> String {
        let claims = self.idp.claims(&format!("person-{number}"), AUDIENCE);
        let signed = self.idp.sign(&claims);
        let at = signed.len() - 20;
        let other = if signed.get(at..=at) == Some("A") { "B" } else { "A" };
        format!("{}{other}{}", signed.get(..at).unwrap_or_default(), signed.get(at + 1..).unwrap_or_default())
    }
}

/// Measures reads with a key and with a token, then reads with a key beside bad tokens.
///
/// # Errors
/// A wrong answer, none, or a bad token that was taken.
pub async fn run(gateway: &Gateway, key: &str, person: &Person) -> Result<String> {
    let mut out = String::new();
    for era in [Era::Handshake, Era::Modern] {
        let doors = [("key", key), ("key again", key), ("token", &person.token)];
        let mut sides = doors.map(|(what, key)| Side::new(what, gateway.door(key), gateway.pid()));
        for side in &sides {
            side.warm_up(Work::Read, era).await?;
        }
        for turn in 1..=TURNS {
            say(&format!("{era:?}, turn {turn} of {TURNS}"));
            for side in &mut sides {
                side.turn(Work::Read, era, &[]).await?;
            }
        }
        let rows: Vec<_> = sides.iter_mut().map(Side::cells).collect();
        let [calls, p50, p99, cpu, _] = COLUMNS;
        let rows = rows.into_iter().map(|mut cells| {
            cells.truncate(5);
            cells
        });
        let title = format!("Reads with a token of {} bytes, {CLIENTS} clients, {era:?}", person.token.len());
        table(&mut out, &title, &["credential", calls, p50, p99, cpu], &rows.collect::<Vec<_>>());
    }
    let mut compared = Compared::default();
    let mut sent = 0;
    for turn in 0..BAD_TURNS {
        say(&format!("beside bad tokens, turn {} of {BAD_TURNS}", turn + 1));
        for place in compare::order(turn, 3) {
            let door = gateway.door(key);
            let calls = load::run(&door, Work::Read, Era::Modern, CLIENTS, Until::Elapsed(SLICE));
            match place {
                0 => compared.baseline.add(calls.await?),
                1 => compared.control.add(calls.await?),
                _ => {
                    let flood = Flood::start(gateway, person);
                    let slice = calls.await;
                    sent += flood.end()?;
                    compared.bad.add(slice?);
                }
            }
        }
    }
    let seconds = SLICE.as_secs_f64() * BAD_TURNS as f64;
    let rate = format!("{:.0}", sent as f64 / seconds);
    let rows = [[vec![rate], compared.cells(RATIO_MAX)].concat()];
    let columns = [&["bad tokens a second"], &compare::COLUMNS[..]].concat();
    table(&mut out, &format!("Reads with a key beside bad tokens, {CLIENTS} clients"), &columns, &rows);
    Ok(out)
}

/// Senders of bad tokens, until they are told to end.
struct Flood {
    answered: Arc<AtomicU64>,
    taken: Arc<AtomicU64>,
    senders: JoinSet<()>,
}

impl Flood {
    fn start(gateway: &Gateway, person: &Person) -> Flood {
        let (answered, taken) = (Arc::<AtomicU64>::default(), Arc::<AtomicU64>::default());
        let mut senders = JoinSet::new();
        // signing costs as much as verifying: a few tokens are made, each of which the gateway has to verify every time
        let tokens: Arc<[String]> = (0..32).map(|number| person.forged(number)).collect();
        for sender in 0..SENDERS {
            let (answered, taken, tokens) = (Arc::clone(&answered), Arc::clone(&taken), Arc::clone(&tokens));
            let door = gateway.door("");
            senders.spawn(async move {
                let mut pace = tokio::time::interval(Duration::from_micros(1_000_000 * SENDERS / BAD_PER_S));
                let mut next = sender as usize;
                let Ok(mut bad) = load::Unchecked::connect(&door).await else { return };
                loop {
                    pace.tick().await;
                    next += 1;
                    let token = tokens.get(next % tokens.len()).map_or("", String::as_str);
                    match bad.list(token).await {
                        Ok(http::StatusCode::UNAUTHORIZED) => answered.fetch_add(1, Ordering::Relaxed),
                        _ => taken.fetch_add(1, Ordering::Relaxed),
                    };
                }
            });
        }
        Flood { answered, taken, senders }
    }

    /// Ends the senders, and returns the number of tokens that were refused.
    fn end(mut self) -> Result<u64> {
        self.senders.abort_all();
        let other = self.taken.load(Ordering::Relaxed);
        ensure!(other == 0, "{other} bad tokens were answered with something else than 401");
        Some(self.answered.load(Ordering::Relaxed)).filter(|sent| *sent > 0).context("no bad token was sent")
    }
}
