//! Definition pins of prompts, resources and templates: what nobody approved is in no list and cannot be asked for.

use reqwest::Method;
use serde_json::{Value, json};

use crate::support::upstream::{Era, Offers};
use crate::support::{Answer, Api, DIRECT, Gateway, Mcp, Stage, Tenant, Tool, Upstream};

/// A tenant whose keys have `/mcp/direct`, with one server, `up`.
pub struct Scene {
    pub stage: Stage,
    pub tenant: Tenant,
    upstream: Upstream,
    client: Mcp,
}

/// Returns two offers of each kind; `version` is part of the definitions of the second ones.
fn offers(version: u8) -> Offers {
    let prompt =
        |name: &str, version| json!({"name": name, "description": format!("v{version}")}).to_string();
    let resource = |uri: &str, version| json!({"uri": uri, "name": format!("v{version}")}).to_string();
    let template =
        |text: &str, version| json!({"uriTemplate": text, "name": format!("v{version}")}).to_string();
    Offers {
        prompts: Some(vec![prompt("one", 0), prompt("two", version)]),
        resources: Some(vec![resource("x://one", 0), resource("x://two", version)]),
        templates: vec![template("y://one/{id}", 0), template("y://two/{id}", version)],
        completes: true,
        ..Offers::default()
    }
}

/// Returns `offers` as of a server that declares all kinds, also those without offers.
fn declaring(offers: Offers) -> Offers {
    let Offers { prompts, resources, .. } = offers;
    let (prompts, resources) = (prompts.or(Some(Vec::new())), resources.or(Some(Vec::new())));
    Offers { prompts, resources, ..offers }
}

const ONE: [&str; 3] = ["up:one", "x://one", "y://one/{id}"];
const TWO: [&str; 3] = ["up:two", "x://two", "y://two/{id}"];

impl Scene {
    pub async fn with(first: Offers, server: Value) -> Scene {
        let stage = Stage::with(&[("MCPPROXY__DIRECT__ENABLED", "true")]).await;
        let tenant = stage.tenant("acme").await;
        tenant.platform.patch("/api/v1/settings", &json!({"direct_endpoint": true})).await.expect(200);
        let upstream = Upstream::announcing(Era::Handshake, vec![Tool::reads("tool")]).await;
        upstream.set_offers(first);
        tenant.add_with("up", &upstream, server).await;
        let client = Mcp::modern(&tenant.agent().await).at(DIRECT);
        Scene { stage, tenant, upstream, client }
    }

    async fn refresh(&self) {
        self.tenant.platform.post("/api/v1/servers/up/refresh", &json!({})).await.expect(200);
    }

    /// Makes the server offer `offers` from now on, and lists it.
    pub async fn offers(&self, offers: Offers) {
        self.upstream.set_offers(offers);
        self.refresh().await;
    }

    /// Returns what is listed: names of prompts, URIs of resources, texts of templates.
    pub async fn listed(&self) -> [Vec<String>; 3] {
        listed(&self.client).await
    }

    /// Returns an offer as REST shows it; `null` if it is not there.
    async fn item(&self, name: &str) -> Value {
        let (list, member) = match name.contains("://") {
            true => ("resources", "uri"),
            false => ("prompts", "name"),
        };
        let items = self.tenant.platform.items(&format!("/api/v1/servers/up/{list}")).await;
        items.into_iter().find(|item| item[member] == name).unwrap_or(Value::Null)
    }

    async fn states(&self, names: [&str; 3]) -> Vec<Value> {
        let mut states = Vec::new();
        for name in names {
            states.push(self.item(name.trim_start_matches("up:")).await["state"].clone());
        }
        states
    }

    /// Asks for an offer. Returns `ok`, or the code of the refusal.
    pub async fn code(&self, name: &str) -> String {
        code(&self.client, name).await
    }

