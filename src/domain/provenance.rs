//! Ledger of what calls do to forms of web pages (R5, provenance): steps as they are planned, rows as they are kept.
//!
//! The rows of a call are a chain. Each holds the keyed hash of itself and of the row before, so that a row which was altered,
//! added or left out shows. Values are kept as keyed digests: without the key, not even a small set of them can be tried.

use chrono::{DateTime, SubsecRound, Utc};
use ulid::Ulid;
use uuid::Uuid;

use super::activity::Status;
use super::id::{ServerId, TenantId};
use super::redact;
use super::seal::{KEY_BYTES, Key};
use super::server_url;
use super::text_enum::text_enum;

/// Most rows of one call; one that needs more is not sent.
pub const LEDGER_ROWS_MAX: usize = 512;
/// Longest preview of a value, in bytes.
const PREVIEW_BYTES_MAX: usize = 200;
/// Longest URL, in bytes; longer ones are cut.
const URL_BYTES_MAX: usize = 2048;
/// Longest selector, explanation or name of a client, in bytes; longer ones are cut.
const TEXT_BYTES_MAX: usize = 300;
/// Decimals of a second that the database keeps.
const SECOND_DECIMALS: u16 = 6;

/// Hash of a row, or digest of a value.
pub type LedgerHash = [u8; KEY_BYTES];

text_enum! {
    /// Layer of the page that a step touches.
    pub enum LedgerLayer {
        /// Value of a control.
        Data = "data",
        /// State of a control: checked, or selected.
        Interaction = "interaction",
        /// Submission of the form.
        Submit = "submit",
        /// End of the submission.
        Outcome = "outcome",
    }
}

text_enum! {
    /// Certainty of a row.
    pub enum LedgerPhase {
        /// Written before anything was sent.
        Recorded = "recorded",
        /// The site has answered.
        Committed = "committed",
        /// The request may have reached the site, and no answer is known.
        Unknown = "unknown",
    }
}

/// Step of a call, with its values in the clear; it is never stored.
#[derive(Clone, PartialEq, Eq)]
pub struct LedgerStep {
    /// Layer of the step.
    pub layer: LedgerLayer,
    /// Control or form that the step touches.
    pub selector: String,
    /// Words for the step, with hyphens between them.
    pub explanation: String,
    /// Value before the step; `None` if there was none.
    pub original: Option<String>,
    /// Value after the step; `None` if there is none.
    pub value: Option<String>,
    /// Text that the digest of the value covers as well, and no preview shows; `None` if there is none.
    pub sealed: Option<String>,
    /// True for a secret: the row has neither preview nor digest. A caller who sets the same value elsewhere could compare digests.
    pub is_secret: bool,
}

impl std::fmt::Debug for LedgerStep {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut shown = f.debug_struct("LedgerStep");
        shown.field("layer", &self.layer).field("selector", &self.selector).finish_non_exhaustive()
    }
}

/// Page that a call is about, as it was fetched for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LedgerPage {
    /// URL after redirects.
    pub url: String,
    /// SHA-256 of the page.
    pub hash: LedgerHash,
}

/// Row of the ledger, without its tenant and call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LedgerRow {
    /// Key that called, or the nil UUID for the bootstrap key.
    pub principal: Uuid,
    /// Server of the page.
    pub server: ServerId,
    /// Number of the row in its call, from 0 on.
    pub step: i32,
    /// Time of the row.
    pub at: DateTime<Utc>,
    /// Certainty.
    pub phase: LedgerPhase,
    /// Layer.
    pub layer: LedgerLayer,
    /// Permission request that allowed the call; `None` if nobody was asked.
    pub consent_id: Option<Uuid>,
    /// URL of the page, without secrets.
    pub page_url: String,
    /// SHA-256 of the page.
    pub page_hash: LedgerHash,
    /// Control or form.
    pub selector: String,
    /// Words for the step.
    pub explanation: String,
    /// Keyed digest of the value before.
    pub original_digest: Option<LedgerHash>,
    /// Keyed digest of the value after.
    pub new_digest: Option<LedgerHash>,
    /// Beginning of the value after, masked; `None` for secrets.
    pub new_preview: Option<String>,
    /// Client that called, as it names itself.
    pub orchestrator: Option<String>,
    /// Hash of the row before; zeros for the first.
    pub prev_hash: LedgerHash,
    /// Keyed hash of this row.
    pub hash: LedgerHash,
}

