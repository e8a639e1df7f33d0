//! API keys: made and shown once, replaced, revoked, and nobody's but an admin's.

use std::time::Duration;

use serde_json::{Value, json};

use super::live::{browser, shows};
use super::markup::{
    HOSTILE, assert_harmless, assert_harmless_but, attributes, escaped, form_to, hidden, led_to, notice_on,
};
use crate::support::{Api, Mcp, Stage, Upstream, Visitor, settle, upstream};

const SOON: Duration = Duration::from_secs(5);
/// Schemes of the links by which clients install a server.
const INSTALL: [&str; 2] = ["cursor://anysphere.cursor-deeplink/", "vscode:mcp/install?"];

/// The secret that a page shows.
fn secret(page: &str) -> &str {
    let (_, rest) = page
        .split_once("<pre id=\"secret\" data-copy tabindex=\"0\" role=\"group\" aria-label=\"The key\">")
        .expect("a secret");
    rest.split('<').next().unwrap()
}

/// The path of the page of the key that was made.
fn place(page: &str) -> String {
    let mut links = attributes(page, "href").into_iter();
    links.rfind(|href| href.starts_with("/console/keys/") && !href.contains("/settings")).expect("a link")
}

/// The path of the page of the key that was made in place of another.
fn place_of_new(page: &str) -> String {
    let mut links = attributes(page, "href").into_iter();
    links.find(|href| href.starts_with("/console/keys/")).expect("a link")
}

/// The caller with a key.
fn with(stage: &Stage, secret: &str) -> Api {
    let mut api = stage.platform();
    api.key = Some(secret.to_owned());
    api
}

