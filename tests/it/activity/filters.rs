//! Who sees which records, and by which filters.

use serde_json::{Value, json};

use crate::support::upstream::Tool;
use crate::support::{Mcp, Stage, Upstream, cli, upstream};

#[tokio::test]
async fn one_filter_at_a_time() {
    let stage = Stage::start().await;
    let tenant = stage.tenant("acme").await;
    let upstream = Upstream::handshake(upstream::zoo()).await;
    tenant.add("zoo", &upstream).await;
    tenant.add("ark", &upstream).await;
    let ada = tenant.key(&json!({"role": "agent", "owner": "ada"})).await;
    let bob = tenant.key(&json!({"role": "agent", "owner": "bob"})).await;
    let (first, second) = (Mcp::session(&ada).await, Mcp::session(&bob).await);
    first.run("read", "zoo:reader", &json!({})).await.ok();
    first.run("write", "zoo:writer", &json!({})).await.ok();
    first.run("read", "zoo:wiper", &json!({})).await.refused("server_mismatch");
    second.run("destructive", "ark:wiper", &json!({})).await.ok();
    second.search(&json!({"query": "reader"})).await;
    let body = json!({"tool_variant": "call_tool_read", "name": "ark:reader"});
    bob.post("/api/v1/tools/call", &body).await.expect(200);
    let all = tenant.records("", 6 + admin_acts()).await;
    let calls = tenant.records("type=tool_call", 5).await;
    let session = tenant.records(&format!("key={}", ada.id), 3).await[0]["session_id"].clone();
    let session = session.as_str().unwrap();
    let cases = [
        ("type=search".to_owned(), 1),
        ("type=consent".to_owned(), 0),
        ("source=rest&type=tool_call".to_owned(), 1),
        ("source=mcp".to_owned(), 5),
        ("server=ark&type=tool_call".to_owned(), 2),
        ("tool=wiper".to_owned(), 2),
        ("status=blocked".to_owned(), 1),
        ("status=success&type=tool_call".to_owned(), 4),
        ("status=pending".to_owned(), 0),
        ("intent_type=read&type=tool_call".to_owned(), 3),
        ("intent_type=write&type=tool_call".to_owned(), 1),
        ("intent_type=destructive".to_owned(), 1),
        (format!("key={}", ada.id), 3),
        (format!("key={}", bob.id), 3),
        ("owner=ada".to_owned(), 3),
        ("owner=nobody".to_owned(), 0),
        (format!("session_id={session}"), 3),
        (format!("request_id={}&type=tool_call", calls[0]["request_id"].as_str().unwrap()), 1),
        ("start_time=2001-01-01T00:00:00Z&end_time=2001-01-02T00:00:00Z".to_owned(), 0),
        (format!("start_time={}", percent(&all.last().unwrap()["started_at"])), all.len()),
        (format!("end_time={}", percent(&all.last().unwrap()["started_at"])), 0),
    ];
    for (query, count) in cases {
        let items = tenant.platform.items(&format!("/api/v1/activity?{query}")).await;
        assert_eq!(items.len(), count, "{query}: {items:?}");
        for item in &items {
            assert!(all.contains(item), "{query}: {item}");
        }
    }
    // newest first
    let ids: Vec<&str> = all.iter().map(|record| record["id"].as_str().unwrap()).collect();
    assert!(ids.is_sorted_by(|a, b| a > b), "{ids:?}");
}

/// What setting the stage above leaves behind: two servers and two keys.
fn admin_acts() -> usize {
    4
}

fn percent(time: &Value) -> String {
    time.as_str().unwrap().replace('+', "%2B").replace(':', "%3A")
}