    /// Completes an argument of an offer. Returns `ok`, or the code of the refusal.
    async fn completion(&self, name: &str) -> String {
        let reference = match name.contains("://") {
            true => json!({"type": "ref/resource", "uri": name}),
            false => json!({"type": "ref/prompt", "name": name}),
        };
        let params = json!({"ref": reference, "argument": {"name": "id", "value": ""}});
        ending(&self.client.request("completion/complete", &params.to_string()).await.json())
    }

    async fn approve(&self, name: &str) {
        let pin = self.item(name).await["pin"].clone();
        let done = approve(&self.tenant.platform, name, &pin).await.expect(200);
        assert_eq!((&done["state"], &done["pin"]), (&json!("approved"), &pin));
    }

    /// Returns the number of requests that the server got, other than for lists.
    fn asked(&self) -> usize {
        ["prompts/get", "resources/read", "completion/complete"]
            .iter()
            .map(|method| self.upstream.asked_of(method))
            .sum()
    }
}

async fn listed(client: &Mcp) -> [Vec<String>; 3] {
    let lists = [
        ("prompts/list", "prompts", "name"),
        ("resources/list", "resources", "uri"),
        ("resources/templates/list", "resourceTemplates", "uriTemplate"),
    ];
    let mut all = [const { Vec::new() }; 3];
    for (found, (method, member, key)) in all.iter_mut().zip(lists) {
        let answer = client.request(method, "{}").await.expect(200);
        let items = answer["result"][member].as_array().unwrap_or_else(|| panic!("{answer}")).clone();
        *found = items.iter().map(|item| item[key].as_str().unwrap().to_owned()).collect();
    }
    all
}

async fn code(client: &Mcp, name: &str) -> String {
    let (method, params) = match name.contains("://") {
        true => ("resources/read", json!({"uri": name.replace("{id}", "7")})),
        false => ("prompts/get", json!({"name": name})),
    };
    ending(&client.request(method, &params.to_string()).await.json())
}

fn ending(answer: &Value) -> String {
    match &answer["error"] {
        Value::Null => "ok".to_owned(),
        error => error["data"]["code"].as_str().map_or_else(|| error["code"].to_string(), str::to_owned),
    }
}

fn kind_of(uri: &str) -> &'static str {
    if uri.contains('{') { "template" } else { "resource" }
}

async fn approve(api: &Api, name: &str, pin: &Value) -> Answer {
    match name.contains("://") {
        true => {
            let body = json!({"kind": kind_of(name), "uri": name, "pin": pin});
            api.post("/api/v1/servers/up/resources/approve", &body).await
        }
        false => api.post(&format!("/api/v1/servers/up/prompts/{name}/approve"), &json!({"pin": pin})).await,
    }
}

async fn block(api: &Api, name: &str, is_blocked: bool) -> Answer {
    match (name.contains("://"), is_blocked) {
        (true, _) => {
            let verb = if is_blocked { "block" } else { "unblock" };
            let body = json!({"kind": kind_of(name), "uri": name});
            api.post(&format!("/api/v1/servers/up/resources/{verb}"), &body).await
        }
        (false, true) => api.post(&format!("/api/v1/servers/up/prompts/{name}/block"), &json!({})).await,
        (false, false) => {
            api.ask(Method::DELETE, &format!("/api/v1/servers/up/prompts/{name}/block"), None).await
        }
    }
}

async fn diff(api: &Api, name: &str) -> Answer {
    let path = match name.contains("://") {
        true => {
            let uri = name.replace(':', "%3A").replace('/', "%2F").replace('{', "%7B").replace('}', "%7D");
            format!("resources/diff?kind={}&uri={uri}", kind_of(name))
        }
        false => format!("prompts/{name}/diff"),
    };
    api.get(&format!("/api/v1/servers/up/{path}")).await
}

fn both() -> [Vec<String>; 3] {
    [0, 1, 2].map(|at| vec![ONE[at].to_owned(), TWO[at].to_owned()])
}

