//! Signatures of tokens: the provider of `jsonwebtoken` over `ring`, which this program has for TLS already.

use std::sync::LazyLock;

use jsonwebtoken::crypto::{CryptoProvider, JwtVerifier, KeyUtils};
use jsonwebtoken::errors::{Error, ErrorKind, new_error};
use jsonwebtoken::signature::{Error as SignatureError, Verifier};
use jsonwebtoken::{Algorithm, DecodingKey, DecodingKeyKind};
use ring::signature::{
    ECDSA_P256_SHA256_FIXED, ECDSA_P384_SHA384_FIXED, ED25519, RSA_PKCS1_2048_8192_SHA256,
    RSA_PSS_2048_8192_SHA256, RsaParameters, RsaPublicKeyComponents, UnparsedPublicKey,
    VerificationAlgorithm,
};

use super::algorithm::TokenAlgorithm;

/// Provider that verifies the algorithms of [`TokenAlgorithm`], and signs nothing.
static PROVIDER: CryptoProvider = CryptoProvider {
    signer_factory: |_, _| Err(new_error(ErrorKind::UnsupportedAlgorithm)),
    verifier_factory: verifier,
    key_utils: KeyUtils::new_unimplemented(),
};

/// Installation of the provider, once per process. Another provider cannot be there: no other code uses the crate.
static INSTALLED: LazyLock<bool> = LazyLock::new(|| PROVIDER.install_default().is_ok());

/// Returns whether a signature in base64url is that of a key over a message.
pub(super) fn verify(signature: &str, message: &[u8], key: &DecodingKey, algorithm: TokenAlgorithm) -> bool {
    let algorithm = match algorithm {
        TokenAlgorithm::Rs256 => Algorithm::RS256,
        TokenAlgorithm::Ps256 => Algorithm::PS256,
        TokenAlgorithm::Es256 => Algorithm::ES256,
        TokenAlgorithm::Es384 => Algorithm::ES384,
        TokenAlgorithm::EdDsa => Algorithm::EdDSA,
    };
    *INSTALLED && jsonwebtoken::crypto::verify(signature, message, key, algorithm).unwrap_or(false)
}

/// Verifier of one algorithm with one key.
struct RingVerifier {
    algorithm: Algorithm,
    key: DecodingKey,
}

fn verifier(algorithm: &Algorithm, key: &DecodingKey) -> Result<Box<dyn JwtVerifier>, Error> {
    Ok(Box::new(RingVerifier { algorithm: *algorithm, key: key.clone() }))
}

impl JwtVerifier for RingVerifier {
    fn algorithm(&self) -> Algorithm {
        self.algorithm
    }
}

impl Verifier<Vec<u8>> for RingVerifier {
    fn verify(&self, message: &[u8], signature: &Vec<u8>) -> Result<(), SignatureError> {
        let rsa = |parameters: &'static RsaParameters| match self.key.kind() {
            DecodingKeyKind::RsaModulusExponent { n, e } => {
                RsaPublicKeyComponents { n, e }.verify(parameters, message, signature)
            }
            DecodingKeyKind::SecretOrDer(_) => Err(ring::error::Unspecified),
        };
        let raw = |algorithm: &'static dyn VerificationAlgorithm| match self.key.kind() {
            DecodingKeyKind::SecretOrDer(key) => {
                UnparsedPublicKey::new(algorithm, key).verify(message, signature)
            }
            DecodingKeyKind::RsaModulusExponent { .. } => Err(ring::error::Unspecified),
        };
        let verified = match self.algorithm {
            Algorithm::RS256 => rsa(&RSA_PKCS1_2048_8192_SHA256),
            Algorithm::PS256 => rsa(&RSA_PSS_2048_8192_SHA256),
            Algorithm::ES256 => raw(&ECDSA_P256_SHA256_FIXED),
            Algorithm::ES384 => raw(&ECDSA_P384_SHA384_FIXED),
            Algorithm::EdDSA => raw(&ED25519),
            _ => Err(ring::error::Unspecified),
        };
        verified.map_err(|_| SignatureError::new())
    }
}
