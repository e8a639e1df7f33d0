//! Prompts, resources and completions of upstreams.

use std::time::Duration;

use serde_json::{Value, json};
use tokio::sync::watch;

use super::{modern, open, scene};
use crate::support::upstream::{Era, Offers};
use crate::support::{DIRECT, Gateway, Mcp, Tenant, Tool, Upstream, eventually, settle};

const LISTS: [(&str, &str, &str); 3] = [
    ("prompts/list", "prompts", "name"),
    ("resources/list", "resources", "uri"),
    ("resources/templates/list", "resourceTemplates", "uriTemplate"),
];

async fn offering(tenant: &Tenant, name: &str, era: Era, offers: Offers) -> Upstream {
    let upstream = Upstream::announcing(era, vec![Tool::reads("tool")]).await;
    upstream.set_offers(offers);
    // what changes is taken at once: pins have tests of their own
    tenant.add_with(name, &upstream, json!({"auto_approve": true})).await;
    upstream
}

/// What is listed of each kind, as names and URIs alone.
async fn listed(client: &Mcp) -> [Vec<String>; 3] {
    let mut all = [const { Vec::new() }; 3];
    for (found, (method, member, key)) in all.iter_mut().zip(LISTS) {
        let answer = client.request(method, "{}").await.expect(200);
        let items = answer["result"][member].as_array().unwrap_or_else(|| panic!("{answer}")).clone();
        *found = items.iter().map(|item| item[key].as_str().unwrap().to_owned()).collect();
    }
    all
}

fn each(names: [&[&str]; 3]) -> [Vec<String>; 3] {
    names.map(|names| names.iter().map(|name| (*name).to_owned()).collect())
}

async fn read(client: &Mcp, uri: &str) -> Value {
    client.request("resources/read", &json!({ "uri": uri }).to_string()).await.json()
}

async fn prompt(client: &Mcp, name: &str) -> Value {
    client.request("prompts/get", &json!({ "name": name }).to_string()).await.json()
}

