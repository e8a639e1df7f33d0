//! Login by API key, and what the session is.

use reqwest::Method;
use serde_json::{Value, json};

use crate::support::{Gateway, SESSION, Stage, Visitor};

/// Headers of every page.
const GUARDS: [(&str, &str); 4] = [
    ("x-content-type-options", "nosniff"),
    ("referrer-policy", "same-origin"),
    ("cache-control", "no-store"),
    ("x-request-id", ""),
];

#[tokio::test]
async fn a_key_is_exchanged_for_a_session() {
    let stage = Stage::start().await;
    let tenant = stage.tenant("acme").await;
    let auditor =
        tenant.key(&json!({"role": "auditor", "name": "laptop", "owner": "ana@acme.example"})).await;
    let key = auditor.key.clone().unwrap();
    let visitor = Visitor::of(&stage.gateway);
    let sent = visitor.get("/console").await;
    assert_eq!((sent.status, sent.header("location")), (303, "/console/login"));
    let page = visitor.get("/console/login").await;
    page.expect(200);
    assert!(page.text.contains("name=\"api_key\"") && !page.text.contains("provider"), "{page:?}");
    for (name, value) in GUARDS {
        assert!(page.header(name).contains(value) && page.headers.contains_key(name), "{name}");
    }
    let policy = page.header("content-security-policy");
    assert!(policy.contains("frame-ancestors 'none'") && !policy.contains("unsafe"), "{policy}");

    let answer = visitor.log_in(&format!(" {key} ")).await;
    assert_eq!((answer.status, answer.header("location")), (303, "/console"));
    let cookie = answer.header("set-cookie");
    let value = visitor.cookie(SESSION).unwrap();
    assert_eq!(cookie, format!("{SESSION}={value}; Path=/; Secure; HttpOnly; SameSite=Lax"));
    assert_eq!(value.len(), 43);
    let home = visitor.get("/console").await;
    home.expect(200);
    for shown in ["ana@acme.example", "auditor", "acme", "with the API key &#39;laptop&#39;", "this one"] {
        assert!(home.text.contains(shown), "{shown}: {}", home.text);
    }
    // who is logged in needs no form
    let again = visitor.get("/console/login?return_to=/console?x=1").await;
    assert_eq!((again.status, again.header("location")), (303, "/console?x=1"));

    let out = visitor.post("/console/logout", &[]).await;
    assert_eq!((out.status, out.header("location")), (303, "/console/login"));
    assert!(out.header("set-cookie").contains("Max-Age=0"));
    visitor.set_cookie(SESSION, &value);
    assert_eq!(visitor.get("/console").await.status, 303, "the cookie of a session that has ended");

    let records = tenant.records("type=admin", 3).await;
    let acts: Vec<&Value> = records.iter().filter(|record| record["source"] == "console").collect();
    let named: Vec<&str> = acts.iter().map(|record| record["tool"].as_str().unwrap()).collect();
    assert_eq!(named, ["console.logout", "console.login"], "{records:?}");
    assert!(acts.iter().all(|record| record["owner"] == "ana@acme.example" && record["status"] == "success"));
    assert!(acts.iter().all(|record| record["client_address"] == "127.0.0.1"), "{acts:?}");
    let stored: String = stage.database.rows().await.into_iter().map(|(_, row)| row).collect();
    for secret in [&key, &value] {
        assert!(!stored.contains(secret.as_str()) && !stage.gateway.log().contains(secret.as_str()));
        assert!(!home.text.contains(secret.as_str()));
    }
}

