//! Calls of page tools, from the agent to the site and back.

use std::time::Duration;

use serde_json::{Value, json};
use sqlx::Executor;
use tokio::sync::watch;

use super::form_site::{FormSite, Reply};
use crate::support::{Api, Gateway, Mcp, Outcome, Stage, Tenant, settle};

pub(super) const SOON: Duration = Duration::from_secs(20);

/// R5's first use case: a form that its author describes as one tool.
pub(super) const FLIGHTS: &str = r##"<!doctype html><title>Flights</title>
<form id="flights" action="/flights" method="get" wam-policy-output="data interaction"
    wam-intent-function="search" wam-intent-tool-schema="#flights-tool">
  <label for="from">From</label> <input id="from" name="from" required>
  <label for="to">To</label> <input id="to" name="to" required>
  <label for="day">Day</label> <input id="day" name="day" type="date" min="2026-01-01" required>
  <label for="class">Class</label>
  <select id="class" name="class"><option value="e">Economy</option><option value="b">Business</option></select>
  <button>Search</button>
  <script type="application/wam-tool+json" id="flights-tool">
  {"name": "search_flights", "description": "Search for flights between two cities.", "parameters": {
    "from": {"type": "string"}, "to": {"type": "string"}, "day": {"type": "string", "format": "date"},
    "class": {"type": "string", "enum": ["e", "b"]}}, "required": ["from", "to", "day"]}
  </script>
</form>"##;

/// A contact form with a token that changes with each fetch.
pub(super) fn contact(token: &str, more: &str) -> String {
    format!(
        r##"<!doctype html><title>Contact</title>
<form id="contact" action="/send" method="post" wam-policy-output="data interaction"
    wam-intent-function="submit" wam-intent-tool-schema="#contact-tool">
  <input type="hidden" name="csrf_token" value="{token}">
  <label for="topic">Topic</label> <input id="topic" name="topic" required maxlength="40">
  <label for="note">Note</label> <textarea id="note" name="note"></textarea>
  {more}
  <button>Send</button>
  <script type="application/wam-tool+json" id="contact-tool">
  {{"name": "contact_us", "description": "Send a note to the shop.", "parameters": {{
    "topic": {{"type": "string"}}, "note": {{"type": "string"}}}}, "required": ["topic"]}}
  </script>
</form>"##
    )
}

/// A form that posts and belongs to no sensitive category.
pub(super) fn theme(token: &str, more: &str) -> String {
    format!(
        r##"<!doctype html><title>Theme</title>
<form id="theme" action="/theme" method="post" wam-policy-output="data interaction"
    wam-intent-function="submit" wam-intent-tool-schema="#theme-tool">
  <input type="hidden" name="csrf_token" value="{token}">
  <label for="color">Color of the list</label> <input id="color" name="color" required>
  {more}
  <button>Apply</button>
  <script type="application/wam-tool+json" id="theme-tool">
  {{"name": "set_theme", "description": "Set the color of the list.", "parameters": {{
    "color": {{"type": "string"}}}}, "required": ["color"]}}
  </script>
</form>"##
    )
}

pub(super) fn thanks() -> Reply {
    Reply::page("<title>Thanks</title><p role=status>Thank you for your note")
}

pub(super) async fn shop_with(stage: &Stage, site: &FormSite, paths: &[&str], more: Value) -> Tenant {
    let tenant = stage.tenant("acme").await;
    add(&tenant.admin().await, site, paths, more).await;
    site.take();
    tenant
}

pub(super) async fn add(api: &Api, site: &FormSite, paths: &[&str], more: Value) {
    let pages: Vec<String> = paths.iter().map(|path| site.at(path)).collect();
    let mut body = json!({"name": "shop", "kind": "web_page", "pages": pages});
    body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    let added = api.post("/api/v1/servers", &body).await.expect(201);
    assert_eq!(added["connection"], "connected", "{added}");
}

/// Approves all tools of the server `shop` whose definitions changed.
pub(super) async fn approve_changed(admin: &Api) {
    for tool in admin.items("/api/v1/servers/shop/tools").await {
        if tool["state"] == "changed" {
            let path = format!("/api/v1/servers/shop/tools/{}/approve", tool["name"].as_str().unwrap());
            admin.post(&path, &json!({"pin": tool["pin"]})).await.expect(200);
        }
    }
}

/// Calls a tool that posts, and lets an approver allow it. Returns the request for permission and the outcome.
pub(super) async fn allowed(tenant: &Tenant, agent: &Api, tool: &str, args: &Value) -> (Value, Outcome) {
    let call = async || Mcp::bare(agent).run("destructive", tool, args).await;
    let refused = call().await.refused("consent_pending");
    let id = refused["consent_id"].as_str().unwrap();
    let approver = tenant.approver().await;
    let request = approver.get(&format!("/api/v1/consent/{id}")).await.expect(200);
    let decision = json!({"decision": "allow_once"});
    approver.post(&format!("/api/v1/consent/{id}/decision"), &decision).await.expect(200);
    (request, call().await)
}