#[tokio::test]
async fn a_key_is_made_shown_once_replaced_and_revoked() {
    let stage = Stage::start().await;
    let tenant = stage.tenant("acme").await;
    let upstream = Upstream::handshake(upstream::zoo()).await;
    tenant.add("zoo", &upstream).await;
    let visitor = Visitor::with_key(&stage.gateway, &tenant.admin().await).await;
    let list = visitor.get("/console/keys").await;
    list.expect(200);
    assert_eq!(form_to(&list.text, "/create").as_deref(), Some("/console/keys/create"));
    assert!(list.text.contains("this session's"), "{list:?}");
    for (fields, says) in [
        (vec![("role", "platform"), ("owner", "ada")], "role must be"),
        (vec![("owner", "ada")], "role must be"),
        (vec![("role", "agent"), ("name", "laptop")], "owner is needed"),
        (
            vec![("role", "agent"), ("owner", "ada"), ("expires_in_days", "0")],
            "expires_in_days must be a whole number",
        ),
        (
            vec![("role", "agent"), ("owner", "ada"), ("name", &*"x".repeat(201))],
            "name must be 1 to 200 characters",
        ),
    ] {
        let refused = visitor.post("/console/keys/create", &fields).await;
        refused.expect(400);
        assert!(refused.text.contains(says), "{refused:?}");
    }
    let fields = [("role", "agent"), ("name", "laptop"), ("owner", "ada"), ("expires_in_days", "30")];
    let made = visitor.post("/console/keys/create", &fields).await;
    made.expect(201);
    assert_harmless_but(&made.text, &INSTALL);
    let key = secret(&made.text).to_owned();
    Mcp::bare(&with(&stage, &key)).run("read", "zoo:reader", &json!({})).await.ok();
    // clients are set up for this gateway, with this key
    let url = format!("{}/mcp", stage.gateway.url);
    for part in ["[mcp_servers.mcpproxy]", "&#34;mcpServers&#34;: {", &url] {
        assert!(made.text.contains(part), "{part}: {made:?}");
    }
    assert!(made.text.matches(&key).count() >= 7, "{made:?}");
    for scheme in INSTALL {
        assert!(attributes(&made.text, "href").iter().any(|href| href.starts_with(scheme)), "{scheme}");
    }
    // and that was the only time
    assert!(made.text.contains("--set unannotated_tools=distrust</code> does"), "a warning: {made:?}");
    let (path, list) = (place(&made.text), visitor.get("/console/keys").await.text);
    let page = visitor.get(&path).await.text;
    for page in [&list, &page] {
        assert!(page.contains("laptop") && page.contains("ada") && !page.contains(&key), "{page}");
    }
    let shown = &page;
    for part in ["in 30 d", "unannotated_tools", "<td data-is=\"Set for\">deployment</td>", "valid"] {
        assert!(shown.contains(part), "{part}: {shown}");
    }
    let id = path.rsplit('/').next().unwrap();
    let settings = json!({"max_operation": "read"});
    let patched =
        tenant.platform.ask(reqwest::Method::PATCH, &format!("/api/v1/keys/{id}/settings"), Some(&settings));
    patched.await.expect(200);
    let shown = visitor.get(&path).await.text;
    let line =
        "<th scope=\"row\">max_operation</th><td data-is=\"Value\">read</td><td data-is=\"Set for\">key</td>";
    assert!(shown.contains(line), "{shown}");

    let safe = json!({"unannotated_tools": "distrust"});
    let patch = |path: String| tenant.platform.ask(reqwest::Method::PATCH, &path, Some(&safe));
    patch(format!("/api/v1/keys/{id}/settings")).await.expect(200);
    let replaced = visitor.post(&form_to(&shown, "/rotate").unwrap(), &[]).await;
    replaced.expect(201);
    assert!(!replaced.text.contains("id=\"unannotated\""), "nothing to warn of: {replaced:?}");
    let next = secret(&replaced.text).to_owned();
    assert!(next != key && replaced.text.contains(&format!("href=\"{path}\"")), "{replaced:?}");
    for secret in [&key, &next] {
        with(&stage, secret).get("/api/v1/status").await.expect(200);
    }
    assert!(!replaced.text.contains("Ends with it"), "it decided nothing: {replaced:?}");
    let old = visitor.get(&path).await.text;
    assert!(old.contains("replaced, works until 20") && form_to(&old, "/rotate").is_none(), "{old}");
    assert!(visitor.get("/console/keys").await.text.contains("replaced, works until 20"));
    // the page of the new key says that the old one still works, and its revocation changes nothing of that
    let still = format!("<a href=\"{path}\">The key that this one replaced</a> still works until 20");
    let page_of_next = place_of_new(&replaced.text);
    assert!(visitor.get(&page_of_next).await.text.contains(&still));
    let again = visitor.post(&format!("{path}/rotate"), &[]).await;
    again.expect(409);
    assert!(again.text.contains("The key &#39;laptop&#39; was replaced already"), "{again:?}");
    assert!(!again.text.contains("mcpproxy key") && again.text.contains("To the key after it"), "{again:?}");
    assert!(attributes(&again.text, "href").contains(&page_of_next), "{again:?}");
    // nothing is revoked before a question is answered
    assert!(form_to(&old, "/revoke").is_none(), "{old}");
    let question = attributes(&old, "href").into_iter().find(|href| href.ends_with("/revoke")).unwrap();
    let question = visitor.get(&question).await;
    question.expect(200);
    assert_harmless(&question.text);
    assert!(question.text.contains("Revoke laptop?") && question.text.contains("Calls with it are refused"));
    assert!(!question.text.contains("Your session"), "{question:?}");
    assert!(question.text.contains("The key that replaced it works on."), "{question:?}");
    with(&stage, &key).get("/api/v1/status").await.expect(200);
    let done = visitor.post(&form_to(&question.text, "/revoke").unwrap(), &[]).await;
    assert_eq!(led_to(&done), (303, path.as_str()));
    let page = visitor.get(done.header("location")).await.text;
    assert_eq!(notice_on(&page), "The key is revoked: nothing works with it any more.");
    assert!(page.contains("The settings of a key are deleted when it is revoked."), "{page}");
    assert!(!page.contains("max_operation"), "{page}");
    settle(401, SOON, || async { with(&stage, &key).get("/api/v1/status").await.status }).await;
    assert!(!visitor.get(&page_of_next).await.text.contains("still works until"));
    with(&stage, &next).get("/api/v1/status").await.expect(200);
    let gone = visitor.get(&path).await.text;
    assert!(gone.contains("revoked") && !gone.contains("/revoke\""), "{gone}");
    visitor.get(&format!("{path}/revoke")).await.expect(409);
    visitor.get(&format!("{path}/explode")).await.expect(404);
    for verb in ["create", "rotate", "revoke"] {
        let record =
            tenant.records(&format!("tool=keys.{verb}&source=console&status=success"), 1).await.remove(0);
        let text = record.to_string();
        assert!(!text.contains(&key) && !text.contains(&next), "{record}");
    }
    for (path, status) in [("x", 404), ("0199aaaa-0000-7000-8000-000000000001", 404)] {
        visitor.get(&format!("/console/keys/{path}")).await.expect(status);
        visitor.get(&format!("/console/keys/{path}/revoke")).await.expect(status);
        visitor.post(&format!("/console/keys/{path}/revoke"), &[]).await.expect(status);
    }
    visitor.post(&format!("{path}/explode"), &[]).await.expect(404);
    let foreign = visitor.send(visitor.form("/console/keys/create", &[("role", "admin")])).await;
    foreign.expect(403);
}

