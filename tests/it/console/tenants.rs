//! The platform operator at the console: chooses a tenant, acts in it as its admins do, and leaves it.

use std::time::Duration;

use serde_json::json;

use super::markup::{assert_harmless, attributes, form_to};
use crate::support::{Stage, Tenant, Upstream, Visitor, settle, upstream};

/// Name of the cookie that holds the chosen tenant.
const TENANT: &str = "__Host-mcpproxy-tenant";

#[tokio::test]
async fn the_platform_operator_acts_in_the_chosen_tenant() {
    let stage = Stage::start().await;
    let (acme, other) = (stage.tenant("acme").await, stage.tenant("other").await);
    let upstream = Upstream::handshake(upstream::zoo()).await;
    acme.add("up", &upstream).await;
    let visitor = Visitor::with_key(&stage.gateway, &stage.platform()).await;
    let page = visitor.get("/console/tenants").await;
    page.expect(200);
    assert_harmless(&page.text);
    assert_eq!(form_to(&page.text, "/acme/enter").as_deref(), Some("/console/tenants/acme/enter"));
    let foreign = visitor.send(visitor.form("/console/tenants/acme/enter", &[])).await;
    foreign.expect(403);
    assert_eq!(visitor.cookie(TENANT), None);
    visitor.get("/console/servers").await.expect(403);

    let entered = visitor.post("/console/tenants/acme/enter", &[]).await;
    assert_eq!((entered.status, entered.header("location")), (303, "/console"));
    for part in ["__Host-mcpproxy-tenant=acme;", "Secure", "HttpOnly", "SameSite=Lax"] {
        assert!(entered.header("set-cookie").contains(part), "{part}: {entered:?}");
    }
    let home = visitor.get("/console").await.text;
    assert!(home.contains("Overview</h1>") && home.contains(" in acme</span>"), "{home}");
    assert!(attributes(&home, "href").contains(&"/console/keys".to_owned()), "{home}");
    visitor.get("/console/servers/up").await.expect(200);
    visitor.post("/console/servers/up/disable", &[]).await.expect(303);
    assert_eq!(acme.platform.get("/api/v1/servers/up").await.expect(200)["enabled"], false);
    acme.records("tool=servers.disable&source=console&status=success", 1).await;
    let made = visitor.post("/console/keys/create", &[("role", "agent"), ("owner", "ada")]).await;
    made.expect(201);

    let of_acme = visitor.csrf().await;
    let moved = visitor.post("/console/tenants/other/enter", &[]).await;
    moved.expect(303);
    visitor.get("/console/servers/up").await.expect(404);
    // a page of the tenant before does nothing here
    let stale = visitor.form("/console/keys/create", &[("role", "admin"), ("csrf", of_acme.as_str())]);
    visitor.send(stale).await.expect(403);
    let own = visitor.csrf().await;
    let bare =
        visitor.form("/console/keys/create", &[("role", "admin"), ("csrf", own.split('~').next().unwrap())]);
    visitor.send(bare).await.expect(403);
    assert!(visitor.get("/console/tenants").await.text.contains("you act in it"));
    let left = visitor.post("/console/tenants/leave", &[]).await;
    assert_eq!((left.status, left.header("location")), (303, "/console/tenants"));
    visitor.set_cookie(TENANT, "");
    visitor.get("/console/servers").await.expect(403);
    for (name, status) in [("none", 404), ("NO NAME", 404)] {
        visitor.post(&format!("/console/tenants/{name}/enter"), &[]).await.expect(status);
    }
    // one that is suspended is seen all the same, as over REST, and one that is gone locks nobody out
    stage.platform().post("/api/v1/tenants/other/suspend", &json!({})).await.expect(200);
    visitor.post("/console/tenants/other/enter", &[]).await.expect(303);
    visitor.get("/console/keys").await.expect(200);
    for gone in ["none", "NO NAME", "platform"] {
        visitor.set_cookie(TENANT, gone);
        let page = visitor.get("/console/tenants").await;
        page.expect(200);
        assert!(!page.text.contains("you act in it"), "{gone}: {page:?}");
    }

    // what is about tenants is in the platform's log, and in that of no tenant
    let records = stage.platform().items("/api/v1/activity?tool=console.enter_tenant").await;
    assert!(records.len() >= 3, "{records:?}");
    for record in acme.platform.items("/api/v1/activity?source=console").await {
        let one = acme.platform.get(&format!("/api/v1/activity/{}", record["id"].as_str().unwrap())).await;
        assert!(!one.expect(200).to_string().contains("other"), "{one:?}");
    }
    drop(other);
}

