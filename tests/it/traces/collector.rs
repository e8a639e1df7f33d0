//! Collectors of all kinds: over gRPC, away, and silent.

use std::time::{Duration, Instant};

use serde_json::json;
use tokio::net::TcpListener;

use super::{AGENT, TRACE, agent, params};
use crate::support::{ADMIN, Collector, Kind, Mcp, Stage, Tool, Upstream, eventually};

/// A client, and the server that it calls.
async fn ready(stage: &Stage) -> (Mcp, Upstream) {
    let tenant = stage.tenant("acme").await;
    let upstream = Upstream::handshake(vec![Tool::reads("look")]).await;
    tenant.add("up", &upstream).await;
    (Mcp::bare(&tenant.agent().await), upstream)
}

async fn called((client, _): &(Mcp, Upstream), calls: usize) {
    for _ in 0..calls {
        let meta = json!({"traceparent": agent("01")});
        client.request("tools/call", &params("up:look", &json!({}), &meta)).await.expect(200);
    }
}

#[tokio::test]
async fn spans_go_out_over_grpc_and_the_last_ones_before_the_end() {
    let collector = Collector::start().await;
    // as slow as it gets: nothing would come in time but for the end
    let settings = [
        ("MCPPROXY__TELEMETRY__OTLP_ENDPOINT", collector.grpc.as_str()),
        ("MCPPROXY__TELEMETRY__OTLP_PROTOCOL", "grpc"),
        ("MCPPROXY__TELEMETRY__SERVICE_NAME", "gateway-of-the-tests"),
        ("OTEL_RESOURCE_ATTRIBUTES", "deployment.environment.name=test"),
        ("OTEL_EXPORTER_OTLP_HEADERS", "x-collector-key=its-own"),
        ("OTEL_BSP_SCHEDULE_DELAY", "600000"),
    ];
    let mut stage = Stage::with(&settings).await;
    called(&ready(&stage).await, 1).await;
    assert_eq!(collector.spans().len(), 0);
    stage.gateway.terminate();
    assert!(stage.gateway.ended().await.success());
    let spans = collector.trace(TRACE, 2).await;
    assert_eq!((spans[0].kind, spans[0].parent.as_str()), (Kind::Server, AGENT));
    assert_eq!(spans[1].resource["service.name"], "gateway-of-the-tests");
    assert!(collector.raw().contains("its-own"));
    assert_eq!(spans[1].resource["deployment.environment.name"], "test");
}

#[tokio::test]
async fn a_collector_that_is_away_costs_nothing_and_is_named_once() {
    let free = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = free.local_addr().unwrap();
    drop(free);
    let away = async |protocol: &str, scheme: &str| {
        let endpoint = format!("{scheme}://{address}");
        let settings = [
            ("MCPPROXY__TELEMETRY__OTLP_ENDPOINT", endpoint.as_str()),
            ("MCPPROXY__TELEMETRY__OTLP_PROTOCOL", protocol),
            ("OTEL_BSP_SCHEDULE_DELAY", "10"),
        ];
        let mut stage = Stage::with(&settings).await;
        called(&ready(&stage).await, 20).await;
        stage.gateway.terminate();
        assert!(stage.gateway.ended().await.success());
        let log = stage.gateway.log();
        assert_eq!(log.matches("spans were lost").count(), 1, "{log}");
    };
    tokio::join!(
        away("grpc", "http"),
        away("grpc", "https"),
        away("http/protobuf", "http"),
        away("http/protobuf", "https"),
    );
}

#[tokio::test]
async fn a_collector_that_says_nothing_holds_up_neither_calls_nor_the_end() {
    let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let endpoint = format!("http://{}", silent.local_addr().unwrap());
    let settings =
        [("MCPPROXY__TELEMETRY__OTLP_ENDPOINT", endpoint.as_str()), ("OTEL_BSP_SCHEDULE_DELAY", "10")];
    let mut stage = Stage::with(&settings).await;
    let client = ready(&stage).await;
    let began = Instant::now();
    called(&client, 20).await;
    // one batch that waited for its collector would take longer by itself
    assert!(began.elapsed() < Duration::from_secs(4), "{:?}", began.elapsed());
    stage.gateway.terminate();
    let began = Instant::now();
    assert!(stage.gateway.ended().await.success());
    assert!(began.elapsed() < Duration::from_secs(8), "{:?}", began.elapsed());
}

/// More than half of the places, beside the batch that is on its way.
const MANY: usize = 8192 / 2 + 512 + 200;

#[tokio::test(flavor = "multi_thread")]
async fn what_one_tenant_has_recorded_takes_no_places_from_others() {
    let collector = Collector::start().await;
    let stage = Stage::with(&[&collector.settings()[..], &[ADMIN]].concat()).await;
    let (greedy, modest) = (stage.tenant("greedy").await.agent().await, stage.tenant("modest").await);
    collector.hold(true);
    let pings = json!({"_meta": {"traceparent": agent("01")}}).to_string();
    let clients: Vec<Mcp> = (0..8).map(|_| Mcp::bare(&greedy)).collect();
    let round = async |pings_each: usize| {
        let of_one = async |client: &Mcp| {
            for _ in 0..pings_each {
                client.request("ping", &pings).await.expect(200);
            }
        };
        futures_util::future::join_all(clients.iter().map(of_one)).await;
    };
    round(MANY / 8).await;
    let lost = "mcpproxy_spans_lost_total";
    // on a slow machine the collector's first batch may have been given up meanwhile, and made places
    let page = eventually("spans lost for want of a share", Duration::from_secs(60), || async {
        round(16).await;
        let page = stage.gateway.scrape().await;
        (page.sum(lost, &[("reason", "share")]) >= 100.0).then_some(page)
    })
    .await;
    assert_eq!(page.sum(lost, &[("reason", "full")]), 0.0);
    Mcp::bare(&modest.agent().await).request("ping", "{}").await.expect(200);
    collector.hold(false);
    eventually("the span of the other tenant", Duration::from_secs(10), || async {
        collector.spans().into_iter().find(|span| span.get("mcpproxy.tenant") == "modest")
    })
    .await;
    assert!(collector.spans().iter().any(|span| span.get("mcpproxy.tenant") == "greedy"));
}
