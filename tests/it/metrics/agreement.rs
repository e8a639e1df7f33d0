//! Traces and histograms say the same of the same request.

use std::collections::BTreeMap;
use std::time::Duration;

use futures_util::StreamExt;
use reqwest::RequestBuilder;
use serde_json::json;

use crate::support::upstream::{Offers, Say};
use crate::support::{
    ADMIN, Api, Collector, DIRECT, Kind, Mcp, Page, Seen, Stage, Tenant, Tool, Upstream, eventually,
};

pub(super) const COUNT: &str = "mcp_server_operation_duration_seconds_count";
const SUM: &str = "mcp_server_operation_duration_seconds_sum";
/// What each is called by both.
const BOTH: [(&str, &str); 5] = [
    ("error.type", "error_type"),
    ("rpc.response.status_code", "rpc_response_status_code"),
    ("mcp.method.name", "mcp_method_name"),
    ("mcp.protocol.version", "mcp_protocol_version"),
    ("gen_ai.tool.name", "gen_ai_tool_name"),
];
const OWN_TOOLS: [&str; 2] = ["call_tool_read", "retrieve_tools"];

/// A gateway that is asked one thing after another.
pub(super) struct Asked {
    pub(super) stage: Stage,
    collector: Collector,
    number: u32,
}

impl Asked {
    pub(super) async fn gateway() -> Asked {
        let collector = Collector::start().await;
        let mut settings = collector.settings();
        settings.extend([ADMIN, ("MCPPROXY__DIRECT__ENABLED", "true")]);
        let stage = Stage::with(&settings).await;
        Asked { stage, collector, number: 0 }
    }

