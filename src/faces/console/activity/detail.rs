//! The page of one activity record.

use askama::Template;
use axum::extract::Path;
use axum::response::Response;
use chrono::{DateTime, SecondsFormat, TimeDelta, Utc};
use http::StatusCode;
use ulid::Ulid;

use super::words::{self, Word};
use super::{RecordLine, line, status_of_record, tool_of};
use crate::domain::activity::RecordKind;
use crate::domain::tenant::Action;
use crate::faces::console::moment::{Moment, duration};
use crate::faces::console::nav::{Nav, Section};
use crate::faces::console::page_visit::PageVisit;
use crate::faces::console::permissions;
use crate::faces::console::text::LongText;
use crate::faces::query::activity::{PARAMS, RECORD_MEMORY_BYTES, filter};
use crate::faces::query::params::Params;
use crate::gateway::GatewayError;
use crate::store::ActivityRow;

/// Most steps of a permission request that are shown.
const STEPS_MAX: usize = 50;
/// Time before and after a record in which the steps of its permission request are.
const STEPS_WITHIN: TimeDelta = TimeDelta::days(2);

/// Shortest id of a request that is taken for one of its own, in bytes.
const OWN_ID_CHARS_MIN: usize = 16;

/// Fact about a record.
struct Fact {
    label: &'static str,
    value: String,
    /// Page about it; `None` without one.
    href: Option<String>,
}

/// Facts with a heading.
struct FactGroup {
    title: &'static str,
    facts: Vec<Fact>,
}

#[derive(Template)]
#[template(path = "record.html", config = "src/faces/console/askama.toml")]
struct RecordPage {
    nav: Nav,
    title: String,
    at: Moment,
    exact: String,
    status: String,
    tone: &'static str,
    message: Option<LongText>,
    warning: Option<LongText>,
    reason: Option<LongText>,
    groups: Vec<FactGroup>,
    /// Link to the permission request; `None` without one, and if the visitor may see none.
    permission: Option<String>,
    /// Person who decided that request, and the way, or else what its state means; `None` without a request, and if it cannot be read now.
    decision: Option<String>,
    /// Records about the same permission request, oldest first.
    steps: Vec<RecordLine>,
    /// Words of the page that are not plain English, with their meanings.
    words: Vec<Word>,
    arguments: Option<LongText>,
    response: Option<LongText>,
    /// True if arguments or result were shortened when they were recorded.
    was_shortened: bool,
}

/// Shows the page.
pub(in crate::faces::console) async fn show(Path(id): Path<String>, visit: PageVisit) -> Response {
    let page = record(&visit, &id).await;
    visit.answer_read(("activity.get", None), Section::Activity, page)
}

async fn record(visit: &PageVisit, id: &str) -> Result<Response, GatewayError> {
    visit.caller().authorise(Action::ReadOwnActivity)?;
    let id = Ulid::from_string(id).map_err(|_| GatewayError::NotFound("activity record"))?;
    visit.expect((STEPS_MAX + 1) * RECORD_MEMORY_BYTES).await?;
    let row = visit.gateway().log.get_activity(visit.caller(), id).await?;
    let steps = steps(visit, &row).await?;
    let decision = match row.consent_id {
        Some(id) => permissions::outcome_of(visit, id).await,
        None => None,
    };
    let long = |text: &Option<String>| text.as_deref().map(LongText::of);
    let (status, tone) = status_of_record(&row);
    let page = RecordPage {
        nav: visit.nav(Section::Activity),
        title: title(&row),
        at: Moment::new(row.started_at, visit.now()),
        exact: Moment::new(row.started_at, visit.now()).exact(),
        status: status.to_owned(),
        tone,
        message: long(&row.error_message),
        warning: long(&row.warning),
        reason: long(&row.intent_reason),
        groups: groups(&row),
        permission: permission(visit, &row),
        decision,
        words: words::of(&row, &steps),
        steps: steps.iter().rev().map(|step| line(step, visit.now())).collect(),
        arguments: long(&row.arguments),
        response: long(&row.response),
        was_shortened: row.truncated,
    };
    visit.show(StatusCode::OK, &page).await
}

/// Returns the other records about the permission request of a record, the newest first, as far as the visitor may
/// see them.
async fn steps(visit: &PageVisit, row: &ActivityRow) -> Result<Vec<ActivityRow>, GatewayError> {
    let Some(consent_id) = row.consent_id else { return Ok(Vec::new()) };
    let time = |at: DateTime<Utc>| at.to_rfc3339_opts(SecondsFormat::Millis, true);
    let given = [
        ("consent_id", consent_id.to_string()),
        ("start_time", time(row.started_at - STEPS_WITHIN)),
        ("end_time", time(row.started_at + STEPS_WITHIN)),
    ];
    let filter = filter(&Params::of(&given, PARAMS)?, visit.now())?;
    let limit = i64::try_from(STEPS_MAX).unwrap_or(i64::MAX);
    let rows = visit.gateway().log.list_activity(visit.caller(), filter, limit).await?;
    Ok(rows.into_iter().filter(|step| step.id != row.id).collect())
}

/// Returns the link to the permission request of a record; `None` without one, and if the visitor may see none.
fn permission(visit: &PageVisit, row: &ActivityRow) -> Option<String> {
    let id = row.consent_id.filter(|_| Section::Permissions.is_open_to(visit.caller()))?;
    Some(permissions::href_of(id))
}

