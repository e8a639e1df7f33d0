//! Logins: issuers of tokens and their keys (the platform's), rules and people (the tenants').

mod issuer_keys;
mod issuers;
mod people;
mod rules;

pub use issuer_keys::{KeyFetch, KeyFetchCause, KeyFetchClaim};
pub use issuers::{Issuer, IssuerAssignment, IssuerPatch, IssuerRows, NewIssuer};
pub use people::{BarredIdentity, Identity, SeenIdentity};
pub use rules::StoredRules;

pub(super) use people::barred;
pub(super) use rules::in_force;