#[tokio::test]
async fn keys_are_for_admins_alone() {
    let stage = Stage::start().await;
    let tenant = stage.tenant("acme").await;
    let key = tenant.agent().await;
    let path = format!("/console/keys/{}", key.id);
    for low in
        [tenant.agent().await, tenant.auditor().await, tenant.operator().await, tenant.approver().await]
    {
        let visitor = Visitor::with_key(&stage.gateway, &low).await;
        for path in ["/console/keys", &path, &format!("{path}/revoke")] {
            let page = visitor.get(path).await;
            page.expect(403);
            assert!(!attributes(&page.text, "href").contains(&"/console/keys".to_owned()), "{page:?}");
        }
        visitor.post("/console/keys/create", &[("role", "admin")]).await.expect(403);
        visitor.post(&format!("{path}/rotate"), &[]).await.expect(403);
        visitor.post(&format!("{path}/revoke"), &[]).await.expect(403);
    }
    let recorded = async || {
        let items = tenant.platform.items("/api/v1/activity?source=console&status=blocked").await;
        let mut tools: Vec<Value> = items.into_iter().map(|item| item["tool"].clone()).collect();
        tools.sort_by_key(Value::to_string);
        tools.dedup();
        tools
    };
    let names = ["keys.create", "keys.get", "keys.list", "keys.revoke", "keys.rotate"];
    settle(names.map(Value::from).to_vec(), SOON, recorded).await;
    let stranger = Visitor::with_key(&stage.gateway, &stage.tenant("other").await.admin().await).await;
    stranger.get(&path).await.expect(404);
    stranger.post(&format!("{path}/rotate"), &[]).await.expect(404);
    stranger.post(&format!("{path}/revoke"), &[]).await.expect(404);
    let platform = Visitor::with_key(&stage.gateway, &stage.platform()).await;
    platform.get("/console/keys").await.expect(403);
    platform.post("/console/keys/create", &[("role", "admin")]).await.expect(403);
    key.get("/api/v1/status").await.expect(200);
    // reads of admins are recorded as over REST
    let admin = Visitor::with_key(&stage.gateway, &tenant.admin().await).await;
    admin.get(&path).await.expect(200);
    admin.get("/console/keys").await.expect(200);
    for tool in ["keys.get", "keys.list"] {
        tenant.records(&format!("tool={tool}&source=console&status=success"), 1).await;
    }
}

#[tokio::test]
async fn hostile_names_of_keys_stay_names() {
    let stage = Stage::start().await;
    let tenant = stage.tenant("acme").await;
    let visitor = Visitor::with_key(&stage.gateway, &tenant.admin().await).await;
    for text in HOSTILE {
        let made = visitor
            .post("/console/keys/create", &[("role", "auditor"), ("name", text), ("owner", text)])
            .await;
        made.expect(201);
        let one = visitor.get(&place(&made.text)).await.text;
        for page in [&made.text, &one] {
            assert_harmless(page);
            assert!(page.contains(&escaped(text)), "{text}: {page}");
        }
        assert!(!made.text.contains("mcp_servers"), "a role without tools needs no client: {made:?}");
    }
    let list = visitor.get("/console/keys?limit=100").await.text;
    assert_harmless(&list);
    let walked = visitor.get("/console/keys?limit=2").await.text;
    let next = attributes(walked.split("<a rel=\"next\"").nth(1).unwrap(), "href").remove(0);
    assert!(visitor.get(&next).await.text.contains("/console/keys/"));
}

