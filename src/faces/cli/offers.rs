//! `mcpproxy prompts` and `mcpproxy resources`: lists and diffs of definitions, and decisions about them.

use clap::{Args, Subcommand};
use http::Method;
use serde_json::{Map, Value};

use super::client::{ApiClient, ApiQuery};
use super::connection::ApiConnection;
use super::failure::Failure;
use super::output::{self, Column, Output, text};
use super::{show, tools};
use crate::domain::id::is_name;

/// `mcpproxy prompts`
#[derive(Args)]
pub struct Prompts {
    #[command(subcommand)]
    command: Command<Prompt>,
    #[command(flatten)]
    connection: ApiConnection,
}

/// `mcpproxy resources`
#[derive(Args)]
pub struct ResourcesCommand {
    #[command(subcommand)]
    command: Command<Resource>,
    #[command(flatten)]
    connection: ApiConnection,
}

#[derive(Subcommand)]
enum Command<N: Args> {
    /// List what a server offers, with the state of each (not for agents' keys)
    List {
        /// Name of the server
        server: String,
        #[command(flatten)]
        output: Output,
    },
    /// Show one with its definition and pin (not for agents' keys)
    Show {
        #[command(flatten)]
        name: N,
        #[command(flatten)]
        output: Output,
    },
    /// Show what differs between the approved and the current definition (not for agents' keys)
    Diff {
        #[command(flatten)]
        name: N,
        #[command(flatten)]
        output: Output,
    },
    /// Approve a new or changed definition by the pin that was reviewed
    Approve {
        #[command(flatten)]
        name: N,
        /// Pin, as `show` prints it
        #[arg(long)]
        pin: String,
        #[command(flatten)]
        output: Output,
    },
    /// Block one, whatever its definition is or becomes
    Block {
        #[command(flatten)]
        name: N,
        #[command(flatten)]
        output: Output,
    },
    /// Remove a block; this approves nothing
    Unblock {
        #[command(flatten)]
        name: N,
        #[command(flatten)]
        output: Output,
    },
}

/// Name of a prompt.
#[derive(Args)]
struct Prompt {
    /// Name of the prompt
    #[arg(value_name = "SERVER:PROMPT")]
    name: String,
}

/// Name of a resource or template.
#[derive(Args)]
struct Resource {
    /// URI of the resource
    #[arg(value_name = "SERVER:URI")]
    name: String,
    /// Take the URI for a template of resources
    #[arg(long)]
    template: bool,
}

/// Columns of a list of prompts.
pub(super) const PROMPTS: [Column; 3] = [
    ("PROMPT", |prompt| text(prompt, "name")),
    ("STATE", |prompt| text(prompt, "state")),
    ("NOT LISTED", |prompt| text(prompt, "not_listed")),
];

/// Columns of a list of resources.
pub(super) const RESOURCES: [Column; 5] = [
    ("KIND", |resource| text(resource, "kind")),
    ("URI", |resource| text(resource, "uri")),
    ("STATE", |resource| text(resource, "state")),
    ("SHADOWED BY", |resource| text(resource, "shadowed_by")),
    ("NOT LISTED", |resource| text(resource, "not_listed")),
];

/// Prints the offers of a server. `what` is the last segment of the list's route.
pub(super) async fn list(
    client: &ApiClient,
    server: &str,
    what: &str,
    columns: &[Column],
    output: Output,
) -> Result<(), Failure> {
    let items = client.list(&["servers", server, what], &ApiQuery::default(), usize::MAX).await?;
    output.items(&items, columns)
}

/// Kind of offer that commands decide about: a prompt, or a resource or template.
trait Named: Args {
    /// Last segment of the route that lists offers of this kind.
    const LIST: &'static str;
    /// Columns of that list.
    const COLUMNS: &'static [Column];

    /// Splits the name into the server's name and the offer's own name.
    fn split(&self) -> Result<(&str, &str), Failure>;

    /// Returns whether `item` of a list is this offer, whose own name is `own`.
    fn is(&self, item: &Value, own: &str) -> bool;

    /// Fetches the diff of the offer, as the JSON text of the answer.
    async fn diff(&self, client: &ApiClient) -> Result<String, Failure>;

    /// Sends the decision, and returns the JSON text of the answer.
    async fn decide(
        &self,
        client: &ApiClient,
        verb: Verb,
        body: Map<String, Value>,
    ) -> Result<String, Failure>;
}

/// Splits a name at the first colon.
fn split<'a>(name: &'a str, what: &str, form: &str) -> Result<(&'a str, &'a str), Failure> {
    let parts = name.split_once(':').filter(|(server, own)| is_name(server) && !own.is_empty());
    parts.ok_or_else(|| Failure::Usage(format!("'{name}' is no {what}: it needs the form {form}")))
}

