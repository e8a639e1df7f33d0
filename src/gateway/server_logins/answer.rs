//! Answers of token endpoints, as far as they can be used.

use zeroize::Zeroizing;

use crate::domain::server_login::is_token;
use crate::upstream::{TokenAnswer, TokenError};

/// Time before its end at which a token is renewed, in seconds; half of its life for short ones.
const RENEW_BEFORE_S: f64 = 60.0;
/// Error codes of a token endpoint that are not about the grant (RFC 6749, section 5.2, and RFC 8707). Some name a dead grant otherwise than the
/// specification does.
const OTHER_REFUSALS: [&str; 5] =
    ["invalid_client", "unauthorized_client", "invalid_scope", "invalid_target", "unsupported_grant_type"];
/// Longest life of a token that is believed, in seconds.
const LIFE_MAX_S: f64 = 366.0 * 86_400.0;

/// Reason why a token endpoint gave nothing to read, for administrators.
#[derive(Clone, Debug)]
pub(in crate::gateway) enum TokenRefusal {
    /// Another try may help.
    Unavailable(String),
    /// The endpoint refuses; the flag is true if it refuses the grant itself, or the account, and not the client or what is asked for.
    Refused(String, bool),
}

impl TokenRefusal {
    pub(in crate::gateway) fn of(error: &TokenError) -> TokenRefusal {
        let why = format!("its token endpoint gives no token: {error}");
        match error {
            TokenError::Refused(status, code)
                if status.is_client_error() && !matches!(status.as_u16(), 404 | 408 | 425 | 429) =>
            {
                let is_grant = |code: &str| !OTHER_REFUSALS.contains(&code);
                let is_about_it = matches!(status.as_u16(), 400 | 403);
                TokenRefusal::Refused(why, is_about_it && code.as_deref().is_some_and(is_grant))
            }
            TokenError::Refused(..) | TokenError::NoAnswer(_) | TokenError::Malformed => {
                TokenRefusal::Unavailable(why)
            }
        }
    }
}

impl TokenRefusal {
    /// Returns the reason.
    pub(in crate::gateway) fn why(&self) -> &str {
        match self {
            TokenRefusal::Unavailable(why) | TokenRefusal::Refused(why, _) => why,
        }
    }
}

/// Token of an answer that can be used.
pub(in crate::gateway) struct GoodAnswer {
    pub(in crate::gateway) token: Zeroizing<String>,
    /// Life of the token in seconds; `None` if the provider does not say.
    pub(in crate::gateway) life_s: Option<f64>,
}

impl GoodAnswer {
    /// Reads an answer. The error is a sentence for administrators, and repeats nothing of the answer.
    pub(in crate::gateway) fn read(answer: &TokenAnswer) -> Result<GoodAnswer, &'static str> {
        if answer.token_type.as_ref().is_some_and(|kind| !kind.eq_ignore_ascii_case("bearer")) {
            return Err("its token endpoint gives a token that is not of type Bearer");
        }
        let token = answer.access_token.clone().filter(|token| is_token(token));
        let token = token.ok_or("its token endpoint gives a token that cannot be sent in a header")?;
        match answer.expires_in {
            Some(life_s) if !life_s.is_finite() || life_s <= 0.0 => {
                Err("its token endpoint gives a token that has ended already")
            }
            life_s => Ok(GoodAnswer { token, life_s: life_s.map(|life_s| life_s.min(LIFE_MAX_S)) }),
        }
    }

    /// Returns the time after which the next token is asked for, in seconds.
    pub(in crate::gateway) fn renew_s(&self) -> Option<f64> {
        self.life_s.map(|life_s| life_s - RENEW_BEFORE_S.min(life_s / 2.0))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn read(answer: serde_json::Value) -> Result<GoodAnswer, &'static str> {
        GoodAnswer::read(&serde_json::from_value(answer).unwrap())
    }

    #[test]
    fn only_tokens_that_can_be_sent_are_taken() {
        let good = read(json!({"access_token": "a.b", "token_type": "bearer", "expires_in": 600})).unwrap();
        assert_eq!((good.life_s, good.renew_s()), (Some(600.0), Some(540.0)));
        let short = read(json!({"access_token": "a", "expires_in": 10})).unwrap();
        assert_eq!(short.renew_s(), Some(5.0));
        assert_eq!(read(json!({"access_token": "a"})).unwrap().renew_s(), None);
        for bad in [
            json!({}),
            json!({"access_token": "a\r\nX: 1"}),
            json!({"access_token": "a b"}),
            json!({"access_token": "a", "token_type": "DPoP"}),
            json!({"access_token": "a", "expires_in": 0}),
            json!({"access_token": "a", "expires_in": -5}),
        ] {
            assert!(read(bad.clone()).is_err(), "{bad}");
        }
    }

    #[test]
    fn failures_of_providers_are_told_from_refusals() {
        use http::StatusCode;
        let is_refusal = |status: u16| {
            let status = StatusCode::from_u16(status).unwrap();
            matches!(TokenRefusal::of(&TokenError::Refused(status, None)), TokenRefusal::Refused(_, false))
        };
        for status in [400, 401, 403] {
            assert!(is_refusal(status), "{status}");
        }
        for status in [302, 404, 429, 500, 503] {
            assert!(!is_refusal(status), "{status}");
        }
        let of = |status, code: &str| {
            let refusal = TokenRefusal::of(&TokenError::Refused(status, Some(code.to_owned())));
            matches!(refusal, TokenRefusal::Refused(_, true))
        };
        assert!(of(StatusCode::BAD_REQUEST, "invalid_grant") && of(StatusCode::FORBIDDEN, "access_denied"));
        assert!(
            !of(StatusCode::BAD_REQUEST, "invalid_client") && !of(StatusCode::UNAUTHORIZED, "invalid_grant")
        );
    }
}
