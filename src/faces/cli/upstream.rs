//! `mcpproxy upstream`: the servers behind the gateway.

use clap::{Args, Subcommand};
use http::Method;
use serde_json::{Map, Value};

use super::client::{ApiClient, ApiQuery};
use super::connection::ApiConnection;
use super::failure::Failure;
use super::oauth_flags::{self, OauthFlags};
use super::output::{self, Column, Output, text};
use super::page_flags::PageFlags;
use super::tally::ToolTally;
use super::upstream_connect::{self, ConnectFlags};
use super::upstream_logs::Logs;
use super::{input, offers, show};
use crate::domain::era::Era;
use crate::domain::json;
use crate::gateway::NAME_TAKEN;

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
    /// Release a server from quarantine
    ///
    /// The first release approves all tools as they are then. After a later one, changed and new tools still wait, unless the server
    /// approves automatically.
    Unquarantine(One),
    /// List a server's tools now
    Refresh(One),
    /// List a server's tools now, over new connections
    Restart(One),
    /// Change a server's address, headers, limits, or whether changed tools are approved automatically
    Update(Update),
    /// Show a server's log: standard error of its program, and events of the server
    ///
    /// Lines are there within 2 s. That a server over HTTP has gone away is noticed when it is listed next, by default every 30 s.
    Logs(Logs),
    /// List a server's prompts (not for agents' keys)
    Prompts(One),
    /// List a server's resources and resource templates (not for agents' keys)
    Resources(One),
    /// Log in at a server in a browser, as the holder of the API key: whoever uses the key calls the server with this login
    Connect(ConnectFlags),
    /// List the logins at a server
    Connections(One),
    /// End a login at a server: its tokens are forgotten, and revoked where the server offers that
    Disconnect {
        /// Name of the server
        name: String,
        /// Id of the login, from mcpproxy upstream connections
        id: String,
    },
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
    /// Words of a program: not taken, and the error says what to do instead
    #[arg(last = true, hide = true)]
    words: Vec<String>,
    /// Program of the deployment instead of an address, by its name in stdio.commands
    #[arg(long = "command", value_name = "NAME", conflicts_with_all = ["address", "headers"])]
    program: Option<String>,
    /// Web page whose forms become tools, instead of an address; may be repeated
    #[arg(long = "page", value_name = "URL", conflicts_with_all = ["address", "program", "headers"])]
    pages: Vec<String>,
    #[command(flatten)]
    settings: PageFlags,
    /// Header sent with every request, as NAME=VALUE or NAME=- (read from standard input); may be repeated. Prefer NAME=-:
    /// other users can read command lines
    #[arg(long = "header", value_name = "NAME=VALUE")]
    headers: Vec<String>,
    #[command(flatten)]
    oauth: OauthFlags,
    /// Approve new and changed tools automatically
    #[arg(long)]
    auto_approve: bool,
    /// Add the server disabled
    #[arg(long)]
    disabled: bool,
    /// Exit with 0 even if the server cannot be listed, for one that does not run yet
    #[arg(long)]
    no_check: bool,
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
    /// Page of the new list, which replaces all pages of a server of web pages; may be repeated. A page at another place
    /// clears field secrets and approvals; unless you are an admin, it also quarantines the server
    #[arg(long = "page", value_name = "URL", conflicts_with_all = ["address", "headers"])]
    pages: Vec<String>,
    #[command(flatten)]
    settings: PageFlags,
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
    #[command(flatten)]
    oauth: OauthFlags,
    /// Remove the gateway's login at the server, with its tokens
    #[arg(long, conflicts_with_all = ["oauth_client_id", "oauth_kind"])]
    no_oauth: bool,
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
                output.thing(&answer.text, fields)
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
            Command::Connect(connect) => connect.run(&client).await,
            Command::Connections(One { name, output }) => {
                upstream_connect::list(&client, &name, &output).await
            }
            Command::Disconnect { name, id } => {
                client.act(Method::DELETE, &["servers", &name, "connections", &id]).await?;
                output::note(&format!("the login {id} at server {name} is ended"));
                Ok(())
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
        self.output.thing(&answer.text, fields)?;
        warn(&answer.json()?);
        Ok(())
    }
}

