//! Fuzzer for tests, on the stable toolchain: mutates seeds for `FUZZ_SECONDS` seconds (default 1).
//!
//! Targets return a number for the path that an input took; an input with a new number becomes a seed. This replaces
//! coverage, which stable Rust does not report to a running test.

use std::collections::HashSet;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};

/// Longest input, in bytes.
const INPUT_BYTES_MAX: usize = 4096;
/// Most seeds, with those that were found.
const SEEDS_MAX: usize = 2048;
/// Longest processor time of one input in a build without optimisation; the worst measured is a tenth of it.
const INPUT_CPU_MAX: Duration = Duration::from_millis(500);

/// Generator of pseudorandom numbers, the same for the same start (xorshift64*).
pub(crate) struct Chance(u64);

impl Chance {
    /// Returns a number below `bound`; 0 for a bound of 0.
    pub(crate) fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        let drawn = usize::try_from(self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33).unwrap();
        drawn.checked_rem(bound).unwrap_or(0)
    }

    fn one_of<'a, T: ?Sized>(&mut self, items: &[&'a T]) -> &'a T {
        items[self.below(items.len())]
    }
}

/// Returns a number for a value, equal for equal values.
pub(crate) fn shape(value: impl std::hash::Hash) -> u64 {
    use std::hash::{DefaultHasher, Hasher};
    let mut hasher = DefaultHasher::new();
    value.hash(&mut hasher);
    hasher.finish()
}

/// Runs `check` on inputs made of `seeds` and `words` until the time is over. The check panics on a fault.
///
/// # Panics
/// With the input, escaped, when the check panics or takes too long.
pub(crate) fn fuzz(seeds: &[&str], words: &[&str], check: impl Fn(&[u8]) -> u64) {
    let number = |name: &str| {
        std::env::var_os(name).map(|text| text.to_str().and_then(|text| text.parse().ok()).expect("a number"))
    };
    let start: u64 = number("FUZZ_START").unwrap_or(1);
    let until = Instant::now() + Duration::from_secs(number("FUZZ_SECONDS").unwrap_or(1));
    let mut chance = Chance(start.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
    let mut pool: Vec<Vec<u8>> = seeds.iter().map(|seed| seed.as_bytes().to_vec()).collect();
    let mut known = HashSet::new();
    for seed in &pool {
        known.insert(run(seed, &check));
    }
    while Instant::now() < until {
        let mut input = pool[chance.below(pool.len())].clone();
        for _ in 0..=chance.below(4) {
            mutate(&mut input, &pool, words, &mut chance);
        }
        input.truncate(INPUT_BYTES_MAX);
        if known.insert(run(&input, &check)) && pool.len() < SEEDS_MAX {
            pool.push(input);
        }
    }
}

fn run(input: &[u8], check: impl Fn(&[u8]) -> u64) -> u64 {
    let began = cpu();
    let Ok(shape) = catch_unwind(AssertUnwindSafe(|| check(input))) else {
        panic!("broken by the input b\"{}\"", input.escape_ascii());
    };
    let took = cpu().saturating_sub(began);
    assert!(took < INPUT_CPU_MAX, "{took:?} of processor time for the input b\"{}\"", input.escape_ascii());
    shape
}

/// Returns the processor time of this thread, which does not depend on other processes.
fn cpu() -> Duration {
    let now = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(u64::try_from(now.tv_sec).unwrap(), u32::try_from(now.tv_nsec).unwrap())
}

fn mutate(input: &mut Vec<u8>, pool: &[Vec<u8>], words: &[&str], chance: &mut Chance) {
    const BYTES: &[u8] = b"\"\\{}[]:,.-+ \t\r\n\0/_=&%#;\x7f\x80\xc3\xed\xef\xff09azAZ";
    let at = chance.below(input.len() + 1);
    let end = (at + 1 + chance.below(8)).min(input.len());
    match chance.below(8) {
        0 if at < input.len() => input[at] ^= 1 << chance.below(8),
        1 if at < input.len() => input[at] = BYTES[chance.below(BYTES.len())],
        2 => input.insert(at, BYTES[chance.below(BYTES.len())]),
        3 => drop(input.drain(at..end)),
        4 if !words.is_empty() => drop(input.splice(at..at, chance.one_of(words).bytes())),
        5 => {
            // repeats a part of the input, up to 64 times: shows work that grows faster than the input
            let part = input[at..end].to_vec();
            let again = part.repeat(1 + chance.below(64));
            drop(input.splice(at..at, again));
        }
        6 => {
            let other = &pool[chance.below(pool.len())];
            let from = chance.below(other.len() + 1);
            drop(input.splice(at..end, other[from..].iter().copied()));
        }
        _ => input.truncate(at),
    }
    input.truncate(2 * INPUT_BYTES_MAX);
}

#[test]
#[should_panic(expected = "broken by the input")]
fn a_target_that_breaks_is_found() {
    fuzz(&["{\"a\":1}"], &["needle"], |input| {
        let found = input.windows(6).any(|window| window == b"needle");
        assert!(!found, "found");
        0
    });
}

#[test]
#[should_panic(expected = "of processor time")]
fn a_target_that_is_slow_is_found() {
    fuzz(&["a"], &[], |input| {
        let began = cpu();
        while input.len() > 100 && cpu() - began <= INPUT_CPU_MAX {}
        shape(input.len())
    });
}
