//! Who gets a credential: the server it was given for, and nobody else.

use serde_json::json;

use crate::support::upstream::Say;
use crate::support::{Gateway, Mcp, Stage, Tool, Upstream};

const NONE: &str = "";

#[tokio::test]
async fn every_request_carries_it_and_reading_shows_names() {
    let stage = Stage::start().await;
    let tenant = stage.tenant("acme").await;
    let client = Mcp::bare(&tenant.agent().await);
    let headers = json!({"headers": {"X-Api-Key": "k-1", "Authorization": "Bearer one"}});
    for (name, upstream) in [
        ("old", Upstream::handshake(vec![Tool::writes("t")]).await),
        ("new", Upstream::modern(vec![Tool::writes("t")]).await),
    ] {
        let made = tenant.add_with(name, &upstream, headers.clone()).await;
        assert_eq!(made["headers"], json!(["Authorization", "X-Api-Key"]));
        client.run("write", &format!("{name}:t"), &json!({})).await.ok();
        let path = format!("/api/v1/servers/{name}");
        tenant.platform.post(&format!("{path}/restart"), &json!({})).await.expect(200);
        let (keys, bearers) = (upstream.sent("x-api-key"), upstream.sent("authorization"));
        assert!(
            bearers.len() > 3 && bearers.iter().all(|value| value == "Bearer one"),
            "{name}: {bearers:?}"
        );
        assert!(keys.iter().all(|value| value == "k-1"), "{name}: {keys:?}");
        assert_eq!(tenant.platform.get(&path).await.expect(200)["headers"], made["headers"]);
    }
    let listed = tenant.platform.items("/api/v1/servers").await;
    assert!(listed.iter().all(|server| server["headers"] == json!(["Authorization", "X-Api-Key"])));
}

#[tokio::test]
async fn a_change_opens_a_new_session_with_the_new_one() {
    let stage = Stage::start().await;
    let other = Gateway::start(&stage.database, &[]).await;
    let tenant = stage.tenant("acme").await;
    let agent = tenant.agent().await;
    let upstream = Upstream::handshake(vec![Tool::writes("t")]).await;
    tenant.add_with("up", &upstream, json!({"headers": {"X-Key": "one"}})).await;
    Mcp::bare(&agent).run("write", "up:t", &json!({})).await.ok();
    // the one replica never saw what was given to the other
    Mcp::bare(&other.ask_as(&agent)).run("write", "up:t", &json!({})).await.ok();
    assert_eq!(upstream.calls()[1].headers["x-key"], "one");
    let changes = [(json!({"X-Key": "two"}), "two"), (json!({"X-Other": "3"}), NONE), (json!(null), NONE)];
    for (headers, expected) in changes {
        let (sessions, requests) = (upstream.counts().initializes, upstream.sent("x-key").len());
        tenant.platform.patch("/api/v1/servers/up", &json!({"headers": headers})).await.expect(200);
        Mcp::bare(&agent).run("write", "up:t", &json!({})).await.ok();
        assert!(upstream.counts().initializes > sessions, "{headers}: the session stayed");
        let sent = upstream.sent("x-key");
        assert!(sent[requests..].iter().all(|value| value == expected), "{headers}: {:?}", &sent[requests..]);
    }
    let cleared = tenant.platform.get("/api/v1/servers/up").await.expect(200);
    assert_eq!(cleared["headers"], json!([]));
    // other changes leave it alone
    tenant.platform.patch("/api/v1/servers/up", &json!({"headers": {"X-Key": "four"}})).await.expect(200);
    let limits = json!({"limits": {"queue": 3}, "url": format!("{}?same=origin", upstream.url)});
    let changed = tenant.platform.patch("/api/v1/servers/up", &limits).await.expect(200);
    assert_eq!((&changed["headers"], &changed["quarantined"]), (&json!(["X-Key"]), &json!(false)));
    Mcp::bare(&agent).run("write", "up:t", &json!({})).await.ok();
    assert_eq!(upstream.sent("x-key").last().unwrap(), "four");
}

