//! Tools that are tried at the console.

use std::time::Duration;

use serde_json::{Value, json};

use super::live;
use super::markup::{HOSTILE, assert_harmless, attributes, escaped, form_to, hidden};
use crate::support::{Stage, Tenant, Tool, Upstream, Visitor, settle, upstream};

const SOON: Duration = Duration::from_secs(10);

/// A tool with an argument of each kind.
fn typed() -> Tool {
    let schema = json!({"type": "object", "required": ["text"], "properties": {
        "text": {"type": "string", "description": "Words <b>"}, "n": {"type": "integer"},
        "on": {"type": "boolean"}, "level": {"enum": ["low", "high"]},
        "at": {"type": "object", "properties": {"city": {"type": "string"}}},
        "list": {"type": "array", "items": {"type": "number"}}}});
    let definition = json!({"name": "typed", "description": "Says it again", "inputSchema": schema,
        "annotations": {"readOnlyHint": true}});
    Tool::raw("typed", &definition.to_string())
}

/// Replaces the policy of a tenant.
pub(super) async fn set_policy(tenant: &Tenant, mode: &str, rules: Value) {
    let version = tenant.platform.get("/api/v1/policy").await.expect(200)["version"].clone();
    let body = json!({"version": version, "mode": mode, "rules": rules});
    tenant.platform.ask(reqwest::Method::PUT, "/api/v1/policy", Some(&body)).await.expect(200);
}

/// The page of a tool.
fn path(tool: &str) -> String {
    let tool: String = url::form_urlencoded::byte_serialize(tool.as_bytes()).collect();
    format!("/console/try?tool={tool}")
}

