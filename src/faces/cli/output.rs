//! Output of commands, for people and scripts.

use std::io::{IsTerminal, Write};

use clap::ValueEnum;
use comfy_table::{CellAlignment, ContentArrangement, Table, presets};
use serde_json::Value;
use serde_json::value::RawValue;

use super::failure::Failure;

/// Output format of lists and of single things.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum Format {
    /// Text for people
    Table,
    /// JSON as the API sent it; of a list, its items
    Json,
    /// YAML of the same content
    Yaml,
}

/// Flag that selects the output format.
#[derive(clap::Args, Clone, Copy)]
pub(super) struct Output {
    /// Output format
    #[arg(short = 'o', long = "output", value_enum, default_value_t = Format::Table, value_name = "FORMAT")]
    pub(super) format: Format,
}

/// Column of a table: its name, and the function that makes a cell from an item.
pub(super) type Column = (&'static str, fn(&Value) -> String);

impl Output {
    /// Prints a list.
    pub(super) fn items(self, items: &[Box<RawValue>], columns: &[Column]) -> Result<(), Failure> {
        match self.format {
            Format::Json => {
                let texts: Vec<&str> = items.iter().map(|item| item.get()).collect();
                let joined = texts.join(",\n ");
                line(&if joined.is_empty() { "[]".to_owned() } else { format!("[{joined}]") })
            }
            Format::Yaml => yaml(&Value::Array(items.iter().map(|item| value(item)).collect())),
            Format::Table => {
                let rows = items.iter().map(|item| {
                    let item = value(item);
                    columns.iter().map(|(_, cell)| cell(&item)).collect()
                });
                let names: Vec<&str> = columns.iter().map(|(name, _)| *name).collect();
                table(&names, rows.collect())
            }
        }
    }

    /// Prints one thing. `text` formats it for people.
    pub(super) fn thing(self, raw: &str, text: impl FnOnce(&str) -> String) -> Result<(), Failure> {
        match self.format {
            Format::Json => line(raw.trim_end()),
            Format::Yaml => yaml(&serde_json::from_str(raw).unwrap_or_default()),
            Format::Table => line(text(raw).trim_end()),
        }
    }
}

/// Widest table at a terminal, in characters.
const TABLE_CHARS_MAX: u16 = 100;

/// Most columns of a table at a terminal.
const TABLE_COLUMNS_MAX: usize = 10;

/// Prints rows as a table. At a terminal, long cells are broken so that it fits [`TABLE_CHARS_MAX`], and rows of more than
/// [`TABLE_COLUMNS_MAX`] columns are printed one below the other.
pub(super) fn table(names: &[&str], rows: Vec<Vec<String>>) -> Result<(), Failure> {
    if is_terminal() && names.len() > TABLE_COLUMNS_MAX {
        return line(&blocks(names, &rows));
    }
    line(&fitted(names, rows, is_terminal().then_some(TABLE_CHARS_MAX)))
}

/// Formats rows one below the other, with a line for each cell that is not empty.
fn blocks(names: &[&str], rows: &[Vec<String>]) -> String {
    let width = names.iter().map(|name| name.len()).max().unwrap_or_default();
    let block = |row: &Vec<String>| {
        let cells = names.iter().zip(row).filter(|(_, cell)| !cell.is_empty());
        cells.map(|(name, cell)| format!("{name:width$}  {}\n", one_line(cell))).collect::<String>()
    };
    rows.iter().map(block).collect::<Vec<_>>().join("\n").trim_end().to_owned()
}

/// Formats rows in columns without lines between them. Each column is as wide as its longest cell.
pub(super) fn columns(names: &[&str], rows: Vec<Vec<String>>) -> String {
    fitted(names, rows, None)
}

/// Formats rows as [`columns`] does, and breaks cells so that no line is longer than `width`, if there is one.
fn fitted(names: &[&str], rows: Vec<Vec<String>>, width: Option<u16>) -> String {
    let mut table = Table::new();
    if let Some(width) = width {
        table.set_content_arrangement(ContentArrangement::Dynamic).set_width(width);
    }
    table.load_style(presets::NOTHING).set_header(names);
    for row in rows {
        table.add_row(row.iter().map(|cell| safe(cell).replace('\n', " ")));
    }
    for column in table.column_iter_mut() {
        column.set_padding((0, 2)).set_cell_alignment(CellAlignment::Left);
    }
    let lines: Vec<String> = table.lines().map(|line| line.trim_end().to_owned()).collect();
    lines.join("\n")
}

/// Writes a line to standard output.
pub(super) fn line(text: &str) -> Result<(), Failure> {
    let mut out = std::io::stdout().lock();
    out.write_all(text.as_bytes())
        .and_then(|()| out.write_all(b"\n"))
        .and_then(|()| out.flush())
        .map_err(|error| unwritten(&error))
}

/// Writes bytes to standard output as they are.
pub(super) fn bytes(bytes: &[u8]) -> Result<(), Failure> {
    std::io::stdout().lock().write_all(bytes).map_err(|error| unwritten(&error))
}

/// Flushes standard output.
pub(super) fn flush() -> Result<(), Failure> {
    std::io::stdout().lock().flush().map_err(|error| unwritten(&error))
}

/// Returns the failure of a write. A closed pipe is reported as [`Failure::OutputClosed`], since its reader has seen enough.
fn unwritten(error: &std::io::Error) -> Failure {
    match error.kind() {
        std::io::ErrorKind::BrokenPipe => Failure::OutputClosed,
        _ => Failure::Unwritten(format!("the result could not be written: {error}")),
    }
}

/// Prints a note to standard error.
pub(super) fn note(text: &str) {
    // standard error may be closed
    drop(writeln!(std::io::stderr(), "{}", safe(text)));
}

/// Returns whether standard output is a terminal.
pub(super) fn is_terminal() -> bool {
    std::io::stdout().is_terminal()
}

/// Escapes control characters in a text from elsewhere. Otherwise it could move the cursor of a terminal or change its
/// colours.
pub(super) fn safe(text: &str) -> String {
    let is_harmless = |c: char| !c.is_control() || matches!(c, '\n' | '\t');
    if text.chars().all(is_harmless) {
        return text.to_owned();
    }
    text.chars()
        .map(|c| if is_harmless(c) { c.to_string() } else { c.escape_default().to_string() })
        .collect()
}

/// Escapes control characters and line breaks, so that the text cannot look like several lines.
pub(super) fn one_line(text: &str) -> String {
    safe(text).replace('\n', "\\n")
}

/// Returns one item of a list as a value.
pub(super) fn parsed(raw: &RawValue) -> Value {
    serde_json::from_str(raw.get()).unwrap_or_default()
}

/// Returns a field as text; empty if absent or `null`.
pub(super) fn text(item: &Value, name: &str) -> String {
    match item.get(name) {
        None | Some(Value::Null) => String::new(),
        Some(Value::String(text)) => text.clone(),
        Some(other) => other.to_string(),
    }
}

fn yaml(value: &Value) -> Result<(), Failure> {
    match serde_saphyr::to_string(value) {
        Ok(text) => line(text.trim_end()),
        Err(error) => {
            Err(Failure::Usage(format!("the result cannot be shown as YAML: {error}; use -o json")))
        }
    }
}

fn value(raw: &RawValue) -> Value {
    serde_json::from_str(raw.get()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_moves_the_cursor() {
        assert_eq!(safe("a\tb\nc"), "a\tb\nc");
        assert_eq!(safe("a\u{1b}[2Jb\u{7}\r\u{9b}31m"), "a\\u{1b}[2Jb\\u{7}\\r\\u{9b}31m");
        assert_eq!(safe("日本 🙂"), "日本 🙂");
    }

    #[test]
    fn a_table_at_a_terminal_breaks_long_cells() {
        let row = || vec![vec!["files".to_owned(), "word ".repeat(60), "x".repeat(90)]];
        let widest = |table: String| table.lines().map(|line| line.chars().count()).max().unwrap_or_default();
        let fits = fitted(&["NAME", "TEXT", "URL"], row(), Some(TABLE_CHARS_MAX));
        assert!(widest(fits.clone()) <= 100 && fits.starts_with("NAME "), "{fits}");
        assert!(fits.lines().nth(1).unwrap().starts_with("files "), "{fits}");
        // programs read whole lines
        assert_eq!(columns(&["NAME", "TEXT", "URL"], row()).lines().count(), 2);
    }

    #[test]
    fn rows_of_many_columns_stand_one_below_the_other() {
        let row = |cells: [&str; 3]| cells.map(str::to_owned).to_vec();
        let rows = [row(["1", "", "a\nb"]), row(["2", "x", ""])];
        assert_eq!(
            blocks(&["ID", "CODE", "ALLOWED BY"], &rows),
            "ID          1\nALLOWED BY  a\\nb\n\nID          2\nCODE        x"
        );
    }

    #[test]
    fn fields_as_texts() {
        let item = serde_json::json!({"a": "x", "b": 1, "c": null, "d": [1]});
        let texts: Vec<String> = ["a", "b", "c", "d", "e"].iter().map(|name| text(&item, name)).collect();
        assert_eq!(texts, ["x", "1", "", "[1]", ""]);
    }
}
