//! Permission requests in lists, in records, and on cards that say when no answer lets their call run.

use std::time::Duration;

use reqwest::Method;
use serde_json::json;

use super::markup::{assert_harmless, attributes};
use super::permissions::{asked, asking, decision_of, path_of};
use crate::support::upstream::Say;
use crate::support::{Mcp, Stage, Tool, Visitor, settle, upstream};

const SOON: Duration = Duration::from_secs(5);

/// The links of the requests in a list, in its order.
fn listed(page: &str) -> Vec<String> {
    let table =
        page.split("aria-label=\"Requests\"").nth(1).unwrap_or_default().split("</table>").next().unwrap();
    attributes(table, "href")
}

#[tokio::test]
async fn what_one_decided_is_listed_by_the_time_of_the_decision() {
    let stage = Stage::start().await;
    let (tenant, _upstream) = asking(&stage, json!([]), upstream::zoo()).await;
    let agent = tenant.key(&json!({"role": "agent", "owner": "robot", "name": "night run"})).await;
    let visitor =
        Visitor::with_key(&stage.gateway, &tenant.key(&json!({"role": "approver", "owner": "eva"})).await)
            .await;
    let other = Visitor::with_key(&stage.gateway, &tenant.approver().await).await;
    let mut ids = Vec::new();
    for n in 0..4 {
        ids.push(asked(&agent, &json!({"n": n})).await);
    }
    for (visitor, at, decision) in [
        (&visitor, 2, "allow_once"),
        (&other, 3, "reject_once"),
        (&visitor, 0, "reject_once"),
        (&visitor, 1, "allow_once"),
    ] {
        visitor.post(&decision_of(&ids[at]), &[("decision", decision)]).await.expect(303);
    }
    let page = visitor.get("/console/permissions?state=decided_by_me").await.text;
    assert_eq!(listed(&page), [1, 0, 2].map(|at| path_of(&ids[at])), "the last decision comes first: {page}");
    for part in [
        "zoo:writer",
        "robot",
        "key night run",
        "Allowed once: eva, over console",
        "Denied: eva",
        ">granted<",
    ] {
        assert!(page.contains(part), "{part}: {page}");
    }
    assert!(!page.contains("<article"), "a line each: {page}");
    assert_harmless(&page);
    // page by page it is the same
    let (mut found, mut next) =
        (Vec::new(), Some("/console/permissions?state=decided_by_me&limit=1".to_owned()));
    while let Some(path) = next {
        let page = visitor.get(&path).await;
        page.expect(200);
        found.extend(listed(&page.text));
        let links = page.text.split("<a rel=\"next\"").nth(1).map(|rest| attributes(rest, "href"));
        next = links.and_then(|links| links.into_iter().next());
    }
    assert_eq!(found, [1, 0, 2].map(|at| path_of(&ids[at])));
    let any = visitor.get("/console/permissions?state=any").await.text;
    assert_eq!(listed(&any), [3, 2, 1, 0].map(|at| path_of(&ids[at])), "by the time of the ask: {any}");
}

#[tokio::test]
async fn the_first_page_names_the_requests_of_the_highest_risk() {
    let stage = Stage::start().await;
    let (tenant, _upstream) = asking(&stage, json!([]), upstream::zoo()).await;
    let (agent, stranger) =
        (tenant.key(&json!({"role": "agent", "owner": "robot"})).await, tenant.agent().await);
    let visitor = Visitor::with_key(&stage.gateway, &tenant.approver().await).await;
    let none = visitor.get("/console").await.text;
    assert!(!none.contains("Requests that wait, the highest risk first"), "{none}");
    let mut ids = Vec::new();
    for n in 0..6 {
        ids.push(asked(&agent, &json!({"n": n})).await);
    }
    let page = visitor.get("/console").await.text;
    let links = attributes(&page, "href");
    let named =
        |links: &[String]| links.iter().filter(|link| link.contains("request=")).cloned().collect::<Vec<_>>();
    assert_eq!(named(&links), ids[..5].iter().map(|id| path_of(id)).collect::<Vec<_>>(), "{page}");
    assert!(page.contains("asked by robot, ends <time"), "{page}");
    assert_harmless(&page);
    // a later one of a higher risk comes first
    let riskier = asked(&agent, &json!({"force": true})).await;
    let links = attributes(&visitor.get("/console").await.text, "href");
    let expected: Vec<String> = [&riskier].into_iter().chain(&ids[..4]).map(|id| path_of(id)).collect();
    assert_eq!(named(&links), expected);
    // in the language that the visitor asks for, as elsewhere
    tenant.platform.patch("/api/v1/settings", &json!({"locale": "de"})).await.expect(200);
    for (asks, says) in [("en-US,en", "Run &#39;writer&#39; on server"), ("fr", "auf dem Server")] {
        let request = visitor.request(Method::GET, "/console").header("Accept-Language", asks);
        settle(true, SOON, async || visitor.send(request.try_clone().unwrap()).await.text.contains(says))
            .await;
    }
    // agents see those of their own key
    let own = Visitor::with_key(&stage.gateway, &stranger).await.get("/console").await.text;
    assert!(!own.contains("request="), "{own}");
}

