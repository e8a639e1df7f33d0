//! Prompts, resources and completions on `/mcp/direct`: their lists, and requests to their servers.

use std::sync::Arc;

use axum::response::Response;
use bytes::Bytes;

use super::call::McpCall;
use super::direct::{begin, cursor_within, finished, while_current};
use super::jsonrpc::{RpcError, code_in, served};
use super::operation::OperationSubject;
use super::recipient::{Render, To};
use super::result::{Answered, Splice, spliced};
use super::text::Text;
use super::{ClientEra, result};
use crate::domain::end::End;
use crate::domain::json::{self, Member};
use crate::domain::offer::OfferKind;
use crate::domain::refusal::Code;
use crate::domain::settings::ToolNames;
use crate::domain::tool::ResultHead;
use crate::gateway::{
    CallOutcome, CallRequest, Callee, Caller, Catalog, DirectView, Gateway, ListKey, ListPlan, OfferRequest,
    Refused, RoundRequest, Wanted,
};

/// Longest cursor that is decoded, in bytes: that of the longest URI.
const CURSOR_BYTES_MAX: usize = 3072;
/// Member that forbids caching of a resource, where its server does not set a time.
const NOT_KEPT: &str = r#""ttlMs":0"#;
/// Member that keeps a resource from shared caches, since it depends on the key.
const PRIVATE: &str = r#""cacheScope":"private""#;

/// Returns the kind of offer that a method lists; `None` for any other method.
pub(super) fn listed_by(method: &str) -> Option<OfferKind> {
    match method {
        "prompts/list" => Some(OfferKind::Prompt),
        "resources/list" => Some(OfferKind::Resource),
        "resources/templates/list" => Some(OfferKind::Template),
        _ => None,
    }
}

/// Returns whether a method sends a request to a server.
pub(super) fn is_asked_by(method: &str) -> bool {
    matches!(method, "prompts/get" | "resources/read" | "completion/complete")
}

/// Returns the name or URI after which a page begins; `None` for the first page.
pub(super) fn cursor(params: &[Member<'_>]) -> Result<Option<String>, RpcError> {
    cursor_within(params, CURSOR_BYTES_MAX)
}

/// Returns a page of a list. Callers with the same view share the prepared page.
pub(super) async fn list(
    gateway: &Gateway,
    caller: &Arc<Caller>,
    era: ClientEra,
    (kind, names): (OfferKind, ToolNames),
    after: Option<&str>,
) -> Result<Bytes, RpcError> {
    // URIs have one spelling
    let names = if kind == OfferKind::Prompt { names } else { ToolNames::Colon };
    let tenant = caller.tenant_id();
    while_current(gateway, caller, |catalogue, view| async move {
        let from = after.map(|name| view.offers.position_after(&catalogue, kind, name));
        let print = view.offers.print(kind);
        let key = ListKey { tenant, print, reader: era.reader(), names, manages: None, from };
        let from = from.unwrap_or_default();
        let body = gateway.tenants.list_body(key, caller, move || {
            let page = view.offers.page(&catalogue, kind, from, names);
            let (bytes, next, turn) = (page.bytes, page.next.map(|(_, at)| at), catalogue.turn());
            drop(page);
            let make = move || body(era, (kind, names), &catalogue, &view, from);
            ListPlan { bytes, next, make, turn }
        });
        body.await.map_err(|refusal| RpcError::rate_limited(era, &refusal))
    })
    .await
}

fn body(
    era: ClientEra,
    (kind, names): (OfferKind, ToolNames),
    catalogue: &Catalog,
    view: &DirectView,
    from: usize,
) -> String {
    let page = view.offers.page(catalogue, kind, from, names);
    let mut items = String::from("[");
    for (offer, name) in page.offers {
        if let Some(part) = offer.part() {
            part.write(name, begin(&mut items));
        }
    }
    items.push(']');
    let member = match kind {
        OfferKind::Prompt => "prompts",
        OfferKind::Resource => "resources",
        OfferKind::Template => "resourceTemplates",
    };
    finished(era, member, &items, page.next.map(|(last, _)| last))
}

impl McpCall<'_> {
    /// Runs `prompts/get`, `resources/read` or `completion/complete`.
    pub(super) async fn ask(self, method: &str) -> Result<Response, RpcError> {
        let asked = self.offer_request(method)?;
        let (render, about): (Render, OperationSubject) = match &asked.wanted {
            Wanted::Prompt(name) => (prompt_outcome, OperationSubject::Prompt("prompts/get", name.clone())),
            Wanted::PromptCompletion(name) => {
                (prompt_outcome, OperationSubject::Prompt("completion/complete", name.clone()))
            }
            Wanted::Resource(uri) => (resource_outcome, OperationSubject::Resource(uri.clone())),
            Wanted::TemplateCompletion(_) => (prompt_outcome, OperationSubject::Other),
        };
        let round = match &asked.wanted {
            Wanted::Prompt(_) | Wanted::Resource(_) => self.round().map_err(RpcError::invalid_params)?,
            Wanted::PromptCompletion(_) | Wanted::TemplateCompletion(_) => RoundRequest::default(),
        };
        let meta = self.forwarded_meta().map_err(RpcError::invalid_params)?;
        let mut request = CallRequest::new(Callee::Offer(asked));
        (request.meta, request.round) = (meta, round);
        let to = self.to(render, about);
        Ok(self.pass_on(request, to).await)
    }

    fn offer_request(&self, method: &str) -> Result<OfferRequest, RpcError> {
        let (wanted, named) = match method {
            "prompts/get" => (Wanted::Prompt(self.text("name")?), &["arguments"][..]),
            "resources/read" => (Wanted::Resource(self.text("uri")?), &[][..]),
            _ => (self.reference()?, &["ref", "argument", "context"][..]),
        };
        let mut members = Vec::new();
        for name in named.iter().copied() {
            match self.value(name) {
                None | Some("null") if name != "argument" => {}
                Some(raw) if raw.starts_with('{') => {
                    members.push((name, self.body.slice_ref(raw.as_bytes())));
                }
                _ => {
                    return Err(RpcError::invalid_params(format!(
                        "Invalid params: {name} must be an object"
                    )));
                }
            }
        }
        Ok(OfferRequest { wanted, members })
    }

    /// Returns the prompt or template whose argument is to be completed.
    fn reference(&self) -> Result<Wanted, RpcError> {
        let invalid = || RpcError::invalid_params("Invalid params: ref must name a prompt or a template");
        let [kind, name, uri] =
            json::find_members(self.value("ref").unwrap_or("null"), ["type", "name", "uri"])
                .map_err(|_| invalid())?;
        let text = |raw: Option<&str>| raw.and_then(|raw| serde_json::from_str::<String>(raw).ok());
        match text(kind).as_deref() {
            Some("ref/prompt") => text(name).map(Wanted::PromptCompletion),
            Some("ref/resource") => text(uri).map(Wanted::TemplateCompletion),
            _ => None,
        }
        .ok_or_else(invalid)
    }

    fn text(&self, name: &str) -> Result<String, RpcError> {
        let text = self.value(name).and_then(|raw| serde_json::from_str(raw).ok());
        text.ok_or_else(|| RpcError::invalid_params(format!("Invalid params: {name} must be a string")))
    }

    fn value(&self, name: &str) -> Option<&str> {
        self.params.iter().find(|member| member.name == name).map(|member| member.value)
    }
}

