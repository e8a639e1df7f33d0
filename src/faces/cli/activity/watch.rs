//! `mcpproxy activity watch`: records as they are written, for as long as somebody looks.

use std::time::Duration;

use clap::Args;
use serde_json::Value;

use super::{WIDE, columns};
use crate::faces::cli::client::{ApiClient, ApiEvents, ApiQuery, Event};
use crate::faces::cli::failure::Failure;
use crate::faces::cli::output::{self, Column, Format, Output};

/// The pauses before a lost gateway is asked again.
const PAUSE_MIN: Duration = Duration::from_millis(500);
const PAUSE_MAX: Duration = Duration::from_secs(10);
/// Columns to which cells are filled, in the order of a list's; wider ones move the rest of their line.
const WIDTHS: [usize; 11] = [26, 25, 14, 24, 14, 14, 10, 18, 12, 16, 36];

#[derive(Args)]
pub(super) struct Watch {
    #[command(flatten)]
    filter: super::Filter,
    /// End after so many records, instead of never
    #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(u64).range(1..))]
    limit: Option<u64>,
    /// With the columns CODE, TYPE, OWNER and KEY as well
    #[arg(long)]
    wide: bool,
    /// Words instead of icons; there are none anyway where nobody looks
    #[arg(long)]
    no_icons: bool,
    #[command(flatten)]
    output: Output,
}

impl Watch {
    pub(super) async fn run(self, client: &ApiClient) -> Result<(), Failure> {
        let query = self.filter.query();
        let mut names = columns(!self.no_icons && output::is_terminal()).to_vec();
        if self.wide {
            names.extend(WIDE);
        }
        let mut events = client.events(&["activity", "stream"], &query, None).await?;
        if self.output.format == Format::Table {
            output::line(&row(names.iter().map(|(name, _)| (*name).to_owned())))?;
        }
        output::note("watching; Ctrl-C ends it");
        let mut left = self.limit.unwrap_or(u64::MAX);
        let mut last = None;
        while left > 0 {
            match events.next().await {
                Some(event) => {
                    last = event.id.clone().or(last);
                    if event.kind.as_deref() == Some("activity") {
                        show(self.output.format, &event, &names)?;
                        left -= 1;
                    }
                }
                None => events = again(client, &query, last.as_deref()).await?,
            }
        }
        Ok(())
    }
}

/// Follows on after the connection was lost, where it was: nothing is missed, nothing comes twice.
async fn again(client: &ApiClient, query: &ApiQuery, last: Option<&str>) -> Result<ApiEvents, Failure> {
    let mut pause = PAUSE_MIN;
    let mut is_said = false;
    loop {
        tokio::time::sleep(pause).await;
        match client.events(&["activity", "stream"], query, last).await {
            Ok(events) => {
                if is_said {
                    output::note("following again; nothing was missed");
                }
                return Ok(events);
            }
            Err(Failure::Unreachable(why)) => {
                if !is_said {
                    output::note(&format!("{why}; trying again until it is back"));
                    is_said = true;
                }
            }
            Err(failure) => return Err(failure),
        }
        pause = (pause * 2).min(PAUSE_MAX);
    }
}

fn show(format: Format, event: &Event, columns: &[Column]) -> Result<(), Failure> {
    match format {
        Format::Json => output::line(&event.data),
        Format::Yaml => {
            output::line("---")?;
            Output { format }.thing(&event.data, str::to_owned)
        }
        Format::Table => {
            let record: Value = serde_json::from_str(&event.data).unwrap_or_default();
            output::line(&row(columns.iter().map(|(_, cell)| cell(&record))))
        }
    }
}

/// One line of columns whose widths are known before their cells are.
fn row(cells: impl Iterator<Item = String>) -> String {
    let mut line = String::new();
    for (cell, width) in cells.zip(WIDTHS) {
        let cell = output::safe(&cell).replace('\n', " ");
        // an icon takes two places
        let taken = cell.chars().map(|c| if c > '\u{1f000}' { 2 } else { 1 }).sum::<usize>();
        line.push_str(&cell);
        line.extend(std::iter::repeat_n(' ', width.saturating_sub(taken) + 2));
    }
    line.trim_end().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_stand_in_columns() {
        let of = |cells: &[&str]| row(cells.iter().map(|cell| (*cell).to_owned()));
        let at = |line: &str, what: &str| line.find(what).unwrap();
        let head = of(&["ID", "TIME", "SERVER"]);
        let line = of(&["01KAJ0000000000000000000ID", "2026-01-31 08:00:00 +01:00", "up\u{1b}\nx"]);
        assert_eq!(at(&head, "TIME"), at(&line, "2026"));
        assert!(line.ends_with("up\\u{1b} x"), "{line}");
    }
}