#[tokio::test]
async fn a_form_is_made_from_the_schema_and_calls_as_an_agent_does() {
    let stage = Stage::start().await;
    let tenant = stage.tenant("acme").await;
    let upstream = Upstream::handshake(vec![typed(), Tool::destroys("wiper")]).await;
    tenant.add("up", &upstream).await;
    let agent = tenant.agent().await;
    let visitor = Visitor::with_key(&stage.gateway, &agent).await;
    let list = visitor.get("/console/try").await.text;
    for tool in ["up:typed", "up:wiper"] {
        assert!(attributes(&list, "href").contains(&path(tool)), "{list}");
    }
    assert!(list.contains("Says it again"), "{list}");
    let found = visitor.get("/console/try?contains=TYP").await.text;
    assert!(found.contains("up:typed") && !found.contains("up:wiper"), "{found}");
    let first = visitor.get("/console/try?limit=1").await.text;
    let next = attributes(first.split("<a rel=\"next\"").nth(1).unwrap(), "href").remove(0);
    assert!(visitor.get(&next).await.text.contains("up:wiper"));

    let page = visitor.get(&path("up:typed")).await.text;
    assert_harmless(&page);
    let names = attributes(&page, "name");
    for name in
        ["arg.text", "arg.n", "arg.on", "arg.level", "arg.at.city", "arg.list", "args", "tool_variant"]
    {
        assert!(names.contains(&name.to_owned()), "{name}: {names:?}");
    }
    assert!(page.contains("This call would run.") && page.contains("Words &#60;b&#62;"), "{page}");
    assert!(page.contains("value=\"call_tool_read\" selected"), "{page}");
    assert!(page.contains("placeholder=\"[1]\""), "an example of the schema: {page}");
    // its definition, for who may see it
    let definition = "/console/servers/up?tool=typed".to_owned();
    assert!(!attributes(&page, "href").contains(&definition), "{page}");
    let operator = Visitor::with_key(&stage.gateway, &tenant.operator().await).await;
    let theirs = operator.get(&path("up:typed")).await.text;
    assert!(attributes(&theirs, "href").contains(&definition), "{theirs}");
    operator.get(&definition).await.expect(200);
    assert_eq!(upstream.counts().calls, 0);
    let (action, tool) = (form_to(&page, "/call").unwrap(), hidden(&page, "tool"));
    let base = [
        ("tool", tool.as_str()),
        ("tool_variant", "call_tool_read"),
        ("arg.n", "7"),
        ("arg.on", "true"),
        ("arg.level", "\"high\""),
        ("arg.at.city", "Rome"),
        ("arg.list", "[1e400, 2]"),
        ("reason", "because"),
    ];
    let send = async |more: &[(&str, &str)]| visitor.post(&action, &[&base[..], more].concat()).await;
    // what a check would refuse is said before
    let foreseen = send(&[("step", "check")]).await;
    foreseen.expect(200);
    assert!(
        foreseen.text.contains("This call would be refused.") && foreseen.text.contains("invalid_arguments"),
        "{foreseen:?}"
    );
    assert!(foreseen.text.contains("A needed field is empty: text."), "{foreseen:?}");
    assert_eq!(foreseen.text.matches("aria-invalid").count(), 1, "{foreseen:?}");
    let fine = send(&[("step", "check"), ("arg.text", "a\r\n\"b\"")]).await;
    assert!(fine.text.contains("This call would run."), "{fine:?}");
    assert_eq!(upstream.counts().calls, 0, "a look runs nothing");
    assert_eq!(tenant.platform.items("/api/v1/activity?type=tool_call").await.len(), 0);

    let done = send(&[("step", "call"), ("arg.text", "a\r\n\"b\"")]).await;
    done.expect(200);
    assert_harmless(&done.text);
    let call = upstream.calls().remove(0);
    assert_eq!(
        call.arguments,
        r#"{"at":{"city":"Rome"},"level":"high","list":[1e400, 2],"n":7,"on":true,"text":"a\n\"b\""}"#
    );
    assert!(done.text.contains("<span class=\"tone good\">done</span>"), "{done:?}");
    // the form stays filled in
    assert!(done.text.contains("value=\"7\"") && done.text.contains(">\nRome</textarea>"), "{done:?}");
    let record = tenant.records("type=tool_call&source=console", 1).await.remove(0);
    assert_eq!(
        (&record["key_id"], &record["intent"]["reason"], &record["intent_declared"]),
        (&json!(agent.id), &json!("because"), &json!(true)),
        "{record}"
    );
    let link = attributes(&done.text, "href").into_iter().find(|href| href.contains("request_id=")).unwrap();
    let shown = visitor.get(&link).await.text;
    assert!(
        attributes(&shown, "href").contains(&format!("/console/activity/{}", record["id"].as_str().unwrap())),
        "{shown}"
    );
    // all arguments as JSON go before the fields
    send(&[("step", "call"), ("args", r#"{"text": "json" , "x":18446744073709551616}"#)]).await.expect(200);
    assert_eq!(upstream.calls()[1].arguments, r#"{"text": "json" , "x":18446744073709551616}"#);
    for (name, value, says) in [
        ("args", r#"{"a":1,"a":2}"#, "duplicate"),
        ("args", "[1]", "All arguments as JSON: must be an object, such as {&#34;path&#34;: &#34;/a&#34;}."),
        ("args", "{\"é\" 1}", "All arguments as JSON: this is not JSON (at character 6)."),
        ("arg.list", "[1", "list: must be JSON, such as"),
    ] {
        let fields: Vec<(&str, &str)> = base
            .iter()
            .copied()
            .filter(|(own, _)| *own != name)
            .chain([(name, value), ("arg.text", "x"), ("step", "call")])
            .collect();
        let refused = visitor.post(&action, &fields).await;
        refused.expect(400);
        assert!(refused.text.contains(says), "{refused:?}");
        let is_marked = refused.text.contains("<textarea id=\"t-args\" aria-invalid=\"true\"");
        assert_eq!(is_marked, name == "args", "{refused:?}");
    }
    assert_eq!(upstream.counts().calls, 2);
}

#[tokio::test]
async fn what_would_be_refused_or_asked_is_said_and_then_so() {
    let stage = Stage::start().await;
    let tenant = stage.tenant("acme").await;
    let upstream = Upstream::handshake(upstream::zoo()).await;
    tenant.add("up", &upstream).await;
    let visitor = Visitor::with_key(&stage.gateway, &tenant.agent().await).await;
    let send = async |tool: &str, variant: &str, step: &str| {
        let page = visitor.get(&path(tool)).await.text;
        let fields = [("tool", &*hidden(&page, "tool")), ("tool_variant", variant), ("step", step)];
        visitor.post("/console/tools/call", &fields).await
    };
    // the check that contradicts the annotations
    for step in ["check", "call"] {
        let page = send("up:wiper", "call_tool_read", step).await;
        assert!(page.text.contains("server_mismatch"), "{step}: {page:?}");
    }
    assert_eq!(upstream.counts().calls, 0);
    let rules = json!([{"id": "no-wipes", "effect": "deny", "match": {"tool": "up:wiper"}, "message": "Nobody wipes"}]);
    set_policy(&tenant, "always_ask", rules).await;
    let page = visitor.get(&path("up:wiper")).await.text;
    assert!(page.contains("This call would be refused.") && page.contains("Nobody wipes"), "{page}");
    let page = send("up:wiper", "call_tool_destructive", "call").await;
    assert!(page.text.contains("policy_denied") && page.text.contains("Nobody wipes"), "{page:?}");
    let page = visitor.get(&path("up:writer")).await.text;
    assert!(page.contains("This call would ask, unless it has been allowed already: "), "{page}");
    assert!(page.contains("The request waits 10 min for an answer."), "{page}");
    assert_eq!(tenant.platform.items("/api/v1/consent").await.len(), 0, "a look asks nobody");
    let page = send("up:writer", "call_tool_write", "call").await;
    page.expect(200);
    assert!(page.text.contains("<span class=\"tone open\">waits for a person</span>"), "{page:?}");
    let id = tenant.platform.items("/api/v1/consent").await.remove(0)["id"].as_str().unwrap().to_owned();
    assert!(
        attributes(&page.text, "href").contains(&format!("/console/permissions?request={id}")),
        "{page:?}"
    );
    assert_eq!(upstream.counts().calls, 0);
    let follow = format!("{}&asked={id}", path("up:writer"));
    assert!(attributes(&page.text, "href").contains(&follow), "{page:?}");
    let followed = visitor.get(&follow).await.text;
    assert!(followed.contains("waits for a person") && followed.contains("Look again"), "{followed}");
    assert_harmless(&followed);
    for (visitor, path) in [
        (&visitor, format!("{}&asked={id}", path("up:reader"))),
        (&visitor, format!("{}&asked=x", path("up:writer"))),
        (&Visitor::with_key(&stage.gateway, &tenant.agent().await).await, follow.clone()),
    ] {
        visitor.get(&path).await.expect(404);
    }
    let eva = tenant.key(&json!({"role": "approver", "owner": "eva"})).await;
    let decision = json!({"decision": "allow_once"});
    eva.post(&format!("/api/v1/consent/{id}/decision"), &decision).await.expect(200);
    let followed = visitor.get(&follow).await.text;
    assert!(
        followed.contains("Allowed by eva, over rest") && followed.contains("Send the form again"),
        "{followed}"
    );
    assert!(!followed.contains("Look again"), "{followed}");
    let page = send("up:writer", "call_tool_write", "call").await;
    assert!(page.text.contains("<span class=\"tone good\">done</span>"), "{page:?}");
    assert_eq!(upstream.counts().calls, 1);
    // a denial says whose it is
    send("up:writer", "call_tool_write", "call").await;
    let id = tenant.platform.items("/api/v1/consent?state=pending").await.remove(0)["id"]
        .as_str()
        .unwrap()
        .to_owned();
    let decision = json!({"decision": "reject_once", "comment": "not today"});
    eva.post(&format!("/api/v1/consent/{id}/decision"), &decision).await.expect(200);
    let page = send("up:writer", "call_tool_write", "call").await;
    assert!(page.text.contains("Denied by eva, over rest") && page.text.contains("not today"), "{page:?}");
}

#[tokio::test]
async fn a_call_that_waits_is_followed_by_its_page() {
    let stage = Stage::start().await;
    let tenant = stage.tenant("acme").await;
    let upstream = Upstream::handshake(upstream::zoo()).await;
    tenant.add("up", &upstream).await;
    set_policy(&tenant, "always_ask", json!([])).await;
    let visitor = Visitor::with_key(&stage.gateway, &tenant.agent().await).await;
    let mut browser = live::browser(&visitor).await;
    browser.open(&format!("{}{}", visitor.base, path("up:writer"))).await;
    browser.follow("document.querySelector('button[value=call]').click()").await;
    let says = "document.querySelector('[data-live] .tone').textContent";
    assert_eq!(browser.evaluate(says).await, json!("waits for a person"));
    browser.evaluate("document.querySelector('#t-reason').value = 'typed meanwhile'").await;
    let id = tenant.platform.items("/api/v1/consent").await.remove(0)["id"].as_str().unwrap().to_owned();
    let eva = tenant.key(&json!({"role": "approver", "owner": "eva"})).await;
    let decision = json!({"decision": "allow_once"});
    eva.post(&format!("/api/v1/consent/{id}/decision"), &decision).await.expect(200);
    live::shows(&mut browser, says, json!("Allowed by eva, over rest")).await;
    let typed = browser.evaluate("document.querySelector('#t-reason').value").await;
    assert_eq!(typed, json!("typed meanwhile"), "the form stays");
    browser.close().await;
}

#[tokio::test]
async fn tools_are_tried_in_the_roles_and_scopes_of_calls() {
    let stage = Stage::start().await;
    let tenant = stage.tenant("acme").await;
    let upstream = Upstream::handshake(upstream::zoo()).await;
    tenant.add("up", &upstream).await;
    let field = "up%3Areader";
    let fields = [("tool", field), ("tool_variant", "call_tool_read"), ("step", "call")];
    for low in [tenant.auditor().await, tenant.approver().await] {
        let visitor = Visitor::with_key(&stage.gateway, &low).await;
        for path in ["/console/try".to_owned(), path("up:reader")] {
            let page = visitor.get(&path).await;
            page.expect(403);
            assert!(!attributes(&page.text, "href").contains(&"/console/try".to_owned()));
        }
        visitor.post("/console/tools/call", &fields).await.expect(403);
        visitor.post("/console/tools/call", &[fields[0], fields[1], ("step", "check")]).await.expect(403);
        let found = async || {
            let items = tenant
                .platform
                .items(&format!("/api/v1/activity?source=console&type=tool_call&key={}", low.id))
                .await;
            items.iter().map(|item| item["error_code"].clone()).collect::<Vec<_>>()
        };
        settle(vec![json!("forbidden")], SOON, found).await;
    }
    for high in [tenant.agent().await, tenant.operator().await, tenant.admin().await] {
        let visitor = Visitor::with_key(&stage.gateway, &high).await;
        visitor.get(&path("up:reader")).await.expect(200);
        visitor.post("/console/tools/call", &fields).await.expect(200);
    }
    assert_eq!(upstream.counts().calls, 3);
    // a definition that nobody has approved is no more shown here than in lists
    let agent = Visitor::with_key(&stage.gateway, &tenant.agent().await).await;
    let block = json!({});
    tenant.platform.post("/api/v1/servers/up/tools/reader/block", &block).await.expect(200);
    settle(404, SOON, || async { agent.get(&path("up:reader")).await.status }).await;
    tenant.platform.post("/api/v1/servers/up/quarantine", &block).await.expect(200);
    settle(404, SOON, || async { agent.get(&path("up:writer")).await.status }).await;
    tenant.platform.post("/api/v1/servers/up/unquarantine", &block).await.expect(200);
    settle(200, SOON, || async { agent.get(&path("up:writer")).await.status }).await;
    // why a policy decides is for those who may see policies
    let page = agent.get(&path("up:writer")).await.text;
    assert!(!page.contains("Risk: "), "{page}");
    let admin = Visitor::with_key(&stage.gateway, &tenant.admin().await).await;
    assert!(admin.get(&path("up:writer")).await.text.contains("Risk: "));
    // a key that does not see a tool does not learn of it
    let narrow = tenant.agent_with(json!({"allowed_tools": ["up:writer"], "max_operation": "write"})).await;
    let visitor = Visitor::with_key(&stage.gateway, &narrow).await;
    let list = visitor.get("/console/try").await.text;
    assert!(list.contains("up:writer") && !list.contains("up:reader"), "{list}");
    for tool in ["up:reader", "up:none", "none:none", "\u{0}"] {
        assert!(visitor.get(&path(tool)).await.status >= 400, "{tool}");
    }
    let missing = visitor.post("/console/tools/call", &fields).await;
    missing.expect(404);
    let record = tenant.records(&format!("type=tool_call&key={}", narrow.id), 1).await.remove(0);
    assert_eq!(
        (&record["error_code"], &record["source"]),
        (&json!("not_found"), &json!("console")),
        "{record}"
    );
    for (fields, status) in [
        (vec![("tool", "up%3Awriter")], 400),
        (vec![("tool", "up%3Awriter"), ("tool_variant", "call_tool_all")], 400),
        (vec![("tool", "%ff"), ("tool_variant", "call_tool_read"), ("step", "check")], 404),
    ] {
        visitor.post("/console/tools/call", &fields).await.expect(status);
    }
    visitor.post("/console/tools/explode", &fields).await.expect(404);
    visitor.send(visitor.form("/console/tools/call", &fields)).await.expect(403);
    let stranger = Visitor::with_key(&stage.gateway, &stage.tenant("other").await.agent().await).await;
    stranger.get(&path("up:reader")).await.expect(404);
    stranger.post("/console/tools/call", &fields).await.expect(404);
    let platform = Visitor::with_key(&stage.gateway, &stage.platform()).await;
    platform.get("/console/try").await.expect(403);
    platform.post("/console/tools/call", &fields).await.expect(403);
    assert_eq!(upstream.counts().calls, 3);
}

#[tokio::test]
async fn the_page_of_a_tool_offers_a_try_to_those_who_may_call_it() {
    let stage = Stage::start().await;
    let tenant = stage.tenant("acme").await;
    let upstream = Upstream::handshake(upstream::zoo()).await;
    tenant.add("up", &upstream).await;
    let settings = json!({"allowed_tools": ["up:reader", "up:wiper"], "max_operation": "write"});
    let narrow = tenant.key(&json!({"role": "admin", "settings": settings})).await;
    let [wide, narrow] = [
        Visitor::with_key(&stage.gateway, &tenant.admin().await).await,
        Visitor::with_key(&stage.gateway, &narrow).await,
    ];
    let offers = async |visitor: &Visitor, name: &str| {
        let page = visitor.get(&format!("/console/servers/up?tool={name}")).await;
        page.expect(200);
        attributes(&page.text, "href").contains(&path(&format!("up:{name}")))
    };
    for (name, is_narrow) in [("reader", true), ("writer", false), ("wiper", false)] {
        for (visitor, expected) in [(&wide, true), (&narrow, is_narrow)] {
            assert_eq!(offers(visitor, name).await, expected, "{name}");
            let tried = visitor.get(&path(&format!("up:{name}"))).await;
            assert_eq!(tried.status == 200, expected, "{name}: {tried:?}");
        }
    }
    tenant.platform.post("/api/v1/servers/up/quarantine", &json!({})).await.expect(200);
    assert!(!offers(&wide, "reader").await, "nobody calls tools of a server in quarantine");
}

#[tokio::test]
async fn a_result_that_is_loaded_again_calls_nothing() {
    let stage = Stage::start().await;
    let tenant = stage.tenant("acme").await;
    let upstream = Upstream::handshake(upstream::zoo()).await;
    tenant.add("up", &upstream).await;
    let visitor = Visitor::with_key(&stage.gateway, &tenant.agent().await).await;
    let mut browser = live::browser(&visitor).await;
    browser.open(&format!("{}{}", visitor.base, path("up:writer"))).await;
    browser.follow("document.querySelector('button[value=call]').click()").await;
    let says = "document.querySelector('main').innerText";
    let result = browser.evaluate(says).await;
    assert!(result.as_str().unwrap().contains("What came of it"), "{result}");
    assert_eq!(upstream.counts().calls, 1);
    // the address is one to pass on
    let place = browser.evaluate("location.pathname + location.search").await;
    assert_eq!(place, json!(path("up:writer")));
    browser.reload().await;
    let again = browser.evaluate(says).await;
    assert!(again.as_str().unwrap().contains("This call would run."), "{again}");
    assert_eq!(upstream.counts().calls, 1);
    browser.close().await;
}

#[tokio::test]
async fn hostile_tools_and_results_stay_texts() {
    let stage = Stage::start().await;
    let tenant = stage.tenant("acme").await;
    let tool = |text: &&str| {
        let text = *text;
        let schema = json!({"type": "object", "properties": {text: {"type": "string", "description": text}, "pick": {"enum": [text]},
            "in": {"type": "object", "properties": {text: {}}}}});
        let definition = json!({"name": text, "title": text, "description": text, "inputSchema": schema,
            "annotations": {"readOnlyHint": true}});
        let content = json!([{"type": "text", "text": text}, {"type": text, "x": text},
            {"type": "image", "data": "AAAA", "mimeType": text}, {"type": "resource_link", "uri": text},
            {"type": "resource", "resource": {"uri": text, "text": text}}]);
        let result = json!({"content": content, "structuredContent": {text: text}, "isError": true});
        Tool::raw(text, &definition.to_string()).returns(&result.to_string())
    };
    let upstream = Upstream::handshake(HOSTILE.iter().map(tool).collect()).await;
    tenant.add("up", &upstream).await;
    let visitor = Visitor::with_key(&stage.gateway, &tenant.agent().await).await;
    assert_harmless(&visitor.get("/console/try").await.text);
    for text in HOSTILE {
        let page = visitor.get(&path(&format!("up:{text}"))).await;
        page.expect(200);
        assert_harmless(&page.text);
        assert!(page.text.contains(&escaped(text)), "{text}: {page:?}");
        let names = attributes(&page.text, "name");
        assert!(names.iter().all(|name| name.is_ascii()), "{names:?}");
        // the field of the text, which is a small one
        let first = page.text.split("<textarea ").find(|part| part.contains("rows=\"2\"")).unwrap();
        let first = attributes(first, "name").remove(0);
        let fields = [
            ("tool", &*hidden(&page.text, "tool")),
            ("tool_variant", "call_tool_read"),
            (first.as_str(), "x"),
            ("step", "call"),
        ];
        let done = visitor.post("/console/tools/call", &fields).await;
        done.expect(200);
        assert_harmless(&done.text);
        assert!(
            done.text.contains("failed, says the tool") && done.text.contains("about 3 bytes: not shown"),
            "{done:?}"
        );
        assert!(!done.text.contains("AAAA"), "{done:?}");
        let sent: Value = serde_json::from_str(&upstream.calls().pop().unwrap().arguments).unwrap();
        assert_eq!(sent, json!({text: "x"}));
    }
}
