//! Answers calls of `inspect_provenance`, which reach no site.

use bytes::Bytes;

use super::OwnCall;
use crate::domain::provenance::{self, LedgerRecord};
use crate::domain::web_page::inspect::{self, InspectedCall};
use crate::gateway::calls::Calls;
use crate::store::StoreError;
use crate::upstream::Answer;

/// Answer while the database is out of reach.
const UNREADABLE: &str =
    r#"{"content":[{"type":"text","text":"The ledger cannot be read now; try again later"}],"isError":true}"#;

impl Calls {
    /// Answers with the ledgers of the caller's own calls at a server.
    pub(super) async fn inspect_provenance(&self, call: OwnCall<'_>) -> Answer {
        match self.own_calls(&call).await {
            Ok(calls) => Answer::Result(inspect::render(&calls).into()),
            Err(error) => {
                tracing::warn!(%error, "ledgers could not be read");
                Answer::Result(Bytes::from_static(UNREADABLE.as_bytes()))
            }
        }
    }

    async fn own_calls(&self, call: &OwnCall<'_>) -> Result<Vec<InspectedCall>, StoreError> {
        let caller = &call.attempt.caller;
        let tenant = caller.tenant_id();
        let principal = caller.key.map_or(uuid::Uuid::nil(), |key| key.0);
        let (server, limit) = (call.tool.server.id, inspect::limit(call.arguments));
        let ids = self.store.own_provenance(tenant, (principal, server), limit as i64).await?;
        let mut calls = Vec::with_capacity(ids.len());
        for id in ids {
            let rows = self.store.read_provenance(tenant, id).await?;
            let is_intact = match self.store.get_activity(tenant, id).await {
                Ok(record) => {
                    let said = LedgerRecord::of(&record.status, record.has_ledger);
                    provenance::is_whole(&rows, (id, said), tenant, &self.options.consent_keys)
                }
                // without the record, nothing says whether the ledger needs an end
                Err(StoreError::NotFound) => None,
                Err(error) => return Err(error),
            };
            calls.push(InspectedCall { id: id.to_string(), is_intact, rows });
        }
        Ok(calls)
    }
}
