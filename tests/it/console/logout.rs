//! Logouts: of a person at the console, and at the provider.

use std::time::Duration;

use reqwest::Method;
use serde_json::{Value, json};

use super::{CLIENT, GATEWAY, SETTINGS, scene, visitor};
use crate::support::{Answer, Gateway, Idp, Stage, Visitor, now_s, settle};

const EVENT: &str = "http://schemas.openid.net/event/backchannel-logout";

#[tokio::test]
async fn a_logout_leads_on_to_the_provider() {
    let (stage, _tenant, idp) = scene().await;
    let person = visitor(&stage.gateway);
    assert_eq!(person.log_in_there().await.status, 303);
    let id_token = idp.id_tokens().remove(0);
    let page = person.get("/console").await;
    let origin = url::Url::parse(&idp.url).unwrap().origin().ascii_serialization();
    // browsers hold redirects of forms against the policy as well
    assert!(page.header("content-security-policy").ends_with(&format!("form-action 'self' {origin}")));
    let out = person.post("/console/logout", &[]).await;
    let url = url::Url::parse(out.header("location")).unwrap();
    assert!((out.status, url.as_str().starts_with(&format!("{}/logout?", idp.url))) == (303, true), "{url}");
    let asked = |name: &str| url.query_pairs().find(|(own, _)| own == name).unwrap().1.into_owned();
    assert_eq!((asked("id_token_hint"), asked("client_id")), (id_token, CLIENT.to_owned()));
    assert_eq!(asked("post_logout_redirect_uri"), format!("{GATEWAY}/console/login"));
    assert_eq!(person.get("/console").await.status, 303);
    let admin = stage.platform();
    let by_key = visitor(&stage.gateway);
    by_key.log_in(admin.key.as_deref().unwrap()).await;
    let page = by_key.get("/console").await;
    assert!(page.header("content-security-policy").ends_with("form-action 'self'"));
    assert_eq!(by_key.post("/console/logout", &[]).await.header("location"), "/console/login");
}

/// Sends a notice as the provider does, without a browser.
async fn notify(stage: &Stage, notice: &str) -> Answer {
    let provider = Visitor::of(&stage.gateway);
    let body =
        url::form_urlencoded::Serializer::new(String::new()).append_pair("logout_token", notice).finish();
    let request = provider.request(Method::POST, "/oauth/backchannel-logout");
    let request = request.header("Content-Type", "application/x-www-form-urlencoded").body(body);
    provider.send(request).await
}

fn notice(idp: &Idp, typ: &str, change: &Value) -> String {
    let mut claims = json!({
        "iss": idp.url, "aud": CLIENT, "iat": now_s(), "exp": now_s() + 120, "jti": "j1", "sub": "u1",
        "events": {EVENT: {}},
    });
    claims.as_object_mut().unwrap().extend(change.as_object().unwrap().clone());
    claims.as_object_mut().unwrap().retain(|_, value| !value.is_null());
    let kid = idp.jwks().last().unwrap()["kid"].clone();
    idp.sign_as(&json!({"alg": "ES256", "typ": typ, "kid": kid}), &claims)
}

async fn logged_in(stage: &Stage, idp: &Idp, subject: &str, sid: &str) -> Visitor {
    idp.log_in(|login| (login.subject, login.claims) = (subject.to_owned(), json!({"sid": sid})));
    let visitor = visitor(&stage.gateway);
    assert_eq!(visitor.log_in_there().await.status, 303);
    visitor
}

#[tokio::test]
async fn a_notice_of_the_provider_ends_the_sessions_that_it_names() {
    let (stage, tenant, idp) = scene().await;
    let other = Gateway::start(&stage.database, &SETTINGS).await;
    let by_key = visitor(&stage.gateway);
    by_key.log_in(tenant.admin().await.key.as_deref().unwrap()).await;
    let (one, two) = (logged_in(&stage, &idp, "u1", "s1").await, logged_in(&stage, &idp, "u1", "s2").await);
    let stranger = logged_in(&stage, &idp, "u2", "s3").await;
    for (why, typ, change) in [
        ("typ", "JWT", json!({})),
        ("access token", "at+jwt", json!({})),
        ("audience", "logout+jwt", json!({"aud": "other"})),
        ("issuer", "logout+jwt", json!({"iss": "https://evil.example"})),
        ("events", "logout+jwt", json!({"events": null})),
        ("another event", "logout+jwt", json!({"events": {"x": {}}})),
        ("nonce", "logout+jwt", json!({"nonce": "n"})),
        ("jti", "logout+jwt", json!({"jti": null})),
        ("iat", "logout+jwt", json!({"iat": null})),
        ("old", "logout+jwt", json!({"iat": now_s() - 400})),
        ("expired", "logout+jwt", json!({"exp": now_s() - 90})),
        ("nobody", "logout+jwt", json!({"sub": null})),
    ] {
        assert_eq!(notify(&stage, &notice(&idp, typ, &change)).await.status, 400, "{why}");
    }
    let foreign = Idp::start().await;
    let forged = foreign.sign_as(
        &json!({"alg": "ES256", "typ": "logout+jwt", "kid": "k1"}),
        &json!({"iss": idp.url, "aud": CLIENT, "iat": now_s(), "jti": "j", "sub": "u1", "events": {EVENT: {}}}),
    );
    assert_eq!(notify(&stage, &forged).await.status, 400);
    assert_eq!((one.get("/console").await.status, two.get("/console").await.status), (200, 200));

    // one session, then all of the person; nobody else's
    notify(&stage, &notice(&idp, "logout+jwt", &json!({"sid": "s1"}))).await.expect(200);
    let at_other = |who: &Visitor| who.at(&other);
    settle(303, Duration::from_secs(1), || async { at_other(&one).get("/console").await.status }).await;
    assert_eq!(two.get("/console").await.status, 200);
    notify(&stage, &notice(&idp, "logout+jwt", &json!({"sid": "s2", "sub": "u2"}))).await.expect(200);
    assert_eq!(two.get("/console").await.status, 200, "a session of somebody else");
    notify(&stage, &notice(&idp, "logout+jwt", &json!({}))).await.expect(200);
    assert_eq!((two.get("/console").await.status, at_other(&two).get("/console").await.status), (303, 303));
    assert_eq!((stranger.get("/console").await.status, by_key.get("/console").await.status), (200, 200));
    // a notice from before a login does not end it
    let again = logged_in(&stage, &idp, "u1", "s4").await;
    notify(&stage, &notice(&idp, "logout+jwt", &json!({"iat": now_s() - 200}))).await.expect(200);
    assert_eq!(again.get("/console").await.status, 200);
}
