//! Servers and their tools: what is seen, and what is done about them.

use std::time::Duration;

use serde_json::{Value, json};

use super::markup::{HOSTILE, assert_harmless, attributes, escaped, form_to, hidden, led_to, notice_on};
use crate::support::{Stage, Tenant, Tool, Upstream, Visitor, settle, upstream};

const SOON: Duration = Duration::from_secs(5);

/// A tool that only reads, with a title of its own.
fn titled(title: &str) -> Tool {
    Tool::annotated("t", &json!({"readOnlyHint": true, "title": title}).to_string())
}

/// Gives the server other tools, which it is asked for at once.
pub async fn offer(tenant: &Tenant, upstream: &Upstream, tools: Vec<Tool>) {
    upstream.set_tools(tools);
    tenant.platform.post("/api/v1/servers/up/refresh", &json!({})).await.expect(200);
}

/// The tool `t` as REST shows it.
async fn tool(tenant: &Tenant) -> Value {
    let tools = tenant.platform.items("/api/v1/servers/up/tools").await;
    tools.into_iter().find(|tool| tool["name"] == "t").unwrap()
}

#[tokio::test]
async fn a_server_is_switched_and_quarantined() {
    let stage = Stage::start().await;
    let tenant = stage.tenant("acme").await;
    let admin = tenant.admin().await;
    let visitor = Visitor::with_key(&stage.gateway, &admin).await;
    let empty = visitor.get("/console/servers").await.text;
    assert!(empty.contains("mcpproxy upstream add NAME URL"), "{empty}");
    let upstream = Upstream::handshake(upstream::zoo()).await;
    let headers = json!({"headers": {"Authorization": "Bearer s3cret-of-the-server"}});
    tenant.add_with("up", &upstream, headers).await;
    let list = visitor.get("/console/servers").await.text;
    for shown in ["/console/servers/up", "http", "enabled", "connected", "6 approved"] {
        assert!(list.contains(shown), "{shown}: {list}");
    }
    let page = visitor.get("/console/servers/up").await.text;
    for shown in [
        "enabled",
        "connected",
        &upstream.url,
        "reader",
        "wiper",
        "destructive",
        "The tool plain of the test server",
    ] {
        assert!(page.contains(shown), "{shown}: {page}");
    }
    for page in [&list, &page] {
        assert!(!page.contains("s3cret"), "{page}");
        assert_harmless(page);
    }
    for (verb, field, value, then, notice) in [
        ("disable", "enabled", false, "disabled", "up is disabled."),
        ("enable", "enabled", true, "enabled", "up is enabled."),
        ("quarantine", "quarantined", true, "in quarantine", "up is in quarantine."),
        ("unquarantine", "quarantined", false, "enabled", "up is released from quarantine."),
    ] {
        let mut page = visitor.get("/console/servers/up").await.text;
        if verb == "unquarantine" {
            // which approves what waits, so it is asked first
            let question = "/console/servers/up/release".to_owned();
            assert!(attributes(&page, "href").contains(&question), "{page}");
            page = visitor.get(&question).await.text;
            assert!(page.contains("Release up from quarantine?"), "{page}");
            assert!(page.contains("No definition waits. Agents can call its approved tools"), "{page}");
            assert_harmless(&page);
        }
        let action = form_to(&page, &format!("/{verb}")).unwrap_or_else(|| panic!("{verb}: {page}"));
        let done = visitor.post(&action, &[]).await;
        assert_eq!(led_to(&done), (303, "/console/servers/up"), "{verb}");
        assert_eq!(tenant.platform.get("/api/v1/servers/up").await.expect(200)[field], value, "{verb}");
        let page = visitor.get(done.header("location")).await.text;
        assert_eq!(notice_on(&page), notice);
        assert!(page.contains("<link rel=\"canonical\" href=\"/console/servers/up\">"), "{page}");
        assert!(page.contains(&format!("\">{then}</span>")), "{then}: {page}");
        assert!(form_to(&page, &format!("/{verb}")).is_none(), "{verb}: {page}");
        let record = tenant.records(&format!("tool=servers.{verb}&source=console"), 1).await.remove(0);
        assert_eq!((&record["server"], &record["status"]), (&json!("up"), &json!("success")), "{record}");
    }
    let lists = upstream.counts().lists;
    for verb in ["refresh", "restart"] {
        let done = visitor.post(&format!("/console/servers/up/{verb}"), &[]).await;
        assert_eq!(led_to(&done), (303, "/console/servers/up"), "{verb}");
        let page = visitor.get(done.header("location")).await.text;
        assert_eq!(notice_on(&page), "Tried now: up is connected, and its tools are listed.");
    }
    assert!(upstream.counts().lists >= lists + 2);
    for (path, status) in [("up/explode", 404), ("none/enable", 404), ("NO NAME/enable", 404)] {
        visitor.post(&format!("/console/servers/{path}"), &[]).await.expect(status);
    }
    // an act that fails links to the server, as far as it is there
    tenant.platform.patch("/api/v1/servers/up", &json!({"enabled": false})).await.expect(200);
    let links = async |path: &str, status: u16| {
        let failed = visitor.post(&format!("/console/servers/{path}"), &[]).await;
        failed.expect(status);
        attributes(failed.text.split("<main").nth(1).unwrap(), "href")
    };
    assert_eq!(links("up/refresh", 409).await, ["/console/servers", "/console/servers/up"]);
    assert_eq!(links("none/refresh", 404).await, ["/console/servers"]);
    assert_eq!(links("up/tools/none/block", 404).await, ["/console/servers", "/console/servers/up"]);
    tenant.platform.patch("/api/v1/servers/up", &json!({"enabled": true})).await.expect(200);
    let foreign = visitor.send(visitor.form("/console/servers/up/disable", &[])).await;
    foreign.expect(403);
    visitor.get("/console/servers/none").await.expect(404);
    assert_eq!(tenant.platform.get("/api/v1/servers/up").await.expect(200)["enabled"], true);
}

