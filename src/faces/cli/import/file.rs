//! Files in which MCP clients keep their servers. The format is known by the content, not by the name.
//!
//! - `mcpServers`: Cursor, Claude Desktop, Claude Code, Gemini CLI, Windsurf
//! - `servers` and `inputs`: VS Code
//! - `[mcp_servers.NAME]`, TOML: Codex
//!
//! `docs/cli.md` has the sources.

use std::collections::BTreeMap;
use std::path::Path;

use serde_json::{Map, Value};

use super::super::failure::Failure;
use super::super::{input, output};
use crate::domain::json;

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
/// Longest header of a bridge with the values of its variables, in bytes.
const HEADER_BYTES_MAX: usize = 8 * 1024;

/// Content of a file.
pub(super) struct ClientFile {
    /// Servers in the order of their names.
    pub(super) servers: Vec<FoundServer>,
    /// Folders of projects that have servers of their own in the file, which are not read (Claude Code).
    pub(super) projects: Vec<String>,
}

/// Server of a file. The type has no `Debug`: headers, variables and arguments may be credentials.
pub(super) struct FoundServer {
    /// Name in the file.
    pub(super) name: String,
    /// True if the file says that the server is not used.
    pub(super) is_disabled: bool,
    /// Address or program.
    pub(super) place: FoundPlace,
    /// Members of the server that are not imported.
    pub(super) left_out: Vec<String>,
    /// Members among them that keep tools from the client.
    pub(super) restrictions: Vec<&'static str>,
}

/// Place of a server. References to variables are as written.
pub(super) enum FoundPlace {
    /// HTTP server with its headers.
    Http { url: String, headers: BTreeMap<String, String> },
    /// Program with its arguments and its environment.
    Program { argv: Vec<String>, env: BTreeMap<String, String> },
    /// Server that cannot be imported, and why.
    Unusable(String),
}

/// Reads a file; `-` is standard input.
///
/// # Errors
/// The file cannot be read, has none of the formats, or a member of another type. The error repeats no value.
pub(super) fn read(path: &Path) -> Result<ClientFile, Failure> {
    let shown = path.display().to_string();
    let from = if shown == "-" { shown.clone() } else { format!("@{shown}") };
    let text = input::text("FILE", &from)?;
    parse(&text).map_err(|fault| Failure::Usage(format!("{shown}: {fault}")))
}

fn parse(text: &str) -> Result<ClientFile, String> {
    let tree = tree(text)?;
    let Some((section, servers)) = SECTIONS.iter().find_map(|name| Some((*name, tree.get(*name)?))) else {
        return Err("has no servers: it needs mcpServers (Cursor, Claude and others), servers (VS Code) or \
                    [mcp_servers.NAME] (Codex)"
            .to_owned());
    };
    let servers = servers.as_object().ok_or_else(|| format!("{section} must be an object"))?;
    let found = servers.iter().map(|(name, entry)| {
        let path = format!("{section}.{}", output::one_line(name));
        let entry = entry.as_object().ok_or_else(|| format!("{path} must be an object"))?;
        server(name, entry).map_err(|fault| format!("{path}.{fault}"))
    });
    Ok(ClientFile { servers: found.collect::<Result<_, _>>()?, projects: projects(&tree) })
}

/// Returns a file as one tree, whichever language it is written in.
fn tree(text: &str) -> Result<Value, String> {
    let plain = json::without_comments(text);
    if plain.trim_start().starts_with('{') {
        json::check(&plain).map_err(|fault| format!("cannot be read as JSON: {fault}"))?;
        return serde_json::from_str(&plain).map_err(|_| "cannot be read as JSON".to_owned());
    }
    toml_edit::de::from_str(text).map_err(|error| {
        // the error itself quotes the line, which may hold a credential
        let before = error.span().and_then(|span| text.get(..span.start));
        let line = before.map(|before| format!(" (line {})", before.matches('\n').count() + 1));
        format!("is neither JSON nor TOML{}", line.unwrap_or_default())
    })
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
        _ => Err(format!("{member}.{} must be a text", output::one_line(name))),
    };
    members.iter().map(pair).collect()
}

#[cfg(test)]
mod tests;
