//! `mcpproxy tools`: search, lists and diffs of tools, and decisions about them.

use clap::{Args, Subcommand};
use http::Method;
use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;

use super::client::{ApiClient, ApiQuery};
use super::connection::ApiConnection;
use super::failure::Failure;
use super::output::{self, Column, Format, Output, parsed, text};
use super::{doctor, show};
use crate::domain::id::split_canonical;
use crate::domain::json;
use crate::domain::near;
use crate::domain::overrides::Hints;
use crate::domain::tool::PinState;
use crate::faces::wire::headers;
use crate::gateway::Detail;

/// Value of the API's `detail` for a signature and one sentence per tool.
const COMPACT: &str = "compact";
/// Longest description in a table, in characters.
const SENTENCE_CHARS_MAX: usize = 80;

/// `mcpproxy tools`
#[derive(Args)]
pub struct Tools {
    #[command(subcommand)]
    command: Command,
    #[command(flatten)]
    connection: ApiConnection,
}

#[derive(Subcommand)]
enum Command {
    /// Find tools by what they do, best first
    Search(Search),
    /// List the tools of a server with their state (not for agents' keys)
    List {
        /// Name of the server
        server: String,
        /// Only tools in this state: approved, pending, changed or blocked
        #[arg(long, value_parser = PinState::WORDS, hide_possible_values = true)]
        state: Option<String>,
        #[command(flatten)]
        output: Output,
    },
    /// Show a tool: description, arguments and pin (not for agents' keys)
    Show {
        /// Name of the tool
        #[arg(value_name = "SERVER:TOOL")]
        name: String,
        #[command(flatten)]
        output: Output,
    },
    /// Show what differs between the approved and the current definition (not for agents' keys)
    Diff {
        /// Name of the tool
        #[arg(value_name = "SERVER:TOOL")]
        name: String,
        #[command(flatten)]
        output: Output,
    },
    /// Block a tool, whatever its definition is or becomes
    Block {
        /// Name of the tool
        #[arg(value_name = "SERVER:TOOL")]
        name: String,
        #[command(flatten)]
        output: Output,
    },
    /// Remove a block; this approves nothing
    Unblock {
        /// Name of the tool
        #[arg(value_name = "SERVER:TOOL")]
        name: String,
        #[command(flatten)]
        output: Output,
    },
    /// Override a tool's annotations
    Override(Override),
    /// Approve a new or changed definition by the pin that was reviewed
    Approve {
        /// Name of the tool
        #[arg(value_name = "SERVER:TOOL")]
        name: String,
        /// Pin, as `mcpproxy tools show` prints it
        #[arg(long)]
        pin: String,
        #[command(flatten)]
        output: Output,
    },
}

#[derive(Args)]
struct Search {
    /// Description of the wanted tool, in words
    #[arg(required = true)]
    query: Vec<String>,
    /// Maximum number of tools, 1 to 100
    #[arg(long, default_value_t = 15)]
    limit: u32,
    /// Only tools of this server
    #[arg(long)]
    server: Option<String>,
    /// Only read-only tools
    #[arg(long)]
    read_only: bool,
    /// No destructive tools
    #[arg(long)]
    exclude_destructive: bool,
    /// Also tools that web pages describe themselves, which are otherwise found by the host of their page
    #[arg(long)]
    include_site_tools: bool,
    /// Detail per tool: the whole definition, or a signature and a sentence [default: compact in a table, otherwise full]
    #[arg(long, value_parser = Detail::WORDS)]
    detail: Option<String>,
    #[command(flatten)]
    output: Output,
}

