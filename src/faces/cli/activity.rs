//! `mcpproxy activity`: lists, watches, counts and exports activity records.

mod permission;
mod provenance;
mod unknown_names;
mod watch;
mod wide;

use chrono::{DateTime, Local, Utc};
use clap::{Args, Subcommand};
use serde_json::Value;

use self::unknown_names::FilteredNames;
use super::client::{ApiClient, ApiQuery};
use super::connection::ApiConnection;
use super::failure::Failure;
use super::output::{self, Column, Format, Output, text};
use super::{input, show};
use crate::domain::json;

/// `mcpproxy activity`
#[derive(Args)]
pub struct ActivityCommand {
    #[command(subcommand)]
    command: Command,
    #[command(flatten)]
    connection: ApiConnection,
}

#[derive(Subcommand)]
enum Command {
    /// List records, newest first
    List(Box<List>),
    /// Show records as they are written, until Ctrl-C; reconnects to a gateway that goes away
    Watch(Box<watch::Watch>),
    /// Count records by outcome, and show the most called tools and servers with failure rates and durations
    Summary {
        /// Period: 1h, 24h, 7d or 30d
        #[arg(long, default_value = "24h")]
        period: String,
        /// Count only calls of tools of this tier: read, write, destructive or unknown
        #[arg(long)]
        tier: Option<String>,
        /// Count only calls of tools that are not known to only read
        #[arg(long)]
        not_read: bool,
        #[command(flatten)]
        output: Output,
    },
    /// Write all records that match to standard output, newest first
    Export(Box<Export>),
    /// Show all fields of one record, and of a call that asked for permission who decided
    Show {
        /// ID of the record, as `mcpproxy activity list` prints it
        id: String,
        /// Show the ledger of a call that filled in a form of a web page, instead of the record
        #[arg(long)]
        provenance: bool,
        #[command(flatten)]
        output: Output,
    },
}

#[derive(Args)]
struct List {
    #[command(flatten)]
    filter: Filter,
    #[command(flatten)]
    window: Window,
    /// Only records with this text in their arguments or result, as far as they are kept, in any case
    #[arg(long, value_name = "TEXT", help_heading = "Filters")]
    contains: Option<String>,
    /// Maximum number of records
    #[arg(long, default_value_t = 50, value_name = "NUMBER", value_parser = clap::value_parser!(u32).range(1..))]
    limit: u32,
    /// Also show the columns CODE, TYPE, TIER, OWNER, KEY, KEY ID, SOURCE, CLIENT, ADDRESS, ALLOWED BY (rule or person) and
    /// ARGUMENTS (secrets are masked, long ones cut)
    #[arg(long)]
    wide: bool,
    /// Show words instead of icons; output to anything but a terminal has no icons
    #[arg(long)]
    no_icons: bool,
    #[command(flatten)]
    output: Output,
}

#[derive(Args)]
struct Export {
    /// Format: jsonl or csv
    #[arg(long, default_value = "jsonl")]
    format: String,
    #[command(flatten)]
    filter: Filter,
    #[command(flatten)]
    window: Window,
}

/// Filters of activity records, as the API takes them.
#[derive(Args)]
#[command(next_help_heading = "Filters")]
struct Filter {
    /// Intent of the call, as declared by its caller or else by the command that made it: read, write or destructive
    #[arg(long, value_name = "TYPE")]
    intent_type: Option<String>,
    /// Tier of the tool at the time of the call: read, write, destructive, or unknown for a tool that says nothing
    /// about itself
    #[arg(long)]
    tier: Option<String>,
    /// Only calls of tools that are not known to only read: what may have changed something
    #[arg(long)]
    not_read: bool,
    /// Outcome: success, upstream_error, error, blocked, rejected, cancelled, unknown, or before the end: pending, waiting
    #[arg(long)]
    status: Option<String>,
    /// Name of the server
    #[arg(long)]
    server: Option<String>,
    /// Tool, as TOOL or SERVER:TOOL; with --type admin the act, for example servers.create
    #[arg(long)]
    tool: Option<String>,
    /// Kind of record: tool_call, search, cache_read, direct_call, admin, policy, consent, question, auth_failure,
    /// late_outcome or system
    #[arg(long = "type")]
    kind: Option<String>,
    /// Origin of the request: mcp, direct, rest, cli, console or system
    #[arg(long)]
    source: Option<String>,
    /// Name or ID of the key; a name as it was at the time
    #[arg(long)]
    key: Option<String>,
    /// Owner of the key
    #[arg(long)]
    owner: Option<String>,
    /// ID of the identity: of a person who logged in, or whom an administrator named for the key
    #[arg(long, value_name = "ID")]
    identity_id: Option<String>,
    /// Address that the request came from
    #[arg(long, value_name = "ADDRESS")]
    client_address: Option<String>,
    /// ID of the session, as a record names it
    #[arg(long, value_name = "ID")]
    session_id: Option<String>,
    /// ID of the request, as the client named it
    #[arg(long, value_name = "ID")]
    request_id: Option<String>,
    /// Decision of the policy: allowed, would_ask, would_deny, asked, delegated or denied
    #[arg(long)]
    decision: Option<String>,
    /// ID of the permission request
    #[arg(long, value_name = "ID")]
    consent_id: Option<String>,
}

