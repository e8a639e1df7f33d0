//! `mcpproxy call`: runs a tool with a declared intent.

use clap::{Args, Subcommand, ValueEnum};
use http::Method;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_json::value::RawValue;

use super::connection::ApiConnection;
use super::failure::Failure;
use super::{input, output};
use crate::faces::wire::headers;

/// `mcpproxy call`
#[derive(Args)]
pub struct CallCommand {
    #[command(subcommand)]
    variant: Variant,
    #[command(flatten)]
    connection: ApiConnection,
}

#[derive(Subcommand)]
enum Variant {
    /// Run a tool that only reads
    #[command(name = "tool-read", aliases = ["call_tool_read", "read"])]
    Read(Request),
    /// Run a tool that creates or updates something
    #[command(name = "tool-write", aliases = ["call_tool_write", "write"])]
    Write(Request),
    /// Run a tool that deletes or cannot be undone
    #[command(name = "tool-destructive", aliases = ["call_tool_destructive", "destructive"])]
    Destructive(Request),
}

#[derive(Args)]
struct Request {
    /// Name of the tool, as `mcpproxy tools search` prints it
    #[arg(value_name = "SERVER:TOOL")]
    name: String,
    /// Arguments of the tool, a JSON object; @FILE reads a file, - standard input
    #[arg(long, value_name = "JSON", default_value = "{}")]
    args: String,
    /// Reason for the call, for the audit trail (up to 1000 characters)
    #[arg(long, value_name = "TEXT")]
    reason: Option<String>,
    /// Sensitivity of the data: public, internal, private or unknown
    #[arg(long, value_name = "LEVEL")]
    sensitivity: Option<String>,
    /// Output format
    #[arg(short = 'o', long = "output", value_enum, default_value_t = Shape::Pretty, value_name = "FORMAT")]
    shape: Shape,
}

/// Output format of a result.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Shape {
    /// Texts of the result, for people
    Pretty,
    /// Result as the server sent it, byte for byte
    Json,
}

/// Body of `POST /tools/call`.
#[derive(Serialize)]
struct Body<'a> {
    tool_variant: String,
    name: &'a str,
    args: Box<RawValue>,
    intent_operation_type: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    intent_data_sensitivity: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    intent_reason: Option<&'a str>,
}

#[derive(Deserialize)]
struct Outcome {
    #[serde(default, rename = "isError")]
    is_error: bool,
    #[serde(default)]
    content: Vec<Value>,
    #[serde(rename = "structuredContent")]
    structured: Option<Value>,
}

impl CallCommand {
    pub(super) async fn run(self) -> Result<(), Failure> {
        let (operation, request) = match self.variant {
            Variant::Read(request) => ("read", request),
            Variant::Write(request) => ("write", request),
            Variant::Destructive(request) => ("destructive", request),
        };
        let body = Body {
            tool_variant: format!("call_tool_{operation}"),
            name: &request.name,
            args: input::object("--args", &request.args)?,
            intent_operation_type: operation,
            intent_data_sensitivity: request.sensitivity.as_deref(),
            intent_reason: request.reason.as_deref(),
        };
        let body = serde_json::to_string(&body).map_err(|error| Failure::Usage(error.to_string()))?;
        let answer = self.connection.client()?.send(Method::POST, &["tools", "call"], body).await?;
        if let Some(warning) = answer.headers.get(headers::WARNING).and_then(|value| value.to_str().ok()) {
            output::note(&format!("warning: {warning}"));
        }
        let outcome: Outcome = serde_json::from_str(&answer.text).unwrap_or(Outcome {
            is_error: false,
            content: Vec::new(),
            structured: None,
        });
        match request.shape {
            Shape::Json => output::line(&answer.text)?,
            Shape::Pretty => output::line(&readable(&outcome, &answer.text))?,
        }
        match outcome.is_error {
            true => Err(Failure::Tool(format!("{} reported an error", request.name))),
            false => Ok(()),
        }
    }
}

/// Returns the texts of a result, and JSON for content that is not text. Control characters are escaped on a terminal.
fn readable(outcome: &Outcome, raw: &str) -> String {
    let blocks = outcome.content.iter().map(|block| match (block.get("type"), block.get("text")) {
        (Some(Value::String(kind)), Some(Value::String(text))) if kind == "text" => text.clone(),
        _ => indented(block),
    });
    let blocks: Vec<String> = blocks.collect();
    let text = match (&outcome.structured, blocks.is_empty()) {
        (Some(structured), true) => indented(structured),
        (None, true) => raw.to_owned(),
        _ => blocks.join("\n"),
    };
    if output::is_terminal() { output::safe(&text) } else { text }
}

fn indented(value: &Value) -> String {
    serde_json::to_string_pretty(value).unwrap_or_default()
}
