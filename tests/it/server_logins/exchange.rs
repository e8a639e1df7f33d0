//! Tokens that are given in exchange for those of people (RFC 8693), on three replicas.

use std::time::{Duration, Instant};

use futures_util::future::join_all;
use reqwest::Method;
use serde_json::{Value, json};

use super::{Replicas, SOON, add, call, put, server, tools};
use crate::console;
use crate::support::upstream::Say;
use crate::support::{
    Api, Idp, Mcp, People, Tenant, TokenMood, TokenServer, Tool, Upstream, now_s, secret_of, settle,
};

/// Grant of RFC 8693.
const GRANT: &str = "urn:ietf:params:oauth:grant-type:token-exchange";
const ACCESS_TOKEN: &str = "urn:ietf:params:oauth:token-type:access_token";
/// Text for callers without a person's token.
const NO_PERSON: &str = "Server 'up' needs a person's login: log in with your organisation's account";

/// Three replicas, a tenant with people, and a server that takes what their provider gives in exchange for their tokens.
struct Scene {
    replicas: Replicas,
    tenant: Tenant,
    people: People,
    tokens: TokenServer,
    upstream: Upstream,
}

impl Scene {
    async fn of(upstream: Upstream, settings: &[(&str, &str)], more: Value) -> Scene {
        let replicas = Replicas::start(settings).await;
        let tenant = replicas.stage.tenant("acme").await;
        let people = People::of(&replicas.stage, &tenant, "acme").await;
        let tokens = TokenServer::start().await;
        leads_to(people.provider(), &tokens);
        upstream.guard(tokens.check());
        let mut login = login(people.provider());
        login.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        let added = add(&tenant, "up", &upstream, &login).await;
        // the gateway lists the server as itself
        assert_eq!(added["oauth"]["state"], "connected", "{added}");
        assert_eq!(tokens.asked().last().unwrap().form["grant_type"], "client_credentials");
        Scene { replicas, tenant, people, tokens, upstream }
    }

    async fn start() -> Scene {
        Scene::of(Upstream::modern(tools()).await, &[], json!({})).await
    }

    /// Forms of the exchanges so far.
    fn exchanges(&self) -> Vec<std::collections::HashMap<String, String>> {
        let asked = self.tokens.asked().into_iter().map(|asked| asked.form);
        asked.filter(|form| form["grant_type"] != "client_credentials").collect()
    }
}

/// Has the provider's metadata name the token endpoint of `tokens`.
fn leads_to(provider: &Idp, tokens: &TokenServer) {
    let metadata = json!({
        "token_endpoint": tokens.endpoint(), "token_endpoint_auth_methods_supported": ["client_secret_basic"],
    });
    provider.log_in(|login| login.metadata = metadata);
}

fn login(provider: &Idp) -> Value {
    json!({
        "kind": "token_exchange", "client_id": "gw", "client_secret": secret_of("gw"), "issuer": provider.url,
        "scopes": ["tickets:use"],
    })
}

/// The token of a person.
fn key(person: &Api) -> &str {
    person.key.as_deref().unwrap()
}

/// Calls the tool at each replica, until it knows the server.
async fn calls_pass(replicas: &Replicas, person: &Api) {
    for at in replicas.each(person) {
        settle("ok".to_owned(), SOON, || async { call(&at, "up:t").await.code() }).await;
    }
}

