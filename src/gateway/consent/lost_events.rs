//! Events that no webhook is told of: their time is over, or their tenant has too many. Each leaves a record and is counted.

use super::deliver::record_of;
use super::{Consent, SWEEP_BATCH};
use crate::domain::activity::{Record, Status};
use crate::store::{LostEvent, StoreError, WEBHOOK_EVENTS_MAX};

impl Consent {
    /// Deletes the events that are not to be tried any more, in batches. Then the next events of their requests are due.
    ///
    /// # Errors
    /// The database is out of reach or fails.
    pub(in crate::gateway) async fn lose_events(&self) -> Result<(), StoreError> {
        loop {
            let lost = self.store.lose_webhook_events(SWEEP_BATCH, self.options.replica, record).await?;
            for event in &lost {
                match event.is_over {
                    true => self.deliveries.given_up.one(),
                    false => self.deliveries.dropped.one(),
                }
            }
            if !lost.is_empty() {
                self.deliveries.wake();
            }
            // a batch that is not full was the last
            if lost.len() < usize::try_from(SWEEP_BATCH).unwrap_or_default() {
                return Ok(());
            }
        }
    }
}

fn record(event: &LostEvent) -> Record {
    let names = event.server.clone().zip(event.tool.clone());
    let mut record =
        record_of((event.tenant(), event.request_id), names, (event.state.as_str(), event.tries));
    record.status = Status::Error;
    record.error_message = Some(match event.is_over {
        true => "the event's time was over before it could be delivered".to_owned(),
        false => format!("the event was dropped: more than {WEBHOOK_EVENTS_MAX} events of the tenant waited"),
    });
    record
}
