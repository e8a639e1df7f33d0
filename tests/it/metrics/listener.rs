//! The operator's listener: what it answers, to whom, and for how long.

use std::io::{ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::time::{Duration, Instant};

use mcpproxy::faces::admin::CONNECTIONS_MAX;
use serde_json::json;

use super::promtool;
use crate::support::upstream::Say;
use crate::support::{
    ADMIN, Database, Gateway, Line, Mcp, Page, Stage, Tool, Upstream, Way, eventually, run_to_end, settle,
};

#[tokio::test]
async fn it_answers_three_questions_and_nothing_else() {
    let stage = Stage::with(&[ADMIN]).await;
    let admin = stage.gateway.anonymous().at(&stage.gateway.admin_url());
    for (path, status) in [
        ("/metrics", 200),
        ("/livez", 200),
        ("/readyz", 200),
        ("/", 404),
        ("/mcp", 404),
        ("/mcp/direct", 404),
    ] {
        assert_eq!(admin.get(path).await.status, status, "{path}");
    }
    assert_eq!(admin.post("/metrics", &json!({})).await.status, 405);
    // nor is it on the main listener, with a key or without one
    assert_eq!(stage.gateway.anonymous().get("/metrics").await.status, 401);
    assert_eq!(stage.platform().get("/metrics").await.status, 404);

    let plain = admin.get("/metrics").await;
    assert_eq!(plain.header("content-type"), "text/plain; version=0.0.4; charset=utf-8");
    let (is_good, said) = promtool(&["check", "metrics"], &plain.text);
    assert!(is_good && said.is_empty(), "{said}");
    let accept = "application/openmetrics-text;version=1.0.0,text/plain;version=0.0.4;q=0.5";
    let open = admin.send(admin.request(reqwest::Method::GET, "/metrics").header("Accept", accept)).await;
    assert_eq!(open.header("content-type"), "application/openmetrics-text; version=1.0.0; charset=utf-8");
    assert!(open.text.ends_with("# EOF\n") && open.text.contains("# TYPE mcpproxy_shed counter\n"));
    assert!(plain.text.contains("# TYPE mcpproxy_shed_total counter\n"), "{}", plain.text);
}

#[tokio::test]
async fn a_port_that_is_taken_stops_the_start() {
    let database = Database::create().await;
    Gateway::migrate(&database);
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let ended = run_to_end(&database, &["serve"], &[("MCPPROXY__SERVER__ADMIN_LISTEN", &address)]);
    let said = String::from_utf8_lossy(&ended.stderr).into_owned();
    assert_eq!(ended.status.code(), Some(1), "{said}");
    let named = said.contains(&address) && said.contains("server.admin_listen");
    assert!(named && said.contains("name a free address"), "{said}");
}

#[tokio::test]
async fn it_answers_while_the_database_is_away() {
    let database = Database::create().await;
    Gateway::migrate(&database);
    let line = Line::to(database.port()).await;
    let url = line.url(&database.url());
    let gateway = Gateway::start(&database, &[ADMIN, ("MCPPROXY__DATABASE__URL", &url)]).await;
    let page = gateway
        .scrape_until("all to be well", |page| {
            page.sum("mcpproxy_listener_connected", &[]) == 1.0
                && page.sum("mcpproxy_partitions_ahead", &[]) == 14.0
        })
        .await;
    assert_eq!(page.sum("mcpproxy_database_up", &[]), 1.0);
    assert_eq!(page.sum("mcpproxy_ready", &[]), 1.0);
    assert!(page.sum("mcpproxy_lease_held", &[("lease", "relist")]) <= 1.0);
    line.turn(Way::Refuses).await;
    let page = gateway
        .scrape_until("it to notice", |page| {
            page.sum("mcpproxy_database_up", &[]) == 0.0
                && page.sum("mcpproxy_listener_connected", &[]) == 0.0
                && page.sum("mcpproxy_snapshot_age_seconds", &[]) > 3.0
        })
        .await;
    assert_eq!(page.sum("mcpproxy_activity_records_lost_total", &[]), 0.0);
    line.turn(Way::Open).await;
    gateway.scrape_until("it to recover", |page| page.sum("mcpproxy_database_up", &[]) == 1.0).await;
}

#[tokio::test]
async fn it_answers_until_the_end_of_a_drain() {
    let mut stage = Stage::with(&[ADMIN]).await;
    let tenant = stage.tenant("acme").await;
    let (open, gate) = tokio::sync::watch::channel(false);
    let answer = Box::new(Say::Result(r#"{"content":[]}"#.to_owned()));
    let upstream = Upstream::handshake(vec![Tool::reads("slow").says(Say::Gate(gate, answer))]).await;
    tenant.add("up", &upstream).await;
    let agent = tenant.agent().await;
    let admin = stage.gateway.anonymous().at(&stage.gateway.admin_url());
    let call = tokio::spawn(async move { Mcp::bare(&agent).run("read", "up:slow", &json!({})).await });
    eventually("the call to arrive", Duration::from_secs(10), || async {
        (upstream.counts().calls == 1).then_some(())
    })
    .await;
    stage.gateway.terminate();
    settle("draining".to_owned(), Duration::from_secs(10), || async {
        admin.get("/readyz").await.text.trim().to_owned()
    })
    .await;
    let page = stage.gateway.scrape().await;
    assert_eq!(page.sum("mcpproxy_ready", &[]), 0.0);
    assert!(page.sum("mcpproxy_activity_buffer_records", &[]) >= 1.0);
    open.send_replace(true);
    call.await.unwrap().ok();
    assert!(stage.gateway.ended().await.success());
    assert_eq!(admin.get("/livez").await.status, 0);
}

#[tokio::test]
async fn who_says_nothing_keeps_nobody_out() {
    let stage = Stage::with(&[ADMIN]).await;
    let url = stage.gateway.admin_url();
    let address = url.strip_prefix("http://").unwrap().to_owned();
    // as many as there may be, each with half a request
    let silent: Vec<TcpStream> = (0..CONNECTIONS_MAX)
        .map(|_| {
            let mut stream = TcpStream::connect(&address).unwrap();
            stream.write_all(b"GET /metrics HT").unwrap();
            stream
        })
        .collect();
    stage.gateway.scrape().await;
    for mut stream in silent {
        stream.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        // answered with an error, or just closed
        let ended = stream.read_to_end(&mut Vec::new());
        assert!(
            ended.as_ref().map_or_else(|error| error.kind() == ErrorKind::ConnectionReset, |_| true),
            "{ended:?}"
        );
    }
}

#[tokio::test]
async fn a_page_is_handed_out_again_for_half_a_second_and_not_for_longer() {
    let often = ("MCPPROXY__LIMITS__METRICS_AGE_MAX_MS", "500");
    let stage = Stage::with(&[ADMIN, often]).await;
    let client = Mcp::bare(&stage.tenant("acme").await.agent().await);
    let pings = |page: &Page| page.sum("mcp_server_operation_duration_seconds_count", &[]);
    // two pages at once are the same, unless the first had just become too old
    let began = Instant::now();
    let (first, _, second) =
        (stage.gateway.scrape().await, client.request("ping", "{}").await, stage.gateway.scrape().await);
    assert!(first.text == second.text || began.elapsed() > Duration::from_millis(400));
    stage.gateway.scrape_until("the ping", |page| pings(page) == 1.0).await;
}
