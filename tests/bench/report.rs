//! The tables, as markdown.

use std::time::Duration;

use crate::attacks::{self, Attacks};
use crate::beside::{self, Beside};
use crate::compare::must;
use crate::listeners::{self, Listeners};
use crate::load::Era;
use crate::rows::{Measured, Outcome, Subject, Through};

/// What is counted rather than timed.
#[derive(Clone, Debug, Default)]
pub struct Count {
    /// Of what.
    pub what: &'static str,
    /// Answers.
    pub answers: u64,
    /// Clients at the same time.
    pub clients: usize,
    /// Requests that reached the upstream.
    pub requests: u64,
    /// TCP connections that were opened to the upstream.
    pub connects: u64,
}

/// What is measured once.
#[derive(Clone, Debug, Default)]
pub struct Once {
    /// Memory before any load, MiB.
    pub idle_mib: Option<f64>,
    /// Memory after all of it, MiB.
    pub loaded_mib: Option<f64>,
    /// From the start to the first list, with the start of the private Postgres.
    pub start_private: Duration,
    /// The same on a database that runs, several times.
    pub start: Vec<Duration>,
}

/// Everything that a run found out.
pub struct Report {
    /// Rows of load.
    pub outcomes: Vec<Outcome>,
    /// Healthy beside bad.
    pub beside: Vec<Beside>,
    /// Another tenant's calls under attack.
    pub attacks: Option<Attacks>,
    /// Clients that listen.
    pub listeners: Vec<Listeners>,
    /// Counts.
    pub counts: Vec<Count>,
    /// Single values.
    pub once: Once,
}

impl Report {
    /// The whole report.
    pub fn markdown(&mut self) -> String {
        for measured in self.outcomes.iter_mut().flat_map(|outcome| &mut outcome.measured) {
            measured.slice.latencies.sort_unstable();
        }
        let mut out = String::new();
        let nginx = |outcome: &Outcome| outcome.measured.iter().any(|m| m.through == Through::Nginx);
        if !self.outcomes.iter().any(nginx) {
            out.push_str("\nWithout nginx: it is not installed, or no row compares with it.\n");
        }
        for (subject, title) in [
            (Subject::Reads, "Calls that only read"),
            (Subject::Writes, "Calls whose record is committed first"),
            (Subject::Lists, "Lists and searches"),
        ] {
            self.load(&mut out, subject, title);
        }
        self.beside(&mut out);
        if let Some(attacks) = &mut self.attacks {
            table(&mut out, "Another tenant while every attack runs", &attacks::columns(), &attacks.cells());
            table(&mut out, "The replica under attack", &attacks::REPLICA_COLUMNS, &attacks.replica());
            table(&mut out, "The attacks", &attacks::ATTACK_COLUMNS, &attacks.attacks());
        }
        let rows: Vec<_> = self.listeners.iter_mut().map(Listeners::cells).collect();
        table(&mut out, "Clients that listen for changes", &listeners::COLUMNS, &rows);
        self.counts(&mut out);
        self.once(&mut out);
        out
    }

    fn load(&self, out: &mut String, subject: Subject, title: &str) {
        let of_subject = |outcome: &&Outcome| outcome.row.subject == subject;
        let outcomes: Vec<&Outcome> = self.outcomes.iter().filter(of_subject).collect();
        let rows = outcomes.iter().flat_map(|outcome| {
            outcome.measured.iter().map(|measured| cells(outcome, measured)).collect::<Vec<_>>()
        });
        table(out, title, &COLUMNS, &rows.collect::<Vec<_>>());
        outcomes
            .iter()
            .filter(|outcome| outcome.row.pace.is_some())
            .for_each(|outcome| paced_note(out, outcome));
        if subject == Subject::Writes {
            outcomes.iter().for_each(|outcome| insert_note(out, outcome));
        }
    }

    fn beside(&mut self, out: &mut String) {
        let rows: Vec<_> = self.beside.iter_mut().map(Beside::cells).collect();
        table(out, "A healthy server beside bad ones", &beside::columns(), &rows);
    }

    fn counts(&self, out: &mut String) {
        let rows = self.counts.iter().map(|count| {
            let numbers = [count.clients as u64, count.answers, count.requests, count.connects];
            let numbers = numbers.iter().map(u64::to_string);
            std::iter::once(count.what.to_owned()).chain(numbers).collect()
        });
        let columns = ["load", "clients", "answers", "upstream requests", "TCP connects"];
        table(out, "Counts at the upstream", &columns, &rows.collect::<Vec<_>>());
    }

    fn once(&self, out: &mut String) {
        let Once { idle_mib, loaded_mib, start_private, start } = &self.once;
        let mib = |value: &Option<f64>| value.map_or_else(|| "–".to_owned(), |mib| format!("{mib:.1} MiB"));
        let ms = |time: Option<&Duration>| {
            time.map_or_else(|| "–".to_owned(), |time| format!("{} ms", time.as_millis()))
        };
        let mut sorted = start.clone();
        sorted.sort_unstable();
        let rows = [
            ("memory (PSS) of the gateway, idle, a catalogue of 1000 tools", mib(idle_mib)),
            ("the same after all load", mib(loaded_mib)),
            ("start to first list, database up (median)", ms(sorted.get(sorted.len() / 2))),
            ("start to first list, with the start of the private Postgres", ms(Some(start_private))),
        ];
        let rows = rows.into_iter().map(|(what, value)| vec![what.to_owned(), value]);
        table(out, "Memory and start", &["measure", "value"], &rows.collect::<Vec<_>>());
    }
}