#[tokio::test]
async fn what_may_have_changed_something_is_found_by_its_tier() {
    let stage = Stage::start().await;
    let tenant = stage.tenant("acme").await;
    let mut tools = upstream::zoo();
    tools.push(Tool::new("delete_note"));
    let upstream = Upstream::handshake(tools).await;
    tenant.add("notes", &upstream).await;
    let agent = tenant.agent().await;
    let client = Mcp::bare(&agent);
    // a tool that says nothing runs as a read, and its record says that it was called as one
    client.run("read", "notes:delete_note", &json!({})).await.ok();
    client.run("write", "notes:delete_note", &json!({})).await.ok();
    client.run("read", "notes:reader", &json!({})).await.ok();
    client.run("write", "notes:writer", &json!({})).await.ok();
    client.run("destructive", "notes:wiper", &json!({})).await.ok();
    client.run("read", "notes:wiper", &json!({})).await.refused("server_mismatch");
    client.search(&json!({"query": "note"})).await;
    tenant.records(&format!("key={}", agent.id), 7).await;
    assert!(tenant.records("intent_type=destructive&tool=delete_note", 0).await.is_empty());
    let cases = [
        ("not_read=true", 5),
        ("not_read=true&tool=delete_note", 2),
        ("not_read=true&intent_type=read", 2),
        ("not_read=true&status=success", 4),
        ("not_read=false&type=tool_call", 6),
        ("tier=unknown", 2),
        ("tier=unknown&intent_type=read", 1),
        ("tier=read&type=tool_call", 1),
        ("tier=write", 1),
        ("tier=destructive", 2),
        ("tier=read&not_read=true", 0),
    ];
    let auditor = tenant.auditor().await;
    for (query, count) in cases {
        let items = tenant.records(query, count).await;
        let export = auditor.get(&format!("/api/v1/activity/export?{query}")).await.text;
        assert_eq!(export.lines().count(), count, "{query}: {items:?}");
    }
    let summary = auditor.get("/api/v1/activity/summary?not_read=true").await.expect(200);
    assert_eq!(summary["total"], 5);
    assert_eq!(summary["by_tier"], json!({"unknown": 2, "write": 1, "destructive": 2}));
    let tools = summary["top_tools"].as_array().unwrap();
    assert!(tools.len() == 3 && tools.iter().all(|tool| tool["tool"] != "reader"), "{tools:?}");
    assert_ne!(summary["by_decision"], json!({}));
    let reads = auditor.get("/api/v1/activity/summary?tier=read").await.expect(200);
    assert_eq!(reads["by_decision"], json!({}));
    let unknown = auditor.get("/api/v1/activity/summary?tier=unknown").await.expect(200);
    assert_eq!((&unknown["total"], &unknown["by_intent_type"]), (&json!(2), &json!({"read": 1, "write": 1})));

    let list = cli(&auditor, &["activity", "list", "--not-read", "--wide"]).await.ok();
    assert_eq!(list.rows().len(), 5, "{list:?}");
    assert!(list.out.lines().next().unwrap().contains("TIER"), "{list:?}");
    assert_eq!(cli(&auditor, &["activity", "list", "--tier", "unknown"]).await.ok().rows().len(), 2);
    let export = cli(&auditor, &["activity", "export", "--not-read"]).await.ok().out;
    assert_eq!(export.lines().count(), 5, "{export}");
    let counted = cli(&auditor, &["activity", "summary", "--not-read"]).await.ok().out;
    assert!(counted.contains("tier:    destructive 2, unknown 2, write 1\n"), "{counted}");
    let counted = cli(&auditor, &["activity", "summary", "--tier", "write", "-o", "json"]).await.ok().json();
    assert_eq!(counted["total"], 1);
    cli(&auditor, &["activity", "list", "--tier", "odd"]).await.failed(2, "tier");
}

