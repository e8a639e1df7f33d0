//! People of identity providers: seen, blocked, and nobody's but an admin's.

use std::time::Duration;

use serde_json::{Value, json};

use super::markup::{HOSTILE, assert_harmless, attributes, escaped, form_to};
use super::{scene, visitor, visitor_with};
use crate::support::settle;

const SOON: Duration = Duration::from_secs(5);

#[tokio::test]
async fn a_person_is_blocked_and_the_session_ends() {
    let (stage, tenant, idp) = scene().await;
    idp.log_in(|login| login.claims = json!({"email": "ana@acme.example"}));
    let ana = visitor(&stage.gateway);
    ana.log_in_there().await.expect(303);
    ana.get("/console").await.expect(200);
    let admin = visitor_with(&stage.gateway, &tenant.admin().await).await;
    settle(1, SOON, || async { tenant.platform.items("/api/v1/identities").await.len() }).await;
    let page = admin.get("/console/people").await;
    page.expect(200);
    assert_harmless(&page.text);
    let id = tenant.platform.items("/api/v1/identities").await.remove(0)["id"].as_str().unwrap().to_owned();
    for shown in ["ana@acme.example", "corp", "agent", &format!("/console/activity?identity_id={id}")] {
        assert!(page.text.contains(shown), "{shown}: {page:?}");
    }
    assert!(admin.get(&format!("/console/activity?identity_id={id}")).await.text.contains("console.login"));
    let action = form_to(&page.text, "/block").unwrap();
    assert_eq!(action, format!("/console/identities/{id}/block"));
    let done = admin.post(&action, &[]).await;
    assert_eq!((done.status, done.header("location")), (303, "/console/people"));
    settle(403, SOON, || async { ana.get("/console").await.status }).await;
    let page = admin.get("/console/people").await.text;
    assert!(page.contains("blocked <time"), "{page}");
    let action = form_to(&page, "/unblock").unwrap();
    admin.post(&action, &[]).await.expect(303);
    // tokens of the second of the block are refused for good
    settle(303, SOON, || async { visitor(&stage.gateway).log_in_there().await.status }).await;
    // somebody who has not been here yet
    let fields = [("issuer", "corp"), ("subject", "nobody-yet")];
    admin.post("/console/identities/block", &fields).await.expect(303);
    assert!(admin.get("/console/people").await.text.contains("nobody-yet"));
    for (path, fields, status) in [
        ("/console/identities/block", vec![("issuer", "none"), ("subject", "x")], 404),
        ("/console/identities/x/block", vec![], 404),
        ("/console/identities/0199aaaa-0000-7000-8000-000000000001/block", vec![], 404),
        ("/console/identities/x/explode", vec![], 404),
    ] {
        admin.post(path, &fields).await.expect(status);
    }
    // the form comes again, with what was typed and the fault beside it
    let page = admin.get("/console/people").await.text;
    assert!(page.contains("<option value=\"corp\">corp</option>"), "{page}");
    let refused = admin.post("/console/identities/block", &[("issuer", "none"), ("subject", "x y")]).await;
    refused.expect(404);
    assert_harmless(&refused.text);
    let form = refused.text.split("<h2 id=\"block\">").nth(1).unwrap();
    for part in [
        "No issuer of this tenant is named &#39;none&#39;.",
        "Nothing was changed.",
        "<option value=\"none\" selected>",
        "<option value=\"corp\">",
        "value=\"x y\"",
    ] {
        assert!(form.contains(part), "{part}: {form}");
    }
    for fields in [vec![], vec![("issuer", "corp")], vec![("issuer", " "), ("subject", "x")]] {
        let refused = admin.post("/console/identities/block", &fields).await;
        refused.expect(400);
        assert!(refused.text.contains("Issuer and subject are both needed"), "{refused:?}");
    }
    for what in ["identities.block", "identities.unblock", "identities.block_subject"] {
        tenant.records(&format!("tool={what}&source=console&status=success"), 1).await;
    }
}

#[tokio::test]
async fn nobody_is_offered_a_block_of_oneself() {
    let (stage, tenant, idp) = scene().await;
    crate::logins::set_rules(&tenant, json!([{"role": "admin", "conditions": [{"claim": "email", "op": "equals", "value": "ana@acme.example"}]}])).await;
    idp.log_in(|login| {
        login.subject = "ana".to_owned();
        login.claims = json!({"email": "ana@acme.example"});
    });
    let ana = visitor(&stage.gateway);
    ana.log_in_there().await.expect(303);
    ana.post("/console/identities/block", &[("issuer", "corp"), ("subject", "bob")]).await.expect(303);
    settle(2, SOON, || async { tenant.platform.items("/api/v1/identities").await.len() }).await;
    for person in tenant.platform.items("/api/v1/identities").await {
        let page = ana.get("/console/people").await.text;
        let acts = format!("/console/identities/{}/", person["id"].as_str().unwrap());
        assert_eq!(page.contains(&acts), person["subject"] == "bob", "{person}: {page}");
    }
}

#[tokio::test]
async fn people_and_rules_are_for_admins_alone() {
    let (stage, tenant, _idp) = scene().await;
    let with = async |api: &crate::support::Api| visitor_with(&stage.gateway, api).await;
    let admin = tenant.admin().await;
    let high = with(&admin).await;
    let rules = high.get("/console/people/rules").await;
    rules.expect(200);
    assert_harmless(&rules.text);
    assert!(rules.text.contains("&#34;role&#34;: &#34;agent&#34;"), "{rules:?}");
    high.get("/console/people").await.expect(200);
    for what in ["identities.list", "identity.get_rules"] {
        tenant.records(&format!("tool={what}&source=console&status=success&key={}", admin.id), 1).await;
    }
    for low in
        [tenant.agent().await, tenant.auditor().await, tenant.operator().await, tenant.approver().await]
    {
        let visitor = with(&low).await;
        for path in ["/console/people", "/console/people/rules"] {
            let page = visitor.get(path).await;
            page.expect(403);
            assert!(!attributes(&page.text, "href").contains(&"/console/people".to_owned()), "{page:?}");
        }
        visitor.post("/console/identities/x/block", &[]).await.expect(403);
        visitor.post("/console/identities/block", &[("issuer", "corp"), ("subject", "x")]).await.expect(403);
        let recorded = async || {
            let path = format!("/api/v1/activity?source=console&status=blocked&key={}", low.id);
            let items = tenant.platform.items(&path).await;
            let mut names: Vec<Value> = items.into_iter().map(|item| item["tool"].clone()).collect();
            names.sort_by_key(Value::to_string);
            names
        };
        let names = ["identities.block", "identities.block_subject", "identities.list", "identity.get_rules"];
        settle(names.map(Value::from).to_vec(), SOON, recorded).await;
    }
    assert_eq!(tenant.platform.items("/api/v1/identities").await.len(), 0);
    let platform = with(&stage.platform()).await;
    platform.get("/console/people").await.expect(403);
}

#[tokio::test]
async fn hostile_names_of_people_stay_names() {
    let (stage, tenant, _idp) = scene().await;
    let admin = visitor_with(&stage.gateway, &tenant.admin().await).await;
    for text in HOSTILE {
        admin.post("/console/identities/block", &[("issuer", "corp"), ("subject", text)]).await.expect(303);
    }
    let page = admin.get("/console/people?limit=100").await.text;
    assert_harmless(&page);
    HOSTILE.iter().for_each(|text| assert!(page.contains(&escaped(text)), "{text}: {page}"));
}