#[tokio::test]
async fn each_person_calls_with_a_token_of_their_own() {
    for upstream in [Upstream::handshake(tools()).await, Upstream::modern(tools()).await] {
        let scene = Scene::of(upstream, &[], json!({"audience": "tickets"})).await;
        let [ana, bob] =
            [scene.people.person("agent", json!({})).await, scene.people.person("agent", json!({})).await];
        for _ in 0..3 {
            calls_pass(&scene.replicas, &ana).await;
            calls_pass(&scene.replicas, &bob).await;
        }
        let exchanges = scene.exchanges();
        // one for each replica and person
        assert_eq!(exchanges.len(), 6, "{exchanges:?}");
        for form in &exchanges {
            assert_eq!((&*form["grant_type"], &*form["subject_token_type"]), (GRANT, ACCESS_TOKEN));
            assert_eq!((&*form["resource"], &*form["audience"]), (&*scene.upstream.url, "tickets"));
            assert_eq!(form["scope"], "tickets:use");
        }
        for (person, subject) in [(&ana, "person-0"), (&bob, "person-1")] {
            assert_eq!(exchanges.iter().filter(|form| form["subject_token"] == key(person)).count(), 3);
            let before = scene.upstream.calls().len();
            call(person, "up:t").await.ok();
            let called = scene.upstream.calls().pop().unwrap();
            let expected = format!("Bearer opaque-token-of-gw-for-{subject}-");
            assert!(called.headers["authorization"].starts_with(&expected), "{:?}", called.headers);
            assert_eq!(scene.upstream.calls().len(), before + 1);
        }
        // the person's own token went to its issuer alone
        let sent = format!("{:?}{:?}", scene.upstream.sent("authorization"), scene.upstream.calls());
        assert!(!sent.contains(key(&ana)) && !sent.contains(key(&bob)));
        // keys are nobody's
        let agent = scene.tenant.agent().await;
        let refused = call(&agent, "up:t").await.refused("upstream_login_required");
        assert!(refused.to_string().contains(NO_PERSON), "{refused}");
        let rest = agent
            .post("/api/v1/tools/call", &json!({"tool_variant": "call_tool_write", "name": "up:t"}))
            .await;
        rest.refused(403, "upstream_login_required");
        let shown = server(&scene.tenant.platform, "up").await;
        assert_eq!(
            (&shown["oauth"]["kind"], &shown["oauth"]["exchange_grant"], &shown["oauth"]["audience"]),
            (&json!("token_exchange"), &json!("token_exchange"), &json!("tickets"))
        );
    }
}

#[tokio::test]
async fn a_refreshed_token_has_its_own_exchange_and_the_session_of_before() {
    let scene = Scene::of(Upstream::handshake(tools()).await, &[], json!({})).await;
    let ana = scene.people.person("agent", json!({})).await;
    settle("ok".to_owned(), SOON, || async { call(&ana, "up:t").await.code() }).await;
    let sessions = scene.upstream.counts().initializes;
    let again = scene.people.again(&ana, "person-0");
    for _ in 0..3 {
        call(&again, "up:t").await.ok();
        call(&ana, "up:t").await.ok();
    }
    let tokens: Vec<String> = scene.exchanges().iter().map(|form| form["subject_token"].clone()).collect();
    assert_eq!(tokens, [key(&ana), key(&again)]);
    assert_eq!(scene.upstream.counts().initializes, sessions);
    // each call goes with what was given for its own token
    let given = scene.tokens.tokens_of("gw");
    let [first, second] = [&given[given.len() - 2], &given[given.len() - 1]];
    let headers: Vec<String> = scene
        .upstream
        .calls()
        .iter()
        .rev()
        .take(2)
        .map(|call| call.headers["authorization"].clone())
        .collect();
    assert_eq!(headers, [format!("Bearer {first}"), format!("Bearer {second}")]);
}

#[tokio::test]
async fn whom_the_provider_refuses_is_told_and_makes_no_storm() {
    let scene = Scene::start().await;
    let [ana, bob] =
        [scene.people.person("agent", json!({})).await, scene.people.person("agent", json!({})).await];
    calls_pass(&scene.replicas, &bob).await;
    scene.tokens.refuse(&["person-0"]);
    let before = scene.exchanges().len();
    let calls = (0..5).flat_map(|_| scene.replicas.each(&ana)).map(|api| async move {
        let refused = call(&api, "up:t").await.refused("upstream_exchange_refused");
        let says = "The identity provider does not let this account use server 'up'";
        assert!(
            refused.to_string().contains(says) && !refused.to_string().contains("marked-words"),
            "{refused}"
        );
    });
    join_all(calls).await;
    assert_eq!(scene.exchanges().len(), before + 3);
    let rest =
        ana.post("/api/v1/tools/call", &json!({"tool_variant": "call_tool_write", "name": "up:t"})).await;
    rest.refused(403, "upstream_exchange_refused");
    // others go on, and so does she when she may
    call(&bob, "up:t").await.ok();
    scene.tokens.refuse(&[]);
    scene.tenant.platform.post("/api/v1/servers/up/refresh", &json!({})).await.expect(200);
    call(&ana, "up:t").await.ok();
}

