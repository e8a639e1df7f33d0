//! Report about the forms of a page, for the people who run the server.

use serde::Serialize;

use super::checks::FormFinding;
use super::facts::AlsoSent;
use super::gates::PolicyClosed;
use super::sensitive::SensitiveCategory;
use super::settings::PageSource;
use crate::domain::text_enum::text_enum;

text_enum! {
    /// Reason why a form has no tool.
    pub enum HiddenBecause {
        /// The page's policy hides the page or the form from agents.
        PolicyHidden = "policy_hidden",
        /// The page's policy does not permit what a submission needs, or says nothing where it must.
        NotPermitted = "not_permitted",
        /// The page describes the form in no way that the server's settings accept.
        NoSource = "no_source",
        /// The form, or a button of it, is sent to another origin or to no URL.
        OffOrigin = "off_origin_action",
        /// The server's settings do not permit the form's method, or the form is sent nowhere.
        Method = "method_not_permitted",
        /// The form is sent by GET and takes a secret, which would stand in a URL.
        SecretInUrl = "secret_in_url",
    }
}

/// Row of a report.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct FormReport {
    /// `#id` of the form, or `form[N]`.
    pub selector: String,
    /// Name of the tool; `None` without one.
    pub tool: Option<String>,
    /// Agreement of description and form, from 0 to 1.
    pub score: Option<f64>,
    /// Source of the description.
    pub source: Option<PageSource>,
    /// URL that the form is sent to; the text of the attribute where that is no URL.
    pub action: String,
    /// `GET`, `POST` or `DIALOG`.
    pub method: String,
    /// Names of the tool's parameters.
    pub parameters: Vec<String>,
    /// Findings.
    pub findings: Vec<FormFinding>,
    /// Fields that are sent besides the parameters.
    pub also_sends: Vec<AlsoSent>,
    /// Sensitive categories.
    pub categories: Vec<SensitiveCategory>,
    /// Reason why there is no tool.
    pub hidden_because: Option<HiddenBecause>,
}

/// Report about a page.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct PageReport {
    /// Forms in the order of the page.
    pub forms: Vec<FormReport>,
    /// Reason why the page's policy hides the whole page.
    pub policy_closed: Option<PolicyClosed>,
    /// Number of controls outside of any form, which become no tool.
    pub orphans: usize,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_documentation_explains_each_reason() {
        let page = include_str!("../../../docs/web-pages.md");
        for word in HiddenBecause::WORDS {
            assert!(page.contains(&format!("\n| `{word}` | ")), "docs/web-pages.md: no row for {word}");
        }
    }
}
