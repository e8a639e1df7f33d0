//! Export of the records that a page shows, through what REST exports.

use axum::response::Response;
use url::form_urlencoded::Serializer;

use super::filter_form::in_utc;
use crate::domain::tenant::Action;
use crate::faces::console::nav::Section;
use crate::faces::console::page_visit::PageVisit;
use crate::faces::query::export::{AskedExport, PARAMS, export};
use crate::faces::query::params::Params;
use crate::faces::sse::StreamKind;
use crate::gateway::GatewayError;

/// Formats, with the names of their links.
const FORMATS: [(&str, &str); 2] = [("CSV", "csv"), ("JSON Lines", "jsonl")];

/// Returns the links to exports with the filters of a page; none for a search for a text, which exports do not know.
pub(super) fn links(given: &[(&'static str, String)]) -> Vec<(&'static str, String)> {
    if given.iter().any(|(name, _)| *name == "contains") {
        return Vec::new();
    }
    let link = |(name, format): (&'static str, &str)| {
        let mut query = Serializer::new(String::new());
        query.extend_pairs(given.iter().filter(|(name, _)| PARAMS.contains(name)));
        query.append_pair("format", format);
        (name, format!("{}/export?{}", Section::Activity.href(), query.finish()))
    };
    FORMATS.map(link).into()
}

/// Sends all records that match.
pub(in crate::faces::console) async fn show(visit: PageVisit) -> Response {
    visit.answer_sensitive("activity.export", Section::Activity, |visit| Box::pin(records(visit))).await
}

async fn records(visit: &PageVisit) -> Result<Response, GatewayError> {
    visit.caller().authorise(Action::ReadOwnActivity)?;
    let given = visit.given(PARAMS)?;
    let given: Vec<_> = given.iter().map(|(name, value)| (*name, in_utc(name, value))).collect();
    let asked = AskedExport::read(&Params::of(&given, PARAMS)?, visit.attempt())?;
    export(visit.open_stream(StreamKind::Export)?, asked).await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exports_keep_the_filters_and_leave_the_page_out() {
        let given = [("tool", "a&b".to_owned()), ("cursor", "old".to_owned()), ("limit", "10".to_owned())];
        let hrefs: Vec<String> = links(&given).into_iter().map(|(_, href)| href).collect();
        let expected =
            ["csv", "jsonl"].map(|format| format!("/console/activity/export?tool=a%26b&format={format}"));
        assert_eq!(hrefs, expected);
        assert!(links(&[("contains", "x".to_owned())]).is_empty());
    }
}