/// Time range of records.
#[derive(Args)]
#[command(next_help_heading = "Filters")]
struct Window {
    /// Start of the time range: a time such as 2026-01-31T08:00:00Z, or an age such as 90m, 12h, 3d [default: 7d]
    #[arg(long = "since", alias = "start-time", value_name = "TIME")]
    start_time: Option<String>,
    /// End of the time range, in the same forms [default: now]
    #[arg(long = "until", alias = "end-time", value_name = "TIME")]
    end_time: Option<String>,
}

impl Filter {
    fn query(self) -> ApiQuery {
        let mut query = ApiQuery::default();
        for (name, value) in [
            ("intent_type", self.intent_type),
            ("tier", self.tier),
            ("not_read", self.not_read.then(|| "true".to_owned())),
            ("status", self.status),
            ("server", self.server),
            ("tool", self.tool),
            ("type", self.kind),
            ("source", self.source),
            ("key", self.key),
            ("owner", self.owner),
            ("identity_id", self.identity_id),
            ("client_address", self.client_address),
            ("session_id", self.session_id),
            ("request_id", self.request_id),
            ("decision", self.decision),
            ("consent_id", self.consent_id),
        ] {
            query.add(name, value);
        }
        query
    }
}

impl Window {
    fn add(self, query: &mut ApiQuery, now: DateTime<Utc>) -> Result<(), Failure> {
        for (name, flag, value) in
            [("start_time", "--since", self.start_time), ("end_time", "--until", self.end_time)]
        {
            query.add(name, value.map(|value| time(flag, &value, now)).transpose()?);
        }
        Ok(())
    }
}

/// Returns a time as the API takes it. `given` is an RFC 3339 time, or an age in minutes, hours or days such as `90m`.
fn time(flag: &str, given: &str, now: DateTime<Utc>) -> Result<String, Failure> {
    if DateTime::parse_from_rfc3339(given).is_ok() {
        return Ok(given.to_owned());
    }
    let at = input::span(given).and_then(|ago| now.checked_sub_signed(ago));
    let at = at.ok_or_else(|| {
        Failure::Usage(format!(
            "{flag} {given}: it needs a time such as 2026-01-31T08:00:00Z, or how long ago: 90m, 12h, 3d"
        ))
    })?;
    Ok(at.to_rfc3339_opts(chrono::SecondsFormat::Millis, true))
}

impl ActivityCommand {
    pub(super) async fn run(self) -> Result<(), Failure> {
        let client = self.connection.client()?;
        let is_one = matches!(self.command, Command::Show { .. });
        if !is_one && !client.is_in_tenant() && client.is_of_platform().await {
            output::note(
                "these are the platform's own records; --tenant NAME or MCPPROXY_TENANT gives a tenant's",
            );
        }
        match self.command {
            Command::List(list) => list.run(&client).await,
            Command::Watch(watch) => watch.run(&client).await,
            Command::Summary { period, tier, not_read, output } => {
                let mut query = ApiQuery::default();
                query.add("period", Some(period));
                query.add("tier", tier);
                query.add("not_read", not_read.then(|| "true".to_owned()));
                let answer = client.get(&["activity", "summary"], &query).await?;
                output.thing(&answer.text, summary)
            }
            Command::Export(export) => {
                let mut query = export.filter.query();
                export.window.add(&mut query, Utc::now())?;
                query.add("format", Some(export.format));
                client.copy(&["activity", "export"], &query).await
            }
            Command::Show { id, provenance: true, output } => {
                let answer = client.get(&["activity", &id, "provenance"], &ApiQuery::default()).await?;
                output.thing(&answer.text, provenance::shown)
            }
            Command::Show { id, provenance: false, output } => {
                let answer = client.get(&["activity", &id], &ApiQuery::default()).await?;
                let permission = match output.format {
                    Format::Table => permission::of(&client, &answer.json()?).await,
                    Format::Json | Format::Yaml => String::new(),
                };
                output.thing(&answer.text, |raw| record(raw) + &permission)
            }
        }
    }
}

