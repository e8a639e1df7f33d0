//! Logins of the gateway at the servers behind it (OAuth): kinds, states, and what servers and providers say about them.

mod discovery;
mod flow;

pub use self::discovery::{
    AuthorizationServer, CodeEndpoints, ProtectedResource, TokenChallenge, metadata_urls, resource_urls,
};
pub use self::flow::FlowState;

use super::text_enum::text_enum;

/// Largest access token, in bytes.
pub const TOKEN_BYTES_MAX: usize = 16 * 1024;

text_enum! {
    /// Way in which the gateway logs in at a server.
    pub enum LoginKind {
        /// The gateway logs in as itself, with an id and a secret of its own (RFC 6749, section 4.4).
        ClientCredentials = "client_credentials",
        /// Each person logs in for themselves, in a browser (RFC 6749, section 4.1, with PKCE).
        AuthorizationCode = "authorization_code",
        /// Tokens of people are exchanged at their own issuer (RFC 8693). The gateway lists the server as itself.
        TokenExchange = "token_exchange",
    }
}

text_enum! {
    /// Request by which a token endpoint gives a token in exchange for that of a person.
    pub enum ExchangeGrant {
        /// Grant of RFC 8693.
        TokenExchange = "token_exchange",
        /// Grant of RFC 7523 with `requested_token_use=on_behalf_of`, as Microsoft Entra ID has it.
        OnBehalfOf = "on_behalf_of",
    }
}

text_enum! {
    /// Way in which the gateway became known to an authorization server.
    pub enum Registration {
        /// An administrator gave the client id.
        Given = "given",
        /// The client id is the URL of the gateway's metadata (Client ID Metadata Document).
        MetadataDocument = "metadata_document",
        /// The gateway registered itself (RFC 7591).
        Dynamic = "dynamic",
    }
}

/// Reason why a person has to log in at a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum LoginNeed {
    /// The person has not logged in yet.
    First,
    /// The login has ended: its tokens are refused, or there is none that renews them.
    Ended,
    /// The server asks for more scopes.
    MoreScopes,
}

text_enum! {
    /// Way in which the gateway authenticates at a token endpoint.
    pub enum ClientAuthWay {
        /// Id and secret in the header `Authorization`.
        Basic = "client_secret_basic",
        /// Id and secret in the form.
        Post = "client_secret_post",
        /// The id alone: a public client.
        Public = "none",
    }
}

text_enum! {
    /// State of the gateway's login at a server.
    pub enum LoginState {
        /// No token was asked for yet.
        None = "none",
        /// There is a token.
        Connected = "connected",
        /// The token endpoint gave no token the last time, and is asked again later.
        Waiting = "waiting",
        /// The token endpoint or the server refuses the login: an administrator or the person has to act.
        LoginRequired = "login_required",
    }
}

/// Returns whether a text is a scope of RFC 6749, section 3.3.
pub fn is_scope(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| matches!(byte, 0x21 | 0x23..=0x5b | 0x5d..=0x7e))
}

/// Returns whether a text can be an access token in a header (RFC 6750, section 2.1, and some that providers make).
pub fn is_token(text: &str) -> bool {
    !text.is_empty() && text.len() <= TOKEN_BYTES_MAX && text.bytes().all(|byte| byte.is_ascii_graphic())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_fit_a_header() {
        assert!(is_token("ey.A-_~+/="));
        let long = "x".repeat(TOKEN_BYTES_MAX + 1);
        for token in ["", "a b", "a\r\nX-Evil: 1", "a\n", "é", &long] {
            assert!(!is_token(token), "{token:?}");
        }
    }

    #[test]
    fn scopes_have_no_spaces_and_quotes() {
        assert!(is_scope("mcp:read") && is_scope("https://a/b"));
        for scope in ["", "a b", "a\"b", "a\\b", "é"] {
            assert!(!is_scope(scope), "{scope:?}");
        }
    }
}
