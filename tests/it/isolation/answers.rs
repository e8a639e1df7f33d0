//! Answers about another tenant's things are, byte for byte, the answers about things that never were.

use std::time::Duration;

use mcpproxy::faces::rest::ROUTES;
use reqwest::Method;
use serde_json::{Value, json};

use crate::logins::{GATEWAY, SETTINGS, bearer, register, set_rules};
use crate::support::{Answer, Api, Idp, Mcp, People, Stage, Tenant, Tool, Upstream, eventually, upstream};

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

/// A body with which a route gets as far as looking for what its path names.
fn body(method: &str, path: &str) -> Option<Value> {
    Some(match (method, path) {
        ("PATCH", "/servers/NAME") => json!({"enabled": false}),
        ("POST", "/servers/NAME/tools/writer/approve" | "/servers/NAME/prompts/asks/approve") => {
            json!({"pin": format!("v1:{}", "0".repeat(64))})
        }
        ("POST", "/servers/NAME/resources/approve") => {
            json!({"uri": "x://a", "pin": format!("v1:{}", "0".repeat(64))})
        }
        ("POST", "/servers/NAME/resources/block" | "/servers/NAME/resources/unblock") => {
            json!({"uri": "x://a"})
        }
        ("PUT", "/servers/NAME/tools/writer/override") => {
            json!({"pin": format!("v1:{}", "0".repeat(64)), "annotations": {"readOnlyHint": true}, "version": 0})
        }
        ("POST", "/consent/NAME/decision") => json!({"decision": "allow_once"}),
        ("PATCH", "/keys/NAME") => json!({"name": "mine"}),
        ("POST", "/keys/NAME/rotate") => json!({"overlap_s": 60}),
        ("PATCH", "/keys/NAME/settings") => json!({"max_operation": "read"}),
        ("POST", "/servers/NAME/connections") => json!({"redirect_uri": "http://127.0.0.1:9/done"}),
        ("POST", "/servers/NAME/connections/claim") => json!({"claim_token": "A".repeat(43)}),
        ("PUT", "/servers/NAME/oauth") => json!({
            "kind": "client_credentials", "client_id": "a", "client_secret": "b", "token_endpoint": "http://127.0.0.1:9/t",
        }),
        ("PUT", "/keys/NAME/policy") => json!({"version": 0, "rules": []}),
        _ => return None,
    })
}