pub(super) async fn ledger(tenant: &Tenant, id: &Value) -> Value {
    let path = format!("/api/v1/activity/{}/provenance", id.as_str().unwrap());
    tenant.auditor().await.get(&path).await.expect(200)
}

pub(super) fn steps(ledger: &Value) -> Vec<String> {
    let row = |row: &Value| {
        format!(
            "{} {} {} {}",
            row["phase"].as_str().unwrap(),
            row["layer"].as_str().unwrap(),
            row["selector"].as_str().unwrap(),
            row["explanation"].as_str().unwrap()
        )
    };
    ledger["items"].as_array().unwrap().iter().map(row).collect()
}

/// Waits until another replica has closed the record of the call whose replica was killed. Returns the steps of its ledger, which is
/// whole.
pub(super) async fn left_behind(stage: &Stage, other: &Gateway, tenant: &Tenant) -> Vec<String> {
    // its last heartbeat becomes an old one: nobody has to wait for 30 s
    let dead = "update replicas set heartbeat_at = now() - interval '1 minute'
         where replica_id in (select replica_id from activity_open)";
    stage.database.connect().await.execute(dead).await.unwrap();
    let there = other.ask_as(&tenant.platform);
    settle(1, SOON, || async { there.items("/api/v1/activity?status=unknown").await.len() }).await;
    let record = there.items("/api/v1/activity?status=unknown").await.remove(0);
    let path = format!("/api/v1/activity/{}/provenance", record["id"].as_str().unwrap());
    let ledger = there.get(&path).await.expect(200);
    assert_eq!(ledger["intact"], true);
    steps(&ledger)
}

#[tokio::test]
async fn a_form_is_one_tool_and_its_query_is_what_a_browser_sends() {
    let stage = Stage::start().await;
    let results = Reply::page("<title>Results</title><p>3 flights from Bonn to Rome on 2026-12-24");
    let site = FormSite::start(&[("GET /", Reply::page(FLIGHTS)), ("GET /flights", results)]).await;
    let tenant = shop_with(&stage, &site, &["/"], json!({})).await;
    let agent = tenant.agent().await;
    let args = json!({"from": "Bonn", "to": "Rome", "day": "2026-12-24"});
    let result = Mcp::bare(&agent).run("read", "shop:search_flights", &args).await.ok();
    let seen = site.take();
    let lines: Vec<&str> = seen.iter().map(|request| request.line.as_str()).collect();
    assert_eq!(lines, ["GET /", "GET /flights?from=Bonn&to=Rome&day=2026-12-24&class=e"]);
    assert_eq!((seen[1].header("referer"), seen[1].header("origin")), (site.at("/").as_str(), ""));
    assert!(seen[1].header("user-agent").starts_with("mcpproxy/"), "{:?}", seen[1]);
    let shown = &result["structuredContent"];
    assert_eq!(
        (&shown["class"], &shown["status"], &shown["title"]),
        (&json!("accepted"), &json!(200), &json!("Results"))
    );
    assert!(shown["text"].as_str().unwrap().contains("3 flights"), "{shown}");
    assert_eq!(result["_meta"]["mcpproxy/untrusted"], true);
    let record = tenant.records("type=tool_call", 1).await.remove(0);
    assert_eq!((&record["status"], &record["tier"]), (&json!("success"), &json!("read")), "{record}");
    let ledger = ledger(&tenant, &record["id"]).await;
    assert_eq!(ledger["intact"], true);
    let expected = [
        "recorded data from sets-the-value",
        "recorded data to sets-the-value",
        "recorded data day sets-the-value",
        "recorded submit #flights sends-the-form-by-get",
        "committed outcome #flights the-site-answered-accepted",
    ];
    assert_eq!(steps(&ledger), expected);
    // an unknown answer is no success
    site.put("GET /flights", Reply::page("<title>Results</title><p>Something else"));
    let result = Mcp::bare(&agent).run("read", "shop:search_flights", &args).await.ok();
    assert_eq!(result["structuredContent"]["class"], "unknown");
}