#[tokio::test]
async fn an_endpoint_that_is_down_is_told_and_asked_again() {
    let scene = Scene::start().await;
    let ana = scene.people.person("agent", json!({})).await;
    settle("ok".to_owned(), SOON, || async { call(&ana, "up:t").await.code() }).await;
    scene.tokens.set(TokenMood::Broken);
    // what she has goes on
    call(&ana, "up:t").await.ok();
    let bob = scene.people.person("agent", json!({})).await;
    let before = scene.exchanges().len();
    for _ in 0..10 {
        let refused = call(&bob, "up:t").await.refused("upstream_auth_unavailable");
        let says = "The login service of server 'up' does not answer; nothing was sent; try again in ";
        assert!(refused.to_string().contains(says), "{refused}");
    }
    assert!(scene.exchanges().len() - before <= 2, "{}", scene.exchanges().len());
    for mood in [TokenMood::Html, TokenMood::Huge, TokenMood::Raw(json!({"access_token": "a b"}).to_string())]
    {
        scene.tokens.set(mood);
        scene.tenant.platform.post("/api/v1/servers/up/refresh", &json!({})).await.expect(200);
        assert_eq!(call(&bob, "up:t").await.code(), "upstream_auth_unavailable");
    }
    scene.tokens.set(TokenMood::Well);
    settle("ok".to_owned(), SOON, || async { call(&bob, "up:t").await.code() }).await;
}

#[tokio::test]
async fn a_refused_token_is_exchanged_once_more() {
    let scene = Scene::of(Upstream::handshake(tools()).await, &[], json!({})).await;
    let ana = scene.people.person("agent", json!({})).await;
    settle("ok".to_owned(), SOON, || async { call(&ana, "up:t").await.code() }).await;
    let (before, called) = (scene.exchanges().len(), scene.upstream.counts().calls);
    scene.tokens.revoke();
    call(&ana, "up:t").await.ok();
    assert_eq!((scene.exchanges().len(), scene.upstream.counts().calls), (before + 1, called + 1));
    // a server that takes none costs six exchanges a minute, of which one is used up
    scene.upstream.guard(|_| false);
    for _ in 0..10 {
        let refused = call(&ana, "up:t").await.refused("upstream_login_required");
        let says = "Your login at server 'up' has ended: log in with your organisation's account again";
        assert!(refused.to_string().contains(says), "{refused}");
    }
    assert_eq!((scene.exchanges().len(), scene.upstream.counts().calls), (before + 6, called + 1));
}

#[tokio::test]
async fn a_token_of_another_issuer_is_not_sent_to_this_one() {
    let scene = Scene::start().await;
    let ana = scene.people.person("agent", json!({})).await;
    settle("ok".to_owned(), SOON, || async { call(&ana, "up:t").await.code() }).await;
    let others = People::with_issuer(&scene.replicas.stage, &scene.tenant, ("acme", "others")).await;
    let eve = others.person("agent", json!({})).await;
    let before = scene.exchanges().len();
    for _ in 0..3 {
        let refused = call(&eve, "up:t").await.refused("upstream_login_required");
        assert!(refused.to_string().contains(NO_PERSON), "{refused}");
    }
    assert_eq!(scene.exchanges().len(), before);
}

#[tokio::test]
async fn tokens_go_to_no_endpoint_that_a_tenant_names() {
    let scene = Scene::start().await;
    let (api, evil) = (&scene.tenant.platform, TokenServer::start().await);
    let globex = scene.replicas.stage.tenant("globex").await;
    let others = People::of(&scene.replicas.stage, &globex, "globex").await;
    let good = login(scene.people.provider());
    for (field, member, value, says) in [
        ("token_endpoint", "token_endpoint", json!(evil.endpoint()), "nowhere else"),
        ("authorization_endpoint", "authorization_endpoint", json!(evil.endpoint()), "token_exchange has no"),
        ("issuer", "issuer", json!(others.provider().url), "nobody of this tenant logs in"),
        ("issuer", "issuer", json!(evil.url), "nobody of this tenant logs in"),
        ("client_secret", "client_secret", Value::Null, "client_secret is missing"),
        ("exchange_grant", "exchange_grant", json!("password"), "exchange_grant"),
        ("exchange_grant", "kind", json!("client_credentials"), "token_exchange"),
        ("audience", "audience", json!("a\nb"), "audience must be"),
    ] {
        let mut wrong = good.clone();
        wrong["exchange_grant"] = json!("token_exchange");
        wrong[member] = value;
        let refused = put(api, "up", &wrong).await;
        let text = refused.refused(400, "invalid_request");
        assert!(text.contains(says), "{member}: {text}");
        assert_eq!(refused.json()["error"]["field"], field, "{member}");
    }
    assert!(evil.asked().is_empty());
    // metadata of another issuer is no metadata of this one
    scene.people.provider().lie("https://idp.example");
    put(api, "up", &good).await.refused(400, "invalid_request");
    let ana = scene.people.person("agent", json!({})).await;
    settle("ok".to_owned(), SOON, || async { call(&ana, "up:t").await.code() }).await;
    let connecting =
        ana.post("/api/v1/servers/up/connections", &json!({"redirect_uri": "http://127.0.0.1:9/done"})).await;
    let says = connecting.refused(409, "conflict");
    assert!(says.contains("log in with your organisation's account"), "{says}");
}

