//! `mcpproxy status`: who asks, and who answers.

use clap::Args;

use super::client::Query;
use super::connection::Connection;
use super::failure::Failure;
use super::output::Output;
use super::show;

/// `mcpproxy status`
#[derive(Args)]
pub struct Status {
    #[command(flatten)]
    output: Output,
    #[command(flatten)]
    connection: Connection,
}

impl Status {
    pub(super) async fn run(self) -> Result<(), Failure> {
        let answer = self.connection.client()?.get(&["status"], &Query::default()).await?;
        self.output.thing(&answer.text, show::fields)
    }
}
