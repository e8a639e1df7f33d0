use proptest::prelude::*;

use super::query::{QUERY_BYTES_MAX, QUERY_WORDS_MAX};
use super::*;

type Tool = (&'static str, &'static str, &'static str, &'static [(&'static str, &'static str)]);

const TOOLS: [Tool; 14] = [
    ("github", "create_issue", "Create a new issue in a GitHub repository", &[("owner", "Repository owner")]),
    ("github", "list_issues", "List issues in a repository with filters", &[("labels", "Filter by label")]),
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
    let parameters = parameters.iter().map(|&(name, description)| Parameter { name, description }).collect();
    Document { server, name, title: None, description, parameters }
}

fn index() -> Index {
    Index::build(TOOLS.iter().map(document))
}

/// Searches for a caller that sees only the documents accepted by `visible`.
fn found(index: &Index, query: &str, limit: usize, visible: impl Fn(u32) -> bool) -> Hits {
    index.search(&index.scope(visible), query, limit, |_| true)
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
        let hits = found(&index, query, 3, |_| true);
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
        let found = names(&found(&index, query, expected.len(), |_| true));
        let is_first = expected.iter().all(|name| found.iter().any(|found| found == name));
        assert!(is_first, "{query}: {found:?}");
    }
}

#[test]
fn a_long_name_comes_before_a_described_sibling() {
    let long =
        "repos_list_pull_requests_associated_with_commit_for_authenticated_user_in_organization_by_page";
    let sibling = long.strip_suffix("_by_page").unwrap();
    let described =
        "List pull requests associated with a commit of the authenticated user's organization by page";
    let tools = [(sibling, described), (long, "")].map(|(name, description)| Document {
        server: "my-long-server",
        name,
        title: None,
        description,
        parameters: vec![],
    });
    let index = Index::build(tools);
    for query in [long.to_owned(), format!("my-long-server:{long}")] {
        let found = found(&index, &query, 1, |_| true);
        assert_eq!(found.hits.first().map(|hit| hit.document), Some(1), "{query}");
    }
}

#[test]
fn a_name_inside_a_question_counts_more_than_its_words() {
    let named = |name| Document { server: "s", name, title: None, description: "", parameters: vec![] };
    let index = Index::build(["channel_archive", "archive_channel"].map(named));
    let found = found(&index, "please run archive_channel for me", 2, |_| true);
    assert_eq!(found.hits.iter().map(|hit| hit.document).collect::<Vec<_>>(), [1, 0]);
}

#[test]
fn a_known_compound_outweighs_its_parts() {
    let on = |server| Document { server, name: "sync", title: None, description: "", parameters: vec![] };
    let index = Index::build(["git", "github"].map(on));
    let found = found(&index, "please sync my GitHub", 2, |_| true);
    assert_eq!(found.hits.iter().map(|hit| hit.document).collect::<Vec<_>>(), [1, 0]);
}

#[test]
fn nothing_known_finds_nothing() {
    let index = index();
    for query in ["", "   ", "the of and", "xylophone", "🚀", "\u{0}", "it do"] {
        let found = found(&index, query, 10, |_| true);
        assert_eq!((found.hits, found.total), (Vec::new(), 0), "{query:?}");
    }
    let empty = Index::build([]);
    assert!(empty.is_empty());
    assert_eq!(found(&empty, "create issue", 10, |_| true), Hits::default());
}

#[test]
fn documents_that_nearly_match_are_named() {
    let index = index();
    let nearly = |query: &str, limit: usize, visible: fn(u32) -> bool| {
        let found = found(&index, query, limit, visible);
        let shown: Vec<&str> = found.nearly.iter().map(|document| TOOLS[*document as usize].1).collect();
        (found.total, shown.join(" "))
    };
    assert_eq!(nearly("wether", 10, |_| true), (0, "get_forecast".to_owned()));
    assert_eq!(nearly("pul reqeust", 10, |_| true), (0, "create_pull_request".to_owned()));
    // what the caller may not see is not near
    assert_eq!(nearly("wether", 10, |document| document != 11), (0, String::new()));
    // a short word is near to too many, a match needs no neighbour, and a full page has no room for any
    assert_eq!(nearly("gti", 10, |_| true), (0, String::new()));
    assert_eq!(nearly("forecast wether", 10, |_| true).1, "");
    assert_eq!(nearly("status wether", 1, |_| true).1, "");
}

/// A server that shares no word with the question, as it was met.
#[test]
fn a_server_with_a_near_meaning_is_named() {
    const MEMORY: [Tool; 2] = [
        (
            "memory",
            "add_observations",
            "Add new observations to existing entities in the knowledge graph",
            &[],
        ),
        ("memory", "create_entities", "Create multiple new entities in the knowledge graph", &[]),
    ];
    let index = Index::build(TOOLS.iter().chain(&MEMORY).map(document));
    let found = found(&index, "remember something about the user", 15, |_| true);
    let is_found = |document: u32| document as usize >= TOOLS.len();
    let named = found.nearly.iter().copied().chain(found.hits.iter().map(|hit| hit.document));
    assert!(named.into_iter().any(is_found), "{found:?}");
}

