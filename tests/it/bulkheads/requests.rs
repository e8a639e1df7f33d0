//! Bodies of requests take memory within the shares of their key, their tenant and the replica.

use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio::task::JoinSet;

use super::memory::{MIB, grown_mib, small_stage};
use crate::support::upstream::Say;
use crate::support::{Api, Mcp, Tool, Upstream, settle};

const SOON: Duration = Duration::from_secs(20);
/// Largest body that the deployment accepts, in bytes.
pub const BODY_BYTES: usize = 4 * MIB;

/// Time for which an unfinished body is held open.
const HELD_OPEN: Duration = Duration::from_secs(10);

/// Sends `body` of a request that announces `announced` bytes, and gives status and text of the answer; 0 without one.
pub async fn send(api: &Api, announced: usize, body: &[u8], held_open: Duration) -> (u16, String) {
    let base = api.base_url();
    let address = base.strip_prefix("http://").unwrap();
    let mut stream = TcpStream::connect(address).await.unwrap();
    let key = api.key.as_deref().unwrap();
    let head = format!(
        "POST /mcp HTTP/1.1\r\nhost: {address}\r\nx-api-key: {key}\r\ncontent-type: application/json\r\n\
         accept: application/json, text/event-stream\r\ncontent-length: {announced}\r\n\r\n"
    );
    stream.write_all(head.as_bytes()).await.unwrap();
    let (mut reads, mut writes) = stream.split();
    let mut answer = Vec::new();
    let reading = async {
        while !has_ended(&answer) && reads.read_buf(&mut answer).await.is_ok_and(|read| read > 0) {}
    };
    let writing = async {
        // one that is refused may not be read to its end
        drop(writes.write_all(body).await);
        std::future::pending::<()>().await;
    };
    let exchange = async {
        tokio::select! {
            () = reading => {}
            () = writing => {}
        }
    };
    // without an answer by then the caller finds the status 0
    drop(tokio::time::timeout(held_open, exchange).await);
    let text = String::from_utf8(answer).unwrap();
    let status = text.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap_or(0);
    (status, text)
}

/// Returns whether the head and the whole body of an answer are there.
fn has_ended(answer: &[u8]) -> bool {
    let text = String::from_utf8_lossy(answer).to_lowercase();
    let Some((head, body)) = text.split_once("\r\n\r\n") else { return false };
    let length = head.lines().find_map(|line| line.strip_prefix("content-length:"));
    length.is_some_and(|length| body.len() >= length.trim().parse().unwrap())
}

async fn echo() -> Upstream {
    Upstream::handshake(vec![Tool::reads("echo")]).await
}

fn padded(bytes: usize) -> Value {
    json!({"x": "y".repeat(bytes)})
}

