//! `mcpproxy reload`: settings that change while the gateway runs.

use clap::Args;
use http::Method;
use serde_json::Value;

use super::connection::ApiConnection;
use super::failure::Failure;
use super::output::{self, Output};
use super::show;

/// `mcpproxy reload`
#[derive(Args)]
pub struct ReloadCommand {
    #[command(flatten)]
    output: Output,
    #[command(flatten)]
    connection: ApiConnection,
}

impl ReloadCommand {
    pub(super) async fn run(self) -> Result<(), Failure> {
        let answer = self.connection.client()?.act(Method::POST, &["reload"]).await?;
        self.output.thing(&answer.text, show::fields)?;
        let answer = answer.json()?;
        let names = |field: &str| -> Vec<String> {
            let all = answer.get(field).and_then(Value::as_array).into_iter().flatten();
            all.filter_map(Value::as_str).map(str::to_owned).collect()
        };
        if names("changed").is_empty() {
            output::note("no setting that can change while the gateway runs has another value");
        }
        let left = names("needs_restart");
        if !left.is_empty() {
            output::note(&format!("warning: only a restart takes {}", left.join(", ")));
        }
        Ok(())
    }
}
