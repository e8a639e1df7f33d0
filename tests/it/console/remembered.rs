//! Remembered decisions on the pages of permission requests.

use std::time::Duration;

use serde_json::json;

use super::markup::attributes;
use super::permissions::{asked, asking, decision_of, path_of};
use crate::support::{Mcp, Stage, Visitor, settle, upstream};

const SOON: Duration = Duration::from_secs(5);

#[tokio::test]
async fn the_page_of_a_refused_call_says_what_a_remembered_decision_does_to_it() {
    let stage = Stage::start().await;
    let (tenant, _upstream) = asking(&stage, json!([]), upstream::zoo()).await;
    let agent = tenant.agent().await;
    let visitor = Visitor::with_key(&stage.gateway, &tenant.approver().await).await;
    let decide = async |id: &str, decision: &str| {
        visitor.post(&decision_of(id), &[("decision", decision)]).await.expect(303);
    };
    let mut ids = Vec::new();
    for n in 0..3 {
        ids.push(asked(&agent, &json!({"n": n})).await);
    }
    decide(&ids[0], "reject_once").await;
    let page = visitor.get(&path_of(&ids[0])).await.text;
    assert!(page.contains("and asks again after that"), "{page}");
    decide(&ids[1], "allow_always").await;
    let done = visitor.post(&decision_of(&ids[2]), &[("decision", "reject_once")]).await;
    let notice = visitor.get(done.header("location")).await.text;
    assert!(notice.contains("stays refused as long as that decision holds"), "{notice}");
    assert!(!notice.contains("asks again after that"), "{notice}");
    for (id, says) in [(&ids[0], "lets it run"), (&ids[2], "stays refused as long as that decision holds")] {
        let page = visitor.get(&path_of(id)).await.text;
        assert!(page.contains(says) && !page.contains("asks again after that"), "{says}: {page}");
    }
}

#[tokio::test]
async fn a_remembered_decision_is_named_only_where_it_lets_the_call_run() {
    let stage = Stage::start().await;
    let (tenant, _upstream) = asking(&stage, json!([]), upstream::zoo()).await;
    let agent = tenant.key(&json!({"role": "agent", "owner": "robot", "name": "night run"})).await;
    let visitor = Visitor::with_key(&stage.gateway, &tenant.approver().await).await;
    let (first, alike) = (asked(&agent, &json!({"n": 1})).await, asked(&agent, &json!({"n": 2})).await);
    let riskier = asked(&agent, &json!({"force": true})).await;
    let page = visitor.get(&path_of(&first)).await.text;
    assert!(page.contains("run without asking up to risk moderate, whatever"), "{page}");
    let done = visitor.post(&decision_of(&first), &[("decision", "allow_always")]).await;
    let page = visitor.get(done.header("location")).await.text;
    for says in [
        "by this key as write up to risk moderate run without asking",
        "up to risk moderate</span>",
        "key night run",
    ] {
        assert!(page.contains(says), "{says}: {page}");
    }
    let runs = "A remembered decision";
    assert!(visitor.get(&path_of(&alike)).await.text.contains(runs));
    assert!(!visitor.get(&path_of(&riskier)).await.text.contains(runs), "it waits all the same");
}

