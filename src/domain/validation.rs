//! Check 9 of a call: the variant against the server's annotations (behaviour, section 5; R1 FR-015 to FR-020).

use super::annotations::{Annotations, Tier, Unannotated};
use super::operation::{OperationType, Variant};
use super::refusal::{Code, Refusal};

/// Value of the setting `strict_server_validation` (R1 FR-041, FR-042).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Strictness {
    /// A mismatch is refused.
    Strict,
    /// A mismatch warns, is recorded, and passes.
    Lenient,
}

/// Result of check 9.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The call runs.
    Allow,
    /// The call runs, with this sentence in the record and in the result's `_meta`.
    Warn(String),
    /// The call does not run.
    Reject(Refusal),
}

/// Compares the variant with the tool's tier. `tool` is the canonical name, for the text.
pub fn validate(
    tool: &str,
    variant: Variant,
    annotations: Annotations,
    unannotated: Unannotated,
    strictness: Strictness,
) -> Verdict {
    let tier = annotations.tier(unannotated);
    match (variant, tier) {
        (Variant::Destructive, _)
        | (Variant::Read, Tier::Read | Tier::Unknown)
        | (Variant::Write, Tier::Write | Tier::Unknown) => Verdict::Allow,
        (Variant::Write, Tier::Read) => {
            let who = who(annotations);
            Verdict::Warn(format!("Tool '{tool}' is marked read-only by {who}, call_tool_read is enough"))
        }
        (Variant::Read, Tier::Write) => {
            let who = who(annotations);
            let message = format!("Tool '{tool}' is not marked read-only by {who}, use call_tool_write");
            mismatch(message, OperationType::Write, strictness)
        }
        (Variant::Read | Variant::Write, Tier::Destructive) => {
            let why = why_destructive(annotations);
            let message = format!("Tool '{tool}' {why}, use call_tool_destructive");
            mismatch(message, OperationType::Destructive, strictness)
        }
    }
}

/// Returns who says what a tool does, in the words of a refusal.
fn who(annotations: Annotations) -> &'static str {
    if annotations.by_admin { "your administrator" } else { "server" }
}

fn why_destructive(annotations: Annotations) -> &'static str {
    match (annotations.destructive, annotations.read_only) {
        (Some(true), _) if annotations.by_admin => "is marked destructive by your administrator",
        (Some(true), _) => "is marked destructive by server",
        (_, None) => "has no annotations and this key does not trust it",
        (_, Some(_)) => "does not say it is non-destructive and this key does not trust it",
    }
}

fn mismatch(message: String, needed: OperationType, strictness: Strictness) -> Verdict {
    match strictness {
        Strictness::Lenient => Verdict::Warn(message),
        Strictness::Strict => Verdict::Reject(
            Refusal::new(Code::ServerMismatch, message).expecting(needed).recommending(needed.variant()),
        ),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const READ: Annotations = Annotations { read_only: Some(true), destructive: None, by_admin: false };
    const WRITE: Annotations =
        Annotations { read_only: Some(false), destructive: Some(false), by_admin: false };
    const DESTRUCTIVE: Annotations =
        Annotations { read_only: None, destructive: Some(true), by_admin: false };
    const NONE: Annotations = Annotations { read_only: None, destructive: None, by_admin: false };
    const HALF: Annotations = Annotations { read_only: Some(false), destructive: None, by_admin: false };

    fn text(verdict: Verdict) -> String {
        match verdict {
            Verdict::Allow => "allow".into(),
            Verdict::Warn(text) => format!("warn: {text}"),
            Verdict::Reject(refusal) => refusal.message,
        }
    }

    /// Checks that the page on messages has each message in the words that agents get.
    #[test]
    fn every_text_is_documented() {
        let page = include_str!("../../docs/intent.md");
        for variant in Variant::ALL {
            let said = [READ, WRITE, DESTRUCTIVE, NONE, HALF];
            let overridden = [READ, WRITE, DESTRUCTIVE].map(|said| Annotations { by_admin: true, ..said });
            for annotations in said.into_iter().chain(overridden) {
                for trust in [Unannotated::Trust, Unannotated::Distrust] {
                    let said = text(validate("x:y", variant, annotations, trust, Strictness::Strict));
                    let said = said.trim_start_matches("warn: ").replace(
                        "'x:y' is marked destructive by s",
                        "'github:delete_repo' is marked destructive by s",
                    );
                    assert!(said == "allow" || page.contains(&said), "docs/intent.md has not: {said}");
                }
            }
        }
    }

    #[test]
    fn every_cell_of_the_table() {
        use Unannotated::{Distrust, Trust};
        let destructive = "Tool 'x:y' is marked destructive by server, use call_tool_destructive";
        let not_read = "Tool 'x:y' is not marked read-only by server, use call_tool_write";
        let cells = [
            (Variant::Read, READ, Trust, "allow"),
            (Variant::Read, WRITE, Trust, not_read),
            (Variant::Read, DESTRUCTIVE, Trust, destructive),
            (Variant::Read, NONE, Trust, "allow"),
            (Variant::Read, HALF, Trust, not_read),
            (
                Variant::Write,
                READ,
                Trust,
                "warn: Tool 'x:y' is marked read-only by server, call_tool_read is enough",
            ),
            (Variant::Write, WRITE, Trust, "allow"),
            (Variant::Write, DESTRUCTIVE, Trust, destructive),
            (Variant::Write, NONE, Trust, "allow"),
            (Variant::Destructive, READ, Trust, "allow"),
            (Variant::Destructive, WRITE, Trust, "allow"),
            (Variant::Destructive, DESTRUCTIVE, Trust, "allow"),
            (Variant::Destructive, NONE, Trust, "allow"),
            (
                Variant::Read,
                NONE,
                Distrust,
                "Tool 'x:y' has no annotations and this key does not trust it, use call_tool_destructive",
            ),
            (
                Variant::Write,
                HALF,
                Distrust,
                "Tool 'x:y' does not say it is non-destructive and this key does not trust it, \
                 use call_tool_destructive",
            ),
            (Variant::Destructive, NONE, Distrust, "allow"),
        ];
        for (variant, annotations, unannotated, expected) in cells {
            let verdict = validate("x:y", variant, annotations, unannotated, Strictness::Strict);
            assert_eq!(text(verdict), expected, "{variant:?} {annotations:?} {unannotated:?}");
            let lenient = text(validate("x:y", variant, annotations, unannotated, Strictness::Lenient));
            let softened = match expected {
                "allow" => "allow".to_owned(),
                warned if warned.starts_with("warn") => warned.to_owned(),
                rejected => format!("warn: {rejected}"),
            };
            assert_eq!(lenient, softened);
        }
    }

    proptest! {
        #[test]
        fn a_destructive_tool_never_passes_read_or_write_when_strict(
            read_only in proptest::option::of(any::<bool>()),
            write in any::<bool>(),
            distrust in any::<bool>(),
        ) {
            let annotations = Annotations { read_only, destructive: Some(true), by_admin: false };
            let variant = if write { Variant::Write } else { Variant::Read };
            let unannotated = if distrust { Unannotated::Distrust } else { Unannotated::Trust };
            let verdict = validate("x:y", variant, annotations, unannotated, Strictness::Strict);
            prop_assert!(matches!(verdict, Verdict::Reject(_)));
        }
    }
}
