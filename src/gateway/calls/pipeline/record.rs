//! Fills records of calls. Texts are redacted and cut here, before anything is stored.

use bytes::Bytes;

use super::door::Door;
use crate::domain::activity::Record;
use crate::domain::operation::Variant;
use crate::domain::redact;
use crate::domain::refusal::Refusal;
use crate::gateway::credentials::{secrets, veil};
use crate::gateway::log::Attempt;
use crate::upstream::Target;

/// Longest text of an upstream's error that a record keeps, in bytes.
const ERROR_BYTES_MAX: usize = 1000;

/// Returns the record of a call at its beginning.
pub(super) fn begin(from: &Attempt, door: Door) -> Record {
    let mut record = from.record(door.kind());
    if let Some(variant) = door.variant() {
        self::variant(&mut record, variant);
    }
    record
}

/// Notes the variant, and its operation type until another one is declared.
pub(super) fn variant(record: &mut Record, variant: Variant) {
    record.tool_variant = Some(variant.as_str());
    record.operation_type = Some(variant.operation());
}

/// Notes the tool of a call, redacted: clients choose the name.
pub(super) fn tool(record: &mut Record, server: Option<&str>, tool: &str) {
    record.server = server.map(str::to_owned);
    record.tool = Some(redact::redact(tool).into_owned());
}

/// Notes the arguments.
pub(super) fn arguments(record: &mut Record, arguments: &Bytes, preview_bytes: usize) {
    let preview = redact::preview(std::str::from_utf8(arguments).unwrap_or_default(), preview_bytes);
    record.request_bytes = i64::try_from(arguments.len()).ok();
    record.truncated |= preview.truncated;
    record.arguments = Some(preview.text);
}

/// Notes the result, or the upstream's error object. Credentials of the target are masked: an upstream may repeat them.
pub(super) fn response(record: &mut Record, target: &Target, response: Option<&Bytes>, preview_bytes: usize) {
    let Some(raw) = response else { return };
    let text = std::str::from_utf8(raw).unwrap_or_default();
    let veiled = veil(&secrets(target), text, preview_bytes);
    let preview = redact::preview(&veiled, preview_bytes);
    record.response_bytes = i64::try_from(raw.len()).ok();
    record.truncated |= preview.truncated || text.len() > preview_bytes;
    record.response = Some(preview.text);
}

/// Notes a refusal or failure.
pub(super) fn error(record: &mut Record, refusal: &Refusal) {
    record.error_code = Some(refusal.code.as_str().to_owned());
    record.error_message = Some(redact::redact(&refusal.message).into_owned());
}

/// Notes the code and message of an upstream's JSON-RPC error.
pub(super) fn upstream_error(record: &mut Record, target: &Target, raw: &Bytes) {
    #[derive(serde::Deserialize)]
    struct RpcError {
        code: Option<i64>,
        message: Option<String>,
    }
    if let Ok(error) = serde_json::from_slice::<RpcError>(raw) {
        record.error_code = error.code.map(|code| code.to_string());
        let shown = |text: String| {
            redact::preview(&veil(&secrets(target), &text, ERROR_BYTES_MAX), ERROR_BYTES_MAX).text
        };
        record.error_message = error.message.map(shown);
    }
}
