//! Decisions are files with numbers in a row, the index names each by its title, and what cites one finds it.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use super::complain;

/// Folder of the decisions and their index.
const FOLDER: &str = "docs/decisions";
/// Places whose texts may cite a decision.
const CITING: [&str; 10] = [
    ".ci",
    ".github",
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    "README.md",
    "deploy",
    "docs",
    "migrations",
    "src",
    "tests",
];
/// Endings of files that are read for citations; data and clients' packages are others' words.
const TEXTS: [&str; 6] = ["md", "rs", "sh", "sql", "toml", "yaml"];
/// Folders of packages, which are not of this repository.
const PACKAGES: [&str; 2] = ["node_modules", "data"];

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Returns decisions by number: the name of the file, and its text.
fn decisions() -> BTreeMap<u32, (String, String)> {
    let mut found = BTreeMap::new();
    for entry in fs::read_dir(root().join(FOLDER)).expect("a folder") {
        let path = entry.expect("an entry").path();
        let name = path.file_name().expect("a name").to_string_lossy().into_owned();
        if name == "README.md" {
            continue;
        }
        let number = name.split_once('-').filter(|(digits, _)| digits.len() == 4);
        let number = number.and_then(|(digits, _)| digits.parse().ok()).expect("NNNN-short-title.md");
        let twin = found.insert(number, (name, fs::read_to_string(path).expect("a text")));
        assert!(twin.is_none(), "two decisions have the number {number}");
    }
    found
}

fn texts(place: PathBuf, into: &mut Vec<PathBuf>) {
    if place.is_dir() {
        let is_package = place.file_name().is_some_and(|name| PACKAGES.iter().any(|of| name == *of));
        for entry in fs::read_dir(place).expect("a folder").filter(|_| !is_package) {
            texts(entry.expect("an entry").path(), into);
        }
    } else if place.extension().is_some_and(|end| TEXTS.iter().any(|text| end == *text)) {
        into.push(place);
    }
}

/// Returns the numbers of decisions that a line cites: `decision 7`, `decisions 7 and 12`.
fn cited(line: &str) -> Vec<u32> {
    let mut found = Vec::new();
    for rest in line.to_lowercase().split("decision").skip(1) {
        let rest = rest.strip_prefix('s').unwrap_or(rest);
        let Some(rest) = rest.strip_prefix(' ') else { continue };
        let words =
            rest.split([' ', ',', '.', ';', ':', ')', ']', '`', '\'']).filter(|word| !word.is_empty());
        let numbers = words.filter(|word| *word != "and").map_while(|word| word.parse::<u32>().ok());
        found.extend(numbers);
    }
    found
}

#[test]
fn the_index_has_every_decision_by_its_title() {
    let index = fs::read_to_string(root().join(FOLDER).join("README.md")).expect("the index");
    let decisions = decisions();
    let mut problems = Vec::new();
    for (number, (name, text)) in &decisions {
        let path = format!("{FOLDER}/{name}");
        let mut lines = text.lines();
        let title = lines.next().and_then(|line| line.strip_prefix(&format!("# {number}. ")));
        let Some(title) = title else {
            problems.push(format!("{path}: the first line is not `# {number}. Title`"));
            continue;
        };
        if !index.contains(&format!("\n| [{number:04}]({name}) | {title} | ")) {
            problems.push(format!("{path}: the index has no line with its title: {title}"));
        }
        let parts = ["\nStatus: ", "\n## Context\n", "\n## Decision\n", "\n## Consequences\n"];
        let missing = parts.iter().filter(|part| !text.contains(**part));
        problems.extend(missing.map(|part| format!("{path}: {} is missing", part.trim())));
    }
    let rows = index.lines().filter(|line| line.starts_with("| [")).count();
    assert_eq!(rows, decisions.len(), "lines of the index, and files");
    let last = decisions.keys().next_back().copied().unwrap_or_default();
    assert_eq!(last as usize, decisions.len(), "numbers are used in a row");
    complain(&problems);
}

#[test]
fn cited_decisions_are_there() {
    let decisions = decisions();
    let mut files = Vec::new();
    for place in CITING {
        texts(root().join(place), &mut files);
    }
    let (mut problems, mut seen) = (Vec::new(), 0);
    for file in files {
        let text = fs::read_to_string(&file).expect("a text");
        for (number, line) in text.lines().enumerate() {
            for of in cited(line) {
                seen += 1;
                if !decisions.contains_key(&of) {
                    problems.push(format!("{}:{}: there is no decision {of}", file.display(), number + 1));
                }
            }
        }
    }
    assert!(seen > 0, "the test has lost sight of the citations");
    complain(&problems);
}

#[test]
fn citations_are_told_from_other_numbers() {
    assert_eq!(cited("as [decision 33](decisions/0033-management-tools.md)."), [33]);
    assert_eq!(cited("// Decisions 7, 12 and 40: two readers"), [7, 12, 40]);
    for none in ["a decision of 2 people", "decision: 4", "the decisions", "returns decisions"] {
        assert!(cited(none).is_empty(), "{none}");
    }
}
