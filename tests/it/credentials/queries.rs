//! The query of a server's URL is a credential: it is sent to its server, and shown to nobody.

use std::time::Duration;

use serde_json::{Value, json};

use crate::support::upstream::Say;
use crate::support::{Mcp, Stage, Tool, Upstream, cli_with, eventually};

/// Query of no known shape: only a gateway that knows it can mask it.
const QUERY: &str = "api=opaque-query-7731&team=opaque-team-5";
const MARKS: [&str; 3] = ["query-7731", "team-5", "query-8842"];
const SHOWN: &str = "?[redacted]";

#[track_caller]
fn clean(what: &str, text: &str) {
    for mark in MARKS {
        assert!(!text.contains(&format!("opaque-{mark}")), "{mark} in {what}: {text}");
    }
}

#[tokio::test]
async fn no_role_and_no_record_shows_a_query() {
    let stage = Stage::with(&[("MCPPROXY__TELEMETRY__LOG_FILTER", "trace")]).await;
    let tenant = stage.tenant("acme").await;
    let api = &tenant.platform;
    let upstream = Upstream::handshake(vec![Tool::reads("t").says(Say::Headers)]).await;
    let url = format!("{}?{QUERY}", upstream.url);
    let masked = format!("{}{SHOWN}", upstream.url);
    let mut answers = vec![tenant.add_url("up", &url, json!({})).await];
    // refused, and at a place where nobody listens
    for body in [
        json!({"name": "up", "kind": "http", "url": url}),
        json!({"name": "a", "kind": "pigeon", "url": url}),
        json!({"name": "a", "kind": "http", "url": format!("http://10.0.0.1/?{QUERY}")}),
        json!({"name": "a", "kind": "http", "url": format!("http://u:opaque-team-5@127.0.0.1:1/?{QUERY}")}),
        json!({"name": "a", "kind": "http", "url": [url]}),
        json!({"name": "dead", "kind": "http", "url": format!("http://127.0.0.1:1/?{QUERY}")}),
    ] {
        answers.push(api.post("/api/v1/servers", &body).await.json());
    }
    answers.push(
        api.patch("/api/v1/servers/up", &json!({"url": url.replace("7731", "8842")})).await.expect(200),
    );
    assert!(upstream.sent(":path").last().unwrap().contains("api=opaque-query-8842"), "it was not sent");
    let (auditor, operator) = (tenant.auditor().await, tenant.operator().await);
    for reader in [api, &auditor, &operator] {
        let one = reader.get("/api/v1/servers/up").await.expect(200);
        assert_eq!(one["url"], masked, "{one}");
        answers.push(one);
        answers.extend(reader.items("/api/v1/servers").await);
        let records = reader.items("/api/v1/activity").await;
        assert!(records.iter().any(|record| record["tool"] == "servers.create"), "{records:?}");
        answers.extend(records);
    }
    let agent = Mcp::bare(&tenant.agent().await);
    agent.run("read", "up:t", &json!({})).await.ok();
    let manager = Mcp::bare(&tenant.admin().await);
    for arguments in [
        json!({"operation": "list"}),
        json!({"operation": "add", "name": "b", "kind": "http", "url": url}),
        json!({"operation": "add", "name": "b", "kind": "http", "url": url, "colour": url}),
    ] {
        clean("a management tool", &manager.call("upstream_servers", &arguments).await.answer.text);
    }
    let acts = eventually("records of all acts", Duration::from_secs(10), || async {
        let acts = api.items("/api/v1/activity?type=admin").await;
        // seven over REST and one change; two over MCP
        let over_mcp =
            acts.iter().filter(|act| act["source"] == "mcp" && act["arguments"].is_string()).count();
        (acts.len() >= 10 && over_mcp >= 2).then_some(acts)
    });
    answers.extend(acts.await);
    answers.extend(tenant.records("type=tool_call", 1).await);
    for answer in &answers {
        clean("an answer", &answer.to_string());
    }
    let (base, key) = (api.base_url(), auditor.key.clone().unwrap());
    let env = [("MCPPROXY_URL", &*base), ("MCPPROXY_API_KEY", &*key)];
    for args in [&["upstream", "list"][..], &["upstream", "show", "up"], &["upstream", "list", "-o", "json"]]
    {
        let run = cli_with(&env, args).await.ok();
        clean("the command line", &format!("{run:?}"));
        assert!(run.out.contains(&masked), "{run:?}");
    }
    clean("the log", &stage.gateway.log());
}

/// Checks that a masked URL is refused where a URL is expected: the mask would replace the credential.
#[tokio::test]
async fn a_mask_is_not_taken_for_a_query() {
    let stage = Stage::start().await;
    let tenant = stage.tenant("acme").await;
    let upstream = Upstream::handshake(vec![Tool::reads("t")]).await;
    let url = format!("{}?{QUERY}", upstream.url);
    let made = tenant.add_url("up", &url, json!({})).await;
    let answer = tenant.platform.patch("/api/v1/servers/up", &json!({"url": made["url"]})).await;
    assert!(answer.refused(400, "invalid_request").contains("masked"), "{answer:?}");
    let body = json!({"name": "b", "kind": "http", "url": made["url"]});
    tenant.platform.post("/api/v1/servers", &body).await.refused(400, "invalid_request");
}

/// Checks that only admins see the digest of a query, by which they can recognise it.
#[tokio::test]
async fn a_digest_of_the_query_is_for_admins() {
    let stage = Stage::start().await;
    let tenant = stage.tenant("acme").await;
    let upstream = Upstream::handshake(vec![Tool::reads("t")]).await;
    for name in ["up", "twin"] {
        tenant.add_url(name, &format!("{}?{QUERY}", upstream.url), json!({})).await;
    }
    tenant.add("plain", &upstream).await;
    let digest = async |name: &str| {
        tenant.platform.get(&format!("/api/v1/servers/{name}")).await.expect(200)["query_digest"].clone()
    };
    let first = digest("up").await;
    assert!(first.as_str().unwrap().starts_with("v1:"), "{first}");
    assert_ne!(first, digest("twin").await, "equal queries can be told");
    assert_eq!(digest("plain").await, Value::Null);
    assert_eq!(tenant.admin().await.get("/api/v1/servers/up").await.expect(200)["query_digest"], first);
    for reader in [tenant.operator().await, tenant.auditor().await] {
        for server in reader.items("/api/v1/servers").await {
            assert_eq!(server.get("query_digest"), None, "{server}");
        }
    }
    let listed =
        Mcp::bare(&tenant.admin().await).call("upstream_servers", &json!({"operation": "list"})).await;
    assert!(!listed.answer.text.contains("query_digest"), "{}", listed.answer.text);
    let changed = json!({"url": format!("{}?api=another", upstream.url)});
    tenant.platform.patch("/api/v1/servers/up", &changed).await.expect(200);
    eventually("another digest", Duration::from_secs(5), || async {
        (digest("up").await != first).then_some(())
    })
    .await;
}