#[tokio::test]
async fn the_page_of_a_remembered_decision_says_what_ran_because_of_it() {
    let stage = Stage::start().await;
    let (tenant, _upstream) = asking(&stage, json!([]), upstream::zoo()).await;
    let agent = tenant.agent().await;
    let approver = tenant.key(&json!({"role": "approver", "owner": "eva"})).await;
    let visitor = Visitor::with_key(&stage.gateway, &approver).await;
    let run = async |n: u8| Mcp::bare(&agent).run("write", "zoo:writer", &json!({ "n": n })).await;
    let (first, second) = (asked(&agent, &json!({"n": 1})).await, asked(&agent, &json!({"n": 2})).await);
    let page = visitor.get(&path_of(&first)).await.text;
    assert!(
        page.contains("as write, and those that wait now, run without asking up to risk moderate"),
        "{page}"
    );
    let done = visitor.post(&decision_of(&first), &[("decision", "allow_always")]).await;
    let notice = visitor.get(done.header("location")).await.text;
    let grant = tenant.platform.items("/api/v1/consent/grants").await.remove(0);
    let link = format!("#grant-{}", grant["id"].as_str().unwrap());
    assert!(attributes(&notice, "href").contains(&link), "{link}: {notice}");
    assert!(notice.contains(&format!("<tr id=\"{}\">", link.trim_start_matches('#'))), "{notice}");
    assert!(visitor.get(&path_of(&first)).await.text.contains("no other call ran because of it, by the log"));
    for n in [2, 4] {
        run(n).await.ok();
    }
    // calls that do not run do not count
    tenant.platform.patch("/api/v1/servers/zoo", &json!({"enabled": false})).await.expect(200);
    run(5).await.refused("server_disabled");
    tenant.platform.patch("/api/v1/servers/zoo", &json!({"enabled": true})).await.expect(200);
    let counted = async || {
        let page = visitor.get(&path_of(&first)).await.text;
        page.contains("2 other calls ran because of it")
    };
    settle(true, SOON, counted).await;
    // the request that waited was answered by what is remembered
    let page = visitor.get(&path_of(&second)).await.text;
    let says = "No answer was needed any more: a decision that was remembered let the call run when the agent repeated it";
    assert!(page.to_lowercase().contains(&says.to_lowercase()), "{page}");
    let list = visitor.get("/console/permissions?state=lapsed").await.text;
    assert!(list.contains("A remembered decision let the call run"), "{list}");
    assert!(list.contains("or a remembered decision made an answer needless"), "{list}");
    let auditor = Visitor::with_key(&stage.gateway, &tenant.auditor().await).await;
    let record =
        tenant.records(&format!("type=tool_call&status=success&consent_id={first}"), 2).await.remove(0);
    let page = auditor.get(&format!("/console/activity/{}", record["id"].as_str().unwrap())).await.text;
    assert!(
        page.contains("Allowed by eva, over console, for this tool: the decision was remembered"),
        "{page}"
    );
    // its own call never ran, and others did
    let revoke = format!("/console/consent/grants/{}/revoke", grant["id"].as_str().unwrap());
    visitor.post(&revoke, &[]).await.expect(303);
    let page = visitor.get(&path_of(&first)).await.text;
    for says in
        ["his very call was not run: the decision that was remembered", "2 other calls ran because of it"]
    {
        assert!(page.contains(says), "{says}: {page}");
    }
    let agent = Visitor::with_key(&stage.gateway, &agent).await;
    assert!(!agent.get(&path_of(&first)).await.text.contains("because of it"), "counts are for who sees all");
}

#[tokio::test]
async fn a_call_that_was_allowed_runs_under_a_remembered_decision_too_and_its_page_says_one_thing() {
    let stage = Stage::start().await;
    let (tenant, _upstream) = asking(&stage, json!([]), upstream::zoo()).await;
    let agent = tenant.agent().await;
    let visitor = Visitor::with_key(&stage.gateway, &tenant.approver().await).await;
    let (first, second) = (asked(&agent, &json!({"n": 1})).await, asked(&agent, &json!({"n": 2})).await);
    let allowed = visitor.post(&decision_of(&second), &[("decision", "allow_once")]).await;
    let page = visitor.get(&path_of(&second)).await.text;
    assert!(page.contains("until then a rule that denies the call, or revoking the key"), "{page}");
    visitor.post(&decision_of(&first), &[("decision", "allow_always")]).await.expect(303);
    let notice = visitor.get(allowed.header("location")).await.text;
    assert!(notice.contains("a remembered decision allows this tool already"), "{notice}");
    assert!(!notice.contains("the same call runs once"), "{notice}");
    let page = visitor.get(&path_of(&second)).await.text;
    assert!(page.contains("a person allowed the call, and it has not run yet"), "{page}");
    assert!(page.contains("the same call runs without asking") && !page.contains("runs once"), "{page}");
    // its own call is none of the others
    for n in [1, 1] {
        Mcp::bare(&agent).run("write", "zoo:writer", &json!({ "n": n })).await.ok();
    }
    let counted =
        async || visitor.get(&path_of(&first)).await.text.contains("1 other call ran because of it");
    settle(true, SOON, counted).await;
    Mcp::bare(&agent).run("write", "zoo:writer", &json!({"n": 2})).await;
    let page = async || visitor.get(&path_of(&second)).await.text;
    settle(true, SOON, async || page().await.contains(">succeeded")).await;
    let page = page().await;
    assert!(page.contains("the same call runs without asking as long as that decision holds"), "{page}");
    assert!(!page.contains("asks again"), "{page}");
}
