//! Tools that ask back: in rounds, as revision 2026-07-28 does, and in the middle of a call, as the handshake revisions
//! do.

use rmcp::model::{
    CallToolRequestParams, CallToolResponse, ClientCapabilities, GetPromptResponse, InputRequests,
    InputRequiredResult, InputResponses, JsonObject, RequestStateCodec,
};
use rmcp::service::RequestContext;
use rmcp::{ErrorData, RoleServer};
use serde_json::{Value, json};

use crate::{finished, tools, typed};

/// Seals states; a server for others than tests keeps such a key to itself.
const STATE_KEY: &[u8] = b"the key of states of the conformance fixture";

fn codec() -> RequestStateCodec {
    RequestStateCodec::new_unchecked(STATE_KEY)
}

fn seal(state: &Value) -> Result<String, ErrorData> {
    codec().seal_json(state).map_err(|error| ErrorData::internal_error(error.to_string(), None))
}

fn open(sealed: &str) -> Result<Value, ErrorData> {
    codec().open_json(sealed).map_err(|_| ErrorData::invalid_params("requestState is not ours", None))
}

/// A form with one text.
pub fn form(message: &str, field: &str) -> Value {
    let schema = json!({"type": "object", "properties": {field: {"type": "string"}}, "required": [field]});
    json!({"method": "elicitation/create",
        "params": {"mode": "form", "message": message, "requestedSchema": schema}})
}

fn sampling(prompt: &str) -> Value {
    let message = json!({"role": "user", "content": {"type": "text", "text": prompt}});
    json!({"method": "sampling/createMessage", "params": {"messages": [message], "maxTokens": 100}})
}

fn roots() -> Value {
    json!({"method": "roots/list"})
}

fn required(requests: Value, state: Option<String>) -> Result<InputRequiredResult, ErrorData> {
    let requests: InputRequests = typed(requests)?;
    Ok(InputRequiredResult::new(Some(requests), state))
}

fn ask(requests: Value, state: Option<String>) -> Result<Option<CallToolResponse>, ErrorData> {
    Ok(Some(CallToolResponse::InputRequired(required(requests, state)?)))
}

fn done(said: &str) -> Result<Option<CallToolResponse>, ErrorData> {
    Ok(Some(CallToolResponse::Complete(finished(tools::text(said))?)))
}

/// An answer that is none is asked for again.
fn answer<'a>(responses: Option<&'a InputResponses>, key: &str) -> Option<&'a Value> {
    responses?.get(key).filter(|answer| answer.is_object())
}

/// A prompt that asks what it is about.
pub fn prompt(responses: Option<&InputResponses>) -> Result<GetPromptResponse, ErrorData> {
    let Some(answer) = answer(responses, "user_context") else {
        let requests = json!({"user_context": form("What is it about?", "context")});
        return Ok(GetPromptResponse::InputRequired(required(requests, None)?));
    };
    let context = answer.pointer("/content/context").and_then(Value::as_str).unwrap_or_default();
    let message =
        json!({"role": "user", "content": {"type": "text", "text": format!("It is about {context}")}});
    Ok(GetPromptResponse::Complete(finished(json!({"messages": [message]}))?))
}

/// The answer of a tool that asks in rounds; `None` for all others.
pub fn in_rounds(
    name: &str,
    request: &CallToolRequestParams,
    context: &RequestContext<RoleServer>,
) -> Result<Option<CallToolResponse>, ErrorData> {
    let responses = request.input_responses.as_ref();
    let state = request.request_state.as_deref();
    let declared = context.meta.client_capabilities();
    let is_modern = declared.is_some();
    let capabilities = declared.unwrap_or_default();
    let arguments = request.arguments.clone().unwrap_or_default();
    match name.trim_start_matches("test_").trim_start_matches("input_required_result_") {
        "missing_capability" if capabilities.sampling.is_none() => {
            let needed = ClientCapabilities::builder().enable_sampling().build();
            Err(ErrorData::missing_required_client_capability(needed))
        }
        "missing_capability" => done("the client can sample"),
        "streaming_elicitation" => ask(json!({"value": form("A value?", "value")}), None),
        // these ask in the middle of the call in the other era
        "sampling" if name == "test_sampling" && is_modern => match answer(responses, "answer") {
            None => ask(json!({"answer": sampling(prompt_of(&arguments))}), None),
            Some(told) => done(&sampled(told)),
        },
        "elicitation" | "elicitation_sep1034_defaults" | "elicitation_sep1330_enums"
            if is_modern && name.starts_with("test_elicitation") =>
        {
            match answer(responses, "answer") {
                None => {
                    let params = elicitation(name, &arguments);
                    ask(json!({"answer": {"method": "elicitation/create", "params": params}}), None)
                }
                Some(told) => done(&elicited(told)),
            }
        }
        "elicitation" if name != "test_elicitation" => match answer(responses, "user_name") {
            None => ask(json!({"user_name": form("What is your name?", "name")}), None),
            Some(told) => {
                let name = told.pointer("/content/name").and_then(Value::as_str).unwrap_or_default();
                done(&format!("Hello, {name}!"))
            }
        },
        "sampling" if name != "test_sampling" => match answer(responses, "capital_question") {
            None => ask(json!({"capital_question": sampling("What is the capital of France?")}), None),
            Some(told) => done(&format!("The model says {}", told["content"])),
        },
        "list_roots" => match answer(responses, "client_roots") {
            None => ask(json!({"client_roots": roots()}), None),
            Some(told) => done(&format!("The roots are {}", told["roots"])),
        },
        "request_state" | "tampered_state" => match state {
            None => ask(json!({"confirm": form("Is it?", "ok")}), Some(seal(&json!({"step": 1}))?)),
            Some(sealed) => open(sealed).and_then(|_| done("Confirmed: state-ok")),
        },
        "multiple_inputs" => all_at_once(responses, state),
        "multi_round" => step_by_step(state),
        "capabilities" if responses.is_some() => done("answered"),
        "capabilities" => what_it_can(&capabilities),
        _ => Ok(None),
    }
}