#[tokio::test]
async fn a_changed_tool_is_reviewed_and_approved_by_its_pin() {
    let stage = Stage::start().await;
    let tenant = stage.tenant("acme").await;
    let visitor = Visitor::with_key(&stage.gateway, &tenant.admin().await).await;
    let upstream = Upstream::handshake(vec![titled("before"), Tool::reads("other")]).await;
    tenant.add("up", &upstream).await;
    let page = visitor.get("/console/servers/up?tool=t").await.text;
    assert!(page.contains("approved") && form_to(&page, "/approve").is_none(), "{page}");

    offer(&tenant, &upstream, vec![titled("after"), Tool::reads("other")]).await;
    let released = visitor.get("/console/servers/up/release").await;
    released.expect(409);
    assert!(released.text.contains("up is not in quarantine."), "{released:?}");
    assert!(attributes(&released.text, "href").contains(&"/console/servers/up".to_owned()), "{released:?}");
    let list = visitor.get("/console/servers").await.text;
    assert!(list.contains("?state=waiting#tools\"><strong>1 to review</strong>"), "{list}");
    let waiting = visitor.get("/console/servers/up?state=waiting").await.text;
    let tools = |page: &str| attributes(page, "href").iter().filter(|href| href.contains("?tool=")).count();
    assert!(
        waiting.contains("Tools to review") && waiting.contains(">t</a>") && !waiting.contains(">other</a>"),
        "{waiting}"
    );
    assert_eq!(hidden(&waiting, "state"), "waiting");
    assert!(tools(&visitor.get("/console/servers/up").await.text) > tools(&waiting));
    visitor.get("/console/servers/up?state=none").await.expect(400);
    let server = visitor.get("/console/servers/up").await.text;
    assert!(attributes(&server, "href").contains(&"/console/servers/up?tool=t".to_owned()), "{server}");
    let page = visitor.get("/console/servers/up?tool=t").await.text;
    for shown in [
        "changed",
        "/annotations/title",
        "&#34;before&#34;",
        "&#34;after&#34;",
        "&#34;readOnlyHint&#34;: true",
    ] {
        assert!(page.contains(shown), "{shown}: {page}");
    }
    let pin = tool(&tenant).await["pin"].as_str().unwrap().to_owned();
    let action = form_to(&page, "/approve").unwrap();
    assert!(page.contains(&format!("name=\"pin\" value=\"{pin}\"")), "{page}");
    let named = ("tool", &*hidden(&page, "tool"));
    // what was looked at is not what the server offers by now
    offer(&tenant, &upstream, vec![titled("later"), Tool::reads("other")]).await;
    let late = visitor.post(&action, &[named, ("pin", &pin)]).await;
    late.expect(409);
    assert!(attributes(&late.text, "href").contains(&"/console/servers/up?tool=t".to_owned()), "{late:?}");
    assert!(late.text.contains(">The tool t</a>"), "{late:?}");
    visitor.post(&action, &[named, ("pin", "v1:junk")]).await.expect(400);
    assert_eq!(tool(&tenant).await["state"], "changed");
    let pin = tool(&tenant).await["pin"].as_str().unwrap().to_owned();
    let done = visitor.post(&action, &[named, ("pin", &pin)]).await;
    assert_eq!(led_to(&done), (303, "/console/servers/up?tool=t"));
    let page = visitor.get(done.header("location")).await.text;
    assert_eq!(notice_on(&page), "The definition of t is approved.");
    assert!(page.contains("<link rel=\"canonical\" href=\"/console/servers/up?tool=t\">"), "{page}");
    assert_eq!(tool(&tenant).await["state"], "approved");
    let record = tenant.records("tool=tools.approve&source=console&status=success", 1).await.remove(0);
    let recorded: Value = serde_json::from_str(record["arguments"].as_str().unwrap()).unwrap();
    assert_eq!((&recorded["tool"], &recorded["body"]["pin"]), (&json!("t"), &json!(pin)));
    for field in ["", "%ff", "none"] {
        visitor.post("/console/servers/up/tools/block", &[("tool", field)]).await.expect(404);
    }

    for (verb, state, button, notice) in [
        ("block", "blocked", "/unblock", "t is blocked."),
        ("unblock", "approved", "/block", "The block of t is lifted. Its state is approved."),
    ] {
        let action = format!("/console/servers/up/tools/t/{verb}");
        let done = visitor.post(&action, &[]).await;
        assert_eq!(done.status, 303, "{done:?}");
        assert_eq!(tool(&tenant).await["state"], state);
        let page = visitor.get(done.header("location")).await.text;
        assert_eq!(notice_on(&page), notice);
        assert!(page.contains(&format!("\">{state}</span>")) && form_to(&page, button).is_some(), "{page}");
    }
    // the buttons of the list lead back to it
    let server = visitor.get("/console/servers/up?limit=1&cursor=b3RoZXI").await.text;
    assert_eq!((&*hidden(&server, "from"), &*hidden(&server, "cursor")), ("list", "b3RoZXI"), "{server}");
    for (verb, notice) in
        [("block", "t is blocked."), ("unblock", "The block of t is lifted. Its state is approved.")]
    {
        let fields = [named, ("from", "list"), ("cursor", "b3RoZXI")];
        let done = visitor.post(&format!("/console/servers/up/tools/{verb}"), &fields).await;
        assert_eq!(led_to(&done), (303, "/console/servers/up?cursor=b3RoZXI"));
        let page = visitor.get(done.header("location")).await.text;
        assert_eq!(notice_on(&page), notice);
        assert!(
            page.contains("<link rel=\"canonical\" href=\"/console/servers/up?cursor=b3RoZXI\">"),
            "{page}"
        );
    }
    // to the row of the button
    let fields = [named, ("from", "list"), ("row", "7")];
    let done = visitor.post("/console/servers/up/tools/block", &fields).await;
    assert!(done.header("location").ends_with("#t-7"), "{done:?}");
    assert_eq!(hidden(&server, "row"), "0", "{server}");
    let fields = [named, ("from", "list"), ("row", "7\"x")];
    let done = visitor.post("/console/servers/up/tools/unblock", &fields).await;
    assert!(!done.header("location").contains('#'), "{done:?}");
    let fields = [named, ("from", "list"), ("state", "waiting"), ("cursor", "b3RoZXI")];
    for verb in ["block", "unblock"] {
        let done = visitor.post(&format!("/console/servers/up/tools/{verb}"), &fields).await;
        assert_eq!(led_to(&done), (303, "/console/servers/up?state=waiting&cursor=b3RoZXI"));
    }
    for (path, status) in [("t/explode", 404), ("none/block", 404), ("%00/block", 404)] {
        visitor.post(&format!("/console/servers/up/tools/{path}"), &[]).await.expect(status);
    }
    visitor.get("/console/servers/up?tool=none").await.expect(404);
    visitor.get("/console/servers/up?tool=%00").await.expect(400);
}

