//! Logins of people, and the rules that map them to a role.

use std::fmt;
use std::sync::Arc;

use crate::domain::id::{IdentityId, IssuerId, TenantId};
use crate::domain::identity::{IdentityRule, TokenReach, VerifiedToken};
use crate::domain::operation::OperationType;

/// Login of a person: the token that was verified, and the versions of all that decided.
pub struct Login {
    /// Id of the person in the tenant.
    pub identity: IdentityId,
    /// Id of the issuer.
    pub(in crate::gateway::tenants) issuer: IssuerId,
    pub(in crate::gateway::tenants) stamp: IssuerStamp,
    /// Revision of the tenant's access that mapped the person.
    pub(in crate::gateway::tenants) access_rev: i64,
    pub(in crate::gateway::tenants) token: Arc<VerifiedToken>,
    /// Highest operation that the scopes of the token allow, where scopes refuse and do not hide (`identity.step_up`); `None`
    /// if they refuse nothing.
    pub(in crate::gateway::tenants) scope_ceiling: Option<OperationType>,
}

impl fmt::Debug for Login {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Login").field("identity", &self.identity).finish_non_exhaustive()
    }
}

impl Login {
    /// Returns whether the token is for the MCP endpoints alone.
    pub fn is_mcp_only(&self) -> bool {
        self.token.reach == TokenReach::Mcp
    }

    /// Returns whether a call may be refused for the scopes of the token.
    pub fn may_step_up(&self) -> bool {
        self.scope_ceiling.is_some()
    }
}

/// Version of all that tokens of an issuer are verified with. Another one means: verify again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::gateway) struct IssuerStamp {
    pub(in crate::gateway::tenants) version: i64,
    pub(in crate::gateway::tenants) keys: Option<[u8; 32]>,
}

/// Reads stored rules. Those of a newer release that this one cannot read give nobody a role.
pub(in crate::gateway::tenants) fn read_rules(tenant: TenantId, stored: &str) -> Vec<IdentityRule> {
    if stored.is_empty() {
        return Vec::new();
    }
    serde_json::from_str(stored).unwrap_or_else(|error| {
        tracing::error!(%tenant, %error, "identity rules cannot be read by this version: nobody can log in");
        Vec::new()
    })
}