fn prompt_outcome(to: &To, outcome: &CallOutcome) -> (Answered, End) {
    let unknown = |about: &Refused| RpcError::invalid_params(about.refusal.message.as_str());
    answered(to, outcome, unknown, |raw, head| spliced(to.era, &to.id, raw, head, &Splice::default()))
}

fn resource_outcome(to: &To, outcome: &CallOutcome) -> (Answered, End) {
    let unknown = |about: &Refused| RpcError::no_resource(to.era, about.tool.as_deref());
    answered(to, outcome, unknown, |raw, head| read(to, raw, head))
}

/// Returns the message with a resource. Only the modern revision has members about caching.
fn read(to: &To, raw: &Bytes, head: &ResultHead) -> Text {
    let text = std::str::from_utf8(raw).unwrap_or_default();
    let [ttl, scope] = json::find_members(text, ["ttlMs", "cacheScope"]).unwrap_or_default();
    let mut without = Vec::new();
    let mut added = Vec::new();
    if to.era == ClientEra::Modern {
        if scope != Some(r#""private""#) {
            without.extend(scope.map(|_| "cacheScope"));
            added.push(PRIVATE);
        }
        if !ttl.is_some_and(|ttl| ttl.bytes().all(|byte| byte.is_ascii_digit())) {
            without.extend(ttl.map(|_| "ttlMs"));
            added.push(NOT_KEPT);
        }
    } else if head.has_result_type {
        without.extend(["ttlMs", "cacheScope"]);
    }
    spliced(to.era, &to.id, raw, head, &Splice { without: &without, added: &added, ..Splice::default() })
}

/// Returns the answer to an outcome, and the end of the request. These methods have no result that can carry a refusal, so a
/// refusal becomes an error.
fn answered(
    to: &To,
    outcome: &CallOutcome,
    unknown: impl Fn(&Refused) -> RpcError,
    passed_on: impl Fn(&Bytes, &ResultHead) -> Text,
) -> (Answered, End) {
    match outcome {
        CallOutcome::Result { raw, head, .. } => {
            (Answered::Message(passed_on(raw, head)), End::result(head.is_error))
        }
        CallOutcome::InputRequired { raw, state, .. } => result::question(&to.id, raw, state.as_ref()),
        CallOutcome::InvalidState => result::failed(RpcError::invalid_state()),
        CallOutcome::UpstreamError { raw, code } => upstream_error(to, raw, *code),
        CallOutcome::Refused(about) => {
            let refusal = &about.refusal;
            match refusal.code {
                Code::NotFound => result::failed(unknown(about)),
                Code::RateLimited => result::failed(RpcError::rate_limited(to.era, refusal)),
                Code::Cancelled => {
                    let error = RpcError::refusal(refusal);
                    // a client that reads streams gets no message at all
                    let end = if to.streams { End::GIVEN_UP } else { error.end() };
                    (Answered::Withdrawn(Text::Whole(error.text(Some(&to.id)))), end)
                }
                _ => result::failed(RpcError::refusal(refusal)),
            }
        }
    }
}

/// Returns an upstream's error as it came, except for a code that the client's revision does not have.
fn upstream_error(to: &To, raw: &Bytes, code: i64) -> (Answered, End) {
    let shown = code_in(to.era, code);
    if shown == code {
        return result::upstream_error(to.era, &to.id, raw, code);
    }
    let text = std::str::from_utf8(raw).unwrap_or_default();
    let error = json::with_member_first(&json::without_members(text, &["code"]), "code", &shown.to_string());
    (Answered::Message(Text::whole(&to.id, "error", &Bytes::from(error))), served(shown))
}
