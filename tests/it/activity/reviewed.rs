//! Answers that a reviewer needs of a record: whose key it was, from where, with which client.

use reqwest::Method;
use serde_json::{Value, json};

use crate::support::{Api, Gateway, Mcp, Stage, Upstream, cli, upstream};

/// Bootstrap key of other tests, with a name.
const OPS: &str = "ops:bootstrap-key-of-the-integration-tests";

#[tokio::test]
async fn records_say_whose_key_it_was_and_from_where() {
    let stage = Stage::start().await;
    let tenant = stage.tenant("acme").await;
    let upstream = Upstream::handshake(upstream::zoo()).await;
    tenant.add("zoo", &upstream).await;
    let ana = tenant.key(&json!({"role": "agent", "name": "ana ide", "owner": "ana"})).await;
    let bob = tenant.key(&json!({"role": "agent", "name": "bob ide", "owner": "bob"})).await;
    Mcp::session(&ana).await.run("read", "zoo:reader", &json!({})).await.ok();
    Mcp::session(&bob).await.run("write", "zoo:writer", &json!({})).await.ok();
    let auditor = tenant.auditor().await;
    let of = async |name: &str| tenant.records(&format!("key={name}&type=tool_call"), 1).await.remove(0);
    let record = of("ana%20ide").await;
    assert_eq!((&record["key_name"], &record["owner"]), (&json!("ana ide"), &json!("ana")), "{record}");
    assert_eq!((&record["key_id"], &record["client_address"]), (&json!(ana.id), &json!("127.0.0.1")));
    assert_eq!(of(&ana.id).await, record);
    // a call that does not only read is known by name while it runs, and at its end
    assert_eq!(of("bob%20ide").await["key_name"], "bob ide");
    for (query, count) in [
        ("key=nobody", 0),
        ("client_address=127.0.0.1&type=tool_call", 2),
        ("client_address=::ffff:127.0.0.1&type=tool_call", 2),
        ("client_address=192.0.2.1", 0),
    ] {
        tenant.records(query, count).await;
    }
    // an agent finds its own by its name, and nobody else's by theirs
    assert_eq!(ana.items("/api/v1/activity?key=ana%20ide").await.len(), 1);
    assert_eq!(ana.items("/api/v1/activity?key=bob%20ide").await, [Value::Null; 0]);
    // an auditor sees names in records, and no keys
    assert_eq!(auditor.items("/api/v1/activity?type=tool_call").await[0]["key_name"], "bob ide");
    auditor.get("/api/v1/keys").await.refused(403, "forbidden");

    let admin = tenant.admin().await;
    let path = format!("/api/v1/keys/{}", ana.id);
    let version = admin.get(&path).await.expect(200)["version"].clone();
    admin.patch(&path, &json!({"name": "ana laptop", "version": version})).await.expect(200);
    Mcp::bare(&ana).run("read", "zoo:reader", &json!({})).await.ok();
    assert_eq!(tenant.records("key=ana%20laptop", 1).await[0]["key_id"], ana.id);
    assert_eq!(of("ana%20ide").await, record, "records keep the name of their time");

    let wide = cli(&auditor, &["activity", "list", "--wide", "--key", "ana ide"]).await.ok().out;
    let head: Vec<&str> = wide.lines().next().unwrap().split_whitespace().collect();
    let columns = "CODE TYPE TIER OWNER KEY KEY ID SOURCE CLIENT ADDRESS ALLOWED BY ARGUMENTS";
    assert_eq!(head[7..].join(" "), columns);
    for shown in ["ana ide", &*ana.id, "it-client 1.2.3", "127.0.0.1"] {
        assert!(wide.contains(shown), "{wide}");
    }
    let none = cli(&auditor, &["activity", "list", "--client-address", "192.0.2.1"]).await.ok();
    assert_eq!(none.rows().len(), 0);
    let csv = auditor.get("/api/v1/activity/export?format=csv&key=ana%20ide").await.text;
    assert!(
        csv.contains("\"key_name\"") && csv.contains("\"ana ide\"") && csv.contains("\"127.0.0.1\""),
        "{csv}"
    );
}

/// Sends a read that is refused, and therefore recorded, for a client that a proxy names.
async fn refused_from(api: &Api, client: &str) {
    let request = api.request(Method::GET, "/api/v1/keys").header("X-Forwarded-For", client);
    api.send(request).await.refused(403, "forbidden");
}

#[tokio::test]
async fn a_trusted_proxy_says_from_where_and_nobody_else() {
    let trusting = Stage::with(&[("MCPPROXY__SERVER__TRUSTED_PROXIES", "127.0.0.0/8")]).await;
    for (stage, want) in [(&trusting, "203.0.113.9"), (&Stage::start().await, "127.0.0.1")] {
        let tenant = stage.tenant("acme").await;
        let agent = tenant.agent().await;
        refused_from(&agent, "192.0.2.1, 203.0.113.9").await;
        let record = tenant.records(&format!("key={}", agent.id), 1).await.remove(0);
        assert_eq!(record["client_address"], want, "{record}");
    }
    let stranger = trusting.platform().with_key("mcpk_wrong");
    for client in ["203.0.113.9", "203.0.113.9", "203.0.113.10"] {
        let request = stranger.request(Method::GET, "/api/v1/status").header("X-Forwarded-For", client);
        stranger.send(request).await.refused(401, "unauthenticated");
    }
    // what is only counted is written when the gateway stops
    let Stage { mut gateway, database, .. } = trusting;
    gateway.terminate();
    gateway.ended().await;
    let next = Gateway::start(&database, &[]).await;
    let counted = next.platform().items("/api/v1/activity?type=auth_failure").await;
    assert_eq!(counted.len(), 1, "{counted:?}");
    assert_eq!(counted[0]["client_address"], "203.0.113.9");
    let arguments: Value = serde_json::from_str(counted[0]["arguments"].as_str().unwrap()).unwrap();
    assert_eq!(arguments["addresses"], json!(["203.0.113.9", "203.0.113.10"]), "{arguments}");
    assert_eq!(arguments["count"], 3);
}

#[tokio::test]
async fn a_bootstrap_key_may_have_a_name() {
    let stage = Stage::with(&[("MCPPROXY__AUTH__BOOTSTRAP_KEY", OPS)]).await;
    let platform = stage.platform();
    let whole = platform.with_key(OPS);
    for key in [&platform, &whole] {
        assert_eq!(key.get("/api/v1/status").await.expect(200)["role"], "platform");
    }
    platform.with_key("ops").get("/api/v1/status").await.refused(401, "unauthenticated");
    platform.post("/api/v1/tenants", &json!({"name": "acme"})).await.expect(201);
    let acts = platform.items("/api/v1/activity?key=ops").await;
    let shown = (&acts[0]["tool"], &acts[0]["key_name"], &acts[0]["key_id"]);
    assert_eq!(shown, (&json!("tenants.create"), &json!("ops"), &Value::Null), "{acts:?}");
    let within = platform.as_tenant("acme");
    within.post("/api/v1/keys", &json!({"role": "agent"})).await.expect(201);
    let acts = within.items("/api/v1/activity?key=ops&tool=keys.create").await;
    assert_eq!(acts.len(), 1, "{acts:?}");
}