#[tokio::test]
async fn on_behalf_of_is_another_grant() {
    let scene = Scene::of(
        Upstream::modern(tools()).await,
        &[],
        json!({"exchange_grant": "on_behalf_of", "resource": ""}),
    )
    .await;
    let ana = scene.people.person("agent", json!({})).await;
    settle("ok".to_owned(), SOON, || async { call(&ana, "up:t").await.code() }).await;
    let form = scene.exchanges().pop().unwrap();
    assert_eq!(form["grant_type"], "urn:ietf:params:oauth:grant-type:jwt-bearer");
    assert_eq!((&*form["assertion"], &*form["requested_token_use"]), (key(&ana), "on_behalf_of"));
    assert!(!form.contains_key("resource") && !form.contains_key("subject_token"));
    // id and secret anew leave the rest as it is
    let again = json!({"kind": "token_exchange", "client_id": "gw", "client_secret": secret_of("gw")});
    let shown = put(&scene.tenant.platform, "up", &again).await.expect(200);
    assert_eq!(
        (&shown["oauth"]["exchange_grant"], &shown["oauth"]["issuer"], &shown["oauth"]["resource"]),
        (&json!("on_behalf_of"), &json!(scene.people.provider().url), &Value::Null)
    );
}

#[tokio::test]
async fn tokens_of_people_are_found_nowhere() {
    let settings = [("MCPPROXY__TELEMETRY__LOG_FILTER", "trace")];
    let tool = Tool::writes("t").says(Say::Headers);
    let scene = Scene::of(Upstream::modern(vec![tool]).await, &settings, json!({})).await;
    let ana = scene.people.person("agent", json!({})).await;
    settle("ok".to_owned(), SOON, || async { call(&ana, "up:t").await.code() }).await;
    scene.tokens.refuse(&["person-1"]);
    let bob = scene.people.person("agent", json!({})).await;
    call(&bob, "up:t").await.refused("upstream_exchange_refused");
    Mcp::bare(&ana).run("write", "up:t", &json!({})).await.ok();
    let records = scene.tenant.records("type=tool_call", 3).await;
    let rows = scene.replicas.stage.database.rows().await.into_iter().map(|(_, row)| row);
    let log = scene.replicas.stage.gateway.log();
    let shown = server(&scene.tenant.platform, "up").await.to_string();
    let signature = |api: &Api| key(api).rsplit_once('.').unwrap().1.to_owned();
    for text in rows.chain([log, format!("{records:?}"), shown]) {
        for mark in ["opaque-token-of-", "s3cret-of-", "marked-words", &signature(&ana), &signature(&bob)] {
            assert!(!text.contains(mark), "{mark} in {text}");
        }
    }
}

