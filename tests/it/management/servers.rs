//! What the operations do, and what they do not.

use serde_json::{Value, json};

use super::{QUARANTINE, SERVERS, ask, offered, operations, scene};
use crate::support::{Mcp, Tool};

/// What was answered, as a program reads it.
async fn done(client: &Mcp, tool: &str, operation: &str, more: Value) -> Value {
    ask(client, tool, operation, more).await.ok()["structuredContent"].clone()
}

#[tokio::test]
async fn a_server_is_run_from_a_client() {
    let (_stage, tenant, upstream) = scene().await;
    let admin = Mcp::modern(&tenant.admin().await);
    let headers = json!({"X-Up-Key": "s3cret-value"});
    let more = json!({"name": "two", "kind": "http", "url": upstream.url, "headers": headers});
    let added = done(&admin, SERVERS, "add", more).await;
    assert_eq!(
        (&added["quarantined"], &added["headers"]),
        (&json!(true), &json!(["X-Up-Key"])),
        "an admin's too"
    );
    let waiting = done(&admin, QUARANTINE, "list_quarantined", json!({})).await;
    assert_eq!(waiting["items"].as_array().unwrap().len(), 1);
    assert_eq!(waiting["items"][0]["name"], "two");
    let tools = done(&admin, QUARANTINE, "inspect_tools", json!({"name": "two", "limit": 1})).await;
    assert_eq!((&tools["items"][0]["name"], &tools["items"][0]["state"]), (&json!("t"), &json!("pending")));
    let page = done(&admin, SERVERS, "list", json!({"limit": 1.0})).await;
    let next = done(&admin, SERVERS, "list", json!({"cursor": page["next_cursor"]})).await;
    assert_eq!((&page["items"][0]["name"], &next["items"][0]["name"]), (&json!("two"), &json!("up")));
    let version = &added["version"];
    let change = json!({"name": "two", "version": version, "limits": {"queue": 1}});
    let updated = done(&admin, SERVERS, "update", change.clone()).await;
    assert_eq!(updated["limits"], json!({"queue": 1}));
    assert_eq!(ask(&admin, SERVERS, "update", change).await.code(), "conflict");
    assert_eq!(done(&admin, SERVERS, "disable", json!({"name": "two"})).await["enabled"], false);
    assert_eq!(ask(&admin, SERVERS, "refresh", json!({"name": "two"})).await.code(), "conflict");
    assert_eq!(done(&admin, SERVERS, "enable", json!({"name": "two"})).await["enabled"], true);
    let log = done(&admin, SERVERS, "logs", json!({"name": "two", "limit": 5})).await;
    assert!(log["items"].is_array(), "{log}");
    assert_eq!(done(&admin, SERVERS, "remove", json!({"name": "two"})).await, json!({}));
    tenant.platform.get("/api/v1/servers/two").await.refused(404, "not_found");
    let record = tenant.records("type=admin&tool=servers.create&source=mcp", 1).await.remove(0);
    let recorded = record["arguments"].as_str().unwrap();
    assert!(recorded.contains("X-Up-Key") && !recorded.contains("s3cret"), "{recorded}");
    assert_eq!(record["server"], "two");
}

