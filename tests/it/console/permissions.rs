//! Permission requests: who sees them, who decides them, and what is remembered.

use std::time::Duration;

use reqwest::Method;
use serde_json::{Value, json};

use super::markup::{HOSTILE, assert_harmless, attributes, escaped, form_to};
use crate::support::{Api, Mcp, Stage, Tenant, Tool, Upstream, Visitor, settle, upstream};

const SOON: Duration = Duration::from_secs(5);

/// A tenant with the zoo, whose every call asks; rules come first.
pub(super) async fn asking(stage: &Stage, rules: Value, tools: Vec<Tool>) -> (Tenant, Upstream) {
    let tenant = stage.tenant("acme").await;
    let upstream = Upstream::handshake(tools).await;
    tenant.add("zoo", &upstream).await;
    let version = tenant.platform.get("/api/v1/policy").await.expect(200)["version"].clone();
    let body = json!({"version": version, "mode": "always_ask", "rules": rules});
    tenant.platform.ask(Method::PUT, "/api/v1/policy", Some(&body)).await.expect(200);
    (tenant, upstream)
}

/// Calls the tool that writes, which asks; returns the id of the request.
pub(super) async fn asked(api: &Api, args: &Value) -> String {
    let refused = Mcp::bare(api).run("write", "zoo:writer", args).await.refused("consent_pending");
    refused["consent_id"].as_str().unwrap().to_owned()
}

pub(super) fn path_of(id: &str) -> String {
    format!("/console/permissions?request={id}")
}

pub(super) fn decision_of(id: &str) -> String {
    format!("/console/consent/{id}/decision")
}

/// Decisions that a page offers, as its buttons.
fn offers(page: &str) -> Vec<String> {
    let buttons = page.split("name=\"decision\"").skip(1);
    buttons.filter_map(|rest| attributes(rest, "value").into_iter().next()).collect()
}

