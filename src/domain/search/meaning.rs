//! How near a question is to a tool by meaning, with no word in common.
//!
//! Each tool has one vector: what it is called, what it says it does, and what it takes, each with equal length
//! so that a long description does not drown a good name.

use super::tokens::{Piece, Terms, for_each_piece};
use super::words::{DIMS, Sum, Words};
use super::{Document, NAME_BYTES_MAX};

/// Words of each part of a tool that count: what matters is said first.
const PART_WORDS_MAX: usize = 64;
/// Bytes of each part that are read.
const PART_BYTES_MAX: usize = 1024;
/// Look-ups for each part, and for a question.
const LOOKUPS_MAX: u32 = 1024;

/// Worth of the parameters' names beside a tool's name and its description.
const PARAMETERS_SHARE: f32 = 0.3;

/// Steps per unit in a stored vector. Unit vectors have no number near a half.
const STEPS: f32 = 254.0;

/// The direction of a text; all zero for one without known words.
#[derive(Clone, Copy, Debug)]
pub(super) struct Direction([i8; DIMS]);

impl Default for Direction {
    fn default() -> Self {
        Self([0; DIMS])
    }
}

impl Direction {
    /// Of a question's words. None when no word is known whole: what is put together from pieces alone may be no
    /// word at all.
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

    /// Cosine of the angle between two: 1 is the same, 0 is nothing in common.
    fn nearness(&self, other: &[i8; DIMS]) -> f32 {
        let dot: i32 = self.0.iter().zip(other).map(|(a, b)| i32::from(*a) * i32::from(*b)).sum();
        dot as f32 / (STEPS * STEPS)
    }

    /// Whether any word was known.
    pub(super) fn is_known(&self) -> bool {
        self.0 != [0; DIMS]
    }
}

/// The directions of documents, in their order.
#[derive(Debug, Default)]
pub(super) struct Meanings(Vec<[i8; DIMS]>);

impl Meanings {
    /// How near each document is to `question`, in order.
    pub(super) fn nearness(&self, question: &Direction) -> impl Iterator<Item = f32> {
        self.0.iter().map(|document| question.nearness(document))
    }
}

/// Collects documents.
pub(super) struct Builder {
    reading: Terms,
    directions: Vec<[i8; DIMS]>,
}

impl Builder {
    /// An empty one.
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

    /// What was collected.
    pub(super) fn finish(mut self) -> Meanings {
        self.directions.shrink_to_fit();
        Meanings(self.directions)
    }

    /// The unit vector of `texts`, of each of which `bytes_max` are read.
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

/// With length 1, or zero as it is.
fn unit(vector: &[f32; DIMS]) -> [f32; DIMS] {
    let length = vector.iter().map(|n| n * n).sum::<f32>().sqrt();
    if length > 0.0 { vector.map(|n| n / length) } else { *vector }
}
