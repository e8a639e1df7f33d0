//! Prompts, resources and templates of servers: what is seen, and what is decided about them.

use serde_json::{Value, json};

use super::markup::{HOSTILE, assert_harmless, attributes, escaped, form_to, hidden, led_to, notice_on};
use crate::support::upstream::Offers;
use crate::support::{Stage, Tenant, Tool, Upstream, Visitor};

const LIST: &str = "/console/servers/up/offers";

/// Offers of a server, one of each kind; `version` is part of their definitions.
fn offers(version: &str) -> Offers {
    Offers {
        prompts: Some(vec![json!({"name": "greet", "description": version}).to_string()]),
        resources: Some(vec![json!({"uri": "x://a?b&c", "name": version}).to_string()]),
        templates: vec![json!({"uriTemplate": "y://{id}", "name": version}).to_string()],
        ..Offers::default()
    }
}

/// Gives the server other offers, which it is asked for at once.
async fn offer(tenant: &Tenant, upstream: &Upstream, offers: Offers) {
    upstream.set_offers(offers);
    tenant.platform.post("/api/v1/servers/up/refresh", &json!({})).await.expect(200);
}

/// The states of all offers as REST shows them: prompts, resources, templates.
async fn states(tenant: &Tenant) -> Vec<Value> {
    let mut items = tenant.platform.items("/api/v1/servers/up/prompts").await;
    items.extend(tenant.platform.items("/api/v1/servers/up/resources").await);
    items.iter().map(|item| item["state"].clone()).collect()
}

/// The links of a page that lead to an offer.
fn links(page: &str) -> Vec<String> {
    let mut links = attributes(page, "href");
    links.retain(|href| href.contains("&offer="));
    links.dedup();
    links
}

#[tokio::test]
async fn changed_prompts_and_resources_are_reviewed_and_approved_by_their_pins() {
    let stage = Stage::start().await;
    let tenant = stage.tenant("acme").await;
    let visitor = Visitor::with_key(&stage.gateway, &tenant.admin().await).await;
    let upstream = Upstream::handshake(vec![Tool::reads("t")]).await;
    upstream.set_offers(offers("before"));
    tenant.add("up", &upstream).await;
    assert_eq!(states(&tenant).await, ["approved"; 3]);
    let page = visitor.get(&format!("{LIST}?state=waiting")).await.text;
    assert!(page.contains("No prompt or resource of this server waits for a decision."), "{page}");

    offer(&tenant, &upstream, offers("after")).await;
    assert_eq!(states(&tenant).await, ["changed"; 3]);
    let waiting = format!("{LIST}?state=waiting");
    let overview = visitor.get("/console").await.text;
    assert!(overview.contains(&format!("{waiting}\">3 prompts and resources to review<")), "{overview}");
    let server = visitor.get("/console/servers/up").await.text;
    assert!(server.contains(&format!("{waiting}\">3 to review<")), "{server}");
    let list = visitor.get(&waiting).await.text;
    let expected = [
        format!("{LIST}?kind=prompt&offer=greet"),
        format!("{LIST}?kind=resource&offer=x%3A%2F%2Fa%3Fb%26c"),
        format!("{LIST}?kind=template&offer=y%3A%2F%2F%7Bid%7D"),
    ];
    assert_eq!(links(&list), expected, "{list}");
    assert_harmless(&list);
    // what is blocked waits for nothing, and what is new does
    let template = [("kind", "template"), ("offer", "y%3A%2F%2F%7Bid%7D")];
    visitor.post(&format!("{LIST}/block"), &template).await.expect(303);
    let more = json!({"name": "more"}).to_string();
    let now = offers("after");
    let prompts = now.prompts.clone().map(|prompts| [prompts, vec![more]].concat());
    offer(&tenant, &upstream, Offers { prompts, ..now }).await;
    let list = visitor.get(&waiting).await.text;
    let new = format!("{LIST}?kind=prompt&offer=more");
    assert_eq!(links(&list), [expected[0].clone(), new.clone(), expected[1].clone()], "{list}");
    assert!(list.contains(">pending</span>"), "{list}");
    assert!(visitor.get(&new).await.text.contains("No definition was approved before"));
    visitor.post(&format!("{LIST}/unblock"), &template).await.expect(303);
    offer(&tenant, &upstream, offers("after")).await;

    for (place, (link, kind)) in expected.iter().zip(["prompt", "resource", "template"]).enumerate() {
        let page = visitor.get(link).await.text;
        for part in ["changed", "&#34;before&#34;", "&#34;after&#34;", "Approved pin"] {
            assert!(page.contains(part), "{part}: {page}");
        }
        assert_harmless(&page);
        let (action, pin) = (form_to(&page, "/approve").unwrap(), hidden(&page, "pin"));
        assert_eq!((&*action, &*hidden(&page, "kind")), (&*format!("{LIST}/approve"), kind));
        let named = [("kind", kind), ("offer", &*hidden(&page, "offer"))];
        let with_pin = |pin| [&named[..], &[("pin", pin)]].concat();
        visitor.post(&action, &with_pin("v1:junk")).await.expect(400);
        let other = format!("v1:{}", "0".repeat(64));
        let late = visitor.post(&action, &with_pin(&other)).await;
        late.expect(409);
        assert!(attributes(&late.text, "href").contains(link), "{late:?}");
        let done = visitor.post(&action, &with_pin(&pin)).await;
        assert_eq!(led_to(&done), (303, link.as_str()));
        let page = visitor.get(done.header("location")).await.text;
        assert!(
            notice_on(&page).starts_with("The definition of ") && notice_on(&page).ends_with(" is approved.")
        );
        assert!(form_to(&page, "/approve").is_none(), "{page}");
        assert_eq!(states(&tenant).await[place], "approved");
        assert_eq!(links(&visitor.get(&waiting).await.text), expected[place + 1..]);

        for (verb, button, state) in [("block", "/unblock", "blocked"), ("unblock", "/block", "approved")] {
            let done = visitor.post(&format!("{LIST}/{verb}"), &named).await;
            assert_eq!(led_to(&done), (303, link.as_str()));
            let page = visitor.get(done.header("location")).await.text;
            assert!(
                form_to(&page, button).is_some() && page.contains(&format!("\">{state}</span>")),
                "{page}"
            );
            assert_eq!(states(&tenant).await[place], state);
        }
        let act = if kind == "prompt" { "prompts.approve" } else { "resources.approve" };
        let query = format!("tool={act}&source=console&status=success");
        let record = tenant.records(&query, if kind == "template" { 2 } else { 1 }).await.remove(0);
        let recorded: Value = serde_json::from_str(record["arguments"].as_str().unwrap()).unwrap();
        assert_eq!((&recorded["body"]["pin"], &record["server"]), (&json!(pin), &json!("up")), "{record}");
    }
}

