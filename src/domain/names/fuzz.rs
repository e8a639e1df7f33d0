use std::collections::HashSet;

use super::*;
use crate::domain::fuzz::{fuzz, shape};

const SEEDS: &[&str] = &[
    "read.file\nread_file\nread-file",
    "a\nb__c\nb",
    "\u{1f980}\né\ne",
    "x__y_0123abcd",
    "list issues\nlist_issues",
];

/// Checks that names are safe, and that tools of one catalogue get different names, the same on every replica.
#[test]
fn names() {
    fuzz(
        SEEDS,
        &["__", "_", ".", "\n", "\u{1f980}", "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"],
        |input| {
            let text = String::from_utf8_lossy(input);
            let tools: HashSet<(&str, &str)> = text
                .split('\n')
                .take(64)
                .enumerate()
                .map(|(i, tool)| (["a", "a-b", "a--b"][i % 3], tool))
                .collect();
            let mut taken = HashSet::new();
            let mut attempts = 0;
            for (server, tool) in &tools {
                let free = (0..=8)
                    .map(|attempt| safe_name(server, tool, attempt))
                    .find(|name| !taken.contains(name));
                let name = free.expect("a free name within eight attempts");
                attempts += usize::from(name != safe_name(server, tool, 0));
                assert!(!name.is_empty() && name.len() <= SAFE_NAME_CHARS_MAX, "{name}");
                assert!(name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_'), "{name}");
                taken.insert(name);
            }
            assert_eq!(taken.len(), tools.len());
            shape((tools.len(), attempts))
        },
    );
}
