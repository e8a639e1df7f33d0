//! Safe spellings of `server:tool` for clients that refuse colons (behaviour, section 7).

use sha2::{Digest, Sha256};

/// Longest safe name, in characters: clients prefix it again before their own limit of 64.
pub const SAFE_NAME_CHARS_MAX: usize = 48;
/// Hex digits of the suffix that keeps a cut or colliding name apart.
const SUFFIX_HEX: usize = 8;

/// Returns the safe spelling of a tool: `server__tool` over `[A-Za-z0-9_]`, at most 48 characters. `attempt` 0
/// is the plain form where it fits. From 1 on (after a collision), and for long names always, a hash of the
/// canonical name and the attempt is appended.
pub fn safe_name(server: &str, tool: &str, attempt: u32) -> String {
    let plain: String = format!("{server}__{tool}")
        .chars()
        .map(|c| if c.is_ascii_alphanumeric() { c } else { '_' })
        .collect();
    if attempt == 0 && plain.len() <= SAFE_NAME_CHARS_MAX {
        return plain;
    }
    let digest = Sha256::digest(format!("{server}:{tool}#{attempt}").as_bytes());
    let hex: String = digest.iter().take(SUFFIX_HEX / 2).map(|byte| format!("{byte:02x}")).collect();
    let head: String = plain.chars().take(SAFE_NAME_CHARS_MAX - SUFFIX_HEX - 1).collect();
    format!("{head}_{hex}")
}

#[cfg(test)]
mod fuzz;

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn plain_where_it_fits() {
        assert_eq!(safe_name("my-fs", "read.file", 0), "my_fs__read_file");
        assert_eq!(safe_name("a", &"x".repeat(60), 0).len(), SAFE_NAME_CHARS_MAX);
        assert_ne!(safe_name("a", "b", 0), safe_name("a", "b", 1));
    }

    proptest! {
        #[test]
        fn always_safe_and_apart_after_attempts(tools in proptest::collection::hash_set(".{1,80}", 1..30)) {
            let mut taken = HashSet::new();
            for tool in &tools {
                let name = (0..100).map(|attempt| safe_name("s", tool, attempt)).find(|n| !taken.contains(n));
                let name = name.expect("a free name within a few attempts");
                prop_assert!(name.len() <= SAFE_NAME_CHARS_MAX);
                prop_assert!(name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_'));
                taken.insert(name);
            }
        }
    }
}
