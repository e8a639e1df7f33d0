//! Being connected wears off, on the one replica that holds the lease for it: not the lease for listing, since
//! a replica that lists too slowly is one of the reasons.

use std::sync::Arc;
use std::time::{Duration, Instant};

use chrono::{DateTime, Utc};

use super::{Gateway, report, sleep_or_stop};
use crate::store::{Kind, Server, StoreError};

/// Tenants looked after at one time; the rest comes next time.
const TENANTS_MAX: i64 = 500;

/// How often it is looked which connected servers have been silent for too long, at most.
const LOOK: Duration = Duration::from_secs(5);

impl Gateway {
    /// Lets being connected wear off for as long as the gateway runs. While the database is away nothing can be
    /// noted of any server, so afterwards, and after the start, there is time for one listing of each first.
    pub(super) async fn wear_off(self: Arc<Self>) {
        let pause = LOOK.min(self.options.connected_for / 4);
        let mut since = Instant::now();
        while !sleep_or_stop(pause, &self.stop).await {
            let looked = match since.elapsed() >= self.options.relist_interval {
                true => self.wear_off_once().await,
                false => self.store.take_lease("wear-off", self.replica).await.map(drop),
            };
            if looked.is_err() {
                since = Instant::now();
            }
            report("wearing off", looked);
        }
    }

    /// Takes servers for disconnected that nobody has reached for too long.
    async fn wear_off_once(&self) -> Result<(), StoreError> {
        let Some(lease) = self.store.take_lease("wear-off", self.replica).await? else { return Ok(()) };
        let silent_s = self.options.connected_for.as_secs_f64();
        for tenant in self.store.tenants_to_wear_off(silent_s, TENANTS_MAX).await? {
            if let Some(rev) = self.store.wear_off(tenant, silent_s, &lease).await? {
                tracing::info!(%tenant, "servers that gave no sign of life are taken for disconnected");
                self.applied(tenant, Kind::Catalogue, rev).await;
            }
        }
        Ok(())
    }
}

/// A server as it is at `now`: nobody may have written down yet that it wore off.
pub(in crate::gateway) fn as_of(mut server: Server, now: DateTime<Utc>, connected_for: Duration) -> Server {
    let is_old = |at| now.signed_duration_since(at).to_std().unwrap_or_default() > connected_for;
    if server.connection == "connected" && server.last_ok_at.is_none_or(is_old) {
        "disconnected".clone_into(&mut server.connection);
    }
    server
}

#[cfg(test)]
mod tests {
    use super::*;

    fn server(connection: &str, last_ok_s: Option<i64>) -> Server {
        let last_ok_at = last_ok_s.and_then(|s| DateTime::from_timestamp(s, 0));
        Server { connection: connection.into(), last_ok_at, ..Server::example() }
    }

    #[test]
    fn connected_wears_off() {
        let now = DateTime::from_timestamp(1000, 0).unwrap();
        for (stored, last_ok_s, expected) in [
            ("connected", Some(1000), "connected"),
            ("connected", Some(1001), "connected"),
            ("connected", Some(940), "connected"),
            ("connected", Some(939), "disconnected"),
            ("connected", None, "disconnected"),
            ("unknown", Some(1000), "unknown"),
            ("disconnected", Some(1000), "disconnected"),
        ] {
            let shown = as_of(server(stored, last_ok_s), now, Duration::from_secs(60));
            assert_eq!(shown.connection, expected, "{stored} {last_ok_s:?}");
        }
    }
}