#[tokio::test]
async fn offers_that_are_not_there_and_impossible_addresses_are_refused() {
    let stage = Stage::start().await;
    let tenant = stage.tenant("acme").await;
    let visitor = Visitor::with_key(&stage.gateway, &tenant.admin().await).await;
    let upstream = Upstream::handshake(vec![Tool::reads("t")]).await;
    tenant.add("up", &upstream).await;
    let empty = visitor.get(LIST).await.text;
    assert!(empty.contains("This server offers no prompts, resources or templates"), "{empty}");
    for (query, status) in [
        ("kind=prompt&offer=none", 404),
        ("kind=prompt", 400),
        ("offer=none", 400),
        ("kind=tool&offer=none", 400),
        ("state=approved", 400),
        ("cursor=!", 400),
        ("cursor=dG9vbCBhYmM", 400),
        ("colour=red", 400),
    ] {
        visitor.get(&format!("{LIST}?{query}")).await.expect(status);
    }
    let missing = visitor.post(&format!("{LIST}/block"), &[("kind", "prompt"), ("offer", "none")]).await;
    missing.expect(404);
    assert!(attributes(&missing.text, "href").contains(&LIST.to_owned()), "{missing:?}");
    for (path, offer) in
        [("up/offers/explode", "none"), ("none/offers/block", "none"), ("up/offers/block", "%00")]
    {
        visitor.post(&format!("/console/servers/{path}"), &[("offer", offer)]).await.expect(404);
    }
    let foreign = visitor.send(visitor.form(&format!("{LIST}/block"), &[("offer", "none")])).await;
    foreign.expect(403);
}

