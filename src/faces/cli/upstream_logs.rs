//! `mcpproxy upstream logs`: shows a server's log: standard error of its program, and events of the server.

use std::time::Duration;

use clap::Args;
use serde_json::Value;

use super::client::{ApiClient, ApiQuery};
use super::failure::Failure;
use super::output::{self, text};

/// Poll interval for new lines.
const LOOK_PAUSE: Duration = Duration::from_secs(1);

/// Lines requested per poll.
const PAGE: u16 = 500;

/// `mcpproxy upstream logs`
#[derive(Args)]
pub(super) struct Logs {
    /// Name of the server
    name: String,
    /// Maximum number of lines, the newest
    #[arg(short = 'n', long = "lines", default_value_t = 100, value_name = "NUMBER",
        value_parser = clap::value_parser!(u16).range(1..=500))]
    lines: u16,
    /// Follow new lines until Ctrl-C
    #[arg(short, long)]
    follow: bool,
}

impl Logs {
    pub(super) async fn run(self, client: &ApiClient) -> Result<(), Failure> {
        if !self.follow {
            return self.show(client, None).await.map(drop);
        }
        tokio::select! {
            ended = self.follow(client) => ended,
            // Ctrl-C is no failure
            _ = tokio::signal::ctrl_c() => Ok(()),
        }
    }

    async fn follow(&self, client: &ApiClient) -> Result<(), Failure> {
        let (mut after, mut lines) = self.show(client, None).await?;
        loop {
            // after a full page there may be more at once
            if lines < usize::from(PAGE) {
                tokio::time::sleep(LOOK_PAUSE).await;
            }
            (after, lines) = self.show(client, Some(after)).await?;
        }
    }

    /// Prints a page. Returns the cursor of the next page, and the number of lines printed.
    async fn show(&self, client: &ApiClient, after: Option<String>) -> Result<(String, usize), Failure> {
        let mut query = ApiQuery::default();
        let limit = if after.is_some() { PAGE } else { self.lines };
        query.add("limit", Some(limit.to_string()));
        query.add("cursor", after);
        let page = client.get(&["servers", &self.name, "logs"], &query).await?.json()?;
        let lines = page.get("items").and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
        for line in lines {
            let shown = format!("{}  {:7}  {}", text(line, "at"), text(line, "source"), text(line, "line"));
            output::line(&output::safe(&shown))?;
        }
        Ok((text(&page, "next_cursor"), lines.len()))
    }
}
