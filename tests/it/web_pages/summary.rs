//! The tool that stands for all forms of a server.

use serde_json::{Value, json};

use super::execution::{FLIGHTS, allowed, contact, ledger, shop_with, steps, thanks};
use super::form_site::{FormSite, Reply};
use crate::support::{Mcp, Stage};

#[tokio::test]
async fn one_tool_stands_for_all_forms() {
    let stage = Stage::start().await;
    let site = FormSite::start(&[
        ("GET /", Reply::page(FLIGHTS)),
        ("GET /flights", Reply::page("<title>Results</title><p>3 flights from Bonn to Rome on 2026-12-24")),
        ("GET /contact", Reply::page(&contact("t", ""))),
        ("POST /send", thanks()),
    ])
    .await;
    let tenant = shop_with(&stage, &site, &["/", "/contact"], json!({"disclosure": "summarize"})).await;
    let agent = tenant.agent().await;
    let found = Mcp::bare(&agent).search(&json!({"query": "page_invoke"})).await;
    let mut names: Vec<&str> =
        found["tools"].as_array().unwrap().iter().map(|tool| tool["name"].as_str().unwrap()).collect();
    names.sort_unstable();
    assert_eq!(names, ["shop:inspect_provenance", "shop:page_invoke"]);
    let run = async |args: Value| Mcp::bare(&agent).run("destructive", "shop:page_invoke", &args).await;
    let from = json!({"from": "Bonn", "to": "Rome", "day": "2026-12-24"});
    let result = run(json!({"form": "search_flights", "values": from})).await.ok();
    assert_eq!(result["structuredContent"]["class"], "accepted");
    assert_eq!(site.lines(), ["GET /", "GET /flights?from=Bonn&to=Rome&day=2026-12-24&class=e"]);

    for (args, says) in [
        (json!({"form": "contact_us", "values": {"topic": "x", "price": 1}}), "'price'"),
        (json!({"form": "contact_us", "values": {"note": "x"}}), "needs a value for 'topic'"),
        (json!({"form": "other"}), "form"),
    ] {
        let refused = run(args).await.refused("invalid_arguments");
        assert!(refused["message"].as_str().unwrap().contains(says), "{refused}");
    }
    // a form that posts asks, with all its fields
    let args = json!({"form": "contact_us", "values": {"topic": "Boots"}});
    let (request, outcome) = allowed(&tenant, &agent, "shop:page_invoke", &args).await;
    let reason = request["reason"].as_str().unwrap();
    for part in ["POST", &site.at("/send"), "Topic", "Boots", "csrf_token (hidden)"] {
        assert!(reason.contains(part), "{part}: {reason}");
    }
    assert_eq!(outcome.ok()["structuredContent"]["class"], "accepted");
    assert_eq!(site.lines(), ["GET /contact", "POST /send"]);
    let record = &tenant.records("type=tool_call&tool=page_invoke&status=success", 2).await[0];
    assert_eq!(steps(&ledger(&tenant, &record["id"]).await).len(), 3);
}
