//! Digests of values: equal for equal values, in any spelling. `enum`, `const` and `uniqueItems` compare digests, so that
//! the cost of a value does not depend on the number of others.
//!
//! A digest has 128 bits, with random keys per schema: collisions cannot be made on purpose, and are too rare by chance.

use std::hash::{BuildHasher, DefaultHasher, Hasher, RandomState};

use super::arena::{Arena, Id, NodeKind};
use super::meter::{StepMeter, Stop};
use super::number::Number;

/// Keys of the digests of one schema.
pub(super) type Keys = [RandomState; 2];

/// Returns the digest of a value.
///
/// # Errors
/// The bound of the arena or the meter that was reached.
pub(super) fn digest(
    keys: &Keys,
    arena: &mut Arena<'_>,
    meter: &mut StepMeter,
    value: Id,
) -> Result<u128, Stop> {
    let kind = arena.kind(value);
    let mut state = State::new(keys, kind);
    meter.spend(10)?;
    match kind {
        NodeKind::Null | NodeKind::Bool => state.feed(arena.text(value).as_bytes()),
        NodeKind::Number => {
            let text = arena.text(value);
            meter.spend(2 + text.len() as u64 / 4)?;
            Number::read(text)?.feed(|part| state.feed(part));
        }
        NodeKind::String => {
            meter.spend(arena.body(value).len() as u64 / 4)?;
            state.feed(arena.string(value).as_bytes());
        }
        NodeKind::Array => {
            for item in arena.children(value, meter)?.items() {
                let item = digest(keys, arena, meter, item)?;
                state.feed(&item.to_le_bytes());
            }
        }
        NodeKind::Object => {
            // a sum: members have no order
            let mut sum = 0_u128;
            for (name, member) in arena.children(value, meter)?.members() {
                let name = digest(keys, arena, meter, name)?;
                let member = digest(keys, arena, meter, member)?;
                let mut pair = State::new(keys, NodeKind::Object);
                pair.feed(&name.to_le_bytes());
                pair.feed(&member.to_le_bytes());
                sum = sum.wrapping_add(pair.finish());
            }
            state.feed(&sum.to_le_bytes());
        }
    }
    Ok(state.finish())
}

/// Two hashers with one buffer in front: most values are a few bytes in several parts.
struct State {
    hashers: [DefaultHasher; 2],
    buffer: [u8; 64],
    filled: usize,
}

impl State {
    fn new(keys: &Keys, kind: NodeKind) -> State {
        let hashers = keys.each_ref().map(BuildHasher::build_hasher);
        let mut state = State { hashers, buffer: [0; 64], filled: 0 };
        state.feed(&[kind as u8]);
        state
    }

    fn feed(&mut self, part: &[u8]) {
        let end = self.filled + part.len();
        if let Some(free) = self.buffer.get_mut(self.filled..end) {
            free.copy_from_slice(part);
            self.filled = end;
            return;
        }
        self.flush();
        self.hashers.iter_mut().for_each(|hasher| hasher.write(part));
    }

    fn flush(&mut self) {
        let part = self.buffer.get(..self.filled).unwrap_or_default();
        self.hashers.iter_mut().for_each(|hasher| hasher.write(part));
        self.filled = 0;
    }

    fn finish(mut self) -> u128 {
        self.flush();
        self.hashers.iter().fold(0, |whole, hasher| (whole << 64) | u128::from(hasher.finish()))
    }
}
