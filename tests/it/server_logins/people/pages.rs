//! Logins on a page: for the person whose session opens it, and for the browser that left from it.

use serde_json::json;

use super::{GATEWAY, SOON, call, put, server, tools};
use crate::support::{AuthServer, Gateway, Idp, Mcp, Stage, Tenant, Upstream, Visitor, settle};

const FLOW: &str = "__Host-mcpproxy-flow";
/// Settings of these tests.
const SETTINGS: [(&str, &str); 2] =
    [("MCPPROXY__SERVER__PUBLIC_URL", GATEWAY), ("MCPPROXY__CONSOLE__ISSUER", "corp")];

/// A tenant whose people log in at the company's provider, and a server where they log in once more.
struct Scene {
    stage: Stage,
    other: Gateway,
    tenant: Tenant,
    idp: Idp,
    logins: AuthServer,
    upstream: Upstream,
}

impl Scene {
    async fn start() -> Scene {
        let stage = Stage::with(&SETTINGS).await;
        let other = Gateway::start(&stage.database, &SETTINGS).await;
        let tenant = stage.tenant("acme").await;
        let idp = Idp::start().await;
        crate::logins::register(&stage, &idp, "corp", "acme").await;
        let condition = json!([{"claim": "sub", "op": "equals", "value": "boss"}]);
        let rules = json!([{"role": "admin", "conditions": condition}, {"role": "agent"}]);
        crate::logins::set_rules(&tenant, rules).await;
        let logins = AuthServer::start().await;
        let upstream = Upstream::modern(tools()).await;
        upstream.guard(logins.check());
        upstream.name_issuer(&logins.url);
        let body = json!({"name": "up", "kind": "http", "url": upstream.url});
        tenant.platform.post("/api/v1/servers", &body).await.expect(201);
        put(&tenant.platform, "up", &json!({"kind": "authorization_code"})).await.expect(200);
        let admin = tenant.admin().await;
        super::connect(&stage.gateway, &admin, true).await.expect(200);
        Scene { stage, other, tenant, idp, logins, upstream }
    }

    /// A caller with a token of the company's provider.
    fn person(&self, subject: &str) -> crate::support::Api {
        self.stage.gateway.anonymous().with_key(&self.idp.token(subject, GATEWAY, json!({})))
    }

    /// A browser in which this person has logged in.
    async fn browser(&self, subject: &str) -> Visitor {
        self.idp.log_in(|login| login.subject = subject.to_owned());
        let visitor = Visitor::by(&self.stage.gateway, GATEWAY);
        assert_eq!(visitor.log_in_there().await.status, 303);
        visitor
    }

    /// The path of the page that a refused call names.
    async fn page(&self, person: &crate::support::Api) -> String {
        let refused = call(person, "up:t").await.refused("upstream_login_required").to_string();
        let (_, rest) = refused.split_once("Server 'up' needs your own login: open ").unwrap();
        let (link, _) = rest.split_once(", then try again").unwrap();
        link.strip_prefix(GATEWAY).unwrap().to_owned()
    }
}

/// Sends the browser from the page to the login service. Returns the path by which it comes back.
async fn leave(browser: &Visitor, page: &str, fields: &[(&str, &str)]) -> String {
    let left = browser.post(page, fields).await;
    assert_eq!(left.status, 200, "{left:?}");
    let url = left.header("refresh").strip_prefix("0;url=").unwrap().to_owned();
    super::log_in_there(&url).await
}

