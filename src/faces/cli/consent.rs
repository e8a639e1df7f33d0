//! `mcpproxy consent` and `mcpproxy grants`: permission requests, answers to them, and what was remembered.

use chrono::{DateTime, SecondsFormat, TimeDelta};
use clap::{Args, Subcommand};
use http::Method;
use serde_json::{Map, Value};
use uuid::Uuid;

use super::client::{ApiClient, ApiQuery};
use super::connection::ApiConnection;
use super::failure::Failure;
use super::output::{self, Column, Format, Output, text};
use super::webhook::WebhookCommand;
use super::{key, show, stream};
use crate::domain::consent::{ConsentState, FENCE, LapseReason};
use crate::domain::reason;
use crate::domain::risk::RiskLevel;

/// Newest grants among which that of a decision is looked for.
const GRANTS_LOOKED_AT: usize = 20;

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
    /// Comment, which the agent reads too if its call is refused
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

const GRANT_COLUMNS: [Column; 9] = [
    ("ID", |grant| text(grant, "id")),
    ("EFFECT", |grant| text(grant, "effect")),
    ("RISK", |grant| text(grant, "risk")),
    ("KEY", |grant| text(grant, "key_id")),
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
                output.thing(&answer.text, told)
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
        let grant = match (self.output.format, decision) {
            (Format::Table, "allow_always" | "reject_always") => grant_of(client, &self.id).await,
            _ => None,
        };
        self.output.thing(&answer.text, |_| decided(&request, grant.as_ref()))
    }
}

/// Returns the newest grant that a request was answered with; `None` if it is not found.
async fn grant_of(client: &ApiClient, id: &str) -> Option<Value> {
    let grants = client.list(&["consent", "grants"], &ApiQuery::default(), GRANTS_LOOKED_AT).await.ok()?;
    grants.iter().map(|grant| output::parsed(grant)).find(|grant| text(grant, "consent_id") == id)
}

/// Says what a decision means for the agent, and until when.
fn decided(request: &Value, grant: Option<&Value>) -> String {
    let state = text(request, "state");
    let mut lines = vec![format!("{} is {state}{}", canonical(request), meaning(request))];
    if let Some(grant) = grant {
        let outcome = if text(grant, "effect") == "allow" { "run without asking" } else { "are refused" };
        let (until, id) = (time(grant, "expires_at", TimeDelta::zero()), text(grant, "id"));
        lines.push(format!("later calls of this tool by the same key {outcome} until {until}; mcpproxy grants revoke {id} ends that"));
    }
    let words = reason::quotation(&text(request, "comment"));
    let refusal = match ConsentState::parse(&state) {
        Some(ConsentState::Denied) => {
            let id = Uuid::try_parse(&text(request, "id")).unwrap_or_default();
            Some(reason::denial(id, Some(&text(request, "decided_by"))))
        }
        Some(ConsentState::Cancelled) => {
            Some(reason::turn_ended("The user", Some(&time(request, "decided_at", FENCE))))
        }
        _ => None,
    };
    lines.extend(refusal.map(|refusal| format!("the agent sees: {}", refusal.quoting(words).message)));
    let lines: Vec<String> = lines.iter().map(|line| output::one_line(line)).collect();
    lines.join("\n")
}

/// Formats a request for people, with what its state means.
fn told(raw: &str) -> String {
    let request: Value = serde_json::from_str(raw).unwrap_or_default();
    let fields = show::fields(raw);
    match meaning(&request).strip_prefix(": ") {
        Some(meaning) => {
            format!("{fields}\n{}\n", output::one_line(&format!("{}: {meaning}", text(&request, "state"))))
        }
        None => fields,
    }
}

/// Returns what the state of a request means, after a colon; empty for a state that this release does not know.
fn meaning(request: &Value) -> String {
    let state = ConsentState::parse(&text(request, "state"));
    let until = time(request, "expires_at", TimeDelta::zero());
    let fenced = time(request, "decided_at", FENCE);
    let lapse = LapseReason::parse(&text(request, "lapse_reason"));
    state.map_or_else(String::new, |state| format!(": {}", state.meaning(&until, &fenced, lapse)))
}

/// Returns a time of an item, in whole seconds, later by `more`.
fn time(item: &Value, name: &str, more: TimeDelta) -> String {
    let given = text(item, name);
    let at = DateTime::parse_from_rfc3339(&given).ok().and_then(|at| at.checked_add_signed(more));
    at.map_or(given, |at| at.to_utc().to_rfc3339_opts(SecondsFormat::Secs, true))
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
                stepped(output, &event.data)?;
                left -= 1;
            }
            Some(_) => {}
            None => events = stream::again(client, &PATH, &query, None).await?,
        }
    }
    Ok(())
}

fn stepped(output: Output, data: &str) -> Result<(), Failure> {
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

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn request(state: &str) -> Value {
        json!({"id": "01a20e5e-1860-7fb5-a897-1b6290b015bb", "server": "ops", "tool": "deploy", "state": state,
            "expires_at": "2026-11-24T16:52:57.250Z", "decided_at": "2026-11-24T16:22:59.900Z", "decided_by": "eva",
            "comment": "not \"now\", token=ghp_0123456789abcdefghijABCDEFGHIJ012345"})
    }

    #[test]
    fn a_decision_says_what_comes_of_it() {
        let allowed = decided(&request("granted"), None);
        let says =
            "ops:deploy is granted: the same call runs once, if the agent repeats it by 2026-11-24T16:52:57Z";
        assert_eq!(allowed, says);
        let grant = json!({"id": "g1", "effect": "allow", "expires_at": "2026-11-25T00:22:57Z"});
        let always = decided(&request("granted"), Some(&grant));
        let later = "later calls of this tool by the same key run without asking until 2026-11-25T00:22:57Z; mcpproxy grants \
                     revoke g1 ends that";
        assert_eq!(always.lines().nth(1), Some(later));
        let denied = decided(&request("denied"), None);
        let says = "ops:deploy is denied: the same call is refused until 2026-11-24T16:52:57Z, and asks again after that\n\
                    the agent sees: Refused by eva (01a20e5e-1860-7fb5-a897-1b6290b015bb). Do not repeat this call. The \
                    approver says: \"not 'now', token=";
        assert!(denied.starts_with(says) && !denied.contains("ghp_"), "{denied}");
        let ended = decided(&request("cancelled"), None);
        let says = "\nthe agent sees: The user stopped this turn; no further calls until the next instruction. Calls that need \
                    permission are refused until 2026-11-24T16:23:29Z. The approver says: ";
        assert!(ended.contains(says), "{ended}");
    }

    #[test]
    fn every_state_is_explained_below_the_request() {
        for state in ConsentState::ALL {
            let shown = told(&request(state.as_str()).to_string());
            let last = shown.trim_end().lines().last().unwrap();
            assert!(last.starts_with(&format!("{}: ", state.as_str())) && last.len() > 30, "{shown}");
        }
        let unknown = request("postponed").to_string();
        assert_eq!(told(&unknown), show::fields(&unknown));
    }
}
