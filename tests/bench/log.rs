//! The activity log with millions of records: how long the first page of each filter takes, how fast an export is and
//! what it costs those who call meanwhile, how long a summary takes.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use futures_util::StreamExt;
use serde_json::Value;
use sqlx::{Connection, PgConnection};

use crate::cpu;
use crate::gateway::{Api, Gateway};
use crate::load::{self, Era, Until, Work};
use crate::postgres::Postgres;
use crate::report::table;
use crate::say;

/// Records of the tenant whose log is read.
const RECORDS: i64 = 5_000_000;
/// Records of another tenant, among them.
const OTHERS: i64 = 500_000;
/// Times that each page is asked for.
const ASKED: usize = 20;
/// Records of a page.
const PAGE: usize = 50;
/// The stretch that is exported: about a tenth of all.
const EXPORTED: chrono::TimeDelta = chrono::TimeDelta::hours(17);
/// How long calls are measured without an export beside them.
const ALONE: Duration = Duration::from_secs(8);
/// Clients that call meanwhile.
const CLIENTS: usize = 2;
const FILL: &str = include_str!("log.sql");

/// Filters with values that many, some, few and no records have.
const FILTERS: [(&str, [&str; 4]); 11] = [
    ("type", ["tool_call", "search", "late_outcome", "policy"]),
    ("source", ["mcp", "rest", "system", "console"]),
    ("server", ["server0", "server49", "few", "none"]),
    ("tool", ["tool0", "tool499", "few", "none"]),
    ("status", ["success", "rejected", "unknown", "cancelled"]),
    ("tier", ["read", "unknown", "destructive", "write&type=policy"]),
    ("intent_type", ["read", "write", "destructive", "destructive&type=policy"]),
    (
        "key",
        [
            "00000000-0000-0000-0001-000000000000",
            "00000000-0000-0000-0001-000000000190",
            "00000000-0000-0000-0001-000000000999",
            "00000000-0000-0000-0001-000000001000",
        ],
    ),
    ("owner", ["owner0", "owner190", "owner999", "none"]),
    ("session_id", ["session49999", "session40000", "session30", "none"]),
    ("request_id", ["1", "150", "request3000000", "none"]),
];
/// Several filters at once.
const COMBINED: [&str; 6] = [
    "not_read=true",
    "server=server0&tool=tool499",
    "server=server0&status=rejected",
    "owner=owner0&tool=tool499&intent_type=write",
    "type=admin&source=cli",
    "status=unknown&intent_type=destructive",
];

/// Runs, and gives tables.
pub async fn run(api: &Api<'_>, gateway: &Gateway, key: &str, postgres: &Postgres) -> Result<String> {
    say("millions of records");
    let filled = fill(postgres, api).await?;
    let mut out = format!(
        "{RECORDS} records of one tenant, {OTHERS} of another, seven days; {:.0} MiB, of which indexes {:.0} MiB\n",
        filled.0, filled.1
    );
    say("first pages");
    pages(&mut out, api).await?;
    say(&out);
    say("summaries");
    summaries(&mut out, api).await?;
    say("exports");
    export(&mut out, api, gateway, key).await?;
    Ok(out)
}

/// Fills the log; gives its size, and that of its indexes, in MiB.
async fn fill(postgres: &Postgres, api: &Api<'_>) -> Result<(f64, f64)> {
    let mut connection = PgConnection::connect(&postgres.url).await?;
    // partitions are made ahead by the gateway; those of the past are made here
    sqlx::raw_sql(
        "do $$ begin for day in 2..8 loop
            execute format('create table if not exists %I partition of activity for values from (%L) to (%L)',
                'activity_' || to_char((now() at time zone 'UTC')::date - day, 'YYYYMMDD'),
                ((now() at time zone 'UTC')::date - day)::text || 'Z',
                ((now() at time zone 'UTC')::date - day + 1)::text || 'Z');
        end loop; end $$",
    )
    .execute(&mut connection)
    .await?;
    for (tenant, records) in
        [(api.tenant_id("bench").await?, RECORDS), (api.tenant_id("beside").await?, OTHERS)]
    {
        sqlx::query(FILL).bind(tenant).bind(records).execute(&mut connection).await?;
    }
    // as the autovacuum does in time
    sqlx::raw_sql("vacuum analyze activity").execute(&mut connection).await?;
    let sizes: (f64, f64) = sqlx::query_as(
        "select sum(pg_total_relation_size(inhrelid))::float8 / 1048576, sum(pg_indexes_size(inhrelid))::float8 / 1048576
         from pg_inherits where inhparent = 'activity'::regclass",
    )
    .fetch_one(&mut connection)
    .await?;
    connection.close().await?;
    Ok(sizes)
}

