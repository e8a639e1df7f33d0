//! Figures of the docs name the test or bench that measures or keeps them, and what docs name is there.
//!
//! In backticks `it::a::b` is `tests/it/a/b.rs` (or a function in `tests/it/a.rs`), `bench::a` is `tests/bench/a.rs`.

use std::fs;
use std::path::{Path, PathBuf};

use super::{complain, rust_files};

/// Documents whose every section with a figure names where it is from.
const MEASURED: [&str; 2] = ["docs/performance.md", "docs/operations.md"];
/// Folder of the decisions, whose figures are the reasons of their day.
const DATED: &str = "docs/decisions/";
/// Words that make a figure beside them a measured one, as does a ratio. `about` does so before a number.
const TELLING: [&str; 3] = ["measured", "took", "µs"];
/// Words in the head of a table that make its numbers measured ones, as does a unit.
const MEASURES: [&str; 4] = ["measured", "p50", "p99", "R@1"];
/// A word that is one of these, after a number, makes a figure.
const UNITS: [&str; 12] = ["ms", "µs", "s", "min", "kB", "KB", "MB", "GB", "KiB", "MiB", "GiB", "%"];
/// The map, whose invariants name what keeps them.
const MAP: &str = "docs/architecture.md";

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn read(path: &str) -> String {
    fs::read_to_string(root().join(path)).expect("a text")
}

/// Returns every document, as its path from the root.
fn documents() -> Vec<String> {
    let mut found = vec!["README.md".to_owned(), "CONTRIBUTING.md".to_owned()];
    for folder in ["docs", "docs/decisions", "docs/walks"] {
        for entry in fs::read_dir(root().join(folder)).expect("a folder") {
            let name = entry.expect("an entry").file_name().to_string_lossy().into_owned();
            if name.ends_with(".md") {
                found.push(format!("{folder}/{name}"));
            }
        }
    }
    found
}

/// Returns the texts in backticks on a line, each up to its first blank.
fn quoted(line: &str) -> impl Iterator<Item = &str> {
    line.split('`').skip(1).step_by(2).filter_map(|text| text.split_whitespace().next())
}

/// Returns whether a token names tests or a bench.
fn is_source(token: &str) -> bool {
    ["it::", "bench::", "tests/"].iter().any(|start| token.starts_with(start))
}

/// Returns whether a module exists below a folder, or a function in its file.
fn is_module(folder: &Path, names: &[&str]) -> bool {
    let Some((name, rest)) = names.split_first() else { return true };
    let (file, below) = (folder.join(format!("{name}.rs")), folder.join(name));
    let has_function = |file: PathBuf, name: &str| {
        fs::read_to_string(file).is_ok_and(|text| text.contains(&format!("fn {name}(")))
    };
    match rest {
        _ if below.is_dir() => is_module(&below, rest),
        [] => file.is_file() || has_function(folder.join("mod.rs"), name),
        [function] => has_function(file, function),
        _ => false,
    }
}

/// Returns whether the named file, module or function exists. A path may leave out its beginning and its
/// `.rs`.
fn exists(token: &str, files: &[String]) -> bool {
    if let Some((kind @ ("it" | "bench"), names)) = token.split_once("::") {
        let names: Vec<&str> = names.split("::").collect();
        return is_module(&root().join("tests").join(kind), &names);
    }
    let is_end = |file: &String, end: &str| {
        file.strip_suffix(end).is_some_and(|before| before.is_empty() || before.ends_with('/'))
    };
    let forms = [token.to_owned(), format!("{token}.rs"), format!("{token}/mod.rs")];
    root().join(token).exists() || files.iter().any(|file| forms.iter().any(|form| is_end(file, form)))
}

fn code_files() -> Vec<String> {
    let mut files = Vec::new();
    for folder in ["src", "tests"] {
        rust_files(&root().join(folder), &mut files);
    }
    files
        .iter()
        .map(|path| path.strip_prefix(root()).expect("inside").to_string_lossy().into_owned())
        .collect()
}

/// Returns the words of a text without the punctuation around them.
fn words(text: &str) -> Vec<&str> {
    text.split_whitespace()
        .map(|word| word.trim_matches(|c: char| !c.is_alphanumeric() && c != '%' && c != '×'))
        .collect()
}

