//! Records of steps, written by the transactions that take the steps: neither is there without the other.

use std::collections::BTreeSet;

use ulid::Ulid;
use uuid::Uuid;

use crate::domain::activity::Record;
use crate::domain::id::{ReplicaId, TenantId};
use crate::store::unit::Unit;
use crate::store::{Store, StoreError, activity_write, revisions};

/// Author of records about steps.
#[derive(Clone, Debug)]
pub struct StepAuthor {
    /// Replica that takes the steps.
    pub replica: ReplicaId,
    /// Record of a step, but for what the step is about.
    pub record: Record,
}

/// Step that a transaction takes.
#[derive(Clone, Debug)]
pub(super) struct StepTaken<'a> {
    pub(super) tenant: TenantId,
    /// Id of the request.
    pub(super) id: Uuid,
    /// Name of the step.
    pub(super) step: &'a str,
    /// Server and tool of the request.
    pub(super) names: (&'a str, &'a str),
}

/// Request that moved, with its server and tool.
pub(super) type Moved = (Uuid, String, String);

impl<'a> StepTaken<'a> {
    pub(super) fn of(tenant: TenantId, (id, server, tool): &'a Moved, step: &'a str) -> StepTaken<'a> {
        StepTaken { tenant, id: *id, step, names: (server, tool) }
    }
}

impl Store {
    /// Runs a transaction that takes steps; again, with a partition of the log for their day, if there was none.
    pub(super) async fn stepping<T, F>(
        &self,
        author: &StepAuthor,
        transaction: impl Fn() -> F + Send,
    ) -> Result<T, StoreError>
    where
        F: Future<Output = Result<T, StoreError>> + Send,
    {
        let days = async { Ok(BTreeSet::from([author.record.started_at().date_naive()])) };
        self.with_partitions(days, transaction).await
    }
}

impl StepAuthor {
    fn record_of(&self, taken: &StepTaken<'_>, nth: usize) -> Record {
        let mut record = self.record.clone();
        record.id = Ulid::from_parts(record.id.timestamp_ms(), record.id.random().wrapping_add(nth as u128));
        record.tenant = taken.tenant;
        record.tool = Some(format!("consent.{}", taken.step));
        record.consent_id = Some(taken.id);
        let (server, tool) = taken.names;
        record.server = Some(server.to_owned());
        record.arguments = Some(serde_json::json!({ "tool": tool }).to_string());
        record
    }
}

/// Records steps, as the last statements of their transaction: the tenant's role ends with them.
pub(super) async fn write(
    tx: &mut Unit,
    author: &StepAuthor,
    steps: &[StepTaken<'_>],
) -> Result<(), StoreError> {
    for taken in steps {
        revisions::tell_consent(tx, taken.tenant, taken.id).await?;
    }
    let records: Vec<Record> =
        steps.iter().enumerate().map(|(nth, taken)| author.record_of(taken, nth)).collect();
    activity_write::insert_within(tx, author.replica, &records.iter().collect::<Vec<_>>()).await
}
