//! `mcpproxy activity watch`: shows records as they are written, until interrupted.

use clap::Args;
use serde_json::Value;

use super::{columns, wide};
use crate::faces::cli::client::{ApiClient, Event};
use crate::faces::cli::failure::Failure;
use crate::faces::cli::output::{self, Column, Format, Output};
use crate::faces::cli::stream;

/// Path of the stream.
const PATH: [&str; 2] = ["activity", "stream"];
/// Widths of the columns, in characters, in the order of a list's columns. Longer cells move the rest of their line.
const WIDTHS: [usize; 7 + wide::COLUMNS.len()] =
    [26, 25, 14, 24, 14, 14, 10, 18, 12, 11, 16, 20, 36, 7, 20, 15, 20, 81];

#[derive(Args)]
pub(super) struct Watch {
    #[command(flatten)]
    filter: super::Filter,
    /// End after this many records; without, never
    #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(u64).range(1..))]
    limit: Option<u64>,
    /// Also show the columns CODE, TYPE, TIER, OWNER, KEY, KEY ID, SOURCE, CLIENT, ADDRESS, ALLOWED BY (rule or person) and
    /// ARGUMENTS (secrets are masked, long ones cut)
    #[arg(long)]
    wide: bool,
    /// Show words instead of icons; output to anything but a terminal has no icons
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
            names.extend(wide::COLUMNS);
        }
        let mut answers = wide::Answers::default();
        let mut events = client.events(&PATH, &query, None).await?;
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
                        let mut record = serde_json::from_str(&event.data).unwrap_or_default();
                        if self.wide && self.output.format == Format::Table {
                            answers.add_to(client, &mut record).await;
                        }
                        show(self.output.format, &event, &record, &names)?;
                        left -= 1;
                    }
                }
                None => events = stream::again(client, &PATH, &query, last.as_deref()).await?,
            }
        }
        Ok(())
    }
}

/// Prints an event; as a row of a table, the record that was made of it.
fn show(format: Format, event: &Event, record: &Value, columns: &[Column]) -> Result<(), Failure> {
    match format {
        Format::Json => output::line(&event.data),
        Format::Yaml => {
            output::line("---")?;
            Output { format }.thing(&event.data, str::to_owned)
        }
        Format::Table => output::line(&row(columns.iter().map(|(_, cell)| cell(record)))),
    }
}

/// Formats one line. Column widths are fixed, since later records are not known yet.
fn row(cells: impl Iterator<Item = String>) -> String {
    let mut line = String::new();
    for (cell, width) in cells.zip(WIDTHS) {
        let cell = output::safe(&cell).replace('\n', " ");
        // an icon is as wide as two characters
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
