//! Upstreams that announce changes of their tools: who waits for that, and how soon a change is seen.

use std::time::Duration;

use serde_json::json;

use crate::support::upstream::Era;
use crate::support::{Api, Gateway, Mcp, RealServer, Stage, Tenant, Tool, Upstream, eventually, settle};

/// A change that was announced is seen within this, on every replica.
const SOON: Duration = Duration::from_secs(2);
/// A stream is open within this after its server was added.
const OPENED: Duration = Duration::from_secs(10);
/// The lease of a dead replica is looked for every 2 s.
const TAKEN_OVER: Duration = Duration::from_secs(15);
/// Nothing is listed again by itself: what is seen was announced.
const ONLY_ANNOUNCED: (&str, &str) = ("MCPPROXY__LIMITS__RELIST_INTERVAL_S", "3600");
const ERAS: [Era; 2] = [Era::Handshake, Era::Modern];

async fn is_listening(upstream: &Upstream) {
    settle(1, OPENED, || async { upstream.listeners() }).await;
    // the listing that follows the opening: what changed before was announced to nobody
    settle(true, SOON, || async { upstream.counts().lists >= 2 }).await;
}

/// The names of a server's tools, as its administrators see them.
async fn tools(platform: &Api, server: &str) -> Vec<String> {
    let items = platform.items(&format!("/api/v1/servers/{server}/tools")).await;
    items.iter().map(|tool| tool["name"].as_str().unwrap().to_owned()).collect()
}

async fn found(agent: &Api, query: &str) -> u64 {
    Mcp::bare(agent).search(&json!({"query": query})).await["total"].as_u64().unwrap()
}

async fn announcing(tenant: &Tenant, name: &str, era: Era) -> Upstream {
    let upstream = Upstream::announcing(era, vec![Tool::reads("alpha")]).await;
    tenant.add_with(name, &upstream, json!({"auto_approve": true})).await;
    upstream
}