#[tokio::test]
async fn unknown_and_malformed_filters_are_named() {
    let stage = Stage::start().await;
    let api = stage.tenant("acme").await.platform;
    let cases = [
        ("nope=1", "nope"),
        ("Type=search", "Type"),
        ("type=nope", "type"),
        ("source=nope", "source"),
        ("status=nope", "status"),
        ("intent_type=nope", "intent_type"),
        ("tier=nope", "tier"),
        ("not_read=1", "not_read"),
        ("client_address=local", "client_address"),
        ("start_time=yesterday", "start_time"),
        ("end_time=2024-13-01T00:00:00Z", "end_time"),
        ("start_time=2024-01-02T00:00:00Z&end_time=2024-01-01T00:00:00Z", "start_time"),
        ("limit=0", "limit"),
        ("limit=101", "limit"),
        ("limit=x", "limit"),
        ("cursor=nonsense", "cursor"),
        ("status=success&status=error", "status"),
    ];
    for (query, field) in cases {
        let answer = api.get(&format!("/api/v1/activity?{query}")).await;
        answer.refused(400, "invalid_request");
        let named = answer.json()["error"]["field"].as_str().unwrap_or_default().to_owned();
        assert!(named == field || (query.contains('&') && named == "end_time"), "{query}: {answer:?}");
    }
    for id in ["nope", "01ARZ3NDEKTSV4RRFFQ69G5FAV"] {
        api.get(&format!("/api/v1/activity/{id}")).await.refused(404, "not_found");
    }
}

#[tokio::test]
async fn an_agent_sees_its_own() {
    let stage = Stage::start().await;
    let tenant = stage.tenant("acme").await;
    let upstream = Upstream::handshake(upstream::zoo()).await;
    tenant.add("zoo", &upstream).await;
    let (ours, theirs) = (tenant.agent().await, tenant.agent().await);
    Mcp::bare(&ours).run("read", "zoo:reader", &json!({})).await.ok();
    Mcp::bare(&theirs).run("read", "zoo:reader", &json!({})).await.ok();
    let both = tenant.records("type=tool_call", 2).await;
    let keys =
        async |items: Vec<Value>| items.into_iter().map(|item| item["key_id"].clone()).collect::<Vec<_>>();
    assert_eq!(keys(ours.items("/api/v1/activity").await).await, [json!(ours.id)]);
    assert_eq!(ours.items(&format!("/api/v1/activity?key={}", theirs.id)).await, [Value::Null; 0]);
    let foreign = both.iter().find(|record| record["key_id"] == theirs.id).unwrap();
    ours.get(&format!("/api/v1/activity/{}", foreign["id"].as_str().unwrap()))
        .await
        .refused(404, "not_found");
    for api in [tenant.auditor().await, tenant.operator().await, tenant.admin().await] {
        assert_eq!(api.items("/api/v1/activity?type=tool_call").await.len(), 2);
        api.get(&format!("/api/v1/activity/{}", foreign["id"].as_str().unwrap())).await.expect(200);
    }
    let approver = tenant.approver().await.get("/api/v1/activity").await;
    assert!(approver.status == 403 || approver.json()["items"] == json!([]), "{approver:?}");
}

#[tokio::test]
async fn a_session_is_found_by_its_token_and_by_its_id() {
    let stage = Stage::start().await;
    let tenant = stage.tenant("acme").await;
    let upstream = Upstream::handshake(upstream::zoo()).await;
    tenant.add("zoo", &upstream).await;
    let agent = tenant.agent().await;
    let (one, two) = (Mcp::session(&agent).await, Mcp::session(&agent).await);
    assert_ne!(one.session_id(), two.session_id());
    one.run("read", "zoo:reader", &json!({})).await.ok();
    one.search(&json!({"query": "reader"})).await;
    two.run("write", "zoo:writer", &json!({})).await.ok();
    tenant.records(&format!("key={}", agent.id), 3).await;
    let mut shown = Vec::new();
    for (client, count) in [(&one, 2), (&two, 1)] {
        let by_token = tenant.records(&format!("session_id={}", client.session_id()), count).await;
        let id = by_token[0]["session_id"].as_str().unwrap().to_owned();
        assert!(!client.session_id().contains(&id) && !id.is_empty(), "{id}");
        assert_eq!(tenant.records(&format!("session_id={id}"), count).await, by_token);
        shown.push(id);
    }
    assert_ne!(shown[0], shown[1]);
    for nobody in ["nobody", "a.b", "e30.x"] {
        tenant.records(&format!("session_id={nobody}"), 0).await;
    }
}
