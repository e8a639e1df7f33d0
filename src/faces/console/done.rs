//! Notices of what a visitor has just done: notes of the session in the address of the page that an act leads to.

use url::form_urlencoded::Serializer;

use super::nav::Section;
use super::page_visit::PageVisit;
use crate::faces::query::params::{Params, one_of};

/// Name of the parameter.
pub(super) const DONE: &str = "done";

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
    /// A remembered decision was revoked.
    Revoked,
}

impl From<DoneWord> for &'static str {
    fn from(done: DoneWord) -> &'static str {
        match done {
            DoneWord::Saved => "saved",
            DoneWord::Changed => "changed",
            DoneWord::Same => "same",
            DoneWord::Removed => "removed",
            DoneWord::Revoked => "revoked",
        }
    }
}

/// Act that the visitor has just done.
pub(super) struct DoneAct {
    /// Kind of the act.
    pub(super) word: DoneWord,
    /// Thing that the act was about, as the act names it.
    pub(super) about: String,
}

impl DoneAct {
    /// Reads the act of an address. `None` without one, and for one that the visitor's session did not do in the last minutes: a link
    /// from elsewhere says nothing.
    pub(super) fn of(visit: &PageVisit, params: &Params) -> Option<DoneAct> {
        let noted = visit.secret()?.noted(params.text(DONE)?, visit.now())?;
        let (word, about) = noted.split_once(' ')?;
        Some(DoneAct { word: one_of(DONE, word, &DoneWord::ALL).ok()?, about: about.to_owned() })
    }
}

impl DoneWord {
    const ALL: [DoneWord; 5] =
        [DoneWord::Saved, DoneWord::Changed, DoneWord::Same, DoneWord::Removed, DoneWord::Revoked];

    /// Returns the path of a section's page with the notice of an act about something.
    pub(super) fn href(self, visit: &PageVisit, section: Section, about: &str) -> String {
        let Some(secret) = visit.secret() else { return section.href().to_owned() };
        let note = secret.note_of(&format!("{} {about}", <&str>::from(self)), visit.now());
        format!("{}?{}", section.href(), Serializer::new(String::new()).append_pair(DONE, &note).finish())
    }
}
