//! Tokens: asked for once, renewed in time, renewed once where the server refuses one, and apart for each tenant.

use std::time::{Duration, Instant};

use futures_util::future::join_all;
use serde_json::json;

use super::{Replicas, SOON, add, call, forget, guarded, login, server, tools};
use crate::support::{Stage, TokenMood, TokenServer, Upstream, eventually, settle};

#[tokio::test]
async fn three_replicas_ask_for_one_token() {
    let replicas = Replicas::start(&[]).await;
    let tenant = replicas.stage.tenant("acme").await;
    let tokens = TokenServer::start().await;
    let agent = tenant.agent().await;
    for (name, upstream) in [
        ("old", guarded(&tokens, Upstream::handshake(tools()).await).await),
        ("new", guarded(&tokens, Upstream::modern(tools()).await).await),
    ] {
        let added = add(&tenant, name, &upstream, &login(&tokens, name)).await;
        assert_eq!(added["oauth"]["state"], "connected");
        assert_eq!(tokens.tokens_of(name).len(), 1);
        // the server's own URL is what the token is for
        assert_eq!(tokens.asked().last().unwrap().form["resource"], upstream.url);
        let tool = format!("{name}:t");
        // each replica knows the server before its token goes
        for api in replicas.each(&agent) {
            settle("ok".to_owned(), SOON, || async { call(&api, &tool).await.code() }).await;
        }
        // before, since a replica may ask for the next token as soon as this one is gone
        let (asked, sent) = (tokens.asked().len(), upstream.sent("authorization").len());
        forget(&tenant.platform, name).await;
        let calls = (0..8).flat_map(|_| replicas.each(&agent)).map(|api| {
            let tool = tool.clone();
            async move { call(&api, &tool).await.code() }
        });
        // a replica that does not know of the change yet sends the old token, or says to try again
        let codes = join_all(calls).await;
        assert!(codes.iter().all(|code| matches!(&**code, "ok" | "upstream_auth_unavailable")), "{codes:?}");
        for api in replicas.each(&agent) {
            settle("ok".to_owned(), SOON, || async { call(&api, &tool).await.code() }).await;
        }
        eventually("the new token", SOON, || async {
            for api in replicas.each(&agent) {
                call(&api, &tool).await.ok();
            }
            let given = tokens.tokens_of(name);
            let header = format!("Bearer {}", given.last()?);
            let last = upstream.sent("authorization");
            (given.len() == 2 && last.iter().rev().take(3).all(|sent| *sent == header)).then_some(())
        })
        .await;
        assert_eq!(tokens.asked().len(), asked + 1, "{:?}", tokens.asked());
        assert!(
            upstream.sent("authorization")[sent..]
                .iter()
                .all(|header| header.starts_with("Bearer opaque-token-of-"))
        );
    }
}

#[tokio::test]
async fn a_token_is_renewed_before_it_ends() {
    let replicas = Replicas::start(&[]).await;
    let tenant = replicas.stage.tenant("acme").await;
    let tokens = TokenServer::start().await;
    tokens.live(Duration::from_secs(6));
    let upstream = guarded(&tokens, Upstream::modern(tools()).await).await;
    add(&tenant, "up", &upstream, &login(&tokens, "gw")).await;
    let refused = upstream.challenged();
    let agent = tenant.agent().await;
    let began = Instant::now();
    eventually("the fourth token", Duration::from_secs(30), || async {
        for api in replicas.each(&agent) {
            call(&api, "up:t").await.ok();
        }
        (tokens.tokens_of("gw").len() >= 4).then_some(())
    })
    .await;
    assert_eq!(upstream.challenged(), refused, "a token that had ended was sent");
    // each was used for half of its life, and asked for once by three replicas
    assert!(began.elapsed() > Duration::from_secs(8), "{:?}", began.elapsed());
}

#[tokio::test]
async fn a_refused_token_is_renewed_once() {
    let stage = Stage::start().await;
    let tenant = stage.tenant("acme").await;
    let tokens = TokenServer::start().await;
    let upstream = guarded(&tokens, Upstream::handshake(tools()).await).await;
    add(&tenant, "up", &upstream, &login(&tokens, "gw")).await;
    let agent = tenant.agent().await;
    for round in 1..4 {
        tokens.revoke();
        let challenged = upstream.challenged();
        call(&agent, "up:t").await.ok();
        assert_eq!((tokens.asked().len(), upstream.challenged()), (round + 1, challenged + 1));
        assert_eq!(upstream.counts().calls, round);
    }
    // a server that takes no token at all
    upstream.guard(|_| false);
    let asked = tokens.asked().len();
    for _ in 0..10 {
        let refused = call(&agent, "up:t").await.refused("upstream_auth_refused");
        let says = "Server 'up' refuses the gateway's own credentials; an administrator must renew them";
        assert!(refused.to_string().contains(says), "{refused}");
    }
    // six in a minute, three of which are used up; a call's refusal may be about the call, so that others go on
    assert_eq!(tokens.asked().len(), asked + 3);
    assert_eq!(upstream.counts().calls, 3);
    assert_eq!(server(&tenant.platform, "up").await["oauth"]["state"], "connected");
    tenant.platform.post("/api/v1/servers/up/refresh", &json!({})).await.expect(200);
    let shown = server(&tenant.platform, "up").await;
    assert_eq!(
        (&shown["connection"], &shown["oauth"]["state"]),
        (&json!("login_required"), &json!("login_required"))
    );
    // a refresh tries again at once
    upstream.guard(tokens.check());
    tenant.platform.post("/api/v1/servers/up/refresh", &json!({})).await.expect(200);
    call(&agent, "up:t").await.ok();
    assert_eq!(server(&tenant.platform, "up").await["connection"], "connected");
}

