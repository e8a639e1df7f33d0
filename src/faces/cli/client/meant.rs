//! Names that a command most likely meant, where the gateway knows no server or tool of the name that was given.

use serde_json::Value;

use super::{ApiClient, ApiQuery};
use crate::domain::near;
use crate::domain::tenant::Action;
use crate::faces::cli::failure::Failure;
use crate::faces::cli::output::{parsed, text};

impl ApiClient {
    /// Returns a failure with the server or tool that was most likely meant by `path`, where one is close; else the failure as
    /// it is. A key that may not see servers is told nothing.
    pub(super) async fn with_meant(&self, failure: Failure, path: &[&str]) -> Failure {
        let (Failure::NotFound(sentence), ["servers", server, rest @ ..]) = (&failure, path) else {
            return failure;
        };
        if !self.may(Action::SeeServers).await {
            return failure;
        }
        let Ok(servers) = self.names(&["servers"]).await else { return failure };
        let meant = match rest {
            _ if !servers.iter().any(|known| known == server) => closest(server, &servers),
            ["tools", tool, ..] => {
                let tools = self.names(&["servers", server, "tools"]).await.unwrap_or_default();
                closest(tool, &tools).map(|tool| format!("{server}:{tool}"))
            }
            _ => None,
        };
        match meant {
            Some(meant) => Failure::NotFound(format!("{sentence}; did you mean '{meant}'?")),
            None => failure,
        }
    }

    /// Returns the tool that this key can call and that `name` was most likely meant to be; `None` if none is close, or if that
    /// cannot be found out. Searches for the words of the name.
    pub(in crate::faces::cli) async fn meant_tool(&self, name: &str) -> Option<String> {
        let mut query = ApiQuery::default();
        query.add("query", Some(name.replace([':', '_', '-'], " ")));
        query.add("limit", Some("100".to_owned()));
        query.add("detail", Some("compact".to_owned()));
        let found = self.get(&["tools"], &query).await.ok()?.json().ok()?;
        let found = found.get("tools").and_then(Value::as_array)?;
        let names: Vec<String> = found.iter().map(|tool| text(tool, "name")).collect();
        let mut names: Vec<&str> = names.iter().map(String::as_str).collect();
        names.sort_unstable();
        near::tool(name, &names)
    }

    async fn names(&self, path: &[&str]) -> Result<Vec<String>, Failure> {
        let listed = Box::pin(self.list(path, &ApiQuery::default(), usize::MAX)).await?;
        Ok(listed.iter().map(|item| text(&parsed(item), "name")).collect())
    }
}

fn closest(name: &str, known: &[String]) -> Option<String> {
    near::closest(name, known.iter().map(String::as_str)).map(str::to_owned)
}
