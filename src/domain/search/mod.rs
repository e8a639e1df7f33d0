//! Ranking of tools by a question in words: the search behind `retrieve_tools`.
//!
//! An [`Index`] is built once per tenant catalogue and never changes. A search reads nothing but the index,
//! so who may see a tool is the caller's rule, applied through `admit` before anything is counted or cut.
//! How rare a term is follows from the documents of one index: tenants never weigh on each other.

use std::cmp::Ordering;
use std::collections::HashMap;

mod bm25;
mod tokens;

use bm25::{Builder, Texts};
use tokens::{Piece, Terms, for_each_piece};

/// Bytes of a question that are read.
const QUERY_BYTES_MAX: usize = 2048;

/// Words of a question that count.
const QUERY_WORDS_MAX: usize = 64;

/// Bytes of a tool's name that are read.
const NAME_BYTES_MAX: usize = 256;

/// Words of a tool's name, with its server's, up to which a question is recognised as naming it.
const NAME_WORDS_MAX: usize = 16;

/// Worth of a compound's parts when the compound itself is known: a question about "GitHub" is only
/// remotely one about "git".
const PART_WEIGHT: f32 = 0.5;

/// What naming a tool within a longer question adds, as a share of the worth of the words that name it.
const NAMED_SHARE: f32 = 0.5;

/// What a question that is a tool's name and nothing else adds beyond the worth of all its words, so that
/// a name made of stop words is found too.
const EXACT_EXTRA: f32 = 1.0;

/// A tool as the ranking sees it. All texts are untrusted; each field is read up to a fixed length.
#[derive(Clone, Debug)]
pub struct Document<'a> {
    /// The upstream server's name.
    pub server: &'a str,
    /// The tool's name on that server.
    pub name: &'a str,
    /// The tool's display title.
    pub title: Option<&'a str>,
    /// The tool's description.
    pub description: &'a str,
    /// The arguments it takes.
    pub parameters: Vec<Parameter<'a>>,
}

/// An argument of a tool.
#[derive(Clone, Copy, Debug)]
pub struct Parameter<'a> {
    /// The argument's name.
    pub name: &'a str,
    /// What the schema says about it; empty if nothing.
    pub description: &'a str,
}

/// A document that matched.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Hit {
    /// Position in the order of building, from 0.
    pub document: u32,
    /// How well it matched: positive and finite, comparable within one search only.
    pub score: f32,
}

/// The outcome of a search.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Hits {
    /// The best matches: by score, descending, then in the order of building.
    pub hits: Vec<Hit>,
    /// Matches that were admitted, including those beyond the limit.
    pub total: usize,
}

/// An immutable ranking of documents.
#[derive(Debug, Default)]
pub struct Index {
    texts: Texts,
    names: Names,
    documents: usize,
}

impl Index {
    /// Indexes `documents`; their positions are what [`Hit::document`] refers to.
    pub fn build<'a>(documents: impl IntoIterator<Item = Document<'a>>) -> Self {
        let mut texts = Builder::new();
        let mut names = Names::default();
        let mut count = 0;
        for document in documents {
            let Some(position) = texts.add(&document) else { break };
            names.add(&document, position);
            count += 1;
        }
        Self { texts: texts.finish(), names, documents: count }
    }

    /// How many documents there are.
    pub fn len(&self) -> usize {
        self.documents
    }

    /// Whether there is no document.
    pub fn is_empty(&self) -> bool {
        self.documents == 0
    }

    /// The best `limit` documents for `query` among those that `admit` lets through. A query without any
    /// word the index knows has no hits; one that is a tool's name finds that tool first.
    pub fn search(&self, query: &str, limit: usize, admit: impl Fn(u32) -> bool) -> Hits {
        let query = Query::read(query, &self.texts);
        let mut scores = vec![0.0_f32; self.documents];
        for &(term, weight) in &query.terms {
            self.texts.add_scores(term, weight, &mut scores);
        }
        self.names.add_scores(&query, &self.texts, &mut scores);
        let mut hits: Vec<Hit> = (0..)
            .zip(scores)
            .filter(|&(document, score)| score > 0.0 && admit(document))
            .map(|(document, score)| Hit { document, score })
            .collect();
        let total = hits.len();
        keep_best(&mut hits, limit);
        Hits { hits, total }
    }
}

/// Leaves the best `limit` hits in their final order without sorting the rest.
fn keep_best(hits: &mut Vec<Hit>, limit: usize) {
    if limit < hits.len() {
        hits.select_nth_unstable_by(limit, best_first);
        hits.truncate(limit);
    }
    hits.sort_unstable_by(best_first);
}

fn best_first(a: &Hit, b: &Hit) -> Ordering {
    b.score.total_cmp(&a.score).then(a.document.cmp(&b.document))
}

