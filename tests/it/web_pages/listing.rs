//! Listing of web pages: through the catalogue, its pins and its states, like any other server.

use serde_json::{Value, json};

use super::site::Site;
use super::{SEARCH, add, stage};
use crate::support::{Mcp, Stage};

/// Name of the form's tool.
const TOOL: &str = "shop:search_products";

fn names(found: &Value) -> Vec<&str> {
    found["tools"].as_array().unwrap().iter().map(|tool| tool["name"].as_str().unwrap()).collect()
}

#[tokio::test]
async fn a_form_becomes_a_tool_that_is_listed_and_runs_only_where_that_is_on() {
    let (_stage, tenant) = stage().await;
    let site = Site::start(SEARCH).await;
    let added = add(&tenant.admin().await, &site, &["/"], json!({"execute": "off"})).await;
    assert_eq!((&added["connection"], &added["last_error"]), (&json!("connected"), &json!(null)), "{added}");
    assert_eq!(site.requests(), ["GET /robots.txt", "GET /"]);

    let report = tenant.auditor().await.get("/api/v1/servers/shop/page-report").await.expect(200);
    let page = &report["pages"][0];
    assert_eq!((&page["url"], &page["status"]), (&json!(site.at("/")), &json!(200)));
    assert_eq!(
        (&page["forms"][0]["selector"], &page["forms"][0]["method"]),
        (&json!("#search"), &json!("GET"))
    );

    let client = Mcp::session(&tenant.agent().await).await;
    let refused = client.run("read", TOOL, &json!({"q": "shoes"})).await.refused("policy_denied");
    assert!(refused["message"].as_str().unwrap().contains("'execute' is off"), "{refused}");
    let record = &tenant.records("tool=search_products&type=tool_call", 1).await[0];
    assert_eq!((&record["status"], &record["decision"]), (&json!("blocked"), &json!("denied")));
    assert_eq!(site.requests().len(), 2, "nothing was sent: {:?}", site.requests());
}

#[tokio::test]
async fn a_schema_in_a_file_of_the_site_is_fetched() {
    let (_stage, tenant) = stage().await;
    let site = Site::start(&SEARCH.replace("#search-tool", "/schemas/search.json")).await;
    let schema = r#"{"name": "find_things", "parameters": {"q": {"type": "string"}}, "required": ["q"]}"#;
    let json = || vec![("content-type", "application/json".to_owned())];
    site.answer("/schemas/search.json", 200, json(), schema.as_bytes());
    let admin = tenant.admin().await;
    add(&admin, &site, &["/"], json!({})).await;
    assert!(site.requests().contains(&"GET /schemas/search.json".to_owned()), "{:?}", site.requests());
    let report = async || {
        admin.get("/api/v1/servers/shop/page-report").await.expect(200)["pages"][0]["forms"][0].clone()
    };
    assert_eq!(report().await["tool"], "find_things");

    site.answer("/schemas/search.json", 200, json(), &vec![b' '; 65 * 1024]);
    let server = admin.post("/api/v1/servers/shop/refresh", &json!({})).await.expect(200);
    assert_eq!(server["connection"], "connected", "a schema that cannot be had is a finding");
    assert!(report().await["findings"].to_string().contains("schema_unusable"), "{}", report().await);
}

#[tokio::test]
async fn searches_find_what_is_disclosed_to_them() {
    let (_stage, tenant) = stage().await;
    let site = Site::start(SEARCH).await;
    let admin = tenant.admin().await;
    add(&admin, &site, &["/"], json!({})).await;
    let client = Mcp::session(&tenant.agent().await).await;
    let search = async |arguments: Value| names(&client.search(&arguments).await).contains(&TOOL);
    assert!(!search(json!({"query": "search products"})).await, "nobody asked for it");
    assert!(search(json!({"query": "search products", "include_site_tools": true})).await);
    assert!(search(json!({"query": "search products at 127.0.0.1"})).await, "the host is named");
    let rest = "/api/v1/tools?query=search+products&include_site_tools=";
    let found = tenant.agent().await.get(&format!("{rest}true")).await.expect(200);
    assert!(names(&found).contains(&TOOL), "{found}");
    let hidden = tenant.agent().await.get(&format!("{rest}false")).await.expect(200);
    assert_eq!((&hidden["total"], names(&hidden).len()), (&json!(0), 0));

    admin.patch("/api/v1/servers/shop", &json!({"disclosure": "always"})).await.expect(200);
    assert!(search(json!({"query": "search products"})).await);
    admin.patch("/api/v1/servers/shop", &json!({"disclosure": "ignore"})).await.expect(200);
    assert!(!search(json!({"query": "search products", "include_site_tools": true})).await);
    let report = admin.get("/api/v1/servers/shop/page-report").await.expect(200);
    assert_eq!(report["pages"][0]["forms"].as_array().unwrap().len(), 1, "the report stays");
}

