//! How a command fails: a sentence for a person, an exit code for a script.

use std::process::ExitCode;

/// A command that failed. The exit codes are those of behaviour, section 12.
#[derive(Debug, thiserror::Error)]
pub enum Failure {
    /// The tool ran and reported an error, or its server failed; 1.
    #[error("{0}")]
    Tool(String),
    /// The result could not be written, as to a full disk; 1.
    #[error("{0}")]
    Unwritten(String),
    /// The command makes no sense as it is written; 2.
    #[error("{0}")]
    Usage(String),
    /// A check, a limit or the state of things refuses it; 3.
    #[error("{0}")]
    Refused(String),
    /// A person must approve it first; 4.
    #[error("{0}")]
    NeedsApproval(String),
    /// The key is missing, unknown, or may not do this; 5.
    #[error("{0}")]
    NotAuthorised(String),
    /// The gateway is not there, or cannot serve now; 6.
    #[error("{0}")]
    Unreachable(String),
    /// Whoever read the output went away, as `head` does; not worth a word.
    #[error("nobody reads the output any more")]
    OutputClosed,
}

impl Failure {
    /// The exit code.
    pub fn exit_code(&self) -> ExitCode {
        ExitCode::from(self.code())
    }

    /// The exit code as a number: the higher, the worse.
    pub(super) fn code(&self) -> u8 {
        match self {
            Failure::OutputClosed => 0,
            Failure::Tool(_) | Failure::Unwritten(_) => 1,
            Failure::Usage(_) => 2,
            Failure::Refused(_) => 3,
            Failure::NeedsApproval(_) => 4,
            Failure::NotAuthorised(_) => 5,
            Failure::Unreachable(_) => 6,
        }
    }

    /// The same failure in other words.
    pub(super) fn saying(&self, sentence: String) -> Failure {
        match self {
            Failure::OutputClosed => Failure::OutputClosed,
            Failure::Tool(_) => Failure::Tool(sentence),
            Failure::Unwritten(_) => Failure::Unwritten(sentence),
            Failure::Usage(_) => Failure::Usage(sentence),
            Failure::Refused(_) => Failure::Refused(sentence),
            Failure::NeedsApproval(_) => Failure::NeedsApproval(sentence),
            Failure::NotAuthorised(_) => Failure::NotAuthorised(sentence),
            Failure::Unreachable(_) => Failure::Unreachable(sentence),
        }
    }

    /// Whether there is anything to say about it.
    pub fn is_silent(&self) -> bool {
        matches!(self, Failure::OutputClosed)
    }

    /// The failure that an error answer of the gateway stands for.
    pub(super) fn from_answer(status: u16, code: &str, sentence: String) -> Failure {
        match (status, code) {
            (_, "tool_pending" | "tool_changed") => Failure::NeedsApproval(sentence),
            // the key may not; a call above its ceiling is refused by a check
            (403, "operation_not_permitted") => Failure::Refused(sentence),
            (401 | 403, _) => Failure::NotAuthorised(sentence),
            (400 | 405 | 413 | 415, _) => Failure::Usage(sentence),
            (502, code) if code.starts_with("upstream_") => Failure::Tool(sentence),
            (503, "" | "unavailable") | (500 | 502 | 504, _) => Failure::Unreachable(sentence),
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
            (404, "not_found", 3),
            (409, "conflict", 3),
            (422, "server_mismatch", 3),
            (429, "rate_limited", 3),
            (502, "upstream_timeout", 1),
            (502, "", 6),
            (503, "server_unavailable", 3),
            (503, "record_unavailable", 3),
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
