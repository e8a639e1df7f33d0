//! The command line: a client of the REST API for people and scripts (behaviour, section 12).
//!
//! Results go to standard output, everything else to standard error. One file per group of commands.

mod activity;
mod apply;
mod call;
mod client;
mod completions;
mod config;
mod connect;
mod connection;
mod consent;
mod doctor;
mod failure;
mod identity;
mod import;
mod input;
mod issuer;
mod key;
mod man;
mod oauth_flags;
mod offers;
mod output;
mod page;
mod page_flags;
mod policy;
mod reload;
mod same_server;
mod show;
mod status;
mod stream;
mod tally;
mod tenant;
mod tools;
mod upstream;
mod upstream_connect;
mod upstream_logs;
mod webhook;

use clap::Subcommand;

pub use self::config::{ConfigCommand, FoundSetting, FoundSettings};
pub use self::failure::Failure;

/// Commands that talk to a gateway.
#[derive(Subcommand)]
pub enum Command {
    /// Run a tool through the gateway, as an agent would
    Call(call::CallCommand),
    /// Search and show tools, and approve, block or override them
    Tools(tools::Tools),
    /// List and show prompts of servers, and approve or block them
    Prompts(offers::Prompts),
    /// List and show resources of servers, and approve or block them
    Resources(offers::ResourcesCommand),
    /// List, watch, count and export activity records
    Activity(activity::ActivityCommand),
    /// Add, change and remove upstream servers
    Upstream(Box<upstream::UpstreamCommand>),
    /// Add the servers of an MCP client's file (Cursor, VS Code, Claude, Codex and others)
    Import(import::ImportCommand),
    /// Set up an IDE or another MCP client for the gateway, with a key of its own
    Connect(connect::ConnectCommand),
    /// Show the forms of web pages as tools: of any page, without a gateway, or of a server
    Page(page::PageCommand),
    /// Create, list, change and delete tenants (platform keys)
    Tenant(tenant::TenantCommand),
    /// Apply a tenants file: create and update tenants, quotas, settings, servers and keys (platform keys)
    Apply(apply::Apply),
    /// Create, list and revoke keys, and change their settings
    Key(key::KeyCommand),
    /// Accept tokens of identity providers, and say which tenants their people belong to (platform keys)
    Issuer(issuer::IssuerCommand),
    /// List and block people who log in, and say what they may do
    Identity(identity::IdentityCommand),
    /// Check, explain and apply rules that allow calls, ask a person first, or deny them
    Policy(policy::PolicyCommand),
    /// List permission requests, and allow or deny them
    Consent(consent::ConsentCommand),
    /// List and revoke remembered decisions
    Grants(consent::GrantsCommand),
    /// Show the identity of the current key and the gateway's state
    Status(status::StatusCommand),
    /// Have the gateway read its settings file again, on every replica (platform keys)
    Reload(reload::ReloadCommand),
    /// Check gateway, clock, key and servers, and say what to do
    Doctor(doctor::Doctor),
    /// Print a completion script for your shell
    Completions(completions::Completions),
    /// Write manual pages, one for each command, into a folder
    #[command(hide = true)]
    Man(man::ManualPages),
}

/// Returns the message of a failure for a terminal: control characters of texts from elsewhere are escaped.
pub fn shown(failure: &Failure) -> String {
    output::safe(&failure.to_string())
}

/// Runs a command. `program` is the whole command line, for completion scripts.
///
/// # Errors
/// The command is not valid, the gateway is unreachable or refuses it, or the tool fails. The kind of [`Failure`] gives the
/// exit code.
pub async fn run(command: Command, program: clap::Command) -> Result<(), Failure> {
    match command {
        Command::Call(call) => call.run().await,
        Command::Tools(tools) => tools.run().await,
        Command::Prompts(prompts) => prompts.run().await,
        Command::Resources(resources) => resources.run().await,
        Command::Activity(activity) => activity.run().await,
        Command::Upstream(upstream) => upstream.run().await,
        Command::Import(import) => import.run().await,
        Command::Connect(connect) => connect.run().await,
        Command::Page(page) => page.run().await,
        Command::Tenant(tenant) => tenant.run().await,
        Command::Apply(apply) => apply.run().await,
        Command::Key(key) => key.run().await,
        Command::Issuer(issuer) => issuer.run().await,
        Command::Identity(identity) => identity.run().await,
        Command::Policy(policy) => policy.run().await,
        Command::Consent(consent) => consent.run().await,
        Command::Grants(grants) => grants.run().await,
        Command::Status(status) => status.run().await,
        Command::Reload(reload) => reload.run().await,
        Command::Doctor(doctor) => doctor.run().await,
        Command::Completions(completions) => completions.run(program),
        Command::Man(pages) => pages.run(program),
    }
}