#[tokio::test]
async fn a_token_that_opens_the_gateway_is_not_sent_to_a_server() {
    let scene = Scene::start().await;
    let ana = scene.people.person("agent", json!({})).await;
    settle("ok".to_owned(), SOON, || async { call(&ana, "up:t").await.code() }).await;
    scene.upstream.guard(|_| true);
    let sent = scene.upstream.sent("authorization").len();
    // her own, and another for the gateway
    let again = scene.people.again(&ana, "person-0");
    for token in [key(&again).to_owned(), scene.people.token("person-0", json!({"jti": "third"}))] {
        scene.tokens.set(TokenMood::Raw(json!({"access_token": token, "expires_in": 60}).to_string()));
        scene.tenant.platform.post("/api/v1/servers/up/refresh", &json!({})).await.expect(200);
        assert_eq!(call(&again, "up:t").await.code(), "upstream_auth_refused");
        assert!(!scene.upstream.sent("authorization")[sent..].iter().any(|header| header.contains(&token)));
    }
    // nor may a tenant ask for one
    let mut login = login(scene.people.provider());
    login["audience"] = json!("people");
    let refused = put(&scene.tenant.platform, "up", &login).await;
    assert!(refused.refused(400, "invalid_request").contains("audience is one of this gateway's own"));
    // one for somebody else is the server's affair
    let other = scene.people.provider().token("person-0", "tickets", json!({}));
    scene.tokens.set(TokenMood::Raw(json!({"access_token": other, "expires_in": 60}).to_string()));
    scene.tenant.platform.post("/api/v1/servers/up/refresh", &json!({})).await.expect(200);
    call(&again, "up:t").await.ok();
}

#[tokio::test]
async fn a_refused_token_of_a_person_is_no_obstacle_for_another_of_theirs() {
    for upstream in [Upstream::handshake(tools()).await, Upstream::modern(tools()).await] {
        let scene = Scene::of(upstream, &[], json!({})).await;
        let ana = scene.people.person("agent", json!({})).await;
        let again = scene.people.again(&ana, "person-0");
        scene.tokens.refuse(&[key(&again)]);
        // the newest is refused before any session is open
        settle("upstream_exchange_refused".to_owned(), SOON, || async { call(&again, "up:t").await.code() })
            .await;
        for _ in 0..3 {
            call(&ana, "up:t").await.ok();
            call(&again, "up:t").await.refused("upstream_exchange_refused");
        }
        assert_eq!(scene.exchanges().len(), 2, "{:?}", scene.exchanges());
    }
}

#[tokio::test]
async fn a_renewal_that_fails_is_not_a_storm() {
    let scene = Scene::start().await;
    scene.tokens.live(Duration::from_secs(10));
    let ana = scene.people.person("agent", json!({})).await;
    settle("ok".to_owned(), SOON, || async { call(&ana, "up:t").await.code() }).await;
    // due at half of its life, and sent for nine tenths
    let began = Instant::now();
    scene.tokens.set(TokenMood::Broken);
    let before = scene.exchanges().len();
    while began.elapsed() < Duration::from_secs(8) {
        call(&ana, "up:t").await.ok();
    }
    let tries = scene.exchanges().len() - before;
    assert!((1..=3).contains(&tries), "{tries}");
    scene.tokens.set(TokenMood::Well);
    settle("ok".to_owned(), SOON, || async { call(&ana, "up:t").await.code() }).await;
    // beyond the person's own token nothing is asked for: this one ends in the tolerated difference of clocks
    let late = scene.people.with_claims(&ana, "person-0", json!({"exp": now_s() - 5}));
    let refused = call(&late, "up:t").await.refused("upstream_login_required");
    assert!(refused.to_string().contains("Your login at server 'up' has ended"), "{refused}");
    assert!(scene.exchanges().iter().all(|form| form["subject_token"] != key(&late)));
}

/// A session of the console is the same person, and brought no token: what was given for another is not for it.
#[tokio::test]
async fn a_session_of_the_console_has_no_token_to_exchange() {
    let (stage, tenant, idp) = console::scene().await;
    let visitor = console::visitor(&stage.gateway);
    assert_eq!(visitor.log_in_there().await.status, 303);
    let tokens = TokenServer::start().await;
    leads_to(&idp, &tokens);
    let upstream = Upstream::modern(tools()).await;
    upstream.guard(tokens.check());
    add(&tenant, "up", &upstream, &login(&idp)).await;
    let ana = stage.gateway.anonymous().with_key(&idp.token("u1", console::GATEWAY, json!({})));
    call(&ana, "up:t").await.ok();
    let csrf = visitor.csrf().await;
    let request = visitor.request(Method::POST, "/api/v1/tools/call").header("Origin", console::GATEWAY);
    let body = json!({"tool_variant": "call_tool_write", "name": "up:t"}).to_string();
    let request = request.header("X-CSRF-Token", &csrf).header("Content-Type", "application/json").body(body);
    let refused = visitor.send(request).await;
    assert!(refused.refused(403, "upstream_login_required").contains(NO_PERSON));
    assert_eq!(upstream.counts().calls, 1);
    call(&ana, "up:t").await.ok();
}