fn ones() -> [Vec<String>; 3] {
    ONE.map(|name| vec![name.to_owned()])
}

#[tokio::test]
async fn what_changed_or_is_new_is_hidden_until_a_person_approves_it() {
    let scene = Scene::with(offers(1), json!({})).await;
    assert_eq!(scene.listed().await, both(), "the first discovery is the baseline");
    scene.offers(offers(2)).await;
    assert_eq!(scene.states(TWO).await, ["changed"; 3]);
    assert_eq!(scene.listed().await, ones());
    let asked = scene.asked();
    for name in TWO {
        assert_eq!(scene.code(name).await, "tool_changed", "{name}");
        assert_eq!(scene.completion(name).await, "tool_changed", "{name}");
    }
    assert_eq!(scene.asked(), asked, "the server was asked for nothing of it");
    for name in ONE {
        assert_eq!(scene.code(name).await, "ok", "{name}");
    }
    for name in ["two", TWO[1], TWO[2]] {
        let item = scene.item(name).await;
        let shown = diff(&scene.tenant.platform, name).await.expect(200);
        let change = &shown["changes"][0];
        assert_eq!((&change["before"], &change["after"]), (&json!("v1"), &json!("v2")), "{shown}");
        assert_eq!((&shown["pin"], &shown["approved_pin"]), (&item["pin"], &item["approved_pin"]));
        assert_eq!(shown["approved_definition"], item["approved_definition"]);
        approve(&scene.tenant.platform, name, &item["approved_pin"]).await.refused(409, "conflict");
        approve(&scene.tenant.platform, name, &json!("nonsense")).await.refused(400, "invalid_request");
        scene.approve(name).await;
    }
    assert_eq!(scene.listed().await, both());
    for name in TWO {
        assert_eq!(scene.code(name).await, "ok", "{name}");
    }
    // what it was before is a change as well
    scene.offers(offers(1)).await;
    assert_eq!(scene.states(TWO).await, ["changed"; 3]);
}

#[tokio::test]
async fn what_comes_later_is_pending_and_pins_survive_disappearance() {
    let first = Offers {
        prompts: Offers::prompts(&["one"]).prompts,
        resources: Offers::resources(&["x://one"]).resources,
        ..Offers::templates(&[])
    };
    let first = Offers { resources: Offers::resources(&["x://one"]).resources, ..first };
    let scene = Scene::with(first.clone(), json!({})).await;
    scene.offers(offers(1)).await;
    assert_eq!(scene.states(TWO).await, ["pending"; 3]);
    for name in TWO {
        let read = if name.contains('{') { "-32602" } else { "tool_pending" };
        assert_eq!(scene.code(name).await, read, "{name}: a template that is new leads nowhere");
        assert_eq!(scene.completion(name).await, "tool_pending", "{name}");
    }
    let new = diff(&scene.tenant.platform, "two").await.expect(200);
    assert_eq!((&new["approved_pin"], &new["compared"]), (&Value::Null, &json!(false)));
    for name in ["two", TWO[1], TWO[2]] {
        scene.approve(name).await;
    }
    // removals show at once
    scene.offers(first).await;
    assert_eq!(scene.listed().await[0], ["up:one"]);
    assert_eq!(scene.listed().await[1], ["x://one"]);
    scene.offers(offers(2)).await;
    assert_eq!(scene.states(TWO).await, ["changed"; 3], "what was approved is remembered");
    scene.offers(offers(1)).await;
    assert_eq!(scene.states(TWO).await, ["approved"; 3]);
}

#[tokio::test]
async fn automatic_approval_takes_what_changed_and_what_is_new() {
    let scene = Scene::with(declaring(Offers::prompts(&["one"])), json!({"auto_approve": true})).await;
    for version in [1, 2] {
        scene.offers(offers(version)).await;
        assert_eq!(scene.listed().await, both(), "{version}");
    }
    // what waits is taken once it is switched on
    let scene = Scene::with(declaring(Offers::prompts(&["one"])), json!({})).await;
    scene.offers(offers(1)).await;
    scene.tenant.platform.patch("/api/v1/servers/up", &json!({"auto_approve": true})).await.expect(200);
    scene.refresh().await;
    assert_eq!(scene.listed().await, both());
}