#[tokio::test]
async fn a_release_approves_what_its_question_says() {
    let stage = Stage::start().await;
    let tenant = stage.tenant("acme").await;
    let visitor = Visitor::with_key(&stage.gateway, &tenant.admin().await).await;
    let upstream = Upstream::handshake(vec![titled("one")]).await;
    let body = json!({"name": "up", "kind": "http", "url": upstream.url});
    tenant.operator().await.post("/api/v1/servers", &body).await.expect(201);
    let asked = async || {
        let page = visitor.get("/console/servers/up").await.text;
        let question = visitor.get("/console/servers/up/release").await;
        question.expect(200);
        assert_harmless(&question.text);
        (page, question.text)
    };
    let release = async |still: &str| {
        let done = visitor.post("/console/servers/up/unquarantine", &[]).await;
        let page = visitor.get(done.header("location")).await.text;
        assert_eq!(notice_on(&page), format!("up is released from quarantine.{still}"));
    };

    // the first listing of a released server is its baseline
    let (page, question) = asked().await;
    assert!(page.contains("Releasing it approves every definition that waits, as it is then."), "{page}");
    assert!(
        question.contains("The definition of 1 tool that waits (t) is approved, as offered"),
        "{question}"
    );
    release("").await;
    assert_eq!(tool(&tenant).await["state"], "approved");

    // later ones are not
    offer(&tenant, &upstream, vec![titled("two")]).await;
    visitor.post("/console/servers/up/quarantine", &[]).await.expect(303);
    let (page, question) = asked().await;
    assert!(page.contains("Releasing it approves nothing: tools that wait"), "{page}");
    let waits =
        "1 tool (t) still waits after that: it is approved on its page. Agents can call its approved tools";
    assert!(question.contains(waits), "{question}");
    release(" 1 tool still waits: it is approved on its page.").await;
    assert_eq!(tool(&tenant).await["state"], "changed");

    // but where changes are approved automatically
    visitor.post("/console/servers/up/quarantine", &[]).await.expect(303);
    tenant.platform.patch("/api/v1/servers/up", &json!({"auto_approve": true})).await.expect(200);
    let (page, question) = asked().await;
    assert!(page.contains("Releasing it approves every definition that waits"), "{page}");
    assert!(
        question.contains("The definition of 1 tool that waits (t) is approved, as offered"),
        "{question}"
    );
    release("").await;
    assert_eq!(tool(&tenant).await["state"], "approved");
}

