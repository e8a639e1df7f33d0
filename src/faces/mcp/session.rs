//! Handshake sessions: signed, self-contained tokens. Nothing is stored, so any replica accepts them.
//!
//! A token grants nothing by itself: it is accepted only with the key for which it was minted. Any other key gets 404, which
//! makes clients start over. Tokens never expire by themselves, since official clients treat a 404 as the end.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use chrono::{DateTime, Utc};
use hmac::{Hmac, KeyInit, Mac};
use serde::{Deserialize, Serialize};
use sha2::Sha256;

use super::Endpoint;
use super::asked::Answerable;
use crate::domain::json;
use crate::faces::wire::session::TOKEN_BYTES_MAX;
use crate::gateway::{Caller, Client};

/// Characters kept of a client's name and version.
const CLIENT_CHARS_MAX: usize = 64;

fn now_s() -> Option<u64> {
    SystemTime::now().duration_since(UNIX_EPOCH).ok().map(|now| now.as_secs())
}

/// Keys that sign and verify session tokens.
pub struct Sessions {
    keys: Vec<Vec<u8>>,
}

/// Content of a session token.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Session {
    /// Random id, which names the session in the activity log.
    #[serde(rename = "i")]
    pub(super) id: String,
    #[serde(rename = "t")]
    tenant: uuid::Uuid,
    #[serde(rename = "k")]
    key: Option<uuid::Uuid>,
    /// Endpoint on which the session was opened.
    #[serde(rename = "p")]
    endpoint: Endpoint,
    #[serde(rename = "v")]
    pub(super) version: String,
    #[serde(rename = "n")]
    client_name: Option<String>,
    #[serde(rename = "o")]
    client_version: Option<String>,
    /// True if the client declared `elicitation`. Read by the release before, and written for it.
    #[serde(rename = "e")]
    elicitation: bool,
    /// Kinds of questions that the client answers; `None` in older tokens.
    #[serde(rename = "q", default, skip_serializing_if = "Option::is_none")]
    answers: Option<u8>,
    /// Time at which the session was opened at the latest, by the database's clock, in seconds since 1970; `None` in older
    /// tokens.
    #[serde(rename = "b", default, skip_serializing_if = "Option::is_none")]
    began_s: Option<u64>,
}

impl Session {
    /// Creates a session of a caller.
    pub(super) fn new(
        caller: &Caller,
        endpoint: Endpoint,
        version: &str,
        client: &Client,
        capabilities: &str,
        now: DateTime<Utc>,
    ) -> Session {
        let short = |text: &String| text.chars().take(CLIENT_CHARS_MAX).collect();
        Session {
            id: uuid::Uuid::new_v4().simple().to_string(),
            tenant: caller.tenant_id().0,
            key: caller.key.map(|key| key.0),
            endpoint,
            version: version.to_owned(),
            client_name: client.name.as_ref().map(short),
            client_version: client.version.as_ref().map(short),
            elicitation: json::find_members(capabilities, ["elicitation"]).is_ok_and(|[e]| e.is_some()),
            answers: Some(Answerable::read(version, capabilities).0),
            began_s: u64::try_from(now.timestamp()).ok(),
        }
    }

    /// Returns how long ago the session was opened; `None` if that is unknown.
    pub(super) fn lasted(&self) -> Option<Duration> {
        Some(Duration::from_secs(now_s()?.saturating_sub(self.began_s?)))
    }

    /// Returns the end of the second in which the session was opened; `None` if that is unknown.
    pub(super) fn began(&self) -> Option<DateTime<Utc>> {
        DateTime::from_timestamp(i64::try_from(self.began_s?).ok()? + 1, 0)
    }

    /// Returns the kinds of questions that the client answers.
    pub(super) fn answers(&self) -> Answerable {
        let older = || Answerable::of_older(&self.version, self.elicitation);
        self.answers.map_or_else(older, Answerable)
    }

    /// Returns the client, as it introduced itself.
    pub(super) fn client(&self) -> Client {
        Client { name: self.client_name.clone(), version: self.client_version.clone() }
    }
}

