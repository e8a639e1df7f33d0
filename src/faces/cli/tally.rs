//! Numbers of tools by what they say about themselves, and what silence means for a key.

use std::ops::AddAssign;

use serde_json::Value;

use super::output::text;
use crate::domain::annotations::{Annotations, Tier, Unannotated, lacks_for_reads};

/// Numbers of tools. The tiers count tools with annotations only.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct ToolTally {
    /// Number of all tools.
    pub(super) total: u64,
    read: u64,
    write: u64,
    destructive: u64,
    /// Number of tools that do not say whether they only read.
    pub(super) unannotated: u64,
}

impl ToolTally {
    /// Counts the tools of a server, as the API lists them.
    pub(super) fn of_list(tools: &[Value]) -> ToolTally {
        let mut tally = ToolTally::default();
        for tool in tools {
            let annotations = tool.get("annotations").map(Value::to_string);
            tally.total += 1;
            *match Annotations::read(annotations.as_deref()).tier(Unannotated::Trust) {
                Tier::Read => &mut tally.read,
                Tier::Write => &mut tally.write,
                Tier::Destructive => &mut tally.destructive,
                Tier::Unknown => &mut tally.unannotated,
            } += 1;
        }
        tally
    }

    /// Returns the numbers of the tools that a key has, out of its status; `None` for a key without tools, and from a
    /// gateway that does not report them.
    pub(super) fn of_status(status: &Value) -> Option<ToolTally> {
        let tools = status.get("tools").filter(|tools| tools.is_object())?;
        let number = |name: &str| tools.get(name).and_then(Value::as_u64).unwrap_or_default();
        Some(ToolTally {
            total: number("total"),
            read: number("read"),
            write: number("write"),
            destructive: number("destructive"),
            unannotated: number("unannotated"),
        })
    }

    /// Returns the numbers in one line, such as `12 tools: 7 read, 1 destructive, 4 unannotated`.
    pub(super) fn line(&self) -> String {
        let parts: Vec<String> = [
            (self.read, "read"),
            (self.write, "write"),
            (self.destructive, "destructive"),
            (self.unannotated, "unannotated"),
        ]
        .iter()
        .filter(|(number, _)| *number > 0)
        .map(|(number, what)| format!("{number} {what}"))
        .collect();
        let tools = tools(self.total);
        if parts.is_empty() { tools } else { format!("{tools}: {}", parts.join(", ")) }
    }

    /// Returns what the unannotated tools mean for the key of this status; `None` without any.
    pub(super) fn meaning(&self, status: &Value) -> Option<Meaning> {
        let number = self.unannotated;
        if number == 0 {
            return None;
        }
        let settings = status.get("settings").unwrap_or(&Value::Null);
        let silent = match number {
            1 => "1 tool does not say whether it only reads".to_owned(),
            _ => format!("{number} tools do not say whether they only read"),
        };
        let is_strict = settings.get("strict_server_validation") != Some(&Value::Bool(false));
        let Some(set) = lacks_for_reads(is_strict, &text(settings, "unannotated_tools")) else {
            return Some(Meaning::Safe(format!(
                "{silent}: unannotated_tools is distrust, so call_tool_read is refused for them"
            )));
        };
        let id = text(status, "key_id");
        let (whose, id) = match status.get("tools").is_some_and(Value::is_object) {
            true => ("this key", if id.is_empty() { id } else { format!(" {id}") }),
            false => ("a key with the tenant's settings", String::new()),
        };
        Some(Meaning::Open(format!(
            "{silent}: {whose} may run them with call_tool_read, which IDEs may approve unasked; an admin refuses that with \
             mcpproxy key settings{id} --set {set}"
        )))
    }
}

impl AddAssign for ToolTally {
    fn add_assign(&mut self, other: ToolTally) {
        self.total += other.total;
        self.read += other.read;
        self.write += other.write;
        self.destructive += other.destructive;
        self.unannotated += other.unannotated;
    }
}

/// Meaning of unannotated tools for a key, as a sentence without a full stop.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Meaning {
    /// The key cannot run them as reads.
    Safe(String),
    /// The key can run them as reads.
    Open(String),
}

impl Meaning {
    pub(super) fn text(&self) -> &str {
        match self {
            Meaning::Safe(text) | Meaning::Open(text) => text,
        }
    }
}

fn tools(number: u64) -> String {
    if number == 1 { "1 tool".to_owned() } else { format!("{number} tools") }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn tools_are_counted_by_what_they_say() {
        let tool = |annotations: Value| json!({"name": "x", "annotations": annotations});
        let tools = [
            tool(json!({"readOnlyHint": true})),
            tool(json!({"readOnlyHint": true})),
            tool(json!({"readOnlyHint": false})),
            tool(json!({"destructiveHint": true})),
            tool(json!({"destructiveHint": false})),
            tool(json!({})),
            tool(json!({"readOnlyHint": "yes"})),
        ];
        let tally = ToolTally::of_list(&tools);
        assert_eq!(tally.line(), "7 tools: 2 read, 1 write, 1 destructive, 3 unannotated");
        assert_eq!(ToolTally::of_list(&[]).line(), "0 tools");
        assert_eq!(ToolTally::of_list(&tools[..1]).line(), "1 tool: 1 read");
    }

    #[test]
    fn silence_means_what_the_key_makes_of_it() {
        let status = |tools: Value, distrust: bool, strict: bool| {
            let unannotated = if distrust { "distrust" } else { "trust" };
            json!({"key_id": "k1", "tools": tools,
                "settings": {"unannotated_tools": unannotated, "strict_server_validation": strict}})
        };
        let tools = json!({"total": 3, "read": 1, "write": 0, "destructive": 0, "unannotated": 2});
        let of = |status: &Value| ToolTally::of_status(status).unwrap().meaning(status);
        let open = of(&status(tools.clone(), false, true)).unwrap();
        assert!(
            matches!(&open, Meaning::Open(text) if text.ends_with("key settings k1 --set unannotated_tools=distrust"))
        );
        let safe = of(&status(tools.clone(), true, true)).unwrap();
        assert!(matches!(&safe, Meaning::Safe(text) if text.starts_with("2 tools do not say")), "{safe:?}");
        let loose = of(&status(tools, true, false)).unwrap();
        assert!(matches!(&loose, Meaning::Open(text) if text.contains("strict_server_validation=true")));
        let none = status(json!({"total": 1, "read": 1, "unannotated": 0}), false, true);
        assert_eq!(of(&none), None);
        let auditor = status(Value::Null, false, true);
        assert_eq!(ToolTally::of_status(&auditor), None);
        let meaning =
            ToolTally { total: 1, unannotated: 1, ..ToolTally::default() }.meaning(&auditor).unwrap();
        assert!(meaning.text().contains("a key with the tenant's settings"), "{meaning:?}");
    }
}
