//! What everybody has: BM25 over a tool's name and description.

use std::collections::HashMap;

use rust_stemmers::{Algorithm, Stemmer};

use super::data::Catalogue;

/// Usual constants.
const K1: f64 = 1.5;
const B: f64 = 0.75;
/// Times a name's words are counted when it is weighted.
const NAME_TIMES: usize = 3;

/// English words that are not searched for.
const STOP_WORDS: [&str; 33] = [
    "a", "an", "and", "are", "as", "at", "be", "but", "by", "for", "if", "in", "into", "is", "it", "no",
    "not", "of", "on", "or", "such", "that", "the", "their", "then", "there", "these", "they", "this", "to",
    "was", "will", "with",
];

/// How texts become terms.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Reading {
    /// Lower-case words as they are written.
    Plain,
    /// Identifiers split, words stemmed, the name counted several times.
    Stemmed,
}

/// An index.
pub(super) struct Baseline {
    reading: Reading,
    stemmer: Stemmer,
    /// Score of each term in each tool.
    scores: HashMap<String, Vec<(u32, f64)>>,
    tools: usize,
}

impl Baseline {
    /// Indexes a catalogue.
    pub(super) fn build(catalogue: &Catalogue, reading: Reading) -> Baseline {
        let stemmer = Stemmer::create(Algorithm::English);
        let mut counts: HashMap<String, HashMap<u32, f64>> = HashMap::new();
        let mut lengths = Vec::new();
        for (at, tool) in (0..).zip(&catalogue.tools) {
            let times = if reading == Reading::Stemmed { NAME_TIMES } else { 1 };
            let mut terms: Vec<String> =
                (0..times).flat_map(|_| terms(&tool.name, reading, &stemmer)).collect();
            terms.extend(self::terms(&tool.description, reading, &stemmer));
            lengths.push(terms.len() as f64);
            for term in terms {
                *counts.entry(term).or_default().entry(at).or_default() += 1.0;
            }
        }
        let tools = lengths.len();
        let average = lengths.iter().sum::<f64>() / tools.max(1) as f64;
        let score = |idf: f64, at: u32, count: f64| {
            let length = lengths.get(at as usize).copied().unwrap_or_default();
            (at, idf * count * (K1 + 1.0) / (count + K1 * (1.0 - B + B * length / average)))
        };
        let scored = counts.into_iter().map(|(term, tools_having)| {
            let having = tools_having.len() as f64;
            let idf = (1.0 + (tools as f64 - having + 0.5) / (having + 0.5)).ln();
            (term, tools_having.into_iter().map(|(at, count)| score(idf, at, count)).collect())
        });
        Baseline { reading, scores: scored.collect(), stemmer, tools }
    }

    /// The best tools, best first.
    pub(super) fn rank(&self, query: &str, limit: usize) -> Vec<u32> {
        let mut scores = vec![0.0; self.tools];
        for term in terms(query, self.reading, &self.stemmer) {
            for (at, score) in self.scores.get(&term).into_iter().flatten() {
                if let Some(sum) = scores.get_mut(*at as usize) {
                    *sum += score;
                }
            }
        }
        let mut ranked: Vec<(u32, f64)> = (0..).zip(scores).filter(|(_, score)| *score > 0.0).collect();
        ranked.sort_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0)));
        ranked.into_iter().take(limit).map(|(at, _)| at).collect()
    }
}

fn terms(text: &str, reading: Reading, stemmer: &Stemmer) -> Vec<String> {
    let mut split = String::with_capacity(text.len());
    let mut was_lower = false;
    for c in text.chars() {
        if reading == Reading::Stemmed && (c == '_' || (was_lower && c.is_uppercase())) {
            split.push(' ');
        }
        was_lower = c.is_lowercase();
        split.extend(c.to_lowercase());
    }
    let words = split.split(|c: char| !c.is_alphanumeric() && c != '_').filter(|word| word.len() > 1);
    let words = words.map(|word| word.trim_matches('_')).filter(|word| !STOP_WORDS.contains(word));
    match reading {
        Reading::Plain => words.map(str::to_owned).collect(),
        Reading::Stemmed => words.map(|word| stemmer.stem(word).into_owned()).collect(),
    }
}