#[tokio::test]
async fn a_request_is_allowed_here_and_its_call_runs_once() {
    let stage = Stage::start().await;
    let (tenant, upstream) = asking(&stage, json!([]), upstream::zoo()).await;
    let agent = tenant.key(&json!({"role": "agent", "owner": "robot", "name": "night run"})).await;
    let eva = tenant.key(&json!({"role": "approver", "owner": "eva"})).await;
    let visitor = Visitor::with_key(&stage.gateway, &eva).await;
    let empty = visitor.get("/console/permissions").await.text;
    assert!(
        empty.contains("Nothing waits for a person.") && empty.contains("Nothing is remembered."),
        "{empty}"
    );
    let args = json!({"path": "/a", "password": "hunter2hunter2"});
    let id = asked(&agent, &args).await;
    let page = visitor.get("/console/permissions").await.text;
    let shown = eva.get(&format!("/api/v1/consent/{id}")).await.expect(200);
    // the page says in a place of its own what the mask hides
    let reason = shown["reason"]
        .as_str()
        .unwrap()
        .strip_prefix("[redacted] hides up to 16 bytes of the arguments, which the call has. ");
    let reason = escaped(reason.unwrap_or_else(|| panic!("{shown}")));
    for part in [
        "robot",
        &agent.id,
        "key night run",
        "You may.",
        "zoo:writer",
        &reason,
        "Risk: moderate.",
        "the tool is not read-only",
        "[redacted] hides up to 16 bytes, which the call has.",
        "The tool writer of the test server",
        "/a",
        "pending, ends <time",
        &path_of(&id),
    ] {
        assert!(page.to_lowercase().contains(&part.to_lowercase()), "{part}: {page}");
    }
    assert!(!page.contains("hunter2"), "{page}");
    assert_eq!(offers(&page)[..2], ["reject_once", "allow_once"], "the one that refuses comes first");
    assert_harmless(&page);

    let action = form_to(&page, "/decision").unwrap();
    assert_eq!(action, decision_of(&id));
    let done = visitor.post(&action, &[("decision", "allow_once"), ("comment", "fine")]).await;
    let inbox = format!("/console/permissions?decided={id}");
    assert_eq!((done.status, done.header("location")), (303, inbox.as_str()));
    let page = visitor.get(&inbox).await.text;
    let notice = page.split("<p id=\"decided\"").nth(1).expect("a notice").split("</p>").next().unwrap();
    for part in ["Allowed once", "zoo:writer", "robot", "night run", &path_of(&id), "runs once"] {
        assert!(notice.contains(part), "{part}: {notice}");
    }
    assert!(page.contains("Nothing waits for a person."), "{page}");
    assert_harmless(&page);
    // others read no notice, and a wrong name is none
    let ana = Visitor::with_key(&stage.gateway, &tenant.admin().await).await;
    for (visitor, path) in [(&ana, &*inbox), (&visitor, "/console/permissions?decided=x")] {
        let page = visitor.get(path).await;
        page.expect(200);
        assert!(!page.text.contains("id=\"decided\""), "{page:?}");
    }
    let page = visitor.get(&path_of(&id)).await.text;
    for part in ["granted", "eva, over console", "fine", "the same call runs once"] {
        assert!(page.contains(part), "{part}: {page}");
    }
    assert!(offers(&page).is_empty() && form_to(&page, "/decision").is_none(), "{page}");
    assert_eq!(upstream.counts().calls, 0, "a decision runs nothing");
    Mcp::bare(&agent).run("write", "zoo:writer", &args).await.ok();
    asked(&agent, &args).await;
    let decided = eva.get(&format!("/api/v1/consent/{id}")).await.expect(200);
    assert_eq!((&decided["decided_via"], &decided["comment"]), (&json!("console"), &json!("fine")));
    let record = tenant.records(&format!("source=console&consent_id={id}"), 1).await.remove(0);
    assert_eq!(
        (&record["tool"], &record["server"], &record["owner"]),
        (&json!("consent.decide"), &json!("zoo"), &json!("eva"))
    );
    let recorded: Value = serde_json::from_str(record["arguments"].as_str().unwrap()).unwrap();
    assert_eq!((&recorded["tool"], &recorded["body"]["decision"]), (&json!("writer"), &json!("allow_once")));
    // the record of the call leads to the request, and shows its steps
    let auditor = Visitor::with_key(&stage.gateway, &tenant.auditor().await).await;
    let list = auditor.get("/console/activity?type=consent").await.text;
    for line in ["consent.decide (writer: allow_once)", "consent.asked (writer)"] {
        assert!(list.contains(line), "{line}: {list}");
    }
    // a step says nothing of success, an act does
    for (line, status) in
        [("consent.decide (writer: allow_once)", "success"), ("consent.asked (writer)", "recorded")]
    {
        let row = list.split("<tr").find(|row| row.contains(line)).unwrap();
        assert!(row.contains(&format!("\">{status}</span>")), "{status}: {row}");
    }
    let request = attributes(&auditor.get(&path_of(&id)).await.text, "href");
    let records = format!("/console/activity?consent_id={id}#records");
    assert!(request.contains(&records), "{records}: {request:?}");
    let list = auditor.get(&records).await.text;
    let (filters, list) = list.split_once("<div id=\"records\"").expect("a list");
    assert!(filters.contains("<details>\n<summary>More filters"), "{filters}");
    assert!(list.contains("Records of one permission request."), "{list}");
    let more = auditor.get(&format!("/console/activity?consent_id={id}&tier=write")).await.text;
    assert!(more.contains("<details open>\n<summary>More filters"), "{more}");
    let ran = tenant.records(&format!("type=tool_call&status=success&consent_id={id}"), 1).await.remove(0);
    let steps = async || {
        let page = auditor.get(&format!("/console/activity/{}", ran["id"].as_str().unwrap())).await.text;
        let all = [
            "consent.asked",
            "consent.decide",
            "<dt>consent.consumed</dt><dd>The permission is used up: the call is under way.</dd>",
            "<dt>consent.succeeded</dt><dd>The call ran.</dd>",
            "<dt>Policy</dt><dd>asked: a person has to allow",
            "<dt>success</dt><dd>The server answered",
        ];
        all.iter().all(|step| page.contains(step)) && attributes(&page, "href").contains(&path_of(&id))
    };
    settle(true, SOON, steps).await;
}

