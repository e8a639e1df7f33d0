//! Sessions of people in a browser: the secret that a cookie holds, and what is derived from it.

use std::fmt;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use chrono::{DateTime, Utc};
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;
use uuid::Uuid;
use zeroize::Zeroizing;

use super::seal::Key;
use super::text_enum::text_enum;

/// Longest time that a session lasts.
pub const SESSION_LIFETIME: Duration = Duration::from_secs(24 * 3600);
/// Bytes of a secret: 256 random bits.
pub const SECRET_BYTES: usize = 32;
/// Characters of a secret in a cookie.
const COOKIE_CHARS: usize = 43;
/// Purpose of the key that forms of a session carry.
const FORM_PURPOSE: &[u8] = b"mcpproxy console forms v1";
/// Purpose of the keys of forms that do one thing once.
const ONCE_PURPOSE: &[u8] = b"mcpproxy console once v1";
/// Longest time that such a form can be sent.
pub const ONCE_LIFETIME: Duration = Duration::from_secs(600);
/// Purpose of the keys of notes in addresses.
const NOTE_PURPOSE: &[u8] = b"mcpproxy console notes v1";
/// Longest time that a note is believed.
const NOTE_LIFETIME: Duration = Duration::from_secs(120);
/// Purpose of the digest of the bootstrap key.
const PROOF_PURPOSE: &[u8] = b"mcpproxy console bootstrap v1";

text_enum! {
    /// Credential that a session was begun with.
    pub enum SessionKind {
        /// An API key of a tenant.
        ApiKey = "api_key",
        /// The platform operator's key.
        BootstrapKey = "bootstrap_key",
        /// A login at an identity provider.
        Person = "person",
    }
}

/// Secret of a session, or of another thing that a browser holds in a cookie. Only its hash is stored.
pub struct CookieSecret(Zeroizing<[u8; SECRET_BYTES]>);

impl CookieSecret {
    /// Creates a secret from random bytes.
    pub fn new(bytes: [u8; SECRET_BYTES]) -> CookieSecret {
        CookieSecret(Zeroizing::new(bytes))
    }

    /// Reads the value of a cookie; `None` for any text that [`CookieSecret::cookie`] does not make.
    pub fn read(cookie: &str) -> Option<CookieSecret> {
        if cookie.len() != COOKIE_CHARS {
            return None;
        }
        let bytes = Zeroizing::new(URL_SAFE_NO_PAD.decode(cookie).ok()?);
        Some(CookieSecret::new(bytes.as_slice().try_into().ok()?))
    }

    /// Returns the value of the cookie.
    pub fn cookie(&self) -> Zeroizing<String> {
        Zeroizing::new(URL_SAFE_NO_PAD.encode(self.0.as_slice()))
    }

    /// Returns the SHA-256 of the secret, under which the session is stored.
    pub fn hash(&self) -> [u8; 32] {
        Sha256::digest(self.0.as_slice()).into()
    }

    /// Returns the text that forms of the session carry, so that no other site can make them.
    pub fn form_token(&self) -> String {
        URL_SAFE_NO_PAD.encode(Key::of_secret(self.0.as_slice(), FORM_PURPOSE).expose())
    }

    /// Returns whether a form carries the text of the session, in constant time.
    pub fn is_form_token(&self, token: &str) -> bool {
        self.form_token().as_bytes().ct_eq(token.as_bytes()).into()
    }

    /// Returns the text of a form that does one thing once, named by `id`.
    pub fn once_text(&self, id: Uuid) -> String {
        let key = Key::of_secret(self.0.as_slice(), ONCE_PURPOSE).derive(id.as_bytes());
        format!("{id}.{}", URL_SAFE_NO_PAD.encode(key.expose()))
    }

