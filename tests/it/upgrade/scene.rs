//! A tenant with something of everything, and changes that are made through one replica and seen on another.

use std::time::Duration;

use serde_json::{Value, json};

use crate::large::key_of;
use crate::rounds::{Way, asks_twice, client, state_of};
use crate::support::upstream::{Era, Form, Offers, Say};
use crate::support::{Api, DIRECT, Gateway, Mcp, Tenant, Tool, Upstream, settle};

/// Time within which a change holds on the other replicas: a second, and more for a busy machine.
pub const SOON: Duration = Duration::from_secs(10);
/// Servers that agents call.
pub const SERVERS: [&str; 2] = ["up", "modern"];
/// Fields that both releases show, of each list.
const SERVER: &[&str] =
    &["name", "id", "kind", "url", "enabled", "quarantined", "auto_approve", "headers", "limits", "added_by"];
const TOOL: &[&str] = &["name", "safe_name", "state", "pin", "approved_pin", "tier", "call_with", "override"];
const PROMPT: &[&str] = &["name", "safe_name", "definition"];
const RESOURCE: &[&str] = &["kind", "uri", "definition", "shadowed_by"];
const KEY: &[&str] = &["id", "name", "role", "owner", "expires_at", "settings"];

/// Servers and keys of the tenant.
pub struct Scene {
    pub up: Upstream,
    pub modern: Upstream,
    /// A server that nobody has released.
    _jail: Upstream,
    pub agent: Api,
    pub operator: Api,
}

/// Returns the tenant, changed through this replica.
pub fn tenant(gateway: &Gateway) -> Tenant {
    Tenant::of(&gateway.platform().as_tenant("acme"), &gateway.anonymous())
}

