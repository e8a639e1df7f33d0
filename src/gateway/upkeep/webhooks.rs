//! Delivery of events to webhooks. Any replica delivers: each holds the events that it works on.

use std::sync::Arc;
use std::time::Duration;

use super::Upkeep;
use crate::domain::backoff::{Backoff, chance};
use crate::gateway::consent::LOOK;

/// First pause while the events cannot be read; doubles up to [`LOOK`].
const RETRY_MIN: Duration = Duration::from_millis(250);
/// Shortest pause between two looks at the events, however much is heard of.
const GATHER: Duration = Duration::from_millis(10);
/// Name of the job, in logs.
const JOB: &str = "webhooks";

impl Upkeep {
    /// Delivers events until the gateway stops.
    pub(super) async fn deliver_webhooks(self: Arc<Self>) {
        let mut backoff = Backoff::new(RETRY_MIN, LOOK);
        loop {
            let looked = tokio::select! {
                () = self.life.stop.cancelled() => return,
                looked = self.consent.deliver_due() => looked,
            };
            let pause = match &looked {
                Ok(pause) => {
                    backoff.reset();
                    *pause
                }
                Err(_) => backoff.jittered(chance()),
            };
            let is_away = looked.is_err();
            self.report_once(JOB, looked.map(drop));
            tokio::select! {
                () = self.life.stop.cancelled() => return,
                () = self.consent.deliveries().woken(), if !is_away => tokio::time::sleep(GATHER).await,
                () = tokio::time::sleep(pause.max(GATHER)) => {}
            }
        }
    }
}
