//! The question whether a server leaves quarantine, and what becomes of the definitions that wait there.

use axum::response::Response;

use super::{href_of, offers, question};
use crate::faces::console::nav::Section;
use crate::faces::console::page_visit::PageVisit;
use crate::faces::console::question::ActQuestion;
use crate::faces::console::text::short;
use crate::faces::query::cursor::{DEFINITIONS_BYTES_MAX, DEFINITIONS_MEMORY_BYTES};
use crate::faces::query::params::NONE;
use crate::gateway::{GatewayError, ServerView};

/// Most tools that are looked at for the names of those that wait, and the most names in a question.
const TOOLS_LOOKED_AT: i64 = 100;
const NAMED_MAX: usize = 10;
/// Longest name of a tool in a question, in characters.
const NAME_CHARS_MAX: usize = 80;

/// Returns whether a release approves the definitions that wait: the first listing of a released server is its baseline, and
/// later ones approve where the server is set to.
pub(super) fn approves_all(server: &ServerView) -> bool {
    !server.baselined || server.auto_approve
}

/// Returns the number of a server's tools that wait for a decision; `None` if this replica does not know it.
pub(super) fn waiting_at(visit: &PageVisit, server: &str) -> Option<usize> {
    let states = visit.caller().catalogue()?.states();
    states.get(server).map(|state| state.pending + state.changed)
}

/// Shows the question, or that there is nothing to release.
///
/// # Errors
/// Error of the role or of separation of duties, or of the read.
pub(super) async fn ask(visit: &PageVisit, name: &str) -> Result<Response, GatewayError> {
    visit.given(NONE)?;
    let server = question::server(visit, name).await?;
    if !server.quarantined {
        let text = format!("{} is not in quarantine.", server.name);
        let link = (&*href_of(&server.name), &*server.name);
        let error = GatewayError::Conflict(text.clone());
        return Ok(visit.failed_at(Section::Servers, &error, &text, link));
    }
    if !visit.gateway().servers.may_approve(visit.caller(), &server) {
        let text = "Somebody else than who added or last moved this server releases it, with the role operator or admin.";
        return Err(GatewayError::Forbidden(text.to_owned()));
    }
    let (waiting, offers) = (waiting_at(visit, &server.name), offers::waiting_at(visit, &server.name));
    let named = match waiting {
        Some(0) => String::new(),
        _ => names_of_waiting(visit, &server.name).await?,
    };
    let asked = ActQuestion {
        act: format!("Release {} from quarantine", server.name),
        says: consequences(&server, (waiting, offers), &named).into(),
        keep: "Keep it in quarantine",
        verb: "unquarantine",
    };
    question::ask(visit, server.name, asked).await
}

/// Returns what a release of a server does, at which these numbers of tools, and of prompts and resources, wait. `named`: names of some of them, in brackets.
fn consequences(server: &ServerView, (waiting, offers): (Option<usize>, usize), named: &str) -> String {
    const THEN: &str = "Agents can call its approved tools from then on.";
    match waiting {
        Some(0) if !server.baselined && offers == 0 => {
            "No definition is known yet. Those of its first listing are approved, whatever they are, and agents can call the tools \
             from then on."
                .to_owned()
        }
        Some(0) if offers == 0 => format!("No definition waits. {THEN}"),
        Some(0) if !approves_all(server) => {
            format!("No tool waits; prompts and resources that do still wait after that. {THEN}")
        }
        waiting if approves_all(server) => {
            let tools = match waiting {
                None => "Definitions of tools that wait are".to_owned(),
                Some(0) => "No tool waits. The definitions of its prompts and resources that wait are".to_owned(),
                Some(1) => format!("The definition of 1 tool that waits{named} is"),
                Some(number) => format!("The definitions of {number} tools that wait{named} are"),
            };
            let when = if server.enabled { "you press" } else { "the server is enabled" };
            let offers = match offers {
                _ if waiting == Some(0) => String::new(),
                0 => String::new(),
                1 => " So is that of 1 prompt or resource.".to_owned(),
                number => format!(" So are those of {number} prompts and resources."),
            };
            format!(
                "{tools} approved, as offered when {when}, and agents can call the tools from then on.{offers} Read them first, on the page \
                 of the server. What is blocked stays blocked."
            )
        }
        None => format!("Tools whose definitions wait{named} still wait after that: each is approved on its page. {THEN}"),
        Some(1) => format!("1 tool{named} still waits after that: it is approved on its page. {THEN}"),
        Some(number) => {
            format!("{number} tools{named} still wait after that: each is approved on its page. {THEN}")
        }
    }
}

/// Returns the names of some tools whose definitions wait, in brackets; empty if none is among the first.
async fn names_of_waiting(visit: &PageVisit, server: &str) -> Result<String, GatewayError> {
    visit.expect(DEFINITIONS_MEMORY_BYTES).await?;
    let bounds = (TOOLS_LOOKED_AT, DEFINITIONS_BYTES_MAX);
    let tools = visit.gateway().servers.list_server_tools(visit.caller(), server, ("", true), bounds).await?;
    let mut waiting = tools.iter();
    let names: Vec<String> =
        waiting.by_ref().take(NAMED_MAX).map(|tool| short(&tool.name, NAME_CHARS_MAX)).collect();
    let more = if waiting.next().is_some() { ", …" } else { "" };
    Ok(if names.is_empty() { String::new() } else { format!(" ({}{more})", names.join(", ")) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_release_says_what_becomes_of_definitions_that_wait() {
        let says = |(baselined, auto_approve): (bool, bool), waiting: Option<usize>| {
            let server = ServerView { baselined, auto_approve, ..ServerView::example() };
            consequences(&server, (waiting, 0), if waiting == Some(0) { "" } else { " (t)" })
        };
        for takes in [(false, false), (false, true), (true, true)] {
            assert!(
                says(takes, Some(1)).starts_with("The definition of 1 tool that waits (t) is approved, as")
            );
            assert!(
                says(takes, None)
                    .starts_with("Definitions of tools that wait are approved, as offered when you press")
            );
        }
        assert!(says((false, false), Some(0)).contains("first listing are approved, whatever they are"));
        assert!(says((true, true), Some(0)).starts_with("No definition waits. Agents"));
        let (one, two, some) =
            (says((true, false), Some(1)), says((true, false), Some(2)), says((true, false), None));
        assert!(
            one.starts_with("1 tool (t) still waits after that: it is approved on its page. Agents"),
            "{one}"
        );
        assert!(two.starts_with("2 tools (t) still wait after that: each is approved"), "{two}");
        assert!(some.contains("still wait after that"), "{some}");
        let with_offers = |baselined, waiting| {
            let server = ServerView { baselined, ..ServerView::example() };
            consequences(&server, (Some(waiting), 2), "")
        };
        assert!(with_offers(false, 1).contains("So are those of 2 prompts and resources."));
        let alone = with_offers(false, 0);
        assert!(
            alone.starts_with(
                "No tool waits. The definitions of its prompts and resources that wait are approved"
            ),
            "{alone}"
        );
        assert!(with_offers(true, 0).starts_with("No tool waits; prompts and resources that do still wait"));
    }
}
