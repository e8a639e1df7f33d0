//! Acts of the page: a call is made, or only looked at.

use std::borrow::Cow;

use axum::extract::Path;
use axum::response::Response;
use http::StatusCode;
use percent_encoding::percent_decode_str;

use super::asked::AskedShown;
use super::outcome::OutcomeShown;
use super::{AskedCall, WHAT, described, find, forecast, form_of};
use crate::domain::activity::RecordKind;
use crate::domain::json;
use crate::domain::operation::Variant;
use crate::domain::refusal::Code;
use crate::domain::risk::Sensitivity;
use crate::domain::tenant::Action;
use crate::faces::console::nav::Section;
use crate::faces::console::page_visit::PageVisit;
use crate::faces::console::text::not_an_object;
use crate::faces::query::cursor::DEFINITIONS_MEMORY_BYTES;
use crate::gateway::{CallOutcome, CallRequest, Callee, CancelBy, Door, GatewayError, RefusedAttempt};

/// Button of the form.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Step {
    /// Says what would become of the call.
    Check,
    /// Makes the call.
    Call,
}

/// Makes a call or looks at one, and shows what came of it.
pub(in crate::faces::console) async fn on_tools(Path(verb): Path<String>, visit: PageVisit) -> Response {
    let step = match verb.as_str() {
        // both buttons are of one form
        "call" if visit.field("step") == "check" => Step::Check,
        "call" => Step::Call,
        _ => return visit.failed(Section::Try, &GatewayError::NotFound("page")),
    };
    let allowed = visit.allowed(visit.attempt(), Action::UseTools);
    match (allowed, step) {
        (Err(error), Step::Check) => visit.answer_read((WHAT, None), Section::Try, Err(error)),
        (Err(error), Step::Call) => {
            let tool = tool_of(&visit);
            let message = error.to_string();
            let refused = RefusedAttempt {
                kind: RecordKind::ToolCall,
                tool: Some(&tool),
                body: None,
                code: "forbidden",
                message: &message,
            };
            visit.gateway().log.record_refused(visit.attempt(), &refused);
            visit.failed(Section::Try, &error)
        }
        (Ok(()), step) => {
            let page = Box::pin(page(&visit, step)).await;
            page.unwrap_or_else(|error| visit.failed(Section::Try, &error))
        }
    }
}

/// Reads the name of the tool. A text that is no name is one that no tool has.
fn tool_of(visit: &PageVisit) -> String {
    percent_decode_str(visit.field("tool")).decode_utf8().map(Cow::into_owned).unwrap_or_default()
}

async fn page(visit: &PageVisit, step: Step) -> Result<Response, GatewayError> {
    let variant = Variant::parse(visit.field("tool_variant")).ok_or_else(|| {
        let words = Variant::WORDS.join(", ");
        GatewayError::invalid("tool_variant", format!("tool_variant must be one of: {words}"))
    })?;
    let asked = AskedCall {
        tool: tool_of(visit),
        variant,
        sensitivity: Sensitivity::parse(visit.field("sensitivity")).map(Sensitivity::as_str),
        reason: visit.field("reason").trim().to_owned(),
        json: visit.field("args").trim().to_owned(),
    };
    visit.expect(DEFINITIONS_MEMORY_BYTES).await?;
    let found = find(visit, &asked.tool).ok();
    let mut form = found.as_ref().map(|(tool, _)| form_of(tool)).unwrap_or_default();
    form.fill(|name| visit.field(name).to_owned());
    let arguments = match asked.json.as_str() {
        "" => form.arguments(),
        // the pipeline finds no duplicates by itself
        text => json::members_of_text(text)
            .map(|_| text.to_owned())
            .map_err(|fault| format!("All arguments as JSON: {}", not_an_object(text, &fault))),
    };
    let is_json_faulty = !asked.json.is_empty() && arguments.is_err();
    let missing = if asked.json.is_empty() { form.mark_missing() } else { Vec::new() };
    let mut followed = None;
    let mut failure = (!missing.is_empty()).then(|| needed(&missing));
    let (mut foreseen, mut outcome, mut is_understood) = (None, None, true);
    match (arguments, step) {
        (Err(fault), step) => {
            if step == Step::Call {
                let refused = RefusedAttempt {
                    kind: RecordKind::ToolCall,
                    tool: Some(&asked.tool),
                    body: None,
                    code: "invalid_arguments",
                    message: &fault,
                };
                visit.gateway().log.record_refused(visit.attempt(), &refused);
            }
            let needed = failure.map(|needed| format!(" {needed}")).unwrap_or_default();
            failure =
                Some(format!("The arguments were not understood, and nothing was run. {fault}.{needed}"));
            is_understood = false;
        }
        (Ok(arguments), Step::Check) => {
            foreseen = Some(forecast::whole(visit, variant, asked.request(arguments)).await);
        }
        (Ok(arguments), Step::Call) => {
            // the answer of the call takes memory of its own, for as long as it runs
            visit.release();
            let request = CallRequest::new(Callee::Tool(Door::Variant(variant), asked.request(arguments)));
            let calls = &visit.gateway().calls;
            let done = calls.run(visit.attempt().clone(), request, CancelBy::Nothing).await;
            visit.expect(DEFINITIONS_MEMORY_BYTES).await?;
            // other refusals about a request say more than the state of the request does
            if let CallOutcome::Refused(refused) = &done
                && matches!(
                    refused.refusal.code,
                    Code::ConsentPending | Code::ConsentDenied | Code::ConsentTimedOut
                )
            {
                followed = AskedShown::of(visit, &asked.tool, &refused.refusal).await;
            }
            outcome = Some(OutcomeShown::of(visit, &done));
        }
    }
    let Some((tool, tier)) = found else {
        // the pipeline has refused and recorded it, as that of any tool that does not exist
        return Err(GatewayError::NotFound("tool"));
    };
    let mut page = described(visit, (&tool, tier), &asked);
    page.is_json_faulty = is_json_faulty;
    let status = if is_understood { StatusCode::OK } else { StatusCode::BAD_REQUEST };
    if let Some(followed) = followed {
        page.follow(followed);
    }
    (page.form, page.failure, page.forecast, page.outcome) = (form, failure, foreseen, outcome);
    visit.show(status, &page).await
}

/// Returns the sentence about needed fields that are empty.
fn needed(missing: &[String]) -> String {
    match missing {
        [one] => format!("A needed field is empty: {one}."),
        all => format!("Needed fields are empty: {}.", all.join(", ")),
    }
}