#[tokio::test]
async fn roles_see_and_change_as_over_the_api() {
    let stage = Stage::start().await;
    let tenant = stage.tenant("acme").await;
    let upstream = Upstream::handshake(vec![titled("before")]).await;
    tenant.add("up", &upstream).await;
    let auditor = Visitor::with_key(&stage.gateway, &tenant.auditor().await).await;
    for path in ["/console/servers", "/console/servers/up", "/console/servers/up?tool=t"] {
        let page = auditor.get(path).await;
        page.expect(200);
        let forms = attributes(&page.text, "action");
        assert_eq!(forms, ["/console/logout"], "{path}: {page:?}");
    }
    let acts = [
        "up/disable",
        "up/quarantine",
        "up/unquarantine",
        "up/refresh",
        "up/tools/t/block",
        "up/tools/t/approve",
    ];
    for act in acts {
        auditor.post(&format!("/console/servers/{act}"), &[]).await.expect(403);
    }
    let refused = async || {
        let query = "/api/v1/activity?type=admin&source=console&status=blocked";
        tenant.platform.items(query).await.iter().filter(|item| item["server"] == "up").count()
    };
    settle(acts.len(), SOON, refused).await;
    for low in [tenant.agent().await, tenant.approver().await] {
        let visitor = Visitor::with_key(&stage.gateway, &low).await;
        for path in ["/console/servers", "/console/servers/up", "/console/servers/none"] {
            let page = visitor.get(path).await;
            page.expect(403);
            assert!(page.text.contains("Your role, "), "{page:?}");
            assert!(page.text.contains("It takes the role auditor, operator or admin."), "{page:?}");
            assert!(!attributes(&page.text, "href").contains(&"/console/servers".to_owned()));
        }
        visitor.post("/console/servers/up/disable", &[]).await.expect(403);
    }
    // an operator releases and approves nothing of its own
    let operator = tenant.operator().await;
    let body = json!({"name": "own", "kind": "http", "url": upstream.url});
    operator.post("/api/v1/servers", &body).await.expect(201);
    let visitor = Visitor::with_key(&stage.gateway, &operator).await;
    let page = visitor.post("/console/servers/own/unquarantine", &[]).await;
    page.expect(403);
    assert!(page.text.contains("somebody else has to approve it"), "{page:?}");
    visitor.get("/console/servers/own/release").await.expect(403);
    let other = Visitor::with_key(&stage.gateway, &tenant.operator().await).await;
    other.post("/console/servers/own/unquarantine", &[]).await.expect(303);
    tenant.platform.post("/api/v1/servers/own/tools/t/block", &json!({})).await.expect(200);
    let [here, there] = [&visitor, &other].map(|visitor| visitor.get("/console/servers/own"));
    let (here, there) = (here.await.text, there.await.text);
    assert!(
        form_to(&there, "/tools/unblock").is_some() && form_to(&here, "/tools/unblock").is_none(),
        "{here}"
    );
    // another tenant's server does not exist
    let stranger = Visitor::with_key(&stage.gateway, &stage.tenant("other").await.admin().await).await;
    stranger.get("/console/servers/up").await.expect(404);
    stranger.post("/console/servers/up/disable", &[]).await.expect(404);
    let platform = Visitor::with_key(&stage.gateway, &stage.platform()).await;
    platform.get("/console/servers").await.expect(403);
    platform.post("/console/servers/up/disable", &[]).await.expect(403);
    assert_eq!(tenant.platform.get("/api/v1/servers/up").await.expect(200)["enabled"], true);
}

