//! Change of a server, as its form asks for it.

use serde_json::{Map, Value};

use super::fields::{checked, headers, limits, text};
use crate::faces::console::page_visit::PageVisit;
use crate::gateway::{GatewayError, ServerChange};

/// Fields of the form, as far as they can be read.
pub(super) struct AskedChange {
    url: Option<String>,
    command: Option<String>,
    auto_approve: Option<bool>,
    /// New headers, none of which may be left; `None` keeps the present ones.
    headers: Result<Option<Map<String, Value>>, GatewayError>,
    limits: Result<Map<String, Value>, GatewayError>,
    keeps_credentials: bool,
    version: Result<i64, GatewayError>,
}

/// Reads the form.
pub(super) fn asked(visit: &PageVisit) -> AskedChange {
    let credentials = visit.field("credentials");
    let lines = headers(visit.field("headers"));
    let flag = |word: String| match word.as_str() {
        "true" => Some(true),
        "false" => Some(false),
        _ => None,
    };
    AskedChange {
        url: text(visit, "url"),
        command: text(visit, "command"),
        auto_approve: text(visit, "auto_approve").and_then(flag),
        headers: lines.map(|lines| Some(lines).filter(|lines| !lines.is_empty() || credentials == "remove")),
        limits: limits(visit),
        keeps_credentials: credentials == "keep",
        version: version(visit),
    }
}

/// Reads the version of the page whose form was sent.
///
/// # Errors
/// [`GatewayError::Invalid`] for a form without one.
pub(super) fn version(visit: &PageVisit) -> Result<i64, GatewayError> {
    let version = visit.field("version").parse();
    version.map_err(|_| GatewayError::invalid("version", "the form has no version: load its page again"))
}

impl AskedChange {
    /// Returns the body that REST would be sent, without fields that cannot be read.
    pub(super) fn body(&self) -> Map<String, Value> {
        let headers = self.headers.as_ref().ok().cloned().flatten();
        let members = [
            ("url", self.url.as_deref().map(Value::from)),
            ("command", self.command.as_deref().map(Value::from)),
            ("auto_approve", self.auto_approve.map(Value::from)),
            ("headers", headers.map(Value::Object)),
            ("limits", self.limits.as_ref().ok().cloned().map(Value::Object)),
            ("keep_credentials", self.keeps_credentials.then_some(Value::Bool(true))),
            ("version", self.version.as_ref().ok().copied().map(Value::from)),
        ];
        members.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?))).collect()
    }

    /// Returns the change.
    ///
    /// # Errors
    /// The first field that cannot be read.
    pub(super) fn change(self) -> Result<ServerChange, GatewayError> {
        Ok(ServerChange {
            // the choice to keep headers says nothing where the address stays
            keep_credentials: self.keeps_credentials && self.url.is_some(),
            url: self.url,
            command: self.command,
            auto_approve: self.auto_approve,
            headers: self.headers?.as_ref().map(checked).transpose()?,
            limits: Some(self.limits?),
            version: Some(self.version?),
            ..ServerChange::default()
        })
    }
}
