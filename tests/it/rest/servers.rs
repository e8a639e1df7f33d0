//! Upstream servers.

use reqwest::Method;
use serde_json::{Value, json};

use crate::support::upstream::Say;
use crate::support::{Database, Gateway, Mcp, Stage, Tool, Upstream, masked, upstream};

#[tokio::test]
async fn a_servers_life() {
    let stage = Stage::start().await;
    let tenant = stage.tenant("acme").await;
    let admin = tenant.admin().await;
    let upstream = Upstream::handshake(upstream::zoo()).await;
    let body = json!({"name": "zoo", "kind": "http", "url": upstream.url});
    let made = admin.post("/api/v1/servers", &body).await.expect(201);
    let varying = ["id", "url", "version", "created_at", "last_ok_at", "added_by"];
    insta::assert_json_snapshot!(masked(&made, &varying), @r#"
    {
      "added_by": "[text]",
      "auto_approve": false,
      "connection": "connected",
      "created_at": "[text]",
      "enabled": true,
      "era": "handshake",
      "headers": [],
      "id": "[text]",
      "kind": "http",
      "last_error": null,
      "last_ok_at": "[text]",
      "limits": {},
      "name": "zoo",
      "quarantined": false,
      "relay": {
        "elicitation": true,
        "logging": false,
        "roots": false,
        "sampling": false
      },
      "url": "[text]",
      "version": "[number]"
    }
    "#);
    admin.post("/api/v1/servers", &body).await.refused(409, "conflict");
    let tools = admin.items("/api/v1/servers/zoo/tools").await;
    assert_eq!(tools.len(), 6);
    for tool in &tools {
        assert_eq!(tool["state"], "approved", "{tool}");
        assert!(tool["pin"].as_str().unwrap().starts_with("v1:"), "{tool}");
        assert!(tool["definition"].is_object() && tool["annotations"].is_object(), "{tool}");
        assert_eq!(tool["safe_name"], format!("zoo__{}", tool["name"].as_str().unwrap()));
    }
    let reader = tools.iter().find(|tool| tool["name"] == "reader").unwrap();
    insta::assert_json_snapshot!(masked(reader, &["pin", "approved_pin"]), @r#"
    {
      "annotations": {
        "readOnlyHint": true
      },
      "approved_pin": "[text]",
      "call_with": "call_tool_read",
      "definition": {
        "annotations": {
          "readOnlyHint": true
        },
        "description": "The tool reader of the test server",
        "inputSchema": {
          "type": "object"
        },
        "name": "reader"
      },
      "drift": null,
      "drifted_at": null,
      "name": "reader",
      "override": null,
      "pin": "[text]",
      "safe_name": "zoo__reader",
      "state": "approved",
      "tier": "read"
    }
    "#);
    let tier = |name: &str| tools.iter().find(|tool| tool["name"] == name).unwrap()["tier"].clone();
    assert_eq!([tier("reader"), tier("wiper"), tier("plain")], ["read", "destructive", "unknown"]);

    let stale = json!({"enabled": false, "version": made["version"]});
    let changed = admin.patch("/api/v1/servers/zoo", &json!({"auto_approve": true})).await.expect(200);
    assert_ne!(changed["version"], made["version"]);
    admin.patch("/api/v1/servers/zoo", &stale).await.refused(409, "conflict");
    assert_eq!(admin.post("/api/v1/servers/zoo/disable", &json!({})).await.expect(200)["enabled"], false);
    admin.post("/api/v1/servers/zoo/refresh", &json!({})).await.refused(409, "conflict");
    assert_eq!(
        admin.ask(Method::POST, "/api/v1/servers/zoo/enable", None).await.expect(200)["enabled"],
        true
    );
    admin.post("/api/v1/servers/zoo/restart", &json!({})).await.expect(200);
    admin.delete("/api/v1/servers/zoo").await.expect(204);
    admin.get("/api/v1/servers/zoo").await.refused(404, "not_found");
    assert_eq!(admin.items("/api/v1/servers").await, [Value::Null; 0]);
}

#[tokio::test]
async fn a_server_added_again_is_a_new_one() {
    let stage = Stage::start().await;
    let tenant = stage.tenant("acme").await;
    let upstream = Upstream::handshake(vec![Tool::reads("t")]).await;
    let first = tenant.add("up", &upstream).await;
    tenant.platform.post("/api/v1/servers/up/quarantine", &json!({})).await.expect(200);
    tenant.platform.delete("/api/v1/servers/up").await.expect(204);
    upstream.set_tools(vec![Tool::destroys("t"), Tool::reads("u")]);
    let second = tenant.add("up", &upstream).await;
    assert_ne!(first["id"], second["id"]);
    assert_eq!(second["quarantined"], false);
    let tools = tenant.platform.items("/api/v1/servers/up/tools").await;
    let states: Vec<(&Value, &Value)> = tools.iter().map(|tool| (&tool["name"], &tool["state"])).collect();
    assert_eq!(
        states,
        [(&json!("t"), &json!("approved")), (&json!("u"), &json!("approved"))],
        "the pins of the old one stayed"
    );
    Mcp::bare(&tenant.agent().await).run("destructive", "up:t", &json!({})).await.ok();
}

#[tokio::test]
async fn what_an_operator_adds_waits_for_somebody_else() {
    let stage = Stage::start().await;
    let tenant = stage.tenant("acme").await;
    let (adder, other) = (tenant.operator().await, tenant.operator().await);
    let upstream = Upstream::handshake(vec![Tool::reads("t")]).await;
    let body = json!({"name": "up", "kind": "http", "url": upstream.url});
    let made = adder.post("/api/v1/servers", &body).await.expect(201);
    assert_eq!(made["quarantined"], true);
    let client = Mcp::bare(&tenant.agent().await);
    assert_eq!(client.search(&json!({"query": "t"})).await["total"], 0);
    let outcome = client.run("read", "up:t", &json!({})).await;
    assert!(matches!(outcome.code().as_str(), "server_quarantined" | "not_found"), "{outcome:?}");
    adder.post("/api/v1/servers/up/unquarantine", &json!({})).await.refused(403, "forbidden");
    client.run("read", "up:t", &json!({})).await.result();
    assert_eq!(upstream.counts().calls, 0);
    let released = other.post("/api/v1/servers/up/unquarantine", &json!({})).await.expect(200);
    assert_eq!(released["quarantined"], false);
    client.run("read", "up:t", &json!({})).await.ok();
}

#[tokio::test]
async fn another_origin_is_another_server() {
    let stage = Stage::start().await;
    let tenant = stage.tenant("acme").await;
    let (old, new) = (
        Upstream::handshake(vec![Tool::reads("t")]).await,
        Upstream::handshake(vec![Tool::reads("t")]).await,
    );
    tenant.add("up", &old).await;
    let client = Mcp::bare(&tenant.agent().await);
    client.run("read", "up:t", &json!({})).await.ok();
    let moved =
        tenant.operator().await.patch("/api/v1/servers/up", &json!({"url": new.url})).await.expect(200);
    assert_eq!(moved["quarantined"], true, "{moved}");
    assert_eq!(client.run("read", "up:t", &json!({})).await.code(), "server_quarantined");
    tenant.platform.post("/api/v1/servers/up/unquarantine", &json!({})).await.expect(200);
    client.run("read", "up:t", &json!({})).await.ok();
    assert_eq!((old.counts().calls, new.counts().calls), (1, 1));
    // an admin's word releases, and what is there then is the baseline
    let moved = tenant.platform.patch("/api/v1/servers/up", &json!({"url": old.url})).await.expect(200);
    assert_eq!(moved["quarantined"], false, "{moved}");
    client.run("read", "up:t", &json!({})).await.ok();
    assert_eq!((old.counts().calls, new.counts().calls), (2, 1));
}

/// Host and port may also be parameters of the database's URL, or stand in its name.
#[tokio::test]
async fn the_database_is_no_server_however_its_url_is_written() {
    let database = Database::migrated().await;
    let (name, port) = (database.name(), database.port());
    for (url, host) in [
        (format!("postgres:///{name}?host=127.0.0.1&port={port}&user=postgres"), "127.0.0.1"),
        (format!("postgres://postgres@localhost:{port}/{name}"), "LocalHost"),
    ] {
        let gateway = Gateway::start(&database, &[("MCPPROXY__DATABASE__URL", &url)]).await;
        let platform = gateway.platform();
        drop(platform.post("/api/v1/tenants", &json!({"name": "acme"})).await);
        let body = json!({"name": "db", "kind": "http", "url": format!("http://{host}:{port}/")});
        let answer = platform.as_tenant("acme").post("/api/v1/servers", &body).await;
        // a name is refused when it is connected to
        assert!(answer.text.contains("part of this deployment"), "{url}: {answer:?}");
        drop(platform.as_tenant("acme").delete("/api/v1/servers/db").await);
    }
}

#[tokio::test]
async fn addresses_inside_are_refused() {
    let stage = Stage::start().await;
    let tenant = stage.tenant("acme").await;
    let urls = [
        "http://10.0.0.1/",
        "http://192.168.1.1/mcp",
        "http://172.16.0.1/",
        "http://169.254.169.254/",
        "http://[::1]:9/mcp",
        "http://[fd00::1]/",
        "http://[fe80::1]/",
        "http://0.0.0.0:9/",
        "http://[::ffff:10.0.0.1]/",
        "http://100.64.0.1/",
        "http://[64:ff9b::a00:1]/",
        "http://2130706433.example.invalid/..",
        "http://167772161/",
        "ftp://example.com/",
        "file:///etc/passwd",
        "http://user:secret-in-url@127.0.0.1:9/",
        "not a url",
        "",
    ];
    for url in urls {
        let body = json!({"name": "in", "kind": "http", "url": url});
        let answer = tenant.platform.post("/api/v1/servers", &body).await;
        if answer.status == 201 && (url.contains("example.invalid") || url.contains("167772161")) {
            // only resolving it can tell: it may be stored, but is never connected
            assert!(answer.json()["last_error"].is_string(), "{answer:?}");
            tenant.platform.delete("/api/v1/servers/in").await.expect(204);
            continue;
        }
        answer.refused(400, "invalid_request");
        assert_eq!(answer.json()["error"]["field"], "url", "{url}: {answer:?}");
        assert!(!answer.text.contains("secret-in-url"), "{answer:?}");
    }
    assert_eq!(tenant.platform.items("/api/v1/servers").await, [Value::Null; 0]);
}

#[tokio::test]
async fn a_name_that_leads_inside_is_refused_when_connecting() {
    // localhost resolves to what no range allows here
    let stage = Stage::with(&[("MCPPROXY__EGRESS__ALLOW", "203.0.113.0/24")]).await;
    let tenant = stage.tenant("acme").await;
    let upstream = Upstream::handshake(vec![Tool::reads("t")]).await;
    let url = upstream.url.replace("127.0.0.1", "localhost");
    let body = json!({"name": "in", "kind": "http", "url": url});
    let answer = tenant.platform.post("/api/v1/servers", &body).await;
    if answer.status == 201 {
        assert!(answer.json()["last_error"].is_string(), "{answer:?}");
    } else {
        answer.refused(400, "invalid_request");
    }
    assert_eq!(upstream.counts().accepts, 0, "it was connected to");
}

#[tokio::test]
async fn bodies_are_checked() {
    let stage = Stage::start().await;
    let tenant = stage.tenant("acme").await;
    let url = "http://127.0.0.1:9/mcp";
    let cases = [
        (json!({"kind": "http", "url": url}), "name"),
        (json!({"name": "a--b", "kind": "http", "url": url}), "name"),
        (json!({"name": "A", "kind": "http", "url": url}), "name"),
        (json!({"name": "a", "url": url}), "kind"),
        (json!({"name": "a", "kind": "pigeon", "url": url}), "kind"),
        (json!({"name": "a", "kind": "http"}), "url"),
        (json!({"name": "a", "kind": "http", "url": 7}), "url"),
        (json!({"name": "a", "kind": "http", "url": url, "enabled": "yes"}), "enabled"),
        (json!({"name": "a", "kind": "http", "url": url, "limits": {"nope": 1}}), "limits"),
        (json!({"name": "a", "kind": "http", "url": url, "limits": {"concurrency": 0}}), "limits"),
        (json!({"name": "a", "kind": "http", "url": url, "relay": {"nope": true}}), "relay.nope"),
        (json!({"name": "a", "kind": "http", "url": url, "relay": {"roots": "yes"}}), "relay.roots"),
        (json!({"name": "a", "kind": "http", "url": url, "relay": true}), "relay"),
        (json!({"name": "a", "kind": "http", "url": url, "quarantined": false}), "quarantined"),
    ];
    for (body, field) in cases {
        let answer = tenant.platform.post("/api/v1/servers", &body).await;
        answer.refused(400, "invalid_request");
        let named = answer.json()["error"]["field"].as_str().unwrap_or_default().to_owned();
        assert!(named.starts_with(field), "{body}: {answer:?}");
    }
    // one that cannot be reached is stored, and says so
    let down = json!({"name": "down", "kind": "http", "url": url});
    let made = tenant.platform.post("/api/v1/servers", &down).await.expect(201);
    assert!(made["last_error"].is_string() && made["connection"] != "connected", "{made}");
}

#[tokio::test]
async fn what_it_may_ask_is_chosen_and_ends_with_its_place() {
    let stage = Stage::start().await;
    let tenant = stage.tenant("acme").await;
    let upstream = Upstream::handshake(vec![Tool::reads("t")]).await;
    tenant.add("up", &upstream).await;
    let path = "/api/v1/servers/up";
    let relay = |elicitation: bool, sampling: bool| json!({"elicitation": elicitation, "sampling": sampling, "roots": false, "logging": false});
    let changed =
        async |change: Value| tenant.platform.patch(path, &change).await.expect(200)["relay"].clone();
    assert_eq!(tenant.platform.get(path).await.expect(200)["relay"], relay(true, false));
    assert_eq!(changed(json!({"relay": {"elicitation": false, "sampling": true}})).await, relay(false, true));
    assert_eq!(changed(json!({"limits": {"queue": 5}})).await, relay(false, true), "kept");
    assert_eq!(changed(json!({"relay": {"sampling": true}})).await, relay(true, true), "the default again");
    let wrong = tenant.platform.patch(path, &json!({"relay": {"samplin": true}})).await;
    wrong.refused(400, "invalid_request");
    assert!(wrong.text.contains("did you mean 'sampling'?"), "{wrong:?}");
    let elsewhere = upstream.url.replace("127.0.0.1", "localhost");
    assert_eq!(changed(json!({"url": elsewhere})).await, relay(true, false), "what was allowed ends");
}

#[tokio::test]
async fn redirects_are_not_followed() {
    let stage = Stage::start().await;
    let tenant = stage.tenant("acme").await;
    let elsewhere = Upstream::handshake(vec![Tool::reads("t")]).await;
    let upstream =
        Upstream::handshake(vec![Tool::reads("t").says(Say::Redirect(elsewhere.url.clone()))]).await;
    tenant.add("up", &upstream).await;
    Mcp::bare(&tenant.agent().await).run("read", "up:t", &json!({})).await.refused("upstream_invalid");
    assert_eq!((upstream.counts().calls, elsewhere.counts().accepts), (1, 0));
}