#[tokio::test]
async fn a_wrong_key_is_refused_and_counted() {
    let stage = Stage::start().await;
    let tenant = stage.tenant("acme").await;
    let agent = tenant.agent().await;
    let visitor = Visitor::of(&stage.gateway);
    for key in ["", "mcpk_unknown", "a.b.c", &agent.id] {
        let answer = visitor.log_in(key).await;
        assert_eq!(answer.status, 401, "{key}");
        assert!(answer.text.contains("This API key is not valid here.") && answer.text.contains("<form"));
        assert!(visitor.cookie(SESSION).is_none() && !answer.headers.contains_key("set-cookie"));
    }
    tenant.platform.delete(&format!("/api/v1/keys/{}", agent.id)).await.expect(204);
    assert_eq!(visitor.log_in(agent.key.as_deref().unwrap()).await.status, 401, "a revoked key");
    let mut stage = stage;
    stage.gateway.terminate();
    stage.gateway.ended().await;
    let next = Gateway::start(&stage.database, &[]).await;
    let counted = next.platform().items("/api/v1/activity?type=auth_failure").await;
    assert_eq!(counted.len(), 5, "one for each key, the empty one among them: {counted:?}");
}

#[tokio::test]
async fn each_login_is_a_session_of_its_own() {
    let stage = Stage::start().await;
    let tenant = stage.tenant("acme").await;
    let (admin, agent) = (tenant.admin().await, tenant.agent().await);
    let visitor = Visitor::of(&stage.gateway);
    // a cookie that another put there is not taken over
    let planted = "A".repeat(43);
    visitor.set_cookie(SESSION, &planted);
    visitor.log_in(admin.key.as_deref().unwrap()).await;
    let first = visitor.cookie(SESSION).unwrap();
    assert_ne!(first, planted);
    visitor.log_in(agent.key.as_deref().unwrap()).await;
    let second = visitor.cookie(SESSION).unwrap();
    assert_ne!(second, first);
    assert!(visitor.get("/console").await.text.contains("<dd>agent</dd>"));
    let (former, planter) = (Visitor::of(&stage.gateway), Visitor::of(&stage.gateway));
    former.set_cookie(SESSION, &first);
    planter.set_cookie(SESSION, &planted);
    assert_eq!((former.get("/console").await.status, planter.get("/console").await.status), (303, 303));
    assert_eq!(stage.database.count("select count(*) from web_sessions").await, 1);
}

#[tokio::test]
async fn the_operator_of_the_platform_logs_in_with_the_bootstrap_key() {
    let stage = Stage::start().await;
    let visitor = Visitor::with_key(&stage.gateway, &stage.platform()).await;
    let home = visitor.get("/console").await;
    home.expect(200);
    assert!(home.text.contains("<dd>platform</dd>") && home.text.contains("the platform operator&#39;s key"));
    let other_key = ("MCPPROXY__AUTH__BOOTSTRAP_KEY", "another-bootstrap-key-of-the-integration-tests");
    let other = Gateway::start(&stage.database, &[other_key]).await;
    assert_eq!(visitor.at(&other).get("/console").await.status, 303, "a replaced bootstrap key");
}

#[tokio::test]
async fn a_key_has_so_many_sessions_and_the_oldest_goes() {
    let stage = Stage::start().await;
    let tenant = stage.tenant("acme").await;
    let (admin, other) = (tenant.admin().await, tenant.admin().await);
    let bystander = Visitor::with_key(&stage.gateway, &other).await;
    let oldest = Visitor::with_key(&stage.gateway, &admin).await;
    let second = Visitor::with_key(&stage.gateway, &admin).await;
    for _ in 0..49 {
        Visitor::with_key(&stage.gateway, &admin).await;
    }
    assert_eq!(stage.database.count("select count(*) from web_sessions").await, 51);
    assert_eq!(oldest.get("/console").await.status, 303);
    assert_eq!((second.get("/console").await.status, bystander.get("/console").await.status), (200, 200));
}

