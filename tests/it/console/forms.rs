//! Forms: who may send them, and where they lead.

use reqwest::Method;

use crate::support::{SESSION, Stage, Visitor};

#[tokio::test]
async fn a_form_of_another_site_is_refused_before_anything_else() {
    let stage = Stage::with(&[("MCPPROXY__SERVER__ALLOWED_ORIGINS", "https://ide.example")]).await;
    let tenant = stage.tenant("acme").await;
    let admin = tenant.admin().await;
    let visitor = Visitor::with_key(&stage.gateway, &admin).await;
    let stranger = Visitor::with_key(&stage.gateway, &tenant.admin().await).await;
    let (csrf, foreign) = (visitor.csrf().await, stranger.csrf().await);
    let body = |token: &str| format!("csrf={token}");
    let form = |path: &str, token: &str| {
        let request = visitor.request(Method::POST, path).body(body(token));
        request.header("Content-Type", "application/x-www-form-urlencoded")
    };
    let plain = visitor.base.replace("http://", "https://");
    // an origin that IDEs may have is none of the console
    let strangers = ["https://evil.example", "null", "https://ide.example", "http://127.0.0.1:1"];
    for path in ["/console/logout", "/console/sessions/x/end", "/console/login", "/console/nothing"] {
        for origin in strangers {
            let sent = visitor.send(form(path, &csrf).header("Origin", origin)).await;
            assert_eq!(sent.status, 403, "{path} {origin}");
        }
        assert_eq!(visitor.send(form(path, &csrf)).await.status, 403, "{path} without Origin");
    }
    for path in ["/console/logout", "/console/sessions/x/end", "/console/nothing"] {
        for token in ["", "x", &foreign, &visitor.cookie(SESSION).unwrap()] {
            let sent = visitor.send(form(path, token).header("Origin", &visitor.base)).await;
            assert_eq!(sent.status, 403, "{path} {token}");
        }
    }
    assert_eq!(visitor.get("/console").await.status, 200, "nothing was done");
    // TLS may end before the gateway
    let sent = visitor.send(form("/console/sessions/x/end", &csrf).header("Origin", &plain)).await;
    assert_eq!(sent.status, 404);
    assert_eq!(visitor.send(form("/console/logout", &csrf).header("Origin", &plain)).await.status, 303);
}

#[tokio::test]
async fn the_public_url_is_an_origin_of_the_console() {
    let public = ("MCPPROXY__SERVER__PUBLIC_URL", "https://gw.example");
    let stage = Stage::with(&[public]).await;
    let admin = stage.tenant("acme").await.admin().await;
    let visitor = Visitor::of(&stage.gateway);
    let login = |origin: &str| {
        let body = format!("api_key={}", admin.key.as_deref().unwrap());
        let request = visitor.request(Method::POST, "/console/login").header("Origin", origin);
        request.header("Content-Type", "application/x-www-form-urlencoded").body(body)
    };
    assert_eq!(visitor.send(login("http://gw.example")).await.status, 403);
    assert_eq!(visitor.send(login(&visitor.base)).await.status, 403, "people come over TLS");
    assert_eq!(visitor.send(login("https://gw.example")).await.status, 303);
}

#[tokio::test]
async fn a_login_leads_to_pages_of_the_console_alone() {
    let stage = Stage::start().await;
    let admin = stage.tenant("acme").await.admin().await;
    let visitor = Visitor::of(&stage.gateway);
    let asked = visitor.get("/console/activity?tool=x&status=error").await;
    let login = "/console/login?return_to=/console/activity%3Ftool%3Dx%26status%3Derror";
    assert_eq!((asked.status, asked.header("location")), (303, login));
    assert!(visitor.get(login).await.text.contains("value=\"/console/activity?tool=x&#38;status=error\""));
    for (place, leads) in [
        ("/console/activity?tool=x", "/console/activity?tool=x"),
        ("//evil.example", "/console"),
        ("/\\evil.example", "/console"),
        ("https://evil.example/console", "/console"),
        ("/console//evil.example", "/console"),
        ("/console/../api/v1/keys", "/console"),
        ("/console\r\nSet-Cookie: a=b", "/console"),
        ("javascript:alert(1)", "/console"),
    ] {
        let visitor = Visitor::of(&stage.gateway);
        let page =
            visitor.send(visitor.request(Method::GET, "/console/login").query(&[("return_to", place)])).await;
        assert!(
            page.text.contains(&format!("name=\"return_to\" value=\"{leads}\"")),
            "{place}: {}",
            page.text
        );
        let fields = [("api_key", admin.key.as_deref().unwrap()), ("return_to", place)];
        let answer = visitor.send(visitor.form("/console/login", &fields)).await;
        assert_eq!((answer.status, answer.header("location")), (303, leads), "{place:?}");
    }
}

#[tokio::test]
async fn forms_are_bounded() {
    let stage = Stage::start().await;
    let visitor = Visitor::of(&stage.gateway);
    let large = "x".repeat(17 * 1024);
    assert_eq!(visitor.log_in(&large).await.status, 413);
    let json = visitor.request(Method::POST, "/console/login").header("Origin", &visitor.base).body("{}");
    assert_eq!(visitor.send(json).await.status, 415);
    let twice = visitor.form("/console/login", &[("api_key", "a"), ("api_key", "b")]);
    assert_eq!(visitor.send(twice).await.status, 400);
    let put = visitor.form("/console/login", &[]).build().unwrap();
    let put = visitor.request(Method::PUT, "/console/login").headers(put.headers().clone());
    assert_eq!(visitor.send(put).await.status, 405);
}
