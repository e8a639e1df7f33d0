//! `mcpproxy upstream`: the servers behind the gateway.

use std::io::Read;

use clap::{Args, Subcommand};
use http::Method;
use serde_json::{Map, Value};

use super::client::{ApiClient, ApiQuery};
use super::connection::ApiConnection;
use super::failure::Failure;
use super::output::{self, Column, Output, text};
use super::upstream_logs::Logs;
use super::{input, offers, show};

/// Longest header value that is read from standard input, in bytes.
const HEADER_BYTES_MAX: u64 = 8 * 1024;

/// `mcpproxy upstream`
#[derive(Args)]
pub struct UpstreamCommand {
    #[command(subcommand)]
    command: Command,
    #[command(flatten)]
    connection: ApiConnection,
}

#[derive(Subcommand)]
enum Command {
    /// Add a server and list its tools
    Add(Add),
    /// List servers
    List {
        #[command(flatten)]
        output: Output,
    },
    /// Show a server
    Show(One),
    /// Enable a disabled server
    Enable(One),
    /// Disable a server for everybody, without removing it
    Disable(One),
    /// Hide a server's tools from agents until a person has reviewed them
    Quarantine(One),
    /// Release a server from quarantine: its tools, as they are now, count as approved
    Unquarantine(One),
    /// List a server's tools now
    Refresh(One),
    /// List a server's tools now, over new connections
    Restart(One),
    /// Change a server's address, headers, limits, or whether changed tools are approved automatically
    Update(Update),
    /// Show a server's log: standard error of its program, and events of the server
    Logs(Logs),
    /// List a server's prompts (not for agents' keys)
    Prompts(One),
    /// List a server's resources and resource templates (not for agents' keys)
    Resources(One),
    /// Remove a server with its credentials and approvals
    Remove {
        /// Name of the server
        name: String,
        /// Remove without asking
        #[arg(long)]
        yes: bool,
    },
}

#[derive(Args)]
struct One {
    /// Name of the server
    name: String,
    #[command(flatten)]
    output: Output,
}

#[derive(Args)]
struct Add {
    /// Name of the server: 1 to 32 of a-z, 0-9 and single hyphens
    name: String,
    /// Address of the server (streamable HTTP)
    // a field `url` would be taken for the gateway's, which every command has
    #[arg(value_name = "URL")]
    address: Option<String>,
    /// Program of the deployment instead of an address, by its name in stdio.commands
    #[arg(long = "command", value_name = "NAME", conflicts_with_all = ["address", "headers"])]
    program: Option<String>,
    /// Header sent with every request, as NAME=VALUE or NAME=- (read from standard input); may be repeated. Prefer NAME=-:
    /// other users can read command lines
    #[arg(long = "header", value_name = "NAME=VALUE")]
    headers: Vec<String>,
    /// Approve new and changed tools automatically
    #[arg(long)]
    auto_approve: bool,
    /// Add the server disabled
    #[arg(long)]
    disabled: bool,
    /// Tighter limit, for example call_timeout_s=20; may be repeated
    #[arg(long = "limit", value_name = "NAME=VALUE")]
    limits: Vec<String>,
    /// Questions and messages that reach clients in the middle of a call: elicitation (true unless set), sampling, roots or
    /// logging, for example sampling=true; may be repeated
    #[arg(long = "relay", value_name = "NAME=BOOL")]
    relay: Vec<String>,
    #[command(flatten)]
    output: Output,
}

