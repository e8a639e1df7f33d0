//! Questions that come before acts which take something away.

use std::borrow::Cow;

use askama::Template;

use super::nav::{Nav, Section};
use super::page_visit::PageVisit;

/// Question whether to do something.
pub(super) struct ActQuestion {
    /// Act in words, for the heading and the button.
    pub(super) act: String,
    /// Consequences of the act.
    pub(super) says: Cow<'static, str>,
    /// Words of the link that does nothing.
    pub(super) keep: &'static str,
    /// Last part of the path of the act.
    pub(super) verb: &'static str,
}

/// Page with a question, whose button does the act.
#[derive(Template)]
#[template(path = "question.html", config = "src/faces/console/askama.toml")]
pub(super) struct QuestionPage {
    nav: Nav,
    csrf: String,
    section: Section,
    /// Name of the thing that the act is about.
    name: String,
    /// Path of its page.
    href: String,
    question: ActQuestion,
}

impl QuestionPage {
    /// Creates the page of a question about a thing, by its name and the path of its page.
    pub(super) fn new(
        visit: &PageVisit,
        section: Section,
        (name, href): (String, String),
        question: ActQuestion,
    ) -> QuestionPage {
        let nav = visit.nav(section);
        QuestionPage { csrf: nav.csrf.clone(), nav, section, name, href, question }
    }
}
