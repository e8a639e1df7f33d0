//! Login at an identity provider.

use std::time::Duration;

use reqwest::Method;
use serde_json::json;

use super::{CLIENT, GATEWAY, SETTINGS, scene, scene_with, visitor};
use crate::support::{Gateway, Idp, SESSION, settle};

const SOON: Duration = Duration::from_secs(1);
const FLOW: &str = "__Host-mcpproxy-flow";

#[tokio::test]
async fn a_person_logs_in_and_is_the_person_of_a_token() {
    let (stage, tenant, idp) = scene().await;
    idp.log_in(|login| login.claims = json!({"email": "ana@acme.example"}));
    let visitor = visitor(&stage.gateway);
    let page = visitor.get("/console/login?return_to=/console?x=1").await;
    assert!(page.text.contains("Log in with corp"), "{}", page.text);
    assert!(page.text.contains("/console/login/provider?return_to=/console%3Fx%3D1"), "{}", page.text);
    let begun = visitor.get("/console/login/provider?return_to=/console?x=1").await;
    let cookie = begun.header("set-cookie");
    let ends = "; Path=/; Secure; HttpOnly; SameSite=Lax; Max-Age=600";
    assert!(cookie.starts_with(FLOW) && cookie.ends_with(ends), "{cookie}");
    let url = url::Url::parse(begun.header("location")).unwrap();
    let asked = |name: &str| url.query_pairs().find(|(own, _)| own == name).unwrap().1.into_owned();
    assert!(url.as_str().starts_with(&format!("{}/authorize?", idp.url)));
    assert_eq!(
        (asked("response_type"), asked("scope")),
        ("code".to_owned(), "openid email profile".to_owned())
    );
    assert_eq!(
        (asked("client_id"), asked("redirect_uri")),
        (CLIENT.to_owned(), format!("{GATEWAY}/oauth/callback"))
    );
    assert_eq!(
        (asked("code_challenge_method"), asked("nonce").len(), asked("state").len()),
        ("S256".to_owned(), 43, 43)
    );

    let back = visitor.to_provider("/console/login/provider?return_to=/console?x=1").await;
    let answer = visitor.get(&back).await;
    assert_eq!((answer.status, answer.header("location")), (303, "/console?x=1"), "{answer:?}");
    let session = visitor.cookie(SESSION).unwrap();
    // other tabs of the browser may be at the provider still
    assert!(visitor.cookie(FLOW).is_some());
    let (form, header) = idp.exchanges().remove(0);
    assert_eq!(
        (form["grant_type"].as_str(), form["client_id"].as_str(), header),
        ("authorization_code", CLIENT, None)
    );
    assert_eq!(form["code_verifier"].len(), 43);
    let home = visitor.get("/console").await;
    for shown in ["ana@acme.example", "<dd>agent</dd>", "<dd>acme</dd>", "identity provider &#39;corp&#39;"] {
        assert!(home.text.contains(shown), "{shown}: {}", home.text);
    }
    // any replica serves the session, in the same person as a token
    let other = Gateway::start(&stage.database, &SETTINGS).await;
    let there = visitor.at(&other);
    assert!(there.get("/console").await.text.contains("ana@acme.example"));
    let csrf = visitor.csrf().await;
    let status = visitor.request(Method::GET, "/api/v1/status").header("Origin", GATEWAY);
    let status = visitor.send(status.header("X-CSRF-Token", &csrf)).await.expect(200);
    let token = idp.token("u1", GATEWAY, json!({}));
    let by_token = stage.gateway.anonymous().with_key(&token).get("/api/v1/status").await.expect(200);
    assert_eq!(status["identity_id"], by_token["identity_id"]);
    settle(1, Duration::from_secs(5), || async { tenant.platform.items("/api/v1/identities").await.len() })
        .await;

    let records = tenant.records("type=admin&source=console", 1).await;
    assert_eq!(
        (&records[0]["tool"], &records[0]["owner"]),
        (&json!("console.login"), &json!("ana@acme.example"))
    );
    assert_eq!(records[0]["identity_id"], status["identity_id"]);
    let rows: String = stage.database.rows().await.into_iter().map(|(_, row)| row).collect();
    let written = format!("{rows}{}{}", stage.gateway.log(), other.log());
    let id_token = idp.id_tokens().remove(0);
    let signature = id_token.rsplit_once('.').unwrap().1;
    for secret in [signature, &session, &form["code"], &form["code_verifier"], &asked("state")] {
        assert!(!written.contains(secret), "a secret was written");
    }
}

