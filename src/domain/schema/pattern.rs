//! Compiled patterns, with memory and work known before a search.

use regex_automata::dfa::dense::DFA;
use regex_automata::dfa::{Automaton, StartKind, dense};
use regex_automata::nfa::thompson::pikevm::PikeVM;
use regex_automata::nfa::thompson::{self, WhichCaptures};
use regex_automata::util::syntax;
use regex_automata::{Input, MatchKind};

use super::ecma;

/// Longest pattern, in bytes.
const TEXT_BYTES_MAX: usize = 8 * 1024;
/// Most Unicode property classes in one pattern.
const CLASSES_MAX: usize = 32;
/// Deepest nesting of groups.
const NEST_MAX: u32 = 50;
/// Largest automaton (NFA) of one pattern, in bytes: counted repetitions and classes are expanded in it.
const NFA_BYTES_MAX: usize = 256 * 1024;
/// Largest table (DFA) of one pattern, in bytes. Above it the pattern runs on the automaton itself.
const DFA_BYTES_MAX: usize = 128 * 1024;
/// Most memory while a table is computed, in bytes.
const DETERMINIZE_BYTES_MAX: usize = 256 * 1024;

/// Returns the reason in the engine's error. Its other lines show the translated pattern.
fn reason(error: &str) -> String {
    let reason = error.lines().rev().find_map(|line| line.strip_prefix("error: "));
    reason.map_or_else(String::new, |reason| format!(": {reason}"))
}

/// Compiled pattern.
#[derive(Debug)]
pub(in crate::domain) struct Pattern {
    engine: Engine,
    /// Memory held, in bytes.
    pub(super) bytes: usize,
    /// States that one byte of text may have to visit.
    states: usize,
}

#[derive(Debug)]
enum Engine {
    Table(Box<DFA<Vec<u32>>>),
    States(Box<PikeVM>),
}

impl Pattern {
    /// Compiles a pattern of ECMA-262; without `may_have_table` it runs on its states.
    ///
    /// # Errors
    /// The reason why the pattern is not used.
    pub(super) fn compile(text: &str, may_have_table: bool) -> Result<Pattern, String> {
        Pattern::build(text, may_have_table, false)
    }

    /// Returns whether a schema with this pattern can be used, as far as the pattern decides it.
    pub(in crate::domain) fn is_usable(text: &str) -> bool {
        Pattern::compile(text, false).is_ok()
    }

    /// Compiles a pattern of ECMA-262 that may begin with `(?i)`, for which upper and lower case are one.
    ///
    /// # Errors
    /// The reason why the pattern is not used.
    pub(in crate::domain) fn compile_with_case(text: &str) -> Result<Pattern, String> {
        match text.strip_prefix("(?i)") {
            Some(rest) => Pattern::build(rest, true, true),
            None => Pattern::build(text, true, false),
        }
    }

    fn build(text: &str, may_have_table: bool, folds_case: bool) -> Result<Pattern, String> {
        if text.len() > TEXT_BYTES_MAX {
            return Err(format!("a pattern is longer than {TEXT_BYTES_MAX} bytes"));
        }
        let translated = ecma::translate(text).map_err(|why| format!("a pattern does not compile: {why}"))?;
        if translated.classes > CLASSES_MAX {
            return Err(format!("a pattern has more than {CLASSES_MAX} Unicode properties"));
        }
        let syntax = syntax::Config::new().nest_limit(NEST_MAX).case_insensitive(folds_case);
        let hir = syntax::parse_with(&translated.text, &syntax)
            .map_err(|error| format!("a pattern does not compile{}", reason(&error.to_string())))?;
        let config = thompson::Config::new()
            .which_captures(WhichCaptures::None)
            .nfa_size_limit(Some(NFA_BYTES_MAX))
            .shrink(false);
        let nfa = thompson::Compiler::new().configure(config).build_from_hir(&hir);
        let nfa = nfa.map_err(|_| format!("a pattern needs more than {NFA_BYTES_MAX} bytes"))?;
        let config = dense::Config::new()
            .start_kind(StartKind::Unanchored)
            .match_kind(MatchKind::LeftmostFirst)
            .dfa_size_limit(Some(DFA_BYTES_MAX))
            .determinize_size_limit(Some(DETERMINIZE_BYTES_MAX));
        let table = may_have_table.then(|| dense::Builder::new().configure(config).build_from_nfa(&nfa).ok());
        if let Some(Some(table)) = table {
            let bytes = table.memory_usage();
            return Ok(Pattern { engine: Engine::Table(Box::new(table)), bytes, states: 0 });
        }
        let (bytes, states) = (nfa.memory_usage(), nfa.states().len());
        let machine = PikeVM::new_from_nfa(nfa).map_err(|_| "a pattern does not compile".to_owned())?;
        Ok(Pattern { engine: Engine::States(Box::new(machine)), bytes, states })
    }

    /// Returns whether the pattern runs on a table (a DFA).
    pub(super) fn has_table(&self) -> bool {
        matches!(self.engine, Engine::Table(_))
    }

