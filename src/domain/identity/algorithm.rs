//! Algorithms of signatures, and faults of tokens.

use std::fmt;

use crate::domain::text_enum::text_enum;

text_enum! {
    /// Signature algorithm of tokens. Only asymmetric ones exist here: `none` and HMAC cannot be configured.
    pub enum TokenAlgorithm {
        /// RSASSA-PKCS1-v1_5 with SHA-256.
        Rs256 = "RS256",
        /// RSASSA-PSS with SHA-256.
        Ps256 = "PS256",
        /// ECDSA on P-256 with SHA-256.
        Es256 = "ES256",
        /// ECDSA on P-384 with SHA-384.
        Es384 = "ES384",
        /// Ed25519.
        EdDsa = "EdDSA",
    }
}

text_enum! {
    /// Kind of a token, by its header's `typ`.
    pub enum TokenType {
        /// Access token (RFC 9068): `at+jwt` or `application/at+jwt`.
        AccessToken = "at+jwt",
        /// `JWT`, which ID tokens have as well.
        Jwt = "jwt",
    }
}

/// Reason why a token was not accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TokenFault {
    /// The token cannot be verified. The text is for the log, never for the client.
    Unverifiable(&'static str),
    /// No key of the issuer has the id that the token names: the issuer may have new keys.
    UnknownKey,
    /// The signature is good, and the token has expired.
    Expired,
    /// The signature is good, and the token was issued for another audience.
    Audience,
}

impl fmt::Display for TokenFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            TokenFault::Unverifiable(why) => why,
            TokenFault::UnknownKey => "the issuer has no such key",
            TokenFault::Expired => "expired",
            TokenFault::Audience => "issued for another audience",
        })
    }
}