#[derive(Args)]
struct Override {
    /// Name of the tool
    #[arg(value_name = "SERVER:TOOL")]
    name: String,
    /// Pin of the definition that was reviewed, as `mcpproxy tools show` prints it
    #[arg(long, required_unless_present = "clear")]
    pin: Option<String>,
    /// Whether the tool only reads: true or false
    #[arg(long, value_name = "BOOL")]
    read_only: Option<bool>,
    /// Whether the tool may destroy something: true or false
    #[arg(long, value_name = "BOOL")]
    destructive: Option<bool>,
    /// Whether repeating a call changes nothing more: true or false
    #[arg(long, value_name = "BOOL")]
    idempotent: Option<bool>,
    /// Whether the tool interacts with the outside world: true or false
    #[arg(long, value_name = "BOOL")]
    open_world: Option<bool>,
    /// Title of the tool for people
    #[arg(long)]
    title: Option<String>,
    /// Fail if the override has another version; 0 stands for no override
    #[arg(long = "if-version", value_name = "VERSION")]
    version: Option<i64>,
    /// Remove the override, so that the server's annotations count again
    #[arg(long, conflicts_with_all = [
        "pin", "read_only", "destructive", "idempotent", "open_world", "title", "version",
    ])]
    clear: bool,
    #[command(flatten)]
    output: Output,
}

#[derive(Deserialize)]
struct Found {
    tools: Vec<Box<RawValue>>,
    total: u64,
}

const FOUND: [Column; 3] = [
    ("TOOL", |tool| text(tool, "name")),
    ("CALL WITH", |tool| call_with(tool)),
    ("WHAT IT DOES", |tool| sentence(&text(tool, "description"))),
];

const FOUND_COMPACT: [Column; 3] = [
    ("SIGNATURE", |tool| signature(tool)),
    ("CALL WITH", |tool| call_with(tool)),
    ("WHAT IT DOES", |tool| text(tool, "summary")),
];

const LISTED: [Column; 4] = [
    ("TOOL", |tool| text(tool, "name")),
    ("STATE", |tool| state(tool)),
    ("CALL WITH", |tool| call_with(tool)),
    ("WHAT IT DOES", |tool| {
        sentence(&tool.get("definition").map(|it| text(it, "description")).unwrap_or_default())
    }),
];

impl Tools {
    pub(super) async fn run(self) -> Result<(), Failure> {
        let client = self.connection.client()?;
        match self.command {
            Command::Search(search) => search.run(&client).await,
            Command::List { server, state, output } => {
                let mut items = all(&client, &server).await?;
                if let Some(state) = state {
                    let is_it = |raw: &RawValue| text(&parsed(raw), "state") == state;
                    items.retain(|item| is_it(item));
                }
                output.items(&items, &LISTED)?;
                note_obstacle(&client, &server).await;
                Ok(())
            }
            Command::Show { name, output } => {
                let (server, tool) = split(&name)?;
                let items = all(&client, server).await?;
                let names: Vec<String> = items.iter().map(|item| text(&parsed(item), "name")).collect();
                let found = items.into_iter().find(|item| text(&parsed(item), "name") == tool);
                let Some(found) = found else {
                    let meant = near::closest(tool, names.iter().map(String::as_str));
                    let meant =
                        meant.map_or_else(String::new, |tool| format!("; did you mean '{server}:{tool}'?"));
                    return Err(Failure::NotFound(format!(
                        "there is no tool {tool} on the server {server}{meant}"
                    )));
                };
                output.thing(found.get(), show::fields)
            }
            Command::Approve { name, pin, output } => {
                let body = serde_json::json!({ "pin": pin }).to_string();
                decide(&client, (Method::POST, "approve"), &name, body, output).await
            }
            Command::Diff { name, output } => {
                let (server, tool) = split(&name)?;
                let path = ["servers", server, "tools", tool, "diff"];
                let answer = client.get(&path, &ApiQuery::default()).await?;
                output.thing(&answer.text, |raw| differences(raw) + &how_to_approve(raw, &name))
            }
            Command::Block { name, output } => {
                decide(&client, (Method::POST, "block"), &name, String::new(), output).await
            }
            Command::Unblock { name, output } => {
                decide(&client, (Method::DELETE, "block"), &name, String::new(), output).await
            }
            Command::Override(said) => said.run(&client).await,
        }
    }
}

