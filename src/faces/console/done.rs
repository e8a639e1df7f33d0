//! Notices of what a visitor has just done: words in the address of the page that an act leads to.

use super::nav::Section;
use crate::faces::query::params::Params;
use crate::gateway::GatewayError;

/// Name of the parameter.
const PARAM: &str = "done";

/// Act whose page says that it was done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum DoneWord {
    /// A policy was saved.
    Saved,
    /// A form of settings changed some.
    Changed,
    /// A form of settings differed in nothing.
    Same,
    /// A server was removed.
    Removed,
}

impl From<DoneWord> for &'static str {
    fn from(done: DoneWord) -> &'static str {
        match done {
            DoneWord::Saved => "saved",
            DoneWord::Changed => "changed",
            DoneWord::Same => "same",
            DoneWord::Removed => "removed",
        }
    }
}

impl DoneWord {
    /// Reads the word of an address, which must be one of `known`; `None` without one.
    ///
    /// # Errors
    /// [`GatewayError::Invalid`] for another word.
    pub(super) fn of(params: &Params, known: &[DoneWord]) -> Result<Option<DoneWord>, GatewayError> {
        params.one_of(PARAM, known)
    }

    /// Returns the path of a section's page with the notice.
    pub(super) fn href(self, section: Section) -> String {
        format!("{}?{PARAM}={}", section.href(), <&str>::from(self))
    }
}
