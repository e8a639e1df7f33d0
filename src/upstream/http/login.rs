//! Tokens that servers are called with: the gateway's own, or those of the person who calls. Whoever sends a request takes the token here, at the last moment: no session and no header map
//! keeps it, and it goes to the origin of its own server alone.

use std::fmt;
use std::sync::Arc;

use futures_util::future::BoxFuture;
use http::header::{HeaderMap, HeaderValue, WWW_AUTHENTICATE};
use uuid::Uuid;
use zeroize::Zeroizing;

use crate::domain::identity::CallerToken;
use crate::domain::server_login::{LoginNeed, TokenChallenge, is_token};
use crate::upstream::error::{FailureKind, UpstreamError};
use crate::upstream::protocol::events::ExchangeFor;
use crate::upstream::protocol::exchange::{LoginGate, UpstreamWork};
use crate::upstream::target::{LoginHolder, Target, TargetLogin};

/// Text of a failure for administrators: the server refuses a new token.
const REFUSED: &str = "it refuses a token that its authorization server had just issued (HTTP 401)";

/// Advice for whoever looks after a server that refuses the gateway.
const GIVE_AGAIN: &str = "give id and secret again with mcpproxy upstream update NAME --oauth-client-id ID --oauth-client-secret - (it \
                          reads the secret from standard input)";

/// Advice for whoever looks after a server that cannot be listed without a login.
const CONNECT: &str = "log in with mcpproxy upstream connect NAME --for-listing";

/// Login at a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ServerLogin {
    /// Tenant of the server.
    pub tenant: Uuid,
    /// Id of the server.
    pub server: Uuid,
    /// Principal whose login it is; `None` for the tenant's.
    pub principal: Option<Uuid>,
    /// Generation of the login's configuration: another one has other tokens.
    pub client: Uuid,
    /// True if its tokens are given in exchange for those that the principal came with.
    pub exchanges: bool,
    /// Token of the principal that is exchanged.
    pub exchange_for: ExchangeFor,
}

impl ServerLogin {
    /// Returns the login that goes with requests to a target.
    ///
    /// # Errors
    /// [`FailureKind::LoginNeeded`] if the requests are nobody's, and each caller has a login of its own.
    pub(in crate::upstream) fn of(target: &Target, login: TargetLogin) -> Result<ServerLogin, UpstreamError> {
        let principal = match login.holder {
            LoginHolder::Tenant => None,
            LoginHolder::Principal(principal) => Some(principal),
            LoginHolder::Caller => {
                let needed = LoginFailure::Needed { need: LoginNeed::First, scopes: Vec::new() };
                return Err(needed.into_error());
            }
        };
        let Target { tenant, server, .. } = *target;
        // the gateway lists the server as itself
        let exchanges = login.exchanges && principal.is_some();
        Ok(ServerLogin {
            tenant,
            server,
            principal,
            client: login.client,
            exchanges,
            exchange_for: ExchangeFor::Newest,
        })
    }
}

/// Access token of a server. `Debug` shows no token.
#[derive(Clone, PartialEq, Eq)]
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
        /// Number of the token that the server itself refused; `None` if there was none.
        generation: Option<i64>,
    },
    /// The token endpoint gives no token in exchange for that of the caller.
    ExchangeRefused {
        /// Failure, for administrators.
        why: String,
    },
    /// The person has to log in.
    Needed {
        /// Reason.
        need: LoginNeed,
        /// Scopes that the server asks for; empty unless they are the reason.
        scopes: Vec<String>,
    },
}

