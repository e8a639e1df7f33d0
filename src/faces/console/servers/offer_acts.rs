//! Acts on prompts, resources and templates of servers.

use std::sync::Arc;

use axum::extract::Path;
use axum::response::Response;

use super::offers::{href_of_offer, href_of_offers};
use super::verbs::OfferVerb;
use super::{needs_name, notices, tool_of};
use crate::domain::id::is_name;
use crate::domain::offer::OfferKind;
use crate::faces::console::act::{VisitorAct, perform};
use crate::faces::console::done::with_notice;
use crate::faces::console::nav::Section;
use crate::faces::console::page_visit::PageVisit;
use crate::faces::query::offer;
use crate::gateway::{GatewayError, OfferName};

/// Does something about the offer that the form names, and shows it.
pub(in crate::faces::console) async fn on_offer(
    Path((server, verb)): Path<(String, String)>,
    visit: PageVisit,
) -> Response {
    let name = tool_of(visit.field("offer"));
    // a form from elsewhere may name no kind; as over REST, that of a resource is the default
    let kind = OfferKind::parse(visit.field("kind")).unwrap_or(OfferKind::Resource);
    let of = OfferName { server: &server, kind, name: &name };
    match act_on_offer(&visit, of, &verb).await {
        Ok(notice) => {
            let to = with_notice(&visit, &href_of_offer(of), &notice);
            visit.answer_act(Section::Servers, &to, Ok(()))
        }
        Err(error @ GatewayError::NotFound("server" | "page")) => visit.failed(Section::Servers, &error),
        Err(error) if !is_name(&server) => visit.failed(Section::Servers, &error),
        Err(error @ GatewayError::NotFound(_)) => {
            let words = format!("Prompts and resources of {server}");
            visit.failed_about(Section::Servers, &error, (&href_of_offers(&server), &words))
        }
        Err(error) => {
            let words = format!("The {} {}", kind.as_str(), notices::short_name(&name));
            visit.failed_about(Section::Servers, &error, (&href_of_offer(of), &words))
        }
    }
}

/// Does something about an offer, and returns the notice of it.
async fn act_on_offer(visit: &PageVisit, of: OfferName<'_>, verb: &str) -> Result<String, GatewayError> {
    let verb = OfferVerb::parse(verb).ok_or(GatewayError::NotFound("page"))?;
    let pin = visit.field("pin").to_owned();
    let (server, kind, name) = (of.server.to_owned(), of.kind, of.name.to_owned());
    let mut fields = match kind {
        OfferKind::Prompt => vec![("prompt", name.clone())],
        OfferKind::Resource | OfferKind::Template => {
            vec![("kind", kind.as_str().to_owned()), ("uri", name.clone())]
        }
    };
    if verb == OfferVerb::Approve {
        fields.push(("pin", pin.clone()));
    }
    let known = is_name(&server).then(|| server.clone());
    let act = VisitorAct { server: known, fields, ..verb.act(kind) };
    let (gateway, caller) = (Arc::clone(visit.gateway()), Arc::clone(visit.caller()));
    let work = async move {
        needs_name(&server)?;
        let servers = &gateway.servers;
        let named = OfferName { server: &server, kind, name: &name };
        let named = offer::named(servers, &caller, named).await?;
        match verb {
            OfferVerb::Approve => servers.approve_offer(&caller, named, &pin).await,
            OfferVerb::Block => servers.block_offer(&caller, named).await,
            OfferVerb::Unblock => servers.unblock_offer(&caller, named).await,
        }
    };
    Ok(notices::of_offer(verb, &perform(visit, act, work).await?))
}