/// The replica that asks is killed before, or after, the provider has made the token.
#[tokio::test]
async fn a_winner_that_is_killed_is_replaced_in_the_time_of_its_lease() {
    let settings = [("MCPPROXY__OAUTH__TIMEOUT_S", "2"), ("MCPPROXY__OAUTH__REFRESH_LEASE_S", "3")];
    let mut replicas = Replicas::start(&settings).await;
    let tenant = replicas.stage.tenant("acme").await;
    let tokens = TokenServer::start().await;
    let upstream = guarded(&tokens, Upstream::modern(tools()).await).await;
    add(&tenant, "up", &upstream, &login(&tokens, "gw")).await;
    let agent = tenant.agent().await;
    let first = agent.clone();
    let winner = replicas.others[0].ask_as(&agent);
    call(&winner, "up:t").await.ok();
    // nobody else may be the winner
    replicas.stage.gateway.freeze();
    replicas.others[1].freeze();
    let asked = tokens.asked().len();
    tokens.set(TokenMood::Held);
    tokens.revoke();
    let calling = tokio::spawn(async move { call(&winner, "up:t").await });
    settle(asked + 1, SOON, || async { tokens.asked().len() }).await;
    calling.abort();
    let killed = Instant::now();
    replicas.others[0].kill();
    replicas.stage.gateway.wake();
    replicas.others[1].wake();
    tokens.set(TokenMood::Well);
    let outcome = call(&first, "up:t").await;
    outcome.ok();
    assert!(killed.elapsed() < Duration::from_secs(5), "{:?}", killed.elapsed());
    assert_eq!(tokens.asked().len(), asked + 2);
}

#[tokio::test]
async fn tenants_with_the_same_server_have_their_own_tokens() {
    let stage = Stage::start().await;
    let tokens = TokenServer::start().await;
    let upstream = guarded(&tokens, Upstream::modern(tools()).await).await;
    let mut agents = Vec::new();
    for name in ["acme", "globex"] {
        let tenant = stage.tenant(name).await;
        add(&tenant, "up", &upstream, &login(&tokens, name)).await;
        agents.push((name, tenant.agent().await));
    }
    for (name, agent) in &agents {
        call(agent, "up:t").await.ok();
        let own = tokens.tokens_of(name);
        assert_eq!(own.len(), 1);
        let called = upstream.calls().pop().unwrap();
        assert_eq!(called.headers["authorization"], format!("Bearer {}", own[0]));
    }
    let mut database = stage.database.connect().await;
    let stored: i64 = sqlx::query_scalar("select count(*) from connections where sealed is not null")
        .fetch_one(&mut database)
        .await
        .unwrap();
    assert_eq!(stored, 2);
    stage.platform().delete("/api/v1/tenants/globex").await.expect(204);
    let left: (i64, i64) =
        sqlx::query_as("select (select count(*) from connections), (select count(*) from server_oauth)")
            .fetch_one(&mut database)
            .await
            .unwrap();
    assert_eq!(left, (1, 1));
}

#[tokio::test]
async fn another_place_gets_no_token() {
    let stage = Stage::start().await;
    let tenant = stage.tenant("acme").await;
    let tokens = TokenServer::start().await;
    let upstream = guarded(&tokens, Upstream::handshake(tools()).await).await;
    let elsewhere = Upstream::handshake(tools()).await;
    add(&tenant, "up", &upstream, &login(&tokens, "gw")).await;
    // another query is the same place
    let query = json!({"url": format!("{}?tools=all", upstream.url)});
    let kept = tenant.platform.patch("/api/v1/servers/up", &query).await.expect(200);
    assert_eq!(kept["oauth"]["client_id"], "gw");
    call(&tenant.agent().await, "up:t").await.ok();
    let moved = tenant.platform.patch("/api/v1/servers/up", &json!({"url": elsewhere.url})).await.expect(200);
    assert!(moved.get("oauth").is_none(), "{moved}");
    call(&tenant.agent().await, "up:t").await.ok();
    assert!(elsewhere.sent("authorization").iter().all(String::is_empty));
    // nor does it come back with the old place
    let before = upstream.sent("authorization").len();
    tenant.platform.patch("/api/v1/servers/up", &json!({"url": upstream.url})).await.expect(200);
    assert!(upstream.sent("authorization")[before..].iter().all(String::is_empty));
}
