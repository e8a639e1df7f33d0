//! Ids of the events of the activity stream: sealed positions in the order of commits.
//!
//! A position names a transaction, and transactions are counted over the whole database. Unsealed, positions would show a
//! tenant how much all others write. So they are sealed, with a key of each tenant's own.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use uuid::Uuid;

use crate::domain::id::TenantId;
use crate::domain::seal::{self, Key, NONCE_BYTES, Place};
use crate::store::Commit;

/// Purpose of the keys, which are derived from the shared secrets.
const PURPOSE: &[u8] = b"mcpproxy places of streams v1";
/// Length of an unsealed position, in bytes: the transaction, the record.
const PLACE_BYTES: usize = 24;
/// Longest id that is decoded, in characters. The gateway's own are shorter.
const ID_CHARS_MAX: usize = 128;

/// Keys that seal positions, alike on every replica.
pub struct Places {
    keys: Vec<Key>,
}

/// Keys that seal the positions of one tenant.
pub(super) struct TenantPlaces {
    tenant: TenantId,
    /// Keys of the tenant: the first seals, all open.
    keys: Vec<Key>,
}

impl Places {
    /// Derives the keys from the secrets that all replicas share: the first seals, all open.
    pub fn new<'a>(secrets: impl IntoIterator<Item = &'a [u8]>) -> Places {
        Places { keys: secrets.into_iter().map(|secret| Key::of_secret(secret, PURPOSE)).collect() }
    }

    pub(super) fn of(&self, tenant: TenantId) -> TenantPlaces {
        TenantPlaces { tenant, keys: self.keys.iter().map(|key| key.derive(tenant.0.as_bytes())).collect() }
    }
}

impl TenantPlaces {
    /// Returns the event id of a position; `None` if the system's random source fails.
    pub(super) fn show(&self, at: Commit) -> Option<String> {
        let mut nonce = [0; NONCE_BYTES];
        getrandom::fill(&mut nonce).ok()?;
        let mut text = [0; PLACE_BYTES];
        let (xid, record) = text.split_at_mut(size_of::<u64>());
        xid.copy_from_slice(&at.xid.to_be_bytes());
        record.copy_from_slice(at.record.as_bytes());
        let place = Place::OfStream { tenant: self.tenant };
        let sealed = seal::seal(self.keys.first()?, nonce, place, &text).ok()?;
        Some(URL_SAFE_NO_PAD.encode(sealed))
    }

    /// Returns the position that an event id stands for; `None` if the id is not one of this tenant's.
    pub(super) fn read(&self, id: &str) -> Option<Commit> {
        if id.len() > ID_CHARS_MAX {
            return None;
        }
        let sealed = URL_SAFE_NO_PAD.decode(id).ok()?;
        let place = Place::OfStream { tenant: self.tenant };
        let text = self.keys.iter().find_map(|key| seal::open(key, place, &sealed).ok())?;
        let (xid, record) = text.split_first_chunk()?;
        Some(Commit { xid: u64::from_be_bytes(*xid), record: Uuid::from_slice(record).ok()? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tenant(n: u128) -> TenantId {
        TenantId(Uuid::from_u128(n))
    }

    #[test]
    fn places_come_back_as_they_went_to_their_tenant_only() {
        let at = Commit { xid: u64::MAX, record: Uuid::from_u128(7) };
        let places = Places::new([b"one".as_slice()]);
        let (id, again) = (places.of(tenant(1)).show(at).unwrap(), places.of(tenant(1)).show(at).unwrap());
        assert_ne!(id, again, "equal places cannot be told");
        assert_eq!(places.of(tenant(1)).read(&id), Some(at));
        assert_eq!(places.of(tenant(2)).read(&id), None);
        // a secret that is being rotated
        let next = Places::new([b"two".as_slice(), b"one"]);
        assert_eq!(next.of(tenant(1)).read(&id), Some(at));
        assert_eq!(places.of(tenant(1)).read(&next.of(tenant(1)).show(at).unwrap()), None);
        for bad in ["", "7", id.trim_start_matches('A'), &"A".repeat(71), &"A".repeat(10_000)] {
            assert_eq!(places.of(tenant(1)).read(bad), None, "{bad}");
        }
    }
}
