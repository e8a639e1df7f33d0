//! Permission requests as readers get them, over REST and in webhooks.

use chrono::{DateTime, SecondsFormat, Utc};
use serde::Serialize;
use uuid::Uuid;

use super::ConsentView;
use crate::domain::consent::ConsentDecision;
use crate::domain::id::KeyId;
use crate::domain::policy::Assurance;
use crate::domain::reason::Language;
use crate::domain::risk::RiskLevel;
use crate::store::Stored;

/// Permission request with the fields of the contract and `lapse_reason`; texts are masked.
#[derive(Debug, Serialize)]
pub struct ShownConsent<'a> {
    id: Uuid,
    state: &'a str,
    tool: &'a str,
    server: &'a str,
    operation_type: &'a str,
    risk: RiskLevel,
    reasons: &'a [String],
    reason: String,
    arguments: &'a str,
    agent_says: Option<&'a str>,
    key_id: Option<KeyId>,
    owner: &'a str,
    assurance: Assurance,
    options: &'a [ConsentDecision],
    created_at: String,
    expires_at: String,
    decided_at: Option<String>,
    decided_by: Option<&'a str>,
    decided_via: Option<&'a str>,
    comment: Option<&'a str>,
    lapse_reason: Option<&'a str>,
}

impl ConsentView {
    /// Returns the request for a reader of this language.
    pub fn shown(&self, language: Language) -> ShownConsent<'_> {
        let row = &self.row;
        ShownConsent {
            id: row.id,
            state: row.state.as_str(),
            tool: &row.tool,
            server: &row.server,
            operation_type: row.operation_type.as_str(),
            risk: self.risk,
            reasons: &row.signals,
            reason: self.told(language),
            arguments: &row.arguments,
            agent_says: row.agent_says.as_deref(),
            key_id: self.key(),
            owner: &row.owner,
            assurance: self.assurance,
            options: &self.options,
            created_at: time(row.created_at),
            expires_at: time(row.expires_at),
            decided_at: row.decided_at.map(time),
            decided_by: row.decided_owner.as_deref(),
            decided_via: row.decided_via.as_deref(),
            comment: row.comment.as_deref(),
            lapse_reason: row.lapse_reason.as_ref().map(Stored::as_str),
        }
    }
}

/// Formats a time for readers: RFC 3339, UTC, milliseconds.
pub(super) fn time(at: DateTime<Utc>) -> String {
    at.to_rfc3339_opts(SecondsFormat::Millis, true)
}
