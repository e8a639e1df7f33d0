//! Drift of tool definitions: hints that got worse since the definition was trusted (behaviour, section 6).

use super::annotations::{Annotations, Tier, Unannotated};
use super::text_enum::text_enum;

text_enum! {
    /// Change of a tool's hints for the worse. The order is by severity, the most severe last.
    #[derive(PartialOrd, Ord)]
    pub enum Drift {
        /// The tool was read-only, and its server does not say so any more.
        FromReadOnly = "from_read_only",
        /// The tool was not destructive, and now counts as destructive.
        ToDestructive = "to_destructive",
    }
}

impl Drift {
    /// Returns a sentence about the change, without its subject's name.
    pub fn sentence(self) -> &'static str {
        match self {
            Drift::FromReadOnly => "it was read-only and does not say so any more",
            Drift::ToDestructive => "it was not destructive and is now",
        }
    }

    /// Compares the hints of a tool before and after; `None` when they did not get worse. Absent hints count first as
    /// they do for keys that trust unannotated tools, then as they do for the others.
    pub fn between(before: Annotations, after: Annotations) -> Option<Drift> {
        let became_destructive = |unannotated| {
            before.tier(unannotated) != Tier::Destructive && after.tier(unannotated) == Tier::Destructive
        };
        if became_destructive(Unannotated::Trust) {
            return Some(Drift::ToDestructive);
        }
        if before.tier(Unannotated::Trust) == Tier::Read && after.tier(Unannotated::Trust) != Tier::Read {
            return Some(Drift::FromReadOnly);
        }
        became_destructive(Unannotated::Distrust).then_some(Drift::ToDestructive)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_step_between_hints() {
        let (t, f, n) = (Some(true), Some(false), None);
        let rows = [
            ((t, n), (t, f), None),
            ((t, f), (f, f), Some(Drift::FromReadOnly)),
            ((t, n), (n, n), Some(Drift::FromReadOnly)),
            ((t, n), (t, t), Some(Drift::ToDestructive)),
            ((t, n), (f, t), Some(Drift::ToDestructive)),
            ((f, f), (f, t), Some(Drift::ToDestructive)),
            ((n, n), (n, t), Some(Drift::ToDestructive)),
            ((f, f), (f, n), Some(Drift::ToDestructive)),
            ((n, f), (n, n), Some(Drift::ToDestructive)),
            ((f, n), (n, n), None),
            ((n, n), (f, n), None),
            ((f, t), (t, n), None),
            ((f, t), (n, t), None),
        ];
        for (before, after, expected) in rows {
            let of = |(read_only, destructive)| Annotations { read_only, destructive, by_admin: false };
            assert_eq!(Drift::between(of(before), of(after)), expected, "{before:?} {after:?}");
        }
        assert_eq!(Drift::parse("to_destructive"), Some(Drift::ToDestructive));
        assert_eq!(Drift::parse("other"), None);
    }
}
