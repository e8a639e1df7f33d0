//! Form and header of a token: a JWS in compact form with an asymmetric signature (RFC 7515, RFC 9068).

use std::fmt;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::{Map, Value};

use super::crypto;
use super::jwks::KeySet;
use crate::domain::json;
use crate::domain::text_enum::text_enum;

/// Longest key id in a header, in bytes.
const KID_BYTES_MAX: usize = 256;
/// Values of `typ` that an access token may have; absent is accepted as well.
const TYPES: [&str; 3] = ["at+jwt", "application/at+jwt", "JWT"];

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

/// Token in its parts, with a header that was checked. No claim is verified yet.
#[derive(Clone, Debug)]
pub struct SplitToken<'a> {
    /// Header and payload as they were signed.
    signed: &'a str,
    /// Signature, in base64url.
    signature: &'a str,
    algorithm: TokenAlgorithm,
    kid: Option<String>,
    /// True if the header says that this is an access token (`at+jwt`).
    pub(super) is_access_token: bool,
    pub(super) claims: Map<String, Value>,
}

impl<'a> SplitToken<'a> {
    /// Splits a token, and checks form and header.
    ///
    /// # Errors
    /// [`TokenFault::Unverifiable`].
    pub fn read(token: &'a str) -> Result<SplitToken<'a>, TokenFault> {
        let (signed, signature) = token.rsplit_once('.').ok_or(TokenFault::Unverifiable("not a token"))?;
        let (header, payload) = signed.split_once('.').ok_or(TokenFault::Unverifiable("not a token"))?;
        let header = object(header, "the header is no JSON object with one reading")?;
        if header.contains_key("crit") {
            return Err(TokenFault::Unverifiable("the header has crit"));
        }
        let algorithm = header.get("alg").and_then(Value::as_str).and_then(TokenAlgorithm::parse);
        let algorithm = algorithm.ok_or(TokenFault::Unverifiable("the header's alg is not accepted"))?;
        let typ = match header.get("typ") {
            None => None,
            Some(Value::String(typ)) if TYPES.iter().any(|known| typ.eq_ignore_ascii_case(known)) => {
                Some(typ.as_str())
            }
            Some(_) => return Err(TokenFault::Unverifiable("the header's typ is not of an access token")),
        };
        let kid = match header.get("kid") {
            None => None,
            Some(Value::String(kid)) if kid.len() <= KID_BYTES_MAX => Some(kid.clone()),
            Some(_) => return Err(TokenFault::Unverifiable("the header's kid is no short text")),
        };
        let is_access_token = typ.is_some_and(|typ| !typ.eq_ignore_ascii_case("JWT"));
        let claims = object(payload, "the payload is no JSON object with one reading")?;
        Ok(SplitToken { signed, signature, algorithm, kid, is_access_token, claims })
    }

    /// Returns the issuer that the token names. It is not verified: use it only to select the issuer's keys.
    ///
    /// # Errors
    /// [`TokenFault::Unverifiable`] if `iss` is not one text.
    pub fn unverified_issuer(&self) -> Result<&str, TokenFault> {
        let issuer = self.claims.get("iss").and_then(Value::as_str);
        issuer.ok_or(TokenFault::Unverifiable("iss is not one text"))
    }

    /// Checks the signature with the issuer's keys.
    ///
    /// # Errors
    /// [`TokenFault::UnknownKey`] if no key fits, else [`TokenFault::Unverifiable`].
    pub fn check_signature(&self, keys: &KeySet, allowed: &[TokenAlgorithm]) -> Result<(), TokenFault> {
        if !allowed.contains(&self.algorithm) {
            return Err(TokenFault::Unverifiable("the issuer does not use this alg"));
        }
        let key = keys.find(self.kid.as_deref(), self.algorithm)?;
        if crypto::verify(self.signature, self.signed.as_bytes(), key, self.algorithm) {
            return Ok(());
        }
        Err(TokenFault::Unverifiable("the signature is wrong"))
    }
}

/// Decodes a part that must be a JSON object without two members of one name, at any depth.
fn object(part: &str, fault: &'static str) -> Result<Map<String, Value>, TokenFault> {
    let wrong = || TokenFault::Unverifiable(fault);
    let bytes = URL_SAFE_NO_PAD.decode(part).map_err(|_| wrong())?;
    let text = std::str::from_utf8(&bytes).map_err(|_| wrong())?;
    json::members_of_text(text).map_err(|_| wrong())?;
    serde_json::from_str(text).map_err(|_| wrong())
}