#[tokio::test]
async fn a_request_is_denied_once_and_the_first_answer_wins() {
    let stage = Stage::start().await;
    let (tenant, _upstream) = asking(&stage, json!([]), upstream::zoo()).await;
    let agent = tenant.agent().await;
    let eva = tenant.key(&json!({"role": "approver", "owner": "eva"})).await;
    let visitor = Visitor::with_key(&stage.gateway, &eva).await;
    let late = Visitor::with_key(&stage.gateway, &tenant.approver().await).await;
    let id = asked(&agent, &json!({})).await;
    for (fields, says) in [
        (vec![("decision", "maybe")], "decision must be one of"),
        (vec![], "decision must be one of"),
        (vec![("decision", "allow_once"), ("comment", &*"x".repeat(501))], "at most 500 characters"),
    ] {
        let refused = visitor.post(&decision_of(&id), &fields).await;
        refused.expect(400);
        assert!(refused.text.contains(says), "{refused:?}");
    }
    let foreign = visitor.send(visitor.form(&decision_of(&id), &[("decision", "allow_once")])).await;
    foreign.expect(403);
    assert_eq!(eva.get(&format!("/api/v1/consent/{id}")).await.expect(200)["state"], "pending");
    visitor
        .post(&decision_of(&id), &[("decision", "reject_once"), ("comment", "not today")])
        .await
        .expect(303);
    let refused = Mcp::bare(&agent).run("write", "zoo:writer", &json!({})).await.refused("consent_denied");
    assert_eq!(refused["approver_says"], "not today");
    let page = late.post(&decision_of(&id), &[("decision", "allow_once")]).await;
    page.expect(409);
    for says in [
        "Somebody was faster: Denied: eva, over console, at 2",
        "Your decision changed nothing",
        "refused until",
    ] {
        assert!(page.text.contains(says), "{says}: {page:?}");
    }
    assert!(attributes(&page.text, "href").contains(&path_of(&id)), "{page:?}");
    for missing in ["x", "0199aaaa-0000-7000-8000-000000000001"] {
        visitor.get(&path_of(missing)).await.expect(404);
        visitor.post(&decision_of(missing), &[("decision", "allow_once")]).await.expect(404);
    }
    for (query, status) in [
        ("state=denied", 200),
        ("state=any", 200),
        ("state=decided_by_me", 200),
        ("state=odd", 400),
        ("limit=0", 400),
        ("cursor=!", 400),
    ] {
        let page = visitor.get(&format!("/console/permissions?{query}")).await;
        page.expect(status);
        assert_eq!(page.text.contains("zoo:writer"), status == 200, "{query}: {page:?}");
    }
    let none = late.get("/console/permissions?state=decided_by_me").await;
    assert!(none.text.contains("There is no such request."), "{none:?}");
    let auditor = Visitor::with_key(&stage.gateway, &tenant.auditor().await).await;
    let refused = auditor.get("/console/permissions?state=decided_by_me").await;
    refused.expect(400);
    assert!(!auditor.get("/console/permissions").await.text.contains("decided by me"));
}

