//! Tools that a question calls by name.

use std::collections::HashMap;

use super::query::Query;
use super::tokens::{Piece, for_each_piece};
use super::{Document, NAME_BYTES_MAX};

/// Words of a tool's name, with its server's, up to which a question is recognised as naming it.
const NAME_WORDS_MAX: usize = 16;

/// What naming a tool within a longer question adds, as a share of the worth of the words that name it.
const NAMED_SHARE: f32 = 0.5;

/// Tools by the words of their name, alone and behind their server's.
#[derive(Debug, Default)]
pub(super) struct Names {
    documents: HashMap<Box<str>, Vec<u32>>,
    words_max: usize,
}

impl Names {
    /// Adds the next document.
    pub(super) fn add(&mut self, document: &Document<'_>, position: u32) {
        if document.server.len() + document.name.len() > NAME_BYTES_MAX {
            return;
        }
        let mut key = String::new();
        let server_words = push_words(&mut key, document.server);
        let name_start = if key.is_empty() { 0 } else { key.len() + 1 };
        let name_words = push_words(&mut key, document.name);
        if name_words == 0 || server_words + name_words > NAME_WORDS_MAX {
            return;
        }
        self.words_max = self.words_max.max(server_words + name_words);
        if let Some(name) = key.get(name_start..) {
            self.documents.entry(name.into()).or_default().push(position);
        }
        if server_words > 0 {
            self.documents.entry(key.into()).or_default().push(position);
        }
    }

    /// Adds `bonus` to the scores of the documents that the whole question is the name of.
    pub(super) fn add_exact(&self, query: &Query, bonus: f32, scores: &mut [f32]) {
        let documents = self.documents.get(query.text.as_str());
        update(documents.map_or(&[], Vec::as_slice), scores, |score| *score += bonus);
    }

    /// Adds to the scores of the documents that the question names among other words.
    pub(super) fn add_named(&self, query: &Query, scores: &mut [f32]) {
        let mut bonuses = vec![0.0_f32; scores.len()];
        for (first, from) in query.words.iter().enumerate() {
            let mut worth = 0.0;
            for (count, to) in (1..=self.words_max).zip(query.words.iter().skip(first)) {
                worth += to.idf;
                // A one-word name inside a question is just a word of it: `search` in "search issues".
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

/// Appends the words of `text` to `key`, separated by spaces, and counts them.
fn push_words(key: &mut String, text: &str) -> usize {
    let mut words = 0;
    for_each_piece(text, |piece, word| {
        if piece == Piece::Compound {
            return;
        }
        words += 1;
        if words > NAME_WORDS_MAX {
            return;
        }
        if !key.is_empty() {
            key.push(' ');
        }
        key.push_str(word);
    });
    words
}