#[tokio::test]
async fn another_origin_never_gets_it() {
    let stage = Stage::start().await;
    let tenant = stage.tenant("acme").await;
    let api = &tenant.platform;
    let (old, new) = (
        Upstream::handshake(vec![Tool::writes("t")]).await,
        Upstream::handshake(vec![Tool::writes("t")]).await,
    );
    tenant.add_with("up", &old, json!({"headers": {"X-Key": "for-old"}})).await;
    let moved = api.patch("/api/v1/servers/up", &json!({"url": new.url})).await.expect(200);
    assert_eq!((&moved["headers"], &moved["quarantined"]), (&json!([]), &json!(false)));
    assert_eq!(stored(&stage).await, 0);
    let client = Mcp::bare(&tenant.agent().await);
    client.run("write", "up:t", &json!({})).await.ok();
    assert!(new.sent("x-key").len() > 3 && new.sent("x-key").iter().all(String::is_empty));
    // nor does it come back with the old origin
    let before = old.sent("x-key").len();
    api.patch("/api/v1/servers/up", &json!({"url": old.url})).await.expect(200);
    assert!(old.sent("x-key")[before..].iter().all(String::is_empty));
    // given together with the new address, it is for that one
    let both = json!({"url": new.url, "headers": {"X-Key": "for-new"}});
    assert_eq!(api.patch("/api/v1/servers/up", &both).await.expect(200)["headers"], json!(["X-Key"]));
    assert_eq!(new.sent("x-key").last().unwrap(), "for-new");
    // and a server added again is a new one
    api.delete("/api/v1/servers/up").await.expect(204);
    let before = new.sent("x-key").len();
    assert_eq!(tenant.add("up", &new).await["headers"], json!([]));
    client.run("write", "up:t", &json!({})).await.ok();
    assert!(new.sent("x-key")[before..].iter().all(String::is_empty));
    assert_eq!(stored(&stage).await, 0);
}

/// Sealed credentials in the database.
async fn stored(stage: &Stage) -> i64 {
    let mut database = stage.database.connect().await;
    sqlx::query_scalar("select count(*) from server_secrets").fetch_one(&mut database).await.unwrap()
}

#[tokio::test]
async fn a_redirect_takes_nothing_along() {
    let stage = Stage::start().await;
    let tenant = stage.tenant("acme").await;
    let elsewhere = Upstream::handshake(vec![Tool::writes("t")]).await;
    let redirects = Tool::writes("t").says(Say::Redirect(elsewhere.url.clone()));
    let upstream = Upstream::handshake(vec![redirects]).await;
    tenant.add_with("up", &upstream, json!({"headers": {"Authorization": "Bearer one"}})).await;
    Mcp::bare(&tenant.agent().await).run("write", "up:t", &json!({})).await.refused("upstream_invalid");
    assert_eq!((upstream.counts().calls, elsewhere.counts().accepts), (1, 0));
}

#[tokio::test]
async fn headers_that_cannot_be_sent_are_named() {
    let stage = Stage::start().await;
    let tenant = stage.tenant("acme").await;
    let upstream = Upstream::handshake(vec![Tool::writes("t")]).await;
    tenant.add("up", &upstream).await;
    let cases = [
        (json!("Bearer s3cret"), "headers"),
        (json!({"Host": "s3cret"}), "headers.Host"),
        (json!({"Mcp-Session-Id": "s3cret"}), "headers.Mcp-Session-Id"),
        (json!({"X-A": ["s3cret"]}), "headers.X-A"),
        (json!({"X-A": "s3cret\r\nX-B: s3cret"}), "headers.X-A"),
    ];
    for (headers, field) in cases {
        let body = json!({"name": "other", "kind": "http", "url": upstream.url, "headers": headers});
        for answer in [
            tenant.platform.post("/api/v1/servers", &body).await,
            tenant.platform.patch("/api/v1/servers/up", &json!({"headers": headers})).await,
        ] {
            answer.refused(400, "invalid_request");
            assert_eq!(answer.json()["error"]["field"], field, "{answer:?}");
            assert!(!answer.text.contains("s3cret"), "{answer:?}");
        }
    }
}