    /// Asks; gives what both say of it, which must be the same.
    async fn ask(&mut self, client: &Mcp, method: &str, rest: &str) -> [String; 5] {
        let params = format!(r#"{{"_meta":{{"traceparent":"{}"}}{rest}}}"#, self.next());
        self.sent(client, client.unsent("1", method, &params)).await
    }

    /// The `traceparent` of what is asked next.
    pub(super) fn next(&mut self) -> String {
        self.number += 1;
        format!("00-{:032x}-00f067aa0ba902b7-01", self.number)
    }

    /// The same of a request that has it already.
    async fn sent(&self, client: &Mcp, request: RequestBuilder) -> [String; 5] {
        self.timed(client, request).await.0
    }

    /// The span of what was asked last.
    async fn span(&self) -> Seen {
        let trace = format!("{:032x}", self.number);
        eventually("the span", Duration::from_secs(10), || async {
            self.collector.spans().into_iter().find(|span| span.trace == trace && span.kind == Kind::Server)
        })
        .await
    }

    /// The same, and how long both say that it took, in seconds.
    async fn timed(&self, client: &Mcp, request: RequestBuilder) -> ([String; 5], f64) {
        self.around(&[], async { drop(client.api.send(request).await) }).await
    }

    /// The same of the one request with these labels that is made, and over soon.
    pub(super) async fn around(
        &self,
        labels: &[(&str, &str)],
        act: impl Future<Output = ()>,
    ) -> ([String; 5], f64) {
        let page = self.stage.gateway.scrape().await;
        let (before, sum_before) = (by_series(&page, labels), page.sum(SUM, labels));
        act.await;
        let counted = |page: &Page| {
            let after = by_series(page, labels);
            after.into_iter().find(|(labels, count)| before.get(labels).unwrap_or(&0.0) < count)
        };
        let page = self.stage.gateway.scrape_until("the sample", |page| counted(page).is_some()).await;
        let counted_s = page.sum(SUM, labels) - sum_before;
        let (labels, _) = counted(&page).unwrap();
        let span = self.span().await;
        let said = BOTH.map(|(name, label)| {
            let (told, counted) = (span.get(name), labels.get(label).map_or("", String::as_str));
            // names of servers' tools are in no histogram
            if name != "gen_ai.tool.name" || OWN_TOOLS.contains(&told) {
                assert_eq!(told, counted, "{name}: {span:?}\n{labels:?}");
            }
            counted.to_owned()
        });
        assert_eq!(span.is_error, !said[0].is_empty(), "{span:?}");
        assert!((span.took_s - counted_s).abs() < 1e-6, "{counted_s} s, but {span:?}");
        (said, counted_s)
    }
}

fn by_series(page: &Page, labels: &[(&str, &str)]) -> BTreeMap<BTreeMap<String, String>, f64> {
    let samples = page.samples.iter().filter(|sample| {
        let has =
            |(label, value): &(&str, &str)| sample.labels.get(*label).is_some_and(|found| found == value);
        sample.name == COUNT && labels.iter().all(has)
    });
    samples.map(|sample| (sample.labels.clone(), sample.value)).collect()
}

/// A tenant with a server that has a prompt, a resource that is not there, and a tool that fails.
async fn tenant(stage: &Stage) -> (Tenant, Upstream) {
    let tenant = stage.tenant("acme").await;
    let error = json!({"code": -32000, "message": "no"}).to_string();
    let upstream = Upstream::modern(vec![
        Tool::reads("fails").says(Say::RpcError(error)),
        Tool::reads("sorry").returns(r#"{"content":[],"isError":true}"#),
    ])
    .await;
    // listed, and gone when it is read
    let gone = json!({"uri": "x://missing", "name": "gone"}).to_string();
    let resources = Some(vec![gone]);
    upstream.set_offers(Offers { broken: Some("prompts/get"), resources, ..Offers::prompts(&["sum"]) });
    tenant.add("up", &upstream).await;
    (tenant, upstream)
}

#[tokio::test(flavor = "multi_thread")]
async fn spans_and_histograms_agree_on_how_requests_end() {
    let mut asked = Asked::gateway().await;
    let (tenant, _upstream) = tenant(&asked.stage).await;
    let key = tenant.agent_with(json!({"direct_endpoint": true})).await;
    let own = |tool: &str| format!(r#","name":"call_tool_read","arguments":{{"name":"{tool}"}}"#);
    for (make, version, no_resource) in [
        (Mcp::modern as fn(&Api) -> Mcp, "2026-07-28", "-32602"),
        (Mcp::bare as fn(&Api) -> Mcp, "", "-32002"),
    ] {
        let (search, direct) = (make(&key), make(&key).at(DIRECT));
        let unknown = r#","name":"up:nope","arguments":{}"#.to_owned();
        let completion =
            r#","ref":{"type":"ref/prompt","name":"up:nope"},"argument":{"name":"a","value":"b"}"#.to_owned();
        let resource = r#","uri":"x://nope""#.to_owned();
        for (client, method, rest, error, code, tool) in [
            (&direct, "tools/call", unknown.clone(), "", "-32602", ""),
            (&direct, "prompts/get", unknown.clone(), "", "-32602", ""),
            (&direct, "completion/complete", completion, "", "-32602", ""),
            (&direct, "resources/read", resource.clone(), "", no_resource, ""),
            (&search, "resources/read", resource, "", no_resource, ""),
            (&direct, "resources/read", r#","uri":"x://missing""#.to_owned(), "", no_resource, ""),
            (&search, "prompts/get", unknown, "", "-32602", ""),
            (&direct, "prompts/get", r#","name":"up:sum""#.to_owned(), "-32603", "-32603", ""),
            (&direct, "tools/call", r#","name":"up:fails""#.to_owned(), "-32000", "-32000", ""),
            (&search, "tools/call", own("up:fails"), "-32000", "-32000", "call_tool_read"),
            (&search, "tools/call", own("up:sorry"), "tool_error", "", "call_tool_read"),
            (&search, "tools/call", own("up:nope"), "not_found", "", "call_tool_read"),
            (
                &search,
                "tools/call",
                r#","name":"call_tool_read","arguments":[]"#.to_owned(),
                "",
                "-32602",
                "call_tool_read",
            ),
            (&search, "planets/list", String::new(), "", "-32601", ""),
            (&search, "tools/list", String::new(), "", "", ""),
        ] {
            let said = asked.ask(client, method, &rest).await;
            let named = if method == "planets/list" { "_OTHER" } else { method };
            assert_eq!(said, [error, code, named, version, tool], "{rest}");
        }
        // too much, of each sort
        let hasty = tenant.agent_with(json!({"direct_endpoint": true, "rate_limit": 1})).await;
        for (client, method, rest) in [
            (make(&hasty), "tools/list", ""),
            (make(&hasty).at(DIRECT), "prompts/list", ""),
            (make(&hasty).at(DIRECT), "prompts/get", r#","name":"up:sum""#),
            (make(&hasty).at(DIRECT), "resources/read", r#","uri":"x://secret""#),
        ] {
            let mut said = asked.ask(&client, method, rest).await;
            for _ in 0..60 {
                if said[1] == "-31429" {
                    break;
                }
                said = asked.ask(&client, method, rest).await;
            }
            assert_eq!(said, ["rate_limited", "-31429", method, version, ""]);
            // the prompt was found before, and what is at a URI was not looked for
            let span = asked.span().await;
            assert_eq!(span.get("gen_ai.prompt.name"), if rest.contains("up:sum") { "up:sum" } else { "" });
            assert_eq!(span.get("mcp.resource.uri"), "", "{span:?}");
        }
    }
}

#[tokio::test]
async fn spans_and_histograms_agree_on_the_revision() {
    let mut asked = Asked::gateway().await;
    let key = asked.stage.tenant("acme").await.agent().await;
    let hello =
        r#","protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"c","version":"1"}"#;
    let said = asked.ask(&Mcp::bare(&key), "initialize", hello).await;
    assert_eq!(said, ["", "", "initialize", "2025-06-18", ""]);

    let session = Mcp::session(&key).await;
    assert_eq!(asked.ask(&session, "ping", "").await, ["", "", "ping", "2025-11-25", ""]);
    let meta = json!({"_meta": {"traceparent": asked.next()}});
    let note = json!({"jsonrpc": "2.0", "method": "notifications/progress", "params": meta});
    let request = session.http(reqwest::Method::POST).header("Content-Type", "application/json");
    let said = asked.sent(&session, request.body(note.to_string())).await;
    assert_eq!(said, ["", "", "notifications/progress", "2025-11-25", ""]);
    let span = asked.collector.named("notifications/progress").await;
    assert_ne!(span.get("mcp.session.id"), "", "{span:?}");

    let meta = json!({"_meta": {"traceparent": asked.next(), "io.modelcontextprotocol/protocolVersion": "2027-01-01"}});
    let note = json!({"jsonrpc": "2.0", "method": "notifications/progress", "params": meta});
    let request = session.http(reqwest::Method::POST).header("Content-Type", "application/json");
    let said = asked.sent(&session, request.body(note.to_string())).await;
    assert_eq!(said, ["", "", "notifications/progress", "", ""]);

    // one that nobody speaks is not told, nor is it taken for the newest
    let own = "io.modelcontextprotocol/protocolVersion";
    let meta = json!({"_meta": {"traceparent": asked.next(), own: "2027-01-01"}});
    let strange = json!({"jsonrpc": "2.0", "id": 1, "method": "ping", "params": meta});
    let request = Mcp::bare(&key).http(reqwest::Method::POST).header("Content-Type", "application/json");
    let request = request.header("MCP-Protocol-Version", "2027-01-01").body(strange.to_string());
    assert_eq!(asked.sent(&session, request).await, ["-32022", "-32022", "ping", "", ""]);
}

#[tokio::test]
async fn a_body_that_comes_slowly_is_part_of_both() {
    let mut asked = Asked::gateway().await;
    let client = Mcp::bare(&asked.stage.tenant("acme").await.agent().await);
    let meta = json!({"_meta": {"traceparent": asked.next()}});
    let whole = json!({"jsonrpc": "2.0", "id": 1, "method": "ping", "params": meta}).to_string();
    let (first, rest) = whole.split_at(20);
    let parts = [(first.to_owned(), Duration::ZERO), (rest.to_owned(), Duration::from_millis(400))];
    let slowly = futures_util::stream::iter(parts).then(|(part, after)| async move {
        tokio::time::sleep(after).await;
        Ok::<_, std::io::Error>(part)
    });
    let request = client.http(reqwest::Method::POST).header("Content-Type", "application/json");
    let (said, took_s) = asked.timed(&client, request.body(reqwest::Body::wrap_stream(slowly))).await;
    assert_eq!(said, ["", "", "ping", "", ""]);
    // the gateway may have seen the head a little after the pause began
    assert!(took_s >= 0.3, "{took_s}");
}