    /// Reads the text of a form that does one thing once, in constant time; `None` for one of another session, and for one
    /// that is older than [`ONCE_LIFETIME`] at `now`.
    pub fn once_id(&self, text: &str, now: DateTime<Utc>) -> Option<Uuid> {
        let id = Uuid::try_parse(text.split_once('.')?.0).ok()?;
        let is_own: bool = self.once_text(id).as_bytes().ct_eq(text.as_bytes()).into();
        let (seconds, nanos) = id.get_timestamp()?.to_unix();
        let made = DateTime::from_timestamp(i64::try_from(seconds).ok()?, nanos)?;
        let age = (now - made).to_std().unwrap_or_default();
        (is_own && age <= ONCE_LIFETIME).then_some(id)
    }

    /// Returns a note for an address: a text with its time and a seal, which nobody makes who does not hold the cookie.
    pub fn note_of(&self, text: &str, at: DateTime<Utc>) -> String {
        let seconds = at.timestamp();
        let key =
            Key::of_secret(self.0.as_slice(), NOTE_PURPOSE).derive(format!("{seconds} {text}").as_bytes());
        format!("{seconds}.{}.{text}", URL_SAFE_NO_PAD.encode(key.expose()))
    }

    /// Reads the text of a note, in constant time; `None` for a note of another session, and for one that is older than two
    /// minutes at `now`.
    pub fn noted<'a>(&self, note: &'a str, now: DateTime<Utc>) -> Option<&'a str> {
        let (seconds, sealed) = note.split_once('.')?;
        let (_, text) = sealed.split_once('.')?;
        let at = DateTime::from_timestamp(seconds.parse().ok()?, 0)?;
        let is_own: bool = self.note_of(text, at).as_bytes().ct_eq(note.as_bytes()).into();
        (is_own && (now - at).to_std().unwrap_or_default() <= NOTE_LIFETIME).then_some(text)
    }

    /// Returns the digest of a key's hash under the secret: it tells nobody about the key who does not hold the cookie.
    pub fn proof_of(&self, key_hash: &[u8; 32]) -> [u8; 32] {
        *Key::of_secret(self.0.as_slice(), PROOF_PURPOSE).derive(key_hash).expose()
    }
}

impl fmt::Debug for CookieSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("[redacted]")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_survives_its_cookie_and_nothing_else_is_read() {
        let secret = CookieSecret::new([7; 32]);
        let cookie = secret.cookie();
        let read = CookieSecret::read(&cookie).unwrap();
        assert_eq!((read.hash(), read.form_token()), (secret.hash(), secret.form_token()));
        let short = cookie.get(1..).unwrap();
        for bad in ["", "x", short, &format!("{}=", *cookie), &format!("{short}!")] {
            assert!(CookieSecret::read(bad).is_none(), "{bad}");
        }
        assert_eq!(format!("{secret:?}"), "[redacted]");
    }

    #[test]
    fn notes_are_believed_by_their_session_and_for_a_while() {
        let (one, other) = (CookieSecret::new([1; 32]), CookieSecret::new([2; 32]));
        let now = DateTime::from_timestamp(1_795_525_800, 0).unwrap();
        let later = |seconds| now + chrono::TimeDelta::seconds(seconds);
        let note = one.note_of("removed a.b", now);
        assert_eq!(one.noted(&note, now), Some("removed a.b"));
        assert_eq!((one.noted(&note, later(120)), one.noted(&note, later(121))), (Some("removed a.b"), None));
        assert_eq!(other.noted(&note, now), None);
        let moved = note.replacen("1795525800", "1795525801", 1);
        for bad in ["", "removed", "1795525800..removed a.b", &note.replace("a.b", "a.c"), &moved, "x.y.z"] {
            assert_eq!(one.noted(bad, now), None, "{bad}");
        }
    }

    #[test]
    fn what_is_derived_differs_by_secret_and_purpose() {
        let (one, other) = (CookieSecret::new([1; 32]), CookieSecret::new([2; 32]));
        assert!(one.is_form_token(&one.form_token()) && !one.is_form_token(&other.form_token()));
        assert!(!one.is_form_token("") && !one.is_form_token(&one.cookie()));
        assert_ne!(one.proof_of(&[0; 32]), one.proof_of(&[3; 32]));
        assert_ne!(one.proof_of(&[0; 32]), other.proof_of(&[0; 32]));
    }
}
