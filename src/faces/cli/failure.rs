//! Failures of commands: a sentence for people, and an exit code for scripts.

use std::process::ExitCode;

/// Failure of a command. The exit codes are listed in behaviour, section 12.
#[derive(Debug, thiserror::Error)]
pub enum Failure {
    /// The tool reported an error, or its server failed; exit code 1.
    #[error("{0}")]
    Tool(String),
    /// The result could not be written, for example to a full disk; exit code 1.
    #[error("{0}")]
    Unwritten(String),
    /// The command is not valid; exit code 2.
    #[error("{0}")]
    Usage(String),
    /// A check, a limit or the current state forbids the command; exit code 3.
    #[error("{0}")]
    Refused(String),
    /// The thing that the command names is not there; exit code 3.
    #[error("{0}")]
    NotFound(String),
    /// A person must approve first; exit code 4.
    #[error("{0}")]
    NeedsApproval(String),
    /// The key is missing, unknown or not permitted; exit code 5.
    #[error("{0}")]
    NotAuthorised(String),
    /// The gateway is unreachable or cannot serve now; exit code 6.
    #[error("{0}")]
    Unreachable(String),
    /// The reader of the output went away, as `head` does. No message is printed; exit code 0.
    #[error("nobody reads the output any more")]
    OutputClosed,
}

impl Failure {
    /// Returns the exit code of the process.
    pub fn exit_code(&self) -> ExitCode {
        ExitCode::from(self.code())
    }

    /// Returns the exit code as a number. A higher one is worse.
    pub(super) fn code(&self) -> u8 {
        match self {
            Failure::OutputClosed => 0,
            Failure::Tool(_) | Failure::Unwritten(_) => 1,
            Failure::Usage(_) => 2,
            Failure::Refused(_) | Failure::NotFound(_) => 3,
            Failure::NeedsApproval(_) => 4,
            Failure::NotAuthorised(_) => 5,
            Failure::Unreachable(_) => 6,
        }
    }

    /// Returns a failure of the same kind with another sentence.
    pub(super) fn saying(&self, sentence: String) -> Failure {
        match self {
            Failure::OutputClosed => Failure::OutputClosed,
            Failure::Tool(_) => Failure::Tool(sentence),
            Failure::Unwritten(_) => Failure::Unwritten(sentence),
            Failure::Usage(_) => Failure::Usage(sentence),
            Failure::Refused(_) => Failure::Refused(sentence),
            Failure::NotFound(_) => Failure::NotFound(sentence),
            Failure::NeedsApproval(_) => Failure::NeedsApproval(sentence),
            Failure::NotAuthorised(_) => Failure::NotAuthorised(sentence),
            Failure::Unreachable(_) => Failure::Unreachable(sentence),
        }
    }

    /// Returns whether no message should be printed.
    pub fn is_silent(&self) -> bool {
        matches!(self, Failure::OutputClosed)
    }

    /// Returns the failure for an error response of the gateway.
    pub(super) fn from_answer(status: u16, code: &str, sentence: String) -> Failure {
        match (status, code) {
            (_, "tool_pending" | "tool_changed" | "consent_pending") => Failure::NeedsApproval(sentence),
            // a call above the key's ceiling, or against a policy, is refused by a check, not by the role
            (403, "operation_not_permitted" | "policy_denied" | "turn_cancelled") => {
                Failure::Refused(sentence)
            }
            (403, code) if code.starts_with("consent_") => Failure::Refused(sentence),
            (401 | 403, _) => Failure::NotAuthorised(sentence),
            (404, "not_found") => Failure::NotFound(sentence),
            (400 | 405 | 413 | 415, _) => Failure::Usage(sentence),
            (502, code) if code.starts_with("upstream_") => Failure::Tool(sentence),
            (
                503,
                ""
                | "unavailable"
                | "upstream_auth_unavailable"
                | "upstream_auth_refused"
                | "upstream_auth_changed",
            )
            | (500 | 502 | 504, _) => Failure::Unreachable(sentence),
            _ => Failure::Refused(sentence),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exit_codes_by_class() {
        let table: &[(u16, &str, u8)] = &[
            (400, "invalid_request", 2),
            (401, "unauthenticated", 5),
            (403, "forbidden", 5),
            (403, "operation_not_permitted", 3),
            (403, "policy_denied", 3),
            (403, "consent_pending", 4),
            (403, "consent_denied", 3),
            (403, "turn_cancelled", 3),
            (429, "consent_throttled", 3),
            (403, "self_approval", 5),
            (403, "consent_undeliverable", 3),
            (404, "not_found", 3),
            (409, "conflict", 3),
            (422, "server_mismatch", 3),
            (429, "rate_limited", 3),
            (502, "upstream_timeout", 1),
            (502, "", 6),
            (503, "server_unavailable", 3),
            (503, "record_unavailable", 3),
            (503, "upstream_auth_unavailable", 6),
            (503, "upstream_auth_refused", 6),
            (403, "upstream_login_required", 5),
            (403, "upstream_exchange_refused", 5),
            (503, "upstream_auth_changed", 6),
            (503, "unavailable", 6),
            (503, "", 6),
            (422, "tool_pending", 4),
            (422, "tool_changed", 4),
            (422, "tool_blocked", 3),
            (422, "server_quarantined", 3),
        ];
        for (status, code, exit) in table {
            let failure = Failure::from_answer(*status, code, String::new());
            assert_eq!(
                format!("{:?}", failure.exit_code()),
                format!("{:?}", ExitCode::from(*exit)),
                "{code}"
            );
        }
    }
}
