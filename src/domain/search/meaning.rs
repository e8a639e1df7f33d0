//! Similarity of a question to a tool by meaning, also with no word in common.
//!
//! Each tool has one vector, the sum of three parts: names, description and parameters. Each part is scaled, so that a
//! long description does not outweigh a good name.

use super::tokens::{Piece, Terms, for_each_piece};
use super::words::{DIMS, Sum, Words};
use super::{Document, NAME_BYTES_MAX};

/// Words of each part of a tool that count; the important ones come first.
const PART_WORDS_MAX: usize = 64;
/// Bytes of each part that are read.
const PART_BYTES_MAX: usize = 1024;
/// Most lookups in the table for each part of a tool, and for a question.
const LOOKUPS_MAX: u32 = 1024;

/// Weight of the parameters' names; those of a tool's names and of its description are 1.
const PARAMETERS_SHARE: f32 = 0.3;

/// Steps per unit in a stored vector. Unit vectors have no number near a half.
const STEPS: f32 = 254.0;

/// Direction of a text's vector; all zero for a text without known words.
#[derive(Clone, Copy, Debug)]
pub(super) struct Direction([i8; DIMS]);

impl Default for Direction {
    fn default() -> Self {
        Self([0; DIMS])
    }
}

impl Direction {
    /// Returns the direction of a question's words. It is zero when no word is known whole: a word that consists of
    /// pieces alone may be no word at all.
    pub(super) fn of_words<'w>(words: impl Iterator<Item = &'w str>) -> Direction {
        let mut lookups = LOOKUPS_MAX;
        let mut sum = [0; DIMS];
        let mut is_whole = false;
        for word in words {
            is_whole |= Words::get().add(word, &mut lookups, &mut sum) == 1;
        }
        if !is_whole {
            return Direction::default();
        }
        Direction::new(&unit(&sum.map(|n| n as f32)))
    }

    fn new(unit: &[f32; DIMS]) -> Direction {
        Direction(unit.map(|n| (n * STEPS).round().clamp(-127.0, 127.0) as i8))
    }

    /// Returns the cosine of the angle between two directions: 1 is the same, 0 is nothing in common.
    fn nearness(&self, other: &[i8; DIMS]) -> f32 {
        let dot: i32 = self.0.iter().zip(other).map(|(a, b)| i32::from(*a) * i32::from(*b)).sum();
        dot as f32 / (STEPS * STEPS)
    }

    /// Returns whether any word was known.
    pub(super) fn is_known(&self) -> bool {
        self.0 != [0; DIMS]
    }
}

/// Directions of documents, in their order.
#[derive(Debug, Default)]
pub(super) struct Meanings(Vec<[i8; DIMS]>);

impl Meanings {
    /// Returns the similarity of each document to `question`, in order.
    pub(super) fn nearness(&self, question: &Direction) -> impl Iterator<Item = f32> {
        self.0.iter().map(|document| question.nearness(document))
    }
}

/// Builder of the directions of documents.
pub(super) struct Builder {
    reading: Terms,
    directions: Vec<[i8; DIMS]>,
}

impl Builder {
    /// Creates an empty builder.
    pub(super) fn new() -> Self {
        Self { reading: Terms::english(), directions: Vec::new() }
    }

    /// Adds the next document.
    pub(super) fn add(&mut self, document: &Document<'_>) {
        let called = [document.server, document.name, document.title.unwrap_or_default()];
        let called = self.part(called.into_iter(), NAME_BYTES_MAX);
        let does = self.part([document.description].into_iter(), PART_BYTES_MAX);
        let takes = self.part(document.parameters.iter().map(|parameter| parameter.name), PART_BYTES_MAX);
        let mut all = [0.0; DIMS];
        for (at, all) in all.iter_mut().enumerate() {
            let of = |part: &[f32; DIMS]| part.get(at).copied().unwrap_or_default();
            *all = of(&called) + of(&does) + PARAMETERS_SHARE * of(&takes);
        }
        self.directions.push(Direction::new(&unit(&all)).0);
    }

    /// Returns the directions of all documents.
    pub(super) fn finish(mut self) -> Meanings {
        self.directions.shrink_to_fit();
        Meanings(self.directions)
    }

    /// Returns the unit vector of `texts`, of each of which `bytes_max` are read.
    fn part<'t>(&self, texts: impl Iterator<Item = &'t str>, bytes_max: usize) -> [f32; DIMS] {
        let mut sum: Sum = [0; DIMS];
        let mut lookups = LOOKUPS_MAX;
        let mut words = 0;
        // the number of texts is bounded too: each may be empty
        for text in texts.take(PART_WORDS_MAX) {
            let text = text.get(..text.floor_char_boundary(bytes_max)).unwrap_or_default();
            for_each_piece(text, |piece, word| {
                if words < PART_WORDS_MAX && piece != Piece::Compound && !self.reading.is_stop_word(word) {
                    words += 1;
                    Words::get().add(word, &mut lookups, &mut sum);
                }
            });
        }
        unit(&sum.map(|n| n as f32))
    }
}

/// Scales a vector to length 1; a zero vector stays as it is.
fn unit(vector: &[f32; DIMS]) -> [f32; DIMS] {
    let length = vector.iter().map(|n| n * n).sum::<f32>().sqrt();
    if length > 0.0 { vector.map(|n| n / length) } else { *vector }
}
