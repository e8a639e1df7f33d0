//! Access tokens of callers as they were sent. They are kept, in memory alone, for servers whose tokens are given in exchange for them.

use std::fmt;

use sha2::{Digest, Sha256};
use uuid::Uuid;
use zeroize::Zeroizing;

/// Access token of a caller, which was verified. `Debug` shows no token.
#[derive(Clone, PartialEq)]
pub struct CallerToken {
    text: Zeroizing<String>,
    /// Issuer of the token, byte by byte as `iss` names it.
    pub issuer: Box<str>,
    /// End of the token, in seconds since 1970.
    pub expires_s: i64,
    /// Mark of the token, by which it is told from the other tokens of its caller: the first half of its SHA-256.
    pub mark: Uuid,
}

impl CallerToken {
    pub(super) fn new(text: String, issuer: &str, expires_s: i64) -> CallerToken {
        let hash: [u8; 32] = Sha256::digest(text.as_bytes()).into();
        let mark = hash.first_chunk().map_or_else(Uuid::nil, |half| Uuid::from_bytes(*half));
        CallerToken { text: Zeroizing::new(text), issuer: issuer.into(), expires_s, mark }
    }

    /// Returns the token as it was sent.
    pub fn text(&self) -> &str {
        &self.text
    }
}

impl fmt::Debug for CallerToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CallerToken").field("expires_s", &self.expires_s).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_have_marks_and_are_not_shown() {
        let token = |text: &str| CallerToken::new(text.to_owned(), "https://idp", 1);
        assert_eq!(token("a.s3cret.c").mark, token("a.s3cret.c").mark);
        assert_ne!(token("a.s3cret.c").mark, token("a.s3cret.d").mark);
        assert!(!format!("{:?}", token("a.s3cret.c")).contains("s3cret"));
    }
}
