//! Cutting of results that are too long for `/mcp`. The text that is cut off is kept for the caller (behaviour, section 5,
//! large results); a result that cannot be kept is not cut.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use sha2::{Digest, Sha256};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;
use uuid::Uuid;

use super::Calls;
use super::pipeline::CallOutcome;
use crate::domain::activity::{Record, Source};
use crate::domain::cut::{Cut, KEPT_S, Rendered};
use crate::domain::id::TenantId;
use crate::domain::seal::{self, Key, NONCE_BYTES, Place};
use crate::gateway::credentials::{data_key, random};
use crate::gateway::log::Attempt;
use crate::gateway::log::{ReportLane, ReportTurn};
use crate::gateway::tenants::Caller;
use crate::store::NewCachedTexts;
use crate::upstream::{MemoryPurpose, MemoryShort};

/// Longest wait for storing a result. The caller waits as long, so it is short.
const KEEP_MAX: Duration = Duration::from_secs(2);
/// Random bytes in the key under which a text is read.
const TOKEN_BYTES: usize = 16;
/// Texts that one tenant may store or read at a time.
const TENANT_TURNS: usize = 2;

/// Concurrency limit of the cache. Large rows use the connections of reports, of which half stay free for these.
#[derive(Debug)]
pub(super) struct CacheLane {
    tenants: ReportLane,
    all: Arc<Semaphore>,
}

/// A slot in the [`CacheLane`]; given back when dropped.
#[derive(Debug)]
pub(super) struct CacheTurn {
    _tenant: ReportTurn,
    _all: OwnedSemaphorePermit,
}

impl CacheLane {
    /// Creates a lane with this many slots, at least one.
    pub(super) fn new(turns: usize) -> CacheLane {
        CacheLane { tenants: ReportLane::new(TENANT_TURNS), all: Arc::new(Semaphore::new(turns.max(1))) }
    }

    /// Waits for a slot; `None` when too many others wait. The caller bounds the wait.
    pub(super) async fn enter(&self, tenant: TenantId) -> Option<CacheTurn> {
        let own = self.tenants.enter(tenant).await.ok()?;
        let all = Arc::clone(&self.all).acquire_owned().await.ok()?;
        Some(CacheTurn { _tenant: own, _all: all })
    }
}