#[tokio::test]
async fn roles_see_and_decide_offers_as_they_do_tools() {
    let stage = Stage::start().await;
    let tenant = stage.tenant("acme").await;
    let upstream = Upstream::handshake(vec![Tool::reads("t")]).await;
    upstream.set_offers(offers("before"));
    let operator = tenant.operator().await;
    let body = json!({"name": "up", "kind": "http", "url": upstream.url});
    operator.post("/api/v1/servers", &body).await.expect(201);
    let link = format!("{LIST}?kind=prompt&offer=greet");
    let fields = [("kind", "prompt"), ("offer", "greet")];
    // who added the server does not approve what it offers
    let adder = Visitor::with_key(&stage.gateway, &operator).await;
    let page = adder.get(&link).await.text;
    assert!(page.contains("Somebody else than who added or last moved the server approves"), "{page}");
    assert!(form_to(&page, "/approve").is_none() && form_to(&page, "/block").is_some(), "{page}");
    let pin =
        tenant.platform.items("/api/v1/servers/up/prompts").await[0]["pin"].as_str().unwrap().to_owned();
    let refused = adder.post(&format!("{LIST}/approve"), &[&fields[..], &[("pin", &*pin)]].concat()).await;
    refused.expect(403);
    assert_eq!(states(&tenant).await[0], "pending");
    let auditor = Visitor::with_key(&stage.gateway, &tenant.auditor().await).await;
    let page = auditor.get(&link).await.text;
    assert!(
        page.contains("pending") && !page.contains("<form method=\"post\" action=\"/console/servers"),
        "{page}"
    );
    auditor.post(&format!("{LIST}/block"), &fields).await.expect(403);
    let agent = Visitor::with_key(&stage.gateway, &tenant.agent().await).await;
    for path in [LIST, &link] {
        agent.get(path).await.expect(403);
    }
    let other = stage.tenant("beta").await;
    Visitor::with_key(&stage.gateway, &other.admin().await).await.get(&link).await.expect(404);
    // who added the server blocks, and does not lift the block
    adder.post(&format!("{LIST}/block"), &fields).await.expect(303);
    adder.post("/console/servers/up/tools/block", &[("tool", "t")]).await.expect(303);
    for path in [&*link, "/console/servers/up?tool=t"] {
        let page = adder.get(path).await.text;
        let says = "Somebody else than who added or last moved the server lifts the block";
        assert!(page.contains(says) && form_to(&page, "/unblock").is_none(), "{page}");
    }
}

#[tokio::test]
async fn hostile_offers_stay_names_and_come_in_pages() {
    let stage = Stage::start().await;
    let tenant = stage.tenant("acme").await;
    let visitor = Visitor::with_key(&stage.gateway, &tenant.admin().await).await;
    let upstream = Upstream::handshake(vec![Tool::reads("t")]).await;
    let prompt = |text: &&str| json!({"name": text, "description": text, "title": text}).to_string();
    upstream.set_offers(Offers { prompts: Some(HOSTILE.iter().map(prompt).collect()), ..Offers::default() });
    tenant.add("up", &upstream).await;
    let (mut found, mut next) = (Vec::new(), Some(format!("{LIST}?limit=4")));
    while let Some(path) = next {
        let page = visitor.get(&path).await;
        page.expect(200);
        assert_harmless(&page.text);
        found.extend(links(&page.text));
        let rest = page.text.split("<a rel=\"next\"").nth(1);
        next = rest.and_then(|rest| attributes(rest, "href").into_iter().next());
    }
    assert_eq!(found.len(), HOSTILE.len(), "{found:?}");
    let mut seen: Vec<&str> = Vec::new();
    for link in &found {
        let page = visitor.get(link).await;
        page.expect(200);
        assert_harmless(&page.text);
        let action = form_to(&page.text, "/block").unwrap();
        let fields = [("kind", "prompt"), ("offer", &*hidden(&page.text, "offer"))];
        assert_eq!(led_to(&visitor.post(&action, &fields).await), (303, link.as_str()));
        seen.extend(
            HOSTILE.into_iter().filter(|text| page.text.contains(&format!("<h1>{}</h1>", escaped(text)))),
        );
    }
    assert_eq!(seen.len(), HOSTILE.len(), "{seen:?}");
    assert_eq!(states(&tenant).await, vec!["blocked"; HOSTILE.len()]);
}

#[tokio::test]
async fn what_another_server_offers_too_waits_as_well_and_a_release_names_all_that_it_approves() {
    let stage = Stage::start().await;
    let tenant = stage.tenant("acme").await;
    let visitor = Visitor::with_key(&stage.gateway, &tenant.admin().await).await;
    let upstream = Upstream::handshake(vec![Tool::reads("t")]).await;
    upstream.set_offers(offers("same"));
    tenant.add("first", &upstream).await;
    let body = json!({"name": "up", "kind": "http", "url": upstream.url});
    tenant.operator().await.post("/api/v1/servers", &body).await.expect(201);
    let server = visitor.get("/console/servers/up").await.text;
    assert!(server.contains(">3 to review<"), "{server}");
    let list = visitor.get(&format!("{LIST}?state=waiting")).await.text;
    assert_eq!(links(&list).len(), 3, "{list}");
    assert_eq!(
        list.matches("No agent gets it from here: first goes first with this URI.").count(),
        2,
        "{list}"
    );
    let question = visitor.get("/console/servers/up/release").await.text;
    assert!(question.contains("So are those of 3 prompts and resources."), "{question}");
    visitor.post("/console/servers/up/unquarantine", &[]).await.expect(303);
    assert_eq!(states(&tenant).await, ["approved"; 3]);
}
