//! Secure autofill, a use case of Web Agent Markup: a secret of the settings is sent to its site, and is nowhere else.

use std::time::Duration;

use serde_json::json;

use super::execution::{allowed, ledger, shop_with};
use super::form_site::{FormSite, Reply};
use crate::support::{Collector, Mcp, Stage, cli, eventually};

/// Of no known shape: only knowing it helps.
const SECRET: &str = "opaque-sesame-\"98431";
/// Part of the secret, by which it is found.
const MARK: &str = "sesame";

/// Checkout that takes a card, a form of which one button sends a password in its query, and one that can do nothing else.
const PAGE: &str = r##"<!doctype html><title>Checkout</title>
<form id="checkout" method="post" action="/order" wam-policy-output="data interaction" wam-intent-function="purchase"
    wam-intent-tool-schema="#checkout-tool">
  <label>City <input name="city" autocomplete="address-level2"></label> <label>Zip <input name="zip" required></label>
  <label>Card number <input name="card_number" autocomplete="cc-number" required></label>
  <label><input type="checkbox" name="newsletter"> Subscribe to Newsletter</label><button>Confirm Purchase</button>
  <script type="application/wam-tool+json" id="checkout-tool">
  {"name": "check_out", "description": "Orders what is in the basket.", "parameters": {"city": {"type": "string"},
    "zip": {"type": "string"}, "newsletter": {"type": "boolean"}}, "required": ["zip"]}
  </script></form>
<form id="balance" method="get" action="/balance" wam-policy-output="data interaction" wam-intent-function="login"
    wam-intent-tool-schema="#balance-tool">
  <label>Account <input name="account"></label> <label>Password <input type="password" name="pw"></label><button>Show</button>
  <button formmethod="post" formaction="/order">More</button>
  <script type="application/wam-tool+json" id="balance-tool">
  {"name": "show_balance", "description": "Shows the balance.", "parameters": {"account": {"type": "string"}}}
  </script></form>
<form id="peek" action="/balance" wam-policy-output="data interaction" wam-intent-function="login">
  <label>Password <input type="password" name="pw"></label><button>Peek</button></form>"##;

#[track_caller]
fn clean(what: &str, text: &str) {
    let hex: String = MARK.bytes().map(|byte| format!("{byte:02x}")).collect();
    for mark in [MARK, &hex] {
        assert!(!text.contains(mark), "{mark} in {what}: {text}");
    }
}

/// Answer of a site that repeats all that it was told.
fn repeated() -> Reply {
    let text = SECRET.replace('"', "&quot;");
    let data = SECRET.replace('"', "\\\"");
    Reply::page(&format!(
        r#"<title>Paid with {text}</title><p role=status>Thank you for your order</p><p>Charged: {text}</p>
        <form><p role=alert>{text} is about to expire</p></form>
        <script type="application/ld+json">{{"@type": "Order", "paymentMethod": "{data}"}}</script>"#
    ))
}

