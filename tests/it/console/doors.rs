//! Doors that a session opens, and those that it does not.

use reqwest::Method;
use serde_json::json;

use crate::support::{ADMIN, SESSION, Stage, Visitor};

#[tokio::test]
async fn a_cookie_opens_nothing_over_mcp() {
    let stage = Stage::start().await;
    let admin = stage.tenant("acme").await.admin().await;
    let visitor = Visitor::with_key(&stage.gateway, &admin).await;
    let csrf = visitor.csrf().await;
    let ping = json!({"jsonrpc": "2.0", "id": 1, "method": "ping"});
    for path in ["/mcp", "/mcp/direct", "/acp"] {
        let request = visitor.request(Method::POST, path).header("X-CSRF-Token", &csrf).json(&ping);
        assert_eq!(visitor.send(request).await.status, 401, "{path}");
        let request = visitor.request(Method::POST, path).header("Origin", &visitor.base);
        assert_eq!(visitor.send(request.json(&ping)).await.status, 403, "pages have no business at {path}");
    }
}

#[tokio::test]
async fn rest_takes_a_cookie_from_a_page_of_the_session_alone() {
    let stage = Stage::start().await;
    let tenant = stage.tenant("acme").await;
    let (admin, agent) = (tenant.admin().await, tenant.agent().await);
    let visitor = Visitor::with_key(&stage.gateway, &admin).await;
    let stranger = Visitor::with_key(&stage.gateway, &tenant.admin().await).await;
    let (csrf, foreign) = (visitor.csrf().await, stranger.csrf().await);
    let (base, path) = (visitor.base.clone(), "/api/v1/status");
    for (method, headers, status) in [
        (Method::GET, vec![("Origin", base.as_str()), ("X-CSRF-Token", &csrf)], 200),
        (Method::GET, vec![("Sec-Fetch-Site", "same-origin"), ("X-CSRF-Token", &csrf)], 200),
        (Method::GET, vec![("Origin", &base)], 401),
        (Method::GET, vec![("X-CSRF-Token", &csrf)], 401),
        (Method::GET, vec![("Sec-Fetch-Site", "cross-site"), ("X-CSRF-Token", &csrf)], 401),
        (Method::GET, vec![("Origin", &base), ("X-CSRF-Token", &foreign)], 401),
        (Method::GET, vec![("Origin", "https://evil.example"), ("X-CSRF-Token", &csrf)], 403),
        (Method::GET, vec![("Origin", "null"), ("X-CSRF-Token", &csrf)], 403),
        (Method::GET, vec![], 401),
    ] {
        let request = headers.iter().fold(visitor.request(method, path), |all, (n, v)| all.header(*n, *v));
        assert_eq!(visitor.send(request).await.status, status, "{headers:?}");
    }
    // acts are those of the holder, in the holder's role
    let made = |visitor: &Visitor, csrf: &str| {
        let request = visitor.request(Method::POST, "/api/v1/keys").json(&json!({"role": "agent"}));
        request.header("Origin", &base).header("X-CSRF-Token", csrf)
    };
    assert_eq!(visitor.send(made(&visitor, &csrf)).await.status, 201);
    let low = Visitor::with_key(&stage.gateway, &agent).await;
    assert_eq!(low.send(made(&low, &low.csrf().await)).await.status, 403);
    // a key that is sent goes before the cookie
    let both = visitor.request(Method::GET, path).header("Origin", &base).header("X-CSRF-Token", &csrf);
    let answer = visitor.send(both.header("X-API-Key", agent.key.as_deref().unwrap())).await;
    assert_eq!(answer.expect(200)["role"], "agent");
    visitor.post("/console/logout", &[]).await;
    let after = visitor.request(Method::GET, path).header("Origin", &base).header("X-CSRF-Token", &csrf);
    assert_eq!(visitor.send(after).await.status, 401);
}

#[tokio::test]
async fn a_repeated_cookie_is_refused() {
    let stage = Stage::start().await;
    let admin = stage.tenant("acme").await.admin().await;
    let visitor = Visitor::with_key(&stage.gateway, &admin).await;
    let cookie = visitor.cookie(SESSION).unwrap();
    for (path, other) in [("/console", cookie.as_str()), ("/console/login", "x"), ("/api/v1/status", "x")] {
        let request = visitor.request(Method::GET, path).header("Cookie", format!("{SESSION}={other}"));
        assert_eq!(visitor.send(request).await.status, 400, "{path}");
    }
}

#[tokio::test]
async fn the_script_is_of_the_console_and_small() {
    let stage = Stage::start().await;
    let visitor = Visitor::with_key(&stage.gateway, &stage.tenant("acme").await.admin().await).await;
    let page = visitor.get("/console/keys").await;
    let (_, rest) = page.text.split_once("<script src=\"").expect("the script");
    let file = Visitor::of(&stage.gateway).get(rest.split('"').next().unwrap()).await;
    file.expect(200);
    assert_eq!(file.header("content-type"), "text/javascript; charset=utf-8");
    let style = visitor.get("/console/static/console.css").await;
    assert!(file.text.len() + style.text.len() < 120_000);
    for other in ["eval", "innerHTML", "insertAdjacentHTML", "document.write", "http:", "https:", "import("] {
        assert!(!file.text.contains(other), "{other}");
    }
    let policy = page.header("content-security-policy");
    assert!(policy.contains("script-src 'self'") && !policy.contains("unsafe-"), "{policy}");
}

#[tokio::test]
async fn files_are_open_and_asked_for_once() {
    let stage = Stage::start().await;
    let visitor = Visitor::of(&stage.gateway);
    let page = visitor.get("/console/login").await.text;
    let (_, rest) = page.split_once("rel=\"stylesheet\" href=\"").unwrap();
    let path = rest.split('"').next().unwrap();
    let file = visitor.get(path).await;
    file.expect(200);
    assert_eq!(file.header("content-type"), "text/css; charset=utf-8");
    assert!(path.contains(file.header("etag").trim_matches('"')), "{path} has its version");
    assert!(!file.text.contains("url(") && !file.text.contains("@import"), "nothing from elsewhere");
    let kept = visitor.request(Method::GET, path).header("If-None-Match", file.header("etag"));
    assert_eq!(visitor.send(kept).await.status, 304);
    assert_eq!(visitor.get("/console/static/../login").await.status, 200);
    assert_eq!(visitor.get("/console/static/none.css").await.status, 404);
}

#[tokio::test]
async fn a_browser_finds_the_icon_without_a_key() {
    let stage = Stage::with(&[ADMIN]).await;
    let visitor = Visitor::of(&stage.gateway);
    let page = visitor.get("/console/login").await.text;
    let (_, rest) = page.split_once("rel=\"icon\" type=\"image/svg+xml\" href=\"").expect("an icon");
    for path in [rest.split('"').next().unwrap(), "/favicon.ico"] {
        let icon = visitor.get(path).await;
        icon.expect(200);
        assert_eq!(icon.header("content-type"), "image/svg+xml", "{path}");
        assert_eq!(icon.header("x-content-type-options"), "nosniff", "{path}");
        assert!(icon.text.starts_with("<svg") && icon.text.len() < 500, "{icon:?}");
    }
    let refused = stage.gateway.scrape().await.sum("mcpproxy_auth_failures_total", &[]);
    assert!(refused.abs() < f64::EPSILON, "{refused}");
}
