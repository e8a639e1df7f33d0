//! `mcpproxy status`: identity of the key, and state of the gateway.

use clap::Args;
use serde_json::Value;

use super::client::ApiQuery;
use super::connection::ApiConnection;
use super::failure::Failure;
use super::output::{self, Output};
use super::show;
use crate::domain::json;

/// `mcpproxy status`
#[derive(Args)]
pub struct StatusCommand {
    #[command(flatten)]
    output: Output,
    #[command(flatten)]
    connection: ApiConnection,
}

impl StatusCommand {
    pub(super) async fn run(self) -> Result<(), Failure> {
        let answer = self.connection.client()?.get(&["status"], &ApiQuery::default()).await?;
        self.output.thing(&answer.text, lines)
    }
}

/// Formats the status. The settings come last, one per line.
fn lines(raw: &str) -> String {
    let Ok(members) = json::members(raw) else { return output::safe(raw) };
    let (settings, status): (Vec<_>, Vec<_>) = members.iter().partition(|member| member.name == "settings");
    let settings: Vec<_> =
        settings.iter().filter_map(|member| json::members(member.value).ok()).flatten().collect();
    let value = |text: &str| serde_json::from_str(text).unwrap_or_default();
    let names = status.iter().map(|member| &member.name).chain(settings.iter().map(|member| &member.name));
    let width = names.map(|name| name.chars().count()).max().unwrap_or_default();
    let mut out: String =
        status.iter().map(|member| show::field(&member.name, &value(member.value), width)).collect();
    if !settings.is_empty() {
        out.push_str("\nsettings of this key:\n");
    }
    for member in &settings {
        let shown = match value(member.value) {
            // a list on one line, as --set takes it
            list @ Value::Array(_) => Value::String(list.to_string()),
            other => other,
        };
        out.push_str(&show::field(&member.name, &shown, width));
    }
    out
}

#[cfg(test)]
mod tests {
    use super::lines;

    #[test]
    fn settings_are_shown_one_a_line() {
        let raw = r#"{"role":"agent","suspended":false,"settings":{"max_operation":"read","allowed_tools":["*:list_*"],"allowed_tools_from":"key","rate_limit":null}}"#;
        let want = "role:                agent\nsuspended:           false\n\nsettings of this key:\n\
                    max_operation:       read\nallowed_tools:       [\"*:list_*\"]\nallowed_tools_from:  key\nrate_limit:          -\n";
        assert_eq!(lines(raw), want);
        // a gateway that does not report settings
        assert_eq!(lines(r#"{"role":"agent"}"#), "role:  agent\n");
    }
}
