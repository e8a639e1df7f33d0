//! MCP clients that the gateway knows: the file in which each keeps its servers, the form of a server there, and links that
//! install one.
//!
//! `docs/clients.md` has the sources.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::{Map, Value, json};

/// Request header that carries a key.
pub const KEY_HEADER: &str = "X-API-Key";

/// Known MCP client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KnownClient {
    /// Claude Code.
    ClaudeCode,
    /// Codex.
    Codex,
    /// Cursor.
    Cursor,
    /// VS Code.
    VsCode,
    /// Gemini CLI.
    Gemini,
    /// Windsurf.
    Windsurf,
    /// MCP inspector, which has no file of its own, and reads any.
    Inspector,
}

impl KnownClient {
    /// All clients that have a file of their own.
    pub const WITH_FILE: [KnownClient; 6] = [
        KnownClient::ClaudeCode,
        KnownClient::Codex,
        KnownClient::Cursor,
        KnownClient::VsCode,
        KnownClient::Gemini,
        KnownClient::Windsurf,
    ];

    /// Returns the name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            KnownClient::ClaudeCode => "claude-code",
            KnownClient::Codex => "codex",
            KnownClient::Cursor => "cursor",
            KnownClient::VsCode => "vscode",
            KnownClient::Gemini => "gemini",
            KnownClient::Windsurf => "windsurf",
            KnownClient::Inspector => "inspector",
        }
    }

    /// Returns the name for people.
    pub fn title(self) -> &'static str {
        match self {
            KnownClient::ClaudeCode => "Claude Code",
            KnownClient::Codex => "Codex",
            KnownClient::Cursor => "Cursor",
            KnownClient::VsCode => "VS Code",
            KnownClient::Gemini => "Gemini CLI",
            KnownClient::Windsurf => "Windsurf",
            KnownClient::Inspector => "MCP inspector",
        }
    }

    /// Returns the client's file as people call it.
    pub fn usual_file(self) -> &'static str {
        match self {
            KnownClient::ClaudeCode => "~/.claude.json",
            KnownClient::Codex => "~/.codex/config.toml",
            KnownClient::Cursor => "~/.cursor/mcp.json",
            KnownClient::VsCode => "mcp.json of the user",
            KnownClient::Gemini => "~/.gemini/settings.json",
            KnownClient::Windsurf => "~/.codeium/windsurf/mcp_config.json",
            KnownClient::Inspector => "~/.config/mcpproxy/inspector.json",
        }
    }

    /// Returns the member of the file that holds the servers.
    pub fn section(self) -> &'static str {
        match self {
            KnownClient::Codex => "mcp_servers",
            KnownClient::VsCode => "servers",
            _ => "mcpServers",
        }
    }

    /// Returns the members of a server, in the order in which they are written.
    pub fn members(self, url: &str, key: &str) -> Vec<(&'static str, Value)> {
        let headers = json!({ KEY_HEADER: key });
        match self {
            KnownClient::ClaudeCode | KnownClient::VsCode | KnownClient::Inspector => {
                vec![("type", "http".into()), ("url", url.into()), ("headers", headers)]
            }
            KnownClient::Codex => vec![("url", url.into()), ("http_headers", headers)],
            KnownClient::Gemini => vec![("httpUrl", url.into()), ("headers", headers)],
            KnownClient::Windsurf => vec![("serverUrl", url.into()), ("headers", headers)],
            KnownClient::Cursor => vec![("url", url.into()), ("headers", headers)],
        }
    }

    /// Returns the text of a new file with this server alone. `name` has letters, digits, `-` and `_`.
    pub fn new_file(self, name: &str, url: &str, key: &str) -> String {
        let (section, members) = (self.section(), self.members(url, key));
        let quoted = |text: &str| Value::from(text).to_string();
        let pairs = |value: &Value, colon: &str, quoted: &dyn Fn(&str) -> String| match value.as_object() {
            Some(members) => {
                let pairs = members.iter().map(|(name, value)| format!("{}{colon}{value}", quoted(name)));
                pairs.collect::<Vec<_>>().join(", ")
            }
            None => value.to_string(),
        };
        if self == KnownClient::Codex {
            let line = |(name, value): &(&str, Value)| match value.is_object() {
                true => format!("{name} = {{ {} }}\n", pairs(value, " = ", &|name| name.to_owned())),
                false => format!("{name} = {value}\n"),
            };
            let lines: String = members.iter().map(line).collect();
            return format!("[{section}.{name}]\n{lines}");
        }
        let line = |(name, value): &(&str, Value)| match value.is_object() {
            true => format!("      {}: {{{}}}", quoted(name), pairs(value, ": ", &quoted)),
            false => format!("      {}: {value}", quoted(name)),
        };
        let lines: Vec<String> = members.iter().map(line).collect();
        let lines = lines.join(",\n");
        format!("{{\n  {}: {{\n    {}: {{\n{lines}\n    }}\n  }}\n}}\n", quoted(section), quoted(name))
    }

    /// Returns the link that has the client install the server; `None` for a client without such links.
    pub fn link(self, name: &str, url: &str, key: &str) -> Option<String> {
        let encoded = |text: &str| utf8_percent_encode(text, NON_ALPHANUMERIC).to_string();
        let server: Map<String, Value> =
            self.members(url, key).into_iter().map(|(name, value)| (name.to_owned(), value)).collect();
        match self {
            KnownClient::Cursor => {
                let config = STANDARD.encode(Value::Object(server).to_string());
                let (name, config) = (encoded(name), encoded(&config));
                Some(format!("cursor://anysphere.cursor-deeplink/mcp/install?name={name}&config={config}"))
            }
            KnownClient::VsCode => {
                let mut server = server;
                server.insert("name".to_owned(), name.into());
                Some(format!("vscode:mcp/install?{}", encoded(&Value::Object(server).to_string())))
            }
            _ => None,
        }
    }
}
