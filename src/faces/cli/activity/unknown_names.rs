//! Notes about a filter of `mcpproxy activity list` that names no server or tool.

use super::super::client::{ApiClient, ApiQuery};
use super::super::failure::Failure;
use super::super::output::{self, text};
use super::Filter;
use crate::domain::near;

/// Kinds of records whose `tool` is that of a server.
const OF_TOOLS: [&str; 3] = ["tool_call", "direct_call", "late_outcome"];
/// Tools of the gateway itself that records name.
const OWN_TOOLS: [&str; 2] = ["retrieve_tools", "read_cache"];

/// Names that a list of records was filtered by.
pub(super) struct FilteredNames {
    server: Option<String>,
    /// Tool, as TOOL or SERVER:TOOL; `None` also where it is an act of an administrator.
    tool: Option<String>,
}

impl FilteredNames {
    /// Returns the names in a filter.
    pub(super) fn of(filter: &Filter) -> FilteredNames {
        let is_of_tools = filter.kind.as_deref().is_none_or(|kind| OF_TOOLS.contains(&kind));
        let tool = filter.tool.clone().filter(|tool| is_of_tools && !OWN_TOOLS.contains(&&**tool));
        FilteredNames { server: filter.server.clone(), tool }
    }

    /// Says which of the names is none of a server or tool now. A key that may not see servers is told nothing.
    pub(super) async fn note_unknown(&self, client: &ApiClient) {
        // a refused read would be a record of its own
        if (self.server.is_none() && self.tool.is_none()) || !client.sees_servers().await {
            return;
        }
        if let Ok(Some(sentence)) = self.sentence(client).await {
            output::note(&sentence);
        }
    }

    async fn sentence(&self, client: &ApiClient) -> Result<Option<String>, Failure> {
        let servers = client.list(&["servers"], &ApiQuery::default(), usize::MAX).await?;
        let servers: Vec<String> =
            servers.iter().map(|server| text(&output::parsed(server), "name")).collect();
        let unknown = self.server.as_ref().filter(|server| !servers.contains(server));
        if let Some(server) = unknown {
            return Ok(Some(unknown_server(server, &servers)));
        }
        let Some(tool) = &self.tool else { return Ok(None) };
        let mut tools = Vec::new();
        for server in servers.iter().filter(|server| self.server.as_ref().is_none_or(|only| only == *server))
        {
            let listed = client.list(&["servers", server, "tools"], &ApiQuery::default(), usize::MAX).await?;
            tools.extend(
                listed.iter().map(|tool| format!("{server}:{}", text(&output::parsed(tool), "name"))),
            );
        }
        Ok(unknown_tool(tool, &tools))
    }
}

fn unknown_server(name: &str, known: &[String]) -> String {
    let meant = near::closest(name, known.iter().map(String::as_str));
    let meant = meant.map(|meant| format!("; did you mean '{meant}'?")).unwrap_or_default();
    format!("no server has the name '{name}' now{meant}")
}

/// Returns the sentence about a tool that is not among `known`, which are named SERVER:TOOL; `None` for one that is.
fn unknown_tool(name: &str, known: &[String]) -> Option<String> {
    let is_it = |tool: &String| tool == name || tool.split_once(':').is_some_and(|(_, own)| own == name);
    if known.iter().any(is_it) {
        return None;
    }
    let mut sorted: Vec<&str> = known.iter().map(String::as_str).collect();
    sorted.sort_unstable();
    match near::tool(name, &sorted) {
        Some(meant) => Some(format!("no tool has the name '{name}' now; did you mean '{meant}'?")),
        // without --type it may be an act such as servers.create, or a request such as prompts/get NAME
        None if !name.contains(':') && name.contains(['.', '/']) => None,
        None => Some(format!("no tool has the name '{name}' now")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_names_come_with_what_was_meant() {
        let known = ["github:delete_repo", "ops:query"].map(str::to_owned);
        for (name, says) in [
            ("query", None),
            ("ops:query", None),
            ("delete_rep", Some("no tool has the name 'delete_rep' now; did you mean 'github:delete_repo'?")),
            ("gihub:delete_repo", Some("did you mean 'github:delete_repo'?")),
            ("unheard", Some("no tool has the name 'unheard' now")),
            ("servers.create", None),
            ("prompts/get greet", None),
        ] {
            let said = unknown_tool(name, &known);
            assert_eq!(said.is_some(), says.is_some(), "{name}: {said:?}");
            assert!(said.unwrap_or_default().ends_with(says.unwrap_or_default()), "{name}");
        }
        let servers = ["github", "ops"].map(str::to_owned);
        let says = "no server has the name 'gihub' now; did you mean 'github'?";
        assert_eq!(unknown_server("gihub", &servers), says);
        assert_eq!(unknown_server("nothing", &servers), "no server has the name 'nothing' now");
    }
}