/// Decision of a person about an offer.
#[derive(Clone, Copy)]
enum Verb {
    Approve,
    Block,
    Unblock,
}

impl Named for Prompt {
    const LIST: &'static str = "prompts";
    const COLUMNS: &'static [Column] = &PROMPTS;

    fn split(&self) -> Result<(&str, &str), Failure> {
        split(&self.name, "prompt", "SERVER:PROMPT")
    }

    fn is(&self, item: &Value, own: &str) -> bool {
        text(item, "name") == own
    }

    async fn diff(&self, client: &ApiClient) -> Result<String, Failure> {
        let (server, prompt) = self.split()?;
        let path = ["servers", server, Self::LIST, prompt, "diff"];
        Ok(client.get(&path, &ApiQuery::default()).await?.text)
    }

    async fn decide(
        &self,
        client: &ApiClient,
        verb: Verb,
        body: Map<String, Value>,
    ) -> Result<String, Failure> {
        let (server, prompt) = self.split()?;
        let (method, verb) = match verb {
            Verb::Approve => (Method::POST, "approve"),
            Verb::Block => (Method::POST, "block"),
            Verb::Unblock => (Method::DELETE, "block"),
        };
        let body = if body.is_empty() { String::new() } else { Value::Object(body).to_string() };
        Ok(client.send(method, &["servers", server, Self::LIST, prompt, verb], body).await?.text)
    }
}

impl Resource {
    fn kind(&self) -> &'static str {
        if self.template { "template" } else { "resource" }
    }
}

impl Named for Resource {
    const LIST: &'static str = "resources";
    const COLUMNS: &'static [Column] = &RESOURCES;

    fn split(&self) -> Result<(&str, &str), Failure> {
        split(&self.name, "resource", "SERVER:URI")
    }

    fn is(&self, item: &Value, own: &str) -> bool {
        text(item, "kind") == self.kind() && text(item, "uri") == own
    }

    async fn diff(&self, client: &ApiClient) -> Result<String, Failure> {
        let (server, uri) = self.split()?;
        let mut query = ApiQuery::default();
        query.add("kind", Some(self.kind().to_owned()));
        query.add("uri", Some(uri.to_owned()));
        Ok(client.get(&["servers", server, Self::LIST, "diff"], &query).await?.text)
    }

    async fn decide(
        &self,
        client: &ApiClient,
        verb: Verb,
        mut body: Map<String, Value>,
    ) -> Result<String, Failure> {
        let (server, uri) = self.split()?;
        body.extend([("kind".to_owned(), self.kind().into()), ("uri".to_owned(), uri.into())]);
        let verb = match verb {
            Verb::Approve => "approve",
            Verb::Block => "block",
            Verb::Unblock => "unblock",
        };
        let path = ["servers", server, Self::LIST, verb];
        Ok(client.send(Method::POST, &path, Value::Object(body).to_string()).await?.text)
    }
}

impl Prompts {
    pub(super) async fn run(self) -> Result<(), Failure> {
        self.command.run(&self.connection.client()?).await
    }
}

impl ResourcesCommand {
    pub(super) async fn run(self) -> Result<(), Failure> {
        self.command.run(&self.connection.client()?).await
    }
}

impl<N: Named> Command<N> {
    async fn run(self, client: &ApiClient) -> Result<(), Failure> {
        let decided = |answer: String, output: Output| output.thing(&answer, show::fields);
        match self {
            Command::List { server, output } => list(client, &server, N::LIST, N::COLUMNS, output).await,
            Command::Show { name, output } => {
                let (server, own) = name.split()?;
                let path = ["servers", server, N::LIST];
                let items = client.list(&path, &ApiQuery::default(), usize::MAX).await?;
                let found = items.into_iter().find(|item| name.is(&output::parsed(item), own));
                let missing = || Failure::NotFound(format!("the server {server} does not offer {own}"));
                output.thing(found.ok_or_else(missing)?.get(), show::fields)
            }
            Command::Diff { name, output } => output.thing(&name.diff(client).await?, tools::differences),
            Command::Approve { name, pin, output } => {
                let body = Map::from_iter([("pin".to_owned(), pin.into())]);
                decided(name.decide(client, Verb::Approve, body).await?, output)
            }
            Command::Block { name, output } => {
                decided(name.decide(client, Verb::Block, Map::new()).await?, output)
            }
            Command::Unblock { name, output } => {
                decided(name.decide(client, Verb::Unblock, Map::new()).await?, output)
            }
        }
    }
}
