//! Reasons why a server refuses `initialize` over HTTP, as far as they can be told.

use std::sync::atomic::AtomicBool;
use std::time::Duration;

use bytes::Bytes;
use http::header::{ACCEPT, CONTENT_TYPE};
use http::{HeaderMap, HeaderValue, Method, StatusCode};
use tokio::time::timeout;

use crate::upstream::error::{UpstreamError, WANTS_CREDENTIALS};
use crate::upstream::http::post::{AnswerForm, Http};

/// Longest wait for the first event of the transport of old.
const OLD_WAIT_MAX: Duration = Duration::from_secs(2);
/// Most bytes that are read of it.
const OLD_BYTES_MAX: usize = 1024;
/// Usual path of servers.
const USUAL_PATH: &str = "/mcp";

/// Returns the error of a server that answered `initialize` with this status and no JSON-RPC.
pub(in crate::upstream) async fn explained(
    http: &Http,
    base: &HeaderMap,
    status: StatusCode,
) -> UpstreamError {
    let is_old = matches!(status.as_u16(), 400 | 404 | 405 | 406 | 415) && speaks_old_sse(http, base).await;
    if is_old {
        return UpstreamError::invalid(
            "it is a server of HTTP+SSE, the transport of revision 2024-11-05, which is not supported",
        )
        .with_aside("ask whoever runs it for an address of streamable HTTP, often /mcp in place of /sse");
    }
    let error = UpstreamError::invalid(says("initialize was answered with ", status));
    match status.as_u16() {
        401 | 403 => error.with_aside(
            "give a header, most often Authorization, with mcpproxy upstream update NAME --header HEADER=- (it reads the \
             value from standard input; name all headers of the server); or, if it wants OAuth, a login of the gateway with \
             --oauth-client-id ID --oauth-client-secret -",
        ),
        404 if http.target.path() != USUAL_PATH => {
            error.with_aside("check the path of its address: most servers are at /mcp")
        }
        _ => error,
    }
}

/// Returns what an HTTP status in place of an answer says, for callers too.
pub(in crate::upstream) fn says(subject: &str, status: StatusCode) -> String {
    let code = status.as_u16();
    match code {
        401 | 403 => format!("{WANTS_CREDENTIALS}, or others than it gets (HTTP status {code})"),
        _ => format!("{subject}HTTP status {code}"),
    }
}

/// Returns whether the server opens the transport of revision 2024-11-05: its stream begins with an event `endpoint`.
async fn speaks_old_sse(http: &Http, base: &HeaderMap) -> bool {
    let mut headers = base.clone();
    headers.remove(CONTENT_TYPE);
    headers.insert(ACCEPT, HeaderValue::from_static("text/event-stream"));
    let first = async {
        let dispatched = AtomicBool::new(false);
        let asked = http.exchange(Method::GET, headers, Bytes::new(), &dispatched);
        let (mut lease, response) = asked.await.ok()?;
        if response.status() != StatusCode::OK || AnswerForm::of(&response) != AnswerForm::Events {
            return None;
        }
        let (mut body, mut read) = (response.into_body(), Vec::new());
        while read.len() < OLD_BYTES_MAX {
            let piece = lease.next(&mut body).await?.ok()?;
            read.extend(piece.iter().take(OLD_BYTES_MAX));
            let text = String::from_utf8_lossy(&read);
            if let Some((event, _)) = text.split_once("\n") {
                return Some(event.trim_end().strip_prefix("event:")?.trim() == "endpoint");
            }
        }
        None
    };
    timeout(OLD_WAIT_MAX, first).await.ok().flatten().unwrap_or(false)
}
