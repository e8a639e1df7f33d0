//! The page for people who open the gateway's address in a browser.

use super::{address, ask, connect, status};
use crate::support::Stage;

/// Returns the answer to a request without a key, and its body.
async fn answer(stage: &Stage, request: &str, host: &str) -> (String, String) {
    let mut stream = connect("127.0.0.1", address(&stage.gateway.url)).await.unwrap();
    let text =
        format!("{request} HTTP/1.1\r\nHost: {host}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
    let answer = ask(&mut stream, &text).await.unwrap_or_default();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    (head.to_lowercase(), body.to_owned())
}

#[tokio::test]
async fn people_get_a_page_that_runs_nothing_and_names_nobody() {
    let stage = Stage::start().await;
    stage.tenant("acme").await;
    let (head, page) = answer(&stage, "GET /", "localhost").await;
    assert_eq!(status(Some(&head.to_uppercase())), 200, "{head}");
    for line in
        ["content-type: text/html; charset=utf-8", "content-security-policy: default-src 'none';", "no-store"]
    {
        assert!(head.contains(line), "{head}");
    }
    assert!(page.contains("X-API-Key") && page.contains("/mcp"), "{page}");
    for word in ["acme", env!("CARGO_PKG_VERSION"), "<script", "://"] {
        assert!(!page.contains(word) && !head.contains(word), "{word}: {head}\n{page}");
    }
    for (request, host, expected) in [
        ("GET /", "evil.example", 403),
        ("POST /", "localhost", 401),
        ("GET /other", "localhost", 401),
        ("GET //", "localhost", 401),
    ] {
        let (head, _) = answer(&stage, request, host).await;
        assert_eq!(status(Some(&head.to_uppercase())), expected, "{request} {host}: {head}");
    }
}
