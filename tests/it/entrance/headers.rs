//! Headers that decide who is served may stand in a request once, and a head has a bound.

use super::{address, ask, connect, ends, status};
use crate::support::{ADMIN, Stage};

const UNKNOWN: &str = "mcpk_AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA";
const PATHS: [(&str, &str); 5] = [
    ("GET", "/api/v1/status"),
    ("POST", "/api/v1/tools/call"),
    ("POST", "/mcp"),
    ("POST", "/mcp/direct"),
    ("GET", "/no-such-path"),
];

/// A request with these header lines and no body.
fn request(method: &str, target: &str, headers: &[String]) -> String {
    let lines: String = headers.iter().map(|line| format!("{line}\r\n")).collect();
    format!("{method} {target} HTTP/1.1\r\n{lines}Content-Length: 0\r\n\r\n")
}

#[tokio::test]
async fn a_repeated_header_is_refused_by_name_before_the_key_is_looked_at() {
    let stage = Stage::start().await;
    let key = stage.tenant("acme").await.agent().await.key.unwrap();
    let target = address(&stage.gateway.url);
    let host = format!("Host: {target}");
    let own = |key: &str| format!("X-API-Key: {key}");
    let bearer = |key: &str| format!("Authorization: Bearer {key}");
    let cases = [
        ("X-API-Key", vec![host.clone(), own(&key), own(&key)]),
        ("X-API-Key", vec![host.clone(), own(&key), own(UNKNOWN)]),
        ("X-API-Key", vec![host.clone(), own(UNKNOWN), own(&key)]),
        ("Authorization", vec![host.clone(), bearer(&key), bearer(&key)]),
        (
            "Authorization",
            vec![host.clone(), own(&key), bearer(&key), "Authorization: Basic eDp5".to_owned()],
        ),
        (
            "X-Tenant",
            vec![host.clone(), own(&key), "X-Tenant: acme".to_owned(), "X-Tenant: other".to_owned()],
        ),
        (
            "X-Tenant",
            vec![host.clone(), own(UNKNOWN), "X-Tenant: acme".to_owned(), "X-Tenant: acme".to_owned()],
        ),
        ("Host", vec![host.clone(), own(&key), host.clone()]),
        ("Host", vec![host.clone(), own(&key), "Host: evil.example.com".to_owned()]),
        ("Host", vec!["Host: evil.example.com".to_owned(), own(&key), host.clone()]),
        // two credentials that differ, wherever they stand
        ("Authorization", vec![host.clone(), own(&key), bearer(UNKNOWN)]),
    ];
    for (method, path) in PATHS {
        for (name, headers) in &cases {
            let mut stream = connect("127.0.0.1", target).await.unwrap();
            let answer = ask(&mut stream, &request(method, path, headers)).await.unwrap_or_default();
            assert_eq!(status(Some(&answer)), 400, "{method} {path} {headers:?}: {answer}");
            let (_, body) = answer.split_once("\r\n\r\n").unwrap();
            let error = serde_json::from_str::<serde_json::Value>(body).unwrap()["error"].clone();
            assert_eq!(
                (&error["code"], &error["field"]),
                (&"invalid_request".into(), &(*name).into()),
                "{answer}"
            );
            assert!(!answer.contains(&key) && !answer.contains(UNKNOWN), "{answer}");
        }
    }
    // once each, and the same key in both places, is one reading
    for (status_of, headers) in [
        (200, vec![host.clone(), own(&key), bearer(&key), "X-Tenant: acme".to_owned()]),
        (200, vec![host.clone(), own(&key), "Authorization: Basic eDp5".to_owned()]),
        (401, vec![host.clone(), own(UNKNOWN)]),
    ] {
        let mut stream = connect("127.0.0.1", target).await.unwrap();
        let answer = ask(&mut stream, &request("GET", "/api/v1/status", &headers)).await;
        assert_eq!(status(answer.as_deref()), status_of, "{headers:?}: {answer:?}");
    }
    for path in ["/livez", "/readyz"] {
        let mut stream = connect("127.0.0.1", target).await.unwrap();
        let answer = ask(&mut stream, &request("GET", path, &[host.clone(), host.clone()])).await;
        assert_eq!(status(answer.as_deref()), 200, "{path}: {answer:?}");
    }
}

