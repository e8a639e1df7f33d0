//! Changes to a client's file that leave everything else in it as it is, comments included.

use std::ops::Range;

use serde_json::Value;
use toml_edit::{DocumentMut, InlineTable, Item, Table};

use super::clients::ConnectedClient;
use crate::domain::json;

/// Members that say how a server is reached, in the form of any client. A change replaces them all.
const WAY: [&str; 18] = [
    "args",
    "auth",
    "bearer_token_env_var",
    "command",
    "cwd",
    "env",
    "envFile",
    "env_http_headers",
    "env_vars",
    "headers",
    "headersHelper",
    "httpUrl",
    "http_headers",
    "oauth",
    "oauth_resource",
    "serverUrl",
    "type",
    "url",
];

/// A server to write into a file.
pub(super) struct WrittenServer<'a> {
    pub(super) client: ConnectedClient,
    pub(super) name: &'a str,
    pub(super) url: &'a str,
    pub(super) key: &'a str,
}

impl WrittenServer<'_> {
    /// Returns the text of a file with this server in it; an empty text is that of a new file.
    ///
    /// # Errors
    /// The text is not of the client's format. The error repeats nothing of it but names.
    pub(super) fn added_to(&self, text: &str) -> Result<String, String> {
        match self.client {
            ConnectedClient::Codex => self.added_to_toml(text),
            _ => self.added_to_json(text),
        }
    }

    fn added_to_json(&self, text: &str) -> Result<String, String> {
        let plain = json::without_comments(text);
        if plain.trim().is_empty() {
            return self.added_to_json("{}\n");
        }
        let fault = |fault: json::JsonFault| format!("cannot be read as JSON: {fault}");
        let top = json::members(&plain).map_err(fault)?;
        let section = self.client.known().section();
        let Some(servers) = top.iter().find(|member| member.name == section) else {
            let entry =
                format!("\"{section}\": {{\n    {}: {}\n  }}", quoted(self.name), self.object("", &[]));
            return Ok(inserted(text, &plain, 0, &entry, 1));
        };
        let range = servers.value_range();
        let members = json::members(servers.value).map_err(|_| format!("{section} must be an object"))?;
        let Some(entry) = members.iter().find(|member| member.name == self.name) else {
            let entry = format!("{}: {}", quoted(self.name), self.object("", &[]));
            return Ok(inserted(text, &plain, range.start, &entry, 2));
        };
        let at = shifted(entry.value_range(), range.start);
        let old = text.get(at.clone()).unwrap_or_default();
        let others: Vec<Range<usize>> = json::members(entry.value)
            .map_err(|_| format!("{section}.{} must be an object", self.name))?
            .iter()
            .filter(|member| !is_replaced(&member.name, member.value))
            .map(|member| member.span.clone())
            .collect();
        let (before, after) =
            (text.get(..at.start).unwrap_or_default(), text.get(at.end..).unwrap_or_default());
        Ok(format!("{before}{}{after}", self.object(old, &others)))
    }

    /// Returns the server as an object, with the ranges `others` of `old` as further members.
    fn object(&self, old: &str, others: &[Range<usize>]) -> String {
        let own = self.client.known().members(self.url, self.key);
        let own = own.iter().map(|(name, value)| format!("{}: {}", quoted(name), spaced(value)));
        let others = others.iter().map(|range| old.get(range.clone()).unwrap_or_default().to_owned());
        let members: Vec<String> = own.chain(others).map(|member| format!("      {member}")).collect();
        format!("{{\n{}\n    }}", members.join(",\n"))
    }

    fn added_to_toml(&self, text: &str) -> Result<String, String> {
        let mut document: DocumentMut = text.parse().map_err(|_| "cannot be read as TOML".to_owned())?;
        let section = self.client.known().section();
        let mut all = Table::new();
        all.set_implicit(true);
        let servers = document.entry(section).or_insert(Item::Table(all));
        let servers = servers.as_table_like_mut().ok_or_else(|| format!("{section} must be a table"))?;
        let entry = servers.entry(self.name).or_insert_with(toml_edit::table);
        let entry =
            entry.as_table_like_mut().ok_or_else(|| format!("{section}.{} must be a table", self.name))?;
        let is_replaced = |(name, item): (&str, &Item)| {
            is_replaced(name, &item.as_bool().map_or_else(String::new, |is| is.to_string()))
        };
        let old: Vec<String> =
            entry.iter().filter(|pair| is_replaced(*pair)).map(|(name, _)| name.to_owned()).collect();
        for member in old {
            entry.remove(&member);
        }
        for (name, value) in self.client.known().members(self.url, self.key) {
            entry.insert(name, item(&value));
        }
        Ok(document.to_string())
    }
}

/// Returns whether a change takes a member of an old entry away: it says how the server is reached, or keeps it off.
fn is_replaced(name: &str, value: &str) -> bool {
    WAY.contains(&name) || matches!((name, value.trim()), ("disabled", "true") | ("enabled", "false"))
}

/// Returns the members of an old entry that a change takes away and puts nothing in the place of.
pub(super) fn taken_away(server: &Value, client: ConnectedClient) -> Vec<String> {
    let own = client.known().members("", "");
    let is_own = |name: &str| own.iter().any(|(own, _)| *own == name);
    let members = server.as_object().into_iter().flatten();
    members
        .filter(|(name, value)| is_replaced(name, &value.to_string()) && !is_own(name))
        .map(|(name, _)| name.clone())
        .collect()
}

/// Returns the server of this name in the text of a file, without its comments; `None` if it is not there.
pub(super) fn server_in(text: &str, client: ConnectedClient, name: &str) -> Option<Value> {
    let tree: Value = match client {
        ConnectedClient::Codex => toml_edit::de::from_str(text).ok()?,
        _ => serde_json::from_str(&json::without_comments(text)).ok()?,
    };
    tree.get(client.known().section())?.get(name).cloned()
}

/// Returns `text` with a member inserted after the first brace at or after `from`, at this depth.
fn inserted(text: &str, plain: &str, from: usize, member: &str, depth: usize) -> String {
    let brace = plain.get(from..).and_then(|rest| rest.find('{')).map_or(from, |at| from + at + 1);
    let (before, after) = (text.get(..brace).unwrap_or_default(), text.get(brace..).unwrap_or_default());
    let is_empty = plain.get(brace..).is_some_and(|rest| rest.trim_start().starts_with('}'));
    let (indent, outer) = ("  ".repeat(depth), "  ".repeat(depth.saturating_sub(1)));
    let end = if !is_empty {
        ",".to_owned()
    } else if after.starts_with('}') {
        format!("\n{outer}")
    } else {
        String::new()
    };
    format!("{before}\n{indent}{member}{end}{after}")
}

fn shifted(range: Range<usize>, by: usize) -> Range<usize> {
    range.start + by..range.end + by
}

fn quoted(name: &str) -> String {
    Value::from(name).to_string()
}

/// Returns a value on one line, with a blank after each colon of an object.
fn spaced(value: &Value) -> String {
    match value.as_object() {
        Some(members) => {
            let pairs: Vec<String> =
                members.iter().map(|(name, value)| format!("{}: {value}", quoted(name))).collect();
            format!("{{{}}}", pairs.join(", "))
        }
        None => value.to_string(),
    }
}

fn item(value: &Value) -> Item {
    match value.as_object() {
        Some(members) => {
            let pairs = members.iter().filter_map(|(name, value)| Some((name.as_str(), value.as_str()?)));
            toml_edit::value(pairs.collect::<InlineTable>())
        }
        None => toml_edit::value(value.as_str().unwrap_or_default()),
    }
}

#[cfg(test)]
mod tests;
