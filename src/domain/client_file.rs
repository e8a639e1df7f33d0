//! Files in which MCP clients keep their servers. The format is known by the content, not by the name.
//!
//! - `mcpServers`: Cursor, Claude Desktop, Claude Code, Gemini CLI, Windsurf
//! - `servers` and `inputs`: VS Code
//! - `[mcp_servers.NAME]`, TOML: Codex
//!
//! `docs/cli.md` has the sources.

pub mod program;

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use super::json;

/// Members with servers, and the client whose they are.
const SECTIONS: [&str; 3] = ["mcpServers", "servers", "mcp_servers"];
/// Members with the address of an HTTP server, by client.
const ADDRESSES: [&str; 3] = ["url", "serverUrl", "httpUrl"];
/// Members that are read here, or say only what the gateway finds out by itself. Of all others the operator is told.
const TAKEN: [&str; 15] = [
    "url",
    "serverUrl",
    "httpUrl",
    "type",
    "transport",
    "command",
    "args",
    "env",
    "headers",
    "http_headers",
    "env_http_headers",
    "bearer_token_env_var",
    "disabled",
    "enabled",
    "description",
];
/// Members that keep some of a server's tools from the client. Agents of the gateway get them all.
const RESTRICTIONS: [&str; 7] = [
    "enabled_tools",
    "disabled_tools",
    "enabledTools",
    "disabledTools",
    "includeTools",
    "excludeTools",
    "allowedTools",
];
/// Most members that are named, and characters of each.
const NAMED_MAX: usize = 20;
const NAMED_CHARS_MAX: usize = 64;
/// Program that stands between a client without HTTP and an HTTP server.
const BRIDGE: &str = "mcp-remote";
/// Longest name of a server, in characters.
const NAME_CHARS_MAX: usize = 32;
/// Longest header of a bridge with the values of its variables, in bytes.
const HEADER_BYTES_MAX: usize = 8 * 1024;

/// Content of a file.
pub struct ClientFile {
    /// Servers in the order of their names.
    pub servers: Vec<FoundServer>,
    /// Folders of projects that have servers of their own in the file, which are not read (Claude Code).
    pub projects: Vec<String>,
}

/// Server of a file. The type has no `Debug`: headers, variables and arguments may be credentials.
pub struct FoundServer {
    /// Name in the file.
    pub name: String,
    /// True if the file says that the server is not used.
    pub is_disabled: bool,
    /// Address or program.
    pub place: FoundPlace,
    /// Members of the server that are not imported.
    pub left_out: Vec<String>,
    /// Members among them that keep tools from the client.
    pub restrictions: Vec<&'static str>,
}

/// Place of a server. References to variables are as written.
pub enum FoundPlace {
    /// HTTP server with its headers.
    Http {
        /// Address as written.
        url: String,
        /// Headers by name.
        headers: BTreeMap<String, String>,
    },
    /// Program with its arguments and its environment.
    Program {
        /// Program and its arguments.
        argv: Vec<String>,
        /// Environment by name.
        env: BTreeMap<String, String>,
    },
    /// Server that cannot be imported, and why.
    Unusable(String),
}

impl ClientFile {
    /// Reads the text of a file in JSON, with comments or without.
    ///
    /// # Errors
    /// The text is no JSON, has none of the formats, or a member of another type. The error repeats no value.
    pub fn read_json(text: &str) -> Result<ClientFile, String> {
        let plain = json::without_comments(text);
        json::check(&plain).map_err(|fault| format!("cannot be read as JSON: {fault}"))?;
        let tree = serde_json::from_str(&plain).map_err(|_| "cannot be read as JSON".to_owned())?;
        ClientFile::of_tree(&tree)
    }