#[tokio::test]
async fn an_answer_of_another_browser_or_provider_is_refused() {
    let (stage, _tenant, idp) = scene().await;
    let text = "This login does not belong to a request of this browser";
    let own = visitor(&stage.gateway);
    let back = own.to_provider("/console/login/provider").await;
    let refused = async |who: &crate::support::Visitor, path: &str| {
        let answer = who.get(path).await;
        assert_eq!(answer.status, 400, "{path}");
        assert!(answer.text.contains(text) && who.cookie(SESSION).is_none(), "{path}");
    };
    let stranger = visitor(&stage.gateway);
    refused(&stranger, &back).await;
    stranger.to_provider("/console/login/provider").await;
    refused(&stranger, &back).await;
    let (head, iss) = back.split_once("&iss=").or_else(|| back.split_once("iss=")).unwrap();
    let iss = iss.split('&').next().unwrap();
    let changed = |new: &str| back.replace(&format!("iss={iss}"), new);
    assert!(!head.is_empty());
    for forged in [
        changed("iss=https%3A%2F%2Fevil.example"),
        changed(&format!("iss={iss}%2F")),
        changed(&format!("iss={iss}&iss={iss}")),
        changed("x=1"),
        format!(
            "{}&error=access_denied&error_description=<b>pay</b>",
            changed("iss=https%3A%2F%2Fevil.example")
        ),
        back.replace("state=", "state=A"),
        "/oauth/callback".to_owned(),
    ] {
        refused(&own, &forged).await;
    }
    assert!(idp.exchanges().is_empty(), "no code was sent anywhere");
    // the forgeries did not use it up; it works once
    let answer = own.get(&back).await;
    assert_eq!((answer.status, answer.header("location")), (303, "/console"));
    own.set_cookie(SESSION, "");
    refused(&own, &back).await;
    assert_eq!(idp.exchanges().len(), 1);
}

#[tokio::test]
async fn what_a_provider_says_is_never_shown() {
    let (stage, _tenant, idp) = scene().await;
    let hostile = "<script>alert(1)</script>";
    let visitor = visitor(&stage.gateway);
    idp.log_in(|login| {
        login.answer = json!({"code": null, "error": "access_denied", "error_description": hostile});
    });
    let answer = visitor.log_in_there().await;
    assert_eq!(answer.status, 403);
    assert!(
        answer.text.contains("The identity provider did not log you in.") && !answer.text.contains("alert")
    );
    idp.log_in(|login| {
        login.answer = json!({});
        login.refusal = Some(json!({"error": "invalid_grant", "error_description": hostile}));
    });
    let answer = visitor.log_in_there().await;
    assert_eq!(answer.status, 503);
    assert!(!answer.text.contains("alert") && !answer.text.contains("invalid_grant"));
    idp.log_in(|login| {
        login.refusal = None;
        login.claims = json!({"email": hostile, "name": hostile});
    });
    assert_eq!(visitor.log_in_there().await.status, 303);
    let home = visitor.get("/console").await.text;
    assert!(home.contains("&#60;script&#62;"), "{home}");
    super::markup::assert_harmless(&home);
}

#[tokio::test]
async fn an_id_token_must_be_of_this_login() {
    let (stage, _tenant, idp) = scene().await;
    let visitor = visitor(&stage.gateway);
    let now = crate::support::now_s();
    for (why, claims, typ) in [
        ("nonce", json!({"nonce": "another"}), "JWT"),
        ("no nonce", json!({"nonce": null}), "JWT"),
        ("audience", json!({"aud": "https://gw.example"}), "JWT"),
        ("several audiences", json!({"aud": [CLIENT, "other"]}), "JWT"),
        ("azp", json!({"azp": "other"}), "JWT"),
        ("iss", json!({"iss": "https://evil.example"}), "JWT"),
        ("expired", json!({"exp": now - 90}), "JWT"),
        ("future", json!({"iat": now + 90}), "JWT"),
        ("no iat", json!({"iat": null}), "JWT"),
        ("access token", json!({}), "at+jwt"),
        ("logout token", json!({"events": {}}), "JWT"),
        ("subject", json!({"sub": ""}), "JWT"),
    ] {
        idp.log_in(|login| (login.claims, login.typ) = (claims, typ));
        let answer = visitor.log_in_there().await;
        assert_eq!(answer.status, 401, "{why}");
        assert!(visitor.cookie(SESSION).is_none(), "{why}");
    }
    let azp = json!({"aud": [CLIENT, "other"], "azp": CLIENT});
    idp.log_in(|login| (login.claims, login.typ) = (azp, "JWT"));
    assert_eq!(visitor.log_in_there().await.status, 303);
    // an ID token is no access token, whatever its audience
    let id_token = idp.id_tokens().pop().unwrap();
    assert_eq!(stage.gateway.anonymous().with_key(&id_token).get("/api/v1/status").await.status, 401);
}