impl Add {
    async fn run(self, client: &ApiClient) -> Result<(), Failure> {
        if !self.words.is_empty() {
            let tenant = client.tenant_name().await.unwrap_or("TENANT");
            return Err(Failure::Usage(how_to_offer(&self.name, &self.words, tenant)));
        }
        let mut body = Map::new();
        let (kind, place) = match (&self.program, &self.address) {
            _ if !self.pages.is_empty() => ("web_page", ("pages", self.pages.clone().into())),
            (Some(program), _) => ("stdio", ("command", program.clone().into())),
            (None, Some(address)) => ("http", ("url", address.clone().into())),
            (None, None) => {
                return Err(Failure::Usage(format!(
                    "the server's address is missing: mcpproxy upstream add {} URL (--url is where the gateway is), \
                     --command NAME for a program of the deployment, or --page URL for the forms of a web page",
                    self.name
                )));
            }
        };
        body.insert("name".to_owned(), self.name.clone().into());
        body.insert("kind".to_owned(), kind.into());
        body.insert(place.0.to_owned(), place.1);
        self.settings.add_to(&mut body)?;
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
        if self.oauth.is_given() && kind != "http" {
            return Err(Failure::Usage("a login is for a server at an address".to_owned()));
        }
        let login = self.oauth.body(None)?;
        let sent = client.send(Method::POST, &["servers"], Value::Object(body).to_string()).await;
        let mut answer = sent.map_err(|failure| advised(failure, &self.name))?;
        if let Some(login) = login {
            let configured = oauth_flags::put(client, &self.name, login).await;
            answer = configured.map_err(|failure| {
                let sentence = format!(
                    "{failure}; the server is added without its login: give it again with mcpproxy upstream update {} \
                     --oauth-client-id ID --oauth-client-secret - --oauth-issuer URL",
                    self.name
                );
                failure.saying(sentence)
            })?;
        }
        self.output.thing(&answer.text, fields)?;
        let server = answer.json()?;
        let error = text(&server, "last_error");
        if !error.is_empty() && !self.no_check && text(&server, "connection") != "connected" {
            return Err(Failure::Tool(format!(
                "{0} is added, but could not be listed: {error}; try again with mcpproxy upstream refresh {0}, or change the \
                 server with mcpproxy upstream update {0} (--no-check adds servers that do not run yet)",
                self.name
            )));
        }
        warn(&server);
        tell_tools(client, &server).await
    }
}

/// Adds what to do to the failure of adding a server whose name is taken.
fn advised(failure: Failure, name: &str) -> Failure {
    let sentence = failure.to_string();
    match sentence.starts_with(NAME_TAKEN) {
        true => failure.saying(format!(
            "{sentence}: mcpproxy upstream update {name} changes it, mcpproxy upstream show {name} shows it"
        )),
        false => failure,
    }
}

/// Formats a server for people: the era by the revisions of the protocol that it stands for.
fn fields(raw: &str) -> String {
    let Ok(members) = json::members(raw) else { return output::safe(raw) };
    let width = members.iter().map(|member| member.name.chars().count()).max().unwrap_or_default();
    let shown = |member: &json::Member<'_>| {
        let value: Value = serde_json::from_str(member.value).unwrap_or_default();
        match value.as_str().filter(|_| member.name == "era").and_then(Era::parse) {
            Some(era) => show::field("revision", &era.revisions().into(), width),
            None => show::field(&member.name, &value, width),
        }
    };
    members.iter().map(shown).collect()
}

