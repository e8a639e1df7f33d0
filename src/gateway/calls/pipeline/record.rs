//! Notes the answers of upstreams in records of calls. Texts are redacted and cut here, before anything is stored.

use bytes::Bytes;

use crate::domain::activity::Record;
use crate::domain::redact;
use crate::domain::refusal::Refusal;
use crate::gateway::catalog::ServerEntry;
use crate::gateway::credentials::veil;
use crate::gateway::tenants::Caller;
use crate::upstream::{Pool, Target};
use zeroize::Zeroizing;

/// Longest text of an upstream's error that a record keeps, in bytes.
const ERROR_BYTES_MAX: usize = 1000;

/// Secrets that a server was called with, and may repeat.
pub(super) struct KnownSecrets<'a> {
    target: &'a Target,
    /// Tokens that the server was called with in the last minutes.
    tokens: Vec<Zeroizing<String>>,
}

impl<'a> KnownSecrets<'a> {
    pub(super) fn of(server: &'a ServerEntry, caller: &Caller, upstreams: &Pool) -> KnownSecrets<'a> {
        let tokens = upstreams.sent_tokens(&server.target_of(caller.to_servers()));
        KnownSecrets { target: &server.target, tokens }
    }

    fn all(&self) -> Vec<&str> {
        let mut secrets = self.target.upstream.secrets();
        secrets.extend(self.tokens.iter().map(|token| token.as_str()));
        secrets
    }
}

/// Notes the result, or the upstream's error object. Credentials of the server are masked: an upstream may repeat them.
pub(super) fn response(
    record: &mut Record,
    known: &KnownSecrets<'_>,
    response: Option<&Bytes>,
    preview_bytes: usize,
) {
    let Some(raw) = response else { return };
    let text = std::str::from_utf8(raw).unwrap_or_default();
    let veiled = veil(&known.all(), text, preview_bytes);
    let preview = redact::preview(&veiled, preview_bytes);
    record.response_bytes = i64::try_from(raw.len()).ok();
    record.truncated |= preview.truncated || text.len() > preview_bytes;
    record.response = Some(preview.text);
}

/// Notes the `params` of a server's question, like a result: cut, redacted, without credentials of the server.
pub(super) fn question(record: &mut Record, known: &KnownSecrets<'_>, params: &Bytes, preview_bytes: usize) {
    let text = std::str::from_utf8(params).unwrap_or_default();
    let preview = redact::preview(&veil(&known.all(), text, preview_bytes), preview_bytes);
    record.request_bytes = i64::try_from(params.len()).ok();
    record.truncated |= preview.truncated || text.len() > preview_bytes;
    record.arguments = Some(preview.text);
}

/// Notes a refusal or failure.
pub(super) fn error(record: &mut Record, refusal: &Refusal) {
    record.error_code = Some(refusal.code.as_str().to_owned());
    record.error_message = Some(redact::redact(&refusal.message).into_owned());
}

/// Notes the code and message of an upstream's JSON-RPC error.
pub(super) fn upstream_error(record: &mut Record, known: &KnownSecrets<'_>, raw: &Bytes) {
    #[derive(serde::Deserialize)]
    struct RpcError {
        code: Option<i64>,
        message: Option<String>,
    }
    if let Ok(error) = serde_json::from_slice::<RpcError>(raw) {
        record.error_code = error.code.map(|code| code.to_string());
        let shown =
            |text: String| redact::preview(&veil(&known.all(), &text, ERROR_BYTES_MAX), ERROR_BYTES_MAX).text;
        record.error_message = error.message.map(shown);
    }
}