fn all_kinds() -> Offers {
    Offers {
        prompts: Some(vec![
            r#"{"title":"T", "name":"sum up","arguments":[{"name":"n","required":true}],"_meta":{"k":1.0}}"#
                .to_owned(),
            r#"{"name":"odd","arguments":null,"description":7}"#.to_owned(),
        ]),
        resources: Some(vec![
            r#"{"uri":"note://all", "name":"All","size":3,"vendor":18446744073709551616}"#.to_owned(),
            r#"{"uri":"not a uri","name":"x"}"#.to_owned(),
            r#"{"uri":"note://unnamed"}"#.to_owned(),
        ]),
        templates: vec![r#"{"uriTemplate":"note://{id}", "name":"One","mimeType":"a/b"}"#.to_owned()],
        completes: true,
        ..Offers::default()
    }
}

#[tokio::test]
async fn both_eras_list_ask_and_complete_what_servers_of_both_eras_offer() {
    let (_stage, tenant) = scene().await;
    let agent = tenant.agent().await;
    for (name, era) in [("old", Era::Handshake), ("new", Era::Modern)] {
        let upstream = offering(&tenant, name, era, all_kinds()).await;
        for client in [Mcp::direct(&agent), modern(&agent)] {
            let of = |method: &'static str| {
                let client = client.again();
                async move { client.request(method, "{}").await.text }
            };
            let prompts = of("prompts/list").await;
            let own = format!(
                r#"{{"title":"T", "name":"{name}:sum up","arguments":[{{"name":"n","required":true}}],"_meta":{{"k":1.0}}}}"#
            );
            assert!(
                prompts.contains(&own) && prompts.contains(&format!(r#"{{"name":"{name}:odd"}}"#)),
                "{prompts}"
            );
            let resources = of("resources/list").await;
            let sent = &all_kinds().resources.unwrap()[0];
            assert!(resources.contains(&format!(r#""resources":[{sent}]"#)), "{resources}");
            let templates = of("resources/templates/list").await;
            assert!(templates.contains(&all_kinds().templates[0]), "{templates}");

            let params = format!(r#"{{"name":"{name}:sum up","arguments":{{"n":"1.0"}},"_meta":{{"k":7}}}}"#);
            let got = client.request("prompts/get", &params).await;
            assert!(got.text.contains(r#""vendor":1.0"#) && got.text.contains(r#"\"n\":\"1.0\""#), "{got:?}");
            // it may be listed meanwhile
            let last =
                |method: &str| upstream.asked().into_iter().rfind(|(asked, _)| asked == method).unwrap();
            let (_, asked) = last("prompts/get");
            let asked: Value = serde_json::from_str(&asked).unwrap();
            assert_eq!((&asked["name"], &asked["_meta"]["k"]), (&json!("sum up"), &json!(7)));
            for uri in ["note://all", "note://7"] {
                let read = client.request("resources/read", &json!({ "uri": uri }).to_string()).await.text;
                let contents =
                    format!(r#""contents":[{{"uri":"{uri}","blob":"AAH/+w==","mimeType":"a/b","x":1.0}}]"#);
                assert!(read.contains(&contents), "{read}");
            }
            let reference = json!({"type": "ref/prompt", "name": format!("{name}:sum up")});
            let params = json!({"ref": reference, "argument": {"name": "n", "value": "o"}}).to_string();
            let completed = client.request("completion/complete", &params).await.json();
            assert_eq!(completed["result"]["completion"]["values"], json!(["one", "two"]), "{completed}");
            let (_, asked) = last("completion/complete");
            assert!(asked.contains(r#""ref":{"name":"sum up","type":"ref/prompt"}"#), "{asked}");
            let reference = json!({"type": "ref/resource", "uri": "note://{id}"});
            let params = json!({"ref": reference, "argument": {"name": "id", "value": ""}}).to_string();
            let completed = client.request("completion/complete", &params).await.json();
            assert_eq!(completed["result"]["completion"]["total"], 2, "{completed}");
        }
        tenant.platform.delete(&format!("/api/v1/servers/{name}")).await.expect(204);
        assert_eq!(listed(&modern(&agent)).await, each([&[], &[], &[]]));
    }
    let records = tenant.records("source=direct", 12).await;
    let tools: Vec<&str> = records.iter().map(|record| record["tool"].as_str().unwrap()).collect();
    for tool in ["prompts/get sum up", "resources/read note://all", "resources/read note://7"] {
        assert_eq!(tools.iter().filter(|told| **told == tool).count(), 4, "{tools:?}");
    }
    for record in &records {
        let said = (&record["type"], &record["tier"], &record["status"]);
        assert_eq!(said, (&json!("direct_call"), &json!("read"), &json!("success")), "{record}");
    }
}

#[tokio::test]
async fn what_only_one_revision_has_is_seen_in_that_alone() {
    let (_stage, tenant) = scene().await;
    let agent = tenant.agent().await;
    let (_old, _new) = (
        offering(&tenant, "old", Era::Handshake, Offers::resources(&["old://a", "old://missing"])).await,
        offering(&tenant, "new", Era::Modern, Offers::resources(&["new://a", "new://missing"])).await,
    );
    for server in ["old", "new"] {
        let (a, missing) = (format!("{server}://a"), format!("{server}://missing"));
        let got = read(&modern(&agent), &a).await["result"].clone();
        let said = (&got["resultType"], &got["ttlMs"], &got["cacheScope"]);
        assert_eq!(said, (&json!("complete"), &json!(0), &json!("private")), "{got}");
        let error = read(&modern(&agent), &missing).await["error"].clone();
        assert_eq!((&error["code"], &error["data"]["uri"]), (&json!(-32602), &json!("x")), "{error}");
        let error = read(&Mcp::direct(&agent), &missing).await["error"].clone();
        assert_eq!(error["code"], -32002, "{error}");
    }
    let got = read(&Mcp::direct(&agent), "new://a").await["result"].clone();
    assert!(got["resultType"].is_null() && got["cacheScope"].is_null(), "{got}");
    for (client, code) in [(Mcp::direct(&agent), -32002), (modern(&agent), -32602)] {
        let error = read(&client, "else://a").await["error"].clone();
        assert_eq!((&error["code"], &error["data"]["uri"]), (&json!(code), &json!("else://a")));
        assert_eq!(prompt(&client, "old:none").await["error"]["code"], -32602);
        let cursor = client.request("resources/list", r#"{"cursor":"%"}"#).await.json();
        assert_eq!(cursor["error"]["code"], -32602, "{cursor}");
        // nothing of it on the other endpoint
        let search = client.again().at("/mcp");
        assert_eq!(listed(&search).await, each([&[], &[], &[]]));
        assert_eq!(prompt(&search, "old:none").await["error"]["code"], -32602);
    }
    let said = Mcp::direct(&agent).request("initialize", r#"{"protocolVersion":"2025-11-25"}"#).await.json();
    let capabilities = said["result"]["capabilities"].clone();
    assert_eq!(capabilities["resources"], json!({"listChanged": true, "subscribe": true}));
    assert_eq!(
        (&capabilities["prompts"], &capabilities["completions"], &capabilities["logging"]),
        (&json!({"listChanged": true}), &json!({}), &json!({}))
    );
    let discovered = modern(&agent).request("server/discover", "{}").await.json();
    assert_eq!(discovered["result"]["capabilities"], capabilities);
}

#[tokio::test]
async fn a_key_sees_what_its_globs_allow_and_a_closed_server_nothing() {
    let (_stage, tenant) = scene().await;
    let mut upstream = offering(
        &tenant,
        "up",
        Era::Handshake,
        Offers {
            prompts: Offers::prompts(&["one", "two"]).prompts,
            ..Offers::resources(&["x://one", "x://two"])
        },
    )
    .await;
    let agent = tenant.agent().await;
    let limited = tenant
        .agent_with(json!({"direct_endpoint": true, "allowed_tools": ["up:one", "up:x://one"], "max_operation": "read"}))
        .await;
    let all = each([&["up:one", "up:two"], &["x://one", "x://two"], &[]]);
    assert_eq!(listed(&modern(&agent)).await, all);
    assert_eq!(listed(&modern(&limited)).await, each([&["up:one"], &["x://one"], &[]]));
    let client = modern(&limited);
    assert!(prompt(&client, "up:one").await["result"].is_object());
    assert!(read(&client, "x://one").await["result"].is_object());
    let unknown = prompt(&client, "up:two").await;
    assert_eq!(unknown["error"]["message"], "Unknown prompt: up:two");
    assert_eq!(prompt(&client, "up:no").await["error"]["code"], unknown["error"]["code"]);
    for uri in ["x://two", "x://no"] {
        let error = json!({"code": -32602, "message": "Resource not found", "data": {"uri": uri}});
        assert_eq!(read(&client, uri).await["error"], error);
    }
    // in the safe spelling as well
    let safe = Mcp::modern(&agent).at(&format!("{DIRECT}?names=safe"));
    assert_eq!(listed(&safe).await[0], ["up__one", "up__two"]);
    assert!(prompt(&client, "up__one").await["result"].is_object());
    assert_eq!(prompt(&client, "up__two").await["error"]["code"], -32602);

    let client = modern(&agent);
    let nothing = each([&[], &[], &[]]);
    for (act, back, code) in
        [("disable", "enable", "server_disabled"), ("quarantine", "unquarantine", "server_quarantined")]
    {
        // lists are not counted: its stream is opened again after the release, and what was missed is listed then
        let requests = || ["prompts/get", "resources/read"].map(|method| upstream.asked_of(method));
        let before = requests();
        tenant.platform.post(&format!("/api/v1/servers/up/{act}"), &json!({})).await.expect(200);
        assert_eq!(listed(&client).await, nothing, "{act}");
        for refused in [prompt(&client, "up:one").await, read(&client, "x://one").await] {
            assert_eq!(refused["error"]["data"]["code"], code, "{refused}");
        }
        assert_eq!(requests(), before, "{act}");
        tenant.platform.post(&format!("/api/v1/servers/up/{back}"), &json!({})).await.expect(200);
        assert_eq!(listed(&client).await, all, "{back}");
    }
    upstream.go_down().await;
    tenant.platform.post("/api/v1/servers/up/refresh", &json!({})).await.expect(200);
    assert_eq!(listed(&client).await, nothing);
    assert_eq!(prompt(&client, "up:one").await["error"]["data"]["code"], "server_unavailable");
    let blocked = tenant.records("source=direct&status=blocked", 9).await;
    assert!(blocked.iter().any(|record| record["error_code"] == "not_found"), "{blocked:?}");
}

#[tokio::test]
async fn a_uri_belongs_to_whoever_offered_it_first_while_it_offers_it() {
    let (_stage, tenant) = scene().await;
    let agent = tenant.agent().await;
    let client = modern(&agent);
    let mut first = offering(&tenant, "zz", Era::Handshake, Offers::resources(&["x://a", "x://b"])).await;
    let mut more = Offers::resources(&["x://a", "x://c"]);
    more.templates = Offers::templates(&["x://{id}"]).templates;
    let second = offering(&tenant, "aa", Era::Handshake, more).await;
    let third = offering(&tenant, "ab", Era::Handshake, Offers::templates(&["x://{id}", "y://{+all}"])).await;
    let reads = |upstream: &Upstream| upstream.asked_of("resources/read");
    let counts = |first: &Upstream| [reads(first), reads(&second), reads(&third)];
    assert_eq!(listed(&client).await, each([&[], &["x://a", "x://b", "x://c"], &["x://{id}", "y://{+all}"]]));
    for uri in ["x://a", "x://c", "x://other", "y://a/b"] {
        assert!(read(&client, uri).await["result"].is_object(), "{uri}");
    }
    assert_eq!(counts(&first), [1, 2, 1]);
    let shown = tenant.platform.items("/api/v1/servers/aa/resources").await;
    let said: Vec<(&Value, &Value, &Value)> =
        shown.iter().map(|item| (&item["kind"], &item["uri"], &item["shadowed_by"])).collect();
    let (resource, template) = (&json!("resource"), &json!("template"));
    assert_eq!(
        said,
        [
            (resource, &json!("x://a"), &json!("zz")),
            (resource, &json!("x://c"), &Value::Null),
            (template, &json!("x://{id}"), &Value::Null)
        ]
    );
    // away, it is nobody's
    first.go_down().await;
    tenant.platform.post("/api/v1/servers/zz/refresh", &json!({})).await.expect(200);
    assert_eq!(listed(&client).await[1], ["x://c"]);
    assert_eq!(read(&client, "x://a").await["error"]["data"]["code"], "server_unavailable");
    first.come_back().await;
    // given up, it goes to the next, and does not come back
    first.set_offers(Offers::resources(&["x://b"]));
    tenant.platform.post("/api/v1/servers/zz/refresh", &json!({})).await.expect(200);
    assert!(read(&client, "x://a").await["result"].is_object());
    assert_eq!(counts(&first), [1, 3, 1]);
    first.set_offers(Offers::resources(&["x://a", "x://b"]));
    tenant.platform.post("/api/v1/servers/zz/refresh", &json!({})).await.expect(200);
    assert!(read(&client, "x://a").await["result"].is_object());
    assert_eq!(counts(&first), [1, 4, 1]);
    tenant.platform.delete("/api/v1/servers/aa").await.expect(204);
    assert!(read(&client, "x://a").await["result"].is_object());
    assert_eq!(reads(&first), 2);
}

#[tokio::test]
async fn what_cannot_be_a_uri_of_a_server_reaches_none() {
    let (_stage, tenant) = scene().await;
    let mut offers = Offers::templates(&["x://h/{+p}", "{+any}"]);
    offers.completes = true;
    let upstream = offering(&tenant, "up", Era::Handshake, offers).await;
    let agent = tenant
        .agent_with(
            json!({"direct_endpoint": true, "allowed_tools": ["up:x://h/public/*"], "max_operation": "read"}),
        )
        .await;
    let everything = tenant.agent().await;
    let clients = [
        (Mcp::direct(&agent), -32002),
        (modern(&agent), -32602),
        (Mcp::direct(&everything), -32002),
        (modern(&everything), -32602),
    ];
    for (client, code) in &clients {
        for uri in [
            "x://h/public/../private",
            "x://h/public/%2e%2E/private",
            "x://h/public/..%2fprivate",
            "x://h/public/..\\private",
            "x://h/public/.\t./private",
            &format!("x://h/public/{}", "a".repeat(2000)),
        ] {
            assert_eq!(read(client, uri).await["error"]["code"], *code, "{uri:?}");
            let reference = json!({"type": "ref/resource", "uri": uri});
            let params = json!({"ref": reference, "argument": {"name": "p", "value": ""}}).to_string();
            let completed = client.request("completion/complete", &params).await.json();
            assert_eq!(completed["error"]["code"], -32602, "{uri:?} {completed}");
        }
    }
    // handshake clients need not repeat it in a header
    let long = read(&clients[0].0, &"x".repeat(1 << 20)).await;
    assert_eq!(long["error"]["code"], -32002);
    assert_eq!((upstream.asked_of("resources/read"), upstream.asked_of("completion/complete")), (0, 0));
    assert!(read(&modern(&agent), "x://h/public/a..b/...").await["result"].is_object());
}

#[tokio::test]
async fn a_server_that_nobody_released_owns_nothing() {
    let (_stage, tenant) = scene().await;
    let client = modern(&tenant.agent().await);
    let mut greedy = Offers::resources(&["x://a"]);
    greedy.templates = Offers::templates(&["{+any}"]).templates;
    let early = Upstream::announcing(Era::Handshake, vec![Tool::reads("tool")]).await;
    early.set_offers(greedy);
    let added = json!({"name": "early", "kind": "http", "url": early.url});
    tenant.operator().await.post("/api/v1/servers", &added).await.expect(201);
    let mut real = Offers::resources(&["x://a"]);
    real.templates = Offers::templates(&["x://{+path}"]).templates;
    let late = offering(&tenant, "late", Era::Handshake, real).await;
    let reads = || [early.asked_of("resources/read"), late.asked_of("resources/read")];
    let both = async || {
        for uri in ["x://a", "x://b/c"] {
            assert!(read(&client, uri).await["result"].is_object(), "{uri}");
        }
    };
    let shadow = async |server: &str| {
        tenant.platform.items(&format!("/api/v1/servers/{server}/resources")).await[0]["shadowed_by"].clone()
    };
    assert_eq!(listed(&client).await[1], ["x://a"]);
    both().await;
    assert_eq!((reads(), shadow("late").await, shadow("early").await), ([0, 2], Value::Null, json!("late")));
    tenant.platform.post("/api/v1/servers/early/unquarantine", &json!({})).await.expect(200);
    both().await;
    assert_eq!((reads(), shadow("late").await, shadow("early").await), ([0, 4], Value::Null, json!("late")));
    // who was released keeps what it has
    tenant.platform.post("/api/v1/servers/late/quarantine", &json!({})).await.expect(200);
    assert_eq!(read(&client, "x://a").await["error"]["data"]["code"], "server_quarantined");
    assert_eq!((reads(), shadow("late").await), ([0, 4], Value::Null));
}

#[tokio::test]
async fn no_server_takes_all_the_room_of_templates() {
    let (_stage, tenant) = scene().await;
    let client = modern(&tenant.agent().await);
    let many: Vec<String> = (0..400).map(|n| format!("a://{n}{{+a}}-{{b}}-{{+c}}")).collect();
    let many: Vec<&str> = many.iter().map(String::as_str).collect();
    let greedy = offering(&tenant, "greedy", Era::Handshake, Offers::templates(&many)).await;
    let small = offering(&tenant, "small", Era::Handshake, Offers::templates(&["b://{+id}"])).await;
    // 1300 pieces of 6 each
    assert_eq!(listed(&client).await[2].len(), 216 + 1);
    assert!(read(&client, "b://7").await["result"].is_object());
    assert_eq!((small.asked_of("resources/read"), greedy.asked_of("resources/read")), (1, 0));
}

#[tokio::test]
async fn a_list_that_fails_takes_nothing_away_and_what_is_not_declared_is_not_asked_for() {
    let (_stage, tenant) = scene().await;
    let agent = tenant.agent().await;
    let client = modern(&agent);
    let offers = Offers { prompts: Offers::prompts(&["p"]).prompts, ..Offers::resources(&["x://a"]) };
    let upstream = offering(&tenant, "up", Era::Handshake, offers.clone()).await;
    let plain = offering(&tenant, "plain", Era::Handshake, Offers::default()).await;
    assert!(plain.asked().is_empty(), "{:?}", plain.asked());
    upstream.set_offers(Offers { broken: Some("prompts/list"), ..Offers::resources(&["x://b"]) });
    let shown = tenant.platform.post("/api/v1/servers/up/refresh", &json!({})).await.expect(200);
    assert_eq!(shown["connection"], "connected", "{shown}");
    let error = shown["last_error"].as_str().unwrap();
    assert!(error.starts_with("its prompts could not be listed: "), "{error}");
    assert_eq!(listed(&client).await, each([&["up:p"], &["x://b"], &[]]));
    assert_eq!(client.tools().await.len(), 3);
    upstream.set_offers(offers);
    let shown = tenant.platform.post("/api/v1/servers/up/refresh", &json!({})).await.expect(200);
    assert_eq!(shown["last_error"], Value::Null);
    let rev = |tenant: &Tenant| tenant.platform.get("/api/v1/servers/up");
    let before = rev(&tenant).await.expect(200);
    tenant.platform.post("/api/v1/servers/up/refresh", &json!({})).await.expect(200);
    assert_eq!(rev(&tenant).await.expect(200)["version"], before["version"]);
    // a server that completes nothing is not asked to
    let params = r#"{"ref":{"type":"ref/prompt","name":"up:p"},"argument":{"name":"n","value":""}}"#;
    let completed = client.request("completion/complete", params).await.json();
    assert_eq!(completed["result"]["completion"], json!({"values": []}), "{completed}");
    assert_eq!(upstream.asked_of("completion/complete"), 0);
}

#[tokio::test]
async fn an_announced_change_lists_that_kind_alone_and_reaches_another_replica() {
    let settings = [super::ON, ("MCPPROXY__LIMITS__RELIST_INTERVAL_S", "3600")];
    let stage = crate::support::Stage::with(&settings).await;
    let other = Gateway::start(&stage.database, &settings).await;
    let tenant = open(&stage, "acme").await;
    let agent = tenant.agent().await;
    for (name, era) in [("old", Era::Handshake), ("new", Era::Modern)] {
        let offers = Offers { prompts: Some(Vec::new()), ..Offers::resources(&[]) };
        let upstream = offering(&tenant, name, era, offers.clone()).await;
        settle(1, Duration::from_secs(10), || async { upstream.listeners() }).await;
        // the listings that follow the opening
        settle((2, 2, 2), Duration::from_secs(5), || async {
            (upstream.counts().lists, upstream.asked_of("prompts/list"), upstream.asked_of("resources/list"))
        })
        .await;
        let uri = format!("{name}://a");
        upstream.set_offers(Offers { prompts: Some(Vec::new()), ..Offers::resources(&[&uri]) });
        upstream.announce_of("resources");
        let client = modern(&other.ask_as(&agent));
        eventually("the change is listed", Duration::from_secs(4), || async {
            listed(&client).await[1].contains(&uri).then_some(())
        })
        .await;
        assert_eq!((upstream.counts().lists, upstream.asked_of("prompts/list")), (2, 2));
        tenant.platform.delete(&format!("/api/v1/servers/{name}")).await.expect(204);
    }
}

#[tokio::test]
async fn a_listing_that_read_earlier_puts_nothing_back_and_tools_wait_for_nothing() {
    let settings = [super::ON, ("MCPPROXY__LIMITS__RELIST_INTERVAL_S", "3600")];
    let stage = crate::support::Stage::with(&settings).await;
    let tenant = open(&stage, "acme").await;
    let client = modern(&tenant.agent().await);
    let offers = Offers { prompts: Offers::prompts(&["p"]).prompts, ..Offers::resources(&["x://a"]) };
    let ((open_first, first), (open_last, last)) = (watch::channel(false), watch::channel(false));
    let gates = vec![("prompts/list", first), ("resources/templates/list", last.clone())];
    let upstream = Upstream::announcing(Era::Handshake, vec![Tool::reads("tool"), Tool::reads("gone")]).await;
    upstream.set_offers(offers.clone());
    tenant.add("up", &upstream).await;
    settle(1, Duration::from_secs(10), || async { upstream.listeners() }).await;
    // the listings that follow the opening
    settle((2, 2), Duration::from_secs(5), || async {
        (upstream.asked_of("prompts/list"), upstream.asked_of("resources/templates/list"))
    })
    .await;
    upstream.set_offers(Offers { gates, ..offers.clone() });
    let has_tools = async |count: usize| {
        eventually("the tools are listed", Duration::from_secs(5), || async {
            let names = super::names(&client).await;
            (names.iter().filter(|name| name.starts_with("up:")).count() == count).then_some(())
        })
        .await;
    };
    let refresh = tenant.platform.post("/api/v1/servers/up/refresh", &json!({}));
    let (refreshes, changes) = (refresh, async {
        settle(3, Duration::from_secs(5), || async { upstream.asked_of("prompts/list") }).await;
        has_tools(2).await;
        upstream.set_offers(Offers {
            prompts: Some(Vec::new()),
            gates: vec![("resources/templates/list", last)],
            ..offers.clone()
        });
        upstream.set_tools(vec![Tool::reads("tool")]);
        upstream.announce(1);
        upstream.announce_of("prompts");
        open_first.send_replace(true);
        has_tools(1).await;
        settle(3, Duration::from_secs(5), || async { upstream.asked_of("resources/templates/list") }).await;
        open_last.send_replace(true);
    });
    tokio::join!(refreshes, changes);
    eventually("the prompt is gone", Duration::from_secs(5), || async {
        (listed(&client).await == each([&[], &["x://a"], &[]])).then_some(())
    })
    .await;
    has_tools(1).await;
}

#[tokio::test]
async fn a_list_that_fails_holds_up_no_other_that_changed() {
    let settings = [super::ON, ("MCPPROXY__LIMITS__RELIST_INTERVAL_S", "3600")];
    let stage = crate::support::Stage::with(&settings).await;
    let tenant = open(&stage, "acme").await;
    let client = modern(&tenant.agent().await);
    let broken =
        |uris: &[&str]| Offers { broken: Some("resources/templates/list"), ..Offers::resources(uris) };
    let upstream = offering(&tenant, "up", Era::Handshake, Offers::resources(&["x://a"])).await;
    settle(1, Duration::from_secs(10), || async { upstream.listeners() }).await;
    settle(2, Duration::from_secs(5), || async { upstream.asked_of("resources/list") }).await;
    upstream.set_offers(broken(&["x://a", "x://b"]));
    upstream.announce_of("resources");
    eventually("the change is listed", Duration::from_secs(4), || async {
        (listed(&client).await[1] == ["x://a", "x://b"]).then_some(())
    })
    .await;
    let error = async || tenant.platform.get("/api/v1/servers/up").await.expect(200)["last_error"].clone();
    let said = error().await;
    assert!(said.as_str().unwrap().starts_with("its templates of resources could not be listed: "), "{said}");
    // tools say nothing about it
    upstream.announce(1);
    settle(3, Duration::from_secs(5), || async { upstream.counts().lists }).await;
    assert_eq!((error().await, upstream.asked_of("resources/list")), (said, 3));
    upstream.set_offers(Offers::resources(&["x://a"]));
    upstream.announce_of("resources");
    eventually("it is well again", Duration::from_secs(4), || async {
        (error().await == Value::Null).then_some(())
    })
    .await;
}

#[tokio::test]
async fn who_does_not_wait_any_more_takes_the_request_back_on_any_replica() {
    let (stage, tenant) = scene().await;
    let other = Gateway::start(&stage.database, &[super::ON]).await;
    let upstream = offering(&tenant, "up", Era::Handshake, Offers::resources(&["x://hang"])).await;
    let agent = tenant.agent().await;
    let session = Mcp::direct(&agent).shake_hands("2025-11-25").await;
    let elsewhere = Mcp::in_session(&other.ask_as(&agent), session.session_id()).at(DIRECT);
    let waits = session.request_as("\"r\"", "resources/read", r#"{"uri":"x://hang"}"#);
    let takes_back = async {
        settle(1, Duration::from_secs(5), || async { upstream.asked_of("resources/read") }).await;
        let cancel = r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":"r"}}"#;
        assert_eq!(elsewhere.post(cancel).await.status, 202);
    };
    tokio::join!(waits, takes_back);
    settle(1, Duration::from_secs(5), || async { upstream.abandoned() }).await;
    let records = tenant.records("source=direct&status=cancelled", 1).await;
    assert_eq!(records[0]["tool"], "resources/read x://hang");
}

#[tokio::test]
async fn a_page_ends_where_the_next_begins() {
    let (_stage, tenant) = scene().await;
    let uris: Vec<String> = (0..2100).map(|n| format!("x://h/{n:04}{}", "é".repeat(300))).collect();
    let uris: Vec<&str> = uris.iter().map(String::as_str).collect();
    let upstream = offering(&tenant, "up", Era::Handshake, Offers::resources(&uris)).await;
    let client = modern(&tenant.agent().await);
    let mut found = Vec::new();
    let mut cursor = json!({});
    for expected in [2000, 100] {
        let page = client.request("resources/list", &cursor.to_string()).await.expect(200)["result"].clone();
        let items = page["resources"].as_array().unwrap().clone();
        assert_eq!(items.len(), expected);
        found.extend(items.iter().map(|item| item["uri"].as_str().unwrap().to_owned()));
        cursor = json!({ "cursor": page["nextCursor"] });
    }
    assert_eq!((found.len(), &cursor["cursor"]), (2100, &Value::Null));
    assert_eq!(found, uris);
    drop(upstream);
}
