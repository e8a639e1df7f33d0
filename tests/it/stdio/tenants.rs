//! Whose program it is: entries, environments, children.

use std::os::unix::fs::PermissionsExt;

use serde_json::{Value, json};

use super::{SECRET, add, commands, gone, pid, stage, text};
use crate::support::{Gateway, Mcp, Stage};

#[tokio::test]
async fn only_the_entrys_environment_and_nothing_of_it_elsewhere() {
    let (stage, tenant, client) = stage(&[]).await;
    let env: Value = serde_json::from_str(&text(&client, "env", json!({})).await).unwrap();
    let mut names: Vec<&String> = env.as_object().unwrap().keys().collect();
    // what Python's start adds itself
    names.retain(|name| *name != "LC_CTYPE" && *name != "cwd_is_there");
    assert_eq!(names, ["PATH", "PROGRAM_OWN"]);
    assert_eq!(env["PROGRAM_OWN"], SECRET);

    text(&client, "say", json!({"text": format!("my secret is {SECRET}.")})).await;
    tenant.platform.post("/api/v1/servers/up/restart", &json!({})).await.expect(200);
    let records = tenant.platform.items("/api/v1/activity").await;
    let own: Vec<String> = records.iter().map(|record| record["response"].to_string()).collect();
    assert!(!own.iter().any(|response| response.contains(SECRET)), "{own:?}");
    let server = tenant.platform.get("/api/v1/servers/up").await.text;
    let log = crate::support::eventually("the line", super::SOON, || async {
        let lines = super::log(&tenant.platform).await.join("\n");
        lines.contains("my secret is [redacted].").then_some(lines)
    })
    .await;
    for (what, shown) in [("server", server), ("log", log), ("gateway's log", stage.gateway.log())] {
        for secret in [SECRET, "program.py", "python3"] {
            assert!(!shown.contains(secret), "{secret} in the {what}: {shown}");
        }
    }
}

