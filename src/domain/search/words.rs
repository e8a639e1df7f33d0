//! Meaning of words: a fixed table of word vectors, made once with a sentence encoder and embedded in the binary.
//!
//! Words of similar meaning have similar directions, so "remove a picture" finds `delete_image`. No model runs here: a
//! text's vector is the sum of its words' vectors, and a word is one or more pieces of the table. The origin of the
//! table is in `words/README.md`.

use std::sync::LazyLock;

/// Numbers per vector.
pub(super) const DIMS: usize = 128;

/// Longest word that is looked up, in bytes.
const WORD_BYTES_MAX: usize = 32;

/// Table of word vectors. Three little-endian `u32`: pieces that begin a word, pieces that continue one, numbers
/// per vector. Then the pieces of both kinds, each sorted and after its length in one byte, then their vectors.
static TABLE: &[u8] = include_bytes!("words/pieces.bin");

static WORDS: LazyLock<Words> = LazyLock::new(|| Words::read(TABLE).unwrap_or_default());

/// Vector of a text before it is scaled.
pub(super) type Sum = [i32; DIMS];

/// Table of word vectors, ready for lookups.
#[derive(Default)]
pub(super) struct Words {
    heads: Pieces,
    tails: Pieces,
    vectors: &'static [u8],
}

/// Sorted pieces of one kind.
#[derive(Default)]
struct Pieces {
    /// Offset of each piece in [`TABLE`], at the byte of its length.
    offsets: Vec<u32>,
    bytes_max: usize,
    /// Position of the first piece's vector.
    first: usize,
}

impl Words {
    /// Returns the table, which is read at the first call.
    pub(super) fn get() -> &'static Words {
        &WORDS
    }

    fn read(table: &'static [u8]) -> Option<Words> {
        let mut at = 0;
        let heads = number(table, &mut at)?;
        let tails = number(table, &mut at)?;
        if number(table, &mut at)? != DIMS {
            return None;
        }
        let heads = Pieces::read(table, &mut at, heads, 0)?;
        let tails = Pieces::read(table, &mut at, tails, heads.offsets.len())?;
        let vectors = table.get(at..)?;
        let is_whole = vectors.len() == (heads.offsets.len() + tails.offsets.len()) * DIMS;
        is_whole.then_some(Words { heads, tails, vectors })
    }

    /// Adds the vector of a lower-case word to `sum`. Returns the number of its pieces, 0 for an unknown word.
    /// Each lookup of a possible piece is subtracted from `lookups`. When none are left, all words are unknown: that
    /// bounds the cost of hostile texts.
    pub(super) fn add(&self, word: &str, lookups: &mut u32, sum: &mut Sum) -> usize {
        let mut rest = word.as_bytes();
        if rest.len() > WORD_BYTES_MAX || !word.is_ascii() {
            return 0;
        }
        let mut found = [0_usize; WORD_BYTES_MAX];
        let mut count = 0;
        while !rest.is_empty() {
            let pieces = if count == 0 { &self.heads } else { &self.tails };
            let Some((vector, bytes)) = pieces.longest(rest, lookups) else { return 0 };
            let Some(place) = found.get_mut(count) else { return 0 };
            *place = vector;
            count += 1;
            rest = rest.get(bytes..).unwrap_or_default();
        }
        for vector in found.iter().take(count) {
            let numbers = self.vectors.get(vector * DIMS..(vector + 1) * DIMS).unwrap_or_default();
            for (sum, number) in sum.iter_mut().zip(numbers) {
                *sum += i32::from(*number as i8);
            }
        }
        count
    }
}

impl Pieces {
    fn read(table: &[u8], at: &mut usize, count: usize, first: usize) -> Option<Pieces> {
        let mut pieces = Pieces { offsets: Vec::with_capacity(count), bytes_max: 0, first };
        for _ in 0..count {
            pieces.offsets.push(u32::try_from(*at).ok()?);
            let bytes = usize::from(*table.get(*at)?);
            pieces.bytes_max = pieces.bytes_max.max(bytes);
            *at += 1 + bytes;
        }
        Some(pieces)
    }

    /// Returns the longest piece that `text` begins with: the position of its vector, and its length.
    fn longest(&self, text: &[u8], lookups: &mut u32) -> Option<(usize, usize)> {
        for bytes in (1..=text.len().min(self.bytes_max)).rev() {
            *lookups = lookups.checked_sub(1)?;
            let wanted = text.get(..bytes)?;
            if let Ok(found) = self.offsets.binary_search_by(|&at| piece(at).cmp(wanted)) {
                return Some((self.first + found, bytes));
            }
        }
        None
    }
}

fn piece(at: u32) -> &'static [u8] {
    let at = at as usize;
    let bytes = TABLE.get(at).copied().map_or(0, usize::from);
    TABLE.get(at + 1..at + 1 + bytes).unwrap_or_default()
}

fn number(table: &[u8], at: &mut usize) -> Option<usize> {
    let bytes = table.get(*at..*at + 4)?;
    *at += 4;
    usize::try_from(u32::from_le_bytes(bytes.try_into().ok()?)).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sum(word: &str) -> Option<Sum> {
        let mut sum = [0; DIMS];
        (Words::get().add(word, &mut 1000, &mut sum) > 0).then_some(sum)
    }

    fn nearness(one: &str, other: &str) -> f64 {
        let (one, other) = (sum(one).unwrap(), sum(other).unwrap());
        let dot = |a: &Sum, b: &Sum| a.iter().zip(b).map(|(a, b)| f64::from(a * b)).sum::<f64>();
        dot(&one, &other) / (dot(&one, &one) * dot(&other, &other)).sqrt()
    }

    #[test]
    fn the_table_is_whole_and_sorted() {
        let words = Words::get();
        assert!(words.heads.offsets.len() > 10_000);
        assert_eq!(words.vectors.len() % DIMS, 0);
        for pieces in [&words.heads, &words.tails] {
            assert!(pieces.offsets.iter().map(|&at| piece(at)).is_sorted());
        }
    }

    #[test]
    fn words_of_one_meaning_are_near() {
        for (one, near, far) in
            [("delete", "remove", "weather"), ("picture", "photo", "calendar"), ("email", "mail", "chart")]
        {
            let (near, far) = (nearness(one, near), nearness(one, far));
            assert!(near > far + 0.3, "{one}: {near} {far}");
        }
    }

    #[test]
    fn unknown_words_are_put_together_from_pieces() {
        assert!(sum("kubectl").is_some());
        assert_eq!(sum("über"), None);
        assert_eq!(sum(""), None);
        assert_eq!(sum(&"a".repeat(WORD_BYTES_MAX + 1)), None);
    }

    #[test]
    fn lookups_are_bounded() {
        let mut lookups = 3;
        let mut all = [0; DIMS];
        assert_eq!(Words::get().add("qxqxqxqxqxqxqxqxqx", &mut lookups, &mut all), 0);
        assert_eq!((lookups, all), (0, [0; DIMS]));
        assert_eq!(Words::get().add("delete", &mut lookups, &mut all), 0);
    }
}
