//! What is listed, to whom, and in which pages.

use std::time::Duration;

use serde_json::{Value, json};

use super::{modern, names, open, scene};
use crate::support::{Mcp, Stage, Tool, Upstream, settle, upstream};

const ZOO: [&str; 7] =
    ["read_cache", "zoo:half", "zoo:mild", "zoo:plain", "zoo:reader", "zoo:wiper", "zoo:writer"];

#[tokio::test]
async fn every_key_sees_what_it_may_use() {
    let (_stage, tenant) = scene().await;
    let upstream = Upstream::handshake(upstream::zoo()).await;
    tenant.add("zoo", &upstream).await;
    let ark = Upstream::modern(vec![Tool::reads("reader")]).await;
    tenant.add("ark", &ark).await;
    let cases = [
        (json!({"max_operation": "read"}), vec!["ark:reader", "zoo:reader"]),
        (
            json!({"max_operation": "write", "unannotated_tools": "distrust"}),
            vec!["ark:reader", "zoo:mild", "zoo:reader", "zoo:writer"],
        ),
        (json!({"allowed_tools": ["zoo:w*"]}), vec!["zoo:wiper", "zoo:writer"]),
        (json!({"allowed_tools": ["*:reader"], "max_operation": "read"}), vec!["ark:reader", "zoo:reader"]),
        (json!({"allowed_tools": []}), vec![]),
    ];
    for (settings, visible) in cases {
        let key = tenant.agent_with(settings.clone()).await;
        for client in [Mcp::direct(&key), modern(&key)] {
            let listed = names(&client).await;
            assert_eq!(listed[0], "read_cache");
            assert_eq!(&listed[1..], visible, "{settings}");
            for name in ["zoo:reader", "zoo:plain", "zoo:wiper", "zoo:writer", "ark:reader"] {
                let is_known = client.call(name, &json!({})).await.code() != "-32602";
                assert_eq!(
                    is_known,
                    visible.contains(&name),
                    "{settings} {name}: what is not listed is not there"
                );
            }
        }
    }
}

#[tokio::test]
async fn servers_that_are_off_hidden_or_gone_are_in_no_list() {
    let (stage, tenant) = scene().await;
    let mut upstream = Upstream::handshake(upstream::zoo()).await;
    tenant.add("zoo", &upstream).await;
    let client = Mcp::direct(&tenant.agent().await);
    let neighbour = Mcp::direct(&open(&stage, "beta").await.agent().await);
    let verb = async |verb: &str| {
        tenant.platform.post(&format!("/api/v1/servers/zoo/{verb}"), &json!({})).await.expect(200);
    };
    assert_eq!(names(&client).await, ZOO);
    for (hide, show) in [("disable", "enable"), ("quarantine", "unquarantine")] {
        verb(hide).await;
        assert_eq!(names(&client).await, ["read_cache"], "{hide}");
        verb(show).await;
        assert_eq!(names(&client).await, ZOO, "{show}");
    }
    upstream.go_down().await;
    verb("refresh").await;
    assert_eq!(names(&client).await, ["read_cache"], "disconnected");
    upstream.come_back().await;
    verb("refresh").await;
    assert_eq!(names(&client).await, ZOO);
    upstream.set_tools(vec![Tool::writes("reader"), Tool::reads("new"), Tool::new("plain")]);
    verb("refresh").await;
    assert_eq!(names(&client).await, ["read_cache", "zoo:plain"], "changed and new ones wait, lost ones go");
    assert_eq!(names(&neighbour).await, ["read_cache"]);
    let lists = upstream.counts().lists;
    for _ in 0..5 {
        names(&client).await;
    }
    assert_eq!(upstream.counts().lists, lists, "a list asked the server");
    tenant.platform.delete("/api/v1/servers/zoo").await.expect(204);
    assert_eq!(names(&client).await, ["read_cache"]);
}

/// All pages, and how many there were.
async fn walk(client: &Mcp) -> (Vec<String>, usize) {
    let (mut names, mut cursor, mut pages) = (Vec::new(), Value::Null, 0);
    loop {
        let answer = client.request("tools/list", &json!({ "cursor": cursor }).to_string()).await.expect(200);
        let result = &answer["result"];
        let page = result["tools"].as_array().unwrap();
        names.extend(page.iter().map(|tool| tool["name"].as_str().unwrap().to_owned()));
        pages += 1;
        cursor = result["nextCursor"].clone();
        if cursor.is_null() {
            return (names, pages);
        }
        assert!(pages < 10 && !page.is_empty(), "{answer}");
    }
}