#[tokio::test]
async fn a_choice_ends_with_its_session() {
    let stage = Stage::start().await;
    stage.tenant("acme").await;
    let visitor = Visitor::with_key(&stage.gateway, &stage.platform()).await;
    let key = stage.platform().key.unwrap();
    visitor.post("/console/tenants/acme/enter", &[]).await.expect(303);
    visitor.post("/console/logout", &[]).await.expect(303);
    assert!(visitor.cookie(TENANT).is_none_or(|tenant| tenant.is_empty()));
    visitor.log_in(&key).await.expect(303);
    visitor.post("/console/tenants/acme/enter", &[]).await.expect(303);
    // a login over another one
    visitor.log_in(&key).await.expect(303);
    visitor.get("/console/servers").await.expect(403);
}

#[tokio::test]
async fn the_choice_of_a_tenant_is_nothing_to_others() {
    let stage = Stage::start().await;
    let (acme, other) = (stage.tenant("acme").await, stage.tenant("other").await);
    let upstream = Upstream::handshake(upstream::zoo()).await;
    acme.add("up", &upstream).await;
    let visitor = Visitor::with_key(&stage.gateway, &other.admin().await).await;
    visitor.set_cookie(TENANT, "acme");
    visitor.get("/console/servers/up").await.expect(404);
    let page = visitor.get("/console/tenants").await;
    page.expect(403);
    assert!(!page.text.contains("acme"), "{page:?}");
    visitor.post("/console/tenants/acme/enter", &[]).await.expect(403);
    visitor.post("/console/tenants/leave", &[]).await.expect(403);
    assert!(!visitor.get("/console").await.text.contains("/console/tenants"));
}

