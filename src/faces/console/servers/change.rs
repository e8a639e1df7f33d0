//! Change of a server, as its form asks for it.

use serde_json::{Map, Value};

use super::fields::{APPROVAL, checked, headers, limits, name_of_limit, text};
use crate::faces::console::page_visit::PageVisit;
use crate::faces::console::was::{differing, was};
use crate::gateway::{GatewayError, OWN_LIMITS, ServerChange};

/// Fields of the form, as far as they can be read.
pub(super) struct AskedChange {
    url: Option<String>,
    command: Option<String>,
    auto_approve: Option<bool>,
    /// New headers, none of which may be left; `None` keeps the present ones.
    headers: Result<Option<Map<String, Value>>, GatewayError>,
    /// New limits in place of all present ones; `None` keeps those.
    limits: Result<Option<Map<String, Value>>, GatewayError>,
    /// Names of the limits that differ from those that the form was made from.
    changed_limits: Vec<String>,
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
    let limits = limits(visit);
    let typed = limits.iter().flatten().map(|(name, value)| (name_of_limit(name), value.clone())).collect();
    let names: Vec<String> = OWN_LIMITS.iter().map(|(name, _)| name_of_limit(name)).collect();
    let changed_limits = differing(names.iter().map(String::as_str), &was(visit), &typed);
    AskedChange {
        url: text(visit, "url"),
        command: text(visit, "command"),
        auto_approve: text(visit, "auto_approve").and_then(flag),
        headers: lines.map(|lines| Some(lines).filter(|lines| !lines.is_empty() || credentials == "remove")),
        // a form that does not say what it was made from, such as that of an older release, replaces them
        limits: limits.map(|limits| {
            Some(limits).filter(|_| !changed_limits.is_empty() || visit.field("was").is_empty())
        }),
        changed_limits,
        keeps_credentials: credentials == "keep",
        version: version(visit),
    }
}

/// Returns the faults of the fields that were sent, each looked at by itself: the change ends at the first.
pub(super) fn faults(visit: &PageVisit) -> Vec<GatewayError> {
    let AskedChange { url, headers, limits, .. } = asked(visit);
    let url = url.and_then(|url| visit.gateway().servers.check_url(&url).err());
    let headers = headers.and_then(|headers| headers.as_ref().map(checked).transpose());
    url.into_iter().chain(headers.err()).chain(limits.err()).collect()
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
            ("limits", self.limits.as_ref().ok().cloned().flatten().map(Value::Object)),
            ("keep_credentials", self.keeps_credentials.then_some(Value::Bool(true))),
            ("version", self.version.as_ref().ok().copied().map(Value::from)),
        ];
        members.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?))).collect()
    }

    /// Returns the names of what the form changes; none where nothing differs.
    pub(super) fn names(&self) -> Vec<&str> {
        let has_headers = self.headers.as_ref().is_ok_and(Option::is_some);
        let names = [
            ("address", self.url.is_some()),
            ("program", self.command.is_some()),
            ("headers", has_headers),
            (APPROVAL, self.auto_approve.is_some()),
        ];
        let names = names.into_iter().filter(|(_, is_changed)| *is_changed).map(|(name, _)| name);
        names.chain(self.changed_limits.iter().map(String::as_str)).collect()
    }

    /// Returns the change; `None` if nothing differs.
    ///
    /// # Errors
    /// The first field that cannot be read.
    pub(super) fn change(self) -> Result<Option<ServerChange>, GatewayError> {
        let changes = !self.names().is_empty();
        let change = ServerChange {
            // the choice to keep headers says nothing where the address stays
            keep_credentials: self.keeps_credentials && self.url.is_some(),
            url: self.url,
            command: self.command,
            auto_approve: self.auto_approve,
            headers: self.headers?.as_ref().map(checked).transpose()?,
            limits: self.limits?,
            version: Some(self.version?),
            ..ServerChange::default()
        };
        Ok(changes.then_some(change))
    }
}