#[derive(Args)]
struct Update {
    /// Name of the server
    name: String,
    /// New address. Another scheme, host, port or path clears headers and approvals; unless you are an admin, it also
    /// quarantines the server
    #[arg(long = "address", value_name = "URL")]
    address: Option<String>,
    /// Keep the headers at another address (admins only)
    #[arg(long, requires = "address", conflicts_with_all = ["headers", "no_headers"])]
    keep_credentials: bool,
    /// Header of the new list, which replaces all headers, as NAME=VALUE or NAME=- (read from standard input); may be
    /// repeated
    #[arg(long = "header", value_name = "NAME=VALUE")]
    headers: Vec<String>,
    /// Remove all headers
    #[arg(long, conflicts_with = "headers")]
    no_headers: bool,
    /// Whether new and changed tools are approved automatically
    #[arg(long, value_name = "BOOL")]
    auto_approve: Option<bool>,
    /// Limit of the new list, which replaces all limits, for example call_timeout_s=20; may be repeated
    #[arg(long = "limit", value_name = "NAME=VALUE")]
    limits: Vec<String>,
    /// Remove all limits of the server
    #[arg(long, conflicts_with = "limits")]
    no_limits: bool,
    /// Questions and messages that reach clients in the middle of a call: elicitation, sampling, roots or logging, for example
    /// sampling=true; may be repeated. What is not named gets its default again
    #[arg(long = "relay", value_name = "NAME=BOOL")]
    relay: Vec<String>,
    #[command(flatten)]
    output: Output,
}

const COLUMNS: [Column; 5] = [
    ("NAME", |server| text(server, "name")),
    ("STATE", state),
    ("CONNECTION", |server| text(server, "connection")),
    ("URL", place),
    ("LAST ERROR", |server| text(server, "last_error")),
];

impl UpstreamCommand {
    pub(super) async fn run(self) -> Result<(), Failure> {
        let client = self.connection.client()?;
        match self.command {
            Command::Add(add) => add.run(&client).await,
            Command::List { output } => {
                output.items(&client.list(&["servers"], &ApiQuery::default(), usize::MAX).await?, &COLUMNS)
            }
            Command::Show(One { name, output }) => {
                let answer = client.get(&["servers", &name], &ApiQuery::default()).await?;
                output.thing(&answer.text, show::fields)
            }
            Command::Enable(one) => one.act(&client, "enable").await,
            Command::Disable(one) => one.act(&client, "disable").await,
            Command::Quarantine(one) => one.act(&client, "quarantine").await,
            Command::Unquarantine(one) => one.act(&client, "unquarantine").await,
            Command::Refresh(one) => one.act(&client, "refresh").await,
            Command::Restart(one) => one.act(&client, "restart").await,
            Command::Update(update) => update.run(&client).await,
            Command::Logs(logs) => logs.run(&client).await,
            Command::Prompts(One { name, output }) => {
                offers::list(&client, &name, "prompts", &offers::PROMPTS, output).await
            }
            Command::Resources(One { name, output }) => {
                offers::list(&client, &name, "resources", &offers::RESOURCES, output).await
            }
            Command::Remove { name, yes } => {
                input::confirm(yes, &format!("remove the server {name} with its credentials and approvals"))?;
                client.act(Method::DELETE, &["servers", &name]).await?;
                output::note(&format!("server {name} is removed"));
                Ok(())
            }
        }
    }
}

impl One {
    async fn act(self, client: &ApiClient, verb: &str) -> Result<(), Failure> {
        let answer = client.act(Method::POST, &["servers", &self.name, verb]).await?;
        self.output.thing(&answer.text, show::fields)?;
        warn(&answer.json()?);
        Ok(())
    }
}

impl Add {
    async fn run(self, client: &ApiClient) -> Result<(), Failure> {
        let mut body = Map::new();
        let place = match (&self.program, &self.address) {
            (Some(program), _) => [("kind", "stdio"), ("command", program)],
            (None, Some(address)) => [("kind", "http"), ("url", address)],
            (None, None) => {
                return Err(Failure::Usage(format!(
                    "the server's address is missing: mcpproxy upstream add {} URL (--url is where the gateway is), \
                     or --command NAME for a program of the deployment",
                    self.name
                )));
            }
        };
        for (name, value) in [("name", &*self.name)].into_iter().chain(place) {
            body.insert(name.to_owned(), value.into());
        }
        body.insert("enabled".to_owned(), (!self.disabled).into());
        body.insert("auto_approve".to_owned(), self.auto_approve.into());
        if !self.headers.is_empty() {
            body.insert("headers".to_owned(), Value::Object(headers(&self.headers)?));
        }
        if !self.limits.is_empty() {
            body.insert("limits".to_owned(), Value::Object(input::settings(&self.limits)?));
        }
        if !self.relay.is_empty() {
            body.insert("relay".to_owned(), Value::Object(input::settings(&self.relay)?));
        }
        let answer = client.send(Method::POST, &["servers"], Value::Object(body).to_string()).await?;
        self.output.thing(&answer.text, show::fields)?;
        warn(&answer.json()?);
        Ok(())
    }
}