#[tokio::test]
async fn nothing_of_the_gateways_own_environment_and_memory() {
    let files = tempfile::tempdir().unwrap();
    std::fs::set_permissions(files.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
    let script = files.path().join("program.py");
    std::fs::copy(super::SCRIPT, &script).unwrap();
    let commands = json!({"prog": {"argv": ["python3", script], "env": {}, "tenants": ["*"]}}).to_string();
    let stage = Stage::start().await;
    let settings = [("MCPPROXY__STDIO__COMMANDS", &*commands)];
    // root may read everything
    let gateway = Gateway::start_unprivileged(&stage.database, &settings, files.path()).await;
    let tenant = stage.tenant("acme").await;
    add(&gateway.ask_as(&tenant.platform), "up", "prog").await;
    let client = Mcp::bare(&gateway.ask_as(&tenant.agent().await));
    let seen: Value = serde_json::from_str(&text(&client, "peek", json!({})).await).unwrap();
    assert_eq!(seen, json!({"environ": "refused", "mem": "refused"}));
}

#[tokio::test]
async fn each_tenant_has_a_program_of_its_own_and_only_its_own_entries() {
    let all =
        commands(&[("prog", "none", &["*"]), ("acmes", "none", &["acme"]), ("globexs", "none", &["globex"])]);
    let stage = Stage::with(&[("MCPPROXY__STDIO__COMMANDS", &all)]).await;
    let (acme, globex) = (stage.tenant("acme").await, stage.tenant("globex").await);
    add(&acme.platform, "up", "acmes").await;
    add(&globex.platform, "up", "prog").await;
    let (one, other) = (Mcp::session(&acme.agent().await).await, Mcp::session(&globex.agent().await).await);
    assert_ne!(pid(&one).await, pid(&other).await);

    let create = async |command: &str| {
        let body = json!({"name": "x", "kind": "stdio", "command": command});
        globex.platform.post("/api/v1/servers", &body).await.refused(400, "invalid_request")
    };
    assert_eq!(create("acmes").await, create("nothing").await);
    let said = create("acmes").await;
    assert!(said.starts_with("command must be one of globexs, prog; the gateway's operator adds "), "{said}");
    assert!(said.contains("settings file") && said.contains("mcpproxy reload"), "{said}");
    for (body, field) in [
        (json!({"kind": "stdio"}), "command"),
        (json!({"kind": "stdio", "command": "prog", "url": "http://127.0.0.1:1/"}), "url"),
        (json!({"kind": "stdio", "command": "prog", "headers": {"X-A": "b"}}), "headers"),
        (json!({"kind": "http", "url": "http://127.0.0.1:1/", "command": "prog"}), "command"),
        (json!({"kind": "stdio", "command": "prog", "argv": ["sh"]}), "argv"),
        (json!({"kind": "stdio", "command": "prog", "env": {}}), "env"),
    ] {
        let mut whole = json!({"name": "x"});
        whole.as_object_mut().unwrap().extend(body.as_object().unwrap().clone());
        let answer = globex.platform.post("/api/v1/servers", &whole).await.expect(400);
        assert_eq!(answer["error"]["field"], field, "{answer}");
    }

    // another program is another server in all but its name
    let before = pid(&other).await;
    let operator = globex.operator().await;
    let moved = operator.patch("/api/v1/servers/up", &json!({"command": "globexs"})).await.expect(200);
    assert_eq!((&moved["command"], &moved["quarantined"]), (&json!("globexs"), &json!(true)), "{moved}");
    other.run("read", "up:pid", &json!({})).await.refused("server_quarantined");
    gone(&[before]).await;
    globex.platform.patch("/api/v1/servers/up", &json!({"command": "acmes"})).await.expect(400);
}

#[tokio::test]
async fn an_entry_that_the_deployment_has_no_longer_makes_its_server_unavailable() {
    let (mut stage, tenant, client) = stage(&[]).await;
    pid(&client).await;
    stage.gateway.kill();
    for settings in [
        vec![("MCPPROXY__STDIO__COMMANDS", "")],
        vec![("KUBERNETES_SERVICE_HOST", "10.0.0.1"), ("MCPPROXY__STDIO__COMMANDS", "")],
    ] {
        let again = Gateway::start(&stage.database, &settings).await;
        let platform = again.ask_as(&tenant.platform);
        let refreshed = platform.post("/api/v1/servers/up/refresh", &json!({})).await.expect(200);
        let error = refreshed["last_error"].as_str().unwrap();
        assert!(error.contains("not running: this deployment"), "{error}");
        let there = Mcp::bare(&again.ask_as(&client.api));
        let said = there.run("read", "up:pid", &json!({})).await.refused("server_unavailable");
        assert!(said["message"].as_str().unwrap().contains("this deployment"), "{said}");
    }
    let all = commands(&[("prog", "none", &["*"])]);
    let pod = [("KUBERNETES_SERVICE_HOST", "10.0.0.1"), ("MCPPROXY__STDIO__COMMANDS", &*all)];
    let again = Gateway::start(&stage.database, &pod).await;
    let body = json!({"name": "x", "kind": "stdio", "command": "prog"});
    let answer = again.ask_as(&tenant.platform).post("/api/v1/servers", &body).await.expect(400);
    assert!(answer["error"]["message"].as_str().unwrap().contains("stdio.enabled"), "{answer}");
    let on = [pod[0], pod[1], ("MCPPROXY__STDIO__ENABLED", "on")];
    let again = Gateway::start(&stage.database, &on).await;
    again.ask_as(&tenant.platform).post("/api/v1/servers", &body).await.expect(201);
}

#[tokio::test]
async fn a_tenant_runs_only_so_many() {
    let (stage, tenant, client) = stage(&[("MCPPROXY__LIMITS__STDIO_RUNNING_PER_TENANT_MAX", "1")]).await;
    let first = pid(&client).await;
    let slow = client.again();
    let slow = tokio::spawn(async move { text(&slow, "slow", json!({})).await });
    // what is in use stays, and that there is no place says nothing about the server
    let taken = async || text(&client, "taken_back", json!({})).await;
    taken().await;
    let second = add(&tenant.platform, "second", "prog").await;
    assert!(!slow.is_finished());
    assert_ne!(second["connection"], "disconnected", "{second}");
    assert_eq!(second["last_error"], Value::Null, "{second}");
    crate::support::eventually("the reason", super::SOON, || async {
        let page = tenant.platform.get("/api/v1/servers/second/logs").await.text;
        page.contains("1 programs of this tenant are in use").then_some(())
    })
    .await;
    let other = stage.tenant("globex").await;
    assert_eq!(add(&other.platform, "up", "prog").await["connection"], "connected");

    // what is not makes room
    assert_eq!(slow.await.unwrap(), "slow");
    let refreshed = async |name: &str| {
        let path = format!("/api/v1/servers/{name}/refresh");
        tenant.platform.post(&path, &json!({})).await.expect(200)["connection"].clone()
    };
    assert_eq!(refreshed("second").await, "connected");
    gone(&[first]).await;
    assert_ne!(pid(&client).await, first);
    assert_eq!(refreshed("up").await, "connected");
}
