//! Doc comments read by themselves: the thing is the subject and has its name, and no sentence is too long to follow.
//!
//! Test, fuzz and production files alike: whoever hovers over a line has not read the lines before it.

use std::fs;
use std::path::Path;

use super::{complain, rust_files};

/// Words that say something only to readers who know what was said before.
const OPENINGS: [&str; 28] = [
    "All that",
    "Everything",
    "How",
    "It",
    "Its",
    "Makes it",
    "Nobody",
    "Nothing",
    "Of",
    "One",
    "So",
    "Such",
    "That",
    "The same",
    "Them",
    "These",
    "They",
    "Those",
    "What",
    "When",
    "Where",
    "Which",
    "Who",
    "Whoever",
    "Whom",
    "Whose",
    "Why",
    "Whatever",
];
/// Most words of one sentence.
const WORDS_MAX: usize = 40;

/// A doc comment: number of its first line, and its lines without their markers.
struct DocComment<'a> {
    line: usize,
    text: Vec<&'a str>,
}

/// Returns the doc comments of a source file.
fn doc_comments(source: &str) -> Vec<DocComment<'_>> {
    let mut found: Vec<DocComment<'_>> = Vec::new();
    let mut is_open = false;
    for (at, line) in source.lines().enumerate() {
        let line = line.trim_start();
        let text = line
            .strip_prefix("///")
            .or_else(|| line.strip_prefix("//!"))
            .filter(|rest| !rest.starts_with('/'));
        match (text, found.last_mut()) {
            (Some(text), Some(last)) if is_open => last.text.push(text),
            (Some(text), _) => found.push(DocComment { line: at + 1, text: vec![text] }),
            (None, _) => {}
        }
        is_open = text.is_some();
    }
    found
}

/// Returns the word or words of [`OPENINGS`] that a comment begins with.
fn opening(comment: &DocComment<'_>) -> Option<&'static str> {
    let first = comment.text.first()?.trim_start();
    OPENINGS.into_iter().find(|word| {
        let rest = first.strip_prefix(word);
        rest.is_some_and(|rest| !rest.starts_with(|c: char| c.is_alphanumeric() || "-_".contains(c)))
    })
}

/// Returns the length of the longest sentence, in words. Code, tables and headings are no sentences, and an item of a list
/// begins one.
fn longest_sentence(comment: &DocComment<'_>) -> usize {
    let mut is_code = false;
    let mut text = String::new();
    for line in comment.text.iter().map(|line| line.trim()) {
        if line.starts_with("```") {
            is_code = !is_code;
        }
        let is_item =
            line.is_empty() || line.starts_with(['-', '*']) || line.starts_with(|c: char| c.is_ascii_digit());
        if is_item || is_code || line.starts_with(['|', '#', '`']) {
            text.push_str(". ");
        }
        if !is_code && !line.starts_with(['|', '#']) {
            text.push_str(line);
            text.push(' ');
        }
    }
    let plain: String =
        text.split('`').enumerate().map(|(at, part)| if at % 2 == 0 { part } else { "x" }).collect();
    let sentences = plain.split_inclusive([' ']).fold(vec![0], |mut lengths, word| {
        let word = word.trim();
        if word.chars().any(char::is_alphanumeric) {
            *lengths.last_mut().expect("one") += 1;
        }
        if word.ends_with(['.', '!', '?', ':', ';']) {
            lengths.push(0);
        }
        lengths
    });
    sentences.into_iter().max().unwrap_or_default()
}

#[test]
fn doc_comments_stand_alone() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut files = Vec::new();
    rust_files(&root.join("src"), &mut files);
    let mut problems = Vec::new();
    for path in files {
        let source = fs::read_to_string(&path).expect("a text");
        let name = path.strip_prefix(root).expect("inside").display().to_string();
        for comment in doc_comments(&source) {
            let at = format!("{name}:{}", comment.line);
            if let Some(word) = opening(&comment) {
                problems.push(format!("{at}: opens with '{word}': name the thing instead"));
            }
            let words = longest_sentence(&comment);
            if words > WORDS_MAX {
                problems.push(format!("{at}: a sentence of {words} words, {WORDS_MAX} at most"));
            }
        }
    }
    complain(&problems);
}

#[test]
fn openings_and_long_sentences_are_found() {
    let source =
        "/// What it does.\nfn a() {}\n/// Whatever-else is fine.\n/// It goes on.\nfn b() {}\n//// no doc\n";
    let comments = doc_comments(source);
    assert_eq!(comments.iter().map(opening).collect::<Vec<_>>(), [Some("What"), None]);
    let long = format!(
        "/// {}.\n///\n/// - {}\n/// ```\n/// {}\n/// ```",
        "a ".repeat(41),
        "b ".repeat(30),
        "c ".repeat(90)
    );
    let [comment] = &doc_comments(&long)[..] else { panic!("one comment") };
    assert_eq!((opening(comment), longest_sentence(comment)), (None, 41));
}