#[tokio::test]
async fn a_form_after_the_end_of_its_session_leads_back_to_its_page() {
    let stage = Stage::start().await;
    let tenant = stage.tenant("acme").await;
    let admin = tenant.admin().await;
    let visitor = Visitor::with_key(&stage.gateway, &admin).await;
    let csrf = visitor.csrf().await;
    let ended = visitor.cookie(SESSION).unwrap();
    visitor.post("/console/logout", &[]).await.expect(303);
    let fields = [("csrf", csrf.as_str()), ("role", "agent"), ("owner", "ada")];
    let sent = async |referer: &str| {
        visitor.set_cookie(SESSION, &ended);
        let form = visitor.form("/console/keys/create", &fields);
        let form = if referer.is_empty() { form } else { form.header("Referer", referer) };
        let answer = visitor.send(form).await;
        assert_eq!(answer.status, 303, "{answer:?}");
        answer.header("location").to_owned()
    };
    let lost = "/console/login?form_lost=1";
    for foreign in ["https://evil.example/console/keys", "/console/keys", "x", ""] {
        assert_eq!(sent(foreign).await, lost, "{foreign}");
    }
    for elsewhere in ["/api/v1/keys", "/console/../api/v1/keys", "/console//evil.example"] {
        assert_eq!(sent(&format!("{}{elsewhere}", visitor.base)).await, lost, "{elsewhere}");
    }
    let back = sent(&format!("{}/console/keys?limit=5", visitor.base)).await;
    assert_eq!(back, "/console/login?return_to=/console/keys%3Flimit%3D5&form_lost=1");
    let page = visitor.get(&back).await.text;
    assert!(page.contains("Your session had ended, so nothing was done. Log in, and send the form again."));
    assert!(page.contains("name=\"return_to\" value=\"/console/keys?limit=5\""), "{page}");
    assert!(!visitor.get("/console/login").await.text.contains("session had ended"));
    assert_eq!(stage.database.count("select count(*) from api_keys where owner = 'ada'").await, 0);
    // a form of another site is refused as before
    let foreign = visitor.form("/console/keys/create", &fields).build().unwrap();
    let mut headers = foreign.headers().clone();
    headers.insert("Origin", "https://evil.example".parse().unwrap());
    let foreign = visitor.request(Method::POST, "/console/keys/create").headers(headers).body("");
    assert_eq!(visitor.send(foreign).await.status, 403);
    // the page of a form may be the answer to an earlier one: its address leads to the page above it
    let fields = [("api_key", admin.key.as_deref().unwrap()), ("return_to", "/console/keys/create")];
    let answer = visitor.send(visitor.form("/console/login", &fields)).await;
    assert_eq!(answer.header("location"), "/console/keys/create");
    for (act, page) in [
        ("/console/keys/create", "/console/keys"),
        ("/console/policy/check", "/console/policy"),
        ("/console/settings/update", "/console/settings"),
    ] {
        let opened = visitor.get(act).await;
        assert_eq!((opened.status, opened.header("location")), (303, page), "{act}");
    }
}

#[tokio::test]
async fn hostile_names_are_text() {
    let stage = Stage::start().await;
    let tenant = stage.tenant("acme").await;
    let hostile = "\"><script>alert(1)</script><img src=x onerror=alert(1)>'&";
    let admin = tenant.key(&json!({"role": "admin", "name": hostile, "owner": hostile})).await;
    let home = Visitor::with_key(&stage.gateway, &admin).await.get("/console").await;
    home.expect(200);
    super::markup::assert_harmless(&home.text);
    assert!(home.text.contains("&#60;script&#62;alert(1)&#60;/script&#62;"), "{}", home.text);
}

#[tokio::test]
async fn a_deployment_without_console_has_none() {
    let stage = Stage::with(&[("MCPPROXY__CONSOLE__ENABLED", "false")]).await;
    let visitor = Visitor::of(&stage.gateway);
    for path in ["/console", "/console/login", "/console/static/console.css"] {
        assert_eq!(visitor.get(path).await.status, 401, "{path}");
    }
    let with_key =
        visitor.request(Method::GET, "/console").header("X-API-Key", stage.platform().key.unwrap());
    assert_eq!(visitor.send(with_key).await.status, 404);
}
