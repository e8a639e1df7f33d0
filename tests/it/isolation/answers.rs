//! Answers about another tenant's things are, byte for byte, the answers about things that never were.

use reqwest::Method;
use serde_json::{Value, json};

use crate::support::{Answer, Api, Mcp, Stage, Tenant, Tool, Upstream, upstream};

/// The answer with everything that may differ taken out: the name asked for and the request's own id.
fn normal(answer: &Answer, name: &str) -> (u16, String) {
    let mut text = answer.text.replace(name, "NAME");
    if let Some(id) = answer.json()["error"]["request_id"].as_str() {
        text = text.replace(id, "REQUEST");
    }
    (answer.status, text)
}

/// Asks about both; the names are of equal length, so that no length gives one away.
async fn compare(api: &Api, method: Method, path: &str, body: Option<Value>, existing: &str, missing: &str) {
    assert_eq!(existing.len(), missing.len());
    let mut answers = Vec::new();
    for name in [existing, missing] {
        let body: Option<Value> =
            body.as_ref().map(|body| serde_json::from_str(&body.to_string().replace("NAME", name)).unwrap());
        let answer = api.ask(method.clone(), &path.replace("NAME", name), body.as_ref()).await;
        let mut headers: Vec<String> = answer.headers.keys().map(ToString::to_string).collect();
        headers.sort();
        answers.push((normal(&answer, name), headers, answer.header("content-length").to_owned()));
    }
    assert_eq!(answers[0], answers[1], "{method} {path}");
    assert!(answers[0].0.0 < 500, "{method} {path}: {answers:?}");
}

async fn two_tenants(stage: &Stage) -> (Tenant, Tenant, Upstream) {
    let (a, b) = (stage.tenant("tenant-a").await, stage.tenant("tenant-b").await);
    let upstream = Upstream::handshake(upstream::zoo()).await;
    a.add("owned-by-a", &upstream).await;
    (a, b, upstream)
}

#[tokio::test]
async fn every_route_that_takes_a_name_or_an_id() {
    let stage = Stage::start().await;
    let (a, b, upstream) = two_tenants(&stage).await;
    let agent = a.agent().await;
    Mcp::session(&agent).await.run("write", "owned-by-a:writer", &json!({})).await.ok();
    let record = a.records("type=tool_call", 1).await[0].clone();
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let (get, post, patch, delete) = (Method::GET, Method::POST, Method::PATCH, Method::DELETE);
    let pin = format!("v1:{}", "0".repeat(64));
    let unknown_id = "5f0c2f1e-1d2a-4a37-9a51-0123456789ab";
    let server = ("owned-by-a", "never-is-a");
    // method, path, body; a name that exists elsewhere, one that exists nowhere
    type Case<'a> = (&'a Method, &'a str, Option<Value>, (&'a str, &'a str));
    let cases: Vec<Case<'_>> = vec![
        (&get, "/servers/NAME", None, server),
        (&patch, "/servers/NAME", Some(json!({"enabled": false})), server),
        (&patch, "/servers/NAME", Some(json!({"url": "http://127.0.0.1:9/", "version": 1})), server),
        (&post, "/servers/NAME/enable", None, server),
        (&post, "/servers/NAME/disable", None, server),
        (&post, "/servers/NAME/quarantine", None, server),
        (&post, "/servers/NAME/unquarantine", None, server),
        (&post, "/servers/NAME/refresh", None, server),
        (&post, "/servers/NAME/restart", None, server),
        (&get, "/servers/NAME/tools", None, server),
        (&get, "/servers/NAME/tools?limit=1", None, server),
        (&post, "/servers/NAME/tools/writer/approve", Some(json!({ "pin": pin })), server),
        (&delete, "/servers/NAME", None, server),
        (&get, "/keys/NAME", None, (&agent.id, unknown_id)),
        (&patch, "/keys/NAME", Some(json!({"name": "mine"})), (&agent.id, unknown_id)),
        (&get, "/keys/NAME/settings", None, (&agent.id, unknown_id)),
        (&patch, "/keys/NAME/settings", Some(json!({"max_operation": "read"})), (&agent.id, unknown_id)),
        (&delete, "/keys/NAME", None, (&agent.id, unknown_id)),
        (&get, "/activity/NAME", None, (record["id"].as_str().unwrap(), "01ARZ3NDEKTSV4RRFFQ69G5FAV")),
        (&get, "/activity?type=tool_call&key=NAME", None, (&agent.id, unknown_id)),
        (&get, "/activity?type=tool_call&server=NAME", None, server),
        (
            &get,
            "/activity?cursor=NAME&type=search",
            None,
            (record["id"].as_str().unwrap(), "01ARZ3NDEKTSV4RRFFQ69G5FAV"),
        ),
        (&get, "/tools?query=reader&server=NAME", None, server),
        (
            &post,
            "/tools/call",
            Some(json!({"tool_variant": "call_tool_write", "name": "NAME:writer"})),
            server,
        ),
        (&post, "/tools/call", Some(json!({"tool_variant": "call_tool_read", "name": "NAME:wiper"})), server),
        (&get, "/tenants/NAME", None, ("tenant-a", "tenant-x")),
        (&delete, "/tenants/NAME", None, ("tenant-a", "tenant-x")),
    ];
    let admin = b.admin().await;
    for (method, path, body, (existing, missing)) in cases {
        compare(&admin, method.clone(), &format!("/api/v1{path}"), body, existing, missing).await;
    }
    let session = text(&record["session_id"]);
    let filtered =
        admin.get(&format!("/api/v1/activity?type=tool_call&session_id={session}")).await.expect(200);
    assert_eq!(filtered["items"], json!([]));
    // nothing of all that had an effect
    assert_eq!(upstream.counts().calls, 1);
    let server = a.platform.get("/api/v1/servers/owned-by-a").await.expect(200);
    assert_eq!((&server["enabled"], &server["quarantined"]), (&json!(true), &json!(false)));
    Mcp::session(&agent).await.run("write", "owned-by-a:writer", &json!({})).await.ok();
}

