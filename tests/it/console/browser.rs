//! Logins and logouts in a real browser, which holds cookies, origins and policies against each other.

use std::net::TcpListener;

use serde_json::{Value, json};

use crate::support::{Browser, Idp, Stage};

#[tokio::test]
async fn a_browser_logs_in_and_out_both_ways() {
    // the public URL has to be known before the gateway is
    let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
    let url = format!("http://{address}");
    let settings = [
        ("MCPPROXY__SERVER__LISTEN", address.as_str()),
        ("MCPPROXY__SERVER__PUBLIC_URL", url.as_str()),
        ("MCPPROXY__CONSOLE__ISSUER", "corp"),
    ];
    let stage = Stage::with(&settings).await;
    let tenant = stage.tenant("acme").await;
    let idp = Idp::start().await;
    crate::logins::register(&stage, &idp, "corp", "acme").await;
    crate::logins::set_rules(&tenant, json!([{"role": "auditor"}])).await;
    let admin = tenant.key(&json!({"role": "admin", "owner": "ana@acme.example"})).await;

    let mut browser = Browser::start().await;
    browser.open(&format!("{url}/console?x=1")).await;
    assert_eq!(browser.evaluate("location.pathname").await, "/console/login");
    assert_ne!(browser.evaluate("getComputedStyle(document.querySelector('main')).maxWidth").await, "none");
    assert_eq!(browser.evaluate("document.activeElement.id").await, "api_key");
    browser.enter(admin.key.as_deref().unwrap()).await;
    browser.follow("document.querySelector('form').submit()").await;
    assert_eq!(browser.evaluate("location.pathname + location.search").await, "/console?x=1");
    let shown = browser.evaluate("document.querySelector('dl').innerText").await;
    assert!(shown.as_str().unwrap().contains("ana@acme.example"), "{shown}");
    assert_eq!(browser.evaluate("document.cookie").await, "", "no script reads it");
    let log_out = "document.querySelector('form[action=\"/console/logout\"]').submit()";
    browser.follow(log_out).await;
    assert_eq!(browser.evaluate("location.pathname").await, "/console/login");

    browser.follow("document.querySelector('a.button').click()").await;
    assert_eq!(browser.evaluate("location.href").await, Value::from(format!("{url}/console")));
    let shown = browser.evaluate("document.querySelector('dl').innerText").await;
    assert!(shown.as_str().unwrap().contains("at the identity provider 'corp'"), "{shown}");
    browser.follow(log_out).await;
    let at = browser.evaluate("location.origin + location.pathname").await;
    assert_eq!(at, Value::from(format!("{}/logout", idp.url)));
    browser.open(&format!("{url}/console")).await;
    assert_eq!(browser.evaluate("location.pathname").await, "/console/login");
    browser.close().await;
}
