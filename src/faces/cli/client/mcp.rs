//! The request of an MCP client, for a check of what it would get.

use serde_json::{Value, json};

use super::super::failure::Failure;
use super::super::output;
use super::{ApiClient, CONNECT_WAIT_MAX, not_ours};

/// Revision of MCP in which tools are listed.
const MCP_REVISION: &str = "2026-07-28";
/// Media types that MCP clients accept.
const MCP_MEDIA: &str = "application/json, text/event-stream";

impl ApiClient {
    /// Lists tools over MCP, as an IDE with this key does, and returns their names.
    pub(in crate::faces::cli) async fn mcp_tools(&self) -> Result<Vec<String>, Failure> {
        let body = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {"_meta": {
            "io.modelcontextprotocol/protocolVersion": MCP_REVISION,
            "io.modelcontextprotocol/clientCapabilities": {},
            "io.modelcontextprotocol/clientInfo": {"name": "mcpproxy-cli", "version": env!("CARGO_PKG_VERSION")},
        }}});
        let request = self.http.post(self.at("mcp")).timeout(CONNECT_WAIT_MAX);
        let request = request
            .header(http::header::CONTENT_TYPE, "application/json")
            .header(http::header::ACCEPT, MCP_MEDIA)
            .header("mcp-protocol-version", MCP_REVISION)
            .header("mcp-method", "tools/list")
            .body(body.to_string());
        let response = self.send_request(request).await?;
        let text = response.text().await.map_err(|error| self.unreachable(&error))?;
        let answer: Value = serde_json::from_str(&text).map_err(|_| not_ours())?;
        let tools = answer.pointer("/result/tools").and_then(Value::as_array).ok_or_else(not_ours)?;
        Ok(tools.iter().map(|tool| output::text(tool, "name")).collect())
    }
}
