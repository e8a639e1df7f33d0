//! State of a request of several rounds, which the client carries from round to round.

use chrono::{DateTime, Utc};
use sha2::{Digest, Sha256};
use ulid::Ulid;
use uuid::Uuid;

use super::QuestionKind;
use crate::domain::canonical::canonical;
use crate::domain::id::{ReplicaId, ServerId};

/// Request that a state belongs to, besides its tenant and its key. The state is not valid for a request that differs in
/// any of these.
#[derive(Clone, Copy, Debug)]
pub struct Bound<'a> {
    /// Interface at which the request came in, as the activity log names it (`mcp`, `direct`, …).
    pub endpoint: &'a str,
    /// Method of the request.
    pub method: &'a str,
    /// Server that the request goes to.
    pub server: ServerId,
    /// Origin of that server.
    pub origin: &'a str,
    /// Subject of the request: a tool, a prompt, a URI.
    pub subject: &'a str,
    /// Pin of the definition that the request was checked against; empty where there is none.
    pub pin: &'a str,
    /// Tool variant; empty where there is none.
    pub variant: &'a str,
    /// Arguments, JSON in any spelling; empty where there are none.
    pub arguments: &'a str,
}

impl Bound<'_> {
    /// Returns the SHA-256 of all fields.
    pub fn digest(&self) -> [u8; 32] {
        let mut hash = Sha256::new_with_prefix("mcpproxy round v1\0");
        // white space and the order of members make no difference
        let arguments = canonical(self.arguments).unwrap_or_else(|_| self.arguments.to_owned());
        let fields =
            [self.endpoint, self.method, self.origin, self.subject, self.pin, self.variant, &*arguments];
        hash.update(self.server.0.as_bytes());
        for field in fields {
            // the length first, so that different fields never hash the same bytes
            hash.update((field.len() as u64).to_le_bytes());
            hash.update(field);
        }
        hash.finalize().into()
    }
}

/// State that a client carries from one round to the next, after decryption.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct State {
    /// Time until which the state is valid.
    pub expires_at: DateTime<Utc>,
    /// Id of the activity record of the first round.
    pub first: Ulid,
    /// Permission request of the call; `None` if no person was asked.
    pub consent: Option<RoundConsent>,
    /// Question of a call that is held open; `None` if the call has ended.
    pub held: Option<HeldQuestion>,
    /// The server's own state, a JSON string as the server wrote it; empty if no server has asked yet.
    pub own: String,
}

/// Question of a handshake server, whose call a replica holds open for the answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeldQuestion {
    /// Replica that holds the call.
    pub replica: ReplicaId,
    /// Id of the waiter for the answer there.
    pub waiter: Uuid,
    /// Kind of the question.
    pub kind: QuestionKind,
}

/// Permission request of a call in rounds, by its id.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RoundConsent {
    /// The round asks a person; nothing has run.
    Asked(Uuid),
    /// The permission is used up: an earlier round ran.
    Used {
        /// Id of the request.
        id: Uuid,
        /// Record of the round that ran last; only the round after it may run.
        after: Ulid,
    },
}

/// Bytes before the id of a permission request, and before a held question. A server's own state, a JSON string, never begins
/// with one of them.
const ASKED: u8 = 0;
const USED: u8 = 1;
const HELD: u8 = 2;

impl HeldQuestion {
    fn encode(self, out: &mut Vec<u8>) {
        out.push(HELD);
        out.extend(self.replica.0.as_bytes());
        out.extend(self.waiter.as_bytes());
        out.push(match self.kind {
            QuestionKind::Elicitation => 0,
            QuestionKind::Sampling => 1,
            QuestionKind::Roots => 2,
        });
    }

    /// Returns the question, and the bytes after it. `bytes` begin after [`HELD`].
    fn decode(bytes: &[u8]) -> Option<(HeldQuestion, &[u8])> {
        let (replica, rest) = bytes.split_first_chunk()?;
        let (waiter, rest) = rest.split_first_chunk()?;
        let (kind, rest) = rest.split_first()?;
        let kind = QuestionKind::ALL.get(usize::from(*kind)).copied()?;
        let (replica, waiter) = (ReplicaId(Uuid::from_bytes(*replica)), Uuid::from_bytes(*waiter));
        Some((HeldQuestion { replica, waiter, kind }, rest))
    }
}