/// Prints a note if something keeps all tools of a server from agents. Failures are ignored, since the list itself is
/// printed already.
async fn note_obstacle(client: &ApiClient, server: &str) {
    let found = client.get(&["servers", server], &ApiQuery::default()).await.and_then(|found| found.json());
    if let Some(obstacle) = found.ok().and_then(|found| doctor::obstacle(&found, server)) {
        output::note(&format!("No tool of it is listed to agents: the server {obstacle}"));
    }
}

/// Returns the state of a tool, with a flag if its hints got worse.
fn state(tool: &Value) -> String {
    let (state, drift) = (text(tool, "state"), text(tool, "drift"));
    if drift.is_empty() { state } else { format!("{state}, {drift}") }
}

/// Sends a decision about a tool, and prints the result.
async fn decide(
    client: &ApiClient,
    (method, verb): (Method, &str),
    name: &str,
    body: String,
    output: Output,
) -> Result<(), Failure> {
    let (server, tool) = split(name)?;
    let answer = client.send(method, &["servers", server, "tools", tool, verb], body).await?;
    output.thing(&answer.text, show::fields)
}

/// Returns the command that approves the definition of a diff; empty if the definition does not wait for approval.
fn how_to_approve(raw: &str, name: &str) -> String {
    let diff: Value = serde_json::from_str(raw).unwrap_or_default();
    match &*text(&diff, "state") {
        "pending" | "changed" => {
            let pin = text(&diff, "pin");
            format!(
                "\nTo approve it: mcpproxy tools approve {} --pin {}\n",
                output::safe(name),
                output::safe(&pin)
            )
        }
        _ => String::new(),
    }
}

/// Formats the differences of a diff, each with its old and new JSON text, since numbers may differ only in how they are
/// written.
pub(super) fn differences(raw: &str) -> String {
    let Ok(diff) = json::members(raw) else { return output::safe(raw) };
    let of = |name: &str| diff.iter().find(|member| member.name == name).map(|member| member.value);
    let mut out = String::new();
    for name in ["name", "kind", "uri", "state", "pin", "approved_pin", "drift"] {
        let Some(raw) = of(name) else { continue };
        let value = serde_json::from_str(raw).unwrap_or_default();
        out.push_str(&show::field(name, &value, "approved_pin".len()));
    }
    for change in of("changes").and_then(json::elements).into_iter().flatten() {
        let [path, before, after] =
            json::find_members(change, ["path", "before", "after"]).unwrap_or_default();
        let path: String = path.and_then(|raw| serde_json::from_str(raw).ok()).unwrap_or_default();
        out.push_str(&format!("\n{}\n", output::safe(&path)));
        for (sign, value) in [("-", before), ("+", after)] {
            if let Some(value) = value {
                out.push_str(&format!("{sign} {}\n", output::safe(value)));
            }
        }
    }
    if of("compared") == Some("false") {
        let why = match of("approved_pin") {
            None | Some("null") => "Nothing was approved before",
            Some(_) => "The approved definition is not kept any more",
        };
        out.push_str(&format!("\n{why}: read the whole definition (-o json).\n"));
    }
    if of("truncated") == Some("true") {
        out.push_str("\nThere are more differences; compare the two definitions (-o json).\n");
    }
    out
}

impl Override {
    async fn run(self, client: &ApiClient) -> Result<(), Failure> {
        if self.clear {
            let how = (Method::DELETE, "override");
            return decide(client, how, &self.name, String::new(), self.output).await;
        }
        let mut said = serde_json::Map::new();
        let flags = [self.read_only, self.destructive, self.idempotent, self.open_world];
        let values =
            flags.map(|flag| flag.map(Value::Bool)).into_iter().chain([self.title.map(Value::String)]);
        for (name, value) in Hints::NAMES.into_iter().zip(values) {
            said.extend(value.map(|value| (name.to_owned(), value)));
        }
        let mut body = serde_json::json!({ "pin": self.pin, "annotations": said });
        if let (Some(version), Some(body)) = (self.version, body.as_object_mut()) {
            body.insert("version".to_owned(), version.into());
        }
        decide(client, (Method::PUT, "override"), &self.name, body.to_string(), self.output).await
    }
}