#[tokio::test]
async fn a_header_that_cannot_be_read_is_not_passed_over() {
    let stage = Stage::start().await;
    let target = address(&stage.gateway.url);
    let platform = stage.platform().key.unwrap();
    let host = format!("Host: {target}");
    let cases = [
        (
            401,
            vec![host.clone(), "X-API-Key: \u{e9}".to_owned(), format!("Authorization: Bearer {platform}")],
        ),
        (400, vec![host.clone(), format!("X-API-Key: {platform}"), "X-Tenant: \u{e9}".to_owned()]),
    ];
    for (expected, headers) in cases {
        let mut stream = connect("127.0.0.1", target).await.unwrap();
        let answer = ask(&mut stream, &request("GET", "/api/v1/tenants", &headers)).await;
        assert_eq!(status(answer.as_deref()), expected, "{headers:?}: {answer:?}");
    }
}

#[tokio::test]
async fn a_request_target_and_its_host_agree() {
    let stage = Stage::start().await;
    let key = stage.tenant("acme").await.agent().await.key.unwrap();
    let target = address(&stage.gateway.url);
    for (expected, authority, host) in [
        (200, target.to_string(), target.to_string()),
        (200, format!("LOCALHOST:{}", target.port()), format!("localhost:{}", target.port())),
        (200, "localhost".to_owned(), "localhost:80".to_owned()),
        (400, "evil.example.com".to_owned(), target.to_string()),
        (400, target.to_string(), "localhost".to_owned()),
        (400, format!("localhost@{target}"), target.to_string()),
        (403, "evil.example.com".to_owned(), "evil.example.com".to_owned()),
    ] {
        let mut stream = connect("127.0.0.1", target).await.unwrap();
        let headers = [format!("Host: {host}"), format!("X-API-Key: {key}")];
        let request = request("GET", &format!("http://{authority}/api/v1/status"), &headers);
        let answer = ask(&mut stream, &request).await;
        assert_eq!(status(answer.as_deref()), expected, "{authority} {host}: {answer:?}");
    }
}

#[tokio::test]
async fn a_head_has_a_bound_with_room_for_a_token() {
    const HEAD_BYTES_MAX: usize = 16 * 1024;
    const TOKEN_BYTES_MAX: usize = 16_384;
    let stage = Stage::with(&[ADMIN]).await;
    let key = stage.tenant("acme").await.agent().await.key.unwrap();
    for (target, path, bytes_max) in [
        (&stage.gateway.url, "/api/v1/status", HEAD_BYTES_MAX + TOKEN_BYTES_MAX),
        (&stage.gateway.admin_url(), "/readyz", HEAD_BYTES_MAX),
    ] {
        let target = address(target);
        let head = |bytes: usize| {
            let lines = |filler: usize| {
                let baggage = format!("baggage: {}", "b".repeat(filler));
                request("GET", path, &[format!("Host: {target}"), format!("X-API-Key: {key}"), baggage])
            };
            lines(bytes - lines(0).len())
        };
        let mut stream = connect("127.0.0.1", target).await.unwrap();
        let answer = ask(&mut stream, &head(bytes_max)).await;
        assert_eq!(status(answer.as_deref()), 200, "{path}: {answer:?}");
        // on a connection that was used, and on a new one
        for mut stream in [stream, connect("127.0.0.1", target).await.unwrap()] {
            // as long as the gateway reads, without the end
            let answer = ask(&mut stream, head(bytes_max + 4).split_at(bytes_max).0).await;
            assert_eq!(status(answer.as_deref()), 431, "{path}: {answer:?}");
            assert!(ends(&mut stream).await, "an end of the connection");
        }
    }
}