/// Recipe: hundreds of bodies of 4 MiB, held open one byte before their end, with one key.
#[tokio::test(flavor = "multi_thread")]
async fn bodies_that_do_not_end_have_their_keys_share_and_no_more() {
    const BODIES: usize = 300;
    let stage = small_stage().await;
    let (tenant, other) = (stage.tenant("acme").await, stage.tenant("other").await);
    let upstream = echo().await;
    tenant.add("up", &upstream).await;
    other.add("up", &upstream).await;
    let (flooding, beside, elsewhere) = (tenant.agent().await, tenant.agent().await, other.agent().await);
    let before = stage.gateway.memory_peak_mib();
    let body = Arc::new(vec![b' '; BODY_BYTES - 1]);
    let mut floods = JoinSet::new();
    for _ in 0..BODIES {
        let (api, body) = (flooding.clone(), Arc::clone(&body));
        floods.spawn(async move { send(&api, BODY_BYTES, &body, HELD_OPEN).await });
    }
    let (mut refused, mut held) = (0, 0);
    while refused + held < BODIES {
        assert_eq!(stage.gateway.anonymous().get("/livez").await.status, 200);
        for api in [&elsewhere, &beside] {
            Mcp::bare(api).run("read", "up:echo", &json!({})).await.ok();
            // more than is free, less than what the flood leaves of the tenant's share
            Mcp::bare(api).run("read", "up:echo", &padded(64 * 1024)).await.ok();
        }
        while let Some(ended) = floods.try_join_next() {
            let (status, answer) = ended.unwrap();
            if status == 0 {
                held += 1;
                continue;
            }
            assert_eq!(status, 503, "{answer}");
            assert!(answer.to_lowercase().contains("\r\nretry-after: 5\r\n"), "{answer}");
            assert!(answer.contains(r#""data":{"code":"overloaded","retry_after_s":5}"#), "{answer}");
            refused += 1;
        }
    }
    grown_mib(&stage.gateway, before, 64);
    assert!(refused >= BODIES * 9 / 10, "{refused} were refused");
    let page = stage.gateway.scrape().await;
    let counted = page.sum("mcpproxy_memory_refusals_total", &[("purpose", "request")]);
    assert!(counted as usize >= refused, "{counted} of {refused}");
    super::memory::nothing_is_held(&stage.gateway).await;
    Mcp::bare(&flooding).run("read", "up:echo", &padded(64 * 1024)).await.ok();
}

/// Recipe: calls with large arguments that wait for their turn at a server that does not answer.
#[tokio::test(flavor = "multi_thread")]
async fn calls_that_wait_for_their_turn_hold_their_memory() {
    let stage = small_stage().await;
    let (tenant, other) = (stage.tenant("acme").await, stage.tenant("other").await);
    let (open, gate) = watch::channel(false);
    let slow =
        Tool::reads("slow").says(Say::Gate(gate, Box::new(Say::Result(r#"{"content":[]}"#.to_owned()))));
    let upstream = Upstream::handshake(vec![slow, Tool::reads("echo")]).await;
    let one_by_one = json!({"limits": {"concurrency": 1, "queue": 100, "queue_wait_s": 30}});
    tenant.add_with("up", &upstream, one_by_one).await;
    other.add("up", &upstream).await;
    let (flooding, elsewhere) = (tenant.agent().await, other.agent().await);
    let mut calls = JoinSet::new();
    for _ in 0..20 {
        let api = flooding.clone();
        calls.spawn(async move { Mcp::bare(&api).run("read", "up:slow", &padded(MIB)).await.answer });
    }
    // two of them have the key's share for requests: each counts as it was read and as it is sent
    let mut refused = 0;
    while refused < 15 {
        let answer = tokio::time::timeout(SOON, calls.join_next()).await.unwrap().unwrap().unwrap();
        assert_eq!(answer.status, 503, "{answer:?}");
        refused += 1;
    }
    let page = stage.gateway.scrape().await;
    let held = page.sum("mcpproxy_memory_held_bytes", &[("purpose", "request")]);
    assert!(held >= 2.0 * MIB as f64, "{held}");
    Mcp::bare(&elsewhere).run("read", "up:echo", &padded(MIB)).await.ok();
    open.send(true).unwrap();
    let mut answered = 0;
    while let Some(answer) = calls.join_next().await {
        let answer = answer.unwrap();
        answered += usize::from(answer.status == 200);
        assert!([200, 503].contains(&answer.status), "{answer:?}");
    }
    assert!(answered > 0);
    super::memory::nothing_is_held(&stage.gateway).await;
}

/// Recipe: bodies that come a few bytes at a time.
#[tokio::test(flavor = "multi_thread")]
async fn bodies_that_come_too_slowly_are_ended_and_free_their_memory() {
    let stage = small_stage().await;
    let tenant = stage.tenant("acme").await;
    let agent = tenant.agent().await;
    let began = Instant::now();
    let mut slow = JoinSet::new();
    for bytes in [0, 1, 9 * 1024, 32 * 1024] {
        let agent = agent.clone();
        slow.spawn(
            async move { send(&agent, BODY_BYTES, &vec![b' '; bytes], Duration::from_secs(60)).await },
        );
    }
    while let Some(ended) = slow.join_next().await {
        let (status, answer) = ended.unwrap();
        assert_eq!(status, 408, "{answer}");
        let took = began.elapsed();
        assert!(took >= Duration::from_secs(4) && took < Duration::from_secs(20), "{took:?}");
    }
    super::memory::nothing_is_held(&stage.gateway).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_body_that_is_announced_too_large_is_refused_before_it_is_sent() {
    let stage = small_stage().await;
    let agent = stage.tenant("acme").await.agent().await;
    let answered = tokio::time::timeout(SOON, send(&agent, BODY_BYTES + 1, b"", SOON)).await;
    let (status, answer) = answered.expect("an answer to the head alone");
    assert_eq!(status, 413, "{answer}");
    // and whoever sends all of it first sees the answer all the same
    let body = vec![b' '; BODY_BYTES + 1];
    for path in ["/mcp", "/api/v1/tools/call"] {
        let request = agent.request(reqwest::Method::POST, path).header("content-type", "application/json");
        settle(413, SOON, || async {
            agent.send(request.try_clone().unwrap().body(body.clone())).await.status
        })
        .await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_of_very_many_members_are_refused() {
    let stage = small_stage().await;
    let tenant = stage.tenant("acme").await;
    let upstream = echo().await;
    tenant.add("up", &upstream).await;
    let agent = tenant.agent().await;
    let many = |count: usize| (0..count).map(|n| format!(r#""m{n}":0"#)).collect::<Vec<_>>().join(",");
    let call = |arguments: &str, rest: &str| {
        let params = format!(r#"{{"name":"call_tool_read","arguments":{{{arguments}}}{rest}}}"#);
        let agent = agent.clone();
        async move { Mcp::bare(&agent).request("tools/call", &params).await }
    };
    let named = r#""name":"up:echo","args":{}"#;
    for (arguments, rest) in [
        (format!("{named},{}", many(1000)), String::new()),
        (named.to_owned(), format!(",{}", many(1000))),
        (named.to_owned(), format!(r#","_meta":{{{}}}"#, many(1001))),
    ] {
        let answer = call(&arguments, &rest).await;
        assert_eq!(answer.json()["error"]["code"], -32602, "{answer:?}");
        assert!(answer.text.contains("at most 1000 members"), "{answer:?}");
    }
    assert_eq!(call(named, &format!(r#","_meta":{{{}}}"#, many(1000))).await.json()["error"], Value::Null);
    // what goes to a server may have as many as there is room for
    Mcp::bare(&agent)
        .run("read", "up:echo", &serde_json::from_str(&format!("{{{}}}", many(5000))).unwrap())
        .await
        .ok();
    let admin = tenant.admin().await;
    let nodes = format!(
        r#"{{"name":"x","kind":"http","url":"http://127.0.0.1:1","headers":[{}]}}"#,
        vec!["0"; 60_000].join(",")
    );
    let request =
        admin.request(reqwest::Method::POST, "/api/v1/servers").header("content-type", "application/json");
    let answer = admin.send(request.body(nodes)).await;
    assert_eq!(
        (answer.status, answer.json()["error"]["field"].as_str()),
        (400, Some("headers")),
        "{answer:?}"
    );
}