async fn pages(out: &mut String, api: &Api<'_>) -> Result<()> {
    let mut queries = vec![("no filter".to_owned(), String::new(), true)];
    for (name, values) in FILTERS {
        for (value, how_many) in values.into_iter().zip(["many", "some", "few", "none"]) {
            queries.push((format!("`{name}`, {how_many}"), format!("{name}={value}"), how_many != "none"));
        }
    }
    queries.extend(COMBINED.map(|query| (format!("`{query}`"), query.to_owned(), false)));
    let mut rows = Vec::new();
    for (name, query, is_found) in queries {
        let path = format!("/activity?limit={PAGE}&{query}");
        let mut times = Vec::with_capacity(ASKED);
        let mut found = 0;
        for _ in 0..ASKED {
            let asked = Instant::now();
            let page = api.get("bench", path.trim_end_matches('&')).await?;
            times.push(asked.elapsed());
            found = page.get("items").and_then(Value::as_array).context("no items")?.len();
        }
        ensure!(!is_found || found > 0, "nothing was found with {query}");
        times.sort_unstable();
        rows.push(vec![name, found.to_string(), ms(times.get(ASKED / 2)), ms(times.last())]);
    }
    table(out, "First pages", &["filter", "records", "p50 ms", "longest ms"], &rows);
    Ok(())
}

async fn summaries(out: &mut String, api: &Api<'_>) -> Result<()> {
    let mut rows = Vec::new();
    for period in ["1h", "24h", "7d"] {
        let asked = Instant::now();
        let summary = api.get("bench", &format!("/activity/summary?period={period}")).await?;
        let took = asked.elapsed();
        rows.push(vec![
            period.to_owned(),
            summary.get("total").map(Value::to_string).unwrap_or_default(),
            ms(Some(&took)),
        ]);
    }
    table(out, "Summaries", &["period", "records", "ms"], &rows);
    Ok(())
}

async fn export(out: &mut String, api: &Api<'_>, gateway: &Gateway, key: &str) -> Result<()> {
    let door = gateway.door(key);
    let mut calls = Vec::new();
    let mut rows = Vec::new();
    for work in [Work::Read, Work::Write] {
        let mut alone = load::run(&door, work, Era::Modern, CLIENTS, Until::Elapsed(ALONE)).await?;
        alone.latencies.sort_unstable();
        calls.push((work, alone));
    }
    let start = (chrono::Utc::now() - EXPORTED).to_rfc3339_opts(chrono::SecondsFormat::Secs, true);
    for (format, query) in [("jsonl", ""), ("csv", ""), ("jsonl", "&server=server0")] {
        let memory = cpu::memory_mib(gateway.pid()).unwrap_or_default();
        let exported =
            copy(api, &format!("/activity/export?format={format}&start_time={start}{query}")).await?;
        let after = cpu::memory_mib(gateway.pid()).unwrap_or_default();
        rows.push(vec![
            format!("{format}{query}"),
            exported.records.to_string(),
            format!("{:.0}", exported.records as f64 / exported.took.as_secs_f64()),
            format!("{:.0}", exported.bytes as f64 / 1_048_576.0 / exported.took.as_secs_f64()),
            format!("{memory:.1} → {after:.1}"),
        ]);
    }
    table(out, "Exports", &["export", "records", "records/s", "MiB/s", "gateway's memory, MiB"], &rows);
    let mut rows = Vec::new();
    for (work, alone) in calls {
        let path = format!("/activity/export?start_time={start}");
        let exporting = copy(api, &path);
        let (beside, exported) =
            tokio::join!(load::run(&door, work, Era::Modern, CLIENTS, Until::Elapsed(ALONE)), exporting);
        let (mut beside, exported) = (beside?, exported?);
        ensure!(exported.took > ALONE / 2, "the export was over before the calls were");
        beside.latencies.sort_unstable();
        let pair = |quantile| format!("{:.2} → {:.2}", alone.ms(quantile), beside.ms(quantile));
        rows.push(vec![
            format!("{work:?}").to_lowercase(),
            pair(0.5),
            pair(0.99),
            format!("{:.0}", exported.records as f64 / exported.took.as_secs_f64()),
        ]);
    }
    let columns =
        ["calls, 2 clients", "p50 ms without → with an export", "p99 ms", "records/s exported meanwhile"];
    table(out, "Calls beside an export", &columns, &rows);
    Ok(())
}

struct Exported {
    records: u64,
    bytes: u64,
    took: Duration,
}

/// Reads an export to its end without keeping it.
async fn copy(api: &Api<'_>, path: &str) -> Result<Exported> {
    let begun = Instant::now();
    let mut pieces = api.open("bench", path).await?.bytes_stream();
    let (mut records, mut bytes) = (0, 0);
    while let Some(piece) = pieces.next().await {
        let piece = piece?;
        records += piece.iter().filter(|byte| **byte == b'\n').count() as u64;
        bytes += piece.len() as u64;
    }
    Ok(Exported { records, bytes, took: begun.elapsed() })
}

fn ms(time: Option<&Duration>) -> String {
    time.map(|time| format!("{:.1}", time.as_secs_f64() * 1000.0)).unwrap_or_default()
}