#[tokio::test]
async fn an_announced_change_is_seen_on_every_replica() {
    let stage = Stage::with(&[ONLY_ANNOUNCED]).await;
    let other = Gateway::start(&stage.database, &[ONLY_ANNOUNCED]).await;
    let tenant = stage.tenant("acme").await;
    let agent = tenant.agent().await;
    for (name, era) in ["old", "new"].into_iter().zip(ERAS) {
        let upstream = announcing(&tenant, name, era).await;
        is_listening(&upstream).await;
        let beta = format!("{name}beta");
        upstream.set_tools(vec![Tool::reads("alpha"), Tool::reads(&beta)]);
        upstream.announce(1);
        for gateway in [&stage.gateway, &other] {
            let (platform, agent) = (gateway.ask_as(&tenant.platform), gateway.ask_as(&agent));
            settle(vec!["alpha".to_owned(), beta.clone()], SOON, || tools(&platform, name)).await;
            settle(1, SOON, || found(&agent, &beta)).await;
        }
        assert_eq!(upstream.listeners(), 1, "one replica watches");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn servers_on_the_official_sdks_are_heard() {
    let stage = Stage::with(&[ONLY_ANNOUNCED]).await;
    let tenant = stage.tenant("acme").await;
    let agent = tenant.agent().await;
    let (old, new) = tokio::join!(RealServer::changing_js(), RealServer::changing_py());
    for (name, server, era) in [("old", &old, "handshake"), ("new", &new, "modern")] {
        let body = json!({"name": name, "kind": "http", "url": server.url, "auto_approve": true});
        let added = tenant.platform.post("/api/v1/servers", &body).await.expect(201);
        assert_eq!((&added["era"], &added["last_error"]), (&json!(era), &json!(null)), "{added}");
        assert_eq!(tools(&tenant.platform, name).await, ["grow"]);
        // its stream is open once it is listed again; a change before that would not have to be announced
        let path = format!("/api/v1/servers/{name}");
        let listed = async || tenant.platform.get(&path).await.expect(200)["last_ok_at"].clone();
        let first = listed().await;
        eventually("the stream", OPENED, || async { (listed().await != first).then_some(()) }).await;
        Mcp::bare(&agent).run("read", &format!("{name}:grow"), &json!({})).await.ok();
        let grown = vec!["grow".to_owned(), "grown".to_owned()];
        settle(grown, SOON, || tools(&tenant.platform, name)).await;
    }
}

#[tokio::test]
async fn a_silent_change_is_found_by_listing() {
    let stage = Stage::with(&[("MCPPROXY__LIMITS__RELIST_INTERVAL_S", "1")]).await;
    let tenant = stage.tenant("acme").await;
    let upstream = Upstream::handshake(vec![Tool::reads("alpha")]).await;
    tenant.add_with("up", &upstream, json!({"auto_approve": true})).await;
    upstream.set_tools(vec![Tool::reads("beta")]);
    settle(vec!["beta".to_owned()], OPENED, || tools(&tenant.platform, "up")).await;
    assert_eq!(upstream.listeners(), 0);
    assert_eq!(upstream.counts().initializes, 1, "no session is opened where nothing would be announced");
}

#[tokio::test]
async fn a_server_that_announces_is_asked_for_a_sign_of_life_only() {
    let stage = Stage::with(&[("MCPPROXY__LIMITS__RELIST_INTERVAL_S", "1")]).await;
    let tenant = stage.tenant("acme").await;
    let old = announcing(&tenant, "old", Era::Handshake).await;
    let new = announcing(&tenant, "new", Era::Modern).await;
    is_listening(&old).await;
    is_listening(&new).await;
    let server = async |name: &str| tenant.platform.get(&format!("/api/v1/servers/{name}")).await.expect(200);
    let last_ok =
        async || [server("old").await, server("new").await].map(|server| server["last_ok_at"].to_string());
    let lists = || [&old, &new].map(|upstream| upstream.counts().lists);
    let (listed, before) = (lists(), last_ok().await);
    settle(true, OPENED, || async {
        last_ok().await.into_iter().zip(&before).all(|(now, then)| now > *then)
    })
    .await;
    for (now, then) in lists().into_iter().zip(listed) {
        // at most the one that was under way when the stream was opened
        assert!(now <= then + 1, "{now} listings after {then}");
    }
    assert_eq!(server("old").await["connection"], "connected");
}

#[tokio::test]
async fn a_stream_comes_back_with_its_server() {
    let stage = Stage::with(&[ONLY_ANNOUNCED]).await;
    let tenant = stage.tenant("acme").await;
    for (name, era) in ["old", "new"].into_iter().zip(ERAS) {
        let mut upstream = announcing(&tenant, name, era).await;
        is_listening(&upstream).await;
        upstream.go_down().await;
        settle(0, SOON, || async { upstream.listeners() }).await;
        // changed while it was away, announced to nobody
        upstream.set_tools(vec![Tool::reads("later")]);
        upstream.come_back().await;
        settle(vec!["later".to_owned()], OPENED, || tools(&tenant.platform, name)).await;
        assert_eq!(upstream.listeners(), 1);
    }
}

#[tokio::test]
async fn a_flood_of_announcements_costs_few_listings() {
    let stage = Stage::with(&[ONLY_ANNOUNCED]).await;
    let tenant = stage.tenant("acme").await;
    let old = announcing(&tenant, "old", Era::Handshake).await;
    let new = announcing(&tenant, "new", Era::Modern).await;
    is_listening(&old).await;
    is_listening(&new).await;
    let before = [&old, &new].map(|upstream| upstream.counts().lists);
    let began = std::time::Instant::now();
    let mut ticks = tokio::time::interval(Duration::from_millis(20));
    for _ in 0..150 {
        ticks.tick().await;
        old.announce(50);
        new.announce(50);
    }
    for (upstream, before) in [&old, &new].into_iter().zip(before) {
        let lists = upstream.counts().lists - before;
        // one a second, also where 3 s of ticks take longer
        let most = began.elapsed().as_secs_f64().ceil() as usize + 1;
        assert!((1..=most).contains(&lists), "{lists} listings in {:?}", began.elapsed());
        assert_eq!(upstream.listeners(), 1, "a flood is no reason to hang up");
    }
    // and is no obstacle to others
    old.set_tools(vec![Tool::reads("beta")]);
    settle(vec!["beta".to_owned()], OPENED, || tools(&tenant.platform, "old")).await;
    // what upstreams say is not for the log, and least of all a session's id
    let log = stage.gateway.log();
    assert!(!log.contains("list_changed") && !log.contains("session-") && !log.contains("rmcp"), "{log}");
}

#[tokio::test]
async fn a_server_that_is_not_wanted_any_more_is_not_listened_to() {
    let stage = Stage::with(&[ONLY_ANNOUNCED]).await;
    let tenant = stage.tenant("acme").await;
    let (first, second) = (
        announcing(&tenant, "first", Era::Modern).await,
        announcing(&tenant, "second", Era::Handshake).await,
    );
    is_listening(&first).await;
    is_listening(&second).await;
    tenant.platform.post("/api/v1/servers/first/disable", &json!({})).await.expect(200);
    tenant.platform.delete("/api/v1/servers/second").await.expect(204);
    settle((0, 0), OPENED, || async { (first.listeners(), second.listeners()) }).await;
    tenant.platform.post("/api/v1/servers/first/enable", &json!({})).await.expect(200);
    settle(1, OPENED, || async { first.listeners() }).await;
}

#[tokio::test]
async fn servers_that_announce_nothing_hold_no_place() {
    let stage = Stage::with(&[ONLY_ANNOUNCED, ("MCPPROXY__LIMITS__UPSTREAM_STREAMS_MAX", "1")]).await;
    let tenant = stage.tenant("acme").await;
    let mut silent = Vec::new();
    for n in 0..5 {
        let upstream = Upstream::handshake(vec![Tool::reads("alpha")]).await;
        tenant.add(&format!("silent-{n}"), &upstream).await;
        silent.push(upstream);
    }
    let upstream = announcing(&tenant, "up", Era::Modern).await;
    is_listening(&upstream).await;
}

#[tokio::test]
async fn another_replica_takes_over() {
    let mut stage = Stage::with(&[ONLY_ANNOUNCED]).await;
    let tenant = stage.tenant("acme").await;
    let upstream = announcing(&tenant, "up", Era::Modern).await;
    is_listening(&upstream).await;
    let other = Gateway::start(&stage.database, &[ONLY_ANNOUNCED]).await;
    let platform = other.ask_as(&tenant.platform);
    let connection = async || platform.get("/api/v1/servers/up").await.expect(200)["connection"].clone();
    assert_eq!(connection().await, "connected");
    stage.gateway.kill();
    // as it will be after 10 s
    let aged = "update replicas set heartbeat_at = heartbeat_at - interval '10 s'
        where replica_id = (select replica_id from replicas order by started_at limit 1)";
    sqlx::query(aged).execute(&mut stage.database.connect().await).await.unwrap();
    settle(0, SOON, || async { upstream.listeners() }).await;
    settle(1, TAKEN_OVER, || async { upstream.listeners() }).await;
    assert_eq!(connection().await, "connected", "losing a lease changes nothing");
    upstream.set_tools(vec![Tool::reads("beta")]);
    upstream.announce(1);
    settle(vec!["beta".to_owned()], SOON, || tools(&platform, "up")).await;
}