impl LoginFailure {
    fn into_error(self) -> UpstreamError {
        match self {
            Self::Unavailable { retry_s, why } => {
                UpstreamError::unsent(FailureKind::LoginUnavailable { retry_s }, why)
            }
            Self::Refused { why, generation } => {
                UpstreamError::unsent(FailureKind::LoginRefused { generation }, why).with_aside(GIVE_AGAIN)
            }
            Self::ExchangeRefused { why } => UpstreamError::unsent(FailureKind::ExchangeRefused, why),
            Self::Needed { need, scopes } => {
                UpstreamError::unsent(FailureKind::LoginNeeded(need), scopes.join(", ")).with_aside(CONNECT)
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

    /// Returns the tokens of the last minutes, which answers may repeat.
    fn recent(&self, login: ServerLogin) -> Vec<AccessToken>;

    /// Notes the token that the principal of a login came with, for which tokens at the server are given in exchange.
    fn present(&self, login: ServerLogin, token: &Arc<CallerToken>);

    /// Notes the number of connections that were made or removed at the server: with another one than before, the token at hand is
    /// forgotten.
    fn as_of(&self, login: ServerLogin, epoch: i64);

    /// Notes the scopes that the server asked for when it refused this token for having too few, and looks for a newer one at the
    /// next request.
    fn wants(&self, login: ServerLogin, generation: i64, scopes: Vec<String>) -> BoxFuture<'_, ()>;

    /// Forgets a failure of a moment ago: somebody asked for a try.
    fn reset(&self, tenant: Uuid, server: Uuid);

    /// Forgets what has ended.
    fn sweep(&self);

    /// Forgets the logins of a tenant.
    fn forget(&self, tenant: Uuid);
}

/// Login whose tokens a client of a server sends.
#[derive(Clone, Debug)]
pub(in crate::upstream) struct BoundLogin {
    pub(in crate::upstream) login: ServerLogin,
    pub(in crate::upstream) source: Arc<dyn TokenSource>,
}

impl BoundLogin {
    /// Returns the login with the token that is exchanged for a request.
    pub(in crate::upstream) fn of(&self, exchange_for: ExchangeFor) -> BoundLogin {
        BoundLogin { login: ServerLogin { exchange_for, ..self.login }, source: Arc::clone(&self.source) }
    }

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

    /// Returns the error of a request whose new token the server refuses. Nothing is noted: it may be about this request alone.
    pub(in crate::upstream) fn refused(&self, token: &SentToken) -> UpstreamError {
        let failure = match self.login.principal {
            Some(_) => LoginFailure::Needed { need: LoginNeed::Ended, scopes: Vec::new() },
            None => LoginFailure::Refused { why: REFUSED.to_owned(), generation: Some(token.0.generation) },
        };
        failure.into_error()
    }

    /// Returns the error of a request for which a person's token has too few scopes; `None` if the answer says something else.
    pub(in crate::upstream) async fn wants_more(
        &self,
        token: &SentToken,
        headers: &HeaderMap,
    ) -> Option<UpstreamError> {
        // no page asks for more where tokens are exchanged: their scopes are the configuration's
        self.login.principal.filter(|_| !self.login.exchanges)?;
        let challenges =
            headers.get_all(WWW_AUTHENTICATE).into_iter().filter_map(|value| value.to_str().ok());
        let challenge = challenges.filter_map(TokenChallenge::read).find(|challenge| challenge.wants_more)?;
        self.source.wants(self.login, token.0.generation, challenge.scopes.clone()).await;
        let (need, scopes) = (LoginNeed::MoreScopes, challenge.scopes);
        Some(LoginFailure::Needed { need, scopes }.into_error())
    }
}

/// Returns the error of a call whose time was over before there was a token.
pub(in crate::upstream) fn login_is_slow() -> UpstreamError {
    let why = "no token came within the time of the call".to_owned();
    LoginFailure::Unavailable { retry_s: 1, why }.into_error()
}

impl LoginGate for BoundLogin {
    fn is_open(&self, of: ExchangeFor) -> bool {
        self.source.held(self.of(of).login).is_some()
    }

    fn opened(&self, of: ExchangeFor) -> UpstreamWork<'_, Result<(), UpstreamError>> {
        Box::pin(async move { self.of(of).token().await.map(drop) })
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
