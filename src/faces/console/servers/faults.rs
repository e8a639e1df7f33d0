//! Faults of the forms about servers, at the fields that have them, in sentences for a person.

use super::fields::{shown_url, text};
use crate::faces::console::page_visit::PageVisit;
use crate::gateway::GatewayError;

/// Fields of the forms, in the order in which a form has them.
const FIELDS: [&str; 5] = ["name", "kind", "url", "headers", "command"];

/// Fault of a form that is shown again.
pub(in crate::faces::console) struct ServerFault {
    /// Sentence about the fault.
    pub(in crate::faces::console) says: String,
    /// Next step; empty where the fault names it.
    pub(in crate::faces::console) next_step: &'static str,
    /// Name of the field that has the fault; `None` for a fault of no single one.
    field: Option<String>,
}

impl ServerFault {
    /// Creates the fault of the form that was sent.
    fn of(visit: &PageVisit, error: &GatewayError) -> ServerFault {
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
        ServerFault { says, next_step, field }
    }

    /// Returns the place of the field in the form; fields of no certain place come last.
    fn place(&self) -> usize {
        let field = self.field.as_deref();
        FIELDS.iter().position(|name| field == Some(*name)).unwrap_or(FIELDS.len())
    }
}

/// Faults of a form that is shown again, with what was typed.
pub(in crate::faces::console) struct FormNotice {
    /// Faults, in the order of the form.
    pub(in crate::faces::console) faults: Vec<ServerFault>,
    /// Names of what somebody else changed meanwhile; `None` unless somebody did.
    pub(in crate::faces::console) changed: Option<Vec<String>>,
    /// Beginning of the sentence about what is not shown again; `None` if all is.
    pub(in crate::faces::console) left_out: Option<&'static str>,
}

impl FormNotice {
    /// Creates the notice about a fault of the form that was sent.
    pub(in crate::faces::console) fn of(visit: &PageVisit, error: &GatewayError) -> FormNotice {
        FormNotice { faults: vec![ServerFault::of(visit, error)], changed: None, left_out: left_out(visit) }
    }

    /// Creates the notice about a fault of the form that was sent, in other words.
    pub(in crate::faces::console) fn said(visit: &PageVisit, says: String) -> FormNotice {
        let fault = ServerFault { says, next_step: "", field: None };
        FormNotice { faults: vec![fault], changed: None, left_out: left_out(visit) }
    }

    /// Creates the notice that somebody else was faster, who changed what these names say. `what` is what was changed, such as `The server`.
    pub(super) fn late(visit: &PageVisit, what: &str, changed: Vec<String>) -> FormNotice {
        FormNotice {
            changed: Some(changed),
            ..FormNotice::said(visit, format!("{what} was changed meanwhile."))
        }
    }

    /// Adds faults of fields that have none yet, so that whoever sent the form learns of all at once.
    pub(super) fn with(mut self, visit: &PageVisit, others: &[GatewayError]) -> FormNotice {
        for fault in others.iter().map(|error| ServerFault::of(visit, error)) {
            if fault.field.as_deref().is_some_and(|field| !self.is_about(field)) {
                self.faults.push(fault);
            }
        }
        self.faults.sort_by_key(ServerFault::place);
        self
    }

    /// Returns whether a field has a fault.
    pub(in crate::faces::console) fn is_about(&self, field: &str) -> bool {
        self.faults.iter().any(|fault| fault.field.as_deref() == Some(field))
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

#[cfg(test)]
mod tests {
    use super::*;

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
}