    /// Takes a file as one tree, whichever language it is written in.
    ///
    /// # Errors
    /// The tree has none of the formats, or a member of another type. The error repeats no value.
    pub fn of_tree(tree: &Value) -> Result<ClientFile, String> {
        let Some((section, servers)) = SECTIONS.iter().find_map(|name| Some((*name, tree.get(*name)?)))
        else {
            return Err(
                "has no servers: it needs mcpServers (Cursor, Claude and others), servers (VS Code) or \
                        [mcp_servers.NAME] (Codex)"
                    .to_owned(),
            );
        };
        let servers = servers.as_object().ok_or_else(|| format!("{section} must be an object"))?;
        let found = servers.iter().map(|(name, entry)| {
            let path = format!("{section}.{name}");
            let entry = entry.as_object().ok_or_else(|| format!("{path} must be an object"))?;
            server(name, entry).map_err(|fault| format!("{path}.{fault}"))
        });
        Ok(ClientFile { servers: found.collect::<Result<_, _>>()?, projects: projects(tree) })
    }
}

/// Returns a name of the gateway for a name of a file; empty if nothing of it can stay.
pub fn valid_name(name: &str) -> String {
    let lower = name.to_lowercase();
    let words = lower.split(|c: char| !c.is_ascii_alphanumeric()).filter(|word| !word.is_empty());
    let mut valid: String = words.collect::<Vec<_>>().join("-").chars().take(NAME_CHARS_MAX).collect();
    valid.truncate(valid.trim_end_matches('-').len());
    valid
}

fn projects(tree: &Value) -> Vec<String> {
    let all = tree.get("projects").and_then(Value::as_object).into_iter().flatten();
    let has_servers = |project: &Value| {
        project.get("mcpServers").and_then(Value::as_object).is_some_and(|servers| !servers.is_empty())
    };
    all.filter(|(_, project)| has_servers(project)).map(|(folder, _)| folder.clone()).collect()
}

fn server(name: &str, entry: &Map<String, Value>) -> Result<FoundServer, String> {
    let is = |member: &str, wanted: bool| entry.get(member) == Some(&Value::Bool(wanted));
    let left_out = entry.keys().filter(|member| !TAKEN.contains(&member.as_str()));
    let left_out =
        left_out.take(NAMED_MAX).map(|member| member.chars().take(NAMED_CHARS_MAX).collect()).collect();
    let restrictions = RESTRICTIONS.into_iter().filter(|member| entry.contains_key(*member)).collect();
    let is_disabled = is("disabled", true) || is("enabled", false);
    Ok(FoundServer { name: name.to_owned(), is_disabled, place: place(entry)?, left_out, restrictions })
}

fn place(entry: &Map<String, Value>) -> Result<FoundPlace, String> {
    let address = ADDRESSES.into_iter().find(|member| entry.contains_key(*member));
    let kind = text(entry, "type")?.or(text(entry, "transport")?);
    match (address, entry.contains_key("command")) {
        (Some(_), _) if kind.as_deref() == Some("sse") => Ok(FoundPlace::Unusable(
            "speaks HTTP+SSE of 2024-11-05, which the gateway does not: give its address of streamable HTTP, which \
             often ends with /mcp"
                .to_owned(),
        )),
        (Some(member), false) => {
            let url = text(entry, member)?.unwrap_or_default();
            Ok(FoundPlace::Http { url, headers: headers(entry)? })
        }
        (None, true) => program(entry),
        (Some(_), true) => Ok(FoundPlace::Unusable("has an address and a command".to_owned())),
        (None, false) => Ok(FoundPlace::Unusable("has neither an address nor a command".to_owned())),
    }
}

/// Returns the headers of a server. Codex names variables beside them, which become references.
fn headers(entry: &Map<String, Value>) -> Result<BTreeMap<String, String>, String> {
    let mut headers = texts(entry, "headers")?;
    headers.extend(texts(entry, "http_headers")?);
    let of_env = texts(entry, "env_http_headers")?;
    headers.extend(of_env.into_iter().map(|(name, variable)| (name, format!("${{{variable}}}"))));
    if let Some(variable) = text(entry, "bearer_token_env_var")? {
        headers.insert("Authorization".to_owned(), format!("Bearer ${{{variable}}}"));
    }
    Ok(headers)
}