fn three() -> Value {
    json!({
        "user_name": form("What is your name?", "name"),
        "greeting": sampling("Say hello"),
        "client_roots": roots(),
    })
}

fn all_at_once(
    responses: Option<&InputResponses>,
    state: Option<&str>,
) -> Result<Option<CallToolResponse>, ErrorData> {
    let opened = state.map(open).transpose()?;
    let has_all =
        ["user_name", "greeting", "client_roots"].iter().all(|key| answer(responses, key).is_some());
    match opened {
        Some(_) if has_all => done("All inputs received"),
        _ => ask(three(), Some(seal(&json!({"step": 1}))?)),
    }
}

fn step_by_step(state: Option<&str>) -> Result<Option<CallToolResponse>, ErrorData> {
    let round = state.map(open).transpose()?.map_or(0, |state| state["round"].as_u64().unwrap_or_default());
    let next = Some(seal(&json!({"round": round + 1}))?);
    match round {
        0 => ask(json!({"step1": form("What is your name?", "name")}), next),
        1 => ask(json!({"step2": form("Which colour?", "color")}), next),
        _ => done("Both rounds are over"),
    }
}

fn what_it_can(capabilities: &ClientCapabilities) -> Result<Option<CallToolResponse>, ErrorData> {
    let mut requests = three();
    let can = [
        ("user_name", capabilities.elicitation.is_some()),
        ("greeting", capabilities.sampling.is_some()),
        ("client_roots", capabilities.roots.is_some()),
    ];
    if let Some(requests) = requests.as_object_mut() {
        for (key, _) in can.into_iter().filter(|(_, can)| !can) {
            requests.remove(key);
        }
    }
    if can.iter().any(|(_, can)| *can) { ask(requests, None) } else { done("there is nobody to ask") }
}

fn prompt_of(arguments: &JsonObject) -> &str {
    arguments.get("prompt").and_then(Value::as_str).unwrap_or_default()
}

fn sampled(told: &Value) -> String {
    format!("LLM response: {}", told["content"])
}

fn elicited(told: &Value) -> String {
    let action = told["action"].as_str().unwrap_or_default();
    format!("User response: action={action}, content={}", told["content"])
}

/// Asks the client's model before it answers.
pub async fn sample(
    arguments: &JsonObject,
    context: &RequestContext<RoleServer>,
) -> Result<Value, ErrorData> {
    let request = typed(sampling(prompt_of(arguments))["params"].take())?;
    Ok(match context.peer.create_message(request).await {
        Ok(told) => tools::text(&sampled(&serde_json::to_value(told).unwrap_or_default())),
        Err(error) => failed(&error.to_string()),
    })
}

/// Asks the client's user before it answers.
pub async fn elicit(
    name: &str,
    arguments: &JsonObject,
    context: &RequestContext<RoleServer>,
) -> Result<Value, ErrorData> {
    let request = typed(elicitation(name, arguments))?;
    Ok(match context.peer.create_elicitation(request).await {
        Ok(told) => tools::text(&elicited(&serde_json::to_value(told).unwrap_or_default())),
        Err(error) => failed(&error.to_string()),
    })
}

/// The form of a tool, as `params`.
fn elicitation(name: &str, arguments: &JsonObject) -> Value {
    let message = arguments.get("message").and_then(Value::as_str).unwrap_or("Please tell");
    let schema = match name {
        "test_elicitation_sep1034_defaults" => with_defaults(),
        "test_elicitation_sep1330_enums" => with_choices(),
        _ => json!({"type": "object", "required": ["username", "email"],
            "properties": {"username": {"type": "string"}, "email": {"type": "string"}}}),
    };
    json!({"mode": "form", "message": message, "requestedSchema": schema})
}

fn failed(why: &str) -> Value {
    let mut result = tools::text(why);
    result["isError"] = json!(true);
    result
}

fn with_defaults() -> Value {
    json!({"type": "object", "properties": {
        "name": {"type": "string", "default": "John Doe"},
        "age": {"type": "integer", "default": 30},
        "score": {"type": "number", "default": 95.5},
        "status": {"type": "string", "enum": ["active", "inactive", "pending"], "default": "active"},
        "verified": {"type": "boolean", "default": true},
    }})
}

fn with_choices() -> Value {
    let titled = json!([
        {"const": "value1", "title": "First Option"},
        {"const": "value2", "title": "Second Option"},
        {"const": "value3", "title": "Third Option"},
    ]);
    let plain = json!(["option1", "option2", "option3"]);
    json!({"type": "object", "properties": {
        "untitledSingle": {"type": "string", "enum": plain},
        "titledSingle": {"type": "string", "oneOf": titled},
        "legacyEnum": {"type": "string", "enum": ["opt1", "opt2", "opt3"],
            "enumNames": ["Option One", "Option Two", "Option Three"]},
        "untitledMulti": {"type": "array", "items": {"type": "string", "enum": plain}},
        "titledMulti": {"type": "array", "items": {"anyOf": titled}},
    }})
}