/// Returns tools that agents call, and those of the pins. `version` is part of the definitions of `grown` and `waits`.
fn tools(versions: [u8; 2]) -> Vec<Tool> {
    let slow = |tool: Tool, ms| tool.says(Say::Delay(Duration::from_millis(ms), Box::new(Say::Echo)));
    let of_version =
        |name, version| Tool::annotated(name, &format!(r#"{{"readOnlyHint":true,"title":"v{version}"}}"#));
    vec![
        slow(Tool::writes("put"), 40),
        slow(Tool::writes("long"), 1200),
        slow(Tool::reads("look"), 40),
        Tool::new("plain"),
        Tool::writes("shut"),
        of_version("grown", versions[0]),
        of_version("waits", versions[1]),
    ]
}

/// Returns prompts and resources of a server. `version` is part of the definitions of the second ones.
pub fn offers(server: &str, version: u8) -> Offers {
    let title = format!("v{version}");
    let prompt = |name: &str, title: &str| json!({"name": name, "description": title}).to_string();
    let resource =
        |name: &str, title: &str| json!({"uri": format!("{server}://{name}"), "name": title}).to_string();
    let template = json!({"uriTemplate": format!("{server}-of://{{id}}"), "name": "t"}).to_string();
    Offers {
        prompts: Some(vec![prompt("one", "v0"), prompt("two", &title), prompt("three", "v0")]),
        resources: Some(vec![resource("one", "v0"), resource("two", &title), resource("three", "v0")]),
        templates: vec![template],
        ..Offers::default()
    }
}

/// Returns `ok`, or the code of the refusal, of a call.
pub async fn code(api: &Api, variant: &str, tool: &str) -> String {
    Mcp::modern(api).run(variant, tool, &json!({})).await.code()
}

/// Returns `ok`, or the code of the refusal, of a prompt `server:name` or a resource.
pub async fn offer_code(api: &Api, name: &str) -> String {
    let (method, params) = match name.contains("://") {
        true => ("resources/read", json!({ "uri": name })),
        false => ("prompts/get", json!({ "name": name })),
    };
    let answer = Mcp::modern(api).at(DIRECT).request(method, &params.to_string()).await;
    let body = answer.json();
    match &body["error"] {
        Value::Null if body["result"].is_object() => "ok".to_owned(),
        Value::Null => format!("{answer:?}"),
        error => error["data"]["code"].as_str().map_or_else(|| error["code"].to_string(), str::to_owned),
    }
}

/// Returns the value of a header of the newest call that a server got; "" where it was absent.
pub fn last_header(upstream: &Upstream, name: &str) -> String {
    upstream.calls().last().and_then(|call| call.headers.get(name).cloned()).unwrap_or_default()
}

/// Returns an item of a list of a server.
pub async fn item(api: &Api, server: &str, list: &str, name: &str) -> Value {
    let items = api.items(&format!("/api/v1/servers/{server}/{list}")).await;
    let mut found = items.into_iter().filter(|item| item["name"] == name || item["uri"] == name);
    found.next().unwrap_or(Value::Null)
}

/// Lists a server now.
pub async fn refresh(api: &Api, server: &str) {
    api.post(&format!("/api/v1/servers/{server}/refresh"), &json!({})).await.expect(200);
}

/// Changes a server.
pub async fn patch(api: &Api, server: &str, body: Value) {
    api.patch(&format!("/api/v1/servers/{server}"), &body).await.expect(200);
}

/// Approves the definition of a tool as it is shown.
async fn approve(api: &Api, server: &str, tool: &str) {
    let pin = item(api, server, "tools", tool).await["pin"].clone();
    let path = format!("/api/v1/servers/{server}/tools/{tool}/approve");
    api.post(&path, &json!({ "pin": pin })).await.expect(200);
}

impl Scene {
    /// Makes the tenant and all of its things through this replica.
    pub async fn make(gateway: &Gateway) -> Scene {
        gateway.platform().post("/api/v1/tenants", &json!({"name": "acme"})).await.expect(201);
        let tenant = tenant(gateway);
        let api = &tenant.platform;
        api.patch("/api/v1/settings", &json!({"direct_endpoint": true})).await.expect(200);
        let operator = tenant.operator().await;
        let (up, modern) = (
            Upstream::announcing(Era::Handshake, tools([0, 0])).await,
            Upstream::start(Era::Modern, Form::Json, tools([0, 0])).await,
        );
        let jail = Upstream::handshake(tools([0, 0])).await;
        for (name, upstream) in [("up", &up), ("modern", &modern), ("jail", &jail)] {
            upstream.set_offers(offers(name, 0));
        }
        for (name, upstream) in [("up", &up), ("modern", &modern)] {
            tenant.add_with(name, upstream, json!({"headers": {"X-Key": format!("{name}-0")}})).await;
        }
        let body = json!({"name": "jail", "kind": "http", "url": jail.url, "headers": {"X-Key": "jail-0"}});
        operator.post("/api/v1/servers", &body).await.expect(201);
        // the baseline is set: `grown` changes and is approved, `waits` changes and is not
        up.set_tools(tools([1, 1]));
        refresh(api, "up").await;
        approve(api, "up", "grown").await;
        api.post("/api/v1/servers/up/tools/shut/block", &json!({})).await.expect(200);
        let pin = item(api, "up", "tools", "plain").await["pin"].clone();
        let says = json!({"pin": pin, "annotations": {"readOnlyHint": true}});
        let path = "/api/v1/servers/up/tools/plain/override";
        api.ask(reqwest::Method::PUT, path, Some(&says)).await.expect(200);
        let settings = json!({"allowed_tools": ["up:*", "modern:*", "*"]});
        Scene { up, modern, _jail: jail, agent: tenant.agent_with(settings).await, operator }
    }

    /// Checks that pins, blocks, overrides and quarantine hold for agents.
    pub async fn holds(&self, gateway: &Gateway) {
        let agent = gateway.ask_as(&self.agent);
        for (variant, tool, expected) in [
            ("read", "up:grown", "ok"),
            ("read", "up:waits", "tool_changed"),
            ("write", "up:shut", "tool_blocked"),
            ("read", "up:plain", "ok"),
            ("write", "jail:put", "server_quarantined"),
        ] {
            settle(expected.to_owned(), SOON, || code(&agent, variant, tool)).await;
        }
        assert_ne!(offer_code(&agent, "jail:one").await, "ok");
        let released = gateway.ask_as(&self.operator).post("/api/v1/servers/jail/unquarantine", &json!({}));
        assert_eq!(released.await.status, 403, "an operator releases what it added");
    }

    /// Checks that each prompt and each resource of the servers is given.
    pub async fn offers_are_given(&self, gateway: &Gateway) {
        let agent = gateway.ask_as(&self.agent);
        for server in SERVERS {
            for name in ["one", "two", "three"] {
                for offer in [format!("{server}:{name}"), format!("{server}://{name}")] {
                    settle("ok".to_owned(), SOON, || offer_code(&agent, &offer)).await;
                }
            }
            let of_template = format!("{server}-of://7");
            settle("ok".to_owned(), SOON, || offer_code(&agent, &of_template)).await;
        }
    }
}

fn picked(items: &[Value], fields: &[&str]) -> Value {
    items
        .iter()
        .map(|item| fields.iter().map(|field| ((*field).to_owned(), item[field].clone())).collect())
        .collect::<Vec<Value>>()
        .into()
}

/// Returns all that the tenant has, in the fields that both releases show.
pub async fn inventory(gateway: &Gateway) -> Value {
    let api = &tenant(gateway).platform;
    let servers = api.items("/api/v1/servers").await;
    let mut all = json!({"settings": api.get("/api/v1/settings").await.expect(200)});
    for server in &servers {
        let name = server["name"].as_str().unwrap();
        for (list, fields) in [("tools", TOOL), ("prompts", PROMPT), ("resources", RESOURCE)] {
            let items = api.items(&format!("/api/v1/servers/{name}/{list}")).await;
            all[format!("{name} {list}")] = picked(&items, fields);
        }
    }
    all["servers"] = picked(&servers, SERVER);
    all["keys"] = picked(&api.items("/api/v1/keys").await, KEY);
    all
}

/// Makes each kind of change once through `from`, and waits for it on `to`. The server and its keys are gone afterwards.
pub async fn changes(from: &Gateway, to: &Gateway) {
    let tenant = tenant(from);
    let here = &tenant.platform;
    let titled = |title: &str| {
        vec![Tool::annotated("t", &format!(r#"{{"destructiveHint":false,"title":"{title}"}}"#))]
    };
    let upstream = Upstream::handshake(titled("v1")).await;
    let agent = tenant.agent().await;
    let there = to.ask_as(&agent);
    let ends = async |expected: &str| {
        settle(expected.to_owned(), SOON, || code(&there, "write", "side:t")).await;
    };
    ends("not_found").await;
    // a credential sealed by one opens on the other
    tenant.add_with("side", &upstream, json!({"headers": {"X-Key": "first"}})).await;
    ends("ok").await;
    assert_eq!(last_header(&upstream, "x-key"), "first");
    patch(here, "side", json!({"headers": {"X-Key": "second"}})).await;
    settle(("ok".to_owned(), "second".to_owned()), SOON, || async {
        (code(&there, "write", "side:t").await, last_header(&upstream, "x-key"))
    })
    .await;
    // a pin, a block, quarantine
    upstream.set_tools(titled("v2"));
    refresh(here, "side").await;
    ends("tool_changed").await;
    approve(here, "side", "t").await;
    ends("ok").await;
    let block = "/api/v1/servers/side/tools/t/block";
    here.post(block, &json!({})).await.expect(200);
    ends("tool_blocked").await;
    here.delete(block).await.expect(200);
    ends("ok").await;
    for (verb, expected) in
        [("quarantine", "server_quarantined"), ("unquarantine", "ok"), ("disable", "server_disabled")]
    {
        here.post(&format!("/api/v1/servers/side/{verb}"), &json!({})).await.expect(200);
        ends(expected).await;
    }
    let settings = format!("/api/v1/keys/{}/settings", agent.id);
    here.patch(&settings, &json!({"allowed_tools": ["other:*"]})).await.expect(200);
    ends("not_found").await;
    here.delete(&format!("/api/v1/keys/{}", agent.id)).await.expect(204);
    settle(401, SOON, || {
        let asked = there.get("/api/v1/status");
        async { asked.await.status }
    })
    .await;
    here.delete("/api/v1/servers/side").await.expect(204);
}

/// Begins through `from` what takes several requests, and goes on through `to`: a call in rounds, and a result that is cut.
pub async fn continued(from: &Gateway, to: &Gateway) {
    let tenant = tenant(from);
    let long = Tool::reads("long").says(Say::Large(5000));
    let upstream = Upstream::modern(vec![asks_twice(Tool::reads("reader")), long]).await;
    tenant.add("parts", &upstream).await;
    tenant.platform.patch("/api/v1/settings", &json!({"response_limit": 1000})).await.expect(200);
    let agent = tenant.agent().await;
    let there = to.ask_as(&agent);
    settle("ok".to_owned(), SOON, || code(&there, "read", "parts:long")).await;
    let way = Way { tool: "parts:reader", ..Way::SEARCH };
    let state = way.begin(client(&agent)).await;
    let state = state_of(&way.again(client(&there), &state).await);
    let done = way.again(client(&agent), &state).await.ok();
    assert_eq!(done["content"][0]["text"], "done");
    let key = key_of(&Mcp::modern(&agent).run("read", "parts:long", &json!({})).await.ok());
    let rest = Mcp::modern(&there).call("read_cache", &json!({"key": key, "offset": 1000})).await.ok();
    assert_eq!(rest["structuredContent"]["total"], 5000, "{rest}");
    tenant.platform.patch("/api/v1/settings", &json!({"response_limit": null})).await.expect(200);
    tenant.platform.delete("/api/v1/servers/parts").await.expect(204);
}