/// Facts that all rows of a call have in common.
#[derive(Clone, Debug)]
pub struct LedgerCall {
    /// Tenant of the call.
    pub tenant: TenantId,
    /// Record of the call.
    pub record: Ulid,
    /// Key that called, or the nil UUID for the bootstrap key.
    pub principal: Uuid,
    /// Server of the page.
    pub server: ServerId,
    /// Permission request that allowed the call; `None` if nobody was asked.
    pub consent_id: Option<Uuid>,
    /// Client that called, as it names itself.
    pub orchestrator: Option<String>,
}

/// Chain of the rows of one call, to which rows are added.
#[derive(Debug)]
pub struct LedgerChain {
    call: LedgerCall,
    keys: LedgerKeys,
    page: LedgerPage,
    next: i32,
    last: LedgerHash,
}

impl LedgerChain {
    /// Creates the chain of a call that has no rows yet.
    pub fn new(call: LedgerCall, page: LedgerPage, key: &Key) -> LedgerChain {
        let keys = LedgerKeys::of(key, call.tenant);
        LedgerChain { call, keys, page, next: 0, last: [0; KEY_BYTES] }
    }

    /// Adds a row for a step.
    pub fn add(&mut self, step: &LedgerStep, phase: LedgerPhase, at: DateTime<Utc>) -> LedgerRow {
        let told = |value: &'_ Option<String>| value.clone().filter(|_| !step.is_secret);
        let shown = told(&step.value);
        let sealed = step.sealed.as_ref().map_or_else(String::new, |sealed| format!("\0{sealed}"));
        let mut row = LedgerRow {
            principal: self.call.principal,
            server: self.call.server,
            step: self.next,
            at: at.trunc_subsecs(SECOND_DECIMALS),
            phase,
            layer: step.layer,
            consent_id: self.call.consent_id,
            page_url: redact::preview(&server_url::masked(&self.page.url), URL_BYTES_MAX).text,
            page_hash: self.page.hash,
            selector: short(&step.selector),
            explanation: short(&step.explanation),
            original_digest: told(&step.original).map(|value| self.keys.digest(&value)),
            new_digest: shown.as_ref().map(|value| self.keys.digest(&format!("{value}{sealed}"))),
            new_preview: shown.map(|value| redact::preview_member(&step.selector, &value, PREVIEW_BYTES_MAX)),
            orchestrator: self.call.orchestrator.as_deref().map(short),
            prev_hash: self.last,
            hash: [0; KEY_BYTES],
        };
        row.hash = self.keys.hash(self.call.record, &row);
        self.next += 1;
        self.last = row.hash;
        row
    }
}

/// Record of a call, as far as it says what ledger there must be.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LedgerRecord {
    /// True if the call has ended: the end of its ledger is written before.
    pub has_ended: bool,
    /// True if rows of a ledger were committed for the call.
    pub has_ledger: bool,
}

impl LedgerRecord {
    /// Reads a record: its status, and whether it says that the call has a ledger. A record without an end says nothing.
    pub fn of(status: &str, has_ledger: Option<bool>) -> LedgerRecord {
        let ends = [Status::Success, Status::UpstreamError, Status::Error, Status::Cancelled];
        LedgerRecord {
            has_ended: ends.iter().any(|end| end.as_str() == status),
            has_ledger: has_ledger.unwrap_or_default(),
        }
    }
}

