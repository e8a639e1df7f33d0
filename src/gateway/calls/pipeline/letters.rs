//! Letters about a call that is held open, as JSON: the answer of its client, and the outcome.

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::outcome::CallOutcome;
use crate::domain::refusal::{Code, Refusal};

/// Answer of a client to the question of a call that is held open.
#[derive(Debug, Serialize, Deserialize)]
pub(in crate::gateway::calls) struct AnswerLetter {
    /// Answer, raw; `None` from a client that gave none.
    pub(in crate::gateway::calls) answer: Option<Box<RawValue>>,
    /// Capabilities that the client declared with the answer, a raw JSON object: it may be asked again.
    pub(in crate::gateway::calls) capabilities: String,
}

/// Outcome of a call that is held open, for the replica that the client came back to.
#[derive(Debug, Serialize, Deserialize)]
pub(in crate::gateway::calls) enum OutcomeLetter {
    #[serde(rename = "r")]
    Result { raw: Box<RawValue>, warning: Option<String>, truncated: Option<String> },
    #[serde(rename = "q")]
    Question { raw: Box<RawValue> },
    #[serde(rename = "e")]
    UpstreamError { raw: Box<RawValue>, code: i64 },
    #[serde(rename = "n")]
    Refused { code: Code, message: String, retry_after_s: Option<u64> },
    #[serde(rename = "i")]
    Invalid,
}

impl OutcomeLetter {
    /// Returns the outcome for another replica; `None` if it is no JSON, which no outcome is.
    pub(in crate::gateway::calls) fn of(outcome: &CallOutcome) -> Option<OutcomeLetter> {
        let value = |raw: &Bytes| serde_json::from_slice::<Box<RawValue>>(raw).ok();
        Some(match outcome {
            CallOutcome::Result { raw, warning, truncated, .. } => OutcomeLetter::Result {
                raw: value(raw)?,
                warning: warning.clone(),
                truncated: truncated.clone(),
            },
            CallOutcome::InputRequired { raw, state: None, .. } => {
                OutcomeLetter::Question { raw: value(raw)? }
            }
            CallOutcome::UpstreamError { raw, code } => {
                OutcomeLetter::UpstreamError { raw: value(raw)?, code: *code }
            }
            CallOutcome::Refused(refused) => OutcomeLetter::refused(&refused.refusal),
            CallOutcome::InputRequired { .. } | CallOutcome::InvalidState => OutcomeLetter::Invalid,
        })
    }

    pub(in crate::gateway::calls) fn refused(refusal: &Refusal) -> OutcomeLetter {
        let Refusal { code, message, retry_after_s, .. } = refusal.clone();
        OutcomeLetter::Refused { code, message, retry_after_s }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::tool::ResultHead;

    fn sent(outcome: &CallOutcome) -> OutcomeLetter {
        let letter = serde_json::to_string(&OutcomeLetter::of(outcome).unwrap()).unwrap();
        serde_json::from_str(&letter).unwrap()
    }

    #[test]
    fn results_pass_byte_for_byte() {
        let text = "{ \"content\":[],\n\"n\":1e400,\"big\":18446744073709551617, \"isError\":true}";
        let (raw, head) = (Bytes::from_static(text.as_bytes()), ResultHead::read(text).unwrap());
        let (warning, truncated) = (Some("w".to_owned()), Some(r#"{"key":"k"}"#.to_owned()));
        let result = CallOutcome::Result { raw: raw.clone(), head, warning, truncated };
        let OutcomeLetter::Result { raw: passed, warning, truncated } = sent(&result) else { panic!() };
        assert_eq!(
            (passed.get(), warning.as_deref(), truncated.as_deref()),
            (text, Some("w"), Some(r#"{"key":"k"}"#))
        );
        let OutcomeLetter::UpstreamError { raw: passed, code } =
            sent(&CallOutcome::UpstreamError { raw, code: -7 })
        else {
            panic!()
        };
        assert_eq!((passed.get(), code), (text, -7));
    }

    #[test]
    fn refusals_pass_with_their_code() {
        let refusal = Refusal::after_dispatch(Code::UpstreamTimeout, "no answer came").retry_after(5);
        let letter = serde_json::to_string(&OutcomeLetter::refused(&refusal)).unwrap();
        let OutcomeLetter::Refused { code, message, retry_after_s } = serde_json::from_str(&letter).unwrap()
        else {
            panic!("{letter}")
        };
        assert_eq!((code, message, retry_after_s), (refusal.code, refusal.message, Some(5)));
        assert!(matches!(sent(&CallOutcome::InvalidState), OutcomeLetter::Invalid));
    }
}
