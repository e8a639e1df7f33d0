//! Acts of management tools, run as the routes run them: with the same roles, checks, records and answers.

use std::sync::Arc;

use bytes::Bytes;

use super::error::code_of;
use super::exchange::{Exchange, Inward};
use super::params::{NONE, PAGE};
use super::route::{Who, look, perform};
use super::show::{RestAnswer, RouteAnswer};
use super::{offer_pins, pins, server_logs, server_offers, server_tools, servers};
use crate::domain::activity::RecordKind;
use crate::domain::server_url::masked;
use crate::domain::tenant::Action::{self, ChangeServers, SeeServers};
use crate::faces::Faces;
use crate::faces::wire::credentials::without_credentials;
use crate::faces::wire::managed::{ManagedAct, ManagedRequest, NotDone};
use crate::gateway::{Attempt, GatewayError, RefusedAttempt};

/// Longest answer that a tool gives, in bytes: a model reads it.
const ANSWER_BYTES_MAX: usize = 4 * 1024 * 1024;

impl ManagedAct {
    /// Returns the name in the activity log: that of the route, if there is one.
    fn what(self) -> &'static str {
        match self {
            ManagedAct::List => "servers.list",
            ManagedAct::ListQuarantined => "servers.list_quarantined",
            ManagedAct::Inspect => "servers.inspect",
            ManagedAct::InspectTools => "tools.list",
            ManagedAct::InspectPrompts => "prompts.list",
            ManagedAct::InspectResources => "resources.list",
            ManagedAct::Diff => "tools.diff",
            ManagedAct::DiffPrompt => "prompts.diff",
            ManagedAct::DiffResource => "resources.diff",
            ManagedAct::Logs => "servers.logs",
            ManagedAct::Add => "servers.create",
            ManagedAct::Update => "servers.update",
            ManagedAct::Remove => "servers.remove",
            ManagedAct::Enable => "servers.enable",
            ManagedAct::Disable => "servers.disable",
            ManagedAct::Quarantine => "servers.quarantine",
            ManagedAct::Restart => "servers.restart",
            ManagedAct::Refresh => "servers.refresh",
        }
    }

    /// Returns the action that the caller's role must allow.
    fn needs(self) -> Action {
        match self {
            ManagedAct::List
            | ManagedAct::ListQuarantined
            | ManagedAct::Inspect
            | ManagedAct::InspectTools
            | ManagedAct::InspectPrompts
            | ManagedAct::InspectResources
            | ManagedAct::Diff
            | ManagedAct::DiffPrompt
            | ManagedAct::DiffResource => SeeServers,
            ManagedAct::Logs
            | ManagedAct::Add
            | ManagedAct::Update
            | ManagedAct::Remove
            | ManagedAct::Enable
            | ManagedAct::Disable
            | ManagedAct::Quarantine
            | ManagedAct::Restart
            | ManagedAct::Refresh => ChangeServers,
        }
    }
}

impl From<&GatewayError> for NotDone {
    fn from(error: &GatewayError) -> NotDone {
        let field = match error {
            GatewayError::Invalid { field, .. } => field.clone(),
            _ => None,
        };
        NotDone { code: code_of(error), message: error.to_string(), field, scope_for: None }
    }
}

/// Runs an act and records it, even if the client does not wait. Returns the answer, a JSON object.
pub(in crate::faces) async fn run(
    faces: &Arc<Faces>,
    attempt: Attempt,
    act: ManagedAct,
    asked: ManagedRequest,
) -> Result<Bytes, NotDone> {
    let gateway = Arc::clone(&faces.gateway);
    let exchange = Arc::new(exchange(Arc::clone(faces), attempt, asked));
    let answer = gateway.log.outlive(answer(act, exchange)).await;
    match answer.map_err(|error| NotDone::from(error.cause()))? {
        RouteAnswer::Json(_, text) if text.len() <= ANSWER_BYTES_MAX => Ok(text),
        RouteAnswer::Nothing => Ok(Bytes::from_static(b"{}")),
        // no act answers with a stream
        RouteAnswer::Json(..) | RouteAnswer::Ready(_) => {
            let message = "there is too much of it for one answer; ask for less, or read it by the API";
            Err(NotDone::from(&GatewayError::Invalid { field: None, message: message.to_owned() }))
        }
    }
}

/// Records a call that was counted, and refused before its act was run. No credential that was sent is in the record.
pub(in crate::faces) fn refused(
    faces: &Faces,
    attempt: &Attempt,
    tool: &str,
    arguments: &str,
    why: &NotDone,
) {
    let body = without_credentials(arguments);
    let NotDone { code, message, .. } = why;
    let refused =
        RefusedAttempt { kind: RecordKind::Admin, tool: Some(tool), body: Some(&body), code, message };
    faces.gateway.log.record_refused_counted(attempt, &refused);
}

fn exchange(faces: Arc<Faces>, attempt: Attempt, asked: ManagedRequest) -> Exchange {
    let ManagedRequest { server, tool, prompt, params, body } = asked;
    let mut path = "/servers".to_owned();
    let mut segments = Vec::new();
    if let Some(server) = server {
        path.push_str(&format!("/{server}"));
        segments.push(("name".to_owned(), server));
    }
    if let Some(tool) = tool {
        path.push_str(&format!("/tools/{tool}"));
        segments.push(("tool".to_owned(), tool));
    }
    if let Some(prompt) = prompt {
        path.push_str(&format!("/prompts/{prompt}"));
        segments.push(("prompt".to_owned(), prompt));
    }
    // the record shows the path; no query is in a record
    if let Some((_, uri)) = params.iter().find(|(name, _)| *name == "uri") {
        path.push_str(&format!("/resources/{}", masked(uri)));
    }
    Exchange::inward(faces, attempt, Inward { path, segments, params, body })
}

async fn answer(act: ManagedAct, exchange: Arc<Exchange>) -> RestAnswer {
    let (what, who) = (act.what(), Who::May(act.needs()));
    match act {
        ManagedAct::List => look(what, who, PAGE, exchange, servers::list).await,
        ManagedAct::ListQuarantined => look(what, who, NONE, exchange, servers::list_quarantined).await,
        ManagedAct::Inspect => look(what, who, NONE, exchange, servers::get).await,
        ManagedAct::InspectTools => look(what, who, PAGE, exchange, server_tools::list).await,
        ManagedAct::InspectPrompts => look(what, who, PAGE, exchange, server_offers::prompts).await,
        ManagedAct::InspectResources => look(what, who, PAGE, exchange, server_offers::resources).await,
        ManagedAct::Diff => look(what, who, NONE, exchange, pins::diff).await,
        ManagedAct::DiffPrompt => look(what, who, NONE, exchange, offer_pins::diff_prompt).await,
        ManagedAct::DiffResource => {
            look(what, who, offer_pins::RESOURCE, exchange, offer_pins::diff_resource).await
        }
        ManagedAct::Logs => look(what, who, server_logs::PARAMS, exchange, server_logs::get).await,
        ManagedAct::Add => perform(what, who, exchange, servers::create).await,
        ManagedAct::Update => perform(what, who, exchange, servers::update).await,
        ManagedAct::Remove => perform(what, who, exchange, servers::remove).await,
        ManagedAct::Enable => perform(what, who, exchange, servers::enable).await,
        ManagedAct::Disable => perform(what, who, exchange, servers::disable).await,
        ManagedAct::Quarantine => perform(what, who, exchange, servers::quarantine).await,
        ManagedAct::Restart => perform(what, who, exchange, servers::restart).await,
        ManagedAct::Refresh => perform(what, who, exchange, servers::refresh).await,
    }
}
