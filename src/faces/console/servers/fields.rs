//! Fields of the forms about servers, and the bodies that they stand for.

use serde_json::{Map, Value};

use crate::domain::server_url::masked;
use crate::faces::console::act::VisitorAct;
use crate::faces::console::page_visit::PageVisit;
use crate::faces::wire::credentials::without_credentials;
use crate::gateway::{GatewayError, Headers, OWN_LIMITS};

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

/// Reads headers, one on a line, as `Name: value`. Lines may be values in the wrong place, so no error repeats one.
///
/// # Errors
/// [`GatewayError::Invalid`] for a line without a colon, or a name that comes twice.
pub(super) fn headers(lines: &str) -> Result<Map<String, Value>, GatewayError> {
    let mut found = Map::new();
    for (line, at) in lines.lines().map(str::trim).zip(1..).filter(|(line, _)| !line.is_empty()) {
        let split = line.split_once(':').map(|(name, value)| (name.trim(), value.trim()));
        let (name, value) = split.ok_or_else(|| {
            let says = format!(
                "Line {at} of the headers has no colon: each is a name, a colon and a value, such as X-Team: web."
            );
            GatewayError::invalid("headers", says)
        })?;
        if found.insert(name.to_owned(), Value::from(value)).is_some() {
            let says = format!("Line {at} of the headers has the name of a line before it.");
            return Err(GatewayError::invalid("headers", says));
        }
    }
    Ok(found)
}

/// Reads headers into the form in which servers are given them.
///
/// # Errors
/// Error of [`headers`], or of a name or value that cannot be sent.
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

/// Fault of a form that is shown again, with what was typed.
pub(in crate::faces::console) struct FormNotice {
    /// Sentence about the fault.
    pub(in crate::faces::console) says: String,
    /// Next step; empty where the fault names it.
    pub(in crate::faces::console) next_step: &'static str,
    /// Names of what somebody else changed meanwhile; `None` unless somebody did.
    pub(in crate::faces::console) changed: Option<Vec<String>>,
    /// Beginning of the sentence about what is not shown again; `None` if all is.
    pub(in crate::faces::console) left_out: Option<&'static str>,
    /// Name of the field that has the fault; `None` for a fault of no single one.
    field: Option<String>,
}

impl FormNotice {
    /// Creates the notice about a fault of the form that was sent.
    pub(in crate::faces::console) fn of(visit: &PageVisit, error: &GatewayError) -> FormNotice {
        let field = match error {
            GatewayError::Invalid { field, .. } => field.clone(),
            GatewayError::Conflict(_) if visit.path().ends_with("/servers/create") => Some("name".to_owned()),
            _ => None,
        };
        let (says, next_step) = match error {
            GatewayError::Invalid { field: Some(field), message } => {
                fault_of_field(visit.field("kind"), (field, text(visit, field)), message)
            }
            error => (error.to_string(), ""),
        };
        FormNotice { says, next_step, changed: None, left_out: left_out(visit), field }
    }

    /// Returns whether the fault is that of a field.
    pub(in crate::faces::console) fn is_about(&self, field: &str) -> bool {
        self.field.as_deref() == Some(field)
    }

    /// Creates the notice that somebody else was faster, who changed what these names say. `what` is what was changed, such as `The server`.
    pub(super) fn late(visit: &PageVisit, what: &str, changed: Vec<String>) -> FormNotice {
        let says = format!("{what} was changed meanwhile.");
        FormNotice { says, next_step: "", changed: Some(changed), left_out: left_out(visit), field: None }
    }
}

/// Returns the beginning of the sentence about what of a form is not shown again; `None` if all is.
fn left_out(visit: &PageVisit) -> Option<&'static str> {
    let has_secret = text(visit, "url").is_some() && shown_url(visit).is_empty();
    match (text(visit, "headers").is_some(), has_secret) {
        (true, true) => Some("Headers, and the address with its secret, are"),
        (true, false) => Some("Headers are"),
        (false, true) => Some("Addresses with a secret are"),
        (false, false) => None,
    }
}