#[tokio::test]
async fn roles_see_and_decide_as_over_the_api() {
    let stage = Stage::start().await;
    let (tenant, _upstream) = asking(&stage, json!([]), upstream::zoo()).await;
    let (agent, other) = (tenant.agent().await, tenant.agent().await);
    let id = asked(&agent, &json!({})).await;
    for (api, sees) in
        [(&agent, true), (&other, false), (&tenant.auditor().await, true), (&tenant.operator().await, true)]
    {
        let visitor = Visitor::with_key(&stage.gateway, api).await;
        let page = visitor.get("/console/permissions").await;
        page.expect(200);
        assert_eq!(page.text.contains("zoo:writer"), sees, "{page:?}");
        assert!(offers(&page.text).is_empty() && form_to(&page.text, "/decision").is_none(), "{page:?}");
        visitor.get(&path_of(&id)).await.expect(if sees { 200 } else { 404 });
        let refused = visitor.post(&decision_of(&id), &[("decision", "allow_once")]).await;
        refused.expect(403);
        assert!(refused.text.contains("may not decide permission requests"), "{refused:?}");
    }
    let refused = async || {
        let query = "/api/v1/activity?type=consent&source=console&status=blocked";
        let items = tenant.platform.items(query).await;
        items.iter().filter(|item| item["error_code"] == "not_approver").count()
    };
    settle(4, SOON, refused).await;
    // the requester's own key refuses, and does not allow
    let admin = tenant.key(&json!({"role": "admin", "owner": "ana"})).await;
    let own = asked(&admin, &json!({"n": 2})).await;
    let visitor = Visitor::with_key(&stage.gateway, &admin).await;
    let page = visitor.get(&path_of(&own)).await.text;
    assert!(page.contains("You cannot allow this: nobody allows their own call here"), "{page}");
    assert!(page.contains("You may not: see above."), "{page}");
    assert!(page.contains("For 30 s calls that ask"), "{page}");
    assert!(
        offers(&page).contains(&"reject_once".to_owned())
            && !offers(&page).contains(&"allow_once".to_owned())
    );
    let refused = visitor.post(&decision_of(&own), &[("decision", "allow_once")]).await;
    refused.expect(403);
    visitor.post(&decision_of(&own), &[("decision", "reject_once")]).await.expect(303);
    // another tenant's request does not exist
    let stranger = Visitor::with_key(&stage.gateway, &stage.tenant("other").await.admin().await).await;
    stranger.get(&path_of(&id)).await.expect(404);
    stranger.post(&decision_of(&id), &[("decision", "allow_once")]).await.expect(404);
    assert!(!stranger.get("/console/permissions").await.text.contains("zoo:writer"));
    // the bootstrap key is in no tenant
    let platform = Visitor::with_key(&stage.gateway, &stage.platform()).await;
    let page = platform.get("/console/permissions").await;
    page.expect(403);
    assert!(page.text.contains("choose one at Tenants"), "{page:?}");
    let links = attributes(&platform.get("/console").await.text, "href");
    assert!(
        !links.contains(&"/console/permissions".to_owned())
            && links.contains(&"/console/activity".to_owned())
    );
}

#[tokio::test]
async fn what_is_remembered_is_listed_and_revoked() {
    let stage = Stage::start().await;
    let (tenant, _upstream) = asking(&stage, json!([]), upstream::zoo()).await;
    let agent = tenant.key(&json!({"role": "agent", "owner": "robot"})).await;
    let eva = tenant.key(&json!({"role": "approver", "owner": "eva"})).await;
    let visitor = Visitor::with_key(&stage.gateway, &eva).await;
    let id = asked(&agent, &json!({"n": 1})).await;
    assert!(offers(&visitor.get(&path_of(&id)).await.text).contains(&"allow_always".to_owned()));
    visitor.post(&decision_of(&id), &[("decision", "allow_always")]).await.expect(303);
    Mcp::bare(&agent).run("write", "zoo:writer", &json!({"n": 2})).await.ok();
    let page = visitor.get("/console/permissions").await.text;
    for part in ["allow", "zoo:writer", "robot", "eva, over console", &path_of(&id)] {
        assert!(page.contains(part), "{part}: {page}");
    }
    let revoke = form_to(&page, "/revoke").unwrap();
    // who only sees it has no button, and no right
    let auditor = Visitor::with_key(&stage.gateway, &tenant.auditor().await).await;
    let seen = auditor.get("/console/permissions").await.text;
    assert!(seen.contains("eva, over console") && form_to(&seen, "/revoke").is_none(), "{seen}");
    auditor.post(&revoke, &[]).await.expect(403);
    let stranger = Visitor::with_key(&stage.gateway, &stage.tenant("other").await.admin().await).await;
    stranger.post(&revoke, &[]).await.expect(404);
    visitor.post("/console/consent/grants/x/revoke", &[]).await.expect(404);
    Mcp::bare(&agent).run("write", "zoo:writer", &json!({"n": 3})).await.ok();
    let done = visitor.post(&revoke, &[]).await;
    assert!(done.header("location").starts_with("/console/permissions?done="), "{done:?}");
    let page = visitor.get(done.header("location")).await.text;
    assert!(page.contains("Revoked: the remembered decision about zoo:writer, of robot."), "{page}");
    assert!(form_to(&page, "/revoke").is_none(), "{page}");
    asked(&agent, &json!({"n": 4})).await;
    let record = tenant.records("tool=consent.revoke&source=console&status=success", 1).await.remove(0);
    assert_eq!((&record["consent_id"], &record["server"]), (&json!(id), &json!("zoo")));
}

