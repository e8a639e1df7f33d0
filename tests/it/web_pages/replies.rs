//! Pages and replies that are not as they should be, as callers see them.

use serde_json::json;

use super::execution::{allowed, ledger, shop_with, steps, thanks};
use super::form_site::{FormSite, Reply};
use crate::support::{Mcp, Stage};

/// A page at a URL whose query is a credential, with a form that is sent to the same URL.
const NOTE: &str = r#"<!doctype html><title>Note</title><form id="note" method="post">
    <label>Color of the list <input name="color" required></label><button>Apply</button></form>"#;

#[tokio::test]
async fn an_answer_that_cannot_be_read_is_an_answer() {
    let stage = Stage::start().await;
    let site = FormSite::start(&[("GET /", Reply::page(NOTE)), ("POST /", thanks())]).await;
    let tenant = shop_with(&stage, &site, &["/"], json!({"sources": ["forms"], "execute": "policy"})).await;
    let agent = tenant.agent().await;
    for reply in [Reply::page(&"x".repeat(3 << 20)), thanks().with("content-encoding", "br")] {
        site.put("POST /", reply);
        let result = Mcp::bare(&agent).run("destructive", "shop:note", &json!({"color": "red"})).await.ok();
        let shown = &result["structuredContent"];
        assert_eq!((&shown["class"], &shown["status"]), (&json!("unknown"), &json!(200)), "{shown}");
        assert!(shown["errors"][0]["message"].as_str().unwrap().contains("could not be read"), "{shown}");
        assert_eq!(site.lines(), ["GET /", "POST /"]);
    }
    for record in tenant.records("type=tool_call&status=success", 2).await {
        let ledger = ledger(&tenant, &record["id"]).await;
        assert_eq!(steps(&ledger).pop().unwrap(), "committed outcome #note the-site-answered-unknown");
    }
}

#[tokio::test]
async fn the_query_of_a_page_is_shown_to_nobody() {
    let stage = Stage::start().await;
    let site = FormSite::start(&[("GET /", Reply::page(NOTE)), ("POST /", thanks())]).await;
    let tenant = shop_with(&stage, &site, &["/?key=opaque-sesame"], json!({"sources": ["forms"]})).await;
    let agent = tenant.agent().await;
    let (request, outcome) = allowed(&tenant, &agent, "shop:note", &json!({"color": "red"})).await;
    let result = outcome.ok();
    assert_eq!(result["structuredContent"]["class"], "accepted", "{result}");
    assert_eq!(site.lines(), ["GET /?key=opaque-sesame", "POST /?key=opaque-sesame"]);
    let admin = tenant.admin().await;
    let tools = admin.get("/api/v1/servers/shop/tools").await.expect(200);
    let report = admin.get("/api/v1/servers/shop/page-report").await.expect(200);
    let record = tenant.records("type=tool_call&status=success", 1).await.remove(0);
    let ledger = ledger(&tenant, &record["id"]).await;
    for shown in [request, result, tools, report, record, ledger] {
        assert!(!shown.to_string().contains("sesame"), "{shown}");
    }
}

#[tokio::test]
async fn names_of_sessions_in_urls_are_in_no_record_whatever_they_look_like() {
    let stage = Stage::start().await;
    let site = FormSite::start(&[("GET /", Reply::page(NOTE))]).await;
    site.put("POST /", Reply::to(303, "/done;jsessionid=4091734?PHPSESSID=4091845&order=77"));
    site.put("GET /done;jsessionid=4091734", thanks());
    let tenant = shop_with(&stage, &site, &["/"], json!({"sources": ["forms"], "execute": "policy"})).await;
    let client = Mcp::bare(&tenant.agent().await);
    let result = client.run("destructive", "shop:note", &json!({"color": "red"})).await.ok();
    let url = result["structuredContent"]["url"].as_str().unwrap();
    assert!(url.ends_with("/done;jsessionid=4091734?PHPSESSID=4091845&order=77"), "the caller's own: {url}");
    let record = tenant.records("type=tool_call&status=success", 1).await.remove(0);
    let ledger = ledger(&tenant, &record["id"]).await;
    assert!(record.to_string().contains("/done;jsessionid=[redacted]"), "{record}");
    for shown in [record, ledger] {
        let text = shown.to_string();
        assert!(!text.contains("4091734") && !text.contains("4091845"), "{shown}");
    }
}