#[tokio::test]
async fn a_form_makes_one_key() {
    let stage = Stage::start().await;
    let tenant = stage.tenant("acme").await;
    let admin = tenant.admin().await;
    let visitor = Visitor::with_key(&stage.gateway, &admin).await;
    let once = hidden(&visitor.get("/console/keys").await.text, "once");
    let fields = |once| [("role", "agent"), ("name", "laptop"), ("owner", "ada"), ("once", once)];
    // a form that was refused can be filled in again
    visitor
        .post("/console/keys/create", &[("role", "king"), ("owner", "ada"), ("once", &once)])
        .await
        .expect(400);
    let made = visitor.post("/console/keys/create", &fields(&once)).await;
    made.expect(201);
    let again = visitor.post("/console/keys/create", &fields(&once)).await;
    again.expect(409);
    assert!(
        again.text.contains("The key &#39;laptop&#39; was made already, and is shown only once."),
        "{again:?}"
    );
    assert!(attributes(&again.text, "href").contains(&place(&made.text)), "{again:?}");
    // at another replica too
    let other = crate::support::Gateway::start(&stage.database, &[]).await;
    let mut there = visitor.at(&other);
    there.origin = other.url.clone();
    there.post("/console/keys/create", &fields(&once)).await.expect(409);
    // nor is it the form of another session, or one of nobody
    let stranger = Visitor::with_key(&stage.gateway, &admin).await;
    let foreign = hidden(&stranger.get("/console/keys").await.text, "once");
    let made_up = format!("{}.x", once.split('.').next().unwrap());
    for once in [&*foreign, "x", &made_up] {
        visitor.post("/console/keys/create", &fields(once)).await.expect(409);
    }
    assert_eq!(stage.database.count("select count(*) from api_keys where name = 'laptop'").await, 1);
    let next = hidden(&visitor.get("/console/keys").await.text, "once");
    visitor.post("/console/keys/create", &fields(&next)).await.expect(201);
}

#[tokio::test]
async fn a_form_that_makes_a_key_keeps_what_was_typed() {
    let stage = Stage::start().await;
    let tenant = stage.tenant("acme").await;
    let visitor = Visitor::with_key(&stage.gateway, &tenant.admin().await).await;
    let list = visitor.get("/console/keys").await.text;
    assert!(list.contains("value=\"\" required") && list.contains("about once a minute"), "{list}");
    let fields = [("role", "operator"), ("name", "laptop"), ("owner", " "), ("expires_in_days", "30")];
    let page = visitor.post("/console/keys/create", &fields).await;
    page.expect(400);
    assert_harmless(&page.text);
    for part in [
        "owner is needed",
        "What you typed is in the form.",
        "<option value=\"operator\" selected>",
        "<option value=\"30\" selected>",
        "name=\"name\" value=\"laptop\"",
        "<input id=\"k-owner\" aria-invalid=\"true\"",
    ] {
        assert!(page.text.contains(part), "{part}: {page:?}");
    }
    let again = [("once", &*hidden(&page.text, "once")), ("owner", "ada"), fields[0], fields[1]];
    visitor.post("/console/keys/create", &again).await.expect(201);
    for text in HOSTILE {
        let fields = [("role", text), ("name", text), ("owner", text), ("expires_in_days", text)];
        let page = visitor.post("/console/keys/create", &fields).await;
        page.expect(400);
        assert_harmless(&page.text);
    }
}

