//! Sites that frameworks render: Django with the login of its admin, and a shop on Flask.

use serde_json::{Value, json};

use super::execution::allowed;
use crate::support::{Mcp, RealServer, Stage, Tenant};

/// Adds pages of a site, whose forms have no markup for agents.
async fn add(tenant: &Tenant, site: &RealServer, paths: &[&str], more: Value) {
    let pages: Vec<String> = paths.iter().map(|path| format!("{}{path}", site.url)).collect();
    let mut body = json!({"name": "site", "kind": "web_page", "pages": pages, "sources": ["forms"], "execute": "policy"});
    body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    let added = tenant.admin().await.post("/api/v1/servers", &body).await.expect(201);
    assert_eq!(added["connection"], "connected", "{added}");
}

/// Runs a tool that belongs to no sensitive category; returns what it shows.
async fn run(client: &Mcp, tool: &str, args: &Value) -> Value {
    client.run("destructive", tool, args).await.result()["structuredContent"].clone()
}

#[tokio::test]
async fn forms_of_django_are_searched_saved_refused_and_logged_in_with() {
    let stage = Stage::start().await;
    let tenant = stage.tenant("acme").await;
    let site = RealServer::site("django_site.py").await;
    let secret = |password: &str| json!({"field_secrets": {"password": password}});
    add(&tenant, &site, &["/search", "/theme", "/admin/login/"], secret("wrong")).await;
    let agent = tenant.agent().await;
    let client = Mcp::bare(&agent);

    let found = run(&client, "site:search", &json!({"q": "tent"})).await;
    assert_eq!(
        (&found["class"], found["text"].as_str().unwrap().contains("A tent for two")),
        (&json!("accepted"), true)
    );
    let saved = run(&client, "site:apply", &json!({"color": "blue", "size": "l"})).await;
    assert_eq!(saved["class"], "accepted", "{saved}");
    assert!(saved["text"].as_str().unwrap().contains("changes were saved: blue"), "{saved}");
    let refused = run(&client, "site:apply", &json!({"color": "plaid", "size": "s"})).await;
    assert_eq!(
        (&refused["class"], &refused["status"]),
        (&json!("validation_error"), &json!(200)),
        "{refused}"
    );
    assert!(refused["errors"].to_string().contains("Plaid is no color"), "{refused}");

    let login = json!({"username": "ann"});
    let (_, outcome) = allowed(&tenant, &agent, "site:login_form", &login).await;
    let refused = outcome.result()["structuredContent"].clone();
    assert_eq!((&outcome.result()["isError"], &refused["status"]), (&json!(true), &json!(200)), "{refused}");
    tenant.admin().await.patch("/api/v1/servers/site", &secret("correct horse")).await.expect(200);
    let (_, outcome) = allowed(&tenant, &agent, "site:login_form", &login).await;
    let shown = outcome.ok()["structuredContent"].clone();
    assert_eq!(shown["class"], "accepted", "{shown}");
    assert!(shown["title"].as_str().unwrap().contains("Site administration"), "{shown}");
    assert_eq!(shown["url"], format!("{}/admin/", site.url));
}

#[tokio::test]
async fn a_shop_on_flask_is_searched_and_remembers_by_session_and_token() {
    let stage = Stage::start().await;
    let tenant = stage.tenant("acme").await;
    let site = RealServer::site("flask_shop.py").await;
    add(&tenant, &site, &["/"], json!({})).await;
    let client = Mcp::bare(&tenant.agent().await);
    let found = run(&client, "site:search", &json!({"q": "boot"})).await;
    assert_eq!(found["class"], "accepted", "{found}");
    assert!(found["text"].as_str().unwrap().contains("boot laces: 4"), "{found}");
    let added = run(&client, "site:wishes", &json!({"article": "tent", "number": 2})).await;
    assert_eq!(added["class"], "accepted", "{added}");
    assert!(added["text"].as_str().unwrap().contains("Successfully added 2 of tent"), "{added}");
    let many = json!({"article": "tent", "number": 10});
    client.run("destructive", "site:wishes", &many).await.refused("invalid_arguments");
}
