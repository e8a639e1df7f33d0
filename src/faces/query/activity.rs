//! Filters of activity records.

/// Names of the parameters that filter records, with further ones of a route.
macro_rules! filters {
    [$($more:literal),*] => {
        &[
            "type",
            "source",
            "server",
            "tool",
            "tier",
            "not_read",
            "status",
            "intent_type",
            "key",
            "identity_id",
            "owner",
            "client_address",
            "session_id",
            "request_id",
            "decision",
            "consent_id",
            $($more),*
        ]
    };
}
pub(in crate::faces) use filters;

use std::net::IpAddr;

use chrono::{DateTime, TimeDelta, Utc};
use ulid::Ulid;
use uuid::Uuid;

use super::cursor::CursorPage;
use super::params::{ParamNames, Params};
use crate::domain::activity::{RecordKind, Source, Status, time_of};
use crate::domain::annotations::Tier;
use crate::domain::id::{IdentityId, KeyId, split_canonical};
use crate::domain::operation::OperationType;
use crate::domain::policy::Ruling;
use crate::faces::wire;
use crate::gateway::GatewayError;
use crate::store::ActivityFilter;

/// Parameters of a list.
pub(in crate::faces) const PARAMS: ParamNames =
    filters!["contains", "start_time", "end_time", "limit", "cursor"];
/// Memory of a record on a page, in bytes: as loaded, and as text.
pub(in crate::faces) const RECORD_MEMORY_BYTES: usize = 20 * 1024;
/// Longest text that is searched for, in characters.
const CONTAINS_CHARS_MAX: usize = 200;
/// Default length of the time range of a list.
const WINDOW: TimeDelta = TimeDelta::days(7);
/// Time by which a list reaches past now by default, since the clocks of replicas differ.
const SKEW: TimeDelta = TimeDelta::minutes(1);

/// Returns start and id of the record after which a page begins; `None` for the first page.
///
/// # Errors
/// [`GatewayError::Invalid`] for a cursor that no list gave.
pub(in crate::faces) fn before(page: &CursorPage) -> Result<Option<(DateTime<Utc>, Uuid)>, GatewayError> {
    page.after(None, |key| Ulid::from_string(key).ok().map(|id| Some((time_of(id), id.into()))))
}

/// Returns the filter that parameters ask for; the time range is relative to `now` where they name none.
///
/// # Errors
/// [`GatewayError::Invalid`] names the parameter.
pub(in crate::faces) fn filter(params: &Params, now: DateTime<Utc>) -> Result<ActivityFilter, GatewayError> {
    let (start, end) = window(params, now)?;
    let text = |name: &str| params.text(name).map(str::to_owned);
    // a tool's canonical name says its server too
    let (server, tool) = match params.text("tool").and_then(split_canonical) {
        Some((server, tool)) if params.text("server").is_none_or(|given| given == server) => {
            (Some(server.to_owned()), Some(tool.to_owned()))
        }
        _ => (text("server"), text("tool")),
    };
    // a text that cannot be an id is a name
    let key = params.text("key").and_then(|key| Uuid::try_parse(key).ok());
    let key_name = text("key").filter(|_| key.is_none());
    Ok(ActivityFilter {
        kind: params.one_of("type", &RecordKind::ALL)?,
        source: params.one_of("source", &Source::ALL)?,
        server,
        tool,
        tier: params.one_of("tier", &Tier::ALL)?,
        not_read: params.flag("not_read")?,
        status: params.one_of("status", &Status::ALL)?,
        intent_type: params.one_of("intent_type", &OperationType::ALL)?,
        key: key.map(KeyId),
        identity: uuid(params, "identity_id", "an identity")?.map(IdentityId),
        key_name,
        owner: text("owner"),
        client_address: address(params)?,
        // as the log names it, or as the client sent it
        session_id: text("session_id").map(|id| wire::session::id_of(&id).unwrap_or(id)),
        request_id: text("request_id"),
        decision: params.one_of("decision", &Ruling::ALL)?,
        consent_id: uuid(params, "consent_id", "a permission request")?,
        contains: contains(params)?,
        start,
        end,
        before: None,
    })
}

fn uuid(params: &Params, name: &str, what: &str) -> Result<Option<Uuid>, GatewayError> {
    let id = params.text(name).map(Uuid::try_parse).transpose();
    id.map_err(|_| GatewayError::invalid(name, format!("{name} must be the id of {what} (a UUID)")))
}

fn contains(params: &Params) -> Result<Option<String>, GatewayError> {
    let name = "contains";
    let Some(text) = params.text(name) else { return Ok(None) };
    if text.chars().count() > CONTAINS_CHARS_MAX {
        let message = format!("{name} must have at most {CONTAINS_CHARS_MAX} characters");
        return Err(GatewayError::invalid(name, message));
    }
    Ok(Some(text.to_owned()))
}

fn address(params: &Params) -> Result<Option<IpAddr>, GatewayError> {
    let name = "client_address";
    let address = params.text(name).map(str::parse::<IpAddr>).transpose();
    let address =
        address.map_err(|_| GatewayError::invalid(name, format!("{name} must be an IP address")))?;
    Ok(address.map(|address| address.to_canonical()))
}

/// Returns the time range of the records: its start, inclusive, and its end, exclusive.
fn window(params: &Params, now: DateTime<Utc>) -> Result<(DateTime<Utc>, DateTime<Utc>), GatewayError> {
    let given = params.time("end_time")?;
    let end = given.unwrap_or(now + SKEW);
    let start = match params.time("start_time")? {
        Some(start) => start,
        None => given.unwrap_or(now) - WINDOW,
    };
    if start >= end {
        let message = "start_time must be earlier than end_time, which is now when absent";
        return Err(GatewayError::invalid("start_time", message));
    }
    Ok((start, end))
}

#[cfg(test)]
mod tests;