#[tokio::test]
async fn a_person_logs_in_by_the_link_of_a_refused_call() {
    let scene = Scene::start().await;
    let ana = scene.person("u1");
    let page = scene.page(&ana).await;
    assert_eq!(scene.page(&ana).await, page, "one open login of a person at a server");
    // the login of the console comes first, and leads back
    let stranger = Visitor::by(&scene.stage.gateway, GATEWAY);
    let to_login = stranger.get(&page).await;
    assert_eq!(
        (to_login.status, to_login.header("location")),
        (303, &*format!("/console/login?return_to={page}"))
    );
    let browser = scene.browser("u1").await;
    let shown = browser.get(&page).await;
    let host = scene.logins.url.strip_prefix("http://").unwrap().split('/').next().unwrap().to_owned();
    for text in ["Log in at up", &scene.upstream.url, &host, "tools:use"] {
        assert!(shown.text.contains(text), "{text}: {}", shown.text);
    }
    assert!(!shown.text.contains("for_listing"), "agents list nothing");
    let policy = shown.header("content-security-policy");
    assert!(!policy.contains(&host) && policy.contains("frame-ancestors 'none'"), "{policy}");
    // another replica sends the browser away, and this one takes it back
    let there = browser.at(&scene.other);
    let back = leave(&there, &page, &[]).await;
    browser.set_cookie(FLOW, &there.cookie(FLOW).unwrap());
    let done = browser.get(&back).await;
    assert_eq!(done.status, 200, "{done:?}");
    assert!(done.text.contains("You are logged in at the server &#39;up&#39;"), "{}", done.text);
    for at in [ana.clone(), scene.other.ask_as(&ana)] {
        settle("ok".to_owned(), SOON, || async { call(&at, "up:t").await.code() }).await;
    }
    // the page is over, and its answer works once
    assert_eq!(browser.get(&page).await.status, 403);
    assert_eq!(browser.get(&back).await.status, 400);
    let records = scene.tenant.records("type=admin&tool=servers.connected&source=console", 1).await;
    assert_eq!(records[0]["identity_id"], json!(ana.get("/api/v1/status").await.expect(200)["identity_id"]));
}

#[tokio::test]
async fn a_page_is_nobody_elses() {
    let scene = Scene::start().await;
    let ana = scene.person("u1");
    let page = scene.page(&ana).await;
    let own = scene.browser("u1").await;
    let other = scene.browser("u2").await;
    let key = Visitor::by(&scene.stage.gateway, GATEWAY);
    assert_eq!(key.log_in(scene.tenant.admin().await.key.as_deref().unwrap()).await.status, 303);
    for visitor in [&other, &key] {
        let shown = visitor.get(&page).await;
        assert_eq!(shown.status, 403);
        assert!(!shown.text.contains("up") || !shown.text.contains("u1"), "{}", shown.text);
        assert_eq!(visitor.post(&page, &[]).await.status, 403);
    }
    // without the page's own form nobody is sent away
    let bare = own.send(own.form(&page, &[("csrf", "x")])).await;
    assert_eq!(bare.status, 403);
    assert!(scene.logins.begun().len() == 1, "the admin's alone");
    let back = leave(&own, &page, &[]).await;
    let text = "This login does not belong to a request of this browser; start again from your tool";
    let foreign = async |visitor: &Visitor, path: &str| {
        let answer = visitor.get(path).await;
        assert_eq!(answer.status, 400, "{path}: {answer:?}");
        assert!(answer.text.contains(text) && !answer.text.contains("pay"), "{}", answer.text);
    };
    // another browser, of the same person even; another person with the cookie; and nobody
    foreign(&scene.browser("u1").await, &back).await;
    other.set_cookie(FLOW, &own.cookie(FLOW).unwrap());
    foreign(&other, &back).await;
    foreign(&Visitor::by(&scene.stage.gateway, GATEWAY), &back).await;
    let place = back.split_once('?').unwrap().0.rsplit('/').next().unwrap();
    let iss = back.split_once("iss=").unwrap().1.split('&').next().unwrap().to_owned();
    let changed = |new: &str| back.replace(&format!("iss={iss}"), new);
    for forged in [
        changed("iss=https%3A%2F%2Fevil.example"),
        changed("x=1"),
        format!("{}&error=access_denied&error_description=pay", changed("iss=https%3A%2F%2Fevil.example")),
        back.replace("state=", "state=A"),
        back.replace("/oauth/callback/", "/oauth/callback/0"),
        back.replace(place, &uuid::Uuid::new_v4().to_string()),
    ] {
        foreign(&own, &forged).await;
    }
    assert!(scene.logins.asked("authorization_code").len() == 1, "the admin's alone");
    // none of that used it up
    assert_eq!(own.get(&back).await.status, 200);
    settle("ok".to_owned(), SOON, || async { call(&ana, "up:t").await.code() }).await;
}

