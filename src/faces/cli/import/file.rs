//! Reading of the files in which MCP clients keep their servers.

use std::path::Path;

use serde_json::Value;

use super::super::failure::Failure;
use super::super::{input, output};
use crate::domain::client_file::ClientFile;
use crate::domain::json;

/// Reads a file; `-` is standard input.
///
/// # Errors
/// The file cannot be read, has none of the formats, or a member of another type. The error repeats no value.
pub(super) fn read(path: &Path) -> Result<ClientFile, Failure> {
    let shown = path.display().to_string();
    let from = if shown == "-" { shown.clone() } else { format!("@{shown}") };
    let text = input::text("FILE", &from)?;
    parse(&text).map_err(|fault| Failure::Usage(format!("{shown}: {fault}")))
}

/// Parses JSON or TOML. Names of the file are on one line in an error.
fn parse(text: &str) -> Result<ClientFile, String> {
    tree_of(text).map_err(|fault| output::one_line(&fault))
}

fn tree_of(text: &str) -> Result<ClientFile, String> {
    if json::without_comments(text).trim_start().starts_with('{') {
        return ClientFile::read_json(text);
    }
    let tree: Value = toml_edit::de::from_str(text).map_err(|error| {
        // the error itself quotes the line, which may hold a credential
        let before = error.span().and_then(|span| text.get(..span.start));
        let line = before.map(|before| format!(" (line {})", before.matches('\n').count() + 1));
        format!("is neither JSON nor TOML{}", line.unwrap_or_default())
    })?;
    ClientFile::of_tree(&tree)
}

#[cfg(test)]
mod tests;
