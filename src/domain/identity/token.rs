//! Form and header of a token: a JWS in compact form with an asymmetric signature (RFC 7515, RFC 9068).

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use jsonwebtoken::DecodingKey;
use serde_json::{Map, Value};

use super::algorithm::{TokenAlgorithm, TokenFault, TokenType};
use super::crypto;
use super::jwks::{KeyDigest, KeySet};
use crate::domain::json;

/// Longest key id in a header, in bytes.
const KID_BYTES_MAX: usize = 256;
/// Values of `typ` that an access token may have; absent is accepted as well.
const TYPES: [(&str, TokenType); 3] = [
    ("at+jwt", TokenType::AccessToken),
    ("application/at+jwt", TokenType::AccessToken),
    ("JWT", TokenType::Jwt),
];
/// Value of `typ` that an ID token may have; absent is accepted as well.
const ID_TYPES: [&str; 1] = ["JWT"];
/// Values of `typ` that a notice of a logout must have.
const LOGOUT_TYPES: [&str; 2] = ["logout+jwt", "application/logout+jwt"];

/// Token in its parts, with a header that was checked. No claim is verified yet.
#[derive(Clone, Debug)]
pub struct SplitToken<'a> {
    /// Header and payload as they were signed.
    signed: &'a str,
    /// Signature, in base64url.
    signature: &'a str,
    pub(super) algorithm: TokenAlgorithm,
    kid: Option<String>,
    /// Kind by the header; `None` if it does not say.
    pub(super) token_type: Option<TokenType>,
    /// Text of the claims.
    pub(super) payload: String,
    pub(super) claims: Map<String, Value>,
}

/// Check of the signature of one token, which takes tens of microseconds.
pub struct SignatureCheck {
    signed: String,
    signature: String,
    key: DecodingKey,
    digest: KeyDigest,
    algorithm: TokenAlgorithm,
}

impl SignatureCheck {
    /// Runs the check. Returns the digest of the key.
    ///
    /// # Errors
    /// [`TokenFault::Unverifiable`].
    pub fn run(&self) -> Result<KeyDigest, TokenFault> {
        match crypto::verify(&self.signature, self.signed.as_bytes(), &self.key, self.algorithm) {
            true => Ok(self.digest),
            false => Err(TokenFault::Unverifiable("the signature is wrong")),
        }
    }
}

