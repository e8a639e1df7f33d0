//! `mcpproxy tenant`: tenants, for platform keys.

use clap::{Args, Subcommand};
use http::Method;
use serde_json::json;

use super::client::ApiQuery;
use super::connection::ApiConnection;
use super::failure::Failure;
use super::output::{self, Column, Output, text};
use super::show;

/// `mcpproxy tenant`
#[derive(Args)]
pub struct TenantCommand {
    #[command(subcommand)]
    command: Command,
    #[command(flatten)]
    connection: ApiConnection,
}

#[derive(Subcommand)]
enum Command {
    /// Create a tenant
    Add {
        /// Name of the tenant: 1 to 32 of a-z, 0-9 and single hyphens
        name: String,
        #[command(flatten)]
        output: Output,
    },
    /// List tenants
    List {
        #[command(flatten)]
        output: Output,
    },
    /// Show a tenant
    Show {
        /// Name of the tenant
        name: String,
        #[command(flatten)]
        output: Output,
    },
    /// Change the quotas of a tenant
    Update {
        /// Name of the tenant
        name: String,
        /// Quota to change: servers, tools, definition_bytes, keys or streams; `null` inherits the deployment's value again
        #[arg(long, value_name = "NAME=NUMBER", required = true)]
        quota: Vec<String>,
        #[command(flatten)]
        output: Output,
    },
    /// Suspend a tenant: nothing is served to it until it is resumed, and nothing is deleted
    Suspend {
        /// Name of the tenant
        name: String,
    },
    /// Resume a suspended tenant
    Resume {
        /// Name of the tenant
        name: String,
    },
    /// Delete a tenant with its servers and credentials; its keys stop working at once
    Remove {
        /// Name of the tenant
        name: String,
        /// Delete without asking
        #[arg(long)]
        yes: bool,
    },
}

const COLUMNS: [Column; 4] = [
    ("NAME", |tenant| text(tenant, "name")),
    ("STATE", |tenant| if tenant["suspended_at"].is_null() { "active" } else { "suspended" }.to_owned()),
    ("ID", |tenant| text(tenant, "id")),
    ("CREATED", |tenant| text(tenant, "created_at")),
];

impl TenantCommand {
    pub(super) async fn run(self) -> Result<(), Failure> {
        let client = self.connection.client()?;
        match self.command {
            Command::Add { name, output } => {
                let body = json!({ "name": name }).to_string();
                let answer = client.send(Method::POST, &["tenants"], body).await?;
                output.thing(&answer.text, show::fields)
            }
            Command::List { output } => {
                output.items(&client.list(&["tenants"], &ApiQuery::default(), usize::MAX).await?, &COLUMNS)
            }
            Command::Show { name, output } => {
                let answer = client.get(&["tenants", &name], &ApiQuery::default()).await?;
                output.thing(&answer.text, show::fields)
            }
            Command::Update { name, quota, output } => {
                let body = json!({ "quotas": super::input::settings(&quota)? }).to_string();
                let answer = client.send(Method::PATCH, &["tenants", &name], body).await?;
                output.thing(&answer.text, show::fields)
            }
            Command::Suspend { name } => {
                client.act(Method::POST, &["tenants", &name, "suspend"]).await?;
                output::note(&format!("tenant {name} is suspended: its keys are refused, its streams end"));
                Ok(())
            }
            Command::Resume { name } => {
                client.act(Method::POST, &["tenants", &name, "resume"]).await?;
                output::note(&format!("tenant {name} is served again"));
                Ok(())
            }
            Command::Remove { name, yes } => {
                super::input::confirm(yes, &format!("delete the tenant {name} with all that it has"))?;
                client.act(Method::DELETE, &["tenants", &name]).await?;
                output::note(&format!("tenant {name} is deleted"));
                Ok(())
            }
        }
    }
}
