//! Notices of acts on servers and tools, for the pages that the acts lead to.

use super::facts;
use super::release::{approves_all, waiting_at};
use super::verbs::{OfferVerb, ServerVerb, ToolVerb};
use crate::domain::server::ConnectionState;
use crate::faces::console::page_visit::PageVisit;
use crate::faces::console::text::short;
use crate::faces::query::server::last_error;
use crate::gateway::{OfferView, ServerView, ToolView};

/// Longest name of a tool in a notice, in characters.
const NAME_CHARS_MAX: usize = 80;

/// Returns the notice of an act on a server. `after`: the server after the act; `None` if the act does not return it.
pub(super) fn of_server(
    visit: &PageVisit,
    verb: ServerVerb,
    name: &str,
    after: Option<&ServerView>,
) -> String {
    let listed = after.map(trouble).unwrap_or_default();
    match verb {
        ServerVerb::Enable => format!("{name} is enabled.{listed}"),
        ServerVerb::Disable => format!("{name} is disabled."),
        ServerVerb::Quarantine => format!("{name} is in quarantine."),
        ServerVerb::Unquarantine => {
            let waiting = waiting_at(visit, name).unwrap_or_default();
            let waits = still_waiting(waiting, after.is_some_and(approves_all));
            format!("{name} is released from quarantine.{waits}{listed}")
        }
        ServerVerb::Refresh | ServerVerb::Restart => {
            format!("Tried now:{}", after.map(tried).unwrap_or_default())
        }
        // after what the form changed
        ServerVerb::Update => listed.to_owned(),
        ServerVerb::Remove => format!("The server {name} was removed."),
        ServerVerb::RemoveOauth => format!("The login at {name} is removed."),
        ServerVerb::Disconnect => "The login is forgotten.".to_owned(),
    }
}

/// Returns the notice of the addition of a server.
pub(super) fn of_addition(server: &ServerView) -> String {
    let held = match server.quarantined {
        true => " It waits in quarantine.",
        false if server.connection == ConnectionState::Connected && server.offers_error.is_none() => {
            " All that it offers now is approved."
        }
        false => "",
    };
    format!("{} is added.{held}{}", server.name, trouble(server))
}

/// Returns the notice of an act on a tool. `after`: the tool after the act.
pub(super) fn of_tool(visit: &PageVisit, verb: ToolVerb, after: &ToolView) -> String {
    let name = short_name(&after.name);
    match verb {
        ToolVerb::Approve => format!("The definition of {name} is approved."),
        ToolVerb::Block => format!("{name} is blocked."),
        ToolVerb::Unblock => format!("The block of {name} is lifted. Its state is {}.", after.state.as_str()),
        ToolVerb::Override => {
            let tier = facts(after, visit.caller().settings.unannotated_tools).0;
            format!("The override of {name} is set. Its tier is {} now.", tier.as_str())
        }
        ToolVerb::ClearOverride => format!("The override of {name} is removed."),
    }
}

/// Returns the notice of an act on a prompt, resource or template. `after`: the offer after the act.
pub(super) fn of_offer(verb: OfferVerb, after: &OfferView) -> String {
    let name = short_name(&after.name);
    match verb {
        OfferVerb::Approve => format!("The definition of {name} is approved."),
        OfferVerb::Block => format!("{name} is blocked."),
        OfferVerb::Unblock => {
            format!("The block of {name} is lifted. Its state is {}.", after.state().as_str())
        }
    }
}

/// Returns the name of a tool for a sentence.
pub(super) fn short_name(tool: &str) -> String {
    short(tool, NAME_CHARS_MAX)
}

/// Returns a sentence about tools that still wait, after a space; empty if none does. `is_by_listing`: the next listing approves them.
fn still_waiting(number: usize, is_by_listing: bool) -> String {
    match (number, is_by_listing) {
        (0, _) => String::new(),
        (1, false) => " 1 tool still waits: it is approved on its page.".to_owned(),
        (1, true) => " 1 tool still waits: it is approved when the server is listed.".to_owned(),
        (number, false) => format!(" {number} tools still wait: each is approved on its page."),
        (number, true) => format!(" {number} tools still wait: they are approved when the server is listed."),
    }
}

/// Returns a sentence about a listing that failed, after a space; empty without one. The error itself is on the page, and not in its address,
/// which proxies log.
fn trouble(server: &ServerView) -> &'static str {
    match server.enabled && server.connection != ConnectionState::Connected {
        true => " It could not be listed: see the last error below.",
        false => "",
    }
}

/// Returns what a listing came to, after a space.
fn tried(server: &ServerView) -> String {
    let name = &server.name;
    match (server.connection == ConnectionState::Connected, last_error(server).is_some()) {
        (true, false) => format!(" {name} is connected, and its tools are listed."),
        (true, true) => format!(" {name} is connected, and its tools are listed; see the last error below."),
        (false, _) => format!(" {name} could not be listed: see the last error below."),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_listing_says_what_it_came_to() {
        let server = |connection: ConnectionState, error: Option<&str>| ServerView {
            connection: connection.into(),
            last_error: error.map(str::to_owned),
            ..ServerView::example()
        };
        let away = server(ConnectionState::Disconnected, Some("refused"));
        let there = server(ConnectionState::Connected, None);
        let partly = server(ConnectionState::Connected, Some("1 tool is left out"));
        assert_eq!(tried(&away), " up could not be listed: see the last error below.");
        assert_eq!(
            tried(&server(ConnectionState::Disconnected, None)),
            " up could not be listed: see the last error below."
        );
        assert_eq!(tried(&there), " up is connected, and its tools are listed.");
        assert_eq!(tried(&partly), " up is connected, and its tools are listed; see the last error below.");
        assert_eq!(of_addition(&away), "up is added. It could not be listed: see the last error below.");
        assert_eq!(
            of_addition(&ServerView { quarantined: true, ..there }),
            "up is added. It waits in quarantine."
        );
        assert_eq!(
            still_waiting(2, true),
            " 2 tools still wait: they are approved when the server is listed."
        );
        assert_eq!(trouble(&ServerView { enabled: false, ..away }), "");
    }
}