/// Returns what to do about a program that somebody wants to add by its words.
fn how_to_offer(name: &str, words: &[String], tenant: &str) -> String {
    let argv = serde_json::to_string(words).unwrap_or_default();
    format!(
        "the gateway runs only programs that its operator names. In the gateway's file:\n\n[stdio.commands.{name}]\n\
         argv = {argv}\nenv = {{ HOME = \"/var/cache/mcp\" }}\ntenants = [\"{tenant}\"]\n\n\
         env is the program's whole environment. HOME is a folder that the program may write to, which npx and uvx need. Add the \
         variables that the program asks for, such as a token. Without PATH it is /usr/local/bin:/usr/bin:/bin.\n\nthen: mcpproxy reload (as the platform; the gateway runs with --config), and mcpproxy upstream add {name} --command {name}"
    )
}

/// Prints how many tools a server has been found to have, and what it means that some say nothing about themselves.
async fn tell_tools(client: &ApiClient, server: &Value) -> Result<(), Failure> {
    if text(server, "connection") != "connected" {
        return Ok(());
    }
    let tools =
        client.list(&["servers", &text(server, "name"), "tools"], &ApiQuery::default(), usize::MAX).await?;
    let tally = ToolTally::of_list(&tools.iter().map(|tool| output::parsed(tool)).collect::<Vec<_>>());
    output::note(&tally.line());
    let name = text(server, "name");
    if tally.total == 0 && text(server, "kind") == "web_page" {
        output::note(&format!(
            "no form of the pages has become a tool: mcpproxy page report {name} says why, and mcpproxy page inspect URL shows with which \
             flags one would. mcpproxy upstream update {name} takes the same flags"
        ));
    }
    if tally.total > 0 && server.pointer("/pages/disclosure").is_some_and(|how| how == "on_request") {
        output::note(&format!(
            "only searches that name a page's host find them; mcpproxy upstream update {name} --disclosure always shows them to all"
        ));
    }
    if tally.unannotated > 0 {
        let me = client.get(&["status"], &ApiQuery::default()).await?.json()?;
        if let Some(meaning) = tally.meaning(&me) {
            output::note(meaning.text());
        }
    }
    Ok(())
}

impl Update {
    async fn run(self, client: &ApiClient) -> Result<(), Failure> {
        let mut body = Map::new();
        if let Some(address) = self.address {
            body.insert("url".to_owned(), address.into());
        }
        if !self.pages.is_empty() {
            body.insert("pages".to_owned(), self.pages.into());
        }
        self.settings.add_to(&mut body)?;
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
        if body.is_empty() && !self.oauth.is_wanted()? && !self.no_oauth {
            return Err(Failure::Usage(
                "nothing to change: give --address (--url is where the gateway is), --header, --oauth-client-id, --no-oauth, \
                 --page, --limit, --relay or --auto-approve"
                    .to_owned(),
            ));
        }
        if self.no_oauth {
            client.act(Method::DELETE, &["servers", &self.name, "oauth"]).await?;
        }
        // a change of the server between reading and updating makes the update a conflict
        let current = client.get(&["servers", &self.name], &ApiQuery::default()).await?.json()?;
        let mut answer = None;
        if !body.is_empty() {
            body.insert("version".to_owned(), current.get("version").cloned().unwrap_or_default());
            let body = Value::Object(body).to_string();
            answer = Some(client.send(Method::PATCH, &["servers", &self.name], body).await?);
        }
        let kind = current.get("oauth").map(|oauth| text(oauth, "kind")).filter(|kind| !kind.is_empty());
        if let Some(login) = self.oauth.body(kind.as_deref())? {
            answer = Some(oauth_flags::put(client, &self.name, login).await?);
        }
        let answer = match answer {
            Some(answer) => answer,
            None => client.get(&["servers", &self.name], &ApiQuery::default()).await?,
        };
        self.output.thing(&answer.text, fields)?;
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
    input::secrets("header", given)
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
