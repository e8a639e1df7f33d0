//! The gateway behind nginx, set up as ingress-nginx sets it up from the annotations that the chart renders.

use std::fs;

use serde_json::json;

use crate::support::{Events, Mcp, Nginx, Stage, Tool, Upstream};

/// Path of the manifests that the chart renders for production values; `make check-chart` keeps them up to
/// date.
const RENDERED: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/helm/snapshots/production.yaml");
const PREFIX: &str = "nginx.ingress.kubernetes.io/";
/// `limits.request_bytes_max`, bytes.
const REQUEST_BYTES_MAX: usize = 4 * 1024 * 1024;

/// Returns nginx's directives for the annotations, as ingress-nginx translates them.
fn directives() -> String {
    let rendered = fs::read_to_string(RENDERED).unwrap();
    let annotations = rendered.lines().filter_map(|line| line.trim().strip_prefix(PREFIX)?.split_once(": "));
    let directives: Vec<String> = annotations
        .map(|(name, value)| {
            let value = value.trim_matches('"');
            match name {
                "proxy-body-size" => format!("client_max_body_size {value};"),
                "proxy-buffering" => format!("proxy_buffering {value};"),
                "proxy-request-buffering" => format!("proxy_request_buffering {value};"),
                "proxy-read-timeout" => format!("proxy_read_timeout {value}s;"),
                "proxy-send-timeout" => format!("proxy_send_timeout {value}s;"),
                _ => panic!("an annotation that this test does not know: {name}"),
            }
        })
        .collect();
    assert_eq!(directives.len(), 5, "{directives:?}");
    directives.join(" ")
}

#[tokio::test]
async fn calls_large_bodies_and_streams_pass_as_the_annotations_say() {
    let stage = Stage::start().await;
    let nginx = Nginx::configured(&[&stage.gateway], &directives()).await;
    let tenant = stage.tenant("acme").await;
    let upstream = Upstream::handshake(vec![Tool::reads("echo")]).await;
    tenant.add("up", &upstream).await;
    let agent = tenant.agent().await.at(&nginx.url);

    // as large as the gateway takes: nginx alone would take 1 MiB
    let frame = r#"{"jsonrpc":"2.0","id":1,"method":"ping","params":{"pad":""}}"#.len();
    let ping = |bytes: usize| {
        format!(
            r#"{{"jsonrpc":"2.0","id":1,"method":"ping","params":{{"pad":"{}"}}}}"#,
            "x".repeat(bytes - frame)
        )
    };
    let client = Mcp::session(&agent).await;
    let answer = client.post(ping(REQUEST_BYTES_MAX)).await;
    assert_eq!((answer.status, answer.text.contains("\"result\"")), (200, true), "{answer:?}");
    assert_eq!(client.post(ping(REQUEST_BYTES_MAX + 1)).await.status, 413);

    // a stream says at once what happens
    let mut calls = Events::open(&agent, "/api/v1/activity/stream?type=tool_call", None).await;
    calls.opened().await;
    client.run("read", "up:echo", &json!({})).await.ok();
    assert_eq!(calls.next().await.expect("the stream goes on")["tool"], "echo");
}
