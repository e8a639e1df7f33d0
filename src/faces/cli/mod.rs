//! The command line: a client of the REST API for people and scripts (behaviour, section 12).
//!
//! Results go to standard output, everything else to standard error. One file per group of commands.

mod activity;
mod apply;
mod call;
mod client;
mod completions;
mod config;
mod connection;
mod doctor;
mod failure;
mod input;
mod key;
mod offers;
mod output;
mod show;
mod status;
mod tenant;
mod tools;
mod upstream;
mod upstream_logs;

use clap::Subcommand;

pub use self::config::{ConfigCommand, FoundSetting, FoundSettings};
pub use self::failure::Failure;

/// Commands that talk to a gateway.
#[derive(Subcommand)]
pub enum Command {
    /// Run a tool through the gateway, as an agent would
    Call(call::CallCommand),
    /// Find tools and look at them
    Tools(tools::Tools),
    /// Look at prompts of servers and approve or block them
    Prompts(offers::Prompts),
    /// Look at resources of servers and approve or block them
    Resources(offers::ResourcesCommand),
    /// See what was attempted, by whom, and how it ended
    Activity(activity::ActivityCommand),
    /// Add and look after upstream servers
    Upstream(upstream::Upstream),
    /// Make, list and delete tenants (platform keys)
    Tenant(tenant::TenantCommand),
    /// Make tenants what a file says they are: quotas, settings, servers, keys (platform keys)
    Apply(apply::Apply),
    /// Make, list and revoke keys, and change their settings
    Key(key::KeyCommand),
    /// Say who you are to the gateway, and which replica answers
    Status(status::StatusCommand),
    /// Look at what is between you and your tools: gateway, clock, key, each server; say what to do
    Doctor(doctor::Doctor),
    /// Print a script that completes commands in your shell
    Completions(completions::Completions),
}

/// Runs a command. `program` is the whole command line, for completions.
///
/// # Errors
/// What went wrong, with the exit code that says of which kind it is.
pub async fn run(command: Command, program: clap::Command) -> Result<(), Failure> {
    match command {
        Command::Call(call) => call.run().await,
        Command::Tools(tools) => tools.run().await,
        Command::Prompts(prompts) => prompts.run().await,
        Command::Resources(resources) => resources.run().await,
        Command::Activity(activity) => activity.run().await,
        Command::Upstream(upstream) => upstream.run().await,
        Command::Tenant(tenant) => tenant.run().await,
        Command::Apply(apply) => apply.run().await,
        Command::Key(key) => key.run().await,
        Command::Status(status) => status.run().await,
        Command::Doctor(doctor) => doctor.run().await,
        Command::Completions(completions) => completions.run(program),
    }
}