fn program(entry: &Map<String, Value>) -> Result<FoundPlace, String> {
    let mut argv = vec![text(entry, "command")?.unwrap_or_default()];
    argv.extend(list(entry, "args")?);
    let env = texts(entry, "env")?;
    if let Some(found) = bridged(&argv, &env) {
        return Ok(found);
    }
    Ok(FoundPlace::Program { argv, env })
}

/// Returns the HTTP server behind `mcp-remote`; `None` for any other program.
fn bridged(argv: &[String], env: &BTreeMap<String, String>) -> Option<FoundPlace> {
    let is_bridge =
        |word: &String| word.rsplit('/').next().is_some_and(|name| name.split('@').next() == Some(BRIDGE));
    let words = argv.get(argv.iter().position(is_bridge)? + 1..)?;
    let url = words.iter().find(|word| word.starts_with("http://") || word.starts_with("https://"))?;
    let given = words.iter().zip(words.iter().skip(1)).filter(|(flag, _)| *flag == "--header");
    let mut headers = BTreeMap::new();
    for (name, value) in given.filter_map(|(_, header)| header.split_once(':')) {
        let Some(value) = filled(value.trim(), env) else {
            return Some(FoundPlace::Unusable(format!("has a header of more than {HEADER_BYTES_MAX} bytes")));
        };
        headers.insert(name.trim().to_owned(), value);
    }
    Some(FoundPlace::Http { url: url.clone(), headers })
}

/// Returns a header with the values of the program's own variables, which come before those of the caller. References in these
/// values stay. Returns `None` if the result is longer than [`HEADER_BYTES_MAX`].
fn filled(header: &str, env: &BTreeMap<String, String>) -> Option<String> {
    let mut out = String::new();
    let mut rest = header;
    while let Some((before, after)) = rest.split_once("${") {
        out.push_str(before);
        match after.split_once('}').and_then(|(name, after)| Some((env.get(name)?, after))) {
            Some((value, after)) => {
                out.push_str(value);
                rest = after;
            }
            None => {
                out.push_str("${");
                rest = after;
            }
        }
        if out.len() > HEADER_BYTES_MAX {
            return None;
        }
    }
    out.push_str(rest);
    (out.len() <= HEADER_BYTES_MAX).then_some(out)
}

fn text(entry: &Map<String, Value>, member: &str) -> Result<Option<String>, String> {
    match entry.get(member) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(text)) => Ok(Some(text.clone())),
        Some(_) => Err(format!("{member} must be a text")),
    }
}

fn list(entry: &Map<String, Value>, member: &str) -> Result<Vec<String>, String> {
    let wrong = || format!("{member} must be a list of texts");
    let Some(found) = entry.get(member) else { return Ok(Vec::new()) };
    let items = found.as_array().ok_or_else(wrong)?;
    items.iter().map(|item| item.as_str().map(str::to_owned).ok_or_else(wrong)).collect()
}

fn texts(entry: &Map<String, Value>, member: &str) -> Result<BTreeMap<String, String>, String> {
    let Some(found) = entry.get(member).filter(|found| !found.is_null()) else { return Ok(BTreeMap::new()) };
    let members = found.as_object().ok_or_else(|| format!("{member} must be an object"))?;
    let pair = |(name, value): (&String, &Value)| match value {
        Value::String(text) => Ok((name.clone(), text.clone())),
        Value::Number(_) | Value::Bool(_) => Ok((name.clone(), value.to_string())),
        _ => Err(format!("{member}.{name} must be a text")),
    };
    members.iter().map(pair).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::id::is_name;

    #[test]
    fn names_become_valid() {
        for (name, valid) in [
            ("github", "github"),
            ("GitHub MCP (beta)", "github-mcp-beta"),
            ("io.github.user/server_x", "io-github-user-server-x"),
            ("Änderung", "nderung"),
            ("--a--", "a"),
            ("日本", ""),
            ("0123456789012345678901234567890-x", "0123456789012345678901234567890"),
        ] {
            assert_eq!(valid_name(name), valid, "{name}");
            assert!(valid.is_empty() || is_name(valid), "{valid}");
        }
    }
}
