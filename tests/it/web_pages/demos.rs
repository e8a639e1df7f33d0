//! Pages in the structure of WebMCP's public demos, and of sites without any markup for agents.

use serde_json::{Value, json};

use super::execution::{allowed, approve_changed, ledger, shop_with, steps};
use super::form_site::{FormSite, Reply};
use crate::support::{Mcp, Stage};

/// Search of a shop, and a form of it without fields.
const SEARCH: &str = r#"<!doctype html><title>Outdoor</title>
<form role="search" action="/find" toolname="find_products" tooldescription="Finds products of the shop.">
  <label>Words <input type="search" name="q" required toolparamdescription="Words to look for"></label>
  <select name="sort" aria-label="Order"><option value="price">Price</option><option value="new">Newest</option></select>
  <button>Search</button></form>
<form id="door" toolname="open_left_door" tooldescription="Opens the left door." action="/left"><button>Left</button></form>"#;

/// State of an order. Its answer has the texts of both ends, of which a script of the page would show one.
const ORDER: &str = r#"<!doctype html><title>Orders</title>
<form action="/result" toolname="check_order" tooldescription="Shows the state of an order.">
  <label>Number <input name="order" required pattern="[A-Z]{2}[0-9]{6}"></label><button>Check</button></form>"#;
const BOTH_ENDS: &str = r#"<!doctype html><title>Order</title>
<div id="ok">Thank you, your order was found</div><div id="no" class="error">No such order was found</div>"#;

/// Form that writes to the shop.
const CONTACT: &str = r#"<!doctype html><title>Contact</title>
<form id="contact" method="post" action="/send" toolname="contact_us" tooldescription="Sends a message to the shop.">
  <input type="hidden" name="csrf_token" value="9f8a7b6c5d4e3f2a1b0c">
  <label>Your name <input name="name" required></label> <label>Email <input type="email" name="email" required></label>
  <label>Message <textarea name="message" required></textarea></label><button>Send message</button></form>"#;

/// Login without any markup for agents.
const LOGIN: &str = r#"<!doctype html><title>Log in</title>
<form id="login" method="post" action="/login"><label>User <input name="user" autocomplete="username" required></label>
  <label>Password <input type="password" name="pw" autocomplete="current-password"></label><button>Log in</button></form>"#;

/// R5's own example.
const CHECKOUT: &str = r##"<!doctype html><title>Checkout</title>
<form id="checkout" wam-policy-output="data interaction" wam-intent-function="purchase" wam-intent-tool-schema="#checkout-tool"
    method="post" action="/buy">
  <label>Shipping address <input name="shipping_address" required></label>
  <select name="payment_method" required><option value="credit_card">Credit card</option><option value="paypal">PayPal</option></select>
  <button>Buy now</button>
  <script type="application/wam-tool+json" id="checkout-tool">
  {"name": "complete_purchase", "description": "Submit a purchase order with shipping and payment details.", "parameters": {
    "shipping_address": {"type": "string", "description": "Full shipping address"},
    "payment_method": {"type": "string", "enum": ["credit_card", "paypal"]}}, "required": ["shipping_address", "payment_method"]}
  </script></form>"##;

fn webmcp() -> Value {
    json!({"sources": ["webmcp"]})
}

#[tokio::test]
async fn a_search_and_a_form_without_fields_are_run() {
    let stage = Stage::start().await;
    let found = Reply::page("<title>Found</title><p>2 results for tent, new first");
    let site = FormSite::start(&[
        ("GET /", Reply::page(SEARCH)),
        ("GET /find", found),
        ("GET /left", Reply::bare(204)),
    ])
    .await;
    let tenant = shop_with(&stage, &site, &["/"], webmcp()).await;
    let client = Mcp::bare(&tenant.agent().await);
    let result = client.run("read", "shop:find_products", &json!({"q": "tent", "sort": "new"})).await.ok();
    assert_eq!(result["structuredContent"]["class"], "accepted", "{result}");
    let result = client.run("destructive", "shop:open_left_door", &json!({})).await.ok();
    assert_eq!(result["structuredContent"]["class"], "unknown", "{result}");
    assert_eq!(site.lines(), ["GET /", "GET /find?q=tent&sort=new", "GET /", "GET /left?"]);
}

#[tokio::test]
async fn an_answer_with_the_texts_of_both_ends_is_no_success() {
    let stage = Stage::start().await;
    let site =
        FormSite::start(&[("GET /", Reply::page(ORDER)), ("GET /result", Reply::page(BOTH_ENDS))]).await;
    let tenant = shop_with(&stage, &site, &["/"], webmcp()).await;
    let client = Mcp::bare(&tenant.agent().await);
    let result = client.run("destructive", "shop:check_order", &json!({"order": "AB123456"})).await.ok();
    assert_eq!(result["structuredContent"]["class"], "unknown", "{result}");
    let refused = client.run("destructive", "shop:check_order", &json!({"order": "1"})).await.result();
    assert_eq!(refused["isError"], true, "{refused}");
    assert_eq!(site.lines().iter().filter(|line| line.starts_with("GET /result")).count(), 1);
}

