//! `mcpproxy consent` and `mcpproxy grants`: permission requests, answers to them, and what was remembered.

use clap::{Args, Subcommand};
use http::Method;
use serde_json::{Map, Value};

use super::client::{ApiClient, ApiQuery};
use super::connection::ApiConnection;
use super::failure::Failure;
use super::output::{self, Column, Format, Output, text};
use super::webhook::WebhookCommand;
use super::{key, show, stream};
use crate::domain::consent::ConsentState;
use crate::domain::risk::RiskLevel;

/// `mcpproxy consent`
#[derive(Args)]
pub struct ConsentCommand {
    #[command(subcommand)]
    command: Command,
    #[command(flatten)]
    connection: ApiConnection,
}

#[derive(Subcommand)]
enum Command {
    /// List permission requests, newest first
    List {
        #[command(flatten)]
        filter: ConsentFilters,
        /// Maximum number of requests
        #[arg(long, default_value_t = 50, value_name = "NUMBER", value_parser = clap::value_parser!(u32).range(1..))]
        limit: u32,
        #[command(flatten)]
        output: Output,
    },
    /// Show a permission request
    Show {
        /// ID of the request
        id: String,
        #[command(flatten)]
        output: Output,
    },
    /// Allow a call: it runs once when it is repeated
    Allow {
        #[command(flatten)]
        answer: Answering,
        /// Also allow later calls of the same tool by the same key, for 8 hours (1 hour for high risk)
        #[arg(long)]
        always: bool,
    },
    /// Refuse a call
    Deny {
        #[command(flatten)]
        answer: Answering,
        /// Also refuse later calls of the same tool by the same key, for 8 hours (1 hour for high risk)
        #[arg(long)]
        always: bool,
        /// End the whole turn of the agent: its open requests are cancelled, and its calls refused for 30 seconds
        #[arg(long, conflicts_with = "always")]
        turn: bool,
    },
    /// Show what is pending, and every step of any request, until interrupted
    Watch {
        /// End after this many events; without, never
        #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(u64).range(1..))]
        limit: Option<u64>,
        #[command(flatten)]
        output: Output,
    },
    /// Show, set, remove or test the webhook that is told of permission requests (admins)
    #[command(subcommand)]
    Webhook(WebhookCommand),
}

#[derive(Args)]
struct ConsentFilters {
    /// Only requests in this state
    #[arg(long, value_parser = ConsentState::WORDS)]
    state: Option<String>,
    /// Only requests of this tool
    #[arg(long, value_name = "[SERVER:]TOOL")]
    tool: Option<String>,
    /// Only requests of tools of this server
    #[arg(long, value_name = "NAME")]
    server: Option<String>,
    /// Only requests of this key
    #[arg(long, value_name = "ID")]
    key: Option<String>,
    /// Only requests of keys of this owner
    #[arg(long, value_name = "NAME")]
    owner: Option<String>,
    /// Only requests of this risk
    #[arg(long, value_parser = RiskLevel::WORDS)]
    risk: Option<String>,
}

#[derive(Args)]
struct Answering {
    /// ID of the request
    id: String,
    /// Comment for whoever reads the request later
    #[arg(long, value_name = "TEXT")]
    comment: Option<String>,
    /// Seconds for which the decision is remembered, with --always
    #[arg(long, value_name = "NUMBER", requires = "always", value_parser = clap::value_parser!(u32).range(1..=86_400))]
    expires_in_s: Option<u32>,
    #[command(flatten)]
    output: Output,
}

/// `mcpproxy grants`
#[derive(Args)]
pub struct GrantsCommand {
    #[command(subcommand)]
    command: GrantCommand,
    #[command(flatten)]
    connection: ApiConnection,
}

#[derive(Subcommand)]
enum GrantCommand {
    /// List remembered decisions that hold, newest first
    List {
        /// Maximum number of grants
        #[arg(long, default_value_t = 50, value_name = "NUMBER", value_parser = clap::value_parser!(u32).range(1..))]
        limit: u32,
        #[command(flatten)]
        output: Output,
    },
    /// End a remembered decision
    Revoke {
        /// ID of the grant
        id: String,
    },
}

const COLUMNS: [Column; 7] = [
    ("ID", |request| text(request, "id")),
    ("STATE", |request| text(request, "state")),
    ("RISK", |request| text(request, "risk")),
    ("OWNER", |request| text(request, "owner")),
    ("TOOL", canonical),
    ("EXPIRES", |request| text(request, "expires_at")),
    ("REASON", |request| text(request, "reason")),
];

