//! State of a request that takes several rounds: sealed for the client, and opened when it returns, by any replica. Neither
//! this process nor the database stores it.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use chrono::{DateTime, TimeDelta, Utc};
use ulid::Ulid;
use uuid::Uuid;

use super::credentials::random;
use crate::domain::id::{KeyId, TenantId};
use crate::domain::rounds::{HeldQuestion, RoundConsent, State};
use crate::domain::seal::{self, Key, Place};

/// Purpose label for deriving keys from the shared secrets.
const PURPOSE: &[u8] = b"mcpproxy rounds of requests v1";
/// Validity of a state: the longest time a client may take for a round.
pub(super) const STATE_TTL: TimeDelta = TimeDelta::minutes(10);
/// Longest sealed state that is read, in characters; no state of the gateway's own is longer.
const SEALED_CHARS_MAX: usize = 96 * 1024;

/// Content of a state that a client carries to the next round; see [`State`] for the fields.
#[derive(Clone, Copy, Debug)]
pub(super) struct Carried<'a> {
    pub(super) first: Ulid,
    pub(super) consent: Option<RoundConsent>,
    pub(super) held: Option<HeldQuestion>,
    pub(super) own: &'a str,
}

/// Sealer and opener of states, equal on every replica.
#[derive(Debug)]
pub struct Rounds {
    keys: Vec<Key>,
}

/// Tenant and principal of a request, which its state is bound to.
#[derive(Clone, Copy, Debug)]
pub(super) struct Whose {
    tenant: TenantId,
    /// Id of the API key; nil for the bootstrap key.
    principal: Uuid,
}

impl Whose {
    pub(super) fn of(tenant: TenantId, key: Option<KeyId>) -> Whose {
        Whose { tenant, principal: key.map_or(Uuid::nil(), |key| key.0) }
    }

    fn place(self, digest: &[u8; 32]) -> Place<'_> {
        Place::RequestState { tenant: self.tenant, principal: self.principal, digest }
    }
}

impl Rounds {
    /// Creates the sealer from secrets that all replicas share; the first one seals, all open.
    pub fn new<'a>(secrets: impl IntoIterator<Item = &'a [u8]>) -> Rounds {
        Rounds { keys: secrets.into_iter().map(|secret| Key::of_secret(secret, PURPOSE)).collect() }
    }

    /// Seals what a client carries to the next round. Returns `None` if the system's random source fails.
    pub(super) fn seal(
        &self,
        whose: Whose,
        digest: &[u8; 32],
        carried: Carried<'_>,
        now: DateTime<Utc>,
    ) -> Option<String> {
        let Carried { first, consent, held, own } = carried;
        let state = State { expires_at: now + STATE_TTL, first, consent, held, own: own.to_owned() };
        // each place has its own key and few states, so random nonces suffice
        let key = self.keys.first()?.derive(digest);
        let sealed = seal::seal(&key, random().ok()?, whose.place(digest), &state.encode()).ok()?;
        Some(URL_SAFE_NO_PAD.encode(sealed))
    }

    /// Opens a returned state; `None` unless it was sealed for this request and has not expired.
    pub(super) fn open(
        &self,
        whose: Whose,
        digest: &[u8; 32],
        text: &str,
        now: DateTime<Utc>,
    ) -> Option<State> {
        if text.len() > SEALED_CHARS_MAX {
            return None;
        }
        let sealed = URL_SAFE_NO_PAD.decode(text).ok()?;
        let open = |key: &Key| seal::open(&key.derive(digest), whose.place(digest), &sealed).ok();
        let state = State::decode(&self.keys.iter().find_map(open)?)?;
        (state.expires_at > now).then_some(state)
    }
}

#[cfg(test)]
mod fuzz;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::domain::rounds::STATE_BYTES_MAX;

    const WHOSE: Whose = Whose { tenant: TenantId(Uuid::from_u128(1)), principal: Uuid::from_u128(2) };

    fn at(seconds: i64) -> DateTime<Utc> {
        DateTime::from_timestamp(1_795_000_000 + seconds, 0).unwrap()
    }

    fn rounds(secrets: &[&str]) -> Rounds {
        Rounds::new(secrets.iter().map(|secret| secret.as_bytes()))
    }

    fn sealed(own: &str) -> String {
        let carried = Carried { first: Ulid::from_parts(3, 4), consent: None, held: None, own };
        rounds(&["one"]).seal(WHOSE, &[7; 32], carried, at(0)).unwrap()
    }

    fn own(state: Option<State>) -> Option<String> {
        state.map(|state| state.own)
    }

    #[test]
    fn a_state_opens_for_its_request_in_its_time_with_any_key_that_still_holds() {
        let text = sealed("\"u\"");
        assert_ne!(text, sealed("\"u\""), "equal states cannot be told");
        let open = |rounds: &Rounds, now| rounds.open(WHOSE, &[7; 32], &text, now);
        let state = open(&rounds(&["one"]), at(599)).unwrap();
        assert_eq!((state.first, state.own.as_str()), (Ulid::from_parts(3, 4), "\"u\""));
        assert_eq!(open(&rounds(&["one"]), at(600)), None, "it is too late");
        assert!(open(&rounds(&["two", "one"]), at(0)).is_some(), "a key that is being exchanged");
        assert_eq!(open(&rounds(&["two"]), at(0)), None);
        assert_eq!(open(&rounds(&[]), at(0)), None);
        let other_tenant = Whose { tenant: TenantId(Uuid::from_u128(9)), ..WHOSE };
        let other_key = Whose { principal: Uuid::from_u128(9), ..WHOSE };
        for other in [other_tenant, other_key] {
            assert_eq!(rounds(&["one"]).open(other, &[7; 32], &text, at(0)), None, "{other:?}");
        }
        assert_eq!(rounds(&["one"]).open(WHOSE, &[8; 32], &text, at(0)), None);
    }

    #[test]
    fn the_longest_state_fits() {
        let longest = "x".repeat(STATE_BYTES_MAX);
        let text = sealed(&longest);
        assert!(text.len() <= SEALED_CHARS_MAX, "{}", text.len());
        assert_eq!(own(rounds(&["one"]).open(WHOSE, &[7; 32], &text, at(0))), Some(longest));
        assert_eq!(rounds(&["one"]).open(WHOSE, &[7; 32], &"A".repeat(SEALED_CHARS_MAX + 1), at(0)), None);
    }

    proptest! {
        #[test]
        fn nothing_but_what_was_sealed_opens(
            state in "\\PC{0,40}",
            change in any::<prop::sample::Index>(),
            by in 1..64u8,
            cut in any::<prop::sample::Index>(),
            noise in "[A-Za-z0-9_=+/ -]{0,120}",
        ) {
            const ALPHABET: &[u8] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
            let text = sealed(&state);
            let rounds = rounds(&["one"]);
            let open = |text: &str| own(rounds.open(WHOSE, &[7; 32], text, at(0)));
            let opened = open(&text);
            prop_assert_eq!(opened.as_ref(), Some(&state));
            let mut bytes = text.clone().into_bytes();
            let at = change.index(bytes.len());
            let place = ALPHABET.iter().position(|byte| *byte == bytes[at]).unwrap();
            bytes[at] = ALPHABET[(place + usize::from(by)) % ALPHABET.len()];
            prop_assert_eq!(open(&String::from_utf8(bytes).unwrap()), None);
            prop_assert_eq!(open(text.get(..cut.index(text.len())).unwrap()), None);
            prop_assert_eq!(open(&format!("{text}{noise}x")), None);
            prop_assert_eq!(open(&noise), None);
        }
    }
}
