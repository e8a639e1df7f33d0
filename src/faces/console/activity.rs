//! The page of activity records: filters, and a page of the records that match, newest first.

pub(super) mod detail;
mod exported;
mod filter_form;
mod words;

pub(super) use self::exported::show as export;

use askama::Template;
use axum::response::Response;
use chrono::{DateTime, Utc};
use http::StatusCode;
use ulid::Ulid;
use url::form_urlencoded::Serializer;

use self::filter_form::in_utc;
use super::filter_field::FilterField;
use super::moment::{Moment, duration};
use super::nav::{Nav, Section};
use super::page_visit::PageVisit;
use super::text::short;
use crate::domain::activity::{RecordKind, Status};
use crate::domain::consent::ConsentState;
use crate::domain::json;
use crate::domain::tenant::Action;
use crate::faces::query::activity::{PARAMS, RECORD_MEMORY_BYTES, before, filter};
use crate::faces::query::cursor::{CursorPage, encode};
use crate::faces::query::params::Params;
use crate::gateway::GatewayError;
use crate::store::{ActivityFilter, ActivityRow};

/// Longest name in a column, in characters.
const NAME_CHARS_MAX: usize = 80;
/// First step of a permission request, which has no state of this name.
const ASKED: &str = "asked";
/// Query parameters with which a page shows a search or a time of its own, and is not asked for again by itself.
const STILL: [&str; 4] = ["contains", "cursor", "end_time", "start_time"];
/// Query parameter that names a permission request.
const OF_REQUEST: &str = "consent_id";
/// Query parameters that filter nothing.
const PAGING: [&str; 2] = ["cursor", "limit"];

/// Record in the list.
struct RecordLine {
    /// Id of the line on the page.
    id: String,
    href: String,
    at: Moment,
    server: String,
    tool: String,
    intent: String,
    status: String,
    tone: &'static str,
    error_code: String,
    duration: String,
    who: String,
    key_name: String,
}

/// Records of one page.
#[derive(Default)]
struct RecordsFound {
    rows: Vec<ActivityRow>,
    /// Cursor of the next page; `None` if there is none.
    next: Option<String>,
    /// Time back to which texts were searched; `None` without a search for a text.
    searched_to: Option<DateTime<Utc>>,
}

