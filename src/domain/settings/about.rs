//! Meanings of settings, for people.

use super::Scope;

/// Returns what a setting of a tenant does, in a sentence or two; `None` for an unknown name.
pub fn about(name: &str) -> Option<&'static str> {
    Some(match name {
        "strict_server_validation" => {
            "Whether a call that contradicts the tool's annotations is refused. If not, it runs with a warning."
        }
        "intent_declaration" => {
            "Whether each call must declare its operation type (read, write or destructive)."
        }
        "unannotated_tools" => {
            "How tools are taken whose servers do not say whether they read, write or destroy."
        }
        "max_operation" => "Highest operation type that keys may run. Tools above it are not shown to them.",
        "allowed_tools" => "Tools that keys see and may call. An empty list allows none.",
        "direct_endpoint" => {
            "Whether agents may use /mcp/direct, which lists every tool by itself, if the deployment has it on."
        }
        "tool_names" => "Spelling of tool names on /mcp/direct.",
        "rate_limit" => {
            "Most attempts per minute of all keys of the tenant together. Inherited, each key has its own limit."
        }
        "policy_mode" => "What happens to calls that no rule of the policy matches.",
        "in_band_answers" => {
            "Whether the client that calls may answer permission requests. False for robots, whose client answers by itself."
        }
        "host_prompts" => {
            "Operation types for which the agent's own client asks its user, so that the gateway need not."
        }
        "locale" => "Language of the reasons in permission requests, for readers who ask for none.",
        "response_limit" => "Length after which a text in a tool's result is cut over MCP.",
        "activity_retention_days" => {
            "Days after which activity records are deleted. The deployment's number holds as well, if it is lower."
        }
        _ => return None,
    })
}

/// Returns what a setting does at a tenant or at one key, as [`about`] does.
pub fn about_at(name: &str, scope: Scope) -> Option<&'static str> {
    Some(match (scope, name) {
        (Scope::Key, "max_operation") => {
            "Highest operation type that the key may run. Tools above it are not shown to it."
        }
        (Scope::Key, "allowed_tools") => {
            "Tools that the key sees and may call. An empty list allows none. The tenant's list holds as well."
        }
        (Scope::Key, "rate_limit") => {
            "Most attempts per minute of this key. A limit of the tenant holds as well, for all its keys together."
        }
        (Scope::Key, "direct_endpoint") => {
            "Whether the key may use /mcp/direct, which lists every tool by itself, if the deployment has it on. Where intent_declaration is \
             required, only a value of the key's own counts: that of the tenant or deployment does not open it."
        }
        _ => return about(name),
    })
}

/// Returns what a word of a setting means; `None` for words that say it themselves.
pub fn about_word(name: &str, word: &str) -> Option<&'static str> {
    Some(match (name, word) {
        ("intent_declaration", "inferred") => "taken from the way of the call where it is not declared",
        ("intent_declaration", "required") => "every call declares it",
        ("unannotated_tools", "trust") => "nothing is held against them",
        ("unannotated_tools", "distrust") => "what is not said is held against them",
        ("tool_names", "colon") => "server:tool",
        ("tool_names", "safe") => "server__tool",
        ("policy_mode", "observe") => {
            "they run, and so do those that a rule without \"enforced\" would ask about or deny; the log says what would have been done"
        }
        ("policy_mode", "by_risk") => "what is risky asks a person",
        ("policy_mode", "always_ask") => "each asks a person",
        ("policy_mode", "always_allow") => "they run",
        ("policy_mode", "deny_unless_allowed") => "they are refused",
        ("locale", "en") => "English",
        ("locale", "de") => "German",
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::settings::{Scope, names, words};

    #[test]
    fn every_setting_says_what_it_does() {
        for name in names(Scope::Tenant) {
            assert!(about(name).is_some_and(|says| says.ends_with('.')), "{name}");
        }
        for (name, own) in names(Scope::Tenant).filter_map(|name| Some((name, words(name)?))) {
            let explained = own.iter().filter(|word| about_word(name, word).is_some()).count();
            assert!(explained == own.len() || name == "max_operation", "{name}");
        }
        assert_eq!((about("other"), about_word("max_operation", "read")), (None, None));
    }
}
