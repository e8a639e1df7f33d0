//! Fields of the forms about servers, and the bodies that they stand for.

use serde_json::{Map, Value};

use crate::domain::server_url::masked;
use crate::faces::console::act::VisitorAct;
use crate::faces::console::page_visit::PageVisit;
use crate::faces::wire::credentials::without_credentials;
use crate::gateway::{GatewayError, Headers, OWN_LIMITS};

/// Most lines of headers whose fault is said.
const FAULTS_MAX: usize = 5;
/// Name of the automatic approval among the values of the form of settings.
pub(super) const APPROVAL: &str = "changed definitions";

/// Returns the name of a limit among the values of the form of settings.
pub(super) fn name_of_limit(name: &str) -> String {
    format!("limits.{name}")
}

/// Returns a field without white space around it; `None` if it is empty.
pub(super) fn text(visit: &PageVisit, name: &str) -> Option<String> {
    Some(visit.field(name).trim().to_owned()).filter(|text| !text.is_empty())
}

/// Reads headers, one on a line, as `Name: value`. Lines may be values in the wrong place, so no error repeats more than a header's name.
///
/// # Errors
/// [`GatewayError::Invalid`] about all lines without a colon, with a name that comes twice, or with a name or value that cannot be sent.
pub(super) fn headers(lines: &str) -> Result<Map<String, Value>, GatewayError> {
    let (mut found, mut faults) = (Map::new(), Vec::new());
    for (line, at) in lines.lines().map(str::trim).zip(1..).filter(|(line, _)| !line.is_empty()) {
        let Some((name, value)) = line.split_once(':') else {
            faults.push(format!(
                "Line {at} of the headers has no colon: each is a name, a colon and a value, such as X-Team: web."
            ));
            continue;
        };
        let (name, value) = (name.trim().to_owned(), Value::from(value.trim()));
        if let Err(error) = checked(&Map::from_iter([(name.clone(), value.clone())])) {
            faults.push(format!("Line {at} of the headers: {error}."));
        } else if found.keys().any(|known: &String| known.eq_ignore_ascii_case(&name)) {
            faults.push(format!("Line {at} of the headers has the name of a line before it."));
        } else {
            found.insert(name, value);
        }
    }
    let more = faults.len().saturating_sub(FAULTS_MAX);
    faults.truncate(FAULTS_MAX);
    if more > 0 {
        faults.push(format!("{more} more lines have a fault."));
    }
    match faults.is_empty() {
        true => Ok(found),
        false => Err(GatewayError::invalid("headers", faults.join(" "))),
    }
}

/// Reads headers into the form in which servers are given them.
///
/// # Errors
/// Error of a name or value that cannot be sent, or of too many.
pub(super) fn checked(headers: &Map<String, Value>) -> Result<Headers, GatewayError> {
    Headers::read(headers.clone())
}

/// Reads the limits of the form; an empty field is none.
///
/// # Errors
/// [`GatewayError::Invalid`] about the first value that is not accepted, with a text about all of them.
pub(super) fn limits(visit: &PageVisit) -> Result<Map<String, Value>, GatewayError> {
    let (mut found, mut faults, mut first) = (Map::new(), Vec::new(), None);
    for (name, max) in OWN_LIMITS {
        let Some(given) = text(visit, &name_of_limit(name)) else { continue };
        match limit(&given, max) {
            Some(number) => {
                found.insert(name.to_owned(), Value::from(number));
            }
            None => {
                faults.push(format!("limits.{name} must be a whole number from 1 to {max}"));
                first = first.or(Some(name_of_limit(name)));
            }
        }
    }
    match first {
        None => Ok(found),
        Some(first) => Err(GatewayError::invalid(first, faults.join("; "))),
    }
}

/// Reads a limit, which is at most `max`; `None` for a text that is none.
pub(super) fn limit(text: &str, max: u64) -> Option<u64> {
    text.parse().ok().filter(|number| (1..=max).contains(number))
}

/// Returns the address that was typed; empty if it holds a secret, which no page shows.
pub(super) fn shown_url(visit: &PageVisit) -> String {
    text(visit, "url").filter(|url| masked(url) == url.as_str()).unwrap_or_default()
}

/// Adds to an act the body that REST would be sent, without its credentials.
pub(super) fn recorded(act: VisitorAct, body: Map<String, Value>) -> VisitorAct {
    let text = without_credentials(&Value::Object(body).to_string());
    VisitorAct { sent: serde_json::from_str(&text).ok(), ..act }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::domain::tenant::Action;

    #[test]
    fn headers_are_lines_and_faults_repeat_none() {
        let read = headers("Authorization: Bearer a:b\r\n\r\n X-One :1 \n").unwrap();
        assert_eq!(Value::Object(read), json!({"Authorization": "Bearer a:b", "X-One": "1"}));
        for lines in ["Bearer s3cret", "X: s3cret\nX: s3cret"] {
            let error = headers(lines).unwrap_err().to_string();
            assert!(!error.contains("s3cret"), "{error}");
        }
    }

    #[test]
    fn records_hold_no_credential() {
        let Value::Object(body) = json!({"name": "a", "url": "https://u:s3cret@h/?k=s3cret",
            "headers": {"X-Key": "s3cret"}, "limits": {"queue": 1}})
        else {
            unreachable!()
        };
        let act = recorded(VisitorAct::new("servers.create", Action::ChangeServers), body);
        let sent = act.sent.unwrap();
        assert!(!sent.to_string().contains("s3cret"), "{sent}");
        assert_eq!((&sent["name"], &sent["headers"]), (&json!("a"), &json!({"X-Key": "[redacted]"})));
    }
}