#[tokio::test]
async fn a_block_stays_until_a_person_lifts_it() {
    let scene = Scene::with(offers(1), json!({"auto_approve": true})).await;
    let admin = scene.tenant.admin().await;
    for name in ["two", TWO[1], TWO[2]] {
        let done = block(&admin, name, true).await.expect(200);
        assert_eq!(done["state"], "blocked");
        assert_eq!(scene.item(name).await["blocked_by"], json!(admin.id));
    }
    for version in [1, 2] {
        scene.offers(offers(version)).await;
        assert_eq!(scene.listed().await, ones());
        for name in TWO {
            assert_eq!(scene.code(name).await, "tool_blocked", "{name}");
        }
    }
    // gone and back
    scene.offers(declaring(Offers::templates(&["x://{name}"]))).await;
    assert_eq!(scene.code("x://other").await, "ok");
    assert_eq!(scene.code("x://two").await, "tool_blocked", "a template does not lead around a block");
    assert_eq!(scene.code("up:two").await, "-32602");
    scene.offers(offers(2)).await;
    assert_eq!(scene.listed().await, ones());
    for name in ["two", TWO[1], TWO[2]] {
        let lifted = block(&admin, name, false).await.expect(200);
        assert_eq!(lifted["state"], "changed", "nothing was approved by that");
    }
    scene.refresh().await;
    assert_eq!(scene.listed().await, both(), "the server's own setting takes it");
    let acts = scene.tenant.records("type=admin&tool=prompts.block", 1).await;
    assert_eq!((&acts[0]["server"], &acts[0]["status"]), (&json!("up"), &json!("success")), "{acts:?}");
    scene.tenant.records("type=admin&tool=prompts.unblock", 1).await;
    let acts = scene.tenant.records("type=admin&tool=resources.block", 2).await;
    assert!(acts.iter().all(|act| act["server"] == "up" && act["status"] == "success"), "{acts:?}");
    let acts = scene.tenant.records("type=admin&tool=resources.unblock", 2).await;
    for uri in &TWO[1..] {
        let names = |act: &Value| act["arguments"].as_str().unwrap().contains(uri);
        assert_eq!(acts.iter().filter(|act| names(act)).count(), 1, "{uri}: {acts:?}");
    }
}

