//! When keys were last used, and requests without a valid key: counted here, written once a minute.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use chrono::{DateTime, Utc};

use super::Tenants;
use super::authenticate::hash_key;
use super::live::access::Caller;
use crate::domain::id::{KeyId, TenantId};
use crate::domain::measure::Count;

/// Keys whose last use is remembered between two writes.
const KEY_USES_MAX: usize = 100_000;
/// Unknown keys counted apart between two writes; the rest is counted together.
const FAILED_KEYS_MAX: usize = 100;

/// What was counted since the last write.
#[derive(Debug, Default)]
pub(in crate::gateway) struct Uses {
    used: Mutex<HashMap<KeyId, (TenantId, DateTime<Utc>)>>,
    auth_failures: Mutex<HashMap<String, u64>>,
    /// Requests without a valid key, since the start.
    pub(in crate::gateway) strangers: Count,
}

impl Uses {
    /// Notes that a key was used; at most once a minute and key.
    pub(super) fn key_used(&self, caller: &Caller, now: DateTime<Utc>) {
        let Some(key) = caller.key else { return };
        let mut used = self.used.lock().unwrap_or_else(PoisonError::into_inner);
        if used.len() < KEY_USES_MAX {
            used.entry(key).or_insert((caller.tenant_id(), now));
        }
    }

    fn count_failure(&self, key: String) {
        self.strangers.one();
        let mut failures = self.auth_failures.lock().unwrap_or_else(PoisonError::into_inner);
        let room = failures.len() < FAILED_KEYS_MAX;
        let name = if room || failures.contains_key(&key) { key } else { "others".to_owned() };
        *failures.entry(name).or_insert(0) += 1;
    }

    /// Takes the numbers of requests without a valid key, by what was presented.
    pub(in crate::gateway) fn take_failures(&self) -> HashMap<String, u64> {
        std::mem::take(&mut *self.auth_failures.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Takes the keys that were used, with the time of the first use.
    pub(in crate::gateway) fn take_used(&self) -> Vec<(TenantId, KeyId, DateTime<Utc>)> {
        let mut used = self.used.lock().unwrap_or_else(PoisonError::into_inner);
        used.drain().map(|(key, (tenant, at))| (tenant, key, at)).collect()
    }
}

impl Tenants {
    /// Counts a request whose key is missing or not valid; recorded once per key and minute. Keys are told
    /// apart by a digest, which says nothing about them.
    pub fn count_auth_failure(&self, presented: Option<&str>) {
        let name = match presented {
            None => "none".to_owned(),
            Some(secret) => {
                let hash = hash_key(secret);
                format!(
                    "sha256:{}",
                    hash.iter().take(6).map(|byte| format!("{byte:02x}")).collect::<String>()
                )
            }
        };
        self.uses.count_failure(name);
    }
}