const GRANT_COLUMNS: [Column; 7] = [
    ("ID", |grant| text(grant, "id")),
    ("EFFECT", |grant| text(grant, "effect")),
    ("OWNER", |grant| text(grant, "owner")),
    ("TOOL", canonical),
    ("OPERATION", |grant| text(grant, "operation_type")),
    ("EXPIRES", |grant| text(grant, "expires_at")),
    ("BY", |grant| text(grant, "granted_by")),
];

fn canonical(item: &Value) -> String {
    format!("{}:{}", text(item, "server"), text(item, "tool"))
}

impl ConsentCommand {
    pub(super) async fn run(self) -> Result<(), Failure> {
        let client = self.connection.client()?;
        match self.command {
            Command::List { filter, limit, output } => {
                let requests = client.list(&["consent"], &filter.query(), limit as usize).await?;
                output.items(&requests, &COLUMNS)
            }
            Command::Show { id, output } => {
                check_request(&id)?;
                let answer = client.get(&["consent", &id], &ApiQuery::default()).await?;
                output.thing(&answer.text, show::fields)
            }
            Command::Allow { answer, always } => {
                answer.send(&client, if always { "allow_always" } else { "allow_once" }).await
            }
            Command::Deny { answer, always, turn } => {
                let decision = match (turn, always) {
                    (true, _) => "cancel_turn",
                    (false, true) => "reject_always",
                    (false, false) => "reject_once",
                };
                answer.send(&client, decision).await
            }
            Command::Watch { limit, output } => watch(&client, limit, output).await,
            Command::Webhook(webhook) => webhook.run(&client).await,
        }
    }
}

impl ConsentFilters {
    fn query(self) -> ApiQuery {
        let mut query = ApiQuery::default();
        for (name, value) in [
            ("state", self.state),
            ("tool", self.tool),
            ("server", self.server),
            ("key", self.key),
            ("owner", self.owner),
            ("risk", self.risk),
        ] {
            query.add(name, value);
        }
        query
    }
}

fn check_request(id: &str) -> Result<(), Failure> {
    key::check_id_of(id, "permission request", "consent list")
}

impl Answering {
    async fn send(self, client: &ApiClient, decision: &str) -> Result<(), Failure> {
        check_request(&self.id)?;
        let mut body = Map::from_iter([("decision".to_owned(), Value::from(decision))]);
        if let Some(comment) = self.comment {
            body.insert("comment".to_owned(), comment.into());
        }
        if let Some(seconds) = self.expires_in_s {
            body.insert("expires_in_s".to_owned(), seconds.into());
        }
        let path = ["consent", &self.id, "decision"];
        let answer = client.send(Method::POST, &path, Value::Object(body).to_string()).await?;
        let request = answer.json()?;
        self.output.thing(&answer.text, |_| {
            format!("{} is {}", output::one_line(&canonical(&request)), text(&request, "state"))
        })
    }
}

/// Shows events until interrupted. Each connection begins with what is pending.
async fn watch(client: &ApiClient, limit: Option<u64>, output: Output) -> Result<(), Failure> {
    const PATH: [&str; 2] = ["consent", "stream"];
    let query = ApiQuery::default();
    let mut events = client.events(&PATH, &query, None).await?;
    output::note("watching; Ctrl-C ends it");
    let mut left = limit.unwrap_or(u64::MAX);
    while left > 0 {
        match events.next().await {
            Some(event) if event.kind.as_deref() == Some("consent") => {
                told(output, &event.data)?;
                left -= 1;
            }
            Some(_) => {}
            None => events = stream::again(client, &PATH, &query, None).await?,
        }
    }
    Ok(())
}

fn told(output: Output, data: &str) -> Result<(), Failure> {
    match output.format {
        Format::Json => output::line(data),
        Format::Yaml => {
            output::line("---")?;
            output.thing(data, str::to_owned)
        }
        Format::Table => {
            let request: Value = serde_json::from_str(data).unwrap_or_default();
            let [id, state, risk, owner] = ["id", "state", "risk", "owner"].map(|name| text(&request, name));
            let reason = text(&request, "reason");
            let line = format!("{id}  {state}  {risk}  {owner}  {}  {reason}", canonical(&request));
            output::line(&output::one_line(&line))
        }
    }
}

impl GrantsCommand {
    pub(super) async fn run(self) -> Result<(), Failure> {
        let client = self.connection.client()?;
        match self.command {
            GrantCommand::List { limit, output } => {
                let path = ["consent", "grants"];
                let grants = client.list(&path, &ApiQuery::default(), limit as usize).await?;
                output.items(&grants, &GRANT_COLUMNS)
            }
            GrantCommand::Revoke { id } => {
                key::check_id_of(&id, "grant", "grants list")?;
                client.act(Method::DELETE, &["consent", "grants", &id]).await?;
                output::note(&format!("grant {id} is revoked"));
                Ok(())
            }
        }
    }
}
