//! Ranking of tools by a question in words: the search behind `retrieve_tools`.
//!
//! An [`Index`] is built once per tenant catalogue and never changes. A search reads nothing but the index,
//! so who may see a tool is the caller's rule, applied through `admit` before anything is counted or cut.
//! How rare a term is follows from the documents of one index: tenants never weigh on each other.

use std::cmp::Ordering;

mod bm25;
mod embedding;
mod meaning;
mod names;
mod query;
mod tokens;
mod words;

pub use embedding::{DIMS_MAX, Embedding, Nearness, TEXT_VERSION, text_of};

use bm25::Texts;
use meaning::Meanings;
use names::Names;
use query::Query;

/// Bytes of a tool's name that are read.
const NAME_BYTES_MAX: usize = 256;

/// Share of a score that comes from words in common; the rest comes from the meaning.
const WORDS_SHARE: f32 = 0.5;

/// How near a tool must be to a question by meaning to be found without a word in common.
const NEARNESS_MIN: f32 = 0.3;

/// Share of a score that an embeddings service has, where it has said something.
const EMBEDDING_SHARE: f32 = 0.5;

/// How near a tool must be as such a service sees it to be found without anything else.
const EMBEDDING_MIN: f32 = 0.3;

/// What a tool gets that the whole question is the name of: more than anything else can add up to.
const EXACT_BONUS: f32 = 3.0;

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
    meanings: Meanings,
    names: Names,
    documents: usize,
}

impl Index {
    /// Indexes `documents`; their positions are what [`Hit::document`] refers to.
    pub fn build<'a>(documents: impl IntoIterator<Item = Document<'a>>) -> Self {
        let mut texts = bm25::Builder::new();
        let mut meanings = meaning::Builder::new();
        let mut names = Names::default();
        let mut count = 0;
        for document in documents {
            let Some(position) = texts.add(&document) else { break };
            meanings.add(&document);
            names.add(&document, position);
            count += 1;
        }
        Self { texts: texts.finish(), meanings: meanings.finish(), names, documents: count }
    }

    /// How many documents there are.
    pub fn len(&self) -> usize {
        self.documents
    }

    /// Whether there is no document.
    pub fn is_empty(&self) -> bool {
        self.documents == 0
    }

    /// The best `limit` documents for `query` among those that `admit` lets through. A query that is a tool's
    /// name finds that tool first; one that has neither a word nor a meaning in common with any has no hits.
    pub fn search(&self, query: &str, limit: usize, admit: impl Fn(u32) -> bool) -> Hits {
        self.search_with(Design::default(), query, limit, admit)
    }

    /// The same as another design does it.
    pub fn search_with(
        &self,
        design: Design<'_>,
        query: &str,
        limit: usize,
        admit: impl Fn(u32) -> bool,
    ) -> Hits {
        let query = Query::read(query, &self.texts);
        let mut scores = self.scores(&query, design.words_share);
        if let Some(nearness) = design.nearness {
            mix(nearness, design.embedding_share, &mut scores);
        }
        self.names.add_exact(&query, EXACT_BONUS, &mut scores);
        let mut hits: Vec<Hit> = (0..)
            .zip(scores)
            .filter(|&(document, score)| score > 0.0 && admit(document))
            .map(|(document, score)| Hit { document, score })
            .collect();
        let total = hits.len();
        keep_best(&mut hits, limit);
        Hits { hits, total }
    }

    /// One per document. Words count as a share of what all of the question's words are worth, so that one word
    /// of many in common does not beat a meaning in common.
    fn scores(&self, query: &Query, words_share: f32) -> Vec<f32> {
        let mut scores = vec![0.0_f32; self.documents];
        for &(term, weight) in &query.terms {
            self.texts.add_scores(term, weight, &mut scores);
        }
        self.names.add_named(query, &mut scores);
        let per_worth = if query.worth > 0.0 { words_share / query.worth } else { 0.0 };
        for score in &mut scores {
            *score *= per_worth;
        }
        if words_share < 1.0 && query.direction.is_known() {
            for (score, nearness) in scores.iter_mut().zip(self.meanings.nearness(&query.direction)) {
                if *score > 0.0 || nearness >= NEARNESS_MIN {
                    *score += (1.0 - words_share) * nearness.max(0.0);
                }
            }
        }
        scores
    }
}

/// What counts how much.
#[derive(Clone, Copy, Debug)]
pub struct Design<'a> {
    /// Share of words in common, 0 to 1, beside the table's meaning.
    pub words_share: f32,
    /// What an embeddings service says.
    pub nearness: Option<&'a Nearness>,
    /// Its share, 0 to 1, beside all else.
    pub embedding_share: f32,
}

impl Default for Design<'_> {
    fn default() -> Self {
        Design { words_share: WORDS_SHARE, nearness: None, embedding_share: EMBEDDING_SHARE }
    }
}

/// Where the service has said nothing yet, what is there is taken for what it would say.
fn mix(nearness: &Nearness, share: f32, scores: &mut [f32]) {
    for (score, near) in scores.iter_mut().zip(&nearness.0) {
        let Some(near) = *near else { continue };
        if *score > 0.0 || near >= EMBEDDING_MIN {
            *score = (1.0 - share) * *score + share * near;
        }
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

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::query::{QUERY_BYTES_MAX, QUERY_WORDS_MAX};
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
        let words = "été ".repeat(QUERY_WORDS_MAX);
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