#[tokio::test]
async fn a_provider_without_pkce_or_of_another_name_is_not_used() {
    for metadata in [
        json!({"code_challenge_methods_supported": []}),
        json!({"code_challenge_methods_supported": ["plain"]}),
        json!({"issuer": "https://evil.example"}),
        json!({"token_endpoint": "http://10.0.0.1/token"}),
    ] {
        let (stage, _tenant, idp) = scene().await;
        idp.log_in(|login| login.metadata = metadata.clone());
        let answer = visitor(&stage.gateway).get("/console/login/provider").await;
        assert_eq!(answer.status, 503, "{metadata}");
        assert!(answer.text.contains("API keys work"), "{answer:?}");
    }
}

#[tokio::test]
async fn a_secret_goes_in_the_way_that_the_provider_takes() {
    for (ways, in_header) in [(json!(null), true), (json!(["client_secret_post"]), false)] {
        let settings = [
            ("MCPPROXY__CONSOLE__CLIENT_ID", "gateway"),
            ("MCPPROXY__CONSOLE__CLIENT_SECRET", "client-secret-of-the-integration-tests"),
        ];
        let (stage, _tenant, idp) = scene_with(&settings).await;
        idp.log_in(|login| login.metadata = json!({"token_endpoint_auth_methods_supported": ways}));
        assert_eq!(visitor(&stage.gateway).log_in_there().await.status, 303);
        let (form, header) = idp.exchanges().remove(0);
        assert_eq!(header.is_some(), in_header);
        assert_eq!(form.contains_key("client_secret"), !in_header);
        assert!(!stage.gateway.log().contains("client-secret"));
    }
}

#[tokio::test]
async fn a_person_of_several_tenants_chooses_one() {
    let (stage, _acme, idp) = scene().await;
    let beta = stage.tenant("beta").await;
    crate::logins::set_rules(&beta, json!([{"role": "auditor"}])).await;
    stage.platform().patch("/api/v1/issuers/corp", &json!({"tenant": null})).await.expect(200);
    let items = json!({"items": [
        {"claim": "org", "value": "a", "tenant": "acme"}, {"claim": "org", "value": "b", "tenant": "beta"},
    ]});
    let put = stage.platform().ask(Method::PUT, "/api/v1/issuers/corp/tenants", Some(&items)).await;
    put.expect(200);
    let visitor = visitor(&stage.gateway);
    idp.log_in(|login| login.claims = json!({"org": "c"}));
    let answer = visitor.log_in_there().await;
    assert_eq!(answer.status, 403);
    assert!(answer.text.contains("no rule gives it access here"));
    idp.log_in(|login| login.claims = json!({"org": ["a", "b"]}));
    let page = visitor.log_in_there().await;
    page.expect(200);
    let (_, rest) = page.text.split_once("name=\"state\" value=\"").unwrap();
    let state = rest.split('"').next().unwrap().to_owned();
    assert!(page.text.contains("value=\"acme\"") && page.text.contains("value=\"beta\""));
    let choose = |who: &crate::support::Visitor, tenant: &str| {
        let form = who.form("/console/login/tenant", &[("state", &state), ("tenant", tenant)]);
        let who = who.clone();
        async move { who.send(form).await }
    };
    let stranger = super::visitor(&stage.gateway);
    stranger.to_provider("/console/login/provider").await;
    assert_eq!(choose(&stranger, "beta").await.status, 400);
    assert_eq!(choose(&visitor, "gamma").await.status, 400);
    assert_eq!(choose(&visitor, "beta").await.status, 303);
    let home = visitor.get("/console").await.text;
    assert!(home.contains("<dd>beta</dd>") && home.contains("<dd>auditor</dd>"), "{home}");
    assert_eq!(choose(&visitor, "acme").await.status, 400, "once");
    // who leaves the tenant is out
    let fewer = json!({"items": [{"claim": "org", "value": "a", "tenant": "acme"}]});
    stage.platform().ask(Method::PUT, "/api/v1/issuers/corp/tenants", Some(&fewer)).await.expect(200);
    settle(403, SOON, || async { visitor.get("/console").await.status }).await;
}