#[tokio::test]
async fn a_walk_finds_everything_once_also_while_tools_come_and_go() {
    let (_stage, tenant) = scene().await;
    // large enough that the tools of one server do not fit one page
    let padding = "x".repeat(250 * 1024);
    let tool = |name: &str| {
        Tool::raw(
            name,
            &format!(
                r#"{{"name":"{name}","description":"{padding}","inputSchema":{{"type":"object"}},"annotations":{{"readOnlyHint":true}}}}"#
            ),
        )
    };
    let all: Vec<String> = (0..36).map(|n| format!("t{n:02}")).collect();
    let upstream = Upstream::handshake(all.iter().map(|name| tool(name)).collect()).await;
    tenant.add_with("big", &upstream, json!({"auto_approve": true})).await;
    let agent = tenant.agent().await;
    let mut expected = vec!["read_cache".to_owned()];
    expected.extend(all.iter().map(|name| format!("big:{name}")));
    let (names, pages) = walk(&Mcp::direct(&agent)).await;
    assert_eq!((names, pages), (expected.clone(), 2));
    let client = modern(&agent);
    let first = client.request("tools/list", r#"{"cursor":""}"#).await.expect(200)["result"].clone();
    let last = first["tools"].as_array().unwrap().last().unwrap()["name"].as_str().unwrap().to_owned();
    // the last one of the page goes, and one before it comes: the next page is the same
    let left: Vec<Tool> =
        all.iter().filter(|name| format!("big:{name}") != last).map(|name| tool(name)).collect();
    upstream.set_tools([left, vec![Tool::reads("a")]].concat());
    tenant.platform.post("/api/v1/servers/big/refresh", &json!({})).await.expect(200);
    let cursor = json!({"cursor": first["nextCursor"]}).to_string();
    let second = client.request("tools/list", &cursor).await.expect(200)["result"].clone();
    let names: Vec<&str> =
        second["tools"].as_array().unwrap().iter().map(|tool| tool["name"].as_str().unwrap()).collect();
    let rest: Vec<&String> = expected.iter().filter(|name| **name > last && **name != "read_cache").collect();
    assert_eq!(names, rest);
    for cursor in [json!("%"), json!(7), json!("x".repeat(2000)), json!({})] {
        let answer = client.request("tools/list", &json!({ "cursor": cursor }).to_string()).await;
        assert_eq!(answer.json()["error"]["code"], -32602, "{cursor}: {answer:?}");
    }
}

#[tokio::test]
async fn a_thousand_tools_are_one_page() {
    let (_stage, tenant) = scene().await;
    let tools = (0..1000).map(|n| Tool::reads(&format!("tool_{n}"))).collect();
    let upstream = Upstream::handshake(tools).await;
    tenant.add("many", &upstream).await;
    let client = modern(&tenant.agent().await);
    settle(1001, Duration::from_secs(5), || async { names(&client).await.len() }).await;
    let (first, again) =
        (client.request_as("1", "tools/list", "{}").await, client.request_as("1", "tools/list", "{}").await);
    assert_eq!(first.text, again.text);
    assert_eq!(first.json()["result"]["ttlMs"], 5000);
}

#[tokio::test]
async fn a_definition_that_changed_is_in_the_next_list() {
    let (_stage, tenant) = scene().await;
    let tool = |description: &str| {
        Tool::raw(
            "t",
            &format!(r#"{{"name":"t","description":"{description}","inputSchema":{{"type":"object"}}}}"#),
        )
    };
    let upstream = Upstream::handshake(vec![tool("before")]).await;
    tenant.add_with("up", &upstream, json!({"auto_approve": true})).await;
    let client = Mcp::direct(&tenant.agent().await);
    assert_eq!(client.tools().await[1]["description"], "before");
    upstream.set_tools(vec![tool("after")]);
    tenant.platform.post("/api/v1/servers/up/refresh", &json!({})).await.expect(200);
    assert_eq!(client.tools().await[1]["description"], "after");
}

#[tokio::test(flavor = "multi_thread")]
async fn lists_that_are_not_read_keep_their_tenants_share_of_memory() {
    let stage = Stage::with(&[super::ON, ("MCPPROXY__LIMITS__TENANT_ANSWERS_BYTES_MAX", "4194304")]).await;
    let (tenant, other) = (open(&stage, "acme").await, open(&stage, "other").await);
    let padding = "x".repeat(250 * 1024);
    let tool = |n: usize| {
        let members = format!(r#""description":"{padding}","inputSchema":{{"type":"object"}}"#);
        Tool::raw(&format!("t{n:02}"), &format!(r#"{{"name":"t{n:02}",{members}}}"#))
    };
    let upstream = Upstream::handshake((0..12).map(tool).collect()).await;
    tenant.add("big", &upstream).await;
    other.add("big", &upstream).await;
    let (agent, elsewhere) = (tenant.agent().await, other.agent().await);
    let unread = modern(&agent).leave_unread("1", "tools/list", "{}").await;
    let reads = modern(&agent);
    settle(13, Duration::from_secs(5), || async { names(&reads).await.len() }).await;
    // the same for as many as want it, another one when there is memory again
    let next = Mcp::direct(&agent);
    let next = tokio::spawn(async move { names(&next).await.len() });
    for _ in 0..3 {
        assert_eq!(names(&modern(&agent)).await.len(), 13);
        assert_eq!(names(&Mcp::direct(&elsewhere)).await.len(), 13);
    }
    assert!(!next.is_finished(), "there was room for two");
    unread.read_until("}}").await;
    assert_eq!(next.await.unwrap(), 13);
}
