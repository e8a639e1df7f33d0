//! Logins with tokens of an identity provider: verification of a token, and its mapping to a role (behaviour, section 3).
//!
//! The order is: split, header rules, key, signature, claims, then the tenant's rules. No claim is used before its signature
//! has been verified, except `iss`, which only selects the issuer.

mod algorithm;
mod audience;
mod caller_token;
mod claims;
mod crypto;
mod explain;
mod jwks;
mod login;
mod rules;
mod token;

#[cfg(test)]
pub(crate) mod fixtures;
#[cfg(test)]
mod fuzz;
#[cfg(test)]
mod tests;

pub use self::algorithm::{TokenAlgorithm, TokenFault, TokenType};
pub use self::audience::{Audiences, PublicUrl, TokenReach};
pub use self::caller_token::CallerToken;
pub use self::claims::{ClaimRules, VerifiedToken, is_subject};
pub use self::explain::{ClaimFinding, TokenHolder, header_of};
pub use self::jwks::{JWKS_BYTES_MAX, JwksFault, KeyDigest, KeyFault, KeyReport, KeySet};
pub use self::login::{LoginClaims, LoginRules, LogoutNotice};
pub use self::rules::{
    CONDITIONS_MAX, ConditionTest, IdentityRule, RULES_MAX, RuleCondition, RuleFault, RuleGrant, claim_has,
    scope_for,
};
pub use self::token::{SignatureCheck, SplitToken};

use sha2::{Digest, Sha256};
use uuid::Builder;

use super::id::{IdentityId, IssuerId, TenantId};

/// Returns the id of a person in a tenant: a UUIDv8 of the SHA-256 of tenant, issuer and subject. All replicas agree on it
/// without a query.
pub fn identity_id(tenant: TenantId, issuer: IssuerId, subject: &str) -> IdentityId {
    let mut hash = Sha256::new();
    hash.update(tenant.0.as_bytes());
    hash.update(issuer.0.as_bytes());
    hash.update(subject.as_bytes());
    let digest: [u8; 32] = hash.finalize().into();
    let mut bytes = [0; 16];
    bytes.iter_mut().zip(digest).for_each(|(to, from)| *to = from);
    IdentityId(Builder::from_custom_bytes(bytes).into_uuid())
}

/// Returns whether a credential has the form of a token of an identity provider: three parts between dots. An API key has
/// none.
pub fn is_token(credential: &str) -> bool {
    credential.bytes().filter(|byte| *byte == b'.').count() == 2
}