#[derive(Template)]
#[template(path = "activity.html", config = "src/faces/console/askama.toml")]
struct ActivityPage {
    nav: Nav,
    /// True if the visitor sees the records of the own key alone.
    is_own: bool,
    /// Reason why the filters were not understood; `None` if they were.
    failure: Option<String>,
    fields: Vec<FilterField>,
    more: Vec<FilterField>,
    /// True if one of `more` is filled in, other than by a link from a permission request.
    is_more_open: bool,
    /// True if the records are those of one permission request.
    is_of_request: bool,
    is_filtered: bool,
    /// True if the filters ask for calls that are held open, and the visitor may see permission requests.
    leads_to_requests: bool,
    /// Status words, each with its class and its meaning.
    status_words: [(&'static str, &'static str, &'static str); Status::ALL.len()],
    /// True if the page is not the first one.
    is_further: bool,
    /// True if new records appear on the page.
    is_live: bool,
    records: Vec<RecordLine>,
    /// Link to the first page, with the same filters.
    first: String,
    /// Link to the next page; `None` if there is none.
    next: Option<String>,
    /// Links to exports of all records that match; none for a search, which has no export.
    exports: Vec<(&'static str, String)>,
    searched_to: Option<Moment>,
}

/// Shows the page.
pub(super) async fn list(visit: PageVisit) -> Response {
    let page = records(&visit).await;
    visit.answer_read(("activity.list", None), Section::Activity, page)
}

async fn records(visit: &PageVisit) -> Result<Response, GatewayError> {
    visit.caller().authorise(Action::ReadOwnActivity)?;
    let given = visit.given(PARAMS)?;
    let (status, failure, found) = match find(visit, &given).await {
        Ok(found) => (StatusCode::OK, None, found),
        // the form stays as it was filled in
        Err(GatewayError::Invalid { message, .. }) => {
            (StatusCode::BAD_REQUEST, Some(message), RecordsFound::default())
        }
        Err(error) => return Err(error),
    };
    let more = filter_form::more(&given);
    let page = ActivityPage {
        nav: visit.nav(Section::Activity),
        is_own: !visit.caller().role.may(Action::ReadActivity),
        failure,
        fields: filter_form::first(&given),
        is_more_open: more.iter().any(|field| !field.value.is_empty() && field.name != OF_REQUEST),
        is_of_request: given.iter().any(|(name, _)| *name == OF_REQUEST),
        more,
        status_words: status_words(),
        is_filtered: given.iter().any(|(name, _)| !PAGING.contains(name)),
        leads_to_requests: given.iter().any(|(name, value)| {
            *name == "status" && [Status::Waiting, Status::Pending].iter().any(|open| open.as_str() == value)
        }) && Section::Permissions.is_open_to(visit.caller()),
        is_further: given.iter().any(|(name, _)| *name == "cursor"),
        is_live: status == StatusCode::OK && !given.iter().any(|(name, _)| STILL.contains(name)),
        records: found.rows.iter().map(|row| line(row, visit.now())).collect(),
        first: link(&given, None),
        next: found.next.map(|cursor| link(&given, Some(&cursor))),
        exports: exported::links(&given),
        searched_to: found.searched_to.map(|at| Moment::new(at, visit.now())),
    };
    visit.show(status, &page).await
}

async fn find(visit: &PageVisit, given: &[(&'static str, String)]) -> Result<RecordsFound, GatewayError> {
    let given: Vec<_> = given.iter().map(|(name, value)| (*name, in_utc(name, value))).collect();
    let params = Params::of(&given, PARAMS)?;
    let page = params.page()?;
    let mut filter = filter(&params, visit.now())?;
    filter.before = before(&page)?;
    visit.expect(page.limit * RECORD_MEMORY_BYTES).await?;
    match filter.contains.is_some() {
        true => search(visit, filter, &page).await,
        false => read(visit, filter, &page).await,
    }
}

async fn read(
    visit: &PageVisit,
    filter: ActivityFilter,
    page: &CursorPage,
) -> Result<RecordsFound, GatewayError> {
    let mut rows = visit.gateway().log.list_activity(visit.caller(), filter, page.fetch()).await?;
    let (shown, next) = page.split(&rows, |row| Ulid::from(row.id).to_string());
    let shown = shown.len();
    rows.truncate(shown);
    Ok(RecordsFound { rows, next, searched_to: None })
}

async fn search(
    visit: &PageVisit,
    filter: ActivityFilter,
    page: &CursorPage,
) -> Result<RecordsFound, GatewayError> {
    let limit = i64::try_from(page.limit).unwrap_or(i64::MAX);
    let hits = visit.gateway().log.search_activity(visit.caller(), filter, limit).await?;
    let next = hits.next.map(|(_, id)| encode(&Ulid::from(id).to_string()));
    Ok(RecordsFound { rows: hits.rows, next, searched_to: Some(hits.searched_to) })
}

/// Returns the link to a page with the same filters.
fn link(given: &[(&'static str, String)], cursor: Option<&str>) -> String {
    let mut query = Serializer::new(String::new());
    query.extend_pairs(given.iter().filter(|(name, _)| *name != "cursor"));
    if let Some(cursor) = cursor {
        query.append_pair("cursor", cursor);
    }
    let query = query.finish();
    let path = Section::Activity.href();
    if query.is_empty() { path.to_owned() } else { format!("{path}?{query}") }
}

fn line(row: &ActivityRow, now: DateTime<Utc>) -> RecordLine {
    let name = |text: &Option<String>| short(text.as_deref().unwrap_or_default(), NAME_CHARS_MAX);
    let (status, tone) = status_of_record(row);
    RecordLine {
        id: format!("a-{}", Ulid::from(row.id)),
        href: href_of(row),
        at: Moment::new(row.started_at, now),
        server: name(&row.server),
        tool: short(&tool_of(row), NAME_CHARS_MAX),
        intent: name(&row.intent_type),
        status: short(status, NAME_CHARS_MAX),
        tone,
        error_code: name(&row.error_code),
        duration: row.duration_ms.map(duration).unwrap_or_default(),
        who: name(&row.owner),
        key_name: name(&row.key_name),
    }
}

/// Returns the tool of a record; of one about a permission request the step, the tool of the request, and the decision if the record
/// is about one: `consent.decide (write_file: reject_once)`; of one about a tool the act and the tool: `tools.approve (write_file)`.
fn tool_of(row: &ActivityRow) -> String {
    let tool = row.tool.clone().unwrap_or_default();
    let is_about_tool = row.kind == RecordKind::Admin.as_str() && tool.starts_with("tools.");
    if row.kind != RecordKind::Consent.as_str() && !is_about_tool {
        return tool;
    }
    let arguments = row.arguments.as_deref().unwrap_or_default();
    let [requested, body] = json::find_members(arguments, ["tool", "body"]).unwrap_or_default();
    let [decision] = json::find_members(body.unwrap_or_default(), ["decision"]).unwrap_or_default();
    let text = |raw: Option<&str>| raw.and_then(|raw| serde_json::from_str::<String>(raw).ok());
    match (text(requested), text(decision)) {
        (None, _) => tool,
        (Some(requested), None) => format!("{tool} ({requested})"),
        (Some(requested), Some(decision)) => format!("{tool} ({requested}: {decision})"),
    }
}

/// Returns the path of a record's page.
fn href_of(row: &ActivityRow) -> String {
    format!("{}/{}", Section::Activity.href(), Ulid::from(row.id))
}

/// Returns the word for a record's status, and the class by which it stands out. A step of a permission request was recorded, whatever
/// became of the request.
fn status_of_record(row: &ActivityRow) -> (&str, &'static str) {
    let step = row.tool.as_deref().and_then(|tool| tool.strip_prefix("consent."));
    let step = step.filter(|_| row.kind == RecordKind::Consent.as_str());
    let is_step = step.is_some_and(|step| step == ASKED || ConsentState::parse(step).is_some());
    match is_step && row.status == Status::Success.as_str() {
        true => ("recorded", "held"),
        false => (&row.status, tone(&row.status)),
    }
}

/// Returns the class of a status, by which it stands out.
fn tone(status: &str) -> &'static str {
    match status {
        "success" => "good",
        "pending" | "waiting" => "open",
        "blocked" | "rejected" | "cancelled" => "held",
        _ => "bad",
    }
}

/// Returns the status words of records, each with its class and its meaning.
fn status_words() -> [(&'static str, &'static str, &'static str); Status::ALL.len()] {
    Status::ALL.map(|status| {
        let meaning = match status {
            Status::Success => "The server answered; of an act of a person: it was done.",
            Status::UpstreamError => "The server answered that it failed.",
            Status::Error => "The gateway failed, or lost the server; the message says whether the call may have run.",
            Status::Blocked => {
                "Refused by a check, a policy, a person or a role; nothing ran. A call that waits for a person is here too."
            }
            Status::Rejected => "A limit or an unreachable server stood in the way; nothing ran.",
            Status::Cancelled => "The caller took it back; the message says whether it may have run.",
            Status::Unknown => "The replica that ran it died before the end: it may have run.",
            Status::Pending => "It has not ended yet.",
            Status::Waiting => "Not used by this release: calls that wait for a person are blocked, with consent_pending.",
        };
        (status.as_str(), tone(status.as_str()), meaning)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_keep_the_filters_and_move_the_cursor() {
        let given = [("tool", "a&b".to_owned()), ("cursor", "old".to_owned()), ("limit", "10".to_owned())];
        assert_eq!(link(&given, None), "/console/activity?tool=a%26b&limit=10");
        assert_eq!(link(&given, Some("new")), "/console/activity?tool=a%26b&limit=10&cursor=new");
        assert_eq!(link(&[], None), "/console/activity");
    }
}