#[tokio::test]
async fn the_platform_operator_makes_tenants_and_sets_quotas() {
    let stage = Stage::start().await;
    let visitor = Visitor::with_key(&stage.gateway, &stage.platform()).await;
    let list = visitor.get("/console/tenants").await.text;
    assert!(list.contains("This replica") && list.contains(">ready</span>"), "{list}");
    let action = form_to(&list, "/create").unwrap();
    let made = visitor.post(&action, &[("name", "acme")]).await;
    assert_eq!((made.status, made.header("location")), (303, "/console/tenants/acme"));
    for (name, status) in [("acme", 409), ("NO NAME", 400), ("platform", 409), ("", 400)] {
        visitor.post(&action, &[("name", name)]).await.expect(status);
    }
    let page = visitor.get("/console/tenants/acme").await.text;
    assert_harmless(&page);
    let read = async || stage.platform().get("/api/v1/tenants/acme").await.expect(200);
    let whole = read().await["quotas"]["keys"]["value"].to_string();
    let cells =
        format!("In force\">{whole}</td><td data-is=\"Set by\">deployment</td><td data-is=\"Used\">0</td>");
    assert!(page.contains(&cells), "{page}");
    let action = form_to(&page, "/update").unwrap();
    visitor.post(&action, &[("quotas.keys", "7")]).await.expect(303);
    let quotas = read().await["quotas"].clone();
    assert_eq!(quotas["keys"], json!({"value": 7, "origin": "tenant", "used": 0}));
    assert_eq!(quotas["servers"]["origin"], "deployment");
    for value in ["many", "-1"] {
        visitor.post(&action, &[("quotas.keys", value)]).await.expect(400);
    }
    // a form changes what differs from its page alone
    let page = visitor.get("/console/tenants/acme").await.text;
    assert_eq!(super::markup::hidden(&page, "was.keys"), "7");
    stage.platform().patch("/api/v1/tenants/acme", &json!({"quotas": {"servers": 3}})).await.expect(200);
    let late = [("was.keys", "7"), ("quotas.keys", "8"), ("was.servers", ""), ("quotas.servers", "")];
    visitor.post(&action, &late).await.expect(303);
    let quotas = read().await["quotas"].clone();
    assert_eq!((&quotas["keys"]["value"], &quotas["servers"]["value"]), (&json!(8), &json!(3)), "{quotas}");
    visitor.post(&action, &[("was.keys", "8"), ("quotas.keys", "")]).await.expect(303);
    assert_eq!(read().await["quotas"]["keys"]["origin"], "deployment");
    for (verb, is_suspended) in [("suspend", true), ("resume", false)] {
        let page = visitor.get("/console/tenants/acme").await.text;
        // a suspension is asked about first
        let page = if is_suspended {
            assert!(form_to(&page, "/suspend").is_none(), "{page}");
            let question = visitor.get("/console/tenants/acme/suspend").await;
            question.expect(200);
            assert_harmless(&question.text);
            assert!(read().await["suspended_at"].is_null());
            question.text
        } else {
            page
        };
        visitor.post(&form_to(&page, &format!("/{verb}")).unwrap(), &[]).await.expect(303);
        assert_eq!(read().await["suspended_at"].is_string(), is_suspended, "{verb}");
    }
    for (path, status) in
        [("acme/explode", 404), ("none/update", 404), ("NO%20NAME/suspend", 404), ("explode", 404)]
    {
        visitor.post(&format!("/console/tenants/{path}"), &[]).await.expect(status);
    }
    for path in ["none", "NO%20NAME", "none/suspend", "NO%20NAME/suspend", "acme/explode"] {
        visitor.get(&format!("/console/tenants/{path}")).await.expect(404);
    }
    // a name that is a verb is a name
    visitor.post("/console/tenants/create", &[("name", "leave")]).await.expect(303);
    visitor.get("/console/tenants/leave").await.expect(200);
    let acme = Tenant::of(&stage.platform().as_tenant("acme"), &stage.gateway.anonymous());
    let admin = Visitor::with_key(&stage.gateway, &acme.admin().await).await;
    for path in ["tenants/acme", "tenants/acme/suspend", "issuers"] {
        let page = admin.get(&format!("/console/{path}")).await;
        page.expect(403);
    }
    for path in ["tenants/create", "tenants/acme/update", "tenants/acme/suspend", "issuers/corp/check"] {
        admin.post(&format!("/console/{path}"), &[("name", "mine"), ("quotas.keys", "1")]).await.expect(403);
    }
    assert_eq!(stage.platform().items("/api/v1/tenants").await.len(), 2);
    let statuses = async || {
        let items = stage.platform().items("/api/v1/activity?source=console&tool=tenants.update").await;
        items.iter().filter(|item| item["status"] == "success").count()
    };
    settle(3, Duration::from_secs(5), statuses).await;
}

#[tokio::test]
async fn an_issuer_is_checked_and_its_token_kept_nowhere() {
    let (stage, _tenant, idp) = super::scene().await;
    let visitor = super::visitor_with(&stage.gateway, &stage.platform()).await;
    let page = visitor.get("/console/issuers").await;
    page.expect(200);
    assert_harmless(&page.text);
    assert!(page.text.contains(&idp.url) && page.text.contains("Tenant\">acme</td>"), "{page:?}");
    let action = form_to(&page.text, "/corp/check").unwrap();
    let token = idp.token("u1", super::GATEWAY, json!({}));
    for fields in [vec![], vec![("token", token.as_str())]] {
        let found = visitor.post(&action, &fields).await;
        found.expect(200);
        assert_harmless(&found.text);
        assert!(found.text.contains("<span class=\"tone good\">ok</span>"), "{found:?}");
        assert!(!found.text.contains(token.rsplit('.').next().unwrap()), "{found:?}");
    }
    for (path, status) in [("none/check", 404), ("NO%20NAME/check", 404)] {
        visitor.post(&format!("/console/issuers/{path}"), &[]).await.expect(status);
    }
    let ended = async || {
        stage
            .platform()
            .items("/api/v1/activity?source=console&tool=issuers.check&status=success")
            .await
            .len()
    };
    settle(2, Duration::from_secs(5), ended).await;
    let rows: String = stage.database.rows().await.into_iter().map(|(_, row)| row).collect();
    assert!(!rows.contains(token.rsplit('.').next().unwrap()), "the token was recorded");
}
