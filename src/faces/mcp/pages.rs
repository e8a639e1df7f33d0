//! Pages that a person has to open before a call can run, in the form of the client's era.

use serde_json::json;

use super::ClientEra;
use super::jsonrpc::{RpcError, message};
use super::result::{self, Answered};
use super::text::Text;
use crate::domain::end::End;
use crate::domain::refusal::Refusal;
use crate::domain::rounds::LOGIN_KEY;

/// Returns the answer to a call whose caller has to open the page `url` first. Modern clients repeat the call when the person is
/// done; of the others the error asks the same (MCP 2025-11-25, `URLElicitationRequiredError`).
pub(super) fn asked(era: ClientEra, id: &str, refusal: &Refusal, url: &str) -> (Answered, End) {
    let params = json!({"mode": "url", "url": url, "message": refusal.message});
    match era {
        ClientEra::Modern => {
            let request = json!({"method": "elicitation/create", "params": params});
            let raw =
                json!({"resultType": "input_required", "inputRequests": {LOGIN_KEY: request}}).to_string();
            let text = Text::Whole(message(id, "result", &raw));
            (Answered::Message(text), End::Failed(refusal.code.as_str()))
        }
        ClientEra::Handshake => result::failed(RpcError::needs_page(refusal, url)),
    }
}
