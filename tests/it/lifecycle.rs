//! Starting, stopping, and dying.

use std::time::{Duration, Instant};

use serde_json::{Value, json};
use sqlx::AssertSqlSafe;

use crate::support::upstream::Say;
use crate::support::{Database, Gateway, Mcp, Stage, Tool, Upstream, run_to_end, settle};

#[tokio::test]
async fn a_database_that_was_never_migrated_is_refused() {
    let database = Database::create().await;
    let ended = run_to_end(&database, &["serve"], &[]);
    let said = String::from_utf8_lossy(&ended.stderr).into_owned();
    assert_eq!(ended.status.code(), Some(3), "{said}");
    assert!(said.contains("mcpproxy migrate"), "{said}");
    // twice does no harm
    for says in [" migrated: ", "no files to apply"] {
        let done = run_to_end(&database, &["migrate"], &[]);
        let said = String::from_utf8_lossy(&done.stderr).into_owned();
        assert!(done.status.success() && said.contains(says), "{said}");
    }
    Gateway::start(&database, &[]).await;
}

#[tokio::test]
async fn settings_that_cannot_hold_stop_the_start() {
    let database = Database::migrated().await;
    let cases = [
        ("MCPPROXY__SERVER__LISTNE", "127.0.0.1:0", "LISTNE"),
        ("MCPPROXY__NOPE", "1", "NOPE"),
        ("MCPPROXY__SERVER__LISTEN", "everywhere", "listen"),
        ("MCPPROXY__AUTH__BOOTSTRAP_KEY", "too-short-secret", "bootstrap_key"),
        ("MCPPROXY__SESSIONS__KEY", "too-short-secret", "sessions.key"),
        ("MCPPROXY__SECRETS__MASTER_KEY", "dG9vLXNob3J0LXNlY3JldA==", "master_key"),
        (
            "MCPPROXY__SESSIONS__KEY",
            "[a-new-key-that-is-too-short-secret, an-old-key-that-is-long-enough]",
            "brackets",
        ),
        ("MCPPROXY__EGRESS__ALLOW", "everything", "egress.allow"),
        ("MCPPROXY__LIMITS__DRAIN_S", "soon", "drain_s"),
    ];
    for (name, value, named) in cases {
        let ended = run_to_end(&database, &["serve"], &[(name, value)]);
        let said = String::from_utf8_lossy(&ended.stderr).to_lowercase();
        assert_eq!(ended.status.code(), Some(2), "{name}: {said}");
        assert!(said.contains(&named.to_lowercase()), "{name}: {said}");
        assert!(!said.contains("too-short-secret") && !said.contains("dg9vlxnob3j0"), "{name}: {said}");
    }
}

#[tokio::test]
async fn a_missing_secret_is_named() {
    let database = Database::migrated().await;
    for (name, named) in [
        ("MCPPROXY__AUTH__BOOTSTRAP_KEY", "bootstrap_key"),
        ("MCPPROXY__SESSIONS__KEY", "sessions.key"),
        ("MCPPROXY__SECRETS__MASTER_KEY", "master_key"),
    ] {
        let ended = run_to_end(&database, &["serve"], &[(name, "")]);
        let said = String::from_utf8_lossy(&ended.stderr).to_lowercase();
        assert!(ended.status.code() == Some(2) && said.contains(named), "{name}: {said}");
    }
}