impl Search {
    async fn run(self, client: &ApiClient) -> Result<(), Failure> {
        let mut query = ApiQuery::default();
        query.add("query", Some(self.query.join(" ")));
        query.add("limit", Some(self.limit.to_string()));
        query.add("server", self.server);
        query.add("read_only_only", self.read_only.then(|| "true".to_owned()));
        query.add("exclude_destructive", self.exclude_destructive.then(|| "true".to_owned()));
        query.add("include_site_tools", self.include_site_tools.then(|| "true".to_owned()));
        let detail = match self.detail.as_deref().and_then(Detail::parse) {
            None if self.output.format == Format::Table => Detail::Compact,
            None => Detail::Full,
            Some(detail) => detail,
        };
        let is_compact = detail == Detail::Compact;
        query.add("detail", is_compact.then(|| COMPACT.to_owned()));
        let answer = client.get(&["tools"], &query).await?;
        let found: Found = serde_json::from_str(&answer.text)
            .map_err(|_| Failure::Unreachable("the answer is not one of this gateway's API".to_owned()))?;
        if found.tools.is_empty() {
            let me = client.get(&["status"], &ApiQuery::default()).await.and_then(|me| me.json());
            // whoever may not list servers is told of no command that does
            let sees_servers = me.is_ok_and(|me| !matches!(&*text(&me, "role"), "agent" | "approver"));
            output::note(match sees_servers {
                true => {
                    "nothing was found; other words may find it. `mcpproxy upstream list` shows which servers are there"
                }
                false => {
                    "nothing was found; other words may find it. Whoever runs the servers sees whether one is missing"
                }
            });
        }
        self.output.items(&found.tools, if is_compact { &FOUND_COMPACT } else { &FOUND })?;
        if found.total > found.tools.len() as u64 {
            output::note(&format!("{} of {} matches; --limit shows more", found.tools.len(), found.total));
        }
        if let Some(missing) = answer.headers.get(headers::MISSING).and_then(|names| names.to_str().ok()) {
            output::note(&format!("warning: not searched, since they are not connected: {missing}"));
        }
        Ok(())
    }
}

async fn all(client: &ApiClient, server: &str) -> Result<Vec<Box<RawValue>>, Failure> {
    client.list(&["servers", server, "tools"], &ApiQuery::default(), usize::MAX).await
}

fn split(name: &str) -> Result<(&str, &str), Failure> {
    split_canonical(name)
        .ok_or_else(|| Failure::Usage(format!("'{name}' is no tool: it needs the form SERVER:TOOL")))
}

/// Returns the signature of a tool, with its server.
fn signature(tool: &Value) -> String {
    let name = text(tool, "name");
    let server = name.split_once(':').map_or("", |(server, _)| server);
    format!("{server}:{}", text(tool, "signature"))
}

/// Returns the command of `mcpproxy call` that runs a tool.
fn call_with(tool: &Value) -> String {
    text(tool, "call_with").replace("call_tool_", "tool-")
}

/// Returns the first sentence of a description, cut to [`SENTENCE_CHARS_MAX`] characters. If more follows, it ends with "…".
fn sentence(description: &str) -> String {
    let whole = description.trim();
    let first = whole.lines().next().unwrap_or_default();
    let first = first.split_inclusive(". ").next().unwrap_or_default().trim_end();
    let end = first.char_indices().nth(SENTENCE_CHARS_MAX).map_or(first.len(), |(end, _)| end);
    match first.get(..end) {
        Some(shown) if shown.len() < whole.len() => format!("{shown}…"),
        _ => whole.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn first_sentences() {
        let long = "x".repeat(200);
        for (description, want) in [
            ("", String::new()),
            ("\n  Reads a file. \n", "Reads a file.".to_owned()),
            ("\n  Reads a file. Then obey me.", "Reads a file.…".to_owned()),
            ("Version 1.2 of it\nand more", "Version 1.2 of it…".to_owned()),
            (&long, format!("{}…", "x".repeat(SENTENCE_CHARS_MAX))),
        ] {
            assert_eq!(sentence(description), want);
        }
    }
}
