//! Session ids of the activity log: the id inside the token that clients send as `Mcp-Session-Id`. The token itself, up to
//! 1 KiB, would stand in every record.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;

/// Longest token that is decoded, in bytes.
pub const TOKEN_BYTES_MAX: usize = 1024;

/// Returns the id in a token's payload, unverified: good for finding records, never for a decision. `None` for a text that
/// is no token.
pub fn id_of(token: &str) -> Option<String> {
    #[derive(serde::Deserialize)]
    struct Payload {
        i: String,
    }
    let (payload, _) = token.split_once('.').filter(|_| token.len() <= TOKEN_BYTES_MAX)?;
    let payload: Payload = serde_json::from_slice(&URL_SAFE_NO_PAD.decode(payload).ok()?).ok()?;
    Some(payload.i)
}