#[tokio::test]
async fn a_post_is_asked_about_with_all_that_it_sends_and_sent_once() {
    let stage = Stage::start().await;
    let contact = |token| {
        Reply::page(&contact(token, r#"<label><input type=checkbox name=ads checked> Offers</label>"#))
    };
    let fresh = contact("t-2").with("set-cookie", "session=s-2; Path=/");
    let site = FormSite::start(&[("GET /contact", contact("t-1")), ("POST /send", thanks())]).await;
    let tenant = shop_with(&stage, &site, &["/contact"], json!({})).await;
    site.put("GET /contact", fresh);
    let agent = tenant.agent_with(json!({"policy_mode": "observe"})).await;
    let args = json!({"topic": "Boots & laces", "note": "size\n44"});
    let (request, outcome) = allowed(&tenant, &agent, "shop:contact_us", &args).await;
    let reason = request["reason"].as_str().unwrap();
    for part in
        ["POST", &site.at("/send"), "Topic", "Boots & laces", "csrf_token (hidden)", "Offers", "ticked"]
    {
        assert!(reason.contains(part), "{part}: {reason}");
    }
    let options = request["options"].as_array().unwrap();
    assert!(!options.contains(&json!("allow_always")), "{options:?}");
    assert_eq!(outcome.ok()["structuredContent"]["class"], "accepted");
    let seen = site.take();
    let lines: Vec<&str> = seen.iter().map(|request| request.line.as_str()).collect();
    assert_eq!(lines, ["GET /contact", "POST /send"]);
    let post = &seen[1];
    assert_eq!(post.body, "csrf_token=t-2&topic=Boots+%26+laces&note=size%0D%0A44&ads=on");
    assert_eq!(post.header("content-type"), "application/x-www-form-urlencoded");
    assert_eq!((post.header("cookie"), post.header("origin")), ("session=s-2", site.at("").as_str()));
    assert_eq!(post.header("referer"), site.at("/contact"));

    // the permission is used up: the same call asks again, and nothing is sent meanwhile
    let again =
        Mcp::bare(&agent).run("destructive", "shop:contact_us", &args).await.refused("consent_pending");
    assert_ne!(again["consent_id"], request["id"]);
    assert_eq!(site.lines(), [""; 0]);
    let record = &tenant.records("type=tool_call&status=success", 1).await[0];
    assert_eq!(record["consent_id"], request["id"]);
    let ledger = ledger(&tenant, &record["id"]).await;
    let rows = ledger["items"].as_array().unwrap();
    assert!(rows.iter().all(|row| row["consent_id"] == request["id"]), "{ledger}");
    assert_eq!((&rows[0]["new_preview"], rows.len()), (&json!("Boots & laces"), 4));
    // agents see their own calls, and nobody else's
    let inspect = async |api: &Api| {
        let result = Mcp::bare(api).run("read", "shop:inspect_provenance", &json!({})).await.ok();
        result["structuredContent"]["calls"].clone()
    };
    let own = inspect(&agent).await;
    assert_eq!((&own[0]["id"], &own[0]["intact"]), (&record["id"], &json!(true)), "{own}");
    assert_eq!(inspect(&tenant.agent().await).await, json!([]));
    assert_eq!(site.lines(), [""; 0]);
}

#[tokio::test]
async fn without_a_ledger_nothing_is_sent() {
    let stage = Stage::start().await;
    let site =
        FormSite::start(&[("GET /list", Reply::page(&theme("t", ""))), ("POST /theme", thanks())]).await;
    let tenant = shop_with(&stage, &site, &["/list"], json!({"execute": "policy"})).await;
    let agent = tenant.agent().await;
    let mut connection = stage.database.connect().await;
    connection.execute("revoke insert on web_provenance from mcpproxy_app").await.unwrap();
    let call = async || Mcp::bare(&agent).run("destructive", "shop:set_theme", &json!({"color": "x"})).await;
    call().await.refused("record_unavailable");
    assert_eq!(site.lines(), ["GET /list"]);
    connection.execute("grant insert on web_provenance to mcpproxy_app").await.unwrap();
    call().await.ok();
    assert_eq!(site.lines(), ["GET /list", "POST /theme"]);
}

#[tokio::test]
async fn a_form_that_changed_since_its_approval_is_not_sent() {
    let stage = Stage::start().await;
    let site =
        FormSite::start(&[("GET /list", Reply::page(&theme("t", ""))), ("POST /theme", thanks())]).await;
    let tenant = shop_with(&stage, &site, &["/list"], json!({"execute": "policy"})).await;
    let agent = tenant.agent().await;
    let call = async || Mcp::bare(&agent).run("destructive", "shop:set_theme", &json!({"color": "x"})).await;
    for changed in [
        theme("t", r#"<input type=hidden name=amount value=100>"#),
        theme("t", "").replace(r#"action="/theme""#, r#"action="/subscribe""#),
        "<p>Moved".to_owned(),
    ] {
        site.put("GET /list", Reply::page(&changed));
        call().await.refused("tool_changed");
        assert_eq!(site.lines(), ["GET /list"], "{changed}");
    }
    let record = &tenant.records("type=tool_call&status=blocked", 3).await[0];
    assert_eq!(ledger(&tenant, &record["id"]).await["items"], json!([]));
    // other values are no other form
    site.put("GET /list", Reply::page(&theme("other", "")));
    call().await.ok();
}

#[tokio::test]
async fn values_that_the_form_refuses_are_not_sent() {
    let stage = Stage::start().await;
    let site = FormSite::start(&[("GET /", Reply::page(FLIGHTS))]).await;
    let tenant = shop_with(&stage, &site, &["/"], json!({})).await;
    let args = json!({"from": "Bonn", "to": "Rome", "day": "2025-12-24"});
    let outcome = Mcp::bare(&tenant.agent().await).run("read", "shop:search_flights", &args).await;
    let result = outcome.result();
    let shown = &result["structuredContent"];
    assert_eq!((&result["isError"], &shown["class"]), (&json!(true), &json!("validation_error")), "{result}");
    assert_eq!((&shown["status"], &shown["errors"][0]["field"]), (&Value::Null, &json!("day")), "{result}");
    assert_eq!(site.lines(), ["GET /"]);
    assert_eq!(tenant.records("type=tool_call", 1).await[0]["status"], "upstream_error");
}

#[tokio::test]
async fn redirects_are_followed_as_browsers_do_and_never_to_private_addresses() {
    let stage = Stage::start().await;
    let site = FormSite::start(&[
        ("GET /list", Reply::page(&theme("t", ""))),
        ("GET /done", thanks()),
        ("POST /done", thanks()),
    ])
    .await;
    let other = FormSite::start(&[("POST /", thanks()), ("GET /", thanks())]).await;
    let tenant = shop_with(&stage, &site, &["/list"], json!({"execute": "policy"})).await;
    let agent = tenant.agent().await;
    let call = async || Mcp::bare(&agent).run("destructive", "shop:set_theme", &json!({"color": "x"})).await;
    for (status, method) in [(301, "GET"), (302, "GET"), (303, "GET"), (307, "POST"), (308, "POST")] {
        site.put("POST /theme", Reply::to(status, "/done"));
        assert_eq!(call().await.ok()["structuredContent"]["class"], "accepted", "{status}");
        assert_eq!(site.lines(), ["GET /list", "POST /theme", &format!("{method} /done")], "{status}");
    }
    for (reply, says) in [
        (Reply::to(302, "http://10.1.2.3/"), "egress"),
        (Reply::to(303, "http://169.254.169.254/latest/"), "egress"),
        (Reply::to(307, &other.at("/")), "another site"),
        (Reply::to(302, "javascript:alert(1)"), "usable target"),
        (Reply::to(303, "/loop"), "redirects"),
    ] {
        site.put("GET /loop", Reply::to(303, "/loop"));
        site.put("POST /theme", reply);
        let shown = call().await.ok()["structuredContent"].clone();
        assert_eq!(shown["class"], "unknown", "{shown}");
        assert!(shown["errors"][0]["message"].as_str().unwrap().contains(says), "{says}: {shown}");
        assert_eq!(site.lines().iter().filter(|line| line.starts_with("POST")).count(), 1);
        assert_eq!(other.lines(), [""; 0]);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_replica_that_dies_while_it_sends_leaves_its_ledger_and_sends_nothing_again() {
    let mut stage = Stage::start().await;
    let other = Gateway::start(&stage.database, &[]).await;
    let (_open, gate) = watch::channel(false);
    let held = thanks().behind(gate);
    let site = FormSite::start(&[("GET /list", Reply::page(&theme("t", ""))), ("POST /theme", held)]).await;
    let tenant = shop_with(&stage, &site, &["/list"], json!({"execute": "policy"})).await;
    let agent = tenant.agent().await;
    let client = Mcp::bare(&agent);
    let call = tokio::spawn(async move {
        client.run("destructive", "shop:set_theme", &json!({"color": "x"})).await;
    });
    settle(1, SOON, || async { site.count("POST") }).await;
    stage.gateway.kill();
    call.await.unwrap();
    assert_eq!(
        left_behind(&stage, &other, &tenant).await,
        ["recorded data color sets-the-value", "recorded submit #theme sends-the-form-by-post"]
    );
    assert_eq!(site.count("POST"), 1);
}

#[tokio::test]
async fn servers_that_run_no_pages_refuse_in_every_mode() {
    let stage = Stage::start().await;
    let site = FormSite::start(&[("GET /", Reply::page(FLIGHTS))]).await;
    let tenant = shop_with(&stage, &site, &["/"], json!({"execute": "off"})).await;
    let args = json!({"from": "Bonn", "to": "Rome", "day": "2026-12-24"});
    for mode in ["observe", "always_allow"] {
        let agent = tenant.agent_with(json!({"policy_mode": mode})).await;
        Mcp::bare(&agent).run("read", "shop:search_flights", &args).await.refused("policy_denied");
    }
    assert_eq!(site.lines(), [""; 0]);
}