impl State {
    /// Encodes the state as bytes.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = self.expires_at.timestamp_millis().to_be_bytes().to_vec();
        out.extend(self.first.to_bytes());
        if let Some(consent) = self.consent {
            match consent {
                RoundConsent::Asked(id) => {
                    out.push(ASKED);
                    out.extend(id.as_bytes());
                }
                RoundConsent::Used { id, after } => {
                    out.push(USED);
                    out.extend(id.as_bytes());
                    out.extend(after.to_bytes());
                }
            }
        }
        if let Some(held) = self.held {
            held.encode(&mut out);
        }
        out.extend(self.own.as_bytes());
        out
    }

    /// Decodes bytes that [`State::encode`] made; `None` if they are malformed.
    pub fn decode(bytes: &[u8]) -> Option<State> {
        let (expires, rest) = bytes.split_first_chunk()?;
        let (first, rest) = rest.split_first_chunk()?;
        let (consent, own) = match rest.split_first() {
            Some((&ASKED, rest)) => {
                let (id, own) = rest.split_first_chunk()?;
                (Some(RoundConsent::Asked(Uuid::from_bytes(*id))), own)
            }
            Some((&USED, rest)) => {
                let (id, rest) = rest.split_first_chunk()?;
                let (after, own) = rest.split_first_chunk()?;
                let (id, after) = (Uuid::from_bytes(*id), Ulid::from_bytes(*after));
                (Some(RoundConsent::Used { id, after }), own)
            }
            _ => (None, rest),
        };
        let (held, own) = match own.split_first() {
            Some((&HELD, rest)) => {
                let (held, own) = HeldQuestion::decode(rest)?;
                (Some(held), own)
            }
            _ => (None, own),
        };
        Some(State {
            expires_at: DateTime::from_timestamp_millis(i64::from_be_bytes(*expires))?,
            first: Ulid::from_bytes(*first),
            consent,
            held,
            own: String::from_utf8(own.to_vec()).ok()?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BOUND: Bound<'_> = Bound {
        endpoint: "mcp",
        method: "tools/call",
        server: ServerId(Uuid::nil()),
        origin: "http://a.example:80",
        subject: "ask",
        pin: "v1:00",
        variant: "call_tool_read",
        arguments: r#"{"a":1,"b":[1.0]}"#,
    };

    #[test]
    fn whatever_differs_makes_another_digest() {
        let same = Bound { arguments: r#" { "b":[ 1.0 ], "\u0061":1 }"#, ..BOUND };
        assert_eq!(same.digest(), BOUND.digest());
        let others = [
            Bound { endpoint: "direct", ..BOUND },
            Bound { method: "prompts/get", ..BOUND },
            Bound { server: ServerId(Uuid::from_u128(1)), ..BOUND },
            Bound { origin: "https://a.example:80", ..BOUND },
            Bound { subject: "other", ..BOUND },
            Bound { pin: "v1:01", ..BOUND },
            Bound { variant: "call_tool_write", ..BOUND },
            Bound { arguments: r#"{"a":1,"b":[1]}"#, ..BOUND },
            Bound { arguments: "{}", ..BOUND },
            Bound { arguments: "", ..BOUND },
            // the same letters, split differently between the fields
            Bound { endpoint: "mcpt", method: "ools/call", ..BOUND },
            Bound { pin: "v1:00call_tool_read", variant: "", ..BOUND },
        ];
        for other in others {
            assert_ne!(other.digest(), BOUND.digest(), "{other:?}");
        }
    }

    #[test]
    fn a_state_comes_back_as_it_went() {
        let state = State {
            expires_at: DateTime::from_timestamp_millis(1_795_000_000_123).unwrap(),
            first: Ulid::from_parts(7, 8),
            consent: None,
            held: None,
            own: r#""a\"é""#.to_owned(),
        };
        assert_eq!(State::decode(&state.encode()), Some(state.clone()));
        assert_eq!(State::decode(&state.encode()[..23]), None);
        let (id, after) = (Uuid::from_u128(9), Ulid::from_parts(1, 2));
        for consent in [RoundConsent::Asked(id), RoundConsent::Used { id, after }] {
            let whole = State { consent: Some(consent), ..state.clone() };
            assert_eq!(State::decode(&whole.encode()), Some(whole.clone()));
            assert_eq!(State::decode(&whole.encode()[..40]), None);
            let plain = State { own: String::new(), ..whole };
            assert_eq!(State::decode(&plain.encode()), Some(plain));
        }
        for kind in QuestionKind::ALL {
            let held = HeldQuestion { replica: ReplicaId(id), waiter: Uuid::from_u128(3), kind };
            for consent in [None, Some(RoundConsent::Used { id, after })] {
                let whole = State { held: Some(held), consent, own: String::new(), ..state.clone() };
                let encoded = whole.encode();
                assert_eq!(State::decode(&encoded), Some(whole));
                assert_eq!(State::decode(&encoded[..encoded.len() - 1]), None);
            }
        }
        assert_eq!(State::decode(&[]), None);
    }
}
