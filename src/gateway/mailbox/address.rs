//! Ids of requests to clients: the sealed address of whoever waits for the reply.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use bytes::Bytes;
use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use sha2::{Digest, Sha256};
use uuid::Uuid;

use crate::domain::id::{KeyId, ReplicaId, TenantId};
use crate::domain::seal::{self, Key, Place};
use crate::gateway::credentials::random;
use crate::gateway::tenants::Caller;
use crate::upstream::QuestionReply;

/// Longest id that is read, in bytes, with its quotes; no id of the gateway's own is longer.
const ID_BYTES_MAX: usize = 128;

/// Session of a client that is asked: nobody else can reply.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Respondent {
    pub(super) tenant: TenantId,
    pub(super) key: Option<KeyId>,
    pub(super) session: String,
}

/// Address of whoever waits for a reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Address {
    pub(super) replica: ReplicaId,
    pub(super) waiter: Uuid,
    /// Time after which nobody waits any more.
    pub(super) expires_at: DateTime<Utc>,
}

/// Reply as it is sealed for another replica.
#[derive(Serialize, Deserialize)]
enum SealedReply {
    #[serde(rename = "r")]
    Result(Box<RawValue>),
    #[serde(rename = "e")]
    Refused(i64, String),
}

/// Session of letters between replicas; no client's session has such a name.
const LETTERS: &str = "\0letters";

impl Respondent {
    /// Returns who a letter between replicas is sealed for: any replica, about a call of this tenant. Clients cannot write
    /// such letters, since they get no id in this name.
    pub(super) fn replicas(tenant: TenantId) -> Respondent {
        Respondent { tenant, key: None, session: LETTERS.to_owned() }
    }

    /// Returns whom a waiter for a letter counts for.
    pub(super) fn letters_for(caller: &Caller) -> Respondent {
        Respondent { key: caller.key, ..Respondent::replicas(caller.tenant_id()) }
    }

    pub(super) fn is_replica(&self) -> bool {
        self.session == LETTERS
    }

    pub(super) fn new(caller: &Caller, session: &str) -> Respondent {
        Respondent { tenant: caller.tenant_id(), key: caller.key, session: session.to_owned() }
    }

