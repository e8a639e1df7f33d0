//! Addition of servers, as a form or a pasted file has them.

use std::sync::Arc;

use serde_json::{Map, Value};

use super::fields::{checked, headers, recorded, shown_url, text};
use crate::domain::id::is_name;
use crate::domain::tenant::Action;
use crate::faces::console::act::{VisitorAct, perform};
use crate::faces::console::page_visit::PageVisit;
use crate::gateway::{GatewayError, ServerRequest, ServerView};

/// Adds the server of the form, and lists it.
///
/// # Errors
/// Error of the role, of a field, or of the use case.
pub(super) async fn made(visit: &PageVisit) -> Result<ServerView, GatewayError> {
    create(visit, NewServerForm::of(visit)).await
}

/// Returns the faults of the fields that were sent, each looked at by itself: the addition ends at the first.
pub(super) async fn faults(visit: &PageVisit) -> Vec<GatewayError> {
    let NewServerForm { name, kind, url, command, headers, .. } = NewServerForm::of(visit);
    let headers = headers.and_then(|headers| headers.as_ref().map(checked).transpose());
    let (headers, fault) = match headers {
        Ok(headers) => (headers, None),
        Err(fault) => (None, Some(fault)),
    };
    let request = ServerRequest { name, kind, url, command, headers, ..ServerRequest::default() };
    let mut faults = visit.gateway().servers.faults_of_new(visit.caller(), &request).await;
    faults.extend(fault);
    faults
}

/// Content of the form, to be shown again. Header values are not.
#[derive(Default)]
pub(super) struct TypedServer {
    /// Name of the server.
    pub(super) name: String,
    /// True if the kind is a program.
    pub(super) is_program: bool,
    /// Address; empty if it holds a secret.
    pub(super) url: String,
    /// Name of the deployment's command.
    pub(super) command: String,
    /// True to approve definitions at once.
    pub(super) approves: bool,
}

impl TypedServer {
    /// Reads the form that was sent.
    pub(super) fn of(visit: &PageVisit) -> TypedServer {
        TypedServer {
            name: visit.field("name").to_owned(),
            is_program: visit.field("kind") == "stdio",
            url: shown_url(visit),
            command: visit.field("command").to_owned(),
            approves: visit.field("auto_approve") == "true",
        }
    }
}

/// Server to be added, as a form or a file has it.
pub(super) struct NewServerForm {
    /// Name of the server.
    pub(super) name: String,
    /// Kind of the server.
    pub(super) kind: String,
    /// Address; `None` without one.
    pub(super) url: Option<String>,
    /// Name of the deployment's command; `None` without one.
    pub(super) command: Option<String>,
    /// Headers, or why they cannot be read.
    pub(super) headers: Result<Option<Map<String, Value>>, GatewayError>,
    /// True to switch the server on; `None` for the default.
    pub(super) enabled: Option<bool>,
    /// True to approve definitions at once; `None` for the default.
    pub(super) auto_approve: Option<bool>,
}

impl NewServerForm {
    /// Reads the form that was sent. It has the fields of both kinds: those of the other one are refused.
    fn of(visit: &PageVisit) -> NewServerForm {
        let field = |name| text(visit, name);
        NewServerForm {
            name: field("name").unwrap_or_default(),
            kind: field("kind").unwrap_or_default(),
            url: field("url"),
            command: field("command"),
            headers: headers(visit.field("headers")).map(Some),
            enabled: None,
            auto_approve: field("auto_approve").map(|word| word == "true"),
        }
    }

    /// Returns the body that REST would be sent. Headers that cannot be read are left out.
    fn body(&self) -> Map<String, Value> {
        let headers =
            self.headers.as_ref().ok().and_then(Option::as_ref).filter(|headers| !headers.is_empty());
        let members = [
            ("name", Some(Value::from(self.name.as_str()))),
            ("kind", Some(Value::from(self.kind.as_str()))),
            ("url", self.url.as_deref().map(Value::from)),
            ("command", self.command.as_deref().map(Value::from)),
            ("headers", headers.cloned().map(Value::Object)),
            ("enabled", self.enabled.map(Value::from)),
            ("auto_approve", self.auto_approve.map(Value::from)),
        ];
        members.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?))).collect()
    }
}

/// Adds a server, and lists it. Records hold no header.
///
/// # Errors
/// Error of the role, of a field, or of the use case.
pub(super) async fn create(visit: &PageVisit, new: NewServerForm) -> Result<ServerView, GatewayError> {
    let act = VisitorAct {
        server: is_name(&new.name).then(|| new.name.clone()),
        ..VisitorAct::new("servers.create", Action::ChangeServers)
    };
    let act = recorded(act, new.body());
    let (gateway, caller) = (Arc::clone(visit.gateway()), Arc::clone(visit.caller()));
    // boxed: the future of a listing is large
    let work = Box::pin(async move {
        let NewServerForm { name, kind, url, command, headers, enabled, auto_approve } = new;
        // a program has no headers, and a form without any asks for none
        let headers = headers?.filter(|headers| !headers.is_empty());
        let headers = headers.as_ref().map(checked).transpose()?;
        let request = ServerRequest {
            name,
            kind,
            url,
            command,
            headers,
            enabled,
            auto_approve,
            ..ServerRequest::default()
        };
        gateway.servers.create_server(&caller, request).await
    });
    perform(visit, act, work).await
}
