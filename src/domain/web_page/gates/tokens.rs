//! Tokens of WAM's policy attributes, as sets that can only shrink.

/// Licences whose profile permits changes; any other one permits none.
const OPEN_LICENCES: [&str; 29] = [
    "CC0-1.0",
    "Unlicense",
    "WTFPL",
    "MIT",
    "MIT-0",
    "ISC",
    "BSD-2-Clause",
    "BSD-3-Clause",
    "Apache-2.0",
    "Zlib",
    "CC-BY-4.0",
    "CC-BY-3.0",
    "CC-BY-SA-4.0",
    "CC-BY-SA-3.0",
    "CC-BY-NC-4.0",
    "CC-BY-NC-3.0",
    "CC-BY-NC-SA-4.0",
    "GPL-2.0-only",
    "GPL-2.0-or-later",
    "GPL-3.0-only",
    "GPL-3.0-or-later",
    "LGPL-2.1-only",
    "LGPL-2.1-or-later",
    "LGPL-3.0-only",
    "LGPL-3.0-or-later",
    "AGPL-3.0-only",
    "AGPL-3.0-or-later",
    "MPL-2.0",
    "EPL-2.0",
];

/// Channels of an element that an agent may see (`wam-policy-input`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct InputChannels {
    /// True if the element and its attributes may be seen.
    pub(super) has_structure: bool,
    /// True if its text may be seen.
    pub(super) has_text: bool,
}

impl InputChannels {
    /// All channels, which hold where nothing is said.
    pub(super) const ALL: InputChannels = InputChannels { has_structure: true, has_text: true };

    /// Returns the union of tokens. Unknown ones permit nothing.
    pub(super) fn of<'a>(tokens: impl Iterator<Item = &'a str>) -> InputChannels {
        let mut channels = InputChannels { has_structure: false, has_text: false };
        for token in tokens {
            channels.has_structure |= matches!(token, "structure" | "attributes" | "all");
            channels.has_text |= matches!(token, "text" | "all");
        }
        channels
    }

    /// Returns the channels that both permit.
    #[must_use]
    pub(super) fn and(self, other: InputChannels) -> InputChannels {
        InputChannels {
            has_structure: self.has_structure && other.has_structure,
            has_text: self.has_text && other.has_text,
        }
    }
}

/// Changes to an element that are permitted (`wam-policy-output`), as far as forms need them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct OutputTokens {
    /// True if values of controls may be set.
    pub(super) data: bool,
    /// True if controls may be ticked and chosen, and the form sent.
    pub(super) interaction: bool,
}

impl OutputTokens {
    /// No changes.
    pub(super) const NONE: OutputTokens = OutputTokens { data: false, interaction: false };

    /// Returns the union of tokens. Unknown ones permit nothing.
    pub(super) fn of<'a>(tokens: impl Iterator<Item = &'a str>) -> OutputTokens {
        let mut permitted = OutputTokens::NONE;
        for token in tokens {
            permitted.data |= matches!(token, "data" | "mutable");
            permitted.interaction |= matches!(token, "interaction" | "mutable");
        }
        permitted
    }

    /// Returns the changes that both permit.
    #[must_use]
    pub(super) fn and(self, other: OutputTokens) -> OutputTokens {
        OutputTokens { data: self.data && other.data, interaction: self.interaction && other.interaction }
    }
}

/// True if each licence of an SPDX expression permits changes.
pub(super) fn is_open_licence(expression: &str) -> bool {
    let mut ids = expression
        .split(|c: char| c.is_whitespace() || matches!(c, '(' | ')'))
        .filter(|word| !matches!(*word, "" | "AND" | "OR" | "WITH"))
        .peekable();
    ids.peek().is_some() && ids.all(|id| OPEN_LICENCES.contains(&id))
}