#[tokio::test]
async fn who_may_change_servers_may_list_one_with_a_login() {
    let scene = Scene::start().await;
    let boss = scene.person("boss");
    let page = scene.page(&boss).await;
    let browser = scene.browser("boss").await;
    assert!(browser.get(&page).await.text.contains("for_listing"));
    scene.logins.change(|rules| rules.subject = "the-boss".to_owned());
    let before = scene.upstream.sent("authorization").len();
    let back = leave(&browser, &page, &[("for_listing", "true")]).await;
    assert_eq!(browser.get(&back).await.status, 200);
    let own = format!("Bearer {}", scene.logins.tokens_of("the-boss")[0]);
    settle(true, SOON, || async { scene.upstream.sent("authorization")[before..].contains(&own) }).await;
    let shown = super::connections(&boss).await;
    let lists: Vec<bool> = shown.iter().map(|shown| shown["for_listing"] == json!(true)).collect();
    assert_eq!((lists.len(), lists.iter().filter(|lists| **lists).count()), (2, 1), "{shown:?}");
    assert_eq!(server(&boss, "up").await["connection"], "connected");
    // an agent's form does not do that
    let ana = scene.person("u1");
    let page = scene.page(&ana).await;
    let browser = scene.browser("u1").await;
    assert_eq!(browser.post(&page, &[("for_listing", "true")]).await.status, 403);
}

#[tokio::test]
async fn a_login_that_was_declined_or_failed_says_so() {
    let scene = Scene::start().await;
    let ana = scene.person("u1");
    let browser = scene.browser("u1").await;
    let page = scene.page(&ana).await;
    scene.logins.change(|rules| rules.answer = json!({"code": null, "error": "access_denied"}));
    let back = leave(&browser, &page, &[]).await;
    let declined = browser.get(&back).await;
    assert_eq!(declined.status, 403, "{declined:?}");
    scene.logins.change(|rules| rules.answer = json!({"code": "code-of-nobody"}));
    let back = leave(&browser, &page, &[]).await;
    let failed = browser.get(&back).await;
    assert_eq!(failed.status, 503, "{failed:?}");
    assert!(!failed.text.contains("marked-words-of-the-provider"));
    scene.logins.change(|rules| rules.answer = json!({}));
    let back = leave(&browser, &page, &[]).await;
    assert_eq!(browser.get(&back).await.status, 200);
    settle("ok".to_owned(), SOON, || async { call(&ana, "up:t").await.code() }).await;
}

/// Clients that open pages are asked to, in the form of their era, and call again.
#[tokio::test]
async fn clients_that_open_pages_are_asked_to() {
    let scene = Scene::start().await;
    let ana = scene.person("u1");
    let args = json!({"name": "up:t", "args": {}});
    let modern = Mcp::modern(&ana).declaring(r#"{"elicitation":{"url":{}}}"#);
    let asked = modern.call("call_tool_write", &args).await.result();
    assert_eq!(asked["resultType"], "input_required", "{asked}");
    let request = &asked["inputRequests"]["mcpproxy.login"];
    assert_eq!(
        (&request["method"], &request["params"]["mode"]),
        (&json!("elicitation/create"), &json!("url"))
    );
    let link = request["params"]["url"].as_str().unwrap().to_owned();
    assert!(link.starts_with(&format!("{GATEWAY}/connect/")), "{link}");
    // a form is no page
    let forms = Mcp::modern(&ana).declaring(r#"{"elicitation":{"form":{}}}"#);
    forms.call("call_tool_write", &args).await.refused("upstream_login_required");
    let session = Mcp::bare(&ana).declaring(r#"{"elicitation":{"url":{}}}"#).shake_hands("2025-11-25").await;
    let error = session.call("call_tool_write", &args).await.error();
    assert_eq!(error["code"], -32042, "{error}");
    let page = &error["data"]["elicitations"][0];
    assert_eq!((&page["url"], &page["mode"]), (&json!(link), &json!("url")));
    assert!(link.ends_with(page["elicitationId"].as_str().unwrap()));
    // a revision before it gets the text
    let older = Mcp::bare(&ana).declaring(r#"{"elicitation":{}}"#).shake_hands("2025-06-18").await;
    older.call("call_tool_write", &args).await.refused("upstream_login_required");
    // the client repeats the call once the person is done
    let browser = scene.browser("u1").await;
    let back = leave(&browser, link.strip_prefix(GATEWAY).unwrap(), &[]).await;
    assert_eq!(browser.get(&back).await.status, 200);
    let answers = json!({"mcpproxy.login": {"action": "accept"}});
    let params = json!({"name": "call_tool_write", "arguments": args, "inputResponses": answers});
    settle(true, SOON, || async {
        let again = modern.request("tools/call", &params.to_string()).await;
        again.text.contains("\"content\"") && !again.text.contains("mcpproxy.login")
    })
    .await;
    let sent = scene.upstream.calls().pop().unwrap().params;
    assert!(!sent.contains("mcpproxy.login") && !sent.contains("inputResponses"), "{sent}");
    call(&ana, "up:t").await.ok();
}
