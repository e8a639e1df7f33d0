//! What a query in PromQL asks for: metrics, and the labels that each is told apart by.

/// A metric in a query.
#[derive(Clone, Debug, PartialEq)]
pub struct Asked {
    pub metric: String,
    /// Labels that samples are chosen by, with the alternatives; none where everything or an absence is meant.
    pub chosen: Vec<(String, Vec<String>)>,
    /// Labels that the query keeps.
    pub kept: Vec<String>,
}

/// Words of the language that are no metrics.
const WORDS: [&str; 12] = [
    "by",
    "without",
    "on",
    "ignoring",
    "group_left",
    "group_right",
    "and",
    "or",
    "unless",
    "offset",
    "bool",
    "vector",
];

fn is_name(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_' || c == ':'
}

/// Every metric of a query. Labels that are kept belong to all of them.
pub fn asked(query: &str) -> Vec<Asked> {
    let mut found: Vec<Asked> = Vec::new();
    let mut kept: Vec<String> = Vec::new();
    let mut rest = query;
    loop {
        rest = rest.trim_start_matches(|c: char| !is_name(c) && !matches!(c, '"' | '['));
        if rest.is_empty() {
            break;
        }
        if let Some(text) = rest.strip_prefix('"') {
            rest = text.split_once('"').unwrap().1;
            continue;
        }
        if rest.starts_with('[') {
            rest = rest.split_once(']').unwrap().1;
            continue;
        }
        let (word, after) = rest.split_at(rest.find(|c: char| !is_name(c)).unwrap_or(rest.len()));
        rest = after.trim_start();
        if word.starts_with(|c: char| c.is_ascii_digit()) {
            continue;
        }
        if let Some(inner) = rest.strip_prefix('(') {
            if matches!(word, "by" | "without" | "on" | "ignoring") {
                let (labels, after) = inner.split_once(')').unwrap();
                kept.extend(labels.split(',').map(|label| label.trim().to_owned()));
                rest = after;
            }
            continue;
        }
        if WORDS.contains(&word) || rest.starts_with("by ") || rest.starts_with("by(") {
            continue;
        }
        let mut chosen = Vec::new();
        if let Some(inner) = rest.strip_prefix('{') {
            let (matchers, after) = inner.split_once('}').unwrap();
            chosen = matchers.split(',').filter(|one| !one.is_empty()).map(matcher).collect();
            rest = after;
        }
        found.push(Asked { metric: word.to_owned(), chosen, kept: Vec::new() });
    }
    found.into_iter().map(|one| Asked { kept: kept.clone(), ..one }).collect()
}

/// One matcher; values with commas or braces are not used here.
fn matcher(text: &str) -> (String, Vec<String>) {
    let (label, value) = text.split_once('"').unwrap();
    let value = value.trim_end_matches('"');
    let is_positive = !label.contains('!') && !value.contains('$');
    let alternatives = if is_positive { value.split('|').map(str::to_owned).collect() } else { Vec::new() };
    (label.trim_end_matches(['=', '!', '~']).trim().to_owned(), alternatives)
}

#[test]
fn queries_are_understood() {
    let query = r#"histogram_quantile(0.95, sum by (le, tier) (rate(a_bucket{job=~"$job",x=~"b|c",y!=""}[$__rate_interval]))) / sum(d) or vector(0)"#;
    let kept = vec!["le".to_owned(), "tier".to_owned()];
    let chosen = vec![
        ("job".to_owned(), vec![]),
        ("x".to_owned(), vec!["b".to_owned(), "c".to_owned()]),
        ("y".to_owned(), vec![]),
    ];
    let [first, second] = &asked(query)[..] else { panic!("{:?}", asked(query)) };
    assert_eq!(*first, Asked { metric: "a_bucket".to_owned(), chosen, kept: kept.clone() });
    assert_eq!(*second, Asked { metric: "d".to_owned(), chosen: vec![], kept });
}
