//! The official JSON-Schema-Test-Suite against check 10's evaluator: all required tests of every draft, and the optional
//! ones about numbers and patterns. `setup.sh` installs it.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use mcpproxy::domain::schema::Schema;
use serde::Deserialize;
use serde_json::value::RawValue;

use crate::support::tools;

const DRAFTS: [(&str, &str); 5] = [
    ("draft4", "http://json-schema.org/draft-04/schema#"),
    ("draft6", "http://json-schema.org/draft-06/schema#"),
    ("draft7", "http://json-schema.org/draft-07/schema#"),
    ("draft2019-09", "https://json-schema.org/draft/2019-09/schema"),
    ("draft2020-12", "https://json-schema.org/draft/2020-12/schema"),
];
const OPTIONAL: [&str; 4] =
    ["bignum.json", "ecmascript-regex.json", "float-overflow.json", "non-bmp-regex.json"];
/// Groups whose schema is not used, so that calls pass unchecked and recorded; one per line.
const UNUSED: &str = include_str!("schema_suite_unused.txt");

#[derive(Deserialize)]
struct Group<'a> {
    description: String,
    #[serde(borrow)]
    schema: &'a RawValue,
    #[serde(borrow)]
    tests: Vec<Case<'a>>,
}

#[derive(Deserialize)]
struct Case<'a> {
    description: String,
    #[serde(borrow)]
    data: &'a RawValue,
    valid: bool,
}

fn files(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder)
        .unwrap_or_else(|error| panic!("{}: {error}; run tests/it/setup.sh first", folder.display()));
    let mut files: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
    files.retain(|path| path.extension().is_some_and(|extension| extension == "json"));
    let optional = OPTIONAL.map(|name| folder.join("optional").join(name));
    files.extend(optional.into_iter().filter(|path| path.exists()));
    files.sort();
    files
}

/// A schema that names no draft is of the draft whose folder it is in.
fn with_draft(schema: &str, uri: &str) -> String {
    match schema.trim_start().strip_prefix('{') {
        Some(_) if schema.contains("\"$schema\"") => schema.to_owned(),
        Some(rest) if rest.trim_start().starts_with('}') => format!("{{\"$schema\":\"{uri}\"}}"),
        Some(rest) => format!("{{\"$schema\":\"{uri}\",{rest}"),
        None => schema.to_owned(),
    }
}

#[test]
fn the_official_suite_agrees() {
    let suite = tools().join("json-schema-suite/tests");
    let (mut wrong, mut unused, mut run) = (Vec::new(), BTreeSet::new(), 0);
    for (draft, uri) in DRAFTS {
        for path in files(&suite.join(draft)) {
            let text = std::fs::read_to_string(&path).unwrap();
            let name = path.strip_prefix(&suite).unwrap().display();
            for group in serde_json::from_str::<Vec<Group<'_>>>(&text).unwrap() {
                let schema = match Schema::compile(&with_draft(group.schema.get(), uri)) {
                    Ok(schema) => schema,
                    Err(_) => {
                        unused.insert(format!("{name}: {}", group.description));
                        continue;
                    }
                };
                for case in group.tests {
                    run += 1;
                    let checked = schema.check(case.data.get());
                    if checked.is_ok() != case.valid {
                        wrong.push(format!(
                            "{name}: {}: {}: {checked:?}",
                            group.description, case.description
                        ));
                    }
                }
            }
        }
    }
    assert_eq!(wrong, [""; 0], "wrong, out of {run}");
    let listed: BTreeSet<String> = UNUSED.lines().map(str::to_owned).collect();
    let (new, stale): (Vec<_>, Vec<_>) =
        (unused.difference(&listed).collect(), listed.difference(&unused).collect());
    assert!(
        new.is_empty() && stale.is_empty(),
        "not used and not listed: {new:#?}; listed and used: {stale:#?}"
    );
    assert!(run > 5000, "only {run} tests were run");
}
