//! `mcpproxy call`: runs a tool with a declared intent.

use std::ffi::OsString;

use clap::{Args, Parser, Subcommand, ValueEnum};
use http::Method;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_json::value::RawValue;

use super::client::{ApiClient, ApiQuery};
use super::connection::ApiConnection;
use super::failure::Failure;
use super::{input, output};
use crate::domain::id::split_canonical;
use crate::domain::near;
use crate::faces::wire::headers;
use crate::gateway::Detail;

/// `mcpproxy call`
#[derive(Args)]
#[command(
    after_help = "Without a variant, `mcpproxy call SERVER:TOOL` takes the one that the gateway recommends."
)]
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
    /// Run a tool with its own `call_with`: `mcpproxy call SERVER:TOOL`, with the flags of the other commands
    #[command(external_subcommand)]
    Own(Vec<OsString>),
}

/// `mcpproxy call SERVER:TOOL`, without a variant
#[derive(Parser)]
#[command(name = "mcpproxy call", no_binary_name = true, disable_help_subcommand = true)]
struct OwnCall {
    #[command(flatten)]
    request: Request,
    #[command(flatten)]
    connection: ApiConnection,
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
        let (operation, request, connection) = match self.variant {
            Variant::Read(request) => ("read", request, self.connection),
            Variant::Write(request) => ("write", request, self.connection),
            Variant::Destructive(request) => ("destructive", request, self.connection),
            Variant::Own(words) => {
                let OwnCall { request, connection } = own_call(&words)?;
                let connection = connection.or(self.connection);
                (call_with(&connection.client()?, &request.name).await?, request, connection)
            }
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
        let client = connection.client()?;
        let answer = match client.send(Method::POST, &["tools", "call"], body).await {
            Err(Failure::NotFound(sentence)) => {
                return Err(Failure::NotFound(sentence + &meant(&client, &request.name).await));
            }
            answer => answer?,
        };
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

/// Parses a call without a variant. Its first word is the name of a tool, or a variant that there is not.
fn own_call(words: &[OsString]) -> Result<OwnCall, Failure> {
    let first = words.first().map(|word| word.to_string_lossy().into_owned()).unwrap_or_default();
    if split_canonical(&first).is_none() {
        let variants = ["tool-read", "tool-write", "tool-destructive"];
        let meant = near::closest(&first, variants.into_iter());
        let meant = meant.map_or_else(String::new, |meant| format!("; did you mean {meant}?"));
        return Err(Failure::Usage(format!(
            "'{first}' is neither a tool, SERVER:TOOL, nor one of {}{meant}",
            variants.join(", ")
        )));
    }
    OwnCall::try_parse_from(words).map_err(|error| Failure::Usage(error.render().to_string()))
}

/// Returns the end of a sentence about a tool that is not there: the tool that was most likely meant; empty if none is close.
async fn meant(client: &ApiClient, name: &str) -> String {
    let meant = client.meant_tool(name).await;
    meant.map_or_else(String::new, |tool| format!("; did you mean '{tool}'?"))
}

/// Returns the operation of a tool's own variant, as a search shows it to this key.
async fn call_with(client: &ApiClient, name: &str) -> Result<&'static str, Failure> {
    let (server, tool) = split_canonical(name).unwrap_or_default();
    let mut query = ApiQuery::default();
    query.add("query", Some(tool.to_owned()));
    query.add("server", Some(server.to_owned()));
    query.add("include_site_tools", Some("true".to_owned()));
    query.add("detail", Some(Detail::Compact.as_str().to_owned()));
    let found = client.get(&["tools"], &query).await?.json()?;
    let mut tools = found.get("tools").and_then(Value::as_array).into_iter().flatten();
    let own = tools.find(|found| output::text(found, "name") == name);
    let variant = own.map(|found| output::text(found, "call_with")).unwrap_or_default();
    let operation = match variant.as_str() {
        "call_tool_read" => "read",
        "call_tool_write" => "write",
        "call_tool_destructive" => "destructive",
        _ => {
            return Err(Failure::NotFound(format!(
                "this key sees no tool {name}: mcpproxy tools search WORDS finds those that it has{}",
                meant(client, name).await
            )));
        }
    };
    output::note(&format!("{name} is called with {variant}, as the gateway recommends"));
    Ok(operation)
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
