//! Access tokens of callers as they were sent, for servers whose tokens are given in exchange for them.

use std::fmt;
use std::sync::Arc;

use uuid::Uuid;
use zeroize::Zeroizing;

use super::audience::Audiences;
use super::token::SplitToken;

/// Access token of a caller, which was verified. `Debug` shows no token.
#[derive(Clone, PartialEq)]
pub struct CallerToken {
    text: Zeroizing<String>,
    /// Issuer of the token, byte by byte as `iss` names it.
    pub issuer: Box<str>,
    /// End of the token, in seconds since 1970.
    pub expires_s: i64,
    audiences: Arc<Audiences>,
    /// Mark of the token, by which it is told from the other tokens of its caller: the first half of its SHA-256.
    pub mark: Uuid,
}

impl CallerToken {
    /// Creates a token from its text, whose SHA-256 is known. Its issuer's tokens open the gateway for `audiences`.
    pub fn new(
        (text, hash): (&str, &[u8; 32]),
        (issuer, audiences): (&str, &Arc<Audiences>),
        expires_s: i64,
    ) -> CallerToken {
        let audiences = Arc::clone(audiences);
        let mark = hash.first_chunk().map_or_else(Uuid::nil, |half| Uuid::from_bytes(*half));
        CallerToken {
            text: Zeroizing::new(text.to_owned()),
            issuer: issuer.into(),
            expires_s,
            audiences,
            mark,
        }
    }

    /// Returns the token as it was sent.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Returns whether another token of the issuer would open the gateway like this one: whoever gets it could come with it as the
    /// same person. Nothing else is verified.
    pub fn opens_with(&self, other: &str) -> bool {
        let is_open = |split: SplitToken<'_>| {
            split.unverified_issuer() == Ok(&*self.issuer) && split.is_for(&self.audiences)
        };
        other == self.text() || SplitToken::read(other).is_ok_and(is_open)
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
        let audiences = Arc::default();
        let token = |hash: u8| CallerToken::new(("a.s3cret.c", &[hash; 32]), ("https://idp", &audiences), 1);
        assert_eq!(token(1).mark, token(1).mark);
        assert_ne!(token(1).mark, token(2).mark);
        assert!(!format!("{:?}", token(1)).contains("s3cret"));
    }
}
