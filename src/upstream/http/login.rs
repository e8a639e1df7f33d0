//! Tokens that servers are called with. Whoever sends a request takes the token here, at the last moment: no session and no header map
//! keeps it, and it goes to the origin of its own server alone.

use std::fmt;
use std::sync::Arc;

use futures_util::future::BoxFuture;
use http::header::HeaderValue;
use uuid::Uuid;
use zeroize::Zeroizing;

use crate::domain::server_login::is_token;
use crate::upstream::error::{FailureKind, UpstreamError};

/// Advice for whoever looks after a server that refuses the gateway.
const GIVE_AGAIN: &str = "give id and secret again with mcpproxy upstream update NAME --oauth-client-id ID --oauth-client-secret - (it \
                          reads the secret from standard input)";

/// Login of the gateway at a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ServerLogin {
    /// Tenant of the server.
    pub tenant: Uuid,
    /// Id of the server.
    pub server: Uuid,
    /// Generation of the login's configuration: another one has other tokens.
    pub client: Uuid,
}

/// Access token of a server. `Debug` shows no token.
#[derive(Clone)]
pub struct AccessToken {
    header: HeaderValue,
    /// Number of the token: one more with each.
    pub generation: i64,
}

impl AccessToken {
    /// Creates a token; `None` if the text cannot be sent in a header as it is.
    pub fn new(text: &str, generation: i64) -> Option<AccessToken> {
        let mut header = HeaderValue::try_from(format!("Bearer {text}")).ok().filter(|_| is_token(text))?;
        header.set_sensitive(true);
        Some(AccessToken { header, generation })
    }

    /// Returns the token as it is sent, to be masked where a server repeats it.
    pub(in crate::upstream) fn text(&self) -> Zeroizing<String> {
        Zeroizing::new(self.header.to_str().unwrap_or_default().to_owned())
    }
}

impl fmt::Debug for AccessToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AccessToken").field("generation", &self.generation).finish_non_exhaustive()
    }
}

/// Reason why there is no token for a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LoginFailure {
    /// The token endpoint does not answer, or not with a token.
    Unavailable {
        /// Seconds until it is asked again, rounded up.
        retry_s: u32,
        /// Failure, for administrators.
        why: String,
    },
    /// The token endpoint or the server refuses the gateway's credentials.
    Refused {
        /// Failure, for administrators.
        why: String,
    },
}

impl LoginFailure {
    fn into_error(self) -> UpstreamError {
        match self {
            Self::Unavailable { retry_s, why } => {
                UpstreamError::unsent(FailureKind::LoginUnavailable { retry_s }, why)
            }
            Self::Refused { why } => {
                UpstreamError::unsent(FailureKind::LoginRefused, why).with_aside(GIVE_AGAIN)
            }
        }
    }
}

/// Source of the tokens that servers are called with.
pub trait TokenSource: fmt::Debug + Send + Sync {
    /// Returns a token that has not ended, if one is at hand.
    fn held(&self, login: ServerLogin) -> Option<AccessToken>;

    /// Returns a token that is newer than `refused`, and asks the provider for one if need be.
    fn token(
        &self,
        login: ServerLogin,
        refused: Option<i64>,
    ) -> BoxFuture<'_, Result<AccessToken, LoginFailure>>;

    /// Notes that the server refuses a token that it was sent for the first time.
    fn refused(&self, login: ServerLogin, generation: i64) -> BoxFuture<'_, ()>;

    /// Forgets a failure of a moment ago: somebody asked for a try.
    fn reset(&self, tenant: Uuid, server: Uuid);
}

/// Login whose tokens a client of a server sends.
#[derive(Clone, Debug)]
pub(in crate::upstream) struct BoundLogin {
    pub(in crate::upstream) login: ServerLogin,
    pub(in crate::upstream) source: Arc<dyn TokenSource>,
}

impl BoundLogin {
    /// Returns a token to send.
    pub(in crate::upstream) async fn token(&self) -> Result<SentToken, UpstreamError> {
        let token = match self.source.held(self.login) {
            Some(token) => token,
            None => self.source.token(self.login, None).await.map_err(LoginFailure::into_error)?,
        };
        Ok(SentToken(token))
    }

    /// Returns a token to send in the place of one that the server refused.
    pub(in crate::upstream) async fn token_after(&self, old: &SentToken) -> Result<SentToken, UpstreamError> {
        let renewed = self.source.token(self.login, Some(old.0.generation)).await;
        renewed.map(SentToken).map_err(LoginFailure::into_error)
    }

    /// Notes that the server refuses a new token, and returns the error of the request.
    pub(in crate::upstream) async fn refused(&self, token: &SentToken) -> UpstreamError {
        self.source.refused(self.login, token.0.generation).await;
        let why = "it refuses a token that its authorization server had just issued (HTTP 401)".to_owned();
        LoginFailure::Refused { why }.into_error()
    }
}

/// Token of one request.
pub(in crate::upstream) struct SentToken(AccessToken);

impl SentToken {
    /// Returns the value of the header `Authorization`.
    pub(in crate::upstream) fn header(&self) -> HeaderValue {
        self.0.header.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_are_not_shown_and_have_no_line_breaks() {
        let token = AccessToken::new("s3cret", 7).unwrap();
        assert_eq!(token.header, "Bearer s3cret");
        let shown = format!("{token:?} {:?}", token.header);
        assert!(!shown.contains("s3cret"), "{shown}");
        for bad in ["s3cret\r\nX-Evil: 1", "a b", ""] {
            assert!(AccessToken::new(bad, 1).is_none(), "{bad:?}");
        }
    }
}