/// Neither by its own name nor by a template that fits.
#[tokio::test]
async fn what_waits_takes_no_uri_from_whoever_has_it() {
    let scene = Scene::with(Offers::templates(&["x://{name}"]), json!({})).await;
    let waits = Offers {
        resources: Offers::resources(&["x://two", "z://a"]).resources,
        ..Offers::templates(&["x://{name}"])
    };
    scene.offers(waits).await;
    assert_eq!(scene.code("x://one").await, "ok");
    assert_eq!(scene.code("x://two").await, "tool_pending", "its own template does not lead around it");
    let other = Upstream::announcing(Era::Handshake, vec![Tool::reads("tool")]).await;
    other.set_offers(Offers::resources(&["z://a"]));
    scene.tenant.add("other", &other).await;
    assert_eq!(scene.listed().await[1], ["z://a"]);
    assert_eq!(scene.code("z://a").await, "ok");
    assert_eq!(other.asked_of("resources/read"), 1);
    let shadow = async || scene.item("z://a").await["shadowed_by"].clone();
    assert_eq!(shadow().await, "other");
    // approved later than the other was released
    scene.approve("z://a").await;
    assert_eq!(scene.code("z://a").await, "ok");
    assert_eq!((other.asked_of("resources/read"), shadow().await), (2, json!("other")));
    // what changed is still whose it was
    let changed =
        Offers { resources: Some(vec![r#"{"uri":"z://a","name":"other"}"#.to_owned()]), ..Offers::default() };
    other.set_offers(changed);
    scene.tenant.platform.post("/api/v1/servers/other/refresh", &json!({})).await.expect(200);
    assert_eq!(scene.code("z://a").await, "tool_changed");
    assert!(scene.listed().await[1].iter().all(|uri| uri != "z://a"));
}

#[tokio::test]
async fn another_place_is_approved_anew_and_a_block_is_not_forgotten() {
    let scene = Scene::with(offers(1), json!({})).await;
    block(&scene.tenant.platform, "one", true).await.expect(200);
    let elsewhere = scene.upstream.url.replace("127.0.0.1", "localhost");
    scene.tenant.platform.patch("/api/v1/servers/up", &json!({"url": elsewhere, "quarantined": false})).await;
    scene.tenant.platform.post("/api/v1/servers/up/unquarantine", &json!({})).await.expect(200);
    // what it offers there first is the baseline of that place
    assert_eq!(scene.listed().await[1], ["x://one", "x://two"]);
    assert_eq!(scene.listed().await[0], ["up:two"]);
    assert_eq!(scene.item("one").await["state"], "blocked");
    scene.offers(offers(2)).await;
    assert_eq!(scene.states(TWO).await, ["changed"; 3]);
}

#[tokio::test]
async fn an_operator_does_not_vouch_for_its_own_server() {
    let scene = Scene::with(offers(1), json!({"enabled": false})).await;
    let (own, other) = (scene.tenant.operator().await, scene.tenant.operator().await);
    let (agent, auditor) = (scene.tenant.agent().await, scene.tenant.auditor().await);
    scene.tenant.platform.delete("/api/v1/servers/up").await.expect(204);
    let server = json!({"name": "up", "kind": "http", "url": scene.upstream.url});
    own.post("/api/v1/servers", &server).await.expect(201);
    for name in ["two", TWO[1], TWO[2]] {
        let pin = scene.item(name).await["pin"].clone();
        for api in [&agent, &auditor] {
            approve(api, name, &pin).await.refused(403, "forbidden");
            block(api, name, true).await.refused(403, "forbidden");
            block(api, name, false).await.refused(403, "forbidden");
        }
        diff(&agent, name).await.refused(403, "forbidden");
        diff(&auditor, name).await.expect(200);
        let refused = approve(&own, name, &pin).await.refused(403, "forbidden");
        assert!(refused.contains("somebody else"), "{refused}");
        // to hide it is nobody's harm
        block(&own, name, true).await.expect(200);
        block(&own, name, false).await.refused(403, "forbidden");
        block(&other, name, false).await.expect(200);
        approve(&other, name, &pin).await.expect(200);
    }
    // released, it has these approved and takes the rest as its baseline
    other.post("/api/v1/servers/up/unquarantine", &json!({})).await.expect(200);
    assert_eq!(scene.listed().await, both());
}

#[tokio::test]
async fn what_is_not_there_is_nobodys() {
    let scene = Scene::with(offers(1), json!({})).await;
    let admin = scene.tenant.admin().await;
    let pin = scene.item("one").await["pin"].clone();
    for name in
        ["none", "a%00b", "x://none", "x://{none}", &"p".repeat(3000), &format!("x://{}", "p".repeat(3000))]
    {
        approve(&admin, name, &pin).await.refused(404, "not_found");
        block(&admin, name, true).await.refused(404, "not_found");
        block(&admin, name, false).await.refused(404, "not_found");
        diff(&admin, name).await.refused(404, "not_found");
    }
    let path = "/api/v1/servers/up/resources/approve";
    for body in [
        json!({"uri": "x://one"}),
        json!({"pin": pin}),
        json!({"uri": 7, "pin": pin}),
        json!({"uri": "x://one", "kind": "prompt", "pin": pin}),
        json!({"uri": "x://one", "pin": pin, "more": 1}),
    ] {
        admin.post(path, &body).await.refused(400, "invalid_request");
    }
    for query in ["", "?uri=", "?uri=x&kind=tool", "?uri=x&more=1"] {
        admin.get(&format!("/api/v1/servers/up/resources/diff{query}")).await.refused(400, "invalid_request");
    }
    admin
        .post("/api/v1/servers/none/resources/block", &json!({"uri": "x://one"}))
        .await
        .refused(404, "not_found");
    // a resource is what is meant where nothing is said
    admin.post("/api/v1/servers/up/resources/block", &json!({"uri": "x://one"})).await.expect(200);
    assert_eq!(scene.item("x://one").await["state"], "blocked");
    // another tenant's is not there
    let theirs = scene.stage.tenant("theirs").await;
    approve(&theirs.admin().await, "two", &pin).await.refused(404, "not_found");
}

/// A ceiling of read is the lowest there is: prompts and resources only read, and so every key has those in its scope.
#[tokio::test]
async fn they_count_as_read_for_every_ceiling() {
    let scene = Scene::with(offers(1), json!({})).await;
    for ceiling in ["read", "write", "destructive"] {
        let agent = scene.tenant.agent_with(json!({"max_operation": ceiling})).await;
        let client = Mcp::modern(&agent).at(DIRECT);
        assert_eq!(listed(&client).await, both(), "{ceiling}");
        assert_eq!(
            (code(&client, "up:one").await, code(&client, "x://one").await),
            ("ok".into(), "ok".into())
        );
    }
    scene.offers(offers(2)).await;
    assert_eq!(scene.code("up:two").await, "tool_changed");
    for record in scene.tenant.records("source=direct", 7).await {
        let said = (&record["tier"], &record["intent"]["operation_type"]);
        assert_eq!(said, (&json!("read"), &json!("read")), "{record}");
    }
    let blocked = scene.tenant.records("source=direct&status=blocked", 1).await;
    assert_eq!(
        (&blocked[0]["error_code"], &blocked[0]["tool"]),
        (&json!("tool_changed"), &json!("prompts/get two"))
    );
}

#[tokio::test]
async fn what_is_stored_at_the_upgrade_is_the_baseline() {
    let mut scene = Scene::with(offers(1), json!({})).await;
    scene.stage.gateway.kill();
    let database = &scene.stage.database;
    // as a release left it that knew of no pins
    sqlx::raw_sql(
        "drop table offer_pins; alter table servers drop column offers_baselined;
         delete from _sqlx_migrations where version between 20261123050000 and 20261123050999",
    )
    .execute(&mut database.connect().await)
    .await
    .unwrap();
    Gateway::migrate(database);
    let gateway = Gateway::start(database, &[("MCPPROXY__DIRECT__ENABLED", "true")]).await;
    scene.tenant = Tenant::of(&gateway.ask_as(&scene.tenant.platform), &gateway.anonymous());
    scene.client = Mcp::modern(&scene.tenant.agent().await).at(DIRECT);
    let names = [ONE, TWO].concat();
    for name in names.iter().map(|name| name.trim_start_matches("up:")) {
        assert_eq!(scene.item(name).await["state"], "approved", "{name}");
    }
    scene.offers(offers(2)).await;
    assert_eq!((scene.states(TWO).await, scene.listed().await), (vec![json!("changed"); 3], ones()));
    let shown = diff(&scene.tenant.platform, "two").await.expect(200);
    assert_eq!(shown["changes"][0]["before"], "v1", "{shown}");
    // a replica of that release writes offers, and knows of no pins
    let unseen = "update offers set pin = 'v1:' || repeat('0', 64), definition = '{}' where name in ('one', 'x://one', 'y://one/{id}')";
    sqlx::raw_sql(unseen).execute(&mut database.connect().await).await.unwrap();
    assert_eq!(scene.states(ONE).await, ["changed"; 3]);
}
