//! Reading of a question against an index.

use super::bm25::{SearchScope, Texts};
use super::meaning::Direction;
use super::tokens::{Piece, Terms, for_each_piece};

/// Bytes of a question that are read.
pub(super) const QUERY_BYTES_MAX: usize = 2048;

/// Words of a question that count.
pub(super) const QUERY_WORDS_MAX: usize = 64;

/// Weight of a compound's parts when the compound itself is known: a question about "GitHub" is hardly one
/// about "git".
const PART_WEIGHT: f32 = 0.5;

/// Worth of a word that no document has, as a share of the rarest word's. The known words of a mostly unknown
/// question say little.
const UNKNOWN_SHARE: f32 = 0.5;

/// Most unknown terms that are compared with known ones.
const UNKNOWN_MAX: usize = 4;

/// Term of a question that a document in the caller's scope has.
#[derive(Clone, Copy)]
pub(super) struct QueryTerm {
    /// Id of the term in the index.
    pub(super) id: u32,
    /// Worth of the term in the scope.
    pub(super) idf: f32,
    /// Weight of the term in the query, 0 to 1.
    pub(super) weight: f32,
}

/// Question, read against an index.
#[derive(Default)]
pub(super) struct Query {
    /// Known terms of the query, each once.
    pub(super) terms: Vec<QueryTerm>,
    /// Words of the query, joined by spaces: the spelling in which names are compared.
    pub(super) text: String,
    /// Ranges of the words in `text`.
    pub(super) words: Vec<QueryWord>,
    /// Total worth of the words of the query; unknown words count as well.
    pub(super) worth: f32,
    /// Terms of the query that no document of the scope has, up to [`UNKNOWN_MAX`].
    pub(super) unknown: Vec<String>,
    /// Meaning of the query.
    pub(super) direction: Direction,
}

pub(super) struct QueryWord {
    pub(super) start: usize,
    pub(super) end: usize,
    /// Worth of the word's term; 0 for a stop word or an unknown word.
    pub(super) idf: f32,
    is_stop_word: bool,
}

impl Query {
    /// Reads the beginning of `query`. Terms that no document of `scope` has are unknown.
    pub(super) fn read(query: &str, texts: &Texts, scope: &SearchScope) -> Self {
        let query = query.get(..query.floor_char_boundary(QUERY_BYTES_MAX)).unwrap_or_default();
        let reading = Terms::english();
        let mut read = Self::default();
        let mut part_weight = 1.0;
        let mut previous = String::new();
        for_each_piece(query, |piece, word| {
            if read.words.len() == QUERY_WORDS_MAX {
                return;
            }
            let term = reading.term(word);
            let known = term.as_deref().and_then(|term| texts.find(scope, term));
            if term.is_some() && known.is_none() && piece != Piece::Compound && !read.has(word) {
                read.worth += UNKNOWN_SHARE * Texts::idf_max(scope);
                read.unknown
                    .extend(term.as_deref().filter(|_| read.unknown.len() < UNKNOWN_MAX).map(str::to_owned));
            }
            if piece == Piece::Compound {
                part_weight = if known.is_some() { PART_WEIGHT } else { 1.0 };
                read.want(known, 1.0);
                return;
            }
            read.want(known, if piece == Piece::Part { part_weight } else { 1.0 });
            read.push_word(word, known.map_or(0.0, |(_, idf)| idf), term.is_none());
            // "time zone" also searches for "timezone"
            if term.is_some() && !previous.is_empty() {
                previous.push_str(word);
                read.want(reading.term(&previous).and_then(|joined| texts.find(scope, &joined)), 1.0);
            }
            previous.clear();
            if term.is_some() {
                previous.push_str(word);
            }
        });
        read.worth += read.terms.iter().map(|term| term.weight * term.idf).sum::<f32>();
        let saying = read.words.iter().filter(|word| !word.is_stop_word);
        read.direction = Direction::of_words(saying.filter_map(|word| read.text.get(word.start..word.end)));
        read
    }

    fn has(&self, word: &str) -> bool {
        self.words.iter().any(|known| self.text.get(known.start..known.end) == Some(word))
    }

    fn want(&mut self, term: Option<(u32, f32)>, weight: f32) {
        let Some((id, idf)) = term else { return };
        match self.terms.iter_mut().find(|known| known.id == id) {
            Some(known) => known.weight = known.weight.max(weight),
            None => self.terms.push(QueryTerm { id, idf, weight }),
        }
    }

    fn push_word(&mut self, word: &str, idf: f32, is_stop_word: bool) {
        if !self.text.is_empty() {
            self.text.push(' ');
        }
        let start = self.text.len();
        self.text.push_str(word);
        self.words.push(QueryWord { start, end: self.text.len(), idf, is_stop_word });
    }
}