    /// Runs `with` on the place that ids and replies of the session are sealed for, and the digest of its session.
    fn at<T>(&self, with: impl FnOnce(Place<'_>, &[u8; 32]) -> T) -> T {
        let session: [u8; 32] = Sha256::digest(&self.session).into();
        let principal = self.key.map_or(Uuid::nil(), |key| key.0);
        with(Place::ClientRequest { tenant: self.tenant, principal, session: &session }, &session)
    }

    pub(super) fn seal(&self, keys: &[Key], token: Option<Uuid>, text: &[u8]) -> Option<Vec<u8>> {
        // each session has a key of its own and few requests, so random nonces suffice
        self.at(|place, session| {
            let key = derived(keys.first()?, session, token);
            seal::seal(&key, random().ok()?, place, text).ok()
        })
    }

    pub(super) fn open(&self, keys: &[Key], token: Option<Uuid>, sealed: &[u8]) -> Option<Vec<u8>> {
        self.at(|place, session| {
            let open = |key: &Key| seal::open(&derived(key, session, token), place, sealed).ok();
            keys.iter().find_map(open).map(|text| text.to_vec())
        })
    }

    /// Returns the id of a request, a raw JSON string. `None` if the system's random source fails.
    pub(super) fn id_of(&self, keys: &[Key], address: Address) -> Option<String> {
        let mut text = address.replica.0.as_bytes().to_vec();
        text.extend(address.waiter.as_bytes());
        text.extend(address.expires_at.timestamp_millis().to_be_bytes());
        let sealed = self.seal(keys, None, &text)?;
        Some(format!("\"{}\"", URL_SAFE_NO_PAD.encode(sealed)))
    }

    /// Returns the address in the raw id of a reply; `None` unless a request to this session had it.
    pub(super) fn address_of(&self, keys: &[Key], id: &str) -> Option<Address> {
        if id.len() > ID_BYTES_MAX {
            return None;
        }
        let id: String = serde_json::from_str(id).ok()?;
        let text = self.open(keys, None, &URL_SAFE_NO_PAD.decode(id).ok()?)?;
        let (replica, rest) = text.split_first_chunk()?;
        let (waiter, expires) = rest.split_first_chunk()?;
        let expires = i64::from_be_bytes(expires.try_into().ok()?);
        Some(Address {
            replica: ReplicaId(Uuid::from_bytes(*replica)),
            waiter: Uuid::from_bytes(*waiter),
            expires_at: DateTime::from_timestamp_millis(expires)?,
        })
    }

    /// Seals a reply for whoever waits for it. `None` if it is no JSON, or the system's random source fails.
    pub(super) fn seal_reply(&self, keys: &[Key], waiter: Uuid, reply: &QuestionReply) -> Option<Vec<u8>> {
        let reply = match reply {
            QuestionReply::Result(raw) => SealedReply::Result(serde_json::from_slice(raw).ok()?),
            QuestionReply::Refused { code, message } => SealedReply::Refused(*code, message.clone()),
        };
        self.seal(keys, Some(waiter), &serde_json::to_vec(&reply).ok()?)
    }

    /// Opens a reply; `None` unless it was sealed for this waiter and session.
    pub(super) fn open_reply(&self, keys: &[Key], waiter: Uuid, sealed: &[u8]) -> Option<QuestionReply> {
        let text = self.open(keys, Some(waiter), sealed)?;
        Some(match serde_json::from_slice(&text).ok()? {
            SealedReply::Result(raw) => {
                QuestionReply::Result(Bytes::from(String::from(Box::<str>::from(raw))))
            }
            SealedReply::Refused(code, message) => QuestionReply::Refused { code, message },
        })
    }
}

/// Returns the key of a session's ids, or of the reply to one waiter.
fn derived(key: &Key, session: &[u8; 32], waiter: Option<Uuid>) -> Key {
    let key = key.derive(session);
    waiter.map(|waiter| key.derive(waiter.as_bytes())).unwrap_or(key)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn keys() -> Vec<Key> {
        vec![Key::new([1; 32]), Key::new([2; 32])]
    }

    fn respondent() -> Respondent {
        let (tenant, key) = (TenantId(Uuid::from_u128(1)), Some(KeyId(Uuid::from_u128(2))));
        Respondent { tenant, key, session: "s".to_owned() }
    }

    fn address() -> Address {
        let expires_at = DateTime::from_timestamp_millis(1_795_000_000_123).unwrap();
        Address { replica: ReplicaId(Uuid::from_u128(3)), waiter: Uuid::from_u128(4), expires_at }
    }

    fn others() -> [Respondent; 4] {
        let own = respondent();
        [
            Respondent { tenant: TenantId(Uuid::from_u128(9)), ..own.clone() },
            Respondent { key: Some(KeyId(Uuid::from_u128(9))), ..own.clone() },
            Respondent { key: None, ..own.clone() },
            Respondent { session: "t".to_owned(), ..own },
        ]
    }

    #[test]
    fn an_id_opens_for_its_session_alone() {
        let (own, id) = (respondent(), respondent().id_of(&keys(), address()).unwrap());
        assert!(id.len() <= ID_BYTES_MAX, "{id}");
        assert_eq!(own.address_of(&keys(), &id), Some(address()));
        // a key that is being exchanged
        assert_eq!(own.address_of(&[Key::new([7; 32]), Key::new([1; 32])], &id), Some(address()));
        assert_eq!(own.address_of(&[Key::new([7; 32])], &id), None);
        for other in others() {
            assert_eq!(other.address_of(&keys(), &id), None, "{other:?}");
        }
    }

    #[test]
    fn a_reply_opens_for_its_waiter_and_session_alone() {
        let (own, waiter) = (respondent(), Uuid::from_u128(4));
        let raw = Bytes::from_static(br#"{ "action":"accept","n":1e400 }"#);
        let refused = QuestionReply::Refused { code: -32601, message: "no".to_owned() };
        for reply in [QuestionReply::Result(raw), refused] {
            let sealed = own.seal_reply(&keys(), waiter, &reply).unwrap();
            assert_eq!(own.open_reply(&keys(), waiter, &sealed), Some(reply));
            assert_eq!(own.open_reply(&keys(), Uuid::from_u128(5), &sealed), None);
            assert!(others().iter().all(|other| other.open_reply(&keys(), waiter, &sealed).is_none()));
        }
        assert_eq!(own.seal_reply(&keys(), waiter, &QuestionReply::Result(Bytes::from_static(b"{"))), None);
    }

    proptest! {
        #[test]
        fn nothing_but_what_was_sealed_is_an_address(
            noise in "\\PC{0,140}",
            at in any::<prop::sample::Index>(),
            letter in "[A-Za-z0-9_-]",
        ) {
            let id = respondent().id_of(&keys(), address()).unwrap();
            let at = 1 + at.index(id.len() - 2);
            let (start, end) = (id.get(..at).unwrap(), id.get(at + 1..).unwrap());
            let changed = format!("{start}{letter}{end}");
            prop_assert!(changed == id || respondent().address_of(&keys(), &changed).is_none());
            prop_assert_eq!(respondent().address_of(&keys(), &noise), None);
            prop_assert_eq!(respondent().address_of(&keys(), &format!("{noise:?}")), None);
            prop_assert_eq!(respondent().address_of(&keys(), start), None);
        }
    }
}
