//! Keys of an issuer: a JSON Web Key Set (RFC 7517) within bounds.

use std::fmt;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use jsonwebtoken::DecodingKey;
use serde_json::{Map, Value};
use sha2::{Digest, Sha256};

use super::algorithm::{TokenAlgorithm, TokenFault};
use crate::domain::json;

/// Largest key set, in bytes.
pub const JWKS_BYTES_MAX: usize = 256 * 1024;
/// Most keys in a set.
const KEYS_MAX: usize = 64;
/// Fewest and most bits of an RSA modulus.
const RSA_BITS: std::ops::RangeInclusive<usize> = 2048..=8192;

/// Reason why a key set is not usable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JwksFault {
    /// The document is larger than 256 KiB.
    TooLarge,
    /// The document is no JSON object with one reading and a member `keys`.
    NoKeySet,
    /// The set has more than 64 keys.
    TooMany,
    /// No key of the set can verify a token.
    NoUsableKey,
}

impl fmt::Display for JwksFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            JwksFault::TooLarge => "the key set is larger than 256 KiB",
            JwksFault::NoKeySet => "the answer is no JSON Web Key Set",
            JwksFault::TooMany => "the key set has more than 64 keys",
            JwksFault::NoUsableKey => {
                "the key set has no usable key (RSA of 2048 to 8192 bits, P-256, P-384 or Ed25519)"
            }
        })
    }
}

/// Reason why a key of a set cannot verify tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyFault {
    /// `use` is not `sig`, or `key_ops` lacks `verify`: a key for encryption, most often.
    Purpose,
    /// RSA modulus of this many bits.
    Size(usize),
    /// Kind or curve that is not supported.
    Kind,
    /// `alg` that tokens never have here.
    Algorithm,
    /// A member of the key is missing or malformed.
    Malformed,
}

impl fmt::Display for KeyFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            KeyFault::Purpose => f.write_str("it is not for signatures (use, key_ops)"),
            KeyFault::Size(bits) => write!(f, "its modulus has {bits} bits, and 2048 to 8192 are needed"),
            KeyFault::Kind => f.write_str("only RSA, P-256, P-384 and Ed25519 are supported"),
            KeyFault::Algorithm => f.write_str("its alg is none that is supported"),
            KeyFault::Malformed => f.write_str("a member of it is missing or malformed"),
        }
    }
}

/// Key of a set, for administrators.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyReport {
    /// Id of the key; `None` without one.
    pub kid: Option<String>,
    /// Kind and curve as the set names them, such as `EC P-256`.
    pub kind: String,
    /// Reason why the key cannot verify tokens; `None` for one that can.
    pub fault: Option<KeyFault>,
}

/// Kind of a public key, which decides the algorithms that it verifies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum KeyKind {
    Rsa,
    P256,
    P384,
    Ed25519,
}

impl KeyKind {
    fn verifies(self, algorithm: TokenAlgorithm) -> bool {
        match algorithm {
            TokenAlgorithm::Rs256 | TokenAlgorithm::Ps256 => self == KeyKind::Rsa,
            TokenAlgorithm::Es256 => self == KeyKind::P256,
            TokenAlgorithm::Es384 => self == KeyKind::P384,
            TokenAlgorithm::EdDsa => self == KeyKind::Ed25519,
        }
    }
}

/// SHA-256 of a public key's material.
pub type KeyDigest = [u8; 32];

#[derive(Clone, Debug)]
struct PublicKey {
    kid: Option<String>,
    kind: KeyKind,
    /// Algorithm that the set reserves the key for; `None` for any of its kind.
    algorithm: Option<TokenAlgorithm>,
    /// Digest of the key's material.
    material: KeyDigest,
    key: DecodingKey,
}

/// Keys of one issuer. Sets of issuers are never merged: a key id means nothing outside of its set.
#[derive(Clone, Debug)]
pub struct KeySet {
    keys: Vec<PublicKey>,
    digest: [u8; 32],
}

impl KeySet {
    /// Reads a set. Keys of other kinds, too weak ones and those for encryption are left out.
    ///
    /// # Errors
    /// [`JwksFault`] if the set is not usable as a whole.
    pub fn parse(text: &str) -> Result<KeySet, JwksFault> {
        let keys: Vec<PublicKey> = listed(text)?.iter().filter_map(|jwk| PublicKey::read(jwk).ok()).collect();
        if keys.is_empty() {
            return Err(JwksFault::NoUsableKey);
        }
        Ok(KeySet { keys, digest: Sha256::digest(text.as_bytes()).into() })
    }

    /// Returns the SHA-256 of the document.
    pub fn digest(&self) -> [u8; 32] {
        self.digest
    }

    /// Returns whether the set has a key of this digest.
    pub(super) fn has(&self, digest: &KeyDigest) -> bool {
        self.keys.iter().any(|key| key.material == *digest)
    }

    /// Returns all keys of a set, usable or not.
    ///
    /// # Errors
    /// [`JwksFault`] if the document is no set within the bounds.
    pub fn report(text: &str) -> Result<Vec<KeyReport>, JwksFault> {
        let report = |jwk: &Value| KeyReport {
            kid: jwk.get("kid").and_then(Value::as_str).map(str::to_owned),
            kind: ["kty", "crv"].map(|name| jwk.get(name).and_then(Value::as_str).unwrap_or("")).join(" "),
            fault: PublicKey::read(jwk).err(),
        };
        Ok(listed(text)?.iter().map(report).collect())
    }