#[tokio::test]
async fn a_card_says_when_no_answer_lets_its_call_run() {
    let stage = Stage::start().await;
    let (tenant, upstream) = asking(&stage, json!([]), upstream::zoo()).await;
    let agent = tenant.agent().await;
    let visitor = Visitor::with_key(&stage.gateway, &tenant.approver().await).await;
    let id = asked(&agent, &json!({})).await;
    let page = visitor.get(&path_of(&id)).await.text;
    assert!(!page.contains("whoever allows it"), "{page}");
    let changed = json!({"name": "writer", "description": "another one", "inputSchema": {"type": "object"}});
    upstream.set_tools(vec![Tool::raw("writer", &changed.to_string())]);
    tenant.platform.post("/api/v1/servers/zoo/refresh", &json!({})).await.expect(200);
    let says = async |part: &str| visitor.get(&path_of(&id)).await.text.contains(part);
    settle(true, SOON, || {
        says("has changed since the call asked: as long as that is so, this call does not run")
    })
    .await;
    tenant.platform.delete("/api/v1/servers/zoo").await.expect(204);
    settle(true, SOON, || says("The tool is gone, or its server was removed")).await;
}

#[tokio::test]
async fn the_record_of_a_call_says_what_became_of_its_request() {
    let stage = Stage::start().await;
    let (tenant, _upstream) = asking(&stage, json!([]), upstream::zoo()).await;
    let id = asked(&tenant.agent().await, &json!({})).await;
    let auditor = Visitor::with_key(&stage.gateway, &tenant.auditor().await).await;
    let record = tenant.records(&format!("type=tool_call&consent_id={id}"), 1).await.remove(0);
    let path = format!("/console/activity/{}", record["id"].as_str().unwrap());
    let page = auditor.get(&path).await.text;
    assert!(page.contains("pending: a person may answer until 2"), "{page}");
    sqlx::query("update consent_requests set expires_at = now() - interval '1 second'")
        .execute(&mut stage.database.connect().await)
        .await
        .unwrap();
    let page = auditor.get(&path).await.text;
    assert!(page.contains("timed out: nobody answered by 2"), "{page}");
    let step = async || auditor.get(&path).await.text.contains("tone held\">recorded");
    tenant.records(&format!("tool=consent.timed_out&consent_id={id}"), 1).await;
    settle(true, SOON, step).await;
    let none = auditor.get("/console/activity?status=pending").await.text;
    assert!(attributes(&none, "href").contains(&"/console/activity?decision=asked".to_owned()), "{none}");
}