#[tokio::test]
async fn every_route_that_takes_a_name_or_an_id() {
    let stage = Stage::with(&SETTINGS).await;
    let (a, b, upstream) = two_tenants(&stage).await;
    let agent = a.agent().await;
    Mcp::session(&agent).await.run("write", "owned-by-a:writer", &json!({})).await.ok();
    let record = a.records("type=tool_call", 1).await[0].clone();
    let (record_id, session) =
        (record["id"].as_str().unwrap(), record["session_id"].as_str().unwrap().to_owned());
    let policy = json!({"version": 0, "mode": "always_ask", "rules": []});
    a.platform.ask(Method::PUT, "/api/v1/policy", Some(&policy)).await.expect(200);
    Mcp::bare(&agent).run("write", "owned-by-a:writer", &json!({})).await.refused("consent_pending");
    let asked = a.platform.items("/api/v1/consent").await[0]["id"].as_str().unwrap().to_owned();
    let policy = json!({"version": 1, "mode": "always_allow", "rules": []});
    a.platform.ask(Method::PUT, "/api/v1/policy", Some(&policy)).await.expect(200);
    let idp = Idp::start().await;
    register(&stage, &idp, "corp", "tenant-a").await;
    set_rules(&a, json!([{"role": "agent"}])).await;
    let person = bearer(&stage, &idp.token("u1", GATEWAY, json!({})));
    let person = person.get("/api/v1/status").await.expect(200)["identity_id"].as_str().unwrap().to_owned();
    eventually("the person to be stored", Duration::from_secs(5), || async {
        (!a.platform.items("/api/v1/identities").await.is_empty()).then_some(())
    })
    .await;
    let unknown_id = "5f0c2f1e-1d2a-4a37-9a51-0123456789ab";
    let unknown_record = "01ARZ3NDEKTSV4RRFFQ69G5FAV";
    let server = ("owned-by-a", "never-is-a");
    let (key, other) = (b.admin().await, Idp::start().await);
    register(&stage, &other, "beta", "tenant-b").await;
    let conditions = json!([{"claim": "sub", "op": "present"}]);
    set_rules(&b, json!([{"role": "admin", "conditions": conditions}])).await;
    let admins = [key, bearer(&stage, &other.token("u1", GATEWAY, json!({})))];
    // the last ones take away what the others name
    let named = ROUTES.iter().filter(|(_, path)| path.contains('{'));
    let (removing, others): (Vec<_>, Vec<_>) = named.partition(|(method, _)| *method == "DELETE");
    for (method, path) in others.into_iter().chain(removing) {
        let (status, code, (existing, missing)) = match path.split('/').nth(1) {
            Some("servers") => (404, "not_found", server),
            Some("consent") => (404, "not_found", (&*asked, unknown_id)),
            Some("keys") => (404, "not_found", (&*agent.id, unknown_id)),
            Some("activity") => (404, "not_found", (record_id, unknown_record)),
            Some("tenants") => (403, "forbidden", ("tenant-a", "tenant-x")),
            Some("issuers") => (403, "forbidden", ("corp", "cork")),
            Some("identities") => (404, "not_found", (&*person, unknown_id)),
            _ => panic!("{method} {path}: say here what of another tenant it could name"),
        };
        let concrete = path.replace("{name}", "NAME").replace("{id}", "NAME").replace("{tool}", "writer");
        let concrete = concrete.replace("{prompt}", "asks");
        let query = if concrete.ends_with("/resources/diff") { "?uri=x://a" } else { "" };
        let (how, path) = (method.parse::<Method>().unwrap(), format!("/api/v1{concrete}{query}"));
        let body = body(method, &concrete);
        for admin in &admins {
            // it came as far as looking for what is named
            let answer = admin.ask(how.clone(), &path.replace("NAME", missing), body.as_ref()).await;
            answer.refused(status, code);
            compare(admin, how.clone(), &path, body.clone(), existing, missing).await;
        }
    }
    // names in queries and bodies
    type Case<'a> = (Method, &'a str, Option<Value>, (&'a str, &'a str));
    let call = |variant: &str, tool: &str| Some(json!({"tool_variant": variant, "name": tool}));
    let cases: Vec<Case<'_>> = vec![
        (Method::PATCH, "/servers/NAME", Some(json!({"url": "http://127.0.0.1:9/", "version": 1})), server),
        (Method::GET, "/servers/NAME/tools?limit=1", None, server),
        (Method::GET, "/activity?type=tool_call&key=NAME", None, (&agent.id, unknown_id)),
        (Method::GET, "/activity?type=tool_call&server=NAME", None, server),
        (Method::GET, "/activity?cursor=NAME&type=search", None, (record_id, unknown_record)),
        (Method::GET, "/tools?query=reader&server=NAME", None, server),
        (Method::POST, "/tools/call", call("call_tool_write", "NAME:writer"), server),
        (Method::POST, "/tools/call", call("call_tool_read", "NAME:wiper"), server),
    ];
    for (method, path, body, (existing, missing)) in cases {
        for admin in &admins {
            let path = format!("/api/v1{path}");
            compare(admin, method.clone(), &path, body.clone(), existing, missing).await;
        }
    }
    let filtered =
        admins[1].get(&format!("/api/v1/activity?type=tool_call&session_id={session}")).await.expect(200);
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
    let person = People::of(&stage, &b, "tenant-b").await.person("agent", json!({})).await;
    let agent = b.agent().await;
    for client in [Mcp::bare(&agent), Mcp::modern(&agent), Mcp::bare(&person), Mcp::modern(&person)] {
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
    for caller in [&agent, &person] {
        let stolen = Mcp::in_session(caller, theirs.session_id()).request("tools/list", "{}").await;
        let garbage = Mcp::in_session(caller, "garbage").request("tools/list", "{}").await;
        assert_eq!((stolen.status, stolen.text), (garbage.status, garbage.text));
    }
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
    let person = People::of(&stage, &b, "tenant-b").await.person("operator", json!({})).await;
    let before = seen_by(&operator).await;
    assert_eq!(seen_by(&person).await, before, "a person sees what a key does");
    let crowd: Vec<Tool> = (0..200).map(|n| Tool::reads(&format!("reader_tool_{n}"))).collect();
    let crowd = Upstream::handshake(crowd).await;
    a.add("crowd", &crowd).await;
    a.add("zoo", &crowd).await;
    a.platform.patch("/api/v1/settings", &json!({"max_operation": "read"})).await.expect(200);
    a.agent().await;
    for caller in [&operator, &person] {
        assert_eq!(before, seen_by(caller).await);
    }
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