/// Returns the name of what was attempted.
fn title(row: &ActivityRow) -> String {
    let is_call = [RecordKind::ToolCall, RecordKind::DirectCall].iter().any(|kind| kind.as_str() == row.kind);
    match (&row.server, &row.tool) {
        (Some(server), Some(tool)) if is_call => format!("{server}:{tool}"),
        (_, Some(_)) => tool_of(row),
        _ => row.kind.clone(),
    }
}

fn groups(row: &ActivityRow) -> Vec<FactGroup> {
    let groups = [
        ("Attempt", attempt(row)),
        ("Intent", intent(row)),
        ("Checks and policy", checks(row)),
        ("Outcome", outcome(row)),
        ("Caller", caller(row)),
    ];
    let groups = groups.map(|(title, facts)| FactGroup { title, facts });
    groups.into_iter().filter(|group| !group.facts.is_empty()).collect()
}

/// Returns a fact, if there is a value.
fn fact(label: &'static str, value: Option<&str>) -> Option<Fact> {
    value.map(|value| Fact { label, value: value.to_owned(), href: None })
}

/// Returns a fact that leads to the records with the same one.
fn filtered(label: &'static str, name: &str, value: Option<&str>) -> Option<Fact> {
    let value = value?;
    let mut query = url::form_urlencoded::Serializer::new(String::new());
    query.append_pair(name, value);
    let href = format!("{}?{}", Section::Activity.href(), query.finish());
    Some(Fact { label, value: value.to_owned(), href: Some(href) })
}

fn attempt(row: &ActivityRow) -> Vec<Fact> {
    let id = Ulid::from(row.id).to_string();
    let parent = row.parent_id.map(|parent| Ulid::from(parent).to_string());
    let parent = parent.map(|parent| Fact {
        label: "Adds to",
        href: Some(format!("{}/{parent}", Section::Activity.href())),
        value: parent,
    });
    let facts = [
        filtered("Server", "server", row.server.as_deref()),
        filtered("Tool", "tool", row.tool.as_deref()),
        fact("Called with", row.tool_variant.as_deref()),
        fact("Tier of the tool", row.tier.as_deref()),
        fact("Type", Some(&row.kind)),
        fact("Source", Some(&row.source)),
        fact("Record", Some(&id)),
        parent,
    ];
    facts.into_iter().flatten().collect()
}

fn intent(row: &ActivityRow) -> Vec<Fact> {
    let Some(operation) = &row.intent_type else { return Vec::new() };
    let how = if row.intent_declared { "declared" } else { "inferred from the variant" };
    let facts = [
        fact("Operation", Some(&format!("{operation}, {how}"))),
        fact("Sensitivity", row.intent_sensitivity.as_deref()),
    ];
    facts.into_iter().flatten().collect()
}

fn checks(row: &ActivityRow) -> Vec<Fact> {
    let is_call = row.tool_variant.is_some() || row.kind == RecordKind::DirectCall.as_str();
    let code = row.error_code.as_deref().unwrap_or("no code");
    let checks = match row.status.as_str() {
        _ if !is_call => None,
        "blocked" | "rejected" => Some(format!("refused: {code}")),
        _ if row.warning.is_some() => Some("passed, with a warning".to_owned()),
        _ => Some("passed".to_owned()),
    };
    let facts = [
        fact("Checks", checks.as_deref()),
        fact("Policy", row.decision.as_deref()),
        fact("Rule", row.rule.as_deref()),
    ];
    facts.into_iter().flatten().collect()
}

fn outcome(row: &ActivityRow) -> Vec<Fact> {
    let time = |ms: Option<f64>| ms.map(duration);
    let bytes = |bytes: Option<i64>| bytes.map(|bytes| format!("{bytes} bytes"));
    let facts = [
        fact("Code", row.error_code.as_deref()),
        fact(
            if row.wait_ms.is_some() { "Duration without the wait" } else { "Duration" },
            time(row.duration_ms).as_deref(),
        ),
        fact("In the server", time(row.upstream_ms).as_deref()),
        fact("Waiting for a person or in a queue", time(row.wait_ms).as_deref()),
        fact("Arguments", bytes(row.request_bytes).as_deref()),
        fact("Result", bytes(row.response_bytes).as_deref()),
    ];
    facts.into_iter().flatten().collect()
}

/// Returns the id of the request. Ids that clients of MCP count up, such as `1`, lead nowhere: others have them too.
fn request(row: &ActivityRow) -> Option<Fact> {
    let id = row.request_id.as_deref()?;
    if id.len() < OWN_ID_CHARS_MIN {
        return fact("Request, as its client counts", Some(id));
    }
    filtered("Request id", "request_id", Some(id))
}

fn caller(row: &ActivityRow) -> Vec<Fact> {
    let key = row.key_id.map(|key| key.to_string());
    let identity = row.identity_id.map(|identity| identity.to_string());
    let program = row.client_name.as_ref().map(|name| match &row.client_version {
        Some(version) => format!("{name} {version}"),
        None => name.clone(),
    });
    let facts = [
        filtered("Owner", "owner", row.owner.as_deref()),
        fact("Name of the key", row.key_name.as_deref()),
        filtered("Key", "key", key.as_deref()),
        filtered("Identity", "identity_id", identity.as_deref()),
        fact("Program", program.as_deref()),
        filtered("Address", "client_address", row.client_address.as_deref()),
        filtered("Session", "session_id", row.session_id.as_deref()),
        request(row),
        fact("Trace", row.trace_id.as_deref()),
    ];
    facts.into_iter().flatten().collect()
}
