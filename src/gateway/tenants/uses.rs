//! Counters of key uses and of requests without a valid key, written once a minute.

use std::collections::HashMap;
use std::net::IpAddr;

use chrono::{DateTime, Utc};
use parking_lot::Mutex;

use super::Tenants;
use super::authenticate::hash_key;
use super::live::access::Caller;
use crate::domain::id::{KeyId, TenantId};
use crate::domain::measure::Count;

/// Most keys whose use is remembered between two writes.
const KEY_USES_MAX: usize = 100_000;
/// Unknown keys counted individually between two writes; further ones are counted together.
const FAILED_KEYS_MAX: usize = 100;

/// Most addresses that are named of one unknown key between two writes.
const FAILED_ADDRESSES_MAX: usize = 10;

/// Requests with one key that is missing or invalid.
#[derive(Debug, Default, PartialEq, Eq)]
pub(in crate::gateway) struct AuthFailures {
    /// Number of requests.
    pub(in crate::gateway) count: u64,
    /// Addresses that they came from, in the order of their first request; at most [`FAILED_ADDRESSES_MAX`].
    pub(in crate::gateway) addresses: Vec<IpAddr>,
}

/// Counters since the last write.
#[derive(Debug, Default)]
pub(in crate::gateway) struct Uses {
    used: Mutex<HashMap<KeyId, (TenantId, DateTime<Utc>)>>,
    auth_failures: Mutex<HashMap<String, AuthFailures>>,
    /// Requests without a valid key since the start.
    pub(in crate::gateway) strangers: Count,
}

impl Uses {
    /// Notes the use of a key; only the first use between two writes counts.
    pub(super) fn key_used(&self, caller: &Caller, now: DateTime<Utc>) {
        let Some(key) = caller.key_id() else { return };
        let mut used = self.used.lock();
        if used.len() < KEY_USES_MAX {
            used.entry(key).or_insert((caller.tenant_id(), now));
        }
    }

    fn count_failure(&self, key: String, address: Option<IpAddr>) {
        self.strangers.one();
        let mut failures = self.auth_failures.lock();
        let room = failures.len() < FAILED_KEYS_MAX;
        let name = if room || failures.contains_key(&key) { key } else { "others".to_owned() };
        let failures = failures.entry(name).or_default();
        failures.count += 1;
        if let Some(address) = address
            && failures.addresses.len() < FAILED_ADDRESSES_MAX
            && !failures.addresses.contains(&address)
        {
            failures.addresses.push(address);
        }
    }

    /// Takes the requests without a valid key, by digest of the presented key.
    pub(in crate::gateway) fn take_failures(&self) -> HashMap<String, AuthFailures> {
        std::mem::take(&mut *self.auth_failures.lock())
    }

    /// Takes the keys used since the last call, each with the time of its first use.
    pub(in crate::gateway) fn take_used(&self) -> Vec<(TenantId, KeyId, DateTime<Utc>)> {
        let mut used = self.used.lock();
        used.drain().map(|(key, (tenant, at))| (tenant, key, at)).collect()
    }
}

impl Tenants {
    /// Counts a request whose key is missing or invalid, recorded once per key and minute. Keys are distinguished by a
    /// digest, which does not reveal them.
    pub fn count_auth_failure(&self, presented: Option<&str>, address: Option<IpAddr>) {
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
        self.uses.count_failure(name, address);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failures_are_bounded_in_keys_and_addresses() {
        let uses = Uses::default();
        let address = |n: u8| Some(IpAddr::from([192, 0, 2, n]));
        for n in 0..200 {
            uses.count_failure("one".to_owned(), address(n));
            uses.count_failure("one".to_owned(), address(n));
        }
        for n in 0..2 * FAILED_KEYS_MAX {
            uses.count_failure(format!("key{n}"), None);
        }
        let failures = uses.take_failures();
        assert_eq!(failures.len(), FAILED_KEYS_MAX + 1);
        let one = failures.get("one").unwrap();
        assert_eq!((one.count, one.addresses.len()), (400, FAILED_ADDRESSES_MAX));
        assert_eq!(one.addresses.first().copied(), address(0));
        assert!(failures.get("others").unwrap().addresses.is_empty());
    }
}