#[tokio::test]
async fn many_requests_come_in_pages_and_are_counted() {
    let stage = Stage::start().await;
    let (tenant, _upstream) = asking(&stage, json!([]), upstream::zoo()).await;
    let agent = tenant.agent().await;
    let visitor = Visitor::with_key(&stage.gateway, &tenant.approver().await).await;
    let mut ids = Vec::new();
    for n in 0..5 {
        ids.push(asked(&agent, &json!({"n": n})).await);
    }
    let (mut found, mut next) = (Vec::new(), Some("/console/permissions?limit=2".to_owned()));
    while let Some(path) = next {
        let page = visitor.get(&path).await;
        page.expect(200);
        let actions = attributes(&page.text, "action").into_iter();
        let actions = actions.filter(|action| action.ends_with("/decision"));
        found.extend(actions.filter_map(|action| action.split('/').nth(3).map(str::to_owned)));
        let links = page.text.split("<a rel=\"next\"").nth(1).map(|rest| attributes(rest, "href"));
        next = links.and_then(|links| links.into_iter().next());
    }
    assert_eq!(found, ids, "the oldest ends first");
    let counted = async || visitor.get("/console").await.text.contains("<span class=\"count\">5");
    settle(true, Duration::from_secs(20), counted).await;
}

#[tokio::test]
async fn hostile_texts_stay_texts_on_the_card() {
    let stage = Stage::start().await;
    let tool = |text: &&str| {
        let definition = json!({"name": text, "description": text, "inputSchema": {"type": "object"}});
        Tool::raw(text, &definition.to_string())
    };
    let (tenant, _upstream) = asking(&stage, json!([]), HOSTILE.iter().map(tool).collect()).await;
    let eva = tenant.key(&json!({"role": "approver", "owner": HOSTILE[1]})).await;
    let visitor = Visitor::with_key(&stage.gateway, &eva).await;
    for text in HOSTILE {
        let agent = tenant.key(&json!({"role": "agent", "owner": text})).await;
        let call =
            json!({"name": format!("zoo:{text}"), "args": {"x": text, text: 1}, "intent_reason": text});
        let refused = Mcp::bare(&agent).call("call_tool_write", &call).await.refused("consent_pending");
        let id = refused["consent_id"].as_str().unwrap();
        let page = visitor.get(&path_of(id)).await;
        page.expect(200);
        assert_harmless(&page.text);
        let shown = eva.get(&format!("/api/v1/consent/{id}")).await.expect(200);
        for member in ["tool", "owner", "reason", "arguments"] {
            let member = escaped(shown[member].as_str().unwrap());
            assert!(page.text.contains(&member), "{member}: {page:?}");
        }
        visitor.post(&decision_of(id), &[("decision", "reject_always"), ("comment", text)]).await.expect(303);
        let decided = visitor.get(&path_of(id)).await.text;
        assert_harmless(&decided);
        assert!(decided.contains(&escaped(text)), "{text}: {decided}");
    }
    let page = visitor.get("/console/permissions").await.text;
    assert_harmless(&page);
    assert_eq!(page.matches("/revoke\"").count(), HOSTILE.len(), "{page}");
}