/// A question, read against an index.
#[derive(Default)]
struct Query {
    /// The known terms, each once, with their weights.
    terms: Vec<(u32, f32)>,
    /// Its words, joined by spaces: the spelling in which names are compared.
    text: String,
    /// The words' places in `text`.
    words: Vec<QueryWord>,
}

struct QueryWord {
    start: usize,
    end: usize,
    /// The worth of its term; 0 for a stop word or an unknown one.
    idf: f32,
}

impl Query {
    fn read(query: &str, texts: &Texts) -> Self {
        let query = query.get(..query.floor_char_boundary(QUERY_BYTES_MAX)).unwrap_or_default();
        let reading = Terms::english();
        let mut read = Self::default();
        let mut part_weight = 1.0;
        let mut previous = String::new();
        for_each_piece(query, |piece, word| {
            if read.words.len() == QUERY_WORDS_MAX {
                return;
            }
            let term = reading.term(word);
            let known = term.as_deref().and_then(|term| texts.find(term));
            if piece == Piece::Compound {
                part_weight = if known.is_some() { PART_WEIGHT } else { 1.0 };
                read.want(known, 1.0);
                return;
            }
            read.want(known, if piece == Piece::Part { part_weight } else { 1.0 });
            read.push_word(word, known.map_or(0.0, |known| texts.idf(known)));
            // "time zone" also asks for "timezone".
            if term.is_some() && !previous.is_empty() {
                previous.push_str(word);
                read.want(reading.term(&previous).and_then(|joined| texts.find(&joined)), 1.0);
            }
            previous.clear();
            if term.is_some() {
                previous.push_str(word);
            }
        });
        read
    }

    fn want(&mut self, term: Option<u32>, weight: f32) {
        let Some(term) = term else { return };
        match self.terms.iter_mut().find(|(known, _)| *known == term) {
            Some((_, known)) => *known = known.max(weight),
            None => self.terms.push((term, weight)),
        }
    }

    fn push_word(&mut self, word: &str, idf: f32) {
        if !self.text.is_empty() {
            self.text.push(' ');
        }
        let start = self.text.len();
        self.text.push_str(word);
        self.words.push(QueryWord { start, end: self.text.len(), idf });
    }
}

/// Tools by the words of their name, alone and behind their server's.
#[derive(Debug, Default)]
struct Names {
    documents: HashMap<Box<str>, Vec<u32>>,
    words_max: usize,
}

impl Names {
    fn add(&mut self, document: &Document<'_>, position: u32) {
        if document.server.len() + document.name.len() > NAME_BYTES_MAX {
            return;
        }
        let mut key = String::new();
        let server_words = push_words(&mut key, document.server);
        let name_start = if key.is_empty() { 0 } else { key.len() + 1 };
        let name_words = push_words(&mut key, document.name);
        if name_words == 0 || server_words + name_words > NAME_WORDS_MAX {
            return;
        }
        self.words_max = self.words_max.max(server_words + name_words);
        if let Some(name) = key.get(name_start..) {
            self.documents.entry(name.into()).or_default().push(position);
        }
        if server_words > 0 {
            self.documents.entry(key.into()).or_default().push(position);
        }
    }

    /// Adds to the scores of the documents that `query` names; to those it is the name of, if there are any.
    fn add_scores(&self, query: &Query, texts: &Texts, scores: &mut [f32]) {
        if let Some(documents) = self.documents.get(query.text.as_str()) {
            let bonus = exact_bonus(query, texts);
            update(documents, scores, |score| *score += bonus);
            return;
        }
        let mut bonuses = vec![0.0_f32; scores.len()];
        for (first, from) in query.words.iter().enumerate() {
            let mut worth = 0.0;
            for (count, to) in (1..=self.words_max).zip(query.words.iter().skip(first)) {
                worth += to.idf;
                // A one-word name inside a question is just a word of it: `search` in "search issues".
                if count == 1 {
                    continue;
                }
                let named = query.text.get(from.start..to.end).and_then(|words| self.documents.get(words));
                let bonus = NAMED_SHARE * worth;
                update(named.map_or(&[], Vec::as_slice), &mut bonuses, |best| *best = best.max(bonus));
            }
        }
        for (score, bonus) in scores.iter_mut().zip(bonuses) {
            *score += bonus;
        }
    }
}

/// Applies `change` to the values of `documents`.
fn update(documents: &[u32], values: &mut [f32], change: impl Fn(&mut f32)) {
    for &document in documents {
        if let Some(value) = values.get_mut(document as usize) {
            change(value);
        }
    }
}

/// No text can be worth more than the whole question, so this puts the tool it names first.
fn exact_bonus(query: &Query, texts: &Texts) -> f32 {
    EXACT_EXTRA + query.terms.iter().map(|&(term, weight)| weight * texts.idf(term)).sum::<f32>()
}

