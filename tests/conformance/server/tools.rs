//! Tools that answer by themselves.

use rmcp::model::{
    JsonObject, LoggingLevel, LoggingMessageNotificationParam, ProgressNotificationParam, Tool,
};
use rmcp::service::RequestContext;
use rmcp::{ErrorData, RoleServer};
use serde_json::{Value, json};

use crate::typed;

/// A PNG of one pixel.
pub const IMAGE: &str =
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8/5+hHgAHggJ/PchI7wAAAABJRU5ErkJggg==";
/// A WAV without a sample.
const AUDIO: &str = "UklGRiQAAABXQVZFZm10IBAAAAABAAEARKwAAIhYAQACABAAZGF0YQAAAAA=";
/// Between two messages of one call.
const PAUSE: std::time::Duration = std::time::Duration::from_millis(50);

/// Tools without arguments, and what they are for.
const SIMPLE: [(&str, &str); 25] = [
    ("test_simple_text", "A text"),
    ("test_image_content", "An image"),
    ("test_audio_content", "A sound"),
    ("test_embedded_resource", "A resource in the result"),
    ("test_multiple_content_types", "Text, image and resource"),
    ("test_error_handling", "An error"),
    ("test_tool_with_logging", "Log messages while it runs"),
    ("test_logging_tool", "A log message if the request asks for some"),
    ("test_tool_with_progress", "Progress while it runs"),
    ("test_reconnection", "A text after a moment"),
    ("test_elicitation_sep1034_defaults", "Asks the user, with defaults"),
    ("test_elicitation_sep1330_enums", "Asks the user, with choices"),
    ("test_trigger_tool_change", "Changes the list of tools"),
    ("test_trigger_prompt_change", "Changes the list of prompts"),
    ("test_missing_capability", "Needs a client that samples"),
    ("test_streaming_elicitation", "Asks the user in a result"),
    ("test_input_required_result_elicitation", "Asks the user"),
    ("test_input_required_result_sampling", "Asks the model"),
    ("test_input_required_result_list_roots", "Asks for roots"),
    ("test_input_required_result_request_state", "Asks with a state"),
    ("test_input_required_result_tampered_state", "Looks at the state that comes back"),
    ("test_input_required_result_multiple_inputs", "Asks three things at once"),
    ("test_input_required_result_multi_round", "Asks twice"),
    ("test_input_required_result_capabilities", "Asks what the client can answer"),
    ("test_changing", "Has another description after each change"),
];

/// Every tool, after so many changes.
pub fn definitions(changes: u64) -> Result<Vec<Tool>, ErrorData> {
    let mut tools: Vec<Value> = Vec::new();
    for (name, description) in SIMPLE {
        let description = match name {
            "test_changing" => format!("{description}: {changes}"),
            _ => description.to_owned(),
        };
        tools.push(
            json!({"name": name, "description": description, "inputSchema": {"type": "object", "properties": {}}}),
        );
    }
    for (name, argument) in [("test_sampling", "prompt"), ("test_elicitation", "message")] {
        let schema =
            json!({"type": "object", "properties": {argument: {"type": "string"}}, "required": [argument]});
        tools.push(
            json!({"name": name, "description": "Asks in the middle of a call", "inputSchema": schema}),
        );
    }
    tools.push(
        json!({"name": "test_custom_header", "description": "Has an argument that is sent as a header",
        "inputSchema": {"type": "object", "required": ["value"],
            "properties": {"value": {"type": "string", "x-mcp-header": "Value"}}}}),
    );
    tools.push(json!({"name": "json_schema_2020_12_tool", "description": "Has a schema of revision 2020-12",
        "inputSchema": rich_schema()}));
    typed(Value::Array(tools))
}

fn rich_schema() -> Value {
    json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "type": "object",
        "$defs": {"address": {"$anchor": "address", "type": "object",
            "properties": {"street": {"type": "string"}, "city": {"type": "string"}}}},
        "properties": {"name": {"type": "string"}, "address": {"$ref": "#/$defs/address"}},
        "allOf": [{"anyOf": [{"required": ["name"]}, {"required": ["address"]}]}],
        "if": {"required": ["address"]},
        "then": {"properties": {"address": {"required": ["street"]}}},
        "else": {"required": ["name"]},
        "additionalProperties": false
    })
}

/// A result that is this text.
pub fn text(text: &str) -> Value {
    json!({"content": [{"type": "text", "text": text}]})
}

fn embedded(uri: &str, mime: &str, text: &str) -> Value {
    json!({"type": "resource", "resource": {"uri": uri, "mimeType": mime, "text": text}})
}

/// The result of a tool that has always the same.
pub fn fixed(name: &str, arguments: &JsonObject) -> Option<Value> {
    let said = |argument: &str| arguments.get(argument).and_then(Value::as_str).unwrap_or_default();
    let image = json!({"type": "image", "data": IMAGE, "mimeType": "image/png"});
    let content = match name {
        "test_simple_text" => return Some(text("This is a simple text response for testing.")),
        "test_reconnection" | "test_changing" => return Some(text("done")),
        "json_schema_2020_12_tool" => return Some(text(&format!("Hello, {}!", said("name")))),
        "test_custom_header" => return Some(text(said("value"))),
        "test_error_handling" => {
            let mut result = text("This tool intentionally returns an error for testing");
            result["isError"] = json!(true);
            return Some(result);
        }
        "test_image_content" => json!([image]),
        "test_audio_content" => json!([{"type": "audio", "data": AUDIO, "mimeType": "audio/wav"}]),
        "test_embedded_resource" => json!([embedded(
            "test://embedded-resource",
            "text/plain",
            "This is an embedded resource content."
        )]),
        "test_multiple_content_types" => json!([
            {"type": "text", "text": "Multiple content types test:"},
            image,
            embedded("test://mixed-content-resource", "application/json", r#"{"test":"data","value":123}"#),
        ]),
        _ => return None,
    };
    Some(json!({ "content": content }))
}

async fn log(context: &RequestContext<RoleServer>, level: LoggingLevel, message: &str) {
    let message = LoggingMessageNotificationParam::new(level, json!(message)).with_logger("conformance");
    drop(context.peer.notify_logging_message(message).await);
}

/// Three log messages, then a text.
pub async fn with_logging(context: &RequestContext<RoleServer>) -> Value {
    for message in ["Tool execution started", "Tool processing data", "Tool execution completed"] {
        log(context, LoggingLevel::Info, message).await;
        tokio::time::sleep(PAUSE).await;
    }
    text("logged")
}

/// A log message only where the request says how grave they must be.
pub async fn log_if_asked(context: &RequestContext<RoleServer>) -> Value {
    if let Some(level) = context.meta.log_level() {
        log(context, level, "asked for").await;
    }
    text("done")
}

/// Three steps of progress, then a text.
pub async fn with_progress(context: &RequestContext<RoleServer>) -> Value {
    let token = context.meta.get_progress_token();
    for step in [0.0, 50.0, 100.0] {
        if let Some(token) = &token {
            let progress = ProgressNotificationParam::new(token.clone(), step).with_total(100.0);
            drop(context.peer.notify_progress(progress).await);
        }
        tokio::time::sleep(PAUSE).await;
    }
    text("done")
}
