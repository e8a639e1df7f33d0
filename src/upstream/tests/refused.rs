//! Servers that refuse to open a session: what their administrators are told, and what callers are.

use super::super::*;
use super::fake::*;
use crate::domain::redact;

/// Answers the old transport's stream with this event first, and every POST with 404.
async fn streaming(event: &'static str) -> Fake {
    Fake::start(move |seen| match seen.verb.as_str() {
        "GET" => Say::Raw(stream(&format!("event: {event}\ndata: /messages?id=1\n\n"))),
        _ => status(404, "no"),
    })
    .await
}

/// The texts for administrators and for callers.
async fn texts(target: Target) -> (String, String) {
    let failed = pool().connection(&target).ping().await.unwrap_err();
    (failed.whole(), failed.to_string())
}

#[tokio::test]
async fn what_is_wrong_with_an_address_is_said() {
    const PUBLIC: &str = "the upstream server sent an invalid answer: ";
    for (code, path, detail, aside) in [
        (
            401,
            "/mcp",
            "it wants credentials or a login, or others than it gets (HTTP status 401)",
            "--header HEADER=-",
        ),
        (
            403,
            "/mcp",
            "it wants credentials or a login, or others than it gets (HTTP status 403)",
            "--header HEADER=-",
        ),
        (404, "/", "initialize was answered with HTTP status 404", "most servers are at /mcp"),
        (404, "/mcp", "initialize was answered with HTTP status 404", ""),
        (503, "/mcp", "initialize was answered with HTTP status 503", ""),
    ] {
        let fake = Fake::start(move |_| status(code, "no")).await;
        let (whole, shown) = texts(fake.target().at(format!("http://{}{path}", fake.address))).await;
        assert_eq!(shown, format!("{PUBLIC}{detail}"), "{code} {path}");
        assert_eq!(whole.len() > shown.len(), !aside.is_empty(), "{whole}");
        assert!(whole.starts_with(&shown) && whole.contains(aside), "{whole}");
        assert_eq!(redact::redact(&whole), whole, "a line to paste");
    }
}

#[tokio::test]
async fn a_server_of_the_old_transport_is_named() {
    let (whole, shown) = texts(streaming("endpoint").await.target()).await;
    assert!(shown.contains("HTTP+SSE, the transport of revision 2024-11-05"), "{shown}");
    assert!(whole.contains("often /mcp in place of /sse"), "{whole}");
    let (_, shown) = texts(streaming("message").await.target()).await;
    assert!(shown.contains("initialize was answered with HTTP status 404"), "{shown}");
}
