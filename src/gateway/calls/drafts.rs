//! Drafts of forms, as calls read and write them: sealed for their key and form, and the same on every replica.

use std::fmt::Display;

use chrono::{DateTime, Utc};
use uuid::Uuid;

use super::Calls;
use crate::domain::id::ServerId;
use crate::domain::refusal::{Code, Refusal};
use crate::domain::seal::{self, NONCE_BYTES, Place};
use crate::domain::web_page::draft::{DRAFT_KEPT_S, FormDraft, form_digest};
use crate::domain::web_page::facts::PageFacts;
use crate::gateway::catalog::Tool;
use crate::gateway::credentials::{data_key, open_data_key, random};
use crate::gateway::tenants::Caller;
use crate::store::{DraftPlace, DraftStored, NewSealedRow};

/// Most drafts of one key.
const DRAFTS_MAX: i64 = 20;

/// Draft as it was read.
pub(super) struct FoundDraft {
    pub(super) version: Uuid,
    /// Draft; `None` if no key at hand opens it.
    pub(super) draft: Option<FormDraft>,
}

/// Draft that a call sends: it is used up when the ledger of the call is committed.
#[derive(Clone, Copy, Debug)]
pub(super) struct DraftClaim {
    pub(super) place: DraftPlace,
    pub(super) version: Uuid,
}

/// Result of storing a draft.
pub(super) enum DraftPut {
    /// Stored until this time.
    Until(DateTime<Utc>),
    /// Another step came first; nothing is stored.
    Superseded,
}

impl Calls {
    /// Returns a draft until it expires.
    pub(super) async fn draft(&self, place: DraftPlace) -> Result<Option<FoundDraft>, Refusal> {
        let stored = self.store.web_draft(place).await.map_err(|error| {
            tracing::warn!(%error, tenant = %place.tenant, "a draft could not be read");
            unreadable()
        })?;
        Ok(stored.map(|stored| {
            let key = open_data_key(&self.options.keyring, place.tenant, &stored.keys, stored.data_key);
            let text = key.and_then(|key| seal::open(&key, sealed_for(&place), &stored.sealed).ok());
            FoundDraft { version: stored.version, draft: text.and_then(|text| FormDraft::read(&text)) }
        }))
    }

    /// Stores a draft in the place of the version that was read; `None` begins one.
    pub(super) async fn put_draft(
        &self,
        place: DraftPlace,
        replaces: Option<Uuid>,
        draft: &FormDraft,
    ) -> Result<DraftPut, Refusal> {
        let keys = data_key(&self.store, &self.options.keyring, place.tenant).await;
        let (data_key, key) = keys.map_err(|_| unreadable())?;
        let nonce: [u8; NONCE_BYTES] = random().map_err(|_| unreadable())?;
        let sealed = seal::seal(&key, nonce, sealed_for(&place), draft.to_text().as_bytes());
        let sealed = sealed.map_err(|_| unreadable())?;
        let new = NewSealedRow { replaces, version: Uuid::now_v7(), data_key, sealed, keep_s: DRAFT_KEPT_S };
        let stored = self.store.put_web_draft(place, &new, DRAFTS_MAX).await.map_err(|error| {
            tracing::warn!(%error, tenant = %place.tenant, "a draft could not be stored");
            unreadable()
        })?;
        match stored {
            DraftStored::Until(until) => Ok(DraftPut::Until(until)),
            DraftStored::Superseded => Ok(DraftPut::Superseded),
            DraftStored::TooMany => {
                let message = format!(
                    "This key has {DRAFTS_MAX} drafts of other forms, and no more are kept; send one, or wait until one expires"
                );
                Err(Refusal::new(Code::Overloaded, message))
            }
        }
    }

    /// Deletes a draft. If that fails, it expires.
    pub(super) async fn drop_draft(&self, place: DraftPlace, version: Uuid) {
        if let Err(error) = self.store.drop_web_draft(place, version).await {
            tracing::warn!(%error, tenant = %place.tenant, "a draft could not be deleted");
        }
    }
}

/// Returns the place of a caller's draft of a form.
pub(super) fn place(caller: &Caller, server: ServerId, form: &PageFacts) -> DraftPlace {
    DraftPlace {
        tenant: caller.tenant_id(),
        principal: caller.key.map_or(Uuid::nil(), |key| key.0),
        server,
        form: form_digest(form),
    }
}

fn sealed_for(place: &DraftPlace) -> Place<'_> {
    let DraftPlace { tenant, principal, server, form } = place;
    Place::WebDraft { tenant: *tenant, principal: *principal, server: *server, form }
}

/// Returns the refusal while drafts are out of reach.
pub(super) fn unreadable() -> Refusal {
    let message = "Drafts cannot be read or written now; nothing was sent, try again in a few seconds";
    Refusal::new(Code::RecordUnavailable, message)
}

/// Returns the refusal of arguments that fit the schema and make no sense.
pub(super) fn invalid(tool: &Tool, why: &impl Display) -> Refusal {
    Refusal::new(Code::InvalidArguments, format!("Invalid arguments for tool '{}': {why}", tool.canonical))
}

/// Returns the refusal of a step in a draft whose form is not what it was.
pub(super) fn changed(form: &str) -> Refusal {
    let message = format!(
        "Form '{form}' changed since its draft was begun; the draft was dropped and nothing was sent, begin it again"
    );
    Refusal::new(Code::ToolChanged, message)
}
