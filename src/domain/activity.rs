//! Activity records: one for each attempt, however it ends (behaviour, section 9).

use core::net::IpAddr;
use std::sync::Arc;

use chrono::{DateTime, Utc};
use ulid::Ulid;
use uuid::Uuid;

use super::annotations::Tier;
use super::id::{IdentityId, KeyId, TenantId};
use super::operation::{OperationType, Variant};
use super::policy::Ruling;
use super::text_enum::text_enum;

text_enum! {
    /// Kind of the attempt that a record is about.
    pub enum RecordKind {
        /// A `call_tool_*`, over MCP or REST.
        ToolCall = "tool_call",
        /// A `retrieve_tools`.
        Search = "search",
        /// A `read_cache`: a page of what was cut off a result.
        CacheRead = "cache_read",
        /// A call of an upstream's tool under its own name, on `/mcp/direct`.
        DirectCall = "direct_call",
        /// A change, or a recorded read, over the management interface.
        Admin = "admin",
        /// Change of a policy.
        Policy = "policy",
        /// Step of a permission request.
        Consent = "consent",
        /// Question of a server to the client in the middle of a call, until its answer.
        Question = "question",
        /// Requests without a valid key, counted.
        AuthFailure = "auth_failure",
        /// Real outcome of a call whose record had already been closed as `unknown`.
        LateOutcome = "late_outcome",
        /// Action of the gateway itself.
        System = "system",
    }
}

text_enum! {
    /// Interface through which an attempt came in.
    pub enum Source {
        /// `/mcp`
        Mcp = "mcp",
        /// `/mcp/direct`
        Direct = "direct",
        /// `/api/v1`
        Rest = "rest",
        /// The command line, which uses `/api/v1`.
        Cli = "cli",
        /// The console.
        Console = "console",
        /// The gateway itself.
        System = "system",
    }
}

text_enum! {
    /// Outcome of an attempt.
    pub enum Status {
        /// The upstream answered.
        Success = "success",
        /// The upstream answered with `isError` or a JSON-RPC error.
        UpstreamError = "upstream_error",
        /// Failure of the gateway or of the transport.
        Error = "error",
        /// Refused by checks 1 to 11.
        Blocked = "blocked",
        /// Refused by check 12.
        Rejected = "rejected",
        /// Cancelled by the caller.
        Cancelled = "cancelled",
        /// Lost: the replica that ran the attempt died before it ended.
        Unknown = "unknown",
        /// Not ended yet.
        Pending = "pending",
        /// Waiting for a person; no record of it is written yet.
        Waiting = "waiting",
    }
}

/// Activity record of one attempt. Field names are the wire names. Texts are already redacted and cut.
#[derive(Clone, Debug)]
pub struct Record {
    /// ULID; its time is `started_at`.
    pub id: Ulid,
    /// Tenant that the record belongs to.
    pub tenant: TenantId,
    /// Kind of the attempt.
    pub kind: RecordKind,
    /// Interface through which the attempt came in.
    pub source: Source,
    /// Server name, as called.
    pub server: Option<String>,
    /// Tool name without its server; for [`RecordKind::Admin`] the name of the action.
    pub tool: Option<String>,
    /// Tool variant of the call.
    pub tool_variant: Option<Variant>,
    /// The tool's tier at call time.
    pub tier: Option<Tier>,
    /// Operation type that the caller declared, else the one of the tool variant.
    pub operation_type: Option<OperationType>,
    /// Declared sensitivity.
    pub data_sensitivity: Option<String>,
    /// Declared reason.
    pub reason: Option<String>,
    /// Whether the operation type was declared.
    pub intent_declared: bool,
    /// Warnings of the attempt, joined by `; `, such as those of checks 9 and 10; `None` without any.
    pub warning: Option<String>,
    /// Outcome of the attempt.
    pub status: Status,
    /// Code of a refusal or failure, or the upstream's JSON-RPC error code.
    pub error_code: Option<String>,
    /// Text of the refusal or failure.
    pub error_message: Option<String>,
    /// Decision of the policy; `None` where none was made.
    pub decision: Option<Ruling>,
    /// Rule that decided; `None` if the mode or a person did.
    pub rule: Option<Arc<str>>,
    /// Permission request of the attempt.
    pub consent_id: Option<Uuid>,
    /// Principal that called: an API key, or a person under the id of the identity.
    pub key: Option<KeyId>,
    /// The key's name at that time; for a bootstrap key its own, if it is named.
    pub key_name: Option<String>,
    /// Identity of the caller: of a login, or of the person whom an administrator named for the key.
    pub identity: Option<IdentityId>,
    /// The key's owner at that time.
    pub owner: Option<String>,
    /// The client's own name.
    pub client_name: Option<String>,
    /// The client's own version.
    pub client_version: Option<String>,
    /// Address that the request came from, behind trusted proxies that of their client; `None` for what the gateway did.
    pub client_address: Option<IpAddr>,
    /// The handshake session's id.
    pub session_id: Option<String>,
    /// The request's id: JSON-RPC id on MCP, `X-Request-Id` on REST.
    pub request_id: Option<String>,
    /// W3C trace id.
    pub trace_id: Option<String>,
    /// The record this one adds to.
    pub parent_id: Option<Ulid>,
    /// Whole duration, milliseconds.
    pub duration_ms: Option<f64>,
    /// Part of the duration that was spent in the upstream, milliseconds.
    pub upstream_ms: Option<f64>,
    /// Part of the duration that was spent waiting for a person or in a queue, milliseconds.
    pub wait_ms: Option<f64>,
    /// Size of the arguments, bytes.
    pub request_bytes: Option<i64>,
    /// Size of the result, bytes.
    pub response_bytes: Option<i64>,
    /// Redacted preview of the arguments.
    pub arguments: Option<String>,
    /// Redacted preview of the result.
    pub response: Option<String>,
    /// Whether a preview was cut.
    pub truncated: bool,
    /// True if the call has a ledger: its rows were committed before a form was sent.
    pub has_ledger: bool,
}