#[tokio::test]
async fn a_secret_of_a_field_reaches_its_site_and_nobody_else() {
    let collector = Collector::start().await;
    let mut settings = collector.settings();
    settings.push(("MCPPROXY__TELEMETRY__LOG_FILTER", "trace"));
    let stage = Stage::with(&settings).await;
    let page = Reply::page(PAGE).with("set-cookie", &format!("session={MARK}; Path=/"));
    let site = FormSite::start(&[("GET /", page), ("POST /order", repeated())]).await;
    site.put("GET /balance", repeated());
    let secrets = json!({"field_secrets": {"card_number": SECRET, "pw": SECRET}, "disclosure": "always"});
    let tenant = shop_with(&stage, &site, &["/"], secrets).await;
    let agent = tenant.agent().await;
    let args = json!({"city": "Bonn", "zip": "53111", "newsletter": false});
    let (request, outcome) = allowed(&tenant, &agent, "shop:check_out", &args).await;
    clean("the request", &request.to_string());
    let result = outcome.ok();
    assert!(result["structuredContent"]["text"].as_str().unwrap().contains("[redacted]"), "{result}");
    clean("the result", &result.to_string());
    // a form that would put it into a URL is not sent
    let args = json!({"account": "7", "submit_with": "show"});
    let (request, outcome) = allowed(&tenant, &agent, "shop:show_balance", &args).await;
    clean("the request", &request.to_string());
    let shown = outcome.result()["structuredContent"].clone();
    clean("the result of a GET", &shown.to_string());
    assert_eq!((&shown["class"], &shown["status"]), (&json!("validation_error"), &json!(null)), "{shown}");
    assert_eq!(shown["errors"][0]["field"], "pw", "{shown}");

    // a form that can be sent in no other way is no tool
    let report = tenant.admin().await.get("/api/v1/servers/shop/page-report").await.expect(200);
    assert_eq!(report["pages"][0]["forms"][2]["hidden_because"], "secret_in_url", "{report}");

    // the site did get it, once
    let seen = site.take();
    let spelled = "opaque-sesame-%2298431";
    assert_eq!(seen[1].body, format!("city=Bonn&zip=53111&card_number={spelled}"));
    let lines: Vec<&str> = seen.iter().map(|request| request.line.as_str()).collect();
    assert_eq!(lines, ["GET /", "POST /order", "GET /"]);

    for record in &tenant.records("type=tool_call&status=upstream_error", 1).await {
        clean("a record", &record.to_string());
    }
    for record in &tenant.records("type=tool_call&status=success", 1).await {
        clean("a record", &record.to_string());
        let rows = ledger(&tenant, &record["id"]).await;
        assert_eq!(rows["intact"], true);
        clean("the ledger", &rows.to_string());
        let is_step = |row: &&serde_json::Value| row["selector"] == "card_number";
        let step = rows["items"].as_array().unwrap().iter().find(is_step).expect("a step of the secret");
        // a digest would let its caller try secrets
        assert!(step["new_preview"].is_null() && step["new_digest"].is_null(), "{step}");
        let order = format!("POST {}", site.at("/order"));
        assert!(rows["items"].as_array().unwrap().iter().any(|row| row["new_preview"] == order), "{rows}");
        let id = record["id"].as_str().unwrap();
        let auditor = tenant.auditor().await;
        clean("the command line", &cli(&auditor, &["activity", "show", id, "--provenance"]).await.ok().out);
    }
    let client = Mcp::bare(&agent);
    clean("provenance", &client.run("read", "shop:inspect_provenance", &json!({})).await.ok().to_string());
    clean(
        "a search",
        &client.search(&json!({"query": "check out balance", "include_site_tools": true})).await.to_string(),
    );
    let admin = tenant.admin().await;
    for path in
        ["servers/shop", "servers/shop/tools", "servers/shop/page-report", "consent", "activity", "status"]
    {
        clean(path, &admin.get(&format!("/api/v1/{path}")).await.expect(200).to_string());
    }
    for (table, row) in stage.database.rows().await {
        clean(&table, &row);
    }
    let told = || async { collector.raw().contains("check_out").then_some(()) };
    eventually("the traces", Duration::from_secs(20), told).await;
    clean("traces", &collector.raw());
    clean("the log", &stage.gateway.log());
}

#[tokio::test]
async fn the_command_line_shows_what_a_call_did_to_a_page() {
    let stage = Stage::start().await;
    let site = FormSite::start(&[("GET /", Reply::page(PAGE)), ("POST /order", repeated())]).await;
    let tenant =
        shop_with(&stage, &site, &["/"], json!({"field_secrets": {"card_number": SECRET, "pw": SECRET}}))
            .await;
    let agent = tenant.agent().await;
    let args = json!({"city": "Bonn", "zip": "53111", "newsletter": true});
    allowed(&tenant, &agent, "shop:check_out", &args).await.1.ok();
    let id = tenant.records("type=tool_call&status=success", 1).await[0]["id"].clone();
    let auditor = tenant.auditor().await;
    let shown = cli(&auditor, &["activity", "show", id.as_str().unwrap(), "--provenance"]).await.ok().out;
    for part in [
        "city",
        "Bonn",
        "newsletter",
        "ticks-or-selects",
        "card_number",
        "sends-the-form-by-post",
        "the-site-answered",
    ] {
        assert!(shown.contains(part), "{part}: {shown}");
    }
    let json = cli(&auditor, &["activity", "show", id.as_str().unwrap(), "--provenance", "-o", "json"])
        .await
        .ok()
        .json();
    assert_eq!(json["intact"], true, "{json}");
    // nobody else's: a call is its tenant's
    let other = stage.tenant("other").await.auditor().await;
    cli(&other, &["activity", "show", id.as_str().unwrap(), "--provenance"]).await.failed(3, "not found");
}