/// Most that the 99th percentile at a fixed pace may be, as a multiple of nginx's.
const PACED_P99_MAX: f64 = 2.0;

/// Columns of the tables of load; those that stay empty are left out.
const COLUMNS: [&str; 13] = [
    "load",
    "clients",
    "era",
    "through",
    "requests/s",
    "× direct",
    "p50 ms",
    "added p50 ms",
    "p99 ms",
    "CPU µs",
    "× nginx",
    "× agentgateway",
    "Postgres CPU µs",
];

fn cells(outcome: &Outcome, measured: &Measured) -> Vec<String> {
    let by = |through| outcome.measured.iter().find(|other| other.through == through);
    let direct = by(Through::Direct).filter(|_| measured.through != Through::Direct);
    let nginx = by(Through::Nginx).filter(|_| measured.through == Through::Gateway);
    let peer = by(Through::Agentgateway).filter(|_| measured.through == Through::Gateway);
    let is_hop = matches!(measured.through, Through::Nginx | Through::Agentgateway | Through::Gateway);
    let is_insert = measured.through == Through::Insert;
    let uses_postgres = is_insert || measured.through == Through::Gateway;
    let ratio = |value: Option<f64>| value.map_or_else(String::new, |ratio| format!("{ratio:.2}"));
    let cpu_ratio = |other: Option<&Measured>| {
        ratio(other.map(|other| each_us(measured, measured.hop_ns) / each_us(other, other.hop_ns)))
    };
    vec![
        outcome.row.name.to_owned(),
        outcome.row.clients.to_string(),
        match outcome.row.era {
            Era::Handshake => "2025-11-25".to_owned(),
            Era::Modern => "2026-07-28".to_owned(),
        },
        match measured.through {
            Through::Direct => "direct".to_owned(),
            Through::Nginx => "nginx".to_owned(),
            Through::Agentgateway => "agentgateway".to_owned(),
            Through::Gateway => "**mcpproxy**".to_owned(),
            Through::Insert => "one INSERT instead".to_owned(),
        },
        format!("{:.0}", rate(measured)),
        ratio(direct.filter(|_| !is_insert).map(|direct| rate(measured) / rate(direct))),
        format!("{:.3}", measured.slice.ms(0.5)),
        match direct.filter(|_| !is_insert) {
            Some(direct) => format!("{:+.3}", measured.slice.ms(0.5) - direct.slice.ms(0.5)),
            None => String::new(),
        },
        format!("{:.3}", measured.slice.ms(0.99)),
        if is_hop { format!("{:.1}", each_us(measured, measured.hop_ns)) } else { String::new() },
        cpu_ratio(nginx),
        cpu_ratio(peer),
        if uses_postgres { format!("{:.1}", each_us(measured, measured.postgres_ns)) } else { String::new() },
    ]
}

/// What a write may add: twice an insert and half a millisecond.
fn insert_note(out: &mut String, outcome: &Outcome) {
    let p50 = |through| outcome.measured.iter().find(|m| m.through == through).map(|m| m.slice.ms(0.5));
    let (Some(direct), Some(insert), Some(gateway)) =
        (p50(Through::Direct), p50(Through::Insert), p50(Through::Gateway))
    else {
        return;
    };
    let (added, bound) = (gateway - direct, 2.0 * insert + 0.5);
    let clients = outcome.row.clients;
    out.push_str(&format!("\nWith clients: {clients}, a write adds {added:.2} ms at the median; "));
    out.push_str(&format!("two INSERTs and 0.5 ms are {bound:.2} ms.\n"));
}

/// Says whether the tail at a fixed pace is within its bound of nginx's; nothing without nginx.
fn paced_note(out: &mut String, outcome: &Outcome) {
    let p99 = |through| outcome.measured.iter().find(|m| m.through == through).map(|m| m.slice.ms(0.99));
    let (Some(nginx), Some(gateway)) = (p99(Through::Nginx), p99(Through::Gateway)) else { return };
    let verdict = must(gateway / nginx, PACED_P99_MAX, "p99", "× of nginx", false);
    let (name, era) = (outcome.row.name, outcome.row.era.revision());
    out.push_str(&format!("\nOf {name}, {era}: {:.2}× of nginx; {verdict}.\n", gateway / nginx));
}

fn answers(measured: &Measured) -> f64 {
    measured.slice.latencies.len().max(1) as f64
}

fn rate(measured: &Measured) -> f64 {
    answers(measured) / measured.slice.elapsed.as_secs_f64().max(f64::MIN_POSITIVE)
}

fn each_us(measured: &Measured, ns: u64) -> f64 {
    ns as f64 / 1000.0 / answers(measured)
}

/// A table without the columns in which nothing stands; none at all without rows.
/// Adds a table; columns without a single value are left out.
pub fn table(out: &mut String, title: &str, columns: &[&str], rows: &[Vec<String>]) {
    if rows.is_empty() {
        return;
    }
    let used = |column: usize| rows.iter().any(|row| row.get(column).is_some_and(|cell| !cell.is_empty()));
    let used: Vec<bool> = (0..columns.len()).map(used).collect();
    let line = |cells: Vec<&str>| {
        let cells = cells.into_iter().zip(&used).filter(|(_, used)| **used).map(|(cell, _)| cell);
        format!("| {} |\n", cells.collect::<Vec<_>>().join(" | "))
    };
    out.push_str(&format!("\n### {title}\n\n"));
    out.push_str(&line(columns.to_vec()));
    out.push_str(&line(vec!["---"; columns.len()]));
    for row in rows {
        out.push_str(&line(row.iter().map(String::as_str).collect()));
    }
}