/// Appends the words of `text` to `key`, separated by spaces, and counts them.
fn push_words(key: &mut String, text: &str) -> usize {
    let mut words = 0;
    for_each_piece(text, |piece, word| {
        if piece == Piece::Compound {
            return;
        }
        words += 1;
        if words > NAME_WORDS_MAX {
            return;
        }
        if !key.is_empty() {
            key.push(' ');
        }
        key.push_str(word);
    });
    words
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    type Tool = (&'static str, &'static str, &'static str, &'static [(&'static str, &'static str)]);

    const TOOLS: [Tool; 14] = [
        (
            "github",
            "create_issue",
            "Create a new issue in a GitHub repository",
            &[("owner", "Repository owner")],
        ),
        (
            "github",
            "list_issues",
            "List issues in a repository with filters",
            &[("labels", "Filter by label")],
        ),
        ("github", "create_issue_comment", "Create a comment. To create an issue, use create issue.", &[]),
        ("github", "create_pull_request", "Open a pull request", &[("head", "Branch with the changes")]),
        ("github", "delete_repo", "Delete a repository", &[]),
        ("git", "git_status", "Shows the working tree status", &[("repo_path", "Path to the checkout")]),
        ("gitlab", "create_issue", "Create a new issue in a GitLab project", &[]),
        (
            "files",
            "readFile",
            "Read the complete contents of a file",
            &[("path", ""), ("encoding", "Such as UTF-8")],
        ),
        ("files", "search", "Search by name pattern", &[("excludePatterns", "Globs to leave out")]),
        (
            "clock",
            "convert",
            "Convert hours between places",
            &[("source_timezone", "IANA name, such as Europe/Rome")],
        ),
        ("slack", "post_message", "Post a new message to a channel", &[("thread_ts", "Parent to reply to")]),
        ("weather", "get_forecast", "Weather for the coming days", &[("latitude", ""), ("longitude", "")]),
        ("misc", "do_it", "Odd", &[]),
        ("地图", "路线规划", "规划两个地点之间的驾车路线", &[]),
    ];

    fn document<'a>((server, name, description, parameters): &Tool) -> Document<'a> {
        let parameters =
            parameters.iter().map(|&(name, description)| Parameter { name, description }).collect();
        Document { server, name, title: None, description, parameters }
    }

    fn index() -> Index {
        Index::build(TOOLS.iter().map(document))
    }

    fn names(hits: &Hits) -> Vec<String> {
        hits.hits
            .iter()
            .map(|hit| TOOLS[hit.document as usize])
            .map(|(server, name, ..)| format!("{server}:{name}"))
            .collect()
    }

    #[test]
    fn the_tool_that_was_meant_comes_first() {
        let index = index();
        for (query, expected) in [
            ("open new issues on github", "github:create_issue"),
            ("listing the issue", "github:list_issues"),
            ("pull requests", "github:create_pull_request"),
            ("PRs: createPullRequest", "github:create_pull_request"),
            ("remove or delete repositories", "github:delete_repo"),
            ("working tree", "git:git_status"),
            ("reading files", "files:readFile"),
            ("READ_FILE", "files:readFile"),
            ("exclude some pattern", "files:search"),
            ("in which time zone", "clock:convert"),
            ("reply to a parent message", "slack:post_message"),
            ("given a longitude", "weather:get_forecast"),
            ("驾车", "地图:路线规划"),
        ] {
            let hits = index.search(query, 3, |_| true);
            assert_eq!(names(&hits).first().map(String::as_str), Some(expected), "{query}: {hits:?}");
        }
    }

    #[test]
    fn a_query_that_names_a_tool_finds_it_first() {
        let index = index();
        for (query, expected) in [
            ("create_issue", vec!["github:create_issue", "gitlab:create_issue"]),
            ("Create Issue", vec!["github:create_issue", "gitlab:create_issue"]),
            ("gitlab:create_issue", vec!["gitlab:create_issue"]),
            ("call gitlab:create_issue for github, not github", vec!["gitlab:create_issue"]),
            ("search", vec!["files:search"]),
            ("do_it", vec!["misc:do_it"]),
            ("misc:do_it", vec!["misc:do_it"]),
        ] {
            let found = names(&index.search(query, expected.len(), |_| true));
            let is_first = expected.iter().all(|name| found.iter().any(|found| found == name));
            assert!(is_first, "{query}: {found:?}");
        }
    }

    #[test]
    fn a_name_inside_a_question_counts_more_than_its_words() {
        let named = |name| Document { server: "s", name, title: None, description: "", parameters: vec![] };
        let index = Index::build(["channel_archive", "archive_channel"].map(named));
        let found = index.search("please run archive_channel for me", 2, |_| true);
        assert_eq!(found.hits.iter().map(|hit| hit.document).collect::<Vec<_>>(), [1, 0]);
    }

    #[test]
    fn a_known_compound_outweighs_its_parts() {
        let on = |server| Document { server, name: "sync", title: None, description: "", parameters: vec![] };
        let index = Index::build(["git", "github"].map(on));
        let found = index.search("please sync my GitHub", 2, |_| true);
        assert_eq!(found.hits.iter().map(|hit| hit.document).collect::<Vec<_>>(), [1, 0]);
    }

    #[test]
    fn nothing_known_finds_nothing() {
        let index = index();
        for query in ["", "   ", "the of and", "xylophone", "🚀", "\u{0}", "it do"] {
            assert_eq!(index.search(query, 10, |_| true), Hits::default(), "{query:?}");
        }
        let empty = Index::build([]);
        assert!(empty.is_empty());
        assert_eq!(empty.search("create issue", 10, |_| true), Hits::default());
    }

    #[test]
    fn admit_is_applied_before_limit_and_total() {
        let index = index();
        let all = index.search("create", 10, |_| true);
        assert_eq!(all.total, 4);
        let gitlab = |document: u32| TOOLS[document as usize].0 == "gitlab";
        let some = index.search("create", 1, gitlab);
        assert_eq!((names(&some), some.total), (vec!["gitlab:create_issue".to_owned()], 1));
        let none = index.search("create", 0, |_| true);
        assert_eq!((none.hits.len(), none.total), (0, 4));
    }

    #[test]
    fn equal_scores_keep_the_order_of_building() {
        let index = Index::build((0..50).map(|_| document(&TOOLS[0])));
        let found: Vec<u32> =
            index.search("create issue", 20, |at| at % 2 == 1).hits.iter().map(|hit| hit.document).collect();
        assert_eq!(found, (0..20).map(|at| at * 2 + 1).collect::<Vec<_>>());
        assert_eq!(index.len(), 50);
    }

    #[test]
    fn only_the_beginning_of_a_long_query_counts() {
        let index = index();
        let words = "unknown ".repeat(QUERY_WORDS_MAX);
        assert_eq!(index.search(&format!("{words} issue"), 10, |_| true).total, 0);
        let bytes = "é".repeat(QUERY_BYTES_MAX);
        assert_eq!(index.search(&format!("{bytes} issue"), 10, |_| true).total, 0);
        assert!(index.search(&format!("issue {bytes}"), 10, |_| true).total > 0);
    }

    proptest! {
        #[test]
        fn every_answer_is_a_ranked_prefix(
            query in "((issue|create|git|GitHub|file|the|read|zone|\\PC{0,6})[ _:]?){0,12}",
            limit in 0_usize..20,
            hidden in 0_u32..14,
        ) {
            let index = index();
            let all = index.search(&query, usize::MAX, |at| at != hidden);
            prop_assert_eq!(all.total, all.hits.len());
            prop_assert!(all.hits.is_sorted_by(|a, b| best_first(a, b) == Ordering::Less));
            prop_assert!(all.hits.iter().all(|hit| hit.score > 0.0 && hit.score.is_finite()));
            prop_assert!(all.hits.iter().all(|hit| hit.document != hidden));
            let some = index.search(&query, limit, |at| at != hidden);
            prop_assert_eq!(some.total, all.total);
            prop_assert_eq!(&some.hits[..], &all.hits[..limit.min(all.total)]);
        }

        #[test]
        fn any_document_can_be_indexed_and_found_by_its_name(
            name in "[a-z]{1,12}([_.-][a-zA-Z]{1,5}){0,2}",
            text in "\\PC{0,200}",
        ) {
            let added = Document {
                server: "any-server",
                name: &name,
                title: Some(&text),
                description: &text,
                parameters: vec![Parameter { name: &text, description: &text }],
            };
            let index = Index::build(TOOLS.iter().map(document).chain([added]));
            let hits = index.search(&format!("any-server:{name}"), 1, |_| true);
            prop_assert_eq!(hits.hits.first().map(|hit| hit.document), Some(TOOLS.len() as u32));
        }

        #[test]
        fn any_text_can_be_indexed_and_searched(texts in proptest::collection::vec("\\PC{0,80}", 5), query: String) {
            let parameters = vec![Parameter { name: &texts[3], description: &texts[4] }];
            let (server, name, title) = (&texts[0], &texts[1], Some(texts[2].as_str()));
            let index = Index::build([Document { server, name, title, description: &query, parameters }]);
            for query in texts.iter().chain([&query]) {
                prop_assert!(index.search(query, 1, |_| true).hits.iter().all(|hit| hit.score.is_finite()));
            }
        }
    }
}
