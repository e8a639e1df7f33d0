//! Annotations of tools, and the tier that follows from them.
//!
//! Annotations are hints of an untrusted server; the table is behaviour, section 5 ("Tiers").

use serde::Deserialize;
use serde_json::value::RawValue;

use super::json;
use super::operation::{OperationType, Variant};
use super::text_enum::text_enum;

/// The two hints that decide a tool's tier; `None` when absent or not a boolean.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Annotations {
    /// `readOnlyHint`
    pub read_only: Option<bool>,
    /// `destructiveHint`
    pub destructive: Option<bool>,
    /// True if an administrator's override says so, and not the server.
    pub by_admin: bool,
}

impl Annotations {
    /// Reads the hints out of an `annotations` object; anything else counts as no annotations.
    pub fn read(raw: Option<&str>) -> Annotations {
        #[derive(Deserialize)]
        struct Hints<'a> {
            #[serde(borrow, rename = "readOnlyHint")]
            read_only: Option<&'a RawValue>,
            #[serde(borrow, rename = "destructiveHint")]
            destructive: Option<&'a RawValue>,
        }
        let boolean = |raw: Option<&RawValue>| raw.and_then(|raw| raw.get().parse::<bool>().ok());
        match raw.map(serde_json::from_str::<Hints<'_>>) {
            Some(Ok(hints)) => {
                let (read_only, destructive) = (boolean(hints.read_only), boolean(hints.destructive));
                Annotations { read_only, destructive, by_admin: false }
            }
            _ => Annotations::default(),
        }
    }

    /// Returns the tier of a tool with these annotations, for a key with this setting `unannotated_tools`.
    pub fn tier(self, unannotated: Unannotated) -> Tier {
        use Unannotated::{Distrust, Trust};
        match (self.read_only, self.destructive, unannotated) {
            (_, Some(true), _) | (Some(false) | None, None, Distrust) => Tier::Destructive,
            (Some(true), _, _) => Tier::Read,
            (Some(false), Some(false), _) | (Some(false), None, Trust) | (None, Some(false), Distrust) => {
                Tier::Write
            }
            (None, Some(false) | None, Trust) => Tier::Unknown,
        }
    }
}

/// Returns the hint `openWorldHint` of an `annotations` object; `None` when it is absent or no boolean.
pub fn open_world(raw: Option<&str>) -> Option<bool> {
    let [hint] = json::find_members(raw?, ["openWorldHint"]).ok()?;
    hint?.parse().ok()
}

text_enum! {
    /// Value of the setting `unannotated_tools`.
    pub enum Unannotated {
        /// An absent hint is not held against a tool.
        Trust = "trust",
        /// An absent `destructiveHint` means destructive, as the protocol's own default does.
        Distrust = "distrust",
    }
}

text_enum! {
    /// Class of a tool by what it can do, according to its server's annotations.
    pub enum Tier {
        /// Reads only.
        Read = "read",
        /// Changes something, destroys nothing.
        Write = "write",
        /// May destroy.
        Destructive = "destructive",
        /// The server does not say.
        Unknown = "unknown",
    }
}

impl Tier {
    /// Returns the variant to recommend for a tool of this tier (`call_with`).
    pub fn call_with(self) -> Variant {
        match self {
            Tier::Read => Variant::Read,
            Tier::Write | Tier::Unknown => Variant::Write,
            Tier::Destructive => Variant::Destructive,
        }
    }

    /// Returns the operation type that is compared with `max_operation`: an unknown tool counts as write.
    pub fn operation(self) -> OperationType {
        self.call_with().operation()
    }
}

/// Returns what the settings of a key lack before its client may approve reads by itself, as arguments of `--set`: with less, tools that say
/// nothing of themselves run as reads. `None` if they lack nothing. `is_strict` is `strict_server_validation`, `unannotated` the word of
/// `unannotated_tools`.
pub fn lacks_for_reads(is_strict: bool, unannotated: &str) -> Option<&'static str> {
    match (is_strict, unannotated == Unannotated::Distrust.as_str()) {
        (true, true) => None,
        (true, false) => Some("unannotated_tools=distrust"),
        (false, _) => Some("strict_server_validation=true --set unannotated_tools=distrust"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_row_of_the_tier_table() {
        use Tier::{Destructive, Read, Unknown, Write};
        let (t, f, n) = (Some(true), Some(false), None);
        let rows = [
            (t, t, Destructive, Destructive, Variant::Destructive, Variant::Destructive),
            (f, t, Destructive, Destructive, Variant::Destructive, Variant::Destructive),
            (n, t, Destructive, Destructive, Variant::Destructive, Variant::Destructive),
            (t, f, Read, Read, Variant::Read, Variant::Read),
            (t, n, Read, Read, Variant::Read, Variant::Read),
            (f, f, Write, Write, Variant::Write, Variant::Write),
            (f, n, Write, Destructive, Variant::Write, Variant::Destructive),
            (n, f, Unknown, Write, Variant::Write, Variant::Write),
            (n, n, Unknown, Destructive, Variant::Write, Variant::Destructive),
        ];
        for (read_only, destructive, trust, distrust, with_trust, with_distrust) in rows {
            let annotations = Annotations { read_only, destructive, by_admin: false };
            assert_eq!(annotations.tier(Unannotated::Trust), trust, "{annotations:?}");
            assert_eq!(annotations.tier(Unannotated::Distrust), distrust, "{annotations:?}");
            assert_eq!(annotations.tier(Unannotated::Trust).call_with(), with_trust, "{annotations:?}");
            assert_eq!(annotations.tier(Unannotated::Distrust).call_with(), with_distrust, "{annotations:?}");
        }
    }

    #[test]
    fn only_booleans_count() {
        let cases = [
            (Some(r#"{"readOnlyHint":true,"destructiveHint":false}"#), Some(true), Some(false)),
            (Some(r#"{"readOnlyHint":"true","destructiveHint":1}"#), None, None),
            (Some(r#"{"readOnlyHint":null}"#), None, None),
            (Some("[]"), None, None),
            (Some("7"), None, None),
            (None, None, None),
        ];
        for (raw, read_only, destructive) in cases {
            assert_eq!(
                Annotations::read(raw),
                Annotations { read_only, destructive, by_admin: false },
                "{raw:?}"
            );
        }
        for (raw, expected) in [
            (Some(r#"{"title":"x","openWorldHint": false }"#), Some(false)),
            (Some(r#"{"openWorldHint":true}"#), Some(true)),
            (Some(r#"{"openWorldHint":"false"}"#), None),
            (Some("{}"), None),
            (Some("[]"), None),
            (None, None),
        ] {
            assert_eq!(open_world(raw), expected, "{raw:?}");
        }
    }
}
