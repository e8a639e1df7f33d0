//! Search for tools that a question names.

use std::collections::HashMap;

use super::query::{QUERY_WORDS_MAX, Query};
use super::tokens::{Piece, for_each_piece};
use super::{Document, NAME_BYTES_MAX};

/// Most words of a tool's name, with its server's, for it to be found within a longer question.
const NAMED_WORDS_MAX: usize = 16;

/// Bonus for a tool that is named within a longer question, as a share of the worth of the words that name it.
const NAMED_SHARE: f32 = 0.5;

/// Tools by the words of their name, alone and after their server's.
#[derive(Debug, Default)]
pub(super) struct NameIndex {
    documents: HashMap<Box<str>, Vec<u32>>,
    words_max: usize,
}

impl NameIndex {
    /// Adds the next document.
    pub(super) fn add(&mut self, document: &Document<'_>, position: u32) {
        let mut key = String::new();
        let name_words = push_words(&mut key, 0, document.name);
        if name_words == 0 {
            return;
        }
        self.documents.entry(key.as_str().into()).or_default().push(position);
        key.clear();
        let server_words = push_words(&mut key, 0, document.server);
        if server_words > 0 {
            push_words(&mut key, server_words, document.name);
            self.documents.entry(key.into()).or_default().push(position);
        }
        if server_words + name_words <= NAMED_WORDS_MAX {
            self.words_max = self.words_max.max(server_words + name_words);
        }
    }

    /// Adds `bonus` to the scores of the documents whose name is the whole question.
    pub(super) fn add_exact(&self, query: &Query, bonus: f32, scores: &mut [f32]) {
        let documents = self.documents.get(query.text.as_str());
        update(documents.map_or(&[], Vec::as_slice), scores, |score| *score += bonus);
    }

    /// Adds a bonus to the scores of the documents that the question names among other words.
    pub(super) fn add_named(&self, query: &Query, scores: &mut [f32]) {
        let mut bonuses = vec![0.0_f32; scores.len()];
        for (first, from) in query.words.iter().enumerate() {
            let mut worth = 0.0;
            for (count, to) in (1..=self.words_max).zip(query.words.iter().skip(first)) {
                worth += to.idf;
                // a one-word name inside a question is just a word of it: `search` in "search issues"
                if count == 1 {
                    continue;
                }
                let named = query.text.get(from.start..to.end).and_then(|words| self.documents.get(words));
                let bonus = NAMED_SHARE * worth;
                update(named.map_or(&[], Vec::as_slice), &mut bonuses, |best| *best = best.max(bonus));
            }
        }
        for (score, bonus) in scores.iter_mut().zip(bonuses) {
            *score += bonus;
        }
    }
}

/// Applies `change` to the values of `documents`.
fn update(documents: &[u32], values: &mut [f32], change: impl Fn(&mut f32)) {
    for &document in documents {
        if let Some(value) = values.get_mut(document as usize) {
            change(value);
        }
    }
}

/// Appends the words of `text` to the `known` words of `key`, separated by spaces, and counts them. The key has at most
/// [`QUERY_WORDS_MAX`] words, the same as a question.
fn push_words(key: &mut String, known: usize, text: &str) -> usize {
    let text = text.get(..text.floor_char_boundary(NAME_BYTES_MAX)).unwrap_or_default();
    let mut words = 0;
    for_each_piece(text, |piece, word| {
        if piece == Piece::Compound || known + words == QUERY_WORDS_MAX {
            return;
        }
        words += 1;
        if !key.is_empty() {
            key.push(' ');
        }
        key.push_str(word);
    });
    words
}
