//! Tokens that were verified: a hit costs a digest, a look-up and a few comparisons.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::RwLock;
use sha2::{Digest, Sha256};

use crate::domain::id::TenantId;
use crate::gateway::tenants::Caller;

/// Longest time for which a verified token is remembered.
const REMEMBERED_MAX: Duration = Duration::from_secs(300);
/// Part of the room that one tenant's tokens may take: a quarter.
const TENANT_PART: usize = 4;

/// Digest of a token and of the tenant that the request names.
pub(super) type TokenDigest = [u8; 32];

/// Returns the digest of a token, whose SHA-256 is known, and of the value of `X-Tenant`.
pub(super) fn digest(token: &[u8; 32], tenant: Option<&str>) -> TokenDigest {
    let Some(tenant) = tenant else { return *token };
    let mut hash = Sha256::new();
    hash.update(token);
    hash.update(tenant.as_bytes());
    hash.finalize().into()
}

#[derive(Clone, Debug)]
struct Remembered {
    caller: Arc<Caller>,
    tenant: TenantId,
    since: Instant,
}

/// Callers of verified tokens, by digest. Tokens themselves are not kept, and neither are bad ones.
pub(super) struct TokenCache {
    entries: RwLock<HashMap<TokenDigest, Remembered>>,
    max: usize,
}

impl TokenCache {
    pub(super) fn new(max: usize) -> TokenCache {
        TokenCache { entries: RwLock::default(), max: max.max(TENANT_PART) }
    }

    /// Returns the caller of a token that was verified a short time ago. Whether it still is one, the reader checks.
    pub(super) fn get(&self, digest: &TokenDigest) -> Option<Arc<Caller>> {
        let entries = self.entries.read();
        let found = entries.get(digest)?;
        (found.since.elapsed() < REMEMBERED_MAX).then(|| Arc::clone(&found.caller))
    }

    /// Remembers the caller of a token. Without room, an older entry goes: of the same tenant where that has its part.
    pub(super) fn put(&self, digest: TokenDigest, caller: &Arc<Caller>) {
        let tenant = caller.tenant_id();
        let mut entries = self.entries.write();
        let is_full = |entries: &HashMap<TokenDigest, Remembered>| {
            let own = || entries.values().filter(|entry| entry.tenant == tenant).count();
            (
                entries.len() >= self.max,
                entries.len() >= self.max / TENANT_PART && own() >= self.max / TENANT_PART,
            )
        };
        if is_full(&entries) != (false, false) {
            entries.retain(|_, entry| entry.since.elapsed() < REMEMBERED_MAX);
            let (is_all_full, is_tenant_full) = is_full(&entries);
            let oldest = |of: Option<TenantId>| {
                let candidates = entries.iter().filter(|(_, entry)| of.is_none_or(|of| entry.tenant == of));
                candidates.min_by_key(|(_, entry)| entry.since).map(|(digest, _)| *digest)
            };
            let gone = match (is_all_full, is_tenant_full) {
                (_, true) => oldest(Some(tenant)),
                (true, false) => oldest(None),
                (false, false) => None,
            };
            if let Some(gone) = gone {
                entries.remove(&gone);
            }
        }
        entries.insert(digest, Remembered { caller: Arc::clone(caller), tenant, since: Instant::now() });
    }

    /// Forgets a token.
    pub(super) fn forget(&self, digest: &TokenDigest) {
        self.entries.write().remove(digest);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gateway::tenants::example_caller;

    #[test]
    fn a_tenant_has_a_quarter_of_the_room() {
        let (cache, caller) = (TokenCache::new(8), example_caller());
        let name = |n: u8| digest(&[n; 32], None);
        for n in 0..5 {
            cache.put(name(n), &caller);
        }
        let kept: Vec<u8> = (0..5).filter(|n| cache.get(&name(*n)).is_some()).collect();
        assert_eq!(kept, [3, 4]);
        cache.forget(&name(4));
        assert!(cache.get(&name(4)).is_none());
        assert_ne!(digest(&[1; 32], None), digest(&[1; 32], Some("b")));
        assert_ne!(digest(&[1; 32], Some("a")), digest(&[1; 32], Some("b")));
        assert_ne!(digest(&[1; 32], Some("a")), digest(&[2; 32], Some("a")));
    }
}
