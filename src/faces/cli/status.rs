//! `mcpproxy status`: identity of the key, and state of the gateway.

use clap::Args;
use serde_json::Value;

use super::client::ApiQuery;
use super::connection::ApiConnection;
use super::failure::Failure;
use super::output::{self, Output};
use super::show;
use super::tally::ToolTally;
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

/// Members of the status that have members of their own, with their headings.
const SECTIONS: [(&str, &str); 3] = [
    ("settings", "settings of this key"),
    ("tools", "tools of this key"),
    ("consent", "permission requests"),
];

/// Formats the status. The sections come last, one value per line.
fn lines(raw: &str) -> String {
    let Ok(members) = json::members(raw) else { return output::safe(raw) };
    let heading =
        |name: &str| SECTIONS.iter().find(|(section, _)| *section == name).map(|(_, heading)| heading);
    let inner = |text| json::members(text).unwrap_or_default();
    let (sections, status): (Vec<_>, Vec<_>) =
        members.iter().partition(|member| heading(&member.name).is_some() && !inner(member.value).is_empty());
    let sections: Vec<_> =
        sections.iter().map(|member| (heading(&member.name), inner(member.value))).collect();
    let value = |text: &str| serde_json::from_str(text).unwrap_or_default();
    let names = status.iter().copied().chain(sections.iter().flat_map(|(_, members)| members));
    let width = names.map(|member| member.name.chars().count()).max().unwrap_or_default();
    let mut out: String =
        status.iter().map(|member| show::field(&member.name, &value(member.value), width)).collect();
    for (heading, members) in &sections {
        out.push_str(&format!("\n{}:\n", heading.copied().unwrap_or_default()));
        for member in members {
            let shown = match value(member.value) {
                // a list on one line, as --set takes it
                list @ Value::Array(_) => Value::String(list.to_string()),
                other => other,
            };
            out.push_str(&show::field(&member.name, &shown, width));
        }
    }
    let status: Value = value(raw);
    if let Some(meaning) = ToolTally::of_status(&status).and_then(|tally| tally.meaning(&status)) {
        out.push_str(&format!("\n{}.\n", output::safe(meaning.text())));
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
        let raw = r#"{"role":"agent","tools":{"total":3,"unannotated":1},"settings":{"unannotated_tools":"distrust"}}"#;
        let want = "role:               agent\n\ntools of this key:\ntotal:              3\nunannotated:        1\n\n\
                    settings of this key:\nunannotated_tools:  distrust\n\n1 tool does not say whether it only reads: \
                    unannotated_tools is distrust, so call_tool_read is refused for them.\n";
        assert_eq!(lines(raw), want);
        let raw = r#"{"role":"auditor","consent":{"pending":2,"asking_keys":1}}"#;
        let want = "role:         auditor\n\npermission requests:\npending:      2\nasking_keys:  1\n";
        assert_eq!(lines(raw), want);
        assert_eq!(lines(r#"{"role":"platform","consent":null}"#), "role:     platform\nconsent:  -\n");
        // a gateway that does not report settings
        assert_eq!(lines(r#"{"role":"agent"}"#), "role:  agent\n");
    }
}
