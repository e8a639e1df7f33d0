//! Login services that refuse or do not answer: the state says who has to act, and nobody asks in a storm.

use futures_util::future::join_all;
use serde_json::json;

use super::{Replicas, SOON, add, call, guarded, login, put, server, tools};
use crate::support::{TokenMood, TokenServer, Upstream, cli, cli_reading, secret_of, settle};

#[tokio::test]
async fn a_wrong_secret_is_told_and_makes_no_storm() {
    let replicas = Replicas::start(&[]).await;
    let tenant = replicas.stage.tenant("acme").await;
    let tokens = TokenServer::start().await;
    let upstream = guarded(&tokens, Upstream::modern(tools()).await).await;
    add(&tenant, "up", &upstream, &login(&tokens, "gw")).await;
    let agent = tenant.agent().await;
    for api in replicas.each(&agent) {
        call(&api, "up:t").await.ok();
    }
    let asked = tokens.asked().len();
    let mut wrong = login(&tokens, "gw");
    wrong["client_secret"] = json!("a-wr0ng-secret");
    let shown = put(&tenant.platform, "up", &wrong).await.expect(200);
    assert_eq!(
        (&shown["connection"], &shown["oauth"]["state"]),
        (&json!("login_required"), &json!("login_required"))
    );
    let error = shown["oauth"]["last_error"].as_str().unwrap();
    assert_eq!(error, "its token endpoint gives no token: HTTP 401 (invalid_client)");
    let why = shown["last_error"].as_str().unwrap();
    assert!(
        why.contains("refuses the gateway's own credentials") && why.contains("--oauth-client-secret -"),
        "{why}"
    );
    assert!(!shown.to_string().contains("marked-words") && !shown.to_string().contains("wr0ng"), "{shown}");
    for api in replicas.each(&agent) {
        settle("upstream_auth_refused".to_owned(), SOON, || async { call(&api, "up:t").await.code() }).await;
    }
    let calls = (0..10).flat_map(|_| replicas.each(&agent)).map(|api| async move {
        let refused = call(&api, "up:t").await.refused("upstream_auth_refused");
        assert!(refused.to_string().contains("an administrator must renew them"), "{refused}");
    });
    join_all(calls).await;
    assert_eq!(tokens.asked().len(), asked + 1);
    let rest =
        agent.post("/api/v1/tools/call", &json!({"tool_variant": "call_tool_write", "name": "up:t"})).await;
    rest.refused(503, "upstream_auth_refused");
    let called = cli(&agent, &["call", "tool-write", "up:t"]).await;
    called.failed(6, "an administrator must renew them");
    let doctor = cli(&tenant.platform, &["doctor"]).await.ok();
    let says = "server   'up' needs its login, for which an operator or admin has to act";
    assert!(
        doctor.out.contains(says) && doctor.out.contains("upstream update up --oauth-client-id"),
        "{}",
        doctor.out
    );
    let given = [
        "upstream",
        "update",
        "up",
        "--oauth-client-id",
        "gw",
        "--oauth-client-secret",
        "-",
        "--oauth-token-endpoint",
    ];
    let endpoint = tokens.endpoint();
    let given = [&given[..], &[&endpoint]].concat();
    cli_reading(&tenant.platform, &given, &format!("{}\n", secret_of("gw"))).await.ok();
    assert_eq!(server(&tenant.platform, "up").await["connection"], "connected");
    call(&agent, "up:t").await.ok();
}

#[tokio::test]
async fn a_login_service_that_is_down_takes_nobody_with_it() {
    let replicas = Replicas::start(&[]).await;
    let tenant = replicas.stage.tenant("acme").await;
    let (tokens, good) = (TokenServer::start().await, TokenServer::start().await);
    let upstream = guarded(&tokens, Upstream::modern(tools()).await).await;
    let other = guarded(&good, Upstream::modern(tools()).await).await;
    add(&tenant, "up", &upstream, &login(&tokens, "gw")).await;
    add(&tenant, "other", &other, &login(&good, "gw")).await;
    let agent = tenant.agent().await;
    tokens.set(TokenMood::Broken);
    // a token that has not ended is used meanwhile
    call(&agent, "up:t").await.ok();
    tokens.revoke();
    let asked = tokens.asked().len();
    let calls = (0..10).flat_map(|_| replicas.each(&agent)).map(|api| async move {
        let refused = call(&api, "up:t").await.refused("upstream_auth_unavailable");
        let text = refused.to_string();
        assert!(
            text.contains(
                "The login service of server 'up' does not answer; nothing was sent; try again in "
            ),
            "{text}"
        );
    });
    join_all(calls).await;
    // the first pauses are of a second and two: thirty calls of a moment are a few requests
    let requests = tokens.asked().len() - asked;
    assert!((1..=3).contains(&requests), "{requests}");
    for api in replicas.each(&agent) {
        call(&api, "other:t").await.ok();
    }
    assert_eq!(good.asked().len(), 1);
    let shown = server(&tenant.platform, "up").await;
    assert_eq!(shown["oauth"]["last_error"], "its token endpoint gives no token: HTTP 503");
    tokens.set(TokenMood::Well);
    tenant.platform.post("/api/v1/servers/up/refresh", &json!({})).await.expect(200);
    call(&agent, "up:t").await.ok();
    let records = tenant.platform.items("/api/v1/activity?type=tool_call&tool=t&server=up").await;
    let codes: Vec<_> =
        records.iter().filter(|record| record["error_code"] == "upstream_auth_unavailable").collect();
    assert!(!codes.is_empty());
}