#[tokio::test]
async fn blocks_rules_and_issuers_hold_at_once_for_sessions() {
    let (stage, tenant, idp) = scene().await;
    let other = Gateway::start(&stage.database, &SETTINGS).await;
    idp.log_in(|login| login.claims = json!({"iat": crate::support::now_s() - 5}));
    let visitor = visitor(&stage.gateway);
    assert_eq!(visitor.log_in_there().await.status, 303);
    let there = visitor.at(&other);
    let role = |who: crate::support::Visitor| async move {
        let page = who.get("/console").await;
        if page.text.contains("<dd>auditor</dd>") { 1 } else { page.status }
    };
    let rules = |role: &str| json!([{"role": role}]);
    crate::logins::set_rules(&tenant, rules("auditor")).await;
    assert_eq!(role(visitor.clone()).await, 1);
    settle(1, SOON, || role(there.clone())).await;
    crate::logins::set_rules(&tenant, json!([])).await;
    settle(403, SOON, || role(there.clone())).await;
    crate::logins::set_rules(&tenant, rules("auditor")).await;
    settle(1, SOON, || role(there.clone())).await;

    settle(1, Duration::from_secs(5), || async { tenant.platform.items("/api/v1/identities").await.len() })
        .await;
    let person = tenant.platform.items("/api/v1/identities").await.remove(0);
    let block = format!("/api/v1/identities/{}/block", person["id"].as_str().unwrap());
    tenant.platform.post(&block, &json!({})).await.expect(200);
    let page = visitor.get("/console").await;
    assert!(page.status == 403 && page.text.contains("This account is blocked here."), "{page:?}");
    settle(403, SOON, || role(there.clone())).await;
    tenant.platform.post(&block.replace("/block", "/unblock"), &json!({})).await.expect(200);
    settle(303, SOON, || role(there.clone())).await;
    assert_eq!(stage.database.count("select count(*) from web_sessions").await, 0);

    idp.log_in(|login| login.claims = json!({"iat": crate::support::now_s() + 1}));
    assert_eq!(visitor.log_in_there().await.status, 303);
    let there = visitor.at(&other);
    stage.platform().post("/api/v1/tenants/acme/suspend", &json!({})).await.expect(200);
    settle(403, SOON, || role(there.clone())).await;
    stage.platform().post("/api/v1/tenants/acme/resume", &json!({})).await.expect(200);
    settle(1, SOON, || role(there.clone())).await;
    // keys may change: the token was verified once, when the session began
    idp.rotate("k2");
    idp.withdraw();
    idp.set(crate::support::IdpMood::Broken);
    assert_eq!(role(visitor.clone()).await, 1);
    stage.platform().delete("/api/v1/issuers/corp").await.expect(204);
    assert_eq!(role(visitor.clone()).await, 303);
    settle(303, SOON, || role(there.clone())).await;
    assert_eq!(visitor.get("/console/login/provider").await.status, 404);
}

#[tokio::test]
async fn the_client_is_described_where_its_id_says() {
    let (stage, _tenant, idp) = scene().await;
    let answer = visitor(&stage.gateway).get("/oauth/client.json").await;
    let metadata = answer.expect(200);
    assert_eq!(answer.header("content-type"), "application/json");
    assert_eq!(
        (&metadata["client_id"], &metadata["redirect_uris"]),
        (&json!(CLIENT), &json!([format!("{GATEWAY}/oauth/callback")]))
    );
    assert_eq!(metadata["token_endpoint_auth_method"], "none");
    let none = crate::support::Stage::start().await;
    for path in ["/oauth/client.json", "/oauth/callback", "/console/login/provider"] {
        assert_eq!(visitor(&none.gateway).get(path).await.status, 404, "{path}");
    }
    drop(idp);
}

#[tokio::test]
async fn logins_under_way_end() {
    let settings =
        [("MCPPROXY__LIMITS__RETENTION_INTERVAL_S", "1"), ("MCPPROXY__OAUTH__CONNECT_TTL_S", "60")];
    let (stage, _tenant, idp) = scene_with(&settings).await;
    let visitor = visitor(&stage.gateway);
    let back = visitor.to_provider("/console/login/provider").await;
    for _ in 0..12 {
        visitor.to_provider("/console/login/provider").await;
    }
    assert_eq!(stage.database.count("select count(*) from web_logins").await, 10, "of one browser");
    assert_eq!(visitor.get(&back).await.status, 400, "the oldest ended");
    let back = visitor.to_provider("/console/login/provider").await;
    let expire = "update web_logins set expires_at = now() - interval '1 s'";
    sqlx::Executor::execute(&mut stage.database.connect().await, expire).await.unwrap();
    assert_eq!(visitor.get(&back).await.status, 400);
    settle(0, Duration::from_secs(10), || stage.database.count("select count(*) from web_logins")).await;
    assert!(idp.exchanges().is_empty());
}

/// The provider of another deployment under the same issuer's key id gives nobody a session.
#[tokio::test]
async fn a_token_of_another_key_is_refused() {
    let (stage, _tenant, idp) = scene().await;
    let evil = Idp::start().await;
    let begun = visitor(&stage.gateway);
    let back = begun.to_provider("/console/login/provider").await;
    idp.set(crate::support::IdpMood::Keys(evil.jwks()));
    idp.rotate("k9");
    let answer = begun.get(&back).await;
    assert_eq!(answer.status, 401, "{answer:?}");
    assert!(begun.cookie(SESSION).is_none());
}