#[tokio::test]
async fn hostile_tools_stay_texts_and_can_be_decided_about() {
    let stage = Stage::start().await;
    let tenant = stage.tenant("acme").await;
    let visitor = Visitor::with_key(&stage.gateway, &tenant.admin().await).await;
    let tools = |version: usize| {
        let tool = |text: &&str| {
            let text = *text;
            let definition = json!({"name": text, "description": text, "title": format!("{text}{version}"),
                "inputSchema": {"type": "object", "properties": {text: {"description": text}}}});
            Tool::raw(text, &definition.to_string())
        };
        HOSTILE.iter().map(tool).collect::<Vec<_>>()
    };
    let upstream = Upstream::handshake(tools(1)).await;
    tenant.add("up", &upstream).await;
    offer(&tenant, &upstream, tools(2)).await;
    let page = visitor.get("/console/servers/up").await.text;
    assert_harmless(&page);
    let links = attributes(&page, "href");
    for text in HOSTILE {
        assert!(page.contains(&escaped(text)), "{text}: {page}");
        let encoded: String = url::form_urlencoded::byte_serialize(text.as_bytes()).collect();
        let link = format!("/console/servers/up?tool={encoded}");
        assert!(links.contains(&link), "{link}: {links:?}");
        let page = visitor.get(&link).await.text;
        assert_harmless(&page);
        assert!(
            page.contains(&escaped(&format!("{text}1"))) && page.contains(&escaped(&format!("{text}2"))),
            "{page}"
        );
        let (pin, tool) = (hidden(&page, "pin"), hidden(&page, "tool"));
        for (verb, fields) in
            [("approve", vec![("tool", &*tool), ("pin", &pin)]), ("block", vec![("tool", &tool)])]
        {
            let action = form_to(&page, &format!("/{verb}")).unwrap();
            // browsers resolve `..`, however it is spelt, before they send anything
            assert_eq!(action, format!("/console/servers/up/tools/{verb}"), "{text}");
            let done = visitor.post(&action, &fields).await;
            assert_eq!(led_to(&done), (303, link.as_str()), "{text}");
            assert_harmless(&visitor.get(done.header("location")).await.text);
        }
    }
    let tools = tenant.platform.items("/api/v1/servers/up/tools").await;
    assert_eq!(tools.iter().filter(|tool| tool["state"] == "blocked").count(), HOSTILE.len(), "{tools:?}");
}