fn is_number(word: &str) -> bool {
    word.contains(|c: char| c.is_ascii_digit())
}

fn is_ratio(word: &str) -> bool {
    word.ends_with('×') && is_number(word)
}

fn is_amount(number: &str, unit: &str) -> bool {
    is_number(number) && UNITS.contains(&unit)
}

/// Returns whether a text has a figure: a number with a unit, or a ratio.
fn has_figure(text: &str) -> bool {
    let words = words(text);
    words.iter().any(|word| is_ratio(word))
        || words.windows(2).any(|pair| matches!(pair, [number, unit] if is_amount(number, unit)))
}

/// Returns whether a paragraph, list item or table tells of a measurement. A bound that the code keeps is exact and has no
/// ratio.
fn is_measured(block: &str) -> bool {
    if block.starts_with('|') {
        let head = words(block.lines().next().unwrap_or_default());
        return head.iter().any(|word| UNITS.contains(word) || MEASURES.contains(word));
    }
    let words = words(block);
    let is_told = words.iter().any(|word| is_ratio(word) || TELLING.contains(&&*word.to_lowercase()));
    let is_rough =
        words.windows(3).any(|three| matches!(three, ["about", number, unit] if is_amount(number, unit)));
    is_rough || (is_told && has_figure(block))
}

/// Returns the paragraphs, list items and tables of a section, each with the number of its first line in the section.
fn blocks(lines: &[&str]) -> Vec<(usize, String)> {
    let (mut found, mut in_code, mut is_open) = (Vec::<(usize, String)>::new(), false, false);
    for (number, line) in lines.iter().enumerate() {
        let text = line.trim_start();
        let is_fence = text.starts_with("```");
        in_code ^= is_fence;
        if in_code || is_fence || text.is_empty() {
            is_open = false;
            continue;
        }
        let marker = text.split_once(' ').map_or("", |(first, _)| first);
        let is_item = marker == "-" || marker.strip_suffix('.').is_some_and(|n| n.parse::<u32>().is_ok());
        match found.last_mut().filter(|_| is_open && !is_item) {
            Some((_, block)) => {
                block.push('\n');
                block.push_str(text);
            }
            None => found.push((number, text.to_owned())),
        }
        is_open = true;
    }
    found
}

/// Returns headings with their line number and the text below, up to the next heading of any level.
fn sections(text: &str) -> Vec<(usize, &str, Vec<&str>)> {
    let (mut found, mut in_code) = (vec![(0, "the beginning", Vec::new())], false);
    for (number, line) in text.lines().enumerate() {
        in_code ^= line.starts_with("```");
        match line.strip_prefix('#').filter(|_| !in_code) {
            Some(heading) => found.push((number + 1, heading.trim_start_matches(['#', ' ']), Vec::new())),
            None => found.last_mut().expect("one").2.push(line),
        }
    }
    found
}

#[test]
fn figures_say_what_measures_them() {
    let mut problems = Vec::new();
    let mut seen = 0;
    for path in MEASURED {
        let text = read(path);
        for (number, heading, lines) in sections(&text) {
            if !lines.iter().any(|line| has_figure(line)) {
                continue;
            }
            seen += 1;
            if !lines.iter().flat_map(|line| quoted(line)).any(is_source) {
                problems.push(format!(
                    "{path}:{number}: {heading}: figures, and no `it::…` or `bench::…` they are from"
                ));
            }
        }
        // where a promise is held against a measurement, each row has its own
        let rows = text.lines().enumerate();
        let rows =
            rows.skip_while(|(_, line)| !(line.starts_with('|') && line.contains("| measured |"))).skip(2);
        for (number, row) in rows.take_while(|(_, line)| line.starts_with('|')) {
            seen += 1;
            if !quoted(row).any(is_source) {
                problems.push(format!("{path}:{}: a row without `it::…` or `bench::…`", number + 1));
            }
        }
    }
    assert!(seen > 30, "the test has lost sight of the figures: {seen}");
    complain(&problems);
}