#[test]
fn what_is_out_of_scope_is_left_out_before_limit_and_total() {
    let index = index();
    let all = found(&index, "create", 10, |_| true);
    assert_eq!(all.total, 4);
    let gitlab = |document: u32| TOOLS[document as usize].0 == "gitlab";
    let some = found(&index, "create", 1, gitlab);
    assert_eq!((names(&some), some.total), (vec!["gitlab:create_issue".to_owned()], 1));
    let none = found(&index, "create", 0, |_| true);
    assert_eq!((none.hits.len(), none.total), (0, 4));
}

#[test]
fn equal_scores_keep_the_order_of_building() {
    let index = Index::build((0..50).map(|_| document(&TOOLS[0])));
    let found: Vec<u32> =
        found(&index, "create issue", 20, |at| at % 2 == 1).hits.iter().map(|hit| hit.document).collect();
    assert_eq!(found, (0..20).map(|at| at * 2 + 1).collect::<Vec<_>>());
    assert_eq!(index.len(), 50);
}

#[test]
fn only_the_beginning_of_a_long_query_counts() {
    let index = index();
    let words = "été ".repeat(QUERY_WORDS_MAX);
    assert_eq!(found(&index, &format!("{words} issue"), 10, |_| true).total, 0);
    let bytes = "é".repeat(QUERY_BYTES_MAX);
    assert_eq!(found(&index, &format!("{bytes} issue"), 10, |_| true).total, 0);
    assert!(found(&index, &format!("issue {bytes}"), 10, |_| true).total > 0);
}

#[test]
fn filters_are_applied_before_limit_and_total_and_change_no_score() {
    let index = index();
    let (all, gitlab) = (index.scope(|_| true), |document: u32| TOOLS[document as usize].0 == "gitlab");
    let (whole, some) = (index.search(&all, "create", 10, |_| true), index.search(&all, "create", 1, gitlab));
    assert_eq!((names(&some), some.total), (vec!["gitlab:create_issue".to_owned()], 1));
    assert!(whole.hits.contains(&some.hits[0]), "{whole:?} {some:?}");
}

proptest! {
    /// Checks that callers of one scope get equal hits and scores, bit for bit, whatever is out of scope.
    #[test]
    fn scores_follow_from_what_is_visible(
        query in "((issue|create|git|GitHub|file|the|read|zone|timezone|secret|\\PC{0,6})[ _:]?){0,12}",
        hidden in proptest::collection::vec("((issue|create|git|hub|file|secret|zone)[ _]?){1,30}", 0..6),
    ) {
        let alone = Index::build(TOOLS.iter().map(document));
        let others = hidden.iter().map(|text| Document {
            server: "hidden",
            name: text,
            title: Some(text),
            description: text,
            parameters: vec![Parameter { name: text, description: text }],
        });
        let among = Index::build(others.chain(TOOLS.iter().map(document)));
        let first = hidden.len() as u32;
        let mut seen = found(&among, &query, 10, |at| at >= first);
        for hit in &mut seen.hits {
            hit.document -= first;
        }
        for document in &mut seen.nearly {
            *document -= first;
        }
        prop_assert_eq!(found(&alone, &query, 10, |_| true), seen);
    }

    #[test]
    fn every_answer_is_a_ranked_prefix(
        query in "((issue|create|git|GitHub|file|the|read|zone|\\PC{0,6})[ _:]?){0,12}",
        limit in 0_usize..20,
        hidden in 0_u32..14,
    ) {
        let index = index();
        let all = found(&index, &query, usize::MAX, |at| at != hidden);
        prop_assert_eq!(all.total, all.hits.len());
        prop_assert!(all.hits.is_sorted_by(|a, b| best_first(a, b) == Ordering::Less));
        prop_assert!(all.hits.iter().all(|hit| hit.score > 0.0 && hit.score.is_finite()));
        prop_assert!(all.hits.iter().all(|hit| hit.document != hidden));
        let some = found(&index, &query, limit, |at| at != hidden);
        prop_assert_eq!(some.total, all.total);
        prop_assert_eq!(&some.hits[..], &all.hits[..limit.min(all.total)]);
    }

    #[test]
    fn any_document_can_be_indexed_and_found_by_its_name(
        name in "[a-z]{1,12}([_.-][a-zA-Z]{1,5}){0,39}",
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
        let hits = found(&index, &format!("any-server:{name}"), 1, |_| true);
        prop_assert_eq!(hits.hits.first().map(|hit| hit.document), Some(TOOLS.len() as u32));
    }

    #[test]
    fn any_text_can_be_indexed_and_searched(texts in proptest::collection::vec("\\PC{0,80}", 5), query: String) {
        let parameters = vec![Parameter { name: &texts[3], description: &texts[4] }];
        let (server, name, title) = (&texts[0], &texts[1], Some(texts[2].as_str()));
        let index = Index::build([Document { server, name, title, description: &query, parameters }]);
        for query in texts.iter().chain([&query]) {
            prop_assert!(found(&index, query, 1, |_| true).hits.iter().all(|hit| hit.score.is_finite()));
        }
    }
}
