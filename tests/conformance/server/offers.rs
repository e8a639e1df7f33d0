//! Prompts and resources, and the completion of their arguments.

use rmcp::ErrorData;
use rmcp::model::{
    CacheScope, CompleteRequestParams, CompleteResult, CompletionInfo, GetPromptRequestParams,
    GetPromptResponse, ReadResourceResponse, ReadResourceResult,
};
use serde_json::{Value, json};

use crate::tools::IMAGE;
use crate::{asking, finished};

/// Every resource.
pub fn resources() -> Value {
    json!([
        {"uri": "test://static-text", "name": "Static text", "mimeType": "text/plain"},
        {"uri": "test://static-binary", "name": "Static image", "mimeType": "image/png"},
        // the suite subscribes to it; the gateway knows only what is listed
        {"uri": "test://watched-resource", "name": "Watched resource", "mimeType": "text/plain"},
    ])
}

/// Every template.
pub fn templates() -> Value {
    json!([{"uriTemplate": "test://template/{id}/data", "name": "Data by id", "mimeType": "application/json"}])
}

/// The contents of a resource.
pub fn read(uri: &str, ttl_ms: u64) -> Result<ReadResourceResponse, ErrorData> {
    let id = uri.strip_prefix("test://template/").and_then(|rest| rest.strip_suffix("/data"));
    let contents = match (uri, id) {
        ("test://static-text", _) => {
            json!({"uri": uri, "mimeType": "text/plain", "text": "This is the content of the static text resource."})
        }
        ("test://watched-resource", _) => json!({"uri": uri, "mimeType": "text/plain", "text": "Watched."}),
        ("test://static-binary", _) => json!({"uri": uri, "mimeType": "image/png", "blob": IMAGE}),
        (_, Some(id)) => {
            let text = json!({"id": id, "templateTest": true, "data": format!("Data for ID: {id}")});
            json!({"uri": uri, "mimeType": "application/json", "text": text.to_string()})
        }
        _ => return Err(ErrorData::resource_not_found("no such resource", Some(json!({ "uri": uri })))),
    };
    let result: ReadResourceResult = finished(json!({"contents": [contents]}))?;
    Ok(result.with_ttl_ms(ttl_ms).with_cache_scope(CacheScope::Public).into())
}

/// Every prompt, after so many changes.
pub fn prompts(changes: u64) -> Value {
    json!([
        {"name": "test_simple_prompt", "description": "No arguments"},
        {"name": "test_prompt_with_arguments", "description": "Two arguments", "arguments": [
            {"name": "arg1", "description": "First test argument", "required": true},
            {"name": "arg2", "description": "Second test argument", "required": true},
        ]},
        {"name": "test_prompt_with_embedded_resource", "description": "A resource in it", "arguments": [
            {"name": "resourceUri", "description": "Which", "required": true},
        ]},
        {"name": "test_prompt_with_image", "description": "An image in it"},
        {"name": "test_input_required_result_prompt", "description": "Asks the user"},
        {"name": "test_changing_prompt", "description": format!("Changed so often: {changes}")},
    ])
}

/// What a prompt says.
pub fn prompt(request: &GetPromptRequestParams) -> Result<GetPromptResponse, ErrorData> {
    let said = |argument: &str| {
        let arguments = request.arguments.as_ref();
        arguments.and_then(|all| all.get(argument)).and_then(Value::as_str).unwrap_or_default()
    };
    let text = |text: &str| json!({"role": "user", "content": {"type": "text", "text": text}});
    let messages = match request.name.as_str() {
        "test_input_required_result_prompt" => return asking::prompt(request.input_responses.as_ref()),
        "test_simple_prompt" | "test_changing_prompt" => {
            json!([text("This is a simple prompt for testing.")])
        }
        "test_prompt_with_arguments" => {
            let (first, second) = (said("arg1"), said("arg2"));
            json!([text(&format!("Prompt with arguments: arg1='{first}', arg2='{second}'"))])
        }
        "test_prompt_with_embedded_resource" => json!([
            {"role": "user", "content": {"type": "resource", "resource": {
                "uri": said("resourceUri"), "mimeType": "text/plain", "text": "Embedded resource content for testing."}}},
            text("Please process the embedded resource above."),
        ]),
        "test_prompt_with_image" => json!([
            {"role": "user", "content": {"type": "image", "data": IMAGE, "mimeType": "image/png"}},
            text("Please analyze the image above."),
        ]),
        name => return Err(ErrorData::invalid_params(format!("no prompt {name}"), None)),
    };
    Ok(GetPromptResponse::Complete(finished(json!({ "messages": messages }))?))
}

/// Values for an argument, of a prompt or of a template.
pub fn complete(request: &CompleteRequestParams) -> Result<CompleteResult, ErrorData> {
    let begun = &request.argument.value;
    let values = ["paris", "park", "party"].into_iter().filter(|value| value.starts_with(begun.as_str()));
    let info = CompletionInfo::new(values.map(str::to_owned).collect());
    Ok(CompleteResult::new(info.map_err(|error| ErrorData::internal_error(error, None))?))
}