impl Sessions {
    /// Creates the keys of session tokens: the first signs, all verify.
    pub fn new(keys: Vec<Vec<u8>>) -> Sessions {
        Sessions { keys }
    }

    /// Returns the token of a session; `None` if it cannot be signed. A client name that makes the token too long is left
    /// out.
    pub(super) fn mint(&self, session: &Session) -> Option<String> {
        let token = self.sign(session)?;
        if token.len() <= TOKEN_BYTES_MAX {
            return Some(token);
        }
        self.sign(&Session { client_name: None, client_version: None, ..session.clone() })
    }

    fn sign(&self, session: &Session) -> Option<String> {
        let payload = URL_SAFE_NO_PAD.encode(serde_json::to_vec(session).ok()?);
        let mac = mac(self.keys.first()?, &payload)?.finalize().into_bytes();
        Some(format!("{payload}.{}", URL_SAFE_NO_PAD.encode(mac)))
    }

    /// Returns the session of a valid token; `None` if it belongs to another caller or endpoint.
    pub(super) fn verify(&self, token: &str, caller: &Caller, endpoint: Endpoint) -> Option<Session> {
        let session = self.open(token)?;
        let own = session.endpoint == endpoint
            && session.tenant == caller.tenant_id().0
            && session.key == caller.key.map(|key| key.0);
        own.then_some(session)
    }

    /// Returns the session of a token that one of the keys has signed.
    fn open(&self, token: &str) -> Option<Session> {
        if token.len() > TOKEN_BYTES_MAX {
            return None;
        }
        let (payload, signature) = token.split_once('.')?;
        let signature = URL_SAFE_NO_PAD.decode(signature).ok()?;
        let signed =
            |key: &Vec<u8>| mac(key, payload).is_some_and(|mac| mac.verify_slice(&signature).is_ok());
        if !self.keys.iter().any(signed) {
            return None;
        }
        serde_json::from_slice(&URL_SAFE_NO_PAD.decode(payload).ok()?).ok()
    }
}

fn mac(key: &[u8], payload: &str) -> Option<Hmac<Sha256>> {
    let mut mac = Hmac::<Sha256>::new_from_slice(key).ok()?;
    mac.update(payload.as_bytes());
    Some(mac)
}

#[cfg(test)]
mod fuzz;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::faces::wire;

    #[test]
    fn the_log_finds_a_session_by_its_token() {
        let session = Session {
            id: "abc".into(),
            tenant: uuid::Uuid::nil(),
            key: None,
            endpoint: Endpoint::Search,
            version: "2025-11-25".into(),
            client_name: Some("\u{1}".repeat(CLIENT_CHARS_MAX)),
            client_version: Some("\u{1}".repeat(CLIENT_CHARS_MAX)),
            elicitation: false,
            answers: Some(u8::MAX),
            began_s: now_s(),
        };
        let token = Sessions::new(vec![vec![7; 32]]).mint(&session).unwrap();
        assert!(token.len() <= TOKEN_BYTES_MAX);
        assert_eq!(wire::session::id_of(&token).as_deref(), Some("abc"));
        assert_eq!(wire::session::id_of("abc"), None);
    }

    #[test]
    fn tokens_pass_between_releases() {
        let start = r#"{"i":"a","t":"00000000-0000-0000-0000-000000000000","k":null,"p":"mcp","v":"2025-11-25","n":null,"o":null,"e""#;
        let read = |end: &str| serde_json::from_str::<Session>(&format!("{start}{end}")).unwrap();
        assert_eq!(read(":true}").answers(), Answerable(1));
        assert_eq!(read(":false}").answers(), Answerable(0));
        assert_eq!(read(r#":true,"q":6}"#).answers(), Answerable(6));
        // the release before needs its own member
        let text = serde_json::to_string(&read(r#":true,"q":6}"#)).unwrap();
        assert!(text.contains(r#""e":true"#), "{text}");
    }
}
