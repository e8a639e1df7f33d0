//! The form of filters: every filter of the log, filled in as the address of the page says.

use chrono::{DateTime, NaiveDateTime, SecondsFormat, Timelike, Utc};

use crate::domain::activity::{RecordKind, Source, Status};
use crate::domain::annotations::Tier;
use crate::domain::operation::OperationType;
use crate::domain::policy::Ruling;
use crate::faces::console::filter_field::{FilterField, Given, choice, name, text, tool, value};

/// Forms in which browsers send a time, without a zone: the form asks for UTC.
const BROWSER_TIMES: [&str; 2] = ["%Y-%m-%dT%H:%M", "%Y-%m-%dT%H:%M:%S%.f"];

/// Returns the fields that are asked most.
pub(super) fn first(given: &Given) -> Vec<FilterField> {
    vec![
        name(given, "server", "Server"),
        tool(given),
        choice(given, "status", "Status", &Status::WORDS),
        choice(given, "intent_type", "Intent", &OperationType::WORDS),
        name(given, "owner", "Owner"),
        FilterField { hint: "part of arguments or result", ..text(given, "contains", "Contains text") },
        time(given, "start_time", "From (UTC)"),
        time(given, "end_time", "Until (UTC)"),
    ]
}

/// Returns the other fields.
pub(super) fn more(given: &Given) -> Vec<FilterField> {
    vec![
        choice(given, "type", "Type", &RecordKind::WORDS),
        choice(given, "source", "Source", &Source::WORDS),
        choice(given, "tier", "Tier", &Tier::WORDS),
        choice(given, "not_read", "May have changed something", &["true"]),
        choice(given, "decision", "Policy", &Ruling::WORDS),
        name(given, "key", "Key (id or name)"),
        text(given, "identity_id", "Identity"),
        text(given, "client_address", "Client address"),
        text(given, "session_id", "Session"),
        text(given, "request_id", "Request"),
        text(given, "consent_id", "Permission request"),
        choice(given, "limit", "Records on a page", &["25", "50", "100"]),
    ]
}

fn time(given: &Given, name: &'static str, label: &'static str) -> FilterField {
    FilterField {
        input: "datetime-local",
        value: for_browser(&value(given, name)),
        ..text(given, name, label)
    }
}

/// Returns a time as browsers take it: UTC without a zone. A text that is no time stays as it is.
fn for_browser(text: &str) -> String {
    let Ok(at) = DateTime::parse_from_rfc3339(text) else { return text.to_owned() };
    let at = at.to_utc();
    let format =
        if at.second() == 0 && at.nanosecond() == 0 { "%Y-%m-%dT%H:%M" } else { "%Y-%m-%dT%H:%M:%S%.f" };
    at.format(format).to_string()
}

/// Returns a parameter as the log reads it: times that a browser sent without a zone get that of UTC.
pub(super) fn in_utc(name: &str, value: &str) -> String {
    if !matches!(name, "start_time" | "end_time") {
        return value.to_owned();
    }
    let read = BROWSER_TIMES.iter().find_map(|format| NaiveDateTime::parse_from_str(value, format).ok());
    let utc = read.map(|at| DateTime::<Utc>::from_naive_utc_and_offset(at, Utc));
    utc.map_or_else(|| value.to_owned(), |at| at.to_rfc3339_opts(SecondsFormat::AutoSi, true))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::faces::query::activity::PARAMS;

    #[test]
    fn every_filter_has_a_field() {
        let mut names: Vec<&str> = first(&[]).iter().chain(&more(&[])).map(|field| field.name).collect();
        names.push("cursor");
        names.sort_unstable();
        let mut known = PARAMS.to_vec();
        known.sort_unstable();
        assert_eq!(names, known);
    }

    #[test]
    fn times_go_to_the_browser_and_back() {
        for (given, shown, read) in [
            ("2026-01-31T14:00:00+02:00", "2026-01-31T12:00", "2026-01-31T12:00:00Z"),
            ("2026-01-31T12:00:01Z", "2026-01-31T12:00:01", "2026-01-31T12:00:01Z"),
            ("2026-01-31T12:00:00.5Z", "2026-01-31T12:00:00.500", "2026-01-31T12:00:00.500Z"),
            ("yesterday", "yesterday", "yesterday"),
        ] {
            assert_eq!((for_browser(given).as_str(), in_utc("end_time", shown).as_str()), (shown, read));
        }
        assert_eq!(in_utc("contains", "2026-01-31T12:00"), "2026-01-31T12:00");
    }

    #[test]
    fn a_form_keeps_what_the_address_says() {
        let given = [("limit", "7".to_owned()), ("status", "error".to_owned()), ("tool", "x".to_owned())];
        let chosen = |field: &FilterField| {
            field
                .options
                .iter()
                .filter(|option| option.is_chosen)
                .map(|option| option.word.clone())
                .collect::<Vec<_>>()
        };
        let fields: Vec<FilterField> = first(&given).into_iter().chain(more(&given)).collect();
        let named = |name: &str| fields.iter().find(|field| field.name == name).unwrap();
        assert_eq!(
            (chosen(named("limit")), chosen(named("status"))),
            (vec!["7".to_owned()], vec!["error".to_owned()])
        );
        assert_eq!((named("tool").value.as_str(), named("tool").options.len()), ("x", 0));
        assert!(chosen(named("source")).is_empty());
    }
}
