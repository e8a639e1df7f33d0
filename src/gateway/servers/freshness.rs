//! Expiry of the state `connected`.

use std::time::Duration;

use chrono::{DateTime, Utc};

use crate::store::Server;

/// Returns a server as of `now`: it is disconnected after `connected_for` without a sign of life, even if the row does not
/// say so yet.
pub(super) fn as_of(mut server: Server, now: DateTime<Utc>, connected_for: Duration) -> Server {
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
