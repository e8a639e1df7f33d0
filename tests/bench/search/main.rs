//! The comparison of rankings: catalogues with questions whose answer is known, one table per catalogue.
//!
//! `cargo bench --bench search [FOLDER…]`: each folder has `tools.json` and `queries.jsonl`, as those under
//! `tests/bench/data` do, which are compared when none is named. Nothing is started, and nothing is sent anywhere
//! unless the environment names an embeddings service (`embeddings.rs`).

mod baseline;
mod data;
mod embeddings;

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::Result;
use mcpproxy::domain::search::{Design, Index};

use self::baseline::{Baseline, Reading};
use self::data::{Catalogue, Question};
use self::embeddings::Vectors;

/// Ranks that are looked at.
const RANKS: usize = 50;
/// Turns over all questions that are timed; the fastest counts.
const TURNS: usize = 3;

fn main() -> ExitCode {
    let named: Vec<PathBuf> =
        std::env::args().skip(1).filter(|word| !word.starts_with('-')).map(PathBuf::from).collect();
    let data = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/bench/data");
    let folders =
        if named.is_empty() { vec![data.join("tool-retrieval"), data.join("mcp-servers")] } else { named };
    let mut out = std::io::stdout().lock();
    for folder in folders {
        if let Err(error) = compare(&folder, &mut out) {
            drop(writeln!(std::io::stderr(), "{}: {error:#}", folder.display()));
            return ExitCode::FAILURE;
        }
    }
    ExitCode::SUCCESS
}

fn compare(folder: &Path, out: &mut impl Write) -> Result<()> {
    let catalogue = Catalogue::read(folder)?;
    let index = Index::build(catalogue.documents());
    let name = folder.file_name().unwrap_or_default().to_string_lossy();
    writeln!(out, "\n{name}: {} tools, {} questions\n", catalogue.tools.len(), catalogue.questions.len())?;
    writeln!(out, "| ranking | R@1 | R@5 | R@10 | MRR | two-tool R@5 | µs per query |")?;
    writeln!(out, "|---|---|---|---|---|---|---|")?;
    let plain = Baseline::build(&catalogue, Reading::Plain);
    let stemmed = Baseline::build(&catalogue, Reading::Stemmed);
    row(out, "BM25, name + description", &catalogue, &|query| plain.rank(query, RANKS))?;
    row(out, "BM25, identifiers split, stemmed, name weighted", &catalogue, &|query| {
        stemmed.rank(query, RANKS)
    })?;
    for (name, share) in [
        ("words over all fields (BM25F)", 1.0),
        ("meaning alone", 0.0),
        ("words 0.7, meaning 0.3", 0.7),
        ("words 0.3, meaning 0.7", 0.3),
        ("**what ships**: words 0.5, meaning 0.5", 0.5),
    ] {
        row(out, name, &catalogue, &|query| {
            best(&index, Design { words_share: share, ..Design::default() }, query)
        })?;
    }
    if let Some(vectors) = Vectors::ask(&catalogue)? {
        for embedding_share in [0.4, 0.5, 0.6, 0.7, 1.0] {
            let name = format!("what ships {:.1}, the service {embedding_share:.1}", 1.0 - embedding_share);
            row(out, &name, &catalogue, &|query| {
                let nearness = vectors.nearness(query);
                let design = Design { nearness: nearness.as_ref(), embedding_share, ..Design::default() };
                best(&index, design, query)
            })?;
        }
    }
    let (tools, took) = thousand(&catalogue);
    writeln!(out, "\nAn index of {tools} tools takes {:.1} ms to build.", took.as_secs_f64() * 1e3)?;
    let (full, compact) = catalogue.bytes();
    writeln!(out, "Its definitions are {full} bytes; in one line each, {compact}.")?;
    Ok(())
}

fn best(index: &Index, design: Design<'_>, query: &str) -> Vec<u32> {
    let scope = index.scope(|_| true);
    index.search_with(design, &scope, query, RANKS, |_| true).hits.iter().map(|hit| hit.document).collect()
}

/// The fastest build of an index of 1000 tools: the catalogue's, again and again.
fn thousand(catalogue: &Catalogue) -> (usize, Duration) {
    let documents: Vec<_> = catalogue.documents().collect();
    let fastest = (0..TURNS).map(|_| {
        let begun = Instant::now();
        let index = Index::build(documents.iter().cycle().take(1000).cloned());
        (index.len(), begun.elapsed())
    });
    fastest.min_by_key(|(_, took)| *took).unwrap_or_default()
}

/// One line: how a ranking, which gives the positions of the best tools for a question, does on all of them.
fn row(
    out: &mut impl Write,
    name: &str,
    catalogue: &Catalogue,
    rank: &dyn Fn(&str) -> Vec<u32>,
) -> Result<()> {
    let questions = &catalogue.questions;
    let mut took = Duration::MAX;
    let mut ranked = Vec::new();
    for _ in 0..TURNS {
        let begun = Instant::now();
        ranked = questions.iter().map(|question| rank(&question.text)).collect();
        took = took.min(begun.elapsed());
    }
    let of = |tools: fn(usize) -> bool, measure: &dyn Fn(&Question, &[u32]) -> f64| {
        let chosen = questions.iter().zip(&ranked).filter(|(question, _)| tools(question.gold.len()));
        let values: Vec<f64> = chosen.map(|(question, ranked)| measure(question, ranked)).collect();
        (!values.is_empty()).then(|| values.iter().sum::<f64>() / values.len() as f64)
    };
    let one = |n| n == 1;
    let columns = [
        of(one, &|question, ranked| recall(question, ranked, 1)),
        of(one, &|question, ranked| recall(question, ranked, 5)),
        of(one, &|question, ranked| recall(question, ranked, 10)),
        of(one, &reciprocal_rank),
        of(|n| n == 2, &|question, ranked| recall(question, ranked, 5)),
    ];
    let columns = columns.map(|value| value.map_or("–".to_owned(), |value| format!("{value:.3}")));
    let micros = took.as_secs_f64() * 1e6 / questions.len().max(1) as f64;
    writeln!(out, "| {name} | {} | {micros:.0} |", columns.join(" | "))?;
    Ok(())
}

/// Share of a question's tools among the first `k`.
fn recall(question: &Question, ranked: &[u32], k: usize) -> f64 {
    let found = question.gold.iter().filter(|tool| ranked.iter().take(k).any(|at| at == *tool)).count();
    found as f64 / question.gold.len() as f64
}

fn reciprocal_rank(question: &Question, ranked: &[u32]) -> f64 {
    let place = ranked.iter().position(|at| question.gold.contains(at));
    place.map_or(0.0, |place| 1.0 / (place + 1) as f64)
}
