//! Keys and tokens for tests.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ring::rand::SystemRandom;
use ring::signature::{
    ECDSA_P256_SHA256_FIXED_SIGNING, ECDSA_P384_SHA384_FIXED_SIGNING, EcdsaKeyPair, EcdsaSigningAlgorithm,
    Ed25519KeyPair, KeyPair,
};
use serde_json::{Value, json};

/// Key of a test provider, with its id.
pub(crate) enum TestKey {
    Ec(&'static str, &'static str, EcdsaKeyPair),
    Ed(&'static str, Ed25519KeyPair),
}

fn encode(bytes: &[u8]) -> String {
    URL_SAFE_NO_PAD.encode(bytes)
}

impl TestKey {
    pub(crate) fn p256(kid: &'static str) -> TestKey {
        TestKey::Ec(kid, "ES256", ec(&ECDSA_P256_SHA256_FIXED_SIGNING))
    }

    pub(crate) fn p384(kid: &'static str) -> TestKey {
        TestKey::Ec(kid, "ES384", ec(&ECDSA_P384_SHA384_FIXED_SIGNING))
    }

    pub(crate) fn ed25519(kid: &'static str) -> TestKey {
        let pkcs8 = Ed25519KeyPair::generate_pkcs8(&SystemRandom::new()).unwrap();
        TestKey::Ed(kid, Ed25519KeyPair::from_pkcs8(pkcs8.as_ref()).unwrap())
    }

    pub(crate) fn kid(&self) -> &'static str {
        match self {
            TestKey::Ec(kid, ..) | TestKey::Ed(kid, _) => kid,
        }
    }

    pub(crate) fn algorithm(&self) -> &'static str {
        match self {
            TestKey::Ec(_, algorithm, _) => algorithm,
            TestKey::Ed(..) => "EdDSA",
        }
    }

    /// Returns the public half, as a key set holds it.
    pub(crate) fn jwk(&self) -> Value {
        match self {
            TestKey::Ec(kid, algorithm, pair) => {
                let point = &pair.public_key().as_ref()[1..];
                let (x, y) = point.split_at(point.len() / 2);
                let curve = if *algorithm == "ES256" { "P-256" } else { "P-384" };
                json!({"kty": "EC", "crv": curve, "kid": kid, "use": "sig", "x": encode(x), "y": encode(y)})
            }
            TestKey::Ed(kid, pair) => {
                json!({"kty": "OKP", "crv": "Ed25519", "kid": kid, "x": encode(pair.public_key().as_ref())})
            }
        }
    }

    /// Signs a token with this header and payload, each a JSON text.
    pub(crate) fn sign(&self, header: &str, payload: &str) -> String {
        let signed = format!("{}.{}", encode(header.as_bytes()), encode(payload.as_bytes()));
        let signature = match self {
            TestKey::Ec(_, _, pair) => {
                pair.sign(&SystemRandom::new(), signed.as_bytes()).unwrap().as_ref().to_vec()
            }
            TestKey::Ed(_, pair) => pair.sign(signed.as_bytes()).as_ref().to_vec(),
        };
        format!("{signed}.{}", encode(&signature))
    }

    /// Signs a token with these claims and the usual header.
    pub(crate) fn token(&self, claims: &Value) -> String {
        let header = json!({"alg": self.algorithm(), "kid": self.kid(), "typ": "at+jwt"});
        self.sign(&header.to_string(), &claims.to_string())
    }
}

fn ec(algorithm: &'static EcdsaSigningAlgorithm) -> EcdsaKeyPair {
    let pkcs8 = EcdsaKeyPair::generate_pkcs8(algorithm, &SystemRandom::new()).unwrap();
    EcdsaKeyPair::from_pkcs8(algorithm, pkcs8.as_ref(), &SystemRandom::new()).unwrap()
}