#[tokio::test]
async fn the_direct_endpoint_has_it_only_where_the_server_says_so() {
    let stage = Stage::with(&[("MCPPROXY__DIRECT__ENABLED", "true")]).await;
    let tenant = stage.tenant("acme").await;
    let site = Site::start(SEARCH).await;
    let admin = tenant.admin().await;
    add(&admin, &site, &["/"], json!({})).await;
    let agent = tenant.agent_with(json!({"direct_endpoint": true})).await;
    let listed = async || {
        let tools = Mcp::direct(&agent).tools().await;
        tools.iter().any(|tool| tool["name"] == TOOL)
    };
    assert!(!listed().await);
    let hidden = Mcp::direct(&agent).call(TOOL, &json!({"q": "x"})).await.error();
    assert_eq!(hidden["code"], -32602, "{hidden}");
    admin.patch("/api/v1/servers/shop", &json!({"direct": true, "execute": "off"})).await.expect(200);
    assert!(listed().await);
    Mcp::direct(&agent).call(TOOL, &json!({"q": "x"})).await.refused("policy_denied");
}

#[tokio::test]
async fn a_form_that_changes_waits_for_approval() {
    let (_stage, tenant) = stage().await;
    let site = Site::start(SEARCH).await;
    let admin = tenant.admin().await;
    add(&admin, &site, &["/"], json!({})).await;
    let state = async || {
        let tools = admin.items("/api/v1/servers/shop/tools").await;
        let tool = tools.iter().find(|tool| tool["name"] == "search_products").unwrap();
        tool["state"].as_str().unwrap().to_owned()
    };
    assert_eq!(state().await, "approved");
    admin.post("/api/v1/servers/shop/refresh", &json!({})).await.expect(200);
    assert_eq!(state().await, "approved", "the same page again");
    site.put("/", &SEARCH.replace("<button>", r#"<input name="coupon"> <button>"#));
    admin.post("/api/v1/servers/shop/refresh", &json!({})).await.expect(200);
    assert_eq!(state().await, "changed");
    let client = Mcp::session(&tenant.agent().await).await;
    client.run("read", TOOL, &json!({"q": "shoes"})).await.refused("tool_changed");
}

#[tokio::test]
async fn a_page_that_cannot_be_read_disconnects_its_server() {
    let (_stage, tenant) = stage().await;
    let site = Site::start(SEARCH).await;
    site.put("/second", SEARCH);
    let admin = tenant.admin().await;
    add(&admin, &site, &["/", "/second"], json!({})).await;
    let html = || vec![("content-type", "text/html".to_owned())];
    let to = |place: &str| vec![("location", place.to_owned())];
    for (status, headers, says) in [
        (404, html(), "HTTP status 404"),
        (200, vec![("content-type", "application/pdf".to_owned())], "content type"),
        (302, to("http://10.1.2.3/"), "egress"),
        (302, to("/second"), "redirects"),
    ] {
        site.answer("/second", status, headers, b"x");
        let server = admin.post("/api/v1/servers/shop/refresh", &json!({})).await.expect(200);
        assert_eq!(server["connection"], "disconnected", "{says}");
        let error = server["last_error"].as_str().unwrap();
        assert!(error.contains("/second") && error.contains(says), "{says}: {error}");
        let report = admin.get("/api/v1/servers/shop/page-report").await.expect(200);
        assert_eq!(report["pages"][0]["status"], 200, "{report}");
        assert!(
            report["pages"][1]["error"].is_string() && report["pages"][1]["status"].is_null(),
            "{report}"
        );
    }
    site.put("/second", SEARCH);
    let server = admin.post("/api/v1/servers/shop/refresh", &json!({})).await.expect(200);
    assert_eq!(server["connection"], "connected", "{server}");
    site.answer("/robots.txt", 200, vec![], b"User-agent: mcpproxy\nDisallow: /second\n");
    let server = admin.post("/api/v1/servers/shop/refresh", &json!({})).await.expect(200);
    assert!(server["last_error"].as_str().unwrap().contains("robots.txt"), "{server}");
}
