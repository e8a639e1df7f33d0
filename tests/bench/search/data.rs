//! Catalogues with questions.

use std::collections::HashMap;
use std::path::Path;

use anyhow::{Context, Result, ensure};
use mcpproxy::domain::search::{Document, Parameter};
use mcpproxy::domain::signature::{signature, summary};
use mcpproxy::domain::tool::Definition;
use serde::Deserialize;
use serde_json::value::RawValue;

/// A tool with what its definition says.
pub(super) struct Tool {
    /// Its server's name.
    pub server: String,
    /// Its own name.
    pub name: String,
    /// Its description.
    pub description: String,
    title: Option<String>,
    bytes: (usize, usize),
    parameters: Vec<(String, String)>,
}

/// A question with the positions of the tools that answer it.
pub(super) struct Question {
    /// As asked.
    pub text: String,
    /// What should be found.
    pub gold: Vec<u32>,
}

/// Both.
pub(super) struct Catalogue {
    /// In the file's order.
    pub tools: Vec<Tool>,
    /// In the file's order.
    pub questions: Vec<Question>,
}

#[derive(Deserialize)]
struct Named {
    server: String,
    name: String,
}

#[derive(Deserialize)]
struct Asked {
    query: String,
    tools: Vec<String>,
}

impl Catalogue {
    /// Reads `tools.json` and `queries.jsonl` of a folder.
    pub(super) fn read(folder: &Path) -> Result<Catalogue> {
        let read = |name| std::fs::read_to_string(folder.join(name)).context(name);
        let tools = read("tools.json")?;
        let tools: Vec<&RawValue> = serde_json::from_str(&tools).context("tools.json")?;
        let tools = tools.into_iter().map(tool).collect::<Result<Vec<Tool>>>()?;
        // questions name a tool alone, or behind its server where names repeat
        let mut positions = HashMap::new();
        for (at, tool) in (0..).zip(&tools) {
            positions.insert(tool.name.clone(), at);
            positions.insert(format!("{}:{}", tool.server, tool.name), at);
        }
        let mut questions = Vec::new();
        for line in read("queries.jsonl")?.lines() {
            let asked: Asked = serde_json::from_str(line).context("queries.jsonl")?;
            let gold: Vec<u32> = asked.tools.iter().filter_map(|tool| positions.get(tool).copied()).collect();
            ensure!(gold.len() == asked.tools.len() && !gold.is_empty(), "unknown tool in: {}", asked.query);
            questions.push(Question { text: asked.query, gold });
        }
        Ok(Catalogue { tools, questions })
    }

    /// Bytes of all definitions without their names, which every answer has, and of their signatures, summaries
    /// and annotations.
    pub(super) fn bytes(&self) -> (usize, usize) {
        self.tools.iter().fold((0, 0), |sum, tool| (sum.0 + tool.bytes.0, sum.1 + tool.bytes.1))
    }

    /// The tools as the ranking sees them.
    pub(super) fn documents(&self) -> impl Iterator<Item = Document<'_>> {
        self.tools.iter().map(|tool| Document {
            server: &tool.server,
            name: &tool.name,
            title: tool.title.as_deref(),
            description: &tool.description,
            parameters: tool
                .parameters
                .iter()
                .map(|(name, description)| Parameter { name, description })
                .collect(),
        })
    }
}

fn tool(raw: &RawValue) -> Result<Tool> {
    let named: Named = serde_json::from_str(raw.get())?;
    let definition = Definition::read(raw.get()).map_err(|fault| anyhow::anyhow!("{fault}"))?;
    let annotations = definition.annotations_raw.map_or(2, str::len);
    let full = definition.description_raw.map_or(2, str::len) + definition.input_schema.map_or(2, str::len);
    let compact =
        signature(&named.name, definition.input_schema).len() + summary(&definition.description).len();
    Ok(Tool {
        bytes: (full + annotations, compact + annotations),
        server: named.server,
        name: named.name,
        description: definition.description,
        title: definition.title,
        parameters: definition.parameters,
    })
}