#[tokio::test]
async fn servers_and_tools_come_in_pages() {
    let stage = Stage::start().await;
    let tenant = stage.tenant("acme").await;
    let visitor = Visitor::with_key(&stage.gateway, &tenant.auditor().await).await;
    let upstream = Upstream::handshake(upstream::zoo()).await;
    for name in ["a", "b", "c"] {
        tenant.add(name, &upstream).await;
    }
    let walked = async |start: &str, part: &str| {
        let (mut found, mut next) = (Vec::new(), Some(start.to_owned()));
        while let Some(path) = next {
            let page = visitor.get(&path).await;
            page.expect(200);
            let cells =
                page.text.split(">\n<td><a href=\"").skip(1).filter_map(|rest| rest.split('"').next());
            found.extend(cells.filter_map(|href| href.strip_prefix(part).map(str::to_owned)));
            let links = page.text.split("<a rel=\"next\"").nth(1).map(|rest| attributes(rest, "href"));
            next = links.and_then(|links| links.into_iter().next());
        }
        found
    };
    assert_eq!(walked("/console/servers?limit=2", "/console/servers/").await, ["a", "b", "c"]);
    let tools = walked("/console/servers/a?limit=4", "/console/servers/a?tool=").await;
    assert_eq!(tools, ["half", "mild", "plain", "reader", "wiper", "writer"]);
    for query in ["limit=0", "cursor=!", "colour=red"] {
        visitor.get(&format!("/console/servers?{query}")).await.expect(400);
        visitor.get(&format!("/console/servers/a?{query}")).await.expect(400);
    }
}

#[tokio::test]
async fn impossible_acts_are_for_roles_and_recorded_as_others_are() {
    let stage = Stage::start().await;
    let tenant = stage.tenant("acme").await;
    let acts = [
        ("servers/NO%20NAME/disable", "servers.disable"),
        ("servers/NO%20NAME/tools/block", "tools.block"),
        ("servers/NO%20NAME/offers/block", "resources.block"),
        ("consent/x/decision", "consent.decide"),
        ("keys/x/rotate", "keys.rotate"),
        ("keys/x/revoke", "keys.revoke"),
    ];
    let (admin, auditor) = (tenant.admin().await, tenant.auditor().await);
    for (api, status, is_missing) in [(&admin, 404, true), (&auditor, 403, false)] {
        let visitor = Visitor::with_key(&stage.gateway, api).await;
        for (path, what) in acts {
            visitor.post(&format!("/console/{path}"), &[]).await.expect(status);
            let query = format!("source=console&tool={what}&key={}", api.id);
            let record = tenant.records(&query, 1).await.remove(0);
            assert_eq!((&record["status"], &record["server"]), (&json!("blocked"), &Value::Null), "{record}");
            assert_eq!(record["error_code"] == "not_found", is_missing, "{record}");
        }
    }
    let platform = Visitor::with_key(&stage.gateway, &stage.platform()).await;
    platform.post("/console/keys/create", &[("role", "agent")]).await.expect(403);
    platform.post("/console/tenants/NO%20NAME/enter", &[]).await.expect(404);
    for what in ["keys.create", "console.enter_tenant"] {
        let path = format!("/api/v1/activity?source=console&tool={what}");
        let statuses = async || {
            let items = stage.platform().items(&path).await;
            items.iter().map(|item| item["status"].clone()).collect::<Vec<_>>()
        };
        settle(vec![json!("blocked")], SOON, statuses).await;
    }
}