#[tokio::test]
async fn a_form_that_has_made_a_key_makes_another_after_a_word() {
    let stage = Stage::start().await;
    let tenant = stage.tenant("acme").await;
    let visitor = Visitor::with_key(&stage.gateway, &tenant.admin().await).await;
    let once = hidden(&visitor.get("/console/keys").await.text, "once");
    let fields = |name, once| [("role", "agent"), ("name", name), ("owner", "ada"), ("once", once)];
    visitor.post("/console/keys/create", &fields("op-first", &once)).await.expect(201);
    // back from its page, the form is still filled in
    let other = visitor.post("/console/keys/create", &fields("op-second", &once)).await;
    other.expect(409);
    assert_harmless(&other.text);
    for part in [
        "This form has made the key &#39;op-first&#39; already. To make another one with what is typed below, send it now.",
        "name=\"name\" value=\"op-second\"",
        "<option value=\"agent\" selected>",
    ] {
        assert!(other.text.contains(part), "{part}: {other:?}");
    }
    assert!(!other.text.contains("Nothing was changed"), "{other:?}");
    let fresh = hidden(&other.text, "once");
    visitor.post("/console/keys/create", &fields("op-second", &fresh)).await.expect(201);
    for (role, owner) in [("auditor", "ada"), ("agent", "bob")] {
        let fields = [("role", role), ("name", "op-second"), ("owner", owner), ("once", &*fresh)];
        let other = visitor.post("/console/keys/create", &fields).await;
        assert!(other.status == 409 && other.text.contains("This form has made the key"), "{other:?}");
    }
    let old = visitor.post("/console/keys/create", &fields("op-third", "x")).await;
    old.expect(409);
    assert!(old.text.contains("too old") && old.text.contains("value=\"op-third\""), "{old:?}");
    assert_eq!(stage.database.count("select count(*) from api_keys where name like 'op-%'").await, 2);
}

#[tokio::test]
async fn a_key_with_a_session_is_revoked_after_a_question() {
    let stage = Stage::start().await;
    let tenant = stage.tenant("acme").await;
    let admin = tenant.admin().await;
    let visitor = Visitor::with_key(&stage.gateway, &admin).await;
    let question = visitor.get(&format!("/console/keys/{}/revoke", admin.id)).await;
    question.expect(200);
    assert!(question.text.contains("Your session is one of this key, and ends with it."), "{question:?}");
    visitor.get("/console").await.expect(200);
    visitor.post(&form_to(&question.text, "/revoke").unwrap(), &[]).await.expect(303);
    visitor.get("/console").await.expect(303);
}

#[tokio::test]
async fn a_key_whose_successor_was_revoked_is_replaced_again() {
    let stage = Stage::start().await;
    let tenant = stage.tenant("acme").await;
    let key = tenant.agent().await;
    let visitor = Visitor::with_key(&stage.gateway, &tenant.admin().await).await;
    let path = format!("/console/keys/{}", key.id);
    let replaced = visitor.post(&format!("{path}/rotate"), &[]).await;
    replaced.expect(201);
    assert!(form_to(&visitor.get(&path).await.text, "/rotate").is_none());
    visitor.post(&format!("{}/revoke", place_of_new(&replaced.text)), &[]).await.expect(303);
    let again = form_to(&visitor.get(&path).await.text, "/rotate").expect("a form that replaces it");
    let next = visitor.post(&again, &[]).await;
    next.expect(201);
    with(&stage, secret(&next.text)).get("/api/v1/status").await.expect(200);
}

#[tokio::test]
async fn a_new_key_is_copied_with_a_button() {
    let stage = Stage::start().await;
    let tenant = stage.tenant("acme").await;
    let visitor = Visitor::with_key(&stage.gateway, &tenant.admin().await).await;
    let mut browser = browser(&visitor).await;
    browser.open(&format!("{}/console/keys", visitor.base)).await;
    browser.fill("#k-owner", "ada").await;
    browser.follow("document.querySelector('form[data-keep] button').click()").await;
    // a browser without a window has no clipboard of its own
    let listen = "Object.defineProperty(navigator, 'clipboard', {value: {writeText: async (text) => { window.copied = text; }}}); true";
    assert_eq!(browser.evaluate(listen).await, true);
    let key = browser.evaluate("document.querySelector('#secret').textContent").await;
    assert_eq!(browser.evaluate("document.querySelector('#secret + button').textContent").await, "Copy");
    browser.evaluate("document.querySelector('#secret + button').click()").await;
    shows(&mut browser, "document.querySelector('#secret + button').textContent", json!("Copied")).await;
    assert_eq!(browser.evaluate("window.copied").await, key);
    with(&stage, key.as_str().unwrap()).get("/api/v1/status").await.expect(200);
    browser.close().await;
}