impl List {
    async fn run(self, client: &ApiClient) -> Result<(), Failure> {
        let names = FilteredNames::of(&self.filter);
        let mut query = self.filter.query();
        self.window.add(&mut query, Utc::now())?;
        query.add("contains", self.contains);
        let limit = self.limit as usize;
        let mut items = client.list(&["activity"], &query, limit).await?;
        let mut columns = columns(!self.no_icons && output::is_terminal()).to_vec();
        if self.wide && self.output.format == Format::Table {
            columns.extend(wide::COLUMNS);
            items = wide::Answers::default().added_to(client, items).await;
        }
        self.output.items(&items, &columns)?;
        if items.is_empty() {
            names.note_unknown(client).await;
        }
        if items.len() == limit {
            output::note(&format!("the newest {limit}; --limit shows more, --since and the filters fewer"));
        }
        Ok(())
    }
}

fn columns(with_icons: bool) -> &'static [Column] {
    const WORDS: [Column; 7] = with_intent(operation);
    const ICONS: [Column; 7] = with_intent(|record| match &*operation(record) {
        "read" => "📖 read".to_owned(),
        "write" => "📝 write".to_owned(),
        "destructive" => "🔥 destructive".to_owned(),
        other => other.to_owned(),
    });
    if with_icons { &ICONS } else { &WORDS }
}

const fn with_intent(intent: fn(&Value) -> String) -> [Column; 7] {
    [
        ("ID", |record| text(record, "id")),
        ("TIME", |record| local(&text(record, "started_at"))),
        ("SERVER", |record| text(record, "server")),
        ("TOOL", tool),
        ("INTENT", intent),
        ("STATUS", |record| text(record, "status")),
        ("DURATION", duration),
    ]
}

/// Returns the tool of a record; of one about a permission request the step, the tool of the request, and the decision if
/// the record is about one; of one about a tool the act and the tool.
fn tool(record: &Value) -> String {
    let tool = text(record, "tool");
    let is_about_tool = text(record, "type") == "admin" && tool.starts_with("tools.");
    if text(record, "type") != "consent" && !is_about_tool {
        return tool;
    }
    let about: Value = serde_json::from_str(&text(record, "arguments")).unwrap_or_default();
    let decision = about.get("body").map(|body| text(body, "decision")).unwrap_or_default();
    match text(&about, "tool") {
        none if none.is_empty() => tool,
        requested if decision.is_empty() => format!("{tool} ({requested})"),
        requested => format!("{tool} ({requested}: {decision})"),
    }
}

fn operation(record: &Value) -> String {
    record.get("intent").map(|intent| text(intent, "operation_type")).unwrap_or_default()
}

fn local(at: &str) -> String {
    match DateTime::parse_from_rfc3339(at) {
        Ok(at) => at.with_timezone(&Local).format("%Y-%m-%d %H:%M:%S %:z").to_string(),
        Err(_) => at.to_owned(),
    }
}

fn duration(record: &Value) -> String {
    milliseconds(record.get("duration_ms"))
}

fn milliseconds(value: Option<&Value>) -> String {
    match value.and_then(Value::as_f64) {
        None => String::new(),
        Some(ms) if ms < 10.0 => format!("{ms:.1}ms"),
        Some(ms) if ms < 10_000.0 => format!("{ms:.0}ms"),
        Some(ms) => format!("{:.1}s", ms / 1000.0),
    }
}

/// Formats a record for people. Absent fields are left out, and the intent has a section of its own.
fn record(raw: &str) -> String {
    let Ok(members) = json::members(raw) else { return output::safe(raw) };
    let value = |text: &str| serde_json::from_str::<Value>(text).unwrap_or_default();
    let fields: Vec<(String, Value)> =
        members.iter().map(|member| (member.name.clone().into_owned(), value(member.value))).collect();
    let there = |(name, value): &&(String, Value)| !value.is_null() && name != "intent";
    let width = fields.iter().filter(there).map(|(name, _)| name.len()).max().unwrap_or_default();
    let mut out: String =
        fields.iter().filter(there).map(|(name, value)| show::field(name, value, width)).collect();
    if let Some((_, Value::Object(intent))) = fields.iter().find(|(name, _)| name == "intent") {
        out.push_str("\nIntent\n");
        for name in ["operation_type", "data_sensitivity", "reason"] {
            let value = intent.get(name).unwrap_or(&Value::Null);
            out.push_str(&format!("  {}", show::field(name, value, "data_sensitivity".len())));
        }
    }
    out
}