#[tokio::test]
async fn a_card_says_that_a_remembered_decision_or_the_policy_refuses_its_call() {
    let stage = Stage::start().await;
    let (tenant, _upstream) = asking(&stage, json!([]), upstream::zoo()).await;
    let agent = tenant.agent().await;
    let visitor = Visitor::with_key(&stage.gateway, &tenant.approver().await).await;
    let (first, second) = (asked(&agent, &json!({"n": 1})).await, asked(&agent, &json!({"n": 2})).await);
    let third = asked(&agent, &json!({"n": 3})).await;
    let denied = visitor.post(&decision_of(&first), &[("decision", "reject_always")]).await;
    let notice = visitor.get(denied.header("location")).await.text;
    assert!(
        notice.contains("calls of this tool by this key as write are refused without asking"),
        "{notice}"
    );
    let says = "A remembered decision denies this tool to this key";
    assert!(visitor.get(&path_of(&second)).await.text.contains(says));
    let allowed = visitor.post(&decision_of(&second), &[("decision", "allow_once")]).await;
    let notice = visitor.get(allowed.header("location")).await.text;
    assert!(notice.contains(says) && !notice.contains("the same call runs once"), "{notice}");
    Mcp::bare(&agent).run("write", "zoo:writer", &json!({"n": 2})).await.refused("policy_denied");
    // its own page has the end of what was remembered, and says when that is over
    let grant = tenant.platform.items("/api/v1/consent/grants").await.remove(0);
    let page = visitor.get(&path_of(&first)).await.text;
    let until = grant["expires_at"].as_str().unwrap().get(..10).unwrap().to_owned();
    assert!(page.contains(&format!("as write are refused until {until}")), "{page}");
    tenant
        .platform
        .delete(&format!("/api/v1/consent/grants/{}", grant["id"].as_str().unwrap()))
        .await
        .expect(204);
    let page = visitor.get(&path_of(&first)).await.text;
    assert!(page.contains("what was remembered is over, or was revoked"), "{page}");
    assert!(!visitor.get(&path_of(&third)).await.text.contains(says));
    let deny = json!([{"id": "no", "effect": "deny", "enforced": true, "match": {"tool": "zoo:writer"}}]);
    let version = tenant.platform.get("/api/v1/policy").await.expect(200)["version"].clone();
    let body = json!({"version": version, "rules": deny});
    tenant.platform.ask(Method::PUT, "/api/v1/policy", Some(&body)).await.expect(200);
    let page = visitor.get(&path_of(&third)).await.text;
    assert!(page.contains("The policy refuses such calls by now"), "{page}");
    // what a call declares of its data is not known any more, so nothing is said of rules about it
    let deny = json!([{"id": "no", "effect": "deny", "enforced": true, "match": {"sensitivity": "unknown"}}]);
    let version = tenant.platform.get("/api/v1/policy").await.expect(200)["version"].clone();
    let body = json!({"version": version, "rules": deny});
    tenant.platform.ask(Method::PUT, "/api/v1/policy", Some(&body)).await.expect(200);
    let page = visitor.get(&path_of(&third)).await.text;
    assert!(!page.contains("The policy refuses such calls by now"), "{page}");
}

#[tokio::test]
async fn the_third_denial_says_that_the_tool_is_refused() {
    let stage = Stage::start().await;
    let (tenant, _upstream) = asking(&stage, json!([]), upstream::zoo()).await;
    let agent = tenant.agent().await;
    let visitor = Visitor::with_key(&stage.gateway, &tenant.approver().await).await;
    let says = "this tool was denied 3 times or more to this key";
    for n in 1..=3 {
        let id = asked(&agent, &json!({"n": n})).await;
        let done = visitor.post(&decision_of(&id), &[("decision", "reject_once")]).await;
        let notice = visitor.get(done.header("location")).await.text;
        assert_eq!(notice.contains(says), n == 3, "{n}: {notice}");
        assert_eq!(visitor.get(&path_of(&id)).await.text.contains(says), n == 3, "{n}");
    }
    Mcp::bare(&agent).run("write", "zoo:writer", &json!({"n": 9})).await.refused("consent_cooldown");
}

#[tokio::test]
async fn a_button_that_is_pressed_twice_decides_once() {
    let stage = Stage::start().await;
    let (tenant, _upstream) = asking(&stage, json!([]), upstream::zoo()).await;
    let visitor = Visitor::with_key(&stage.gateway, &tenant.approver().await).await;
    let id = asked(&tenant.agent().await, &json!({})).await;
    let notice = format!("/console/permissions?decided={id}");
    for _ in 0..2 {
        let done = visitor.post(&decision_of(&id), &[("decision", "reject_once")]).await;
        assert_eq!((done.status, done.header("location")), (303, notice.as_str()));
    }
    let other = visitor.post(&decision_of(&id), &[("decision", "allow_once")]).await;
    other.expect(409);
    assert!(other.text.contains("You had decided this before: Denied:"), "{other:?}");
}