    /// Returns the algorithms whose signatures the set can verify.
    pub fn algorithms(&self) -> Vec<TokenAlgorithm> {
        let has = |algorithm: &TokenAlgorithm| self.keys.iter().any(|key| key.fits(*algorithm));
        TokenAlgorithm::ALL.into_iter().filter(has).collect()
    }

    /// Returns the key for a token, and its digest. Without an id, it is the only key that fits the algorithm.
    ///
    /// # Errors
    /// [`TokenFault::UnknownKey`] if no key fits, [`TokenFault::Unverifiable`] if several different ones do.
    pub(super) fn find(
        &self,
        kid: Option<&str>,
        algorithm: TokenAlgorithm,
    ) -> Result<(&DecodingKey, KeyDigest), TokenFault> {
        let fits =
            |key: &&PublicKey| key.fits(algorithm) && kid.is_none_or(|kid| key.kid.as_deref() == Some(kid));
        let mut fitting = self.keys.iter().filter(fits);
        let first = fitting.next().ok_or(TokenFault::UnknownKey)?;
        if fitting.any(|other| other.material != first.material) {
            return Err(TokenFault::Unverifiable("several keys of the issuer fit the token"));
        }
        Ok((&first.key, first.material))
    }
}

/// Returns the keys of a document as they are.
fn listed(text: &str) -> Result<Vec<Value>, JwksFault> {
    if text.len() > JWKS_BYTES_MAX {
        return Err(JwksFault::TooLarge);
    }
    json::members(text).map_err(|_| JwksFault::NoKeySet)?;
    let mut whole: Map<String, Value> = serde_json::from_str(text).map_err(|_| JwksFault::NoKeySet)?;
    match whole.remove("keys") {
        Some(Value::Array(keys)) if keys.len() <= KEYS_MAX => Ok(keys),
        Some(Value::Array(_)) => Err(JwksFault::TooMany),
        _ => Err(JwksFault::NoKeySet),
    }
}

impl PublicKey {
    /// Returns whether the key verifies signatures of an algorithm.
    fn fits(&self, algorithm: TokenAlgorithm) -> bool {
        self.kind.verifies(algorithm) && self.algorithm.is_none_or(|reserved| reserved == algorithm)
    }

    /// Reads a key.
    fn read(jwk: &Value) -> Result<PublicKey, KeyFault> {
        let text = |name: &str| jwk.get(name).and_then(Value::as_str);
        let may_verify = |operations: &Value| {
            operations.as_array().is_some_and(|all| all.iter().any(|operation| operation == "verify"))
        };
        if jwk.get("use").is_some_and(|purpose| purpose != "sig")
            || !jwk.get("key_ops").is_none_or(may_verify)
        {
            return Err(KeyFault::Purpose);
        }
        let bytes = |name: &str| {
            let decoded = URL_SAFE_NO_PAD.decode(text(name).unwrap_or_default().trim_end_matches('=')).ok();
            decoded.filter(|bytes| !bytes.is_empty()).ok_or(KeyFault::Malformed)
        };
        let point = |length: usize| {
            let (x, y) = (bytes("x")?, bytes("y")?);
            let is_point = x.len() == length && y.len() == length;
            is_point.then(|| [&[4], x.as_slice(), y.as_slice()].concat()).ok_or(KeyFault::Malformed)
        };
        let (kind, material, key) = match (text("kty").ok_or(KeyFault::Kind)?, text("crv")) {
            ("RSA", _) => {
                let (n, e) = (without_zeros(bytes("n")?), without_zeros(bytes("e")?));
                if !RSA_BITS.contains(&bits(&n)) {
                    return Err(KeyFault::Size(bits(&n)));
                }
                let key = DecodingKey::from_rsa_raw_components(&n, &e);
                (KeyKind::Rsa, [n, e].concat(), key)
            }
            ("EC", Some("P-256")) => {
                point(32).map(|p| (KeyKind::P256, p.clone(), DecodingKey::from_ec_der(&p)))?
            }
            ("EC", Some("P-384")) => {
                point(48).map(|p| (KeyKind::P384, p.clone(), DecodingKey::from_ec_der(&p)))?
            }
            ("OKP", Some("Ed25519")) => {
                let x = bytes("x")?;
                if x.len() != 32 {
                    return Err(KeyFault::Malformed);
                }
                let key = DecodingKey::from_ed_der(&x);
                (KeyKind::Ed25519, x, key)
            }
            _ => return Err(KeyFault::Kind),
        };
        let algorithm = match text("alg") {
            None => None,
            // RFC 9864 names the curve
            Some("Ed25519") => Some(TokenAlgorithm::EdDsa),
            Some(name) => Some(TokenAlgorithm::parse(name).ok_or(KeyFault::Algorithm)?),
        };
        let kid = text("kid").map(str::to_owned);
        Ok(PublicKey { kid, kind, algorithm, material: Sha256::digest(&material).into(), key })
    }
}

fn without_zeros(bytes: Vec<u8>) -> Vec<u8> {
    bytes.into_iter().skip_while(|byte| *byte == 0).collect()
}

fn bits(number: &[u8]) -> usize {
    number.first().map_or(0, |first| number.len() * 8 - first.leading_zeros() as usize)
}
