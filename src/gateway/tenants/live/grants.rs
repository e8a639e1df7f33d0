//! Remembered decisions of a tenant, as its snapshot has them.

use std::collections::HashMap;
use std::sync::Arc;

use chrono::{DateTime, Utc};
use uuid::Uuid;

use crate::domain::id::KeyId;
use crate::domain::operation::OperationType;
use crate::domain::policy::Remembered;
use crate::domain::risk::RiskLevel;
use crate::gateway::catalog::Tool;
use crate::store::GrantInForce;

/// Remembered decisions about calls of one key.
#[derive(Debug, Default)]
pub(in crate::gateway) struct HeldGrants {
    by_server: HashMap<Uuid, Vec<HeldGrant>>,
}

#[derive(Debug)]
struct HeldGrant {
    tool: Box<str>,
    /// `None` for an operation of a newer release, which is every one for a reject.
    operation: Option<OperationType>,
    pin: Box<str>,
    remembered: Remembered,
    /// Permission request that was answered.
    request: Uuid,
    expires_at: DateTime<Utc>,
}

/// Remembered decisions about calls of all keys of a tenant.
#[derive(Debug, Default)]
pub(in crate::gateway) struct TenantGrants {
    by_key: HashMap<Uuid, Arc<HeldGrants>>,
    none: Arc<HeldGrants>,
}

impl HeldGrants {
    /// Returns the decision about a call that holds at `now`, and the permission request in which it was made. A refusal
    /// counts before all that allow; of those the one that covers the risk, with the best answer.
    pub(in crate::gateway) fn find(
        &self,
        tool: &Tool,
        operation: OperationType,
        level: RiskLevel,
        now: DateTime<Utc>,
    ) -> Option<(Remembered, Uuid)> {
        let grants = self.by_server.get(&tool.server.id.0)?;
        let pin = tool.shape.pin();
        let holds = |grant: &&HeldGrant| {
            let is_of = match grant.remembered {
                Remembered::Allow { .. } => grant.operation == Some(operation),
                Remembered::Reject => grant.operation.is_none_or(|own| own == operation),
            };
            is_of && grant.expires_at > now && *grant.tool == *tool.name && *grant.pin == **pin
        };
        let best = grants
            .iter()
            .filter(holds)
            .max_by_key(|grant| (grant.remembered == Remembered::Reject, grant.remembered.answers(level)));
        best.map(|grant| (grant.remembered, grant.request))
    }
}

impl TenantGrants {
    /// Reads stored grants.
    pub(super) fn of(rows: &[GrantInForce]) -> TenantGrants {
        let mut by_key: HashMap<Uuid, HeldGrants> = HashMap::new();
        for row in rows {
            let grant = HeldGrant {
                tool: row.tool.as_str().into(),
                operation: row.operation_type.known(),
                pin: row.pin.as_str().into(),
                remembered: row.remembered(),
                request: row.request_id,
                expires_at: row.expires_at,
            };
            let held = by_key.entry(row.principal).or_default();
            held.by_server.entry(row.server_id).or_default().push(grant);
        }
        let by_key = by_key.into_iter().map(|(key, held)| (key, Arc::new(held))).collect();
        TenantGrants { by_key, none: Arc::default() }
    }

    /// Returns the decisions about calls of a key; `None` is the bootstrap key.
    pub(in crate::gateway) fn of_key(&self, key: Option<KeyId>) -> Arc<HeldGrants> {
        let principal = key.map_or(Uuid::nil(), |key| key.0);
        Arc::clone(self.by_key.get(&principal).unwrap_or(&self.none))
    }
}
