//! Members or items of one value that rules have evaluated, for `unevaluatedProperties` and
//! `unevaluatedItems`.

/// Set of the evaluated positions in one array or object.
#[derive(Debug, Default)]
pub(super) struct Marks {
    are_all: bool,
    bits: Vec<u64>,
}

impl Marks {
    /// Marks all positions.
    pub(super) fn set_all(&mut self) {
        self.are_all = true;
        self.bits = Vec::new();
    }

    /// Marks a position.
    pub(super) fn set(&mut self, at: usize) {
        if self.are_all {
            return;
        }
        let word = at / 64;
        if self.bits.len() <= word {
            self.bits.resize(word + 1, 0);
        }
        if let Some(word) = self.bits.get_mut(word) {
            *word |= 1 << (at % 64);
        }
    }

    /// Returns whether a position is marked.
    pub(super) fn has(&self, at: usize) -> bool {
        self.are_all || self.bits.get(at / 64).is_some_and(|word| word & 1 << (at % 64) != 0)
    }

    /// Adds the marks of `other`. Returns the cost in steps.
    pub(super) fn merge(&mut self, other: &Marks) -> u64 {
        if other.are_all {
            self.set_all();
        }
        if self.are_all {
            return 1;
        }
        if self.bits.len() < other.bits.len() {
            self.bits.resize(other.bits.len(), 0);
        }
        self.bits.iter_mut().zip(&other.bits).for_each(|(own, other)| *own |= other);
        1 + other.bits.len() as u64 / 4
    }
}
