//! What the service changes, and what it is told.

use serde_json::json;

use super::{helped, names, search, stage};
use crate::support::{Embedder, Gateway, Mcp, Stage, Tool, Upstream};

#[tokio::test]
async fn vectors_change_the_order() {
    let (embedder, stage, tenant, _upstream) = stage().await;
    let agent = tenant.agent().await;
    let answer = helped(&agent, "widget qqxy").await;
    assert_eq!(names(&answer), ["up:widget_two", "up:widget_one"], "{answer}");
    assert_eq!(answer["total"], 2);
    // no word in common, and none that the table knows
    let answer = search(&agent, "qqxy").await;
    assert_eq!((names(&answer), &answer["total"]), (vec!["up:widget_two"], &json!(1)), "{answer}");
    let answer = search(&agent, "up:widget_one qqxy").await;
    assert_eq!(names(&answer).len(), 2);
    let rest = agent.get("/api/v1/tools?query=widget+qqxy").await.expect(200);
    assert_eq!(rest["ranking"], "bm25+embeddings");

    // filters come first
    let only = Mcp::bare(&agent).search(&json!({"query": "qqxy", "read_only_only": true})).await;
    assert_eq!((&only["total"], &only["ranking"]), (&json!(0), &json!("bm25+embeddings")));

    // without the service nothing of it is used, though its vectors are there
    let plain = Gateway::start(&stage.database, &[]).await;
    let answer = search(&plain.ask_as(&agent), "widget qqxy").await;
    assert_eq!(
        (names(&answer), &answer["ranking"]),
        (vec!["up:widget_one", "up:widget_two"], &json!("bm25"))
    );

    for request in embedder.requests() {
        assert_eq!(request.model, "test-model");
        assert_eq!(request.authorization, "Bearer key-of-the-embeddings-service");
    }
    let sent = embedder.texts();
    assert_eq!(sent.get("widget qqxy"), Some(&1), "a question that is known is not asked again: {sent:?}");
    let log = stage.gateway.log();
    assert!(log.contains("definitions got vectors"), "{log}");
    assert!(!log.contains("key-of-the-embeddings-service") && !log.contains("qqxy"), "{log}");
    // the operator's own endpoint is no door for tenants
    let inner = json!({"name": "inner", "kind": "http", "url": embedder.url});
    tenant.platform.post("/api/v1/servers", &inner).await.refused(400, "invalid_request");
}

#[tokio::test]
async fn a_name_comes_first_whatever_the_service_says() {
    let embedder = Embedder::start(&[("one", "up:widget_two")]).await;
    let stage = Stage::with(&embedder.settings()).await;
    let tenant = stage.tenant("acme").await;
    let upstream = Upstream::handshake(vec![Tool::new("widget_one"), Tool::new("widget_two")]).await;
    tenant.add("up", &upstream).await;
    let agent = tenant.agent().await;
    let answer = helped(&agent, "the widget up:widget_two").await;
    assert_eq!(names(&answer).first(), Some(&"up:widget_one"), "the service decides: {answer}");
    let answer = search(&agent, "up:widget_two").await;
    assert_eq!(
        (names(&answer).first(), &answer["ranking"]),
        (Some(&"up:widget_two"), &json!("bm25+embeddings"))
    );
}

#[tokio::test]
async fn what_is_sent_is_what_is_needed() {
    let (embedder, _stage, tenant, upstream) = stage().await;
    let more = Upstream::handshake(vec![Tool::raw(
        "fetch_page",
        r#"{"name":"fetch_page","description":"Fetches. Example key: ghp_0123456789abcdefghijABCDEFGHIJ012345","inputSchema":{"type":"object","properties":{"pageUrl":{"type":"string","description":"unsent"}}}}"#,
    )])
    .await;
    tenant.add("more", &more).await;
    // not approved: nobody finds it, so nobody is told of it
    upstream.set_tools(vec![Tool::new("widget_one"), Tool::new("widget_two"), Tool::new("concealed")]);
    tenant.platform.post("/api/v1/servers/up/refresh", &json!({})).await.expect(200);
    let agent = tenant.agent().await;
    helped(&agent, "qqxy ghp_0123456789abcdefghijABCDEFGHIJ012345").await;
    crate::support::settle(Some(1), super::SOON, || {
        let sent = embedder.texts();
        async move { sent.get("fetch page. Fetches. Example key: [redacted]. Parameters: page url").copied() }
    })
    .await;
    let sent = embedder.texts();
    assert!(sent.contains_key("qqxy [redacted]"), "{sent:?}");
    assert!(!sent.keys().any(|text| text.contains("concealed") || text.contains("ghp_")), "{sent:?}");
}

#[tokio::test]
async fn a_tenant_without_vectors_asks_nobody() {
    let (embedder, stage, tenant, _upstream) = stage().await;
    helped(&tenant.agent().await, "qqxy").await;
    let empty = stage.tenant("empty").await.agent().await;
    assert_eq!(search(&empty, "of another tenant").await["ranking"], "bm25");
    assert!(!embedder.texts().contains_key("of another tenant"));
    drop::<Stage>(stage);
}