/// Whoever starts it again and again has to know whether that helps.
#[tokio::test]
async fn the_exit_code_says_whether_another_start_helps() {
    let database = Database::create().await;
    // a port that nobody listens on: one that was just free
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let away = format!("postgres://postgres@127.0.0.1:{port}/mcpproxy");
    let mut nowhere: Vec<String> = database.url().split('/').map(str::to_owned).collect();
    *nowhere.last_mut().unwrap() = "no_such_database".to_owned();
    let cases =
        [(away, 1, "Connection refused"), (nowhere.join("/"), 3, "\"no_such_database\" does not exist")];
    for (url, code, says) in &cases {
        for command in ["serve", "migrate"] {
            let ended = run_to_end(&database, &[command], &[("MCPPROXY__DATABASE__URL", url)]);
            let said = String::from_utf8_lossy(&ended.stderr).into_owned();
            assert_eq!(ended.status.code(), Some(*code), "{command}: {said}");
            assert!(said.contains(says) && said.contains("database.url"), "{command}: {said}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn sigterm_lets_calls_finish() {
    const CALLS: usize = 8;
    let mut stage = Stage::start().await;
    let tenant = stage.tenant("acme").await;
    let (open, gate) = tokio::sync::watch::channel(false);
    let held = Say::Gate(gate, Box::new(Say::Echo));
    let upstream =
        Upstream::handshake(vec![Tool::writes("slow").says(held.clone()), Tool::reads("look").says(held)])
            .await;
    tenant.add("up", &upstream).await;
    let agent = tenant.agent().await;
    let mut stream = Mcp::session(&agent).await.http(reqwest::Method::GET).send().await.unwrap();
    let calls: Vec<_> = (0..CALLS)
        .map(|n| {
            let client = Mcp::bare(&agent);
            let (variant, name) = if n % 2 == 0 { ("write", "up:slow") } else { ("read", "up:look") };
            tokio::spawn(async move { client.run(variant, name, &json!({})).await.code() })
        })
        .collect();
    settle(CALLS, Duration::from_secs(10), || async { upstream.counts().calls }).await;
    stage.gateway.terminate();
    // the stream ends, so that its client goes elsewhere
    let ended = tokio::time::timeout(Duration::from_secs(5), async {
        while let Ok(Some(_)) = stream.chunk().await {}
    });
    ended.await.unwrap();
    open.send_replace(true);
    for call in calls {
        assert_eq!(call.await.unwrap(), "ok");
    }
    let status = stage.gateway.ended().await;
    let log = stage.gateway.log();
    assert_eq!(status.code(), Some(0), "{log}");
    let place = |says: &str| log.find(says).unwrap_or_else(|| panic!("no {says:?} in: {log}"));
    let told =
        place(&format!("told to stop: no new clients are to be sent here delay_s=0 under_way={CALLS}"));
    let drained = place(&format!("calls under way may finish drain_s=25 under_way={CALLS}"));
    assert!(told < drained && drained < place(" stopped"), "{log}");
    assert!(!log.contains("the drain is over"), "{log}");
    let mut connection = stage.database.connect().await;
    let statuses: Vec<(String, i64)> =
        sqlx::query_as("select status, count(*) from activity where type = 'tool_call' group by 1")
            .fetch_all(&mut connection)
            .await
            .unwrap();
    assert_eq!(statuses, [("success".to_owned(), CALLS as i64)]);
    let open: i64 =
        sqlx::query_scalar("select count(*) from activity_open").fetch_one(&mut connection).await.unwrap();
    assert_eq!(open, 0);
}

#[tokio::test]
async fn a_drain_that_ends_with_calls_left_says_how_many() {
    let mut stage = Stage::with(&[("MCPPROXY__LIMITS__DRAIN_S", "1")]).await;
    let tenant = stage.tenant("acme").await;
    let (_closed, gate) = tokio::sync::watch::channel(false);
    let held = Say::Gate(gate, Box::new(Say::Echo));
    let upstream = Upstream::handshake(vec![Tool::writes("slow").says(held)]).await;
    tenant.add("up", &upstream).await;
    let client = Mcp::bare(&tenant.agent().await);
    let call = tokio::spawn(async move { client.run("write", "up:slow", &json!({})).await.code() });
    settle(1, Duration::from_secs(10), || async { upstream.counts().calls }).await;
    stage.gateway.terminate();
    let status = stage.gateway.ended().await;
    let log = stage.gateway.log();
    assert_eq!(status.code(), Some(0), "{log}");
    assert!(log.contains("the drain is over, with calls under way"), "{log}");
    assert!(log.contains("closed as unknown under_way=1"), "{log}");
    call.abort();
}

/// Behind a load balancer that takes a moment to hear of it, nobody is turned away meanwhile.
#[tokio::test]
async fn new_connections_are_taken_until_the_delay_is_over() {
    let mut stage = Stage::with(&[("MCPPROXY__LIMITS__DRAIN_DELAY_S", "3")]).await;
    let tenant = stage.tenant("acme").await;
    let upstream = Upstream::handshake(vec![Tool::reads("look")]).await;
    tenant.add("up", &upstream).await;
    let agent = tenant.agent().await;
    let mut stream = Mcp::session(&agent).await.http(reqwest::Method::GET).send().await.unwrap();
    let begun = Instant::now();
    stage.gateway.terminate();
    settle(503, Duration::from_secs(2), || async { agent.get("/readyz").await.status }).await;
    assert_eq!(Mcp::bare(&agent).run("read", "up:look", &json!({})).await.code(), "ok");
    let answer = agent.request(reqwest::Method::GET, "/api/v1/servers").send().await.unwrap();
    assert_eq!(answer.headers()["connection"], "close");
    let stranger =
        stage.gateway.anonymous().request(reqwest::Method::GET, "/api/v1/servers").send().await.unwrap();
    assert_eq!(
        (stranger.status().as_u16(), &stranger.headers()["connection"]),
        (401, &"close".parse().unwrap())
    );
    assert!(begun.elapsed() < Duration::from_secs(3), "the machine is too slow for this test");
    while let Ok(Some(_)) = stream.chunk().await {}
    assert!(
        begun.elapsed() >= Duration::from_secs(3),
        "the stream ended before its client could go elsewhere"
    );
    let status = stage.gateway.ended().await;
    assert_eq!(status.code(), Some(0), "{}", stage.gateway.log());
}

#[tokio::test]
async fn a_clock_that_differs_from_the_databases_is_named() {
    let database = Database::migrated().await;
    let mut connection = database.connect().await;
    let name: String =
        sqlx::query_scalar("select current_database()").fetch_one(&mut connection).await.unwrap();
    for statement in [
        "create schema tomorrow".to_owned(),
        "create function tomorrow.clock_timestamp() returns timestamptz language sql as
             $$ select pg_catalog.clock_timestamp() + interval '1 hour' $$"
            .to_owned(),
        "grant usage on schema tomorrow to public".to_owned(),
        format!("alter database \"{name}\" set search_path = tomorrow, public, pg_catalog"),
    ] {
        sqlx::query(AssertSqlSafe(statement)).execute(&mut connection).await.unwrap();
    }
    let gateway = Gateway::start(&database, &[]).await;
    let behind = "this replica's clock is behind the database's";
    settle(1, Duration::from_secs(10), || async { gateway.log().matches(behind).count() }).await;
    sqlx::query(
        "create or replace function tomorrow.clock_timestamp() returns timestamptz language sql as
             $$ select pg_catalog.clock_timestamp() $$",
    )
    .execute(&mut connection)
    .await
    .unwrap();
    let agrees = "this replica's clock agrees with the database's again";
    settle(1, Duration::from_secs(10), || async { gateway.log().matches(agrees).count() }).await;
    assert_eq!(gateway.log().matches(behind).count(), 1, "said once");
}

#[tokio::test]
async fn everything_survives_a_kill() {
    let mut stage = Stage::start().await;
    let tenant = stage.tenant("acme").await;
    let mut upstream = Upstream::handshake(vec![Tool::writes("echo"), Tool::reads("look")]).await;
    tenant.add("up", &upstream).await;
    tenant.platform.patch("/api/v1/settings", &json!({"unannotated_tools": "distrust"})).await.expect(200);
    let agent = tenant.agent().await;
    let session = Mcp::session(&agent).await;
    session.run("write", "up:echo", &json!({})).await.ok();
    tenant.records("type=tool_call", 1).await;
    let state = async |gateway: &Gateway| {
        let mut state: Vec<Value> = Vec::new();
        for path in [
            "/api/v1/keys",
            "/api/v1/servers/up/tools",
            "/api/v1/activity?type=tool_call",
            "/api/v1/settings",
        ] {
            let mut body = gateway.ask_as(&tenant.platform).get(path).await.expect(200);
            for item in body["items"].as_array_mut().into_iter().flatten() {
                item["last_used_at"] = Value::Null;
            }
            state.push(body);
        }
        state
    };
    let before = state(&stage.gateway).await;
    upstream.go_down().await;
    stage.gateway.kill();
    stage.gateway = Gateway::start(&stage.database, &[]).await;
    assert_eq!(state(&stage.gateway).await, before);
    upstream.come_back().await;
    let again = Mcp::in_session(&stage.gateway.ask_as(&agent), session.session_id());
    settle("ok".to_owned(), Duration::from_secs(40), || async {
        again.run("write", "up:echo", &json!({})).await.code()
    })
    .await;
}
