//! `mcpproxy identity`: people who log in with tokens of an identity provider, and the rules for them.

use clap::{Args, Subcommand};
use http::Method;
use serde_json::{Value, json};

use super::client::{ApiClient, ApiQuery};
use super::connection::ApiConnection;
use super::failure::Failure;
use super::output::{self, Column, Output, text};
use super::{input, show};
use crate::domain::policy::read_file;

/// `mcpproxy identity`
#[derive(Args)]
pub struct IdentityCommand {
    #[command(subcommand)]
    command: IdentityAct,
    #[command(flatten)]
    connection: ApiConnection,
}

#[derive(Subcommand)]
enum IdentityAct {
    /// List people who have logged in
    List {
        #[command(flatten)]
        output: Output,
    },
    /// Block a person: calls are refused within a second, and so are all tokens issued until now
    Block {
        /// ID of the identity
        #[arg(required_unless_present = "issuer", conflicts_with_all = ["issuer", "subject"])]
        id: Option<String>,
        /// Name of the person's issuer, with --subject: also before the person has logged in
        #[arg(long, requires = "subject")]
        issuer: Option<String>,
        /// Subject of the person at the issuer
        #[arg(long, requires = "issuer")]
        subject: Option<String>,
    },
    /// End the block of a person, who has to log in once more
    Unblock {
        /// ID of the identity
        id: String,
    },
    /// Show the rules that map claims to a role, or replace them by those of a file
    Rules {
        /// File with `rules`, in JSON or YAML; `-` reads standard input. Its `version`, if it has one, must be the present one
        file: Option<String>,
        #[command(flatten)]
        output: Output,
    },
}

const COLUMNS: [Column; 6] = [
    ("ID", |person| text(person, "id")),
    ("OWNER", |person| text(person, "owner")),
    ("ROLE", |person| text(person, "role")),
    ("ISSUER", |person| text(person, "issuer")),
    ("LAST SEEN", |person| text(person, "last_seen_at")),
    ("BLOCKED", |person| text(person, "blocked_at")),
];

impl IdentityCommand {
    pub(super) async fn run(self) -> Result<(), Failure> {
        let client = self.connection.client()?;
        match self.command {
            IdentityAct::List { output } => {
                let people = client.list(&["identities"], &ApiQuery::default(), usize::MAX).await?;
                output.items(&people, &COLUMNS)
            }
            IdentityAct::Block { id: Some(id), .. } => {
                client.act(Method::POST, &["identities", &id, "block"]).await?;
                output::note(&format!("{id} is blocked"));
                Ok(())
            }
            IdentityAct::Block { id: None, issuer, subject } => {
                let body = json!({ "issuer": issuer, "subject": subject }).to_string();
                let answer = client.send(Method::POST, &["identities", "block"], body).await?.json()?;
                let id = answer.get("id").and_then(Value::as_str).unwrap_or_default().to_owned();
                output::note(&format!("{id} is blocked"));
                Ok(())
            }
            IdentityAct::Unblock { id } => {
                client.act(Method::POST, &["identities", &id, "unblock"]).await?;
                output::note(&format!("{id} is not blocked any more, and has to log in once more"));
                Ok(())
            }
            IdentityAct::Rules { file: None, output } => {
                let answer = client.get(&["identity", "rules"], &ApiQuery::default()).await?;
                output.thing(&answer.text, show::fields)
            }
            IdentityAct::Rules { file: Some(file), output } => put_rules(&client, &file, output).await,
        }
    }
}

async fn put_rules(client: &ApiClient, file: &str, output: Output) -> Result<(), Failure> {
    let from = if file == "-" { "-".to_owned() } else { format!("@{file}") };
    let given = input::text("FILE", &from)?;
    let mut tree = read_file(&given).map_err(|fault| Failure::Usage(format!("{file}: {fault}")))?;
    if !tree.contains_key("version") {
        let present = client.get(&["identity", "rules"], &ApiQuery::default()).await?.json()?;
        tree.insert("version".to_owned(), present.get("version").cloned().unwrap_or(json!(0)));
    }
    let body = Value::Object(tree).to_string();
    let answer = client.send(Method::PUT, &["identity", "rules"], body).await?;
    output.thing(&answer.text, show::fields)
}