    /// Returns the most steps that a search in a text of `bytes` bytes takes.
    pub(in crate::domain) fn steps(&self, bytes: usize) -> u64 {
        match self.engine {
            Engine::Table(_) => 4 + bytes as u64 / 2,
            Engine::States(_) => 20 + self.states as u64 / 4 + (bytes * self.states) as u64,
        }
    }

    /// Returns whether the pattern matches anywhere in `text`.
    pub(in crate::domain) fn is_found_in(&self, text: &str) -> bool {
        let input = Input::new(text).earliest(true);
        match &self.engine {
            // the table has no quit bytes, as word boundaries are those of ASCII
            Engine::Table(table) => table.try_search_fwd(&input).is_ok_and(|found| found.is_some()),
            Engine::States(machine) => machine.is_match(&mut machine.create_cache(), input),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(pattern: &str, text: &str) -> bool {
        let made = [true, false].map(|may_have_table| {
            Pattern::compile(pattern, may_have_table).unwrap_or_else(|why| panic!("{pattern}: {why}"))
        });
        assert!(!made[1].has_table());
        let [table, states] = made.map(|pattern| pattern.is_found_in(text));
        assert_eq!(table, states, "{pattern} in {text:?}");
        table
    }

    #[test]
    fn patterns_mean_what_ecma_262_says() {
        for (pattern, yes, no) in [
            (r"^\d+$", "09", "٠"),
            (r"^\w$", "a", "é"),
            (r"^\W$", "é", "a"),
            (r"^\s$", "\u{feff}", "\u{85}"),
            (r"^\S$", "\u{85}", "\u{3000}"),
            (r"^.$", "é", "\u{2028}"),
            ("^.$", "😀", "\r"),
            (r"^a$", "a", "a\n"),
            (r"^\u00e9\uD83D\uDE00\u{1F600}$", "é😀😀", "é😀"),
            (r"^\cA\x41\0\/\-\t$", "\u{1}A\0/-\t", "cA"),
            (r"^[\w-.]+$", "a-.b", "a,b"),
            (r"^[a&&b]$", "&", "c"),
            (r"^[[a]$", "[", "]"),
            (r"^[^]$", "\n", ""),
            (r"^a[]?$", "a", "ab"),
            (r"^[\D\b]$", "\u{8}", "5"),
            (r"^[+--]$", ",", "*"),
            (r"^a{,2}$", "a{,2}", "aa"),
            (r"^a{2}}]$", "aa}]", "aa"),
            (r"^(?<year>\d{4})$", "2026", "26"),
            (r"^\p{Lu}\P{Lu}\p{Script=Greek}$", "Aaω", "aAω"),
            (r"\bfoo\b", "a foo.", "afoo"),
            (r"^x#y z$", "x#y z", "xy"),
            (r"o\B", "foo", "o"),
        ] {
            assert!(found(pattern, yes), "{pattern} in {yes:?}");
            assert!(!found(pattern, no), "{pattern} not in {no:?}");
        }
    }

    #[test]
    fn case_is_folded_where_the_pattern_says_so() {
        let found = |pattern, text| Pattern::compile_with_case(pattern).expect("compiles").is_found_in(text);
        assert!(found(r"(?i)\bdrop|[à-é]", "x DROP") && found("(?i)[à-é]", "É"));
        assert!(!found(r"(?i)\bdrop", "xdrop") && !found("drop", "DROP"));
        assert!(Pattern::compile_with_case("a(?i)b").is_err());
    }

    #[test]
    fn what_is_not_supported_does_not_compile() {
        let deep = format!("{}{}", "(".repeat(100), ")".repeat(100));
        for pattern in [
            "(?=a)",
            "(?<!a)",
            r"(a)\1",
            r"\k<a>",
            r"\a",
            r"\Z",
            "(",
            "a)",
            "[a",
            "*",
            "a**",
            "a++",
            "(?i)a",
            r"\uD800",
            r"\p{Nonsense}",
            r"\p",
            "[b-a]",
            "a{2}{3}",
            "\\",
            &deep,
            &"a".repeat(TEXT_BYTES_MAX + 1),
            &r"\p{L}".repeat(CLASSES_MAX + 1),
            r"\p{L}{160}",
            "(?:a{1,1000}){1,1000}",
            "a{4294967296}",
        ] {
            assert!(Pattern::compile(pattern, true).is_err(), "{pattern}");
        }
    }

    #[test]
    fn a_pattern_holds_no_more_than_its_bound() {
        for pattern in [r"^\p{L}+$", "(a|b)*a(a|b){14}", "^.{1,255}$", r"[\p{L}\p{N}_.-]{1,8}@\w{2,}"] {
            let pattern = Pattern::compile(pattern, true).expect("compiles");
            assert!(pattern.bytes <= NFA_BYTES_MAX.max(DFA_BYTES_MAX), "{}", pattern.bytes);
            assert!(pattern.steps(1000) > pattern.steps(10));
        }
    }
}
