//! Streams of events that a command follows until it is interrupted.

use std::time::Duration;

use super::client::{ApiClient, ApiEvents, ApiQuery};
use super::failure::Failure;
use super::output;
use crate::domain::backoff::Backoff;

/// Delay before the first attempt to reconnect; doubled after each failure.
const PAUSE_MIN: Duration = Duration::from_millis(500);
/// Longest delay between attempts to reconnect.
const PAUSE_MAX: Duration = Duration::from_secs(10);

/// Reconnects after the last event received, so that nothing is missed. Retries with backoff for as long as the gateway is
/// unreachable.
///
/// # Errors
/// The gateway refuses the stream.
pub(super) async fn again(
    client: &ApiClient,
    path: &[&str],
    query: &ApiQuery,
    last: Option<&str>,
) -> Result<ApiEvents, Failure> {
    let mut backoff = Backoff::new(PAUSE_MIN, PAUSE_MAX);
    let mut is_said = false;
    loop {
        tokio::time::sleep(backoff.delay()).await;
        match client.events(path, query, last).await {
            Ok(events) => {
                if is_said {
                    output::note("following again; nothing was missed");
                }
                return Ok(events);
            }
            Err(Failure::Unreachable(why)) => {
                if !is_said {
                    output::note(&format!("{why}; trying again until it is back"));
                    is_said = true;
                }
            }
            Err(failure) => return Err(failure),
        }
    }
}
