//! Activity records on the wire, in lists and exports.

use chrono::SecondsFormat;
use serde::Serialize;
use ulid::Ulid;
use uuid::Uuid;

use crate::store::ActivityRow;

#[derive(Serialize)]
struct Intent<'a> {
    operation_type: &'a str,
    data_sensitivity: Option<&'a str>,
    reason: Option<&'a str>,
}

#[derive(Serialize)]
struct Client<'a> {
    name: Option<&'a str>,
    version: Option<&'a str>,
}

/// Activity record on the wire. Every member is always present.
#[derive(Serialize)]
pub(in crate::faces) struct ShownRecord<'a> {
    id: String,
    started_at: String,
    #[serde(rename = "type")]
    kind: &'a str,
    source: &'a str,
    server: Option<&'a str>,
    tool: Option<&'a str>,
    tool_variant: Option<&'a str>,
    tier: Option<&'a str>,
    intent: Option<Intent<'a>>,
    intent_declared: bool,
    warning: Option<&'a str>,
    status: &'a str,
    error_code: Option<&'a str>,
    error_message: Option<&'a str>,
    decision: Option<&'a str>,
    rule: Option<&'a str>,
    consent_id: Option<Uuid>,
    key_id: Option<Uuid>,
    key_name: Option<&'a str>,
    identity_id: Option<Uuid>,
    owner: Option<&'a str>,
    client: Client<'a>,
    client_address: Option<&'a str>,
    session_id: Option<&'a str>,
    request_id: Option<&'a str>,
    trace_id: Option<&'a str>,
    parent_id: Option<String>,
    duration_ms: Option<f64>,
    upstream_ms: Option<f64>,
    wait_ms: Option<f64>,
    request_bytes: Option<i64>,
    response_bytes: Option<i64>,
    arguments: Option<&'a str>,
    response: Option<&'a str>,
    truncated: bool,
}

/// Returns a record as it is on the wire.
pub(in crate::faces) fn shown(row: &ActivityRow) -> ShownRecord<'_> {
    ShownRecord {
        id: Ulid::from(row.id).to_string(),
        started_at: row.started_at.to_rfc3339_opts(SecondsFormat::Millis, true),
        kind: &row.kind,
        source: &row.source,
        server: row.server.as_deref(),
        tool: row.tool.as_deref(),
        tool_variant: row.tool_variant.as_deref(),
        tier: row.tier.as_deref(),
        intent: intent(row),
        intent_declared: row.intent_declared,
        warning: row.warning.as_deref(),
        status: &row.status,
        error_code: row.error_code.as_deref(),
        error_message: row.error_message.as_deref(),
        decision: row.decision.as_deref(),
        rule: row.rule.as_deref(),
        consent_id: row.consent_id,
        key_id: row.key_id,
        key_name: row.key_name.as_deref(),
        identity_id: row.identity_id,
        owner: row.owner.as_deref(),
        client: Client { name: row.client_name.as_deref(), version: row.client_version.as_deref() },
        client_address: row.client_address.as_deref(),
        session_id: row.session_id.as_deref(),
        request_id: row.request_id.as_deref(),
        trace_id: row.trace_id.as_deref(),
        parent_id: row.parent_id.map(|id| Ulid::from(id).to_string()),
        duration_ms: row.duration_ms,
        upstream_ms: row.upstream_ms,
        wait_ms: row.wait_ms,
        request_bytes: row.request_bytes,
        response_bytes: row.response_bytes,
        arguments: row.arguments.as_deref(),
        response: row.response.as_deref(),
        truncated: row.truncated,
    }
}

fn intent(row: &ActivityRow) -> Option<Intent<'_>> {
    let operation_type = row.intent_type.as_deref()?;
    Some(Intent {
        operation_type,
        data_sensitivity: row.intent_sensitivity.as_deref(),
        reason: row.intent_reason.as_deref(),
    })
}

#[cfg(test)]
mod tests;