#[tokio::test]
async fn nothing_is_approved_or_released() {
    let (_stage, tenant, upstream) = scene().await;
    let admin = Mcp::direct(&tenant.admin().await);
    upstream.set_tools(vec![Tool::destroys("t")]);
    tenant.platform.post("/api/v1/servers/up/refresh", &json!({})).await.expect(200);
    let diff = done(&admin, QUARANTINE, "diff", json!({"name": "up", "tool": "t"})).await;
    assert_eq!((&diff["state"], &diff["drift"]), (&json!("changed"), &json!("to_destructive")));
    let paths: Vec<&Value> =
        diff["changes"].as_array().unwrap().iter().map(|change| &change["path"]).collect();
    assert_eq!(paths, ["/annotations/readOnlyHint", "/annotations/destructiveHint"]);
    for tool in offered(&admin).await {
        for operation in operations(&tool) {
            assert!(!["approve", "release", "unquarantine", "override", "unblock"].contains(&operation));
        }
    }
    let version = tenant.platform.get("/api/v1/servers/up").await.expect(200)["version"].clone();
    let url = &upstream.url;
    for (operation, more) in [
        ("update", json!({"name": "up", "auto_approve": true, "version": version})),
        ("add", json!({"name": "x", "kind": "http", "url": url, "auto_approve": true})),
    ] {
        assert_eq!(ask(&admin, SERVERS, operation, more).await.code(), "forbidden", "{operation}");
    }
    for (tool, operation, more, field) in [
        (SERVERS, "update", json!({"name": "up", "enabled": true}), "version"),
        (SERVERS, "update", json!({"name": "up", "version": 1, "quarantined": false}), "quarantined"),
        (
            SERVERS,
            "add",
            json!({"name": "x", "kind": "http", "url": url, "quarantined": false}),
            "quarantined",
        ),
        (SERVERS, "enable", json!({"name": "up", "enabled": true}), "enabled"),
        (SERVERS, "enable", json!({}), "name"),
        (SERVERS, "enable", json!({"name": 7}), "name"),
        (SERVERS, "list", json!({"limit": 0}), "limit"),
        (SERVERS, "list", json!({"name": "up"}), "name"),
        (SERVERS, "unquarantine", json!({"name": "up"}), "operation"),
        (QUARANTINE, "approve", json!({"name": "up"}), "operation"),
        (QUARANTINE, "diff", json!({"name": "up"}), "tool"),
    ] {
        let refused = ask(&admin, tool, operation, more).await;
        let said = &refused.result()["structuredContent"];
        assert_eq!(
            (&said["code"], &said["field"]),
            (&json!("invalid_request"), &json!(field)),
            "{refused:?}"
        );
    }
    for name in ["none", "a/../up", "x:y"] {
        let outcome = ask(&admin, QUARANTINE, "quarantine", json!({"name": name})).await;
        assert_eq!(outcome.code(), "not_found", "{name}");
    }
    assert_eq!(tenant.platform.items("/api/v1/servers/up/tools").await[0]["state"], "changed");
    let quarantined = done(&admin, QUARANTINE, "quarantine", json!({"name": "up"})).await;
    assert_eq!(quarantined["quarantined"], true);
    // what is added anew waits as well
    done(&admin, SERVERS, "remove", json!({"name": "up"})).await;
    let again = done(&admin, SERVERS, "add", json!({"name": "up", "kind": "http", "url": url})).await;
    assert_eq!(again["quarantined"], true);
}

/// What was never listed while it was released would be taken as it is by the listing that follows: an agent's act must
/// not be what leads to it.
#[tokio::test]
async fn no_baseline_is_set_by_an_agent() {
    let (_stage, tenant, upstream) = scene().await;
    let admin = Mcp::bare(&tenant.admin().await);
    for (name, operation, with) in [
        ("one", "enable", json!({})),
        ("two", "update", json!({"enabled": true})),
        ("three", "update", json!({"enabled": true, "headers": {"X-Up-Key": "v"}})),
    ] {
        tenant.add_with(name, &upstream, json!({"enabled": false})).await;
        let mut more = with.clone();
        more["name"] = json!(name);
        // switching it off, or bounding it, lists nothing
        let said = done(&admin, SERVERS, "disable", json!({ "name": name })).await;
        assert_eq!(said["quarantined"], false, "{name}");
        if operation == "update" {
            more["version"] = said["version"].clone();
        }
        let said = done(&admin, SERVERS, operation, more).await;
        assert_eq!((&said["enabled"], &said["quarantined"]), (&json!(true), &json!(true)), "{name}: {said}");
        let tools = format!("/api/v1/servers/{name}/tools");
        assert_eq!(tenant.platform.items(&tools).await[0]["state"], "pending", "{name}");
        let waiting = done(&admin, QUARANTINE, "list_quarantined", json!({})).await;
        let names: Vec<&Value> =
            waiting["items"].as_array().unwrap().iter().map(|item| &item["name"]).collect();
        assert!(names.contains(&&json!(name)), "{waiting}");
        // a person's is what it always was
        tenant.platform.post(&format!("/api/v1/servers/{name}/unquarantine"), &json!({})).await.expect(200);
        assert_eq!(tenant.platform.items(&tools).await[0]["state"], "approved", "{name}");
        done(&admin, SERVERS, "disable", json!({ "name": name })).await;
        let again = done(&admin, SERVERS, "enable", json!({ "name": name })).await;
        assert_eq!(again["quarantined"], false, "what was taken by a person stays taken");
    }
    // by REST it is a person who does it
    tenant.add_with("four", &upstream, json!({"enabled": false})).await;
    let enabled = tenant.platform.post("/api/v1/servers/four/enable", &json!({})).await.expect(200);
    assert_eq!(enabled["quarantined"], false);
    assert_eq!(tenant.platform.items("/api/v1/servers/four/tools").await[0]["state"], "approved");
}

/// Agents and operators with the same settings share a view of the servers, and not each other's list.
#[tokio::test]
async fn a_list_is_of_its_role() {
    let (_stage, tenant, _upstream) = scene().await;
    let (agent, admin) = (tenant.agent().await, tenant.admin().await);
    for (of_agent, of_admin) in super::clients(&agent).iter().zip(super::clients(&admin)) {
        for _ in 0..2 {
            assert_eq!(offered(&of_admin).await.len(), 2);
            assert!(offered(of_agent).await.is_empty());
        }
    }
}