#[tokio::test]
async fn requests_are_filtered_by_tool_owner_and_risk() {
    let stage = Stage::start().await;
    let (tenant, _upstream) = asking(&stage, json!([]), upstream::zoo()).await;
    let robot = tenant.key(&json!({"role": "agent", "owner": "robot"})).await;
    let (ours, others) = (asked(&robot, &json!({})).await, asked(&tenant.agent().await, &json!({})).await);
    let visitor = Visitor::with_key(&stage.gateway, &tenant.approver().await).await;
    for (query, has_ours, has_others) in [
        ("", true, true),
        ("owner=robot", true, false),
        ("tool=zoo:writer", true, true),
        ("tool=writer&owner=robot&risk=moderate", true, false),
        ("tool=zoo:reader", false, false),
        ("risk=critical&state=any", false, false),
    ] {
        let page = visitor.get(&format!("/console/permissions?{query}")).await;
        page.expect(200);
        let has = |id: &String| page.text.contains(&path_of(id));
        assert_eq!((has(&ours), has(&others)), (has_ours, has_others), "{query}: {}", page.text);
        assert_eq!(page.text.contains("No request matches"), !has_ours && !has_others, "{query}");
        assert_eq!(page.text.contains("<details open>"), !query.is_empty(), "{query}");
    }
    // a decision leads back to the same ones
    let done = visitor
        .post(&decision_of(&ours), &[("decision", "reject_once"), ("owner", "robot"), ("risk", "")])
        .await;
    assert_eq!(done.header("location"), format!("/console/permissions?decided={ours}&owner=robot"));
    let page = visitor.get(done.header("location")).await.text;
    assert!(page.contains("No request matches") && !page.contains(&path_of(&others)), "{page}");
    let page = visitor.get("/console/permissions?owner=robot&risk=high").await.text;
    assert!(page.contains("value=\"robot\"") && page.contains("<option value=\"high\" selected>"), "{page}");
    assert!(visitor.get("/console/permissions?risk=odd").await.text.contains("risk must be one of"));
}

#[tokio::test]
async fn nothing_invites_to_allow_a_call_whose_arguments_are_not_in_sight() {
    let stage = Stage::start().await;
    let (tenant, _upstream) = asking(&stage, json!([]), upstream::zoo()).await;
    let agent = tenant.agent().await;
    let visitor = Visitor::with_key(&stage.gateway, &tenant.approver().await).await;
    for (arguments, is_long) in [(json!({"n": 1}), false), (json!({"text": "x".repeat(300)}), true)] {
        let page = visitor.get(&path_of(&asked(&agent, &arguments).await)).await.text;
        let allow = page.split("value=\"allow_once\"").next().unwrap().rsplit("<button").next().unwrap();
        assert_eq!(allow.contains("class=\"second\""), is_long, "{page}");
        assert_eq!(page.contains("long: read to their end"), is_long, "{page}");
        assert!(!page.contains("Little time is left"), "{page}");
    }
    sqlx::query("update consent_requests set expires_at = now() + interval '40 seconds'")
        .execute(&mut stage.database.connect().await)
        .await
        .unwrap();
    let page = visitor.get("/console/permissions").await.text;
    assert_eq!(
        page.matches("an allowed call has to be repeated by the agent before the end as well").count(),
        2
    );
}

#[tokio::test]
async fn a_card_says_what_raises_the_risk_and_how_much_of_the_arguments_is_missing() {
    let stage = Stage::start().await;
    let (tenant, _upstream) = asking(&stage, json!([]), upstream::zoo()).await;
    let agent = tenant.agent().await;
    let visitor = Visitor::with_key(&stage.gateway, &tenant.approver().await).await;
    let hostile = json!({"q<b>": "drop table \u{200b}users; \"A comment ends here\"", "recursive": true});
    let page = visitor.get(&path_of(&asked(&agent, &hostile).await)).await.text;
    assert_harmless(&page);
    for says in [
        "rights: &#34;q&#60;b&#62;&#34;: &#34;drop table &#60;U+200B&#62;users; &#39;A …&#34;</li>",
        "everything: &#34;recursive&#34;: &#34;true&#34;</li>",
    ] {
        assert!(page.contains(says), "{says}: {page}");
    }
    assert!(!page.contains("Only the beginning"), "{page}");
    let long = json!({"a": "x".repeat(3000), "recursive": true});
    let page = visitor.get(&path_of(&asked(&agent, &long).await)).await.text;
    let says = format!("Only the beginning of {} bytes is shown.", long.to_string().len());
    assert!(page.contains(&says), "{says}: {page}");
    // what raises the risk may be beyond what is shown
    assert!(
        page.contains("force, recursion or everything") && !page.contains("&#34;recursive&#34;"),
        "{page}"
    );
}

