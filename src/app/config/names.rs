//! Names of settings: their environment variables and their aliases.

/// Prefix of every environment variable of a setting.
pub(super) const PREFIX: &str = "MCPPROXY__";
/// Aliases of settings: the alias, then the setting.
pub(super) const ALIASES: [(&str, &str); 1] = [("enable_direct_endpoint", "direct.enabled")];
/// Pairs of settings with the same meaning.
pub(super) const SYNONYMS: [(&str, &str); 2] = [
    ("intent_declaration.mode", "defaults.intent_declaration"),
    ("intent_declaration.strict_server_validation", "defaults.strict_server_validation"),
];
/// Most characters of an unknown name that an error shows.
const SHOWN_CHARS_MAX: usize = 80;

/// Returns the environment variable of a setting: `server.listen` is `MCPPROXY__SERVER__LISTEN`.
pub(super) fn variable(key: &str) -> String {
    format!("{PREFIX}{}", key.replace('.', "__").to_ascii_uppercase())
}

/// Returns the setting that a name stands for, by its aliases.
pub(super) fn canonical(name: &str) -> &str {
    ALIASES.iter().find(|(alias, _)| *alias == name).map_or(name, |(_, key)| key)
}

/// Makes a name fit for display: bounded, without control characters.
pub(super) fn shown(name: &str) -> String {
    name.chars().take(SHOWN_CHARS_MAX).flat_map(char::escape_debug).collect()
}