impl RecordKind {
    /// Returns the kind of the record of an act over the management interface, by the act's name.
    pub fn of_act(what: &str) -> RecordKind {
        match what.split_once('.') {
            Some(("policy", _)) => RecordKind::Policy,
            Some(("consent", _)) => RecordKind::Consent,
            _ => RecordKind::Admin,
        }
    }
}

impl Record {
    /// Returns a pending record of an attempt that starts at `now`, with all other fields empty.
    pub fn start(tenant: TenantId, kind: RecordKind, source: Source, now: DateTime<Utc>) -> Record {
        Record {
            id: new_id(now),
            tenant,
            kind,
            source,
            server: None,
            tool: None,
            tool_variant: None,
            tier: None,
            operation_type: None,
            data_sensitivity: None,
            reason: None,
            intent_declared: false,
            warning: None,
            status: Status::Pending,
            error_code: None,
            error_message: None,
            decision: None,
            rule: None,
            consent_id: None,
            key: None,
            key_name: None,
            identity: None,
            owner: None,
            client_name: None,
            client_version: None,
            client_address: None,
            session_id: None,
            request_id: None,
            trace_id: None,
            parent_id: None,
            duration_ms: None,
            upstream_ms: None,
            wait_ms: None,
            request_bytes: None,
            response_bytes: None,
            arguments: None,
            response: None,
            truncated: false,
            has_ledger: false,
        }
    }

    /// Returns the size of the record in memory, with its texts, in bytes.
    pub fn bytes(&self) -> usize {
        let texts = [
            &self.server,
            &self.tool,
            &self.data_sensitivity,
            &self.reason,
            &self.warning,
            &self.error_code,
            &self.error_message,
            &self.key_name,
            &self.owner,
            &self.client_name,
            &self.client_version,
            &self.session_id,
            &self.request_id,
            &self.trace_id,
            &self.arguments,
            &self.response,
        ];
        size_of::<Record>() + texts.into_iter().flatten().map(String::capacity).sum::<usize>()
    }

    /// Returns the API key of the caller; `None` for a person who logged in.
    pub fn key_id(&self) -> Option<KeyId> {
        self.key.filter(|key| key.identity().is_none())
    }

    /// Returns the identity of the caller: of a login, or of the person whom an administrator named for the key.
    pub fn identity_id(&self) -> Option<IdentityId> {
        self.identity.or_else(|| self.key.and_then(KeyId::identity))
    }

    /// Adds a warning to those that the record has.
    pub fn warn(&mut self, warning: &str) {
        let before = self.warning.take();
        self.warning = Some(before.map_or(warning.to_owned(), |before| format!("{before}; {warning}")));
    }

    /// Returns the start of the attempt: the time in its id. So the id alone tells the record's partition.
    pub fn started_at(&self) -> DateTime<Utc> {
        time_of(self.id)
    }
}

/// Creates a record id whose time is `now`, to the millisecond.
pub fn new_id(now: DateTime<Utc>) -> Ulid {
    let ms = u64::try_from(now.timestamp_millis()).unwrap_or(0);
    Ulid::from_parts(ms, Uuid::new_v4().as_u128())
}

/// Returns the time in a record id, to the millisecond.
pub fn time_of(id: Ulid) -> DateTime<Utc> {
    let ms = i64::try_from(id.timestamp_ms()).unwrap_or(0);
    DateTime::from_timestamp_millis(ms).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_of_an_id_is_when_it_started() {
        let now = DateTime::from_timestamp_millis(1_793_000_123_456).expect("valid");
        let record = Record::start(TenantId::PLATFORM, RecordKind::System, Source::System, now);
        assert_eq!(record.started_at(), now);
        assert_ne!(new_id(now), new_id(now));
    }

    #[test]
    fn every_text_counts() {
        let mut record =
            Record::start(TenantId::PLATFORM, RecordKind::System, Source::System, DateTime::default());
        let empty = record.bytes();
        assert!(empty >= size_of::<Record>());
        record.response = Some("x".repeat(4096));
        record.reason = Some("y".repeat(1000));
        assert!(record.bytes() >= empty + 5096);
    }
}