/// Returns whether the ledger of a call is all that was written, with its end if the call has one. `None` without rows where none
/// are needed: they prove nothing.
pub fn is_whole(
    rows: &[LedgerRow],
    (record, said): (Ulid, LedgerRecord),
    tenant: TenantId,
    keys: &[Key],
) -> Option<bool> {
    if rows.is_empty() {
        return said.has_ledger.then_some(false);
    }
    Some(is_intact(rows, record, tenant, keys) && (!said.has_ended || has_end(rows)))
}

/// Returns whether rows are all that was written before a form was sent, and perhaps the end of the call, as one of the keys has
/// sealed them. The submission is the last step of each plan, so that a chain without it has lost its end.
fn is_intact(rows: &[LedgerRow], record: Ulid, tenant: TenantId, keys: &[Key]) -> bool {
    let planned = if has_end(rows) { rows.split_last().map_or(rows, |(_, planned)| planned) } else { rows };
    let is_whole = planned.split_last().is_some_and(|(last, before)| {
        let is_step = |row: &LedgerRow| matches!(row.layer, LedgerLayer::Data | LedgerLayer::Interaction);
        last.layer == LedgerLayer::Submit && before.iter().all(is_step)
    });
    is_whole && is_chain(rows, record, tenant, keys)
}

/// Returns whether rows tell how the call ended.
fn has_end(rows: &[LedgerRow]) -> bool {
    rows.last().is_some_and(|row| row.layer == LedgerLayer::Outcome)
}

fn is_chain(rows: &[LedgerRow], record: Ulid, tenant: TenantId, keys: &[Key]) -> bool {
    keys.iter().any(|key| {
        let keys = LedgerKeys::of(key, tenant);
        let mut last = [0; KEY_BYTES];
        rows.iter().zip(0..).all(|(row, step)| {
            let fits = row.step == step && row.prev_hash == last && row.hash == keys.hash(record, row);
            last = row.hash;
            fits
        })
    })
}

fn short(text: &str) -> String {
    redact::preview(text, TEXT_BYTES_MAX).text
}

/// Keys of a tenant's ledger.
#[derive(Debug)]
struct LedgerKeys {
    chain: Key,
    values: Key,
}

impl LedgerKeys {
    fn of(key: &Key, tenant: TenantId) -> LedgerKeys {
        let own = key.derive(tenant.0.as_bytes());
        LedgerKeys { chain: own.derive(b"web ledger chain v1"), values: own.derive(b"web ledger value v1") }
    }

    fn digest(&self, value: &str) -> LedgerHash {
        *self.values.derive(value.as_bytes()).expose()
    }

    fn hash(&self, record: Ulid, row: &LedgerRow) -> LedgerHash {
        let mut text = Vec::with_capacity(1024);
        text.extend(row.prev_hash);
        text.extend(record.to_bytes());
        text.extend(row.principal.as_bytes());
        text.extend(row.server.0.as_bytes());
        text.extend(row.step.to_le_bytes());
        text.extend(row.at.timestamp_micros().to_le_bytes());
        text.extend(row.page_hash);
        let mut add = |field: Option<&[u8]>| {
            // the length first, so that different fields never make the same bytes; none is not empty
            text.extend(field.map_or(u64::MAX, |field| field.len() as u64).to_le_bytes());
            text.extend(field.unwrap_or_default());
        };
        for field in [row.phase.as_str(), row.layer.as_str(), &row.page_url, &row.selector, &row.explanation]
        {
            add(Some(field.as_bytes()));
        }
        add(row.consent_id.as_ref().map(|id| id.as_bytes().as_slice()));
        add(row.original_digest.as_ref().map(|digest| digest.as_slice()));
        add(row.new_digest.as_ref().map(|digest| digest.as_slice()));
        add(row.new_preview.as_deref().map(str::as_bytes));
        add(row.orchestrator.as_deref().map(str::as_bytes));
        *self.chain.derive(&text).expose()
    }
}

#[cfg(test)]
mod tests;