/// Reason why a result could not be kept, as the end of a sentence.
struct NotKept(&'static str);

const SLOW: NotKept = NotKept("what would have been cut off could not be kept in time");

/// Sealed texts that were cut off, and the shortened result.
struct Sealed {
    texts: Vec<([u8; 32], Vec<u8>)>,
    rendered: Rendered,
}

impl Calls {
    /// Returns the outcome with long texts cut, for calls over MCP. REST callers get the whole result.
    pub(super) async fn shorten(
        &self,
        attempt: &Attempt,
        record: &mut Record,
        outcome: CallOutcome,
    ) -> CallOutcome {
        let limit = attempt.caller.settings.response_limit as usize;
        let CallOutcome::Result { raw, head, warning, truncated } = outcome else { return outcome };
        if attempt.source != Source::Mcp || limit == 0 || raw.len() <= limit {
            return CallOutcome::Result { raw, head, warning, truncated };
        }
        // rare and large: boxed, so that not every call's future contains it
        match Box::pin(self.cut(&attempt.caller, record, &raw, limit)).await {
            Ok(None) => CallOutcome::Result { raw, head, warning, truncated },
            Ok(Some(Rendered { result, meta })) => {
                let raw = self.remainder(&attempt.caller, result, raw).await;
                CallOutcome::Result { raw, head, warning, truncated: Some(meta) }
            }
            Err(NotKept(why)) => {
                let note = format!("this result is longer than response_limit and was not cut: {why}");
                record.warn(&note);
                CallOutcome::Result { raw, head, warning: record.warning.clone(), truncated }
            }
        }
    }

    /// Returns the shortened result, which holds memory of its own until it is written. If the tenant has no memory left, it
    /// keeps that of the whole result.
    async fn remainder(&self, caller: &Caller, result: String, whole: Bytes) -> Bytes {
        let mut memory = self.tenants.memory(caller, MemoryPurpose::Answer).waiting(Duration::ZERO);
        match memory.grow(result.len()).await {
            Ok(()) => memory.keep(result.into()),
            Err(MemoryShort) => with_whole(result, whole),
        }
    }

    /// Cuts a result and keeps what was cut off; `None` when there is nothing to cut.
    async fn cut(
        &self,
        caller: &Caller,
        record: &Record,
        raw: &Bytes,
        limit: usize,
    ) -> Result<Option<Rendered>, NotKept> {
        let find = || Cut::find(text(raw), limit).is_some();
        if !self.upstreams.aside(caller.tenant_id().0, raw.len(), find).await {
            return Ok(None);
        }
        match timeout(KEEP_MAX, self.keep(caller, record, raw, limit)).await {
            Ok(kept) => kept.map(Some),
            Err(_) => {
                tracing::warn!(tenant = %caller.tenant_id(), "a result could not be kept in time");
                Err(SLOW)
            }
        }
    }

    async fn keep(
        &self,
        caller: &Caller,
        record: &Record,
        raw: &Bytes,
        limit: usize,
    ) -> Result<Rendered, NotKept> {
        let tenant = caller.tenant_id();
        let _turn = self.cache_lane.enter(tenant).await.ok_or(SLOW)?;
        let (data_key, key) = data_key(&self.store, &self.options.keyring, tenant).await.map_err(|_| SLOW)?;
        let principal = caller.key.map_or(Uuid::nil(), |key| key.0);
        let sealed = self
            .upstreams
            .aside(tenant.0, raw.len(), || seal(text(raw), limit, tenant, principal, &key))
            .await;
        let Sealed { texts, rendered } =
            sealed.ok_or(NotKept("what would have been cut off could not be sealed"))?;
        let quota = self.options.cache_quota;
        let bytes: usize = texts.iter().map(|(_, sealed)| sealed.len()).sum();
        if i64::try_from(bytes).is_ok_and(|bytes| bytes > quota.bytes) || texts.len() as i64 > quota.entries {
            return Err(NotKept("it is larger than all that may be kept for a tenant"));
        }
        let new = NewCachedTexts {
            principal: caller.key,
            data_key,
            call: record.id.into(),
            server: record.server.as_deref(),
            tool: record.tool.as_deref(),
            texts,
            keep_s: KEPT_S,
        };
        self.store.keep_texts(tenant, &new, quota).await.map_err(|error| {
            tracing::warn!(%error, %tenant, "a result could not be kept");
            SLOW
        })?;
        Ok(rendered)
    }
}

/// Cuts a result, and seals each text that was cut off with a key of its own. Returns `None` if nothing can be cut.
fn seal(raw: &str, limit: usize, tenant: TenantId, principal: Uuid, key: &Key) -> Option<Sealed> {
    let mut cut = Cut::find(raw, limit)?;
    cut.look_for_records(limit);
    let (mut tokens, mut texts) = (Vec::new(), Vec::new());
    for body in cut.bodies() {
        let bytes: [u8; TOKEN_BYTES] = random().ok()?;
        let token: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        let hash = hash_of(&token);
        let place = Place::CachedText { tenant, principal, hash: &hash };
        let nonce: [u8; NONCE_BYTES] = random().ok()?;
        texts.push((hash, seal::seal(&key.derive(token.as_bytes()), nonce, place, body.as_bytes()).ok()?));
        tokens.push(token);
    }
    Some(Sealed { rendered: cut.render(&tokens, limit), texts })
}

/// Returns the stored hash of a token, under which its text is found.
pub(super) fn hash_of(token: &str) -> [u8; 32] {
    Sha256::new_with_prefix("mcpproxy cache key v1\0").chain_update(token).finalize().into()
}

fn text(raw: &[u8]) -> &str {
    std::str::from_utf8(raw).unwrap_or_default()
}

/// Returns the shortened result, which keeps the memory of the whole result until it is written.
fn with_whole(result: String, whole: Bytes) -> Bytes {
    struct Remainder {
        result: String,
        _whole: Bytes,
    }
    impl AsRef<[u8]> for Remainder {
        fn as_ref(&self) -> &[u8] {
            self.result.as_bytes()
        }
    }
    Bytes::from_owner(Remainder { result, _whole: whole })
}
