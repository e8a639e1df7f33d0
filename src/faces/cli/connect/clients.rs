//! MCP clients that `mcpproxy connect` knows: the file in which each keeps its servers, and the form of a server there.
//!
//! `docs/clients.md` has the sources.

use std::path::PathBuf;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use clap::ValueEnum;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::{Value, json};

use super::super::input;

/// Request header that carries a key.
pub(super) const KEY_HEADER: &str = "X-API-Key";

/// An MCP client.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum ConnectedClient {
    /// Claude Code, for all projects (~/.claude.json)
    ClaudeCode,
    /// Codex (~/.codex/config.toml)
    Codex,
    /// Cursor (~/.cursor/mcp.json)
    Cursor,
    /// VS Code (mcp.json of the user)
    #[value(name = "vscode")]
    VsCode,
    /// Gemini CLI (~/.gemini/settings.json)
    Gemini,
    /// Windsurf (~/.codeium/windsurf/mcp_config.json)
    Windsurf,
    /// MCP inspector (~/.config/mcpproxy/inspector.json); its command is printed
    Inspector,
}

impl ConnectedClient {
    /// Returns the name on the command line.
    pub(super) fn name(self) -> &'static str {
        match self {
            ConnectedClient::ClaudeCode => "claude-code",
            ConnectedClient::Codex => "codex",
            ConnectedClient::Cursor => "cursor",
            ConnectedClient::VsCode => "vscode",
            ConnectedClient::Gemini => "gemini",
            ConnectedClient::Windsurf => "windsurf",
            ConnectedClient::Inspector => "inspector",
        }
    }

    /// Returns the client's file; `None` without a home folder. The inspector has none of its own, and reads any.
    pub(super) fn file(self) -> Option<PathBuf> {
        let folder = |variable: &str| input::variable(variable).map(PathBuf::from);
        let home = std::env::home_dir()?;
        Some(match self {
            ConnectedClient::ClaudeCode => folder("CLAUDE_CONFIG_DIR").unwrap_or(home).join(".claude.json"),
            ConnectedClient::Codex => {
                folder("CODEX_HOME").unwrap_or_else(|| home.join(".codex")).join("config.toml")
            }
            ConnectedClient::Cursor => home.join(".cursor/mcp.json"),
            ConnectedClient::VsCode if cfg!(target_os = "macos") => {
                home.join("Library/Application Support/Code/User/mcp.json")
            }
            ConnectedClient::VsCode => {
                folder("XDG_CONFIG_HOME").unwrap_or_else(|| home.join(".config")).join("Code/User/mcp.json")
            }
            ConnectedClient::Gemini => home.join(".gemini/settings.json"),
            ConnectedClient::Windsurf => home.join(".codeium/windsurf/mcp_config.json"),
            ConnectedClient::Inspector => home.join(".config/mcpproxy/inspector.json"),
        })
    }

    /// Returns the member of the file that holds the servers.
    pub(super) fn section(self) -> &'static str {
        match self {
            ConnectedClient::Codex => "mcp_servers",
            ConnectedClient::VsCode => "servers",
            _ => "mcpServers",
        }
    }

    /// Returns the members of a server, in the order in which they are written.
    pub(super) fn members(self, url: &str, key: &str) -> Vec<(&'static str, Value)> {
        let headers = json!({ KEY_HEADER: key });
        match self {
            ConnectedClient::ClaudeCode | ConnectedClient::VsCode | ConnectedClient::Inspector => {
                vec![("type", "http".into()), ("url", url.into()), ("headers", headers)]
            }
            ConnectedClient::Codex => vec![("url", url.into()), ("http_headers", headers)],
            ConnectedClient::Gemini => vec![("httpUrl", url.into()), ("headers", headers)],
            ConnectedClient::Windsurf => vec![("serverUrl", url.into()), ("headers", headers)],
            ConnectedClient::Cursor => vec![("url", url.into()), ("headers", headers)],
        }
    }

    /// Returns the link that has the client install the server; `None` for a client without such links.
    pub(super) fn link(self, name: &str, url: &str, key: &str) -> Option<String> {
        let encoded = |text: &str| utf8_percent_encode(text, NON_ALPHANUMERIC).to_string();
        let server: serde_json::Map<String, Value> =
            self.members(url, key).into_iter().map(|(name, value)| (name.to_owned(), value)).collect();
        match self {
            ConnectedClient::Cursor => {
                let config = STANDARD.encode(Value::Object(server).to_string());
                let (name, config) = (encoded(name), encoded(&config));
                Some(format!("cursor://anysphere.cursor-deeplink/mcp/install?name={name}&config={config}"))
            }
            ConnectedClient::VsCode => {
                let mut server = server;
                server.insert("name".to_owned(), name.into());
                Some(format!("vscode:mcp/install?{}", encoded(&Value::Object(server).to_string())))
            }
            _ => None,
        }
    }
}