/// Returns the fault of a field that servers of the chosen kind do not have, and what to do about it. `None` for one that they have, and
/// for one that is not given.
fn field_of_other_kind(kind: &str, field: &str, is_given: bool) -> Option<(String, &'static str)> {
    let (says, next_step) = match (kind, field) {
        _ if !is_given => return None,
        ("stdio", "url") => {
            ("An address is for a server of kind http.", "Choose the kind http, or empty the address.")
        }
        ("stdio", "headers") => {
            ("Headers are for a server of kind http.", "Choose the kind http, or empty the headers.")
        }
        ("http", "command") => {
            ("A program is for a server of kind stdio.", "Choose the kind stdio, or no program.")
        }
        _ => return None,
    };
    Some((says.to_owned(), next_step))
}

/// Returns the fault of a field in sentences for a person, and what to do about it. `kind`: chosen kind of the server; empty for a form
/// without one.
fn fault_of_field(
    kind: &str,
    (field, typed): (&str, Option<String>),
    message: &str,
) -> (String, &'static str) {
    const NAME: &str =
        "It is 1 to 32 of a-z, 0-9 and single hyphens, and starts and ends with a letter or digit.";
    if let Some(fault) = field_of_other_kind(kind, field, typed.is_some()) {
        return fault;
    }
    match (field, typed) {
        ("url", typed) => url_fault(&typed.unwrap_or_default(), message),
        ("name", None) => ("The server needs a name.".to_owned(), NAME),
        ("name", Some(_)) => ("This name is not accepted.".to_owned(), NAME),
        ("command", None) => {
            ("A server of kind stdio needs a program.".to_owned(), "Choose one of the list.")
        }
        _ => (message.to_owned(), ""),
    }
}

/// Returns the fault of an address in sentences for a person, and what to do about it.
fn url_fault(typed: &str, message: &str) -> (String, &'static str) {
    const WHOLE: &str = "Give the whole address of the server's MCP endpoint, such as https://host/mcp.";
    if let Some(refused) = message.strip_suffix("; an entry in egress.allow can permit it") {
        let permits = "Whoever runs the gateway can permit it with an entry in egress.allow.";
        return (format!("{refused}."), permits);
    }
    match message.strip_prefix("the URL is refused: ") {
        Some(reason) if !typed.contains("://") || reason.starts_with("it is not a URL") => {
            ("This is not a URL.".to_owned(), WHOLE)
        }
        Some(reason) => (format!("This address is refused: {reason}."), WHOLE),
        None => (format!("{}.", message.trim_end_matches('.')), WHOLE),
    }
}

/// Returns whether a form is shown again after a fault, since its sender can mend it.
pub(super) fn can_be_mended(error: &GatewayError) -> bool {
    matches!(error, GatewayError::Invalid { .. } | GatewayError::Conflict(_))
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
    fn faults_of_addresses_are_sentences() {
        let says = |typed: &str, message: &str| {
            let (says, next_step) = url_fault(typed, message);
            format!("{says} {next_step}")
        };
        let whole = "Give the whole address of the server's MCP endpoint, such as https://host/mcp.";
        for (typed, message) in [
            ("a b", "the URL is refused: it is not a URL such as https://host/path"),
            ("notaurl", "the URL is refused: only http and https are supported"),
        ] {
            assert_eq!(says(typed, message), format!("This is not a URL. {whole}"));
        }
        assert_eq!(
            says("ftp://h/", "the URL is refused: only http and https are supported"),
            format!("This address is refused: only http and https are supported. {whole}")
        );
        let private = "10.1.2.3 is refused: its address is private; an entry in egress.allow can permit it";
        assert_eq!(
            says("http://10.1.2.3/", private),
            "10.1.2.3 is refused: its address is private. Whoever runs the gateway can permit it with an entry in egress.allow."
        );
        let needed = "a server of kind http needs a url";
        assert_eq!(says("", needed), format!("{needed}. {whole}"));
    }

    #[test]
    fn faults_of_other_fields_are_sentences() {
        let says = |kind: &str, field: &str, typed: Option<&str>| {
            let (says, next_step) =
                fault_of_field(kind, (field, typed.map(str::to_owned)), "the words of the API");
            format!("{says} {next_step}")
        };
        assert!(says("http", "name", None).starts_with("The server needs a name. It is 1 to 32 of a-z,"));
        assert!(says("http", "name", Some("A b")).starts_with("This name is not accepted. It is 1 to 32"));
        assert!(says("stdio", "command", None).starts_with("A server of kind stdio needs a program."));
        assert!(says("stdio", "headers", Some("X: y")).starts_with("Headers are for a server of kind http."));
        assert_eq!(says("", "limits.queue", Some("x")), "the words of the API ");
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
