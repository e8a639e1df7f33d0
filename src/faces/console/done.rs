//! Notices of what a visitor has just done: a note of the session in the address of the page that an act leads to.

use url::form_urlencoded::Serializer;

use super::page_visit::PageVisit;
use crate::faces::query::params::Params;

/// Name of the parameter.
pub(super) const DONE: &str = "done";

/// Returns the notice of an address. `None` without one, and for one that the visitor's session did not make in the last minutes: a link
/// from elsewhere says nothing.
pub(super) fn notice(visit: &PageVisit, params: &Params) -> Option<String> {
    visit.secret()?.noted(params.text(DONE)?, visit.now()).map(str::to_owned)
}

/// Adds a notice to a path, which may have a query.
pub(super) fn with_notice(visit: &PageVisit, path: &str, notice: &str) -> String {
    let Some(secret) = visit.secret() else { return path.to_owned() };
    let note = secret.note_of(notice, visit.now());
    let note = Serializer::new(String::new()).append_pair(DONE, &note).finish();
    format!("{path}{}{note}", if path.contains('?') { '&' } else { '?' })
}

/// Returns the notice of a form that changed what these names say, which may be nothing.
pub(super) fn changed_notice(names: &[&str]) -> String {
    match names {
        [] => "Nothing differed; nothing was changed.".to_owned(),
        names => format!("Changed: {}.", names.join(", ")),
    }
}