impl<'a> SplitToken<'a> {
    /// Splits an access token, and checks form and header.
    ///
    /// # Errors
    /// [`TokenFault::Unverifiable`].
    pub fn read(token: &'a str) -> Result<SplitToken<'a>, TokenFault> {
        let (split, typ) = SplitToken::split(token)?;
        let known = |typ: String| {
            TYPES.iter().find(|(known, _)| typ.eq_ignore_ascii_case(known)).map(|(_, kind)| *kind)
        };
        let other = || TokenFault::Unverifiable("the header's typ is not of an access token");
        let token_type = typ.map(|typ| known(typ).ok_or_else(other)).transpose()?;
        Ok(SplitToken { token_type, ..split })
    }

    /// Splits an ID token, and checks form and header.
    ///
    /// # Errors
    /// [`TokenFault::Unverifiable`].
    pub fn read_id_token(token: &'a str) -> Result<SplitToken<'a>, TokenFault> {
        let (split, typ) = SplitToken::split(token)?;
        let is_other = typ.is_some_and(|typ| !is_one_of(&typ, &ID_TYPES));
        let fault = TokenFault::Unverifiable("the header's typ is not of an ID token");
        if is_other { Err(fault) } else { Ok(split) }
    }

    /// Splits a provider's notice of a logout, and checks form and header.
    ///
    /// # Errors
    /// [`TokenFault::Unverifiable`].
    pub fn read_logout(token: &'a str) -> Result<SplitToken<'a>, TokenFault> {
        let (split, typ) = SplitToken::split(token)?;
        let fault = TokenFault::Unverifiable("the header's typ is not of a logout token");
        if typ.is_some_and(|typ| is_one_of(&typ, &LOGOUT_TYPES)) { Ok(split) } else { Err(fault) }
    }

    /// Splits a token. Returns it with the `typ` of its header, which is not checked.
    fn split(token: &'a str) -> Result<(SplitToken<'a>, Option<String>), TokenFault> {
        let (signed, signature) = token.rsplit_once('.').ok_or(TokenFault::Unverifiable("not a token"))?;
        let (header, payload) = signed.split_once('.').ok_or(TokenFault::Unverifiable("not a token"))?;
        let (_, header) = object(header, "the header is no JSON object with one reading")?;
        if header.contains_key("crit") {
            return Err(TokenFault::Unverifiable("the header has crit"));
        }
        let algorithm = header.get("alg").and_then(Value::as_str).and_then(TokenAlgorithm::parse);
        let algorithm = algorithm.ok_or(TokenFault::Unverifiable("the header's alg is not accepted"))?;
        let typ = match header.get("typ") {
            None => None,
            Some(Value::String(typ)) => Some(typ.clone()),
            // of no token that is known
            Some(_) => Some(String::new()),
        };
        let kid = match header.get("kid") {
            None => None,
            Some(Value::String(kid)) if kid.len() <= KID_BYTES_MAX => Some(kid.clone()),
            Some(_) => return Err(TokenFault::Unverifiable("the header's kid is no short text")),
        };
        let (payload, claims) = object(payload, "the payload is no JSON object with one reading")?;
        Ok((SplitToken { signed, signature, algorithm, kid, token_type: None, payload, claims }, typ))
    }

    /// Returns the issuer that the token names. It is not verified: use it only to select the issuer's keys.
    ///
    /// # Errors
    /// [`TokenFault::Unverifiable`] if `iss` is not one text.
    pub fn unverified_issuer(&self) -> Result<&str, TokenFault> {
        let issuer = self.claims.get("iss").and_then(Value::as_str);
        issuer.ok_or(TokenFault::Unverifiable("iss is not one text"))
    }

    /// Returns the check of the signature with the issuer's keys, to be run elsewhere.
    ///
    /// # Errors
    /// [`TokenFault::UnknownKey`] if no key fits, or [`TokenFault::Unverifiable`] for an algorithm that the issuer does not use.
    pub fn signature_check(
        &self,
        keys: &KeySet,
        allowed: &[TokenAlgorithm],
    ) -> Result<SignatureCheck, TokenFault> {
        let (key, digest) = self.key_in(keys, allowed)?;
        let (signed, signature) = (self.signed.to_owned(), self.signature.to_owned());
        Ok(SignatureCheck { signed, signature, key: key.clone(), digest, algorithm: self.algorithm })
    }

    /// Returns a token that was verified before as one that was read, to check its claims once more.
    pub(super) fn read_before(
        algorithm: TokenAlgorithm,
        token_type: Option<TokenType>,
        claims: Map<String, Value>,
    ) -> SplitToken<'static> {
        let payload = String::new();
        SplitToken { signed: "", signature: "", algorithm, kid: None, token_type, payload, claims }
    }

    /// Returns the token with this text of its claims.
    pub(super) fn with_payload(self, payload: String) -> SplitToken<'a> {
        SplitToken { payload, ..self }
    }

    pub(super) fn key_in<'k>(
        &self,
        keys: &'k KeySet,
        allowed: &[TokenAlgorithm],
    ) -> Result<(&'k DecodingKey, KeyDigest), TokenFault> {
        if !allowed.contains(&self.algorithm) {
            return Err(TokenFault::Unverifiable("the issuer does not use this alg"));
        }
        keys.find(self.kid.as_deref(), self.algorithm)
    }
}

fn is_one_of(typ: &str, known: &[&str]) -> bool {
    known.iter().any(|known| typ.eq_ignore_ascii_case(known))
}

/// Decodes a part that must be a JSON object without two members of one name, at any depth.
pub(super) fn object(part: &str, fault: &'static str) -> Result<(String, Map<String, Value>), TokenFault> {
    let wrong = || TokenFault::Unverifiable(fault);
    let bytes = URL_SAFE_NO_PAD.decode(part).map_err(|_| wrong())?;
    let text = String::from_utf8(bytes).map_err(|_| wrong())?;
    json::members_of_text(&text).map_err(|_| wrong())?;
    let members = serde_json::from_str(&text).map_err(|_| wrong())?;
    Ok((text, members))
}
