//! State of servers, as REST and the console show it.

use crate::domain::server::ConnectionState;
use crate::domain::server_login::LoginState;
use crate::gateway::ServerView;

/// Returns whether an administrator has to act before the gateway can log in at a server.
pub(in crate::faces) fn wants_login(server: &ServerView) -> bool {
    match &server.oauth {
        Some(oauth) => oauth.state == LoginState::LoginRequired.as_str(),
        // of the last listing, unless the server was switched or moved since
        None => server.wants_login && server.connection == ConnectionState::Disconnected,
    }
}

/// Returns the state of the connection to a server, or that a login is missing.
pub(in crate::faces) fn connection(server: &ServerView) -> &str {
    if wants_login(server) { LoginState::LoginRequired.as_str() } else { server.connection.as_str() }
}

/// Returns whether the gateway is connected to a server, and logged in where it wants that.
pub(in crate::faces) fn is_connected(server: &ServerView) -> bool {
    !wants_login(server) && server.connection == ConnectionState::Connected
}

/// Returns the last errors of a server and of its prompts and resources, joined; `None` without any.
pub(in crate::faces) fn last_error(server: &ServerView) -> Option<String> {
    let both: Vec<&str> =
        [&server.last_error, &server.offers_error].into_iter().flatten().map(|text| &**text).collect();
    (!both.is_empty()).then(|| both.join("; "))
}