#[tokio::test]
async fn every_argument_of_the_tools() {
    let stage = Stage::start().await;
    let (a, b, upstream) = two_tenants(&stage).await;
    let existing = "owned-by-a";
    let missing = "never-is-a";
    let theirs = Mcp::session(&a.agent().await).await;
    let agent = b.agent().await;
    for client in [Mcp::bare(&agent), Mcp::modern(&agent)] {
        for variant in ["read", "write", "destructive"] {
            for tool in ["reader", "writer", "wiper", "nothing"] {
                let mut answers = Vec::new();
                for server in [existing, missing] {
                    let outcome = client.run(variant, &format!("{server}:{tool}"), &json!({})).await;
                    outcome.refused("not_found");
                    answers.push(outcome.raw().replace(server, "NAME"));
                }
                assert_eq!(answers[0], answers[1], "{variant} {tool}");
            }
        }
        let mut answers = Vec::new();
        for server in [existing, missing] {
            let found = client.call("retrieve_tools", &json!({"query": "reader", "server": server})).await;
            found.ok();
            answers.push(found.raw().replace(server, "NAME"));
        }
        assert_eq!(answers[0], answers[1], "retrieve_tools");
    }
    let stolen = Mcp::in_session(&agent, theirs.session_id()).request("tools/list", "{}").await;
    let garbage = Mcp::in_session(&agent, "garbage").request("tools/list", "{}").await;
    assert_eq!((stolen.status, stolen.text), (garbage.status, garbage.text));
    assert_eq!(upstream.counts().calls, 0);
}

/// Everything of a tenant that depends on its catalogue.
async fn seen_by(api: &Api) -> Vec<String> {
    let mut seen = Vec::new();
    for client in [Mcp::bare(api), Mcp::modern(api)] {
        // ids of requests start anew with each client
        seen.push(client.request("tools/list", "{}").await.text);
        for query in ["reader", "tool", "nothing-like-this"] {
            seen.push(
                client.call("retrieve_tools", &json!({"query": query, "limit": 100})).await.answer.text,
            );
        }
    }
    seen.push(api.get("/api/v1/tools?query=tool").await.text);
    for server in api.items("/api/v1/servers").await {
        seen.push(format!("{} {} {}", server["name"], server["version"], server["connection"]));
    }
    seen
}

#[tokio::test]
async fn lists_totals_scores_and_descriptions_do_not_move() {
    let stage = Stage::start().await;
    let (a, b) = (stage.tenant("tenant-a").await, stage.tenant("tenant-b").await);
    let upstream = Upstream::handshake(upstream::zoo()).await;
    b.add_with("zoo", &upstream, json!({"enabled": true})).await;
    let operator = b.operator().await;
    let before = seen_by(&operator).await;
    let crowd: Vec<Tool> = (0..200).map(|n| Tool::reads(&format!("reader_tool_{n}"))).collect();
    let crowd = Upstream::handshake(crowd).await;
    a.add("crowd", &crowd).await;
    a.add("zoo", &crowd).await;
    a.platform.patch("/api/v1/settings", &json!({"max_operation": "read"})).await.expect(200);
    a.agent().await;
    let after = seen_by(&operator).await;
    assert_eq!(before, after);
    // the same name is two servers
    let ours = Mcp::bare(&operator).run("write", "zoo:writer", &json!({})).await;
    ours.ok();
    assert_eq!((upstream.counts().calls, crowd.counts().calls), (1, 0));
    a.platform.delete("/api/v1/servers/zoo").await.expect(204);
    Mcp::bare(&operator).run("write", "zoo:writer", &json!({})).await.ok();
    assert_eq!(seen_by(&operator).await, before);
}

#[tokio::test]
async fn tenants_never_share_a_connection() {
    let stage = Stage::start().await;
    let (a, b) = (stage.tenant("tenant-a").await, stage.tenant("tenant-b").await);
    let upstream = Upstream::handshake(upstream::zoo()).await;
    a.add("zoo", &upstream).await;
    let before = upstream.counts();
    b.add("zoo", &upstream).await;
    let after = upstream.counts();
    assert!(after.accepts > before.accepts, "{before:?} {after:?}");
    assert!(after.initializes > before.initializes, "{before:?} {after:?}");
    let sessions = async |tenant: &Tenant| {
        Mcp::bare(&tenant.agent().await).run("read", "zoo:reader", &json!({})).await.ok();
        upstream.calls().pop().unwrap().headers["mcp-session-id"].clone()
    };
    assert_ne!(sessions(&a).await, sessions(&b).await);
}
