//! Notes about a filter of `mcpproxy activity list` that names no server, tool, key or owner.

use super::super::client::{ApiClient, ApiQuery};
use super::super::failure::Failure;
use super::super::output::{self, text};
use super::Filter;
use crate::domain::near;
use crate::domain::tenant::Action;

/// Kinds of records whose `tool` is that of a server.
const OF_TOOLS: [&str; 3] = ["tool_call", "direct_call", "late_outcome"];
/// Tools of the gateway itself that records name.
const OWN_TOOLS: [&str; 2] = ["retrieve_tools", "read_cache"];

/// Names that a list of records was filtered by.
pub(super) struct FilteredNames {
    server: Option<String>,
    /// Tool, as TOOL or SERVER:TOOL; `None` also where it is an act of an administrator.
    tool: Option<String>,
    /// Name or id of a key.
    key: Option<String>,
    /// Owner of keys.
    owner: Option<String>,
}

impl FilteredNames {
    /// Returns the names in a filter.
    pub(super) fn of(filter: &Filter) -> FilteredNames {
        let is_of_tools = filter.kind.as_deref().is_none_or(|kind| OF_TOOLS.contains(&kind));
        let tool = filter.tool.clone().filter(|tool| is_of_tools && !OWN_TOOLS.contains(&&**tool));
        FilteredNames {
            server: filter.server.clone(),
            tool,
            key: filter.key.clone(),
            owner: filter.owner.clone(),
        }
    }

    /// Says which of the names is none of a server, tool, key or owner now. A key that may not see them is told nothing.
    pub(super) async fn note_unknown(&self, client: &ApiClient) {
        // a refused read would be a record of its own
        let of_servers = self.server.is_some() || self.tool.is_some();
        if of_servers
            && client.may(Action::SeeServers).await
            && let Ok(Some(sentence)) = self.sentence(client).await
        {
            output::note(&sentence);
        }
        let of_keys = self.key.is_some() || self.owner.is_some();
        if of_keys
            && client.may(Action::ManageKeys).await
            && let Ok(sentences) = self.about_keys(client).await
        {
            sentences.iter().for_each(|sentence| output::note(sentence));
        }
    }

    async fn about_keys(&self, client: &ApiClient) -> Result<Vec<String>, Failure> {
        let keys = client.list(&["keys"], &ApiQuery::default(), usize::MAX).await?;
        let values =
            |name: &str| -> Vec<String> { keys.iter().map(|key| text(&output::parsed(key), name)).collect() };
        let mut sentences = Vec::new();
        let (ids, names) = (values("id"), values("name"));
        if let Some(key) = self.key.as_ref().filter(|key| !ids.contains(key) && !names.contains(key)) {
            sentences.push(unknown("no key", key, &names));
        }
        // people who log in own records without a key
        let mut owners = values("owner");
        let people = client.list(&["identities"], &ApiQuery::default(), usize::MAX).await?;
        owners.extend(people.iter().map(|person| text(&output::parsed(person), "owner")));
        if let Some(owner) = self.owner.as_ref().filter(|owner| !owners.contains(owner)) {
            sentences.push(unknown("no owner of a key, and nobody who logged in,", owner, &owners));
        }
        Ok(sentences)
    }

    async fn sentence(&self, client: &ApiClient) -> Result<Option<String>, Failure> {
        let servers = client.list(&["servers"], &ApiQuery::default(), usize::MAX).await?;
        let servers: Vec<String> =
            servers.iter().map(|server| text(&output::parsed(server), "name")).collect();
        if let Some(server) = self.server.as_ref().filter(|server| !servers.contains(server)) {
            return Ok(Some(unknown("no server", server, &servers)));
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

/// Returns the sentence that nothing of a kind has a name, with the one of `known` that was most likely meant.
fn unknown(nothing: &str, name: &str, known: &[String]) -> String {
    let meant = near::closest(name, known.iter().map(String::as_str));
    let meant = meant.map(|meant| format!("; did you mean '{meant}'?")).unwrap_or_default();
    format!("{nothing} has the name '{name}' now{meant}")
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
        assert_eq!(unknown("no server", "gihub", &servers), says);
        assert_eq!(unknown("no server", "nothing", &servers), "no server has the name 'nothing' now");
    }
}