#[tokio::test]
async fn a_message_is_sent_once_after_an_approver_allowed_it() {
    let stage = Stage::start().await;
    let site =
        FormSite::start(&[("GET /", Reply::page(CONTACT)), ("POST /send", Reply::to(303, "/done"))]).await;
    site.put("GET /done", Reply::page("<title>Thanks</title><p role=status>Message sent"));
    let tenant = shop_with(&stage, &site, &["/"], webmcp()).await;
    let agent = tenant.agent().await;
    let args = json!({"name": "Ann", "email": "ann@b.example", "message": "Is it\nwaterproof?"});
    let (request, outcome) = allowed(&tenant, &agent, "shop:contact_us", &args).await;
    for part in ["Ann", "ann@b.example", "csrf_token", "POST", "/send"] {
        assert!(request["reason"].as_str().unwrap().contains(part), "{part}: {request}");
    }
    assert_eq!(outcome.ok()["structuredContent"]["class"], "accepted");
    let seen = site.take();
    let lines: Vec<&str> = seen.iter().map(|request| request.line.as_str()).collect();
    assert_eq!(lines, ["GET /", "POST /send", "GET /done"]);
    let body =
        "csrf_token=9f8a7b6c5d4e3f2a1b0c&name=Ann&email=ann%40b.example&message=Is+it%0D%0Awaterproof%3F";
    assert_eq!(seen[1].body, body);
}

#[tokio::test]
async fn a_login_takes_its_password_from_the_settings_or_not_at_all() {
    let stage = Stage::start().await;
    let site =
        FormSite::start(&[("GET /", Reply::page(LOGIN)), ("POST /login", Reply::to(302, "/home"))]).await;
    site.put("GET /home", Reply::page("<title>Home</title><p>Hello Ann"));
    let tenant = shop_with(&stage, &site, &["/"], json!({"sources": ["forms"], "execute": "policy"})).await;
    let agent = tenant.agent_with(json!({"policy_mode": "always_allow"})).await;
    // no agent supplies one
    let with_password = json!({"user": "ann", "pw": "hunter2"});
    Mcp::bare(&agent).run("destructive", "shop:login", &with_password).await.refused("invalid_arguments");
    // without one nobody is asked, and no site either
    let args = json!({"user": "ann"});
    let refused = Mcp::bare(&agent).run("destructive", "shop:login", &args).await.refused("policy_denied");
    let says = refused["message"].as_str().unwrap();
    assert!(says.contains("'pw'"), "{says}");
    assert!(says.ends_with("mcpproxy upstream update shop --field-secret 'pw=-'"), "{says}");
    assert_eq!((tenant.platform.items("/api/v1/consent").await.len(), site.lines()), (0, vec![]));
    let record = tenant.records("type=tool_call&decision=denied", 1).await.remove(0);
    assert_eq!((&record["status"], &record["decision"]), (&json!("blocked"), &json!("denied")), "{record}");
    let found = Mcp::bare(&agent).search(&json!({"query": "login", "include_site_tools": true})).await;
    assert!(found.to_string().contains("shop:login"), "it is still listed: {found}");

    let secret = json!({"field_secrets": {"pw": "correct horse"}});
    let admin = tenant.admin().await;
    admin.patch("/api/v1/servers/shop", &secret).await.expect(200);
    // what is sent is another thing now
    Mcp::bare(&agent).run("destructive", "shop:login", &args).await.refused("tool_changed");
    approve_changed(&admin).await;
    let (request, outcome) = allowed(&tenant, &agent, "shop:login", &args).await;
    assert!(!request["options"].as_array().unwrap().contains(&json!("allow_always")), "{request}");
    assert_eq!(outcome.ok()["structuredContent"]["class"], "accepted");
    let seen = site.take();
    let post = seen.iter().find(|request| request.line == "POST /login").unwrap();
    assert_eq!(post.body, "user=ann&pw=correct+horse");
}

#[tokio::test]
async fn a_purchase_is_asked_about_each_time_whatever_the_policy() {
    let stage = Stage::start().await;
    let order = r#"<title>Order</title><p role=status>Thank you for your order</p>
        <script type="application/ld+json">{"@type": "Order", "orderNumber": "77"}</script>"#;
    let site = FormSite::start(&[("GET /", Reply::page(CHECKOUT)), ("POST /buy", Reply::page(order))]).await;
    let tenant = shop_with(&stage, &site, &["/"], json!({"execute": "policy"})).await;
    let args = json!({"shipping_address": "1 Main St", "payment_method": "paypal"});
    let mut asked = Vec::new();
    for mode in ["observe", "always_allow", "always_allow"] {
        let agent = tenant.agent_with(json!({"policy_mode": mode})).await;
        let (request, outcome) = allowed(&tenant, &agent, "shop:complete_purchase", &args).await;
        let options = request["options"].as_array().unwrap();
        assert!(!options.contains(&json!("allow_always")), "{mode}: {options:?}");
        let result = outcome.ok();
        let shown = &result["structuredContent"];
        assert_eq!(
            (&shown["class"], &shown["data"][0]["orderNumber"]),
            (&json!("accepted"), &json!("77")),
            "{mode}"
        );
        asked.push(request["id"].clone());
    }
    assert!(asked[0] != asked[1] && asked[1] != asked[2]);
    assert_eq!(site.count("POST"), 3);
    let record = &tenant.records("type=tool_call&status=success", 3).await[0];
    let steps = steps(&ledger(&tenant, &record["id"]).await);
    assert_eq!(steps.last().unwrap(), "committed outcome #checkout the-site-answered-accepted");
}