impl Update {
    async fn run(self, client: &ApiClient) -> Result<(), Failure> {
        let mut body = Map::new();
        if let Some(address) = self.address {
            body.insert("url".to_owned(), address.into());
        }
        if self.keep_credentials {
            body.insert("keep_credentials".to_owned(), true.into());
        }
        if self.no_headers || !self.headers.is_empty() {
            body.insert("headers".to_owned(), Value::Object(headers(&self.headers)?));
        }
        if let Some(auto_approve) = self.auto_approve {
            body.insert("auto_approve".to_owned(), auto_approve.into());
        }
        if self.no_limits || !self.limits.is_empty() {
            body.insert("limits".to_owned(), Value::Object(input::settings(&self.limits)?));
        }
        if !self.relay.is_empty() {
            body.insert("relay".to_owned(), Value::Object(input::settings(&self.relay)?));
        }
        if body.is_empty() {
            return Err(Failure::Usage(
                "nothing to change: give --address (--url is where the gateway is), --header, --limit, --relay or \
                 --auto-approve"
                    .to_owned(),
            ));
        }
        // a change of the server between reading and updating makes the update a conflict
        let current = client.get(&["servers", &self.name], &ApiQuery::default()).await?.json()?;
        body.insert("version".to_owned(), current.get("version").cloned().unwrap_or_default());
        let body = Value::Object(body).to_string();
        let answer = client.send(Method::PATCH, &["servers", &self.name], body).await?;
        self.output.thing(&answer.text, show::fields)?;
        warn(&answer.json()?);
        Ok(())
    }
}

/// Prints notes about what keeps a server's tools from agents.
pub(super) fn warn(server: &Value) {
    let name = text(server, "name");
    let error = text(server, "last_error");
    if !error.is_empty() {
        output::note(&format!("warning: {name} could not be listed: {error}"));
    }
    if server.get("quarantined") == Some(&Value::Bool(true)) {
        output::note(&format!(
            "{name} is in quarantine: look at its tools (mcpproxy tools list {name}), then an admin, or another operator, releases it \
             (mcpproxy upstream unquarantine {name})"
        ));
    }
}

/// Returns the address of a server, or its program.
fn place(server: &Value) -> String {
    match text(server, "command") {
        program if program.is_empty() => text(server, "url"),
        program => format!("command {program}"),
    }
}

fn headers(given: &[String]) -> Result<Map<String, Value>, Failure> {
    let mut headers = Map::new();
    for pair in given {
        // the value may be a credential: it is not repeated
        let Some((name, value)) = pair.split_once('=') else {
            return Err(Failure::Usage("a --header needs the form NAME=VALUE or NAME=-".to_owned()));
        };
        let value = if value == "-" { from_stdin(name)? } else { value.to_owned() };
        if headers.insert(name.to_owned(), value.into()).is_some() {
            return Err(Failure::Usage(format!("the header {name} is given twice")));
        }
    }
    Ok(headers)
}

fn from_stdin(name: &str) -> Result<String, Failure> {
    let mut value = String::new();
    let read = std::io::stdin().take(HEADER_BYTES_MAX + 1).read_to_string(&mut value);
    read.map_err(|error| Failure::Usage(format!("the value of {name} cannot be read: {error}")))?;
    Ok(value.trim_end_matches(['\r', '\n']).to_owned())
}

fn state(server: &Value) -> String {
    let is = |name: &str| server.get(name) == Some(&Value::Bool(true));
    match (is("enabled"), is("quarantined")) {
        (false, _) => "disabled",
        (true, true) => "quarantined",
        (true, false) => "enabled",
    }
    .to_owned()
}