#[tokio::test]
async fn a_card_says_how_much_a_mask_hides() {
    let stage = Stage::start().await;
    let tools = vec![Tool::writes("terminal_run")];
    let (tenant, _upstream) = asking(&stage, json!([]), tools).await;
    let agent = tenant.agent().await;
    let approver = tenant.approver().await;
    let visitor = Visitor::with_key(&stage.gateway, &approver).await;
    // what follows a secret without a blank is masked with it
    let command = "deploy --token=abc;mv${IFS}/srv/data${IFS}/dev/null";
    let asked = Mcp::bare(&agent).run("write", "zoo:terminal_run", &json!({ "command": command })).await;
    let id = asked.refused("consent_pending")["consent_id"].as_str().unwrap().to_owned();
    let hidden = (command.len() - "deploy --token=".len()).next_multiple_of(16);
    let page = visitor.get(&path_of(&id)).await.text;
    assert_harmless(&page);
    for says in [
        format!(
            "[redacted] hides up to {hidden} bytes, which the call has. Deny the call, unless you know what it does."
        ),
        "A command has characters that a shell interprets: its place was not found in what is shown"
            .to_owned(),
        "Execute command: <code>deploy --token=[redacted]</code>".to_owned(),
    ] {
        assert!(page.contains(&says), "{says}: {page}");
    }
    let allow = page.split("value=\"allow_once\"").next().unwrap().rsplit("<button").next().unwrap();
    assert!(allow.contains("class=\"second\""), "{page}");
    let shown = approver.get(&format!("/api/v1/consent/{id}")).await.expect(200);
    let reason = shown["reason"].as_str().unwrap();
    let says = format!(
        "[redacted] hides up to {hidden} bytes of the arguments, which the call has. Execute command: "
    );
    assert!(reason.starts_with(&says), "{reason}");
}

#[tokio::test]
async fn the_page_of_a_call_that_failed_says_that_it_was_sent() {
    let stage = Stage::start().await;
    let errs = Tool::writes("writer").says(Say::Result(r#"{"content":[],"isError":true}"#.to_owned()));
    let (tenant, _upstream) = asking(&stage, json!([]), vec![errs]).await;
    let agent = tenant.agent().await;
    let visitor = Visitor::with_key(&stage.gateway, &tenant.approver().await).await;
    let id = asked(&agent, &json!({})).await;
    visitor.post(&decision_of(&id), &[("decision", "allow_once")]).await.expect(303);
    Mcp::bare(&agent).run("write", "zoo:writer", &json!({})).await;
    let says = "The call was sent, and the tool reported an error: it may have done a part of its work";
    let page = async || visitor.get(&path_of(&id)).await.text.to_lowercase();
    settle(true, SOON, async || page().await.contains(&says.to_lowercase())).await;
    assert!(page().await.contains(">failed"), "{}", page().await);
}

#[tokio::test]
async fn a_card_says_when_a_block_its_server_or_the_limits_of_its_key_refuse_the_call() {
    let stage = Stage::start().await;
    let (tenant, _upstream) = asking(&stage, json!([]), upstream::zoo()).await;
    let agent = tenant.agent().await;
    let visitor = Visitor::with_key(&stage.gateway, &tenant.approver().await).await;
    let (id, allowed) = (asked(&agent, &json!({"n": 1})).await, asked(&agent, &json!({"n": 2})).await);
    visitor.post(&decision_of(&allowed), &[("decision", "allow_once")]).await.expect(303);
    let put = async |(path, body): (&str, serde_json::Value)| {
        let path = format!("/api/v1/{path}");
        match body.is_null() {
            true => tenant.platform.post(&path, &json!({})).await.expect(200),
            false => tenant.platform.patch(&path, &body).await.expect(200),
        };
    };
    let (none, key) = (serde_json::Value::Null, format!("keys/{}/settings", agent.id));
    for (does, undoes, says) in [
        (
            ("servers/zoo", json!({"enabled": false})),
            ("servers/zoo", json!({"enabled": true})),
            "is disabled",
        ),
        (
            ("servers/zoo/quarantine", none.clone()),
            ("servers/zoo/unquarantine", none.clone()),
            "is in quarantine",
        ),
        (
            (&*key, json!({"max_operation": "read"})),
            (&*key, json!({"max_operation": null})),
            "max_operation or allowed_tools",
        ),
        (
            (&*key, json!({"allowed_tools": ["a:*"]})),
            (&*key, json!({"allowed_tools": null})),
            "max_operation or allowed_tools",
        ),
        (("servers/zoo/tools/writer/block", none.clone()), ("", none.clone()), "The tool is blocked"),
    ] {
        put(does).await;
        let page = async |id: &str| visitor.get(&path_of(id)).await.text;
        let stays = "as long as that is so";
        settle(true, SOON, async || {
            let page = page(&id).await;
            page.contains(says) && page.contains(stays)
        })
        .await;
        let page = page(&allowed).await;
        assert!(
            page.contains(says) && page.contains("a person allowed the call, and it has not run yet"),
            "{page}"
        );
        assert!(!page.contains("runs once"), "{page}");
        if !undoes.0.is_empty() {
            put(undoes).await;
            settle(false, SOON, async || visitor.get(&path_of(&id)).await.text.contains(says)).await;
        }
    }
}