/// A table may leave the name to its section.
#[test]
fn measured_figures_have_their_test_or_bench_beside_them() {
    let mut problems = Vec::new();
    let mut seen = 0;
    for path in documents().into_iter().filter(|path| !path.starts_with(DATED)) {
        let text = read(&path);
        for (number, _, lines) in sections(&text) {
            let is_named = |text: &str| text.lines().flat_map(quoted).any(is_source);
            for (line, block) in blocks(&lines).into_iter().filter(|(_, block)| is_measured(block)) {
                seen += 1;
                let is_from_section = block.starts_with('|') && lines.iter().copied().any(is_named);
                if !is_from_section && !is_named(&block) {
                    let line = number + 1 + line;
                    problems.push(format!(
                        "{path}:{line}: a measured figure, and no `it::…`, `bench::…` or `tests/…` beside it"
                    ));
                }
            }
        }
    }
    assert!(seen > 25, "the test has lost sight of the measured figures: {seen}");
    complain(&problems);
}

#[test]
fn what_docs_name_is_there() {
    let files = code_files();
    let mut problems = Vec::new();
    let mut seen = 0;
    for path in documents() {
        for (number, line) in read(&path).lines().enumerate() {
            let is_about_code = [MAP, "docs/replica.md", "docs/how-to-add.md", "CONTRIBUTING.md"]
                .contains(&&*path)
                || path.starts_with("docs/walks/");
            let is_code = |token: &&str| is_source(token) || (is_about_code && token.ends_with(".rs"));
            for token in quoted(line).filter(is_code) {
                seen += 1;
                if !exists(token, &files) {
                    problems.push(format!("{path}:{}: there is no {token}", number + 1));
                }
            }
        }
    }
    assert!(seen > 100, "the test has lost sight of the names: {seen}");
    complain(&problems);
}

#[test]
fn every_invariant_is_kept_by_something_that_is_there() {
    let files = code_files();
    let mut problems = Vec::new();
    let mut seen = 0;
    for line in read(MAP).lines().filter(|line| line.starts_with("| ")) {
        let cells: Vec<&str> = line.trim_matches('|').split(" | ").map(str::trim).collect();
        let [number, _, keepers] = cells[..] else { continue };
        if number.parse::<u32>().is_err() {
            continue;
        }
        seen += 1;
        if quoted(keepers).next().is_none() {
            problems.push(format!("{MAP}: invariant {number} is kept by nothing"));
        }
        let missing = quoted(keepers).filter(|token| !exists(token, &files));
        problems.extend(missing.map(|token| format!("{MAP}: invariant {number}: there is no {token}")));
    }
    assert!(seen >= 33, "the test has lost sight of the invariants: {seen}");
    complain(&problems);
}

#[test]
fn names_and_figures_are_told_from_others() {
    let files = code_files();
    for there in [
        "it::counts",
        "it::write_ahead::kills",
        "it::bulkheads",
        "bench::rows",
        "rest/document",
        "tests/bench",
    ] {
        assert!(exists(there, &files), "{there}");
    }
    for missing in
        ["it::no_such", "it::counts::no_such", "bench::rows::no_such", "rest/no_such", "tests/no_such"]
    {
        assert!(!exists(missing, &files), "{missing}");
    }
    for figure in ["p50 12 ms", "≤ 3.5× of it", "(28.2 MiB)", "0.4 s."] {
        assert!(has_figure(figure), "{figure}");
    }
    for none in ["ms", "20 callers", "2026-07-28", "§ 4", "its 8 columns are"] {
        assert!(!has_figure(none), "{none}");
    }
    for measured in [
        "it took 4 ms",
        "a query takes 28 µs",
        "4.5× to 6.4×",
        "about 10 kB each",
        "| filter | p50 ms |\n| --- | --- |",
    ] {
        assert!(is_measured(measured), "{measured}");
    }
    for set in
        ["at most 4 MiB", "after about an hour", "it took long", "| setting | default |\n| `x` | 60 s |"]
    {
        assert!(!is_measured(set), "{set}");
    }
    let lines = ["one", "", "- two", "  more", "- three", "```", "code", "```", "| four |", "| 4 |"];
    let expected = [(0, "one"), (2, "- two\nmore"), (4, "- three"), (8, "| four |\n| 4 |")];
    assert_eq!(blocks(&lines), expected.map(|(number, text)| (number, text.to_owned())));
}