/// Formats a summary for people.
fn summary(raw: &str) -> String {
    let summary: Value = serde_json::from_str(raw).unwrap_or_default();
    let counts = |name: &str| {
        let counts = summary.get(name).and_then(Value::as_object);
        let mut counts: Vec<(&String, i64)> =
            counts.into_iter().flatten().map(|(what, count)| (what, count.as_i64().unwrap_or(0))).collect();
        counts.sort_by_key(|(what, count)| (std::cmp::Reverse(*count), *what));
        let parts: Vec<String> = counts.iter().map(|(what, count)| format!("{what} {count}")).collect();
        if parts.is_empty() { "-".to_owned() } else { output::safe(&parts.join(", ")) }
    };
    let mut out = format!(
        "{} records from {} to {}\n  type:    {}\n  status:  {}\n  intent:  {}\n  tier:    {}\n  decision: {}\n",
        text(&summary, "total"),
        local(&text(&summary, "start_time")),
        local(&text(&summary, "end_time")),
        counts("by_type"),
        counts("by_status"),
        counts("by_intent_type"),
        counts("by_tier"),
        counts("by_decision"),
    );
    for (title, name) in [("TOOL", "top_tools"), ("SERVER", "top_servers")] {
        let rows: Vec<Vec<String>> =
            summary.get(name).and_then(Value::as_array).into_iter().flatten().map(calls).collect();
        if !rows.is_empty() {
            out.push('\n');
            let names = [title, "CALLS", "FAILED", "REFUSED", "FAILURE RATE", "P50", "P95"];
            out.push_str(&output::columns(&names, rows));
            out.push('\n');
        }
    }
    let decided = summary.get("top_decisions").and_then(Value::as_array).into_iter().flatten();
    let rows: Vec<Vec<String>> = decided.map(decided_row).collect();
    if !rows.is_empty() {
        out.push('\n');
        out.push_str(&output::columns(&["DECISION", "RULE", "TOOL", "CALLS"], rows));
        out.push('\n');
    }
    out
}

fn decided_row(of: &Value) -> Vec<String> {
    let rule = match &*text(of, "rule") {
        "" => "-".to_owned(),
        rule => rule.to_owned(),
    };
    vec![
        text(of, "decision"),
        rule,
        format!("{}:{}", text(of, "server"), text(of, "tool")),
        text(of, "calls"),
    ]
}

fn calls(of: &Value) -> Vec<String> {
    let (server, tool) = (text(of, "server"), text(of, "tool"));
    let rate = of.get("error_rate").and_then(Value::as_f64).unwrap_or(0.0);
    vec![
        if tool.is_empty() { server } else { format!("{server}:{tool}") },
        text(of, "calls"),
        text(of, "failed"),
        text(of, "refused"),
        format!("{:.1}%", rate * 100.0),
        milliseconds(of.get("p50_ms")),
        milliseconds(of.get("p95_ms")),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::activity::{RecordKind, Source, Status};

    #[test]
    fn times_may_be_how_long_ago() {
        let now = DateTime::from_timestamp_millis(1_769_860_800_000).unwrap();
        for (given, want) in [
            ("90m", "2026-01-31T10:30:00.000Z"),
            ("12h", "2026-01-31T00:00:00.000Z"),
            ("3d", "2026-01-28T12:00:00.000Z"),
            ("2026-01-31T08:00:00Z", "2026-01-31T08:00:00Z"),
        ] {
            assert_eq!(time("--since", given, now).unwrap(), want);
        }
        for bad in ["12", "5y", "-5h", "yesterday", "2h30m", "", "9223372036854775807d"] {
            assert!(matches!(time("--since", bad, now), Err(Failure::Usage(_))), "{bad}");
        }
    }

    #[test]
    fn help_names_every_value() {
        let help = Filter::augment_args(clap::Command::new("x")).render_long_help().to_string();
        for value in RecordKind::WORDS.iter().chain(&Source::WORDS).chain(&Status::WORDS) {
            assert!(help.split([' ', ',', '\n']).any(|word| word == *value), "{value}: {help}");
        }
    }

    #[test]
    fn records_show_their_intent() {
        let raw = r#"{"id":"01J","status":"success","warning":null,"intent":{"operation_type":"write","data_sensitivity":null,"reason":"why"},"client":{"name":"x"}}"#;
        let shown = record(raw);
        assert!(shown.starts_with("id:      01J\nstatus:  success\nclient:\n"), "{shown}");
        let intent =
            "\nIntent\n  operation_type:    write\n  data_sensitivity:  -\n  reason:            why\n";
        assert!(shown.ends_with(intent), "{shown}");
    }
}
