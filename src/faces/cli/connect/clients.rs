//! MCP clients that `mcpproxy connect` knows, and the file of each on this machine.

use std::path::PathBuf;

use clap::ValueEnum;

use super::super::input;
use crate::domain::known_client::KnownClient;

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
    /// Returns the client itself.
    pub(super) fn known(self) -> KnownClient {
        match self {
            ConnectedClient::ClaudeCode => KnownClient::ClaudeCode,
            ConnectedClient::Codex => KnownClient::Codex,
            ConnectedClient::Cursor => KnownClient::Cursor,
            ConnectedClient::VsCode => KnownClient::VsCode,
            ConnectedClient::Gemini => KnownClient::Gemini,
            ConnectedClient::Windsurf => KnownClient::Windsurf,
            ConnectedClient::Inspector => KnownClient::Inspector,
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
}
