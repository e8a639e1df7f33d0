//! `mcpproxy tools`: what there is to call.

use clap::{Args, Subcommand};
use http::Method;
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::client::{Client, Query};
use super::connection::Connection;
use super::failure::Failure;
use super::output::{self, Column, Format, Output, text};
use super::show;
use crate::domain::id::split_canonical;
use crate::faces::wire::headers;
use crate::gateway::Detail;

/// How the API calls a signature and a sentence.
const COMPACT: &str = "compact";
/// Characters of a description in a table.
const SENTENCE_CHARS_MAX: usize = 80;

/// `mcpproxy tools`
#[derive(Args)]
pub struct Tools {
    #[command(subcommand)]
    command: Command,
    #[command(flatten)]
    connection: Connection,
}

#[derive(Subcommand)]
enum Command {
    /// Find tools by what they do, best first
    Search(Search),
    /// List the tools of a server with their state (not for agents' keys)
    List {
        /// The server
        server: String,
        /// Only those in this state: approved, pending, changed or blocked
        #[arg(long, value_parser = ["approved", "pending", "changed", "blocked"], hide_possible_values = true)]
        state: Option<String>,
        #[command(flatten)]
        output: Output,
    },
    /// Show a tool: what it does, its arguments, its pin (not for agents' keys)
    Show {
        /// The tool
        #[arg(value_name = "SERVER:TOOL")]
        name: String,
        #[command(flatten)]
        output: Output,
    },
    /// Approve a new or changed definition, naming the pin that was looked at
    Approve {
        /// The tool
        #[arg(value_name = "SERVER:TOOL")]
        name: String,
        /// The pin, as `mcpproxy tools show` prints it
        #[arg(long)]
        pin: String,
        #[command(flatten)]
        output: Output,
    },
}

#[derive(Args)]
struct Search {
    /// What the tool should do, in words
    #[arg(required = true)]
    query: Vec<String>,
    /// How many, 1 to 100
    #[arg(long, default_value_t = 15)]
    limit: u32,
    /// Only tools of this server
    #[arg(long)]
    server: Option<String>,
    /// Only tools that only read
    #[arg(long)]
    read_only: bool,
    /// No destructive tools
    #[arg(long)]
    exclude_destructive: bool,
    /// What is said of each: the whole definition, or a signature and a sentence [default: compact in a table,
    /// otherwise full]
    #[arg(long, value_parser = Detail::NAMES)]
    detail: Option<String>,
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
    ("STATE", |tool| text(tool, "state")),
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
                output.items(&items, &LISTED)
            }
            Command::Show { name, output } => {
                let (server, tool) = split(&name)?;
                let items = all(&client, server).await?;
                let found = items.into_iter().find(|item| text(&parsed(item), "name") == tool);
                let Some(found) = found else {
                    return Err(Failure::Refused(format!("there is no tool {tool} on the server {server}")));
                };
                output.thing(found.get(), show::fields)
            }
            Command::Approve { name, pin, output } => {
                let (server, tool) = split(&name)?;
                let body = json!({ "pin": pin }).to_string();
                let path = ["servers", server, "tools", tool, "approve"];
                let answer = client.send(Method::POST, &path, body).await?;
                output.thing(&answer.text, show::fields)
            }
        }
    }
}

impl Search {
    async fn run(self, client: &Client) -> Result<(), Failure> {
        let mut query = Query::default();
        query.add("query", Some(self.query.join(" ")));
        query.add("limit", Some(self.limit.to_string()));
        query.add("server", self.server);
        query.add("read_only_only", self.read_only.then(|| "true".to_owned()));
        query.add("exclude_destructive", self.exclude_destructive.then(|| "true".to_owned()));
        let detail = match self.detail.as_deref().and_then(Detail::named) {
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
            output::note(
                "nothing was found; other words may find it, and `mcpproxy upstream list` says what is there",
            );
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

async fn all(client: &Client, server: &str) -> Result<Vec<Box<RawValue>>, Failure> {
    client.list(&["servers", server, "tools"], &Query::default(), usize::MAX).await
}

fn split(name: &str) -> Result<(&str, &str), Failure> {
    split_canonical(name)
        .ok_or_else(|| Failure::Usage(format!("'{name}' is no tool: it needs the form SERVER:TOOL")))
}

fn parsed(raw: &RawValue) -> Value {
    serde_json::from_str(raw.get()).unwrap_or_default()
}

/// How it is called, with its server.
fn signature(tool: &Value) -> String {
    let name = text(tool, "name");
    let server = name.split_once(':').map_or("", |(server, _)| server);
    format!("{server}:{}", text(tool, "signature"))
}

/// The command that runs it.
fn call_with(tool: &Value) -> String {
    text(tool, "call_with").replace("call_tool_", "tool-")
}

/// The first sentence of a description, shortened; where that is not all of it, it ends with "…".
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
