//! Calls with tokens of an identity provider: what they cost beside calls with a key, and what bad tokens cost others.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use http::StatusCode;
use serde_json::json;
use tokio::task::JoinSet;

use crate::compare::{self, Compared};
use crate::cpu::Reading;
use crate::gateway::{Api, Gateway};
use crate::idp::Idp;
use crate::load::{self, Door, Era, Until, Work};
use crate::report::table;
use crate::say;
use crate::side::CLIENTS;
use crate::sink::Sink;

/// Word that asks for this run.
pub const WORD: &str = "logins";
/// Turns of lists, of which each side has one slice each: what is looked for is smaller than the machine's noise.
const LIST_TURNS: usize = 61;
/// Length of a slice of lists.
const LIST_SLICE: Duration = Duration::from_millis(300);
/// Most that a call with a token may cost more than one with a key, in microseconds of CPU.
const ADDED_US_MAX: f64 = 3.0;
/// Largest difference between two equal loads, in microseconds. A run with a larger one says nothing about the bound.
const CONTROL_US_MAX: f64 = 1.0;
/// Reads of others a second, far below what the gateway can do.
const READS_PER_S: u32 = 2000;
/// Turns of the comparison beside bad tokens.
const BAD_TURNS: usize = 40;
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

/// Measures lists with a key and with a token, then reads with a key beside bad tokens.
///
/// # Errors
/// A wrong answer, none, or a bad token that was taken.
pub async fn run(gateway: &Gateway, key: &str, person: &Person) -> Result<String> {
    let mut out = String::new();
    let mut rows = Vec::new();
    for era in [Era::Handshake, Era::Modern] {
        rows.push(token_beside_key(gateway, key, person, era).await?);
    }
    // a list costs little besides finding out who asks for it
    let title = format!("Lists with a token of {} bytes, {CLIENTS} clients", person.token.len());
    let columns =
        ["era", "CPU µs per list, key", "token: µs more, median", "key again: µs more, median", "must"];
    table(&mut out, &title, &columns, &rows);

    let sink = Sink::start()?;
    let mut compared = Compared::default();
    let mut sent = 0;
    for turn in 0..BAD_TURNS {
        say(&format!("beside bad tokens, turn {} of {BAD_TURNS}", turn + 1));
        for place in compare::order(turn, 3) {
            let door = gateway.door(key);
            let calls = load::run(&door, Work::Read, Era::Modern, CLIENTS, Until::Paced(READS_PER_S, SLICE));
            let (flood, side) = match place {
                0 => (Flood::of_sink(&sink, person), &mut compared.baseline),
                1 => (Flood::of_sink(&sink, person), &mut compared.control),
                _ => (Flood::start(&gateway.door(""), StatusCode::UNAUTHORIZED, person), &mut compared.bad),
            };
            side.add(calls.await?);
            let answered = flood.end()?;
            sent += if place == 2 { answered } else { 0 };
        }
    }
    let seconds = SLICE.as_secs_f64() * BAD_TURNS as f64;
    let rate = format!("{:.0}", sent as f64 / seconds);
    let rows = [[vec![rate], compared.cells(RATIO_MAX)].concat()];
    let columns = [&["bad tokens a second"], &compare::COLUMNS[..]].concat();
    let title = format!(
        "{READS_PER_S} reads a second with a key beside bad tokens; the baseline is beside the same requests to a sink"
    );
    table(&mut out, &title, &columns, &rows);
    Ok(out)
}

/// Returns the row of an era: what a list costs with a key, and what it costs more with a token and with the key once more.
async fn token_beside_key(gateway: &Gateway, key: &str, person: &Person, era: Era) -> Result<Vec<String>> {
    let doors = [key, key, &person.token].map(|credential| gateway.door(credential));
    let (mut base, mut again, mut token) = (Vec::new(), Vec::new(), Vec::new());
    for turn in 0..LIST_TURNS {
        say(&format!("{era:?}, turn {} of {LIST_TURNS}", turn + 1));
        let mut cost = [0.0; 3];
        for place in compare::order(turn, 3) {
            let (Some(door), Some(cost)) = (doors.get(place), cost.get_mut(place)) else { continue };
            let before = Reading::of(&[gateway.pid()]);
            let slice = load::run(door, Work::List, era, CLIENTS, Until::Elapsed(LIST_SLICE)).await?;
            let spent = Reading::of(&[gateway.pid()]).since(&before) as f64 / 1000.0;
            *cost = spent / slice.latencies.len() as f64;
        }
        // the first turn warms up
        if turn > 0 {
            let [key, key_again, person] = cost;
            base.push(key);
            again.push(key_again - key);
            token.push(person - f64::midpoint(key, key_again));
        }
    }
    let (base, again, token) = (median(base), median(again), median(token));
    let verdict = compare::must(token, ADDED_US_MAX, "", " µs", again.abs() > CONTROL_US_MAX);
    Ok(vec![format!("{era:?}"), format!("{base:.1}"), format!("{token:.1}"), format!("{again:.1}"), verdict])
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}

/// Senders of bad tokens, until they are told to end.
struct Flood {
    answered: Arc<AtomicU64>,
    taken: Arc<AtomicU64>,
    senders: JoinSet<()>,
}

impl Flood {
    /// Sends as many to a sink, which reads and answers them and does nothing else.
    fn of_sink(sink: &Sink, person: &Person) -> Flood {
        Flood::start(&Door { at: sink.requests_at, key: Some(String::new()) }, StatusCode::OK, person)
    }

    fn start(door: &Door, expected: StatusCode, person: &Person) -> Flood {
        let (answered, taken) = (Arc::<AtomicU64>::default(), Arc::<AtomicU64>::default());
        let mut senders = JoinSet::new();
        // signing costs as much as verifying: a few tokens are made, each of which the gateway has to verify every time
        let tokens: Arc<[String]> = (0..32).map(|number| person.forged(number)).collect();
        for sender in 0..SENDERS {
            let (answered, taken, tokens) = (Arc::clone(&answered), Arc::clone(&taken), Arc::clone(&tokens));
            let door = door.clone();
            senders.spawn(async move {
                let mut pace = tokio::time::interval(Duration::from_micros(1_000_000 * SENDERS / BAD_PER_S));
                let mut next = sender as usize;
                let Ok(mut bad) = load::Unchecked::connect(&door).await else { return };
                loop {
                    pace.tick().await;
                    next += 1;
                    let token = tokens.get(next % tokens.len()).map_or("", String::as_str);
                    match bad.list(token).await {
                        Ok(status) if status == expected => answered.fetch_add(1, Ordering::Relaxed),
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
        ensure!(other == 0, "{other} bad tokens were answered in another way than expected");
        Some(self.answered.load(Ordering::Relaxed)).filter(|sent| *sent > 0).context("no bad token was sent")
    }
}
