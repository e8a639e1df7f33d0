//! Expiry of the state `connected`.

use std::time::Duration;

use chrono::{DateTime, Utc};

use crate::domain::server::ConnectionState;
use crate::store::Server;

/// Returns a server as of `now`: it is disconnected after `connected_for` without a sign of life, web pages after
/// `pages_connected_for`, even if the row does not say so yet.
pub(super) fn as_of(
    mut server: Server,
    now: DateTime<Utc>,
    (connected_for, pages_connected_for): (Duration, Duration),
) -> Server {
    let connected_for = if server.web_page.is_some() { pages_connected_for } else { connected_for };
    let is_old = |at| now.signed_duration_since(at).to_std().unwrap_or_default() > connected_for;
    if server.connection == ConnectionState::Connected && server.last_ok_at.is_none_or(is_old) {
        server.connection = ConnectionState::Disconnected.into();
    }
    server
}

#[cfg(test)]
mod tests {
    use super::ConnectionState::{Connected, Disconnected, Unknown};
    use super::*;

    fn server(connection: ConnectionState, last_ok_s: Option<i64>) -> Server {
        let last_ok_at = last_ok_s.and_then(|s| DateTime::from_timestamp(s, 0));
        Server { connection: connection.into(), last_ok_at, ..Server::example() }
    }

    #[test]
    fn connected_wears_off() {
        let now = DateTime::from_timestamp(1000, 0).unwrap();
        for (stored, last_ok_s, expected) in [
            (Connected, Some(1000), Connected),
            (Connected, Some(1001), Connected),
            (Connected, Some(940), Connected),
            (Connected, Some(939), Disconnected),
            (Connected, None, Disconnected),
            (Unknown, Some(1000), Unknown),
            (Disconnected, Some(1000), Disconnected),
        ] {
            let shown =
                as_of(server(stored, last_ok_s), now, (Duration::from_secs(60), Duration::from_secs(9)));
            assert_eq!(shown.connection, expected, "{stored:?} {last_ok_s:?}");
        }
    }
}
