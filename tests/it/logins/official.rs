//! The official clients log in by themselves, at identity providers that others wrote, and through three replicas: from a 401
//! to tokens, and on with new ones when those have expired.

use std::collections::BTreeSet;

use futures_util::{StreamExt, stream};
use serde_json::{Value, json};

use super::bearer;
use super::providers::Scene;
use crate::clients::stacks::{HANDSHAKE_STACKS, MODERN_STACKS, Stack, asking};
use crate::support::{Exchange, Mcp, Provider, Tool, Upstream};

/// Clients that run at the same time.
const AT_ONCE: usize = 3;
/// Client id of a client with a metadata document (`tests/clients/login.mjs`).
const DOCUMENT: &str = "https://client.example/mcpproxy-test-client.json";
const METADATA: &str = "/.well-known/oauth-protected-resource/mcp";
/// Lifetime of a token that is to expire while a client has it, in seconds.
const SHORT_S: u32 = 4;

/// The four official clients, as their users have them.
const OFFICIAL: [Stack; 4] = [HANDSHAKE_STACKS[0], MODERN_STACKS[0], HANDSHAKE_STACKS[2], MODERN_STACKS[1]];

/// A login of a client.
struct Login {
    stack: Stack,
    name: String,
    has_document: bool,
    report: Value,
}

impl Login {
    /// Result of a step.
    #[track_caller]
    fn step(&self, at: usize) -> &Value {
        let result = &self.report["steps"][at]["ok"];
        assert!(result.is_object() && result["isError"] != true, "{}: {}", self.name, self.report);
        result
    }

    #[track_caller]
    fn lists_and_calls(&self, list: usize, calls: &[usize]) {
        let tools = self.step(list)["tools"].as_array().unwrap();
        assert!(tools.iter().any(|tool| tool["name"] == "call_tool_write"), "{}: {tools:?}", self.name);
        for at in calls {
            assert!(self.step(*at)["content"].is_array(), "{}: {}", self.name, self.report);
        }
    }
}

/// Runs these steps on clients that log in, each with and without a metadata document as it is said to.
async fn log_in(scene: &Scene, clients: &[(Stack, bool)], steps: &Value) -> Vec<Login> {
    let endpoint = format!("{}/mcp", scene.balancer.url);
    let runs = clients.iter().map(|(stack, has_document)| {
        let name = format!("{}, document {has_document}", stack.name);
        let options = json!({"name": name, "document": has_document}).to_string();
        let key = scene.stage.gateway.anonymous().with_key(&options);
        let endpoint = &endpoint;
        async move {
            let report = asking(stack, None, endpoint, &key, steps).await;
            Login { stack: *stack, name, has_document: *has_document, report }
        }
    });
    stream::iter(runs).buffered(AT_ONCE).collect().await
}

fn call(n: usize) -> Value {
    json!({"call": {"name": "call_tool_write", "arguments": {"name": "up:echo", "args": {"n": n}}}})
}

/// Request of a client to `/mcp`.
fn passed(scene: &Scene, login: &Login) -> Vec<Exchange> {
    scene.balancer.passed_of(&login.name).into_iter().filter(|sent| sent.path == "/mcp").collect()
}

async fn scene(provider: Provider) -> (Scene, Upstream) {
    let scene = Scene::start(provider, &[]).await;
    let upstream = Upstream::handshake(vec![Tool::writes("echo")]).await;
    scene.tenant.add("up", &upstream).await;
    (scene, upstream)
}

#[tokio::test(flavor = "multi_thread")]
async fn every_client_logs_in_by_itself() {
    let (scene, upstream) = scene(Provider::oidc_provider(600).await).await;
    let clients: Vec<_> = OFFICIAL.iter().flat_map(|stack| [(*stack, true), (*stack, false)]).collect();
    let logins = log_in(&scene, &clients, &json!([{"list": true}, call(1), call(2)])).await;
    let mut replicas = BTreeSet::new();
    for login in &logins {
        let (who, told) = (&login.name, &login.report["login"]);
        login.lists_and_calls(0, &[1, 2]);
        assert_eq!((&told["logins"], &told["tokens"]), (&json!(1), &json!(1)), "{who}");
        assert_eq!(told["client_id"] == DOCUMENT, login.has_document, "{who}: {told}");
        let passed = passed(&scene, login);
        assert_eq!(passed[0].status, 401, "{who}: {passed:?}");
        let after = passed.iter().skip_while(|sent| sent.status == 401);
        assert!(after.clone().all(|sent| sent.status < 300), "{who}: {passed:?}");
        replicas.extend(after.filter(|sent| sent.rpc == "tools/call").map(|sent| sent.replica));
    }
    assert_eq!(replicas, BTreeSet::from([0, 1, 2]), "tokens count on all replicas");
    check_provider(&scene, logins.len());

    let records = scene.tenant.records("type=tool_call", 2 * logins.len()).await;
    let people: BTreeSet<&str> =
        records.iter().map(|record| record["identity_id"].as_str().unwrap()).collect();
    assert_eq!(people.len(), 1, "{records:?}");
    assert!(records.iter().all(|record| record["owner"] == "ana@acme.example"), "{records:?}");
    assert_eq!(upstream.counts().calls, 2 * logins.len());
    assert!(upstream.sent("authorization").iter().all(String::is_empty), "no token goes to an upstream");
}

/// Each login was one with PKCE, and for the gateway's endpoint; half of the clients registered themselves.
fn check_provider(scene: &Scene, logins: usize) {
    let resource = json!(format!("{}/mcp", scene.balancer.url));
    let provider = &scene.provider;
    let sent = provider.answered("/auth");
    assert_eq!(sent.len(), logins, "{sent:?}");
    for params in sent.iter().map(|sent| &sent["params"]) {
        assert_eq!((&params["resource"], &params["code_challenge_method"]), (&resource, &json!("S256")));
        assert!(params["state"].is_string() && params["code_challenge"].is_string(), "{params}");
    }
    let tokens = provider.answered("/token");
    assert_eq!(tokens.len(), logins, "{tokens:?}");
    for sent in &tokens {
        let params = &sent["params"];
        assert_eq!((&sent["status"], &params["grant_type"]), (&json!(200), &json!("authorization_code")));
        assert_eq!(params["resource"], resource, "{params}");
        assert!(params["code_verifier"].is_string(), "{params}");
    }
    let registered = provider.answered("/reg");
    assert_eq!(registered.len(), logins / 2, "{registered:?}");
    assert!(registered.iter().all(|sent| sent["params"]["token_endpoint_auth_method"] == "none"));
    assert!(scene.balancer.passed_at(METADATA).len() >= logins);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_outlives_the_tokens_of_its_client() {
    let (scene, _upstream) = scene(Provider::oidc_provider(SHORT_S).await).await;
    let stacks = HANDSHAKE_STACKS.iter().chain(&MODERN_STACKS);
    let clients: Vec<_> = stacks.enumerate().map(|(at, stack)| (*stack, at % 2 == 0)).collect();
    let steps = json!([{"list": true}, call(1), {"expire": true}, call(2)]);
    let logins = log_in(&scene, &clients, &steps).await;
    refreshed(&scene, &logins, &[1, 3]);
    let resource = json!(format!("{}/mcp", scene.balancer.url));
    let tokens = scene.provider.answered("/token");
    let refreshes: Vec<_> =
        tokens.iter().filter(|sent| sent["params"]["grant_type"] == "refresh_token").collect();
    assert!(refreshes.len() >= logins.len(), "{tokens:?}");
    for sent in refreshes {
        assert_eq!((&sent["status"], &sent["params"]["resource"]), (&json!(200), &resource), "{sent}");
    }
}

/// Clients got new tokens without another login, and used one session for all that they did.
fn refreshed(scene: &Scene, logins: &[Login], calls: &[usize]) {
    for login in logins {
        let (who, told) = (&login.name, &login.report["login"]);
        login.lists_and_calls(0, calls);
        assert_eq!(told["logins"], 1, "{who}: {told}");
        assert!(told["tokens"].as_u64() >= Some(2), "{who}: {told}");
        let passed = passed(scene, login);
        let uses = passed.iter().filter(|sent| sent.rpc.starts_with("tools/") && sent.status == 200);
        let sessions: BTreeSet<&str> = uses.map(|sent| sent.session.as_str()).collect();
        assert_eq!(sessions.len(), 1, "{who}: {passed:?}");
        assert_eq!(sessions.contains(""), login.stack.is_modern(), "{who}: {passed:?}");
    }
}

/// Metadata at the address of OpenID Connect alone, no metadata documents, and tokens that name no key.
#[tokio::test(flavor = "multi_thread")]
async fn every_client_logs_in_at_another_kind_of_provider() {
    let (scene, _upstream) = scene(Provider::authlib(SHORT_S).await).await;
    let clients = OFFICIAL.map(|stack| (stack, true));
    let steps = json!([{"list": true}, call(1), {"expire": true}, call(2)]);
    let logins = log_in(&scene, &clients, &steps).await;
    refreshed(&scene, &logins, &[1, 3]);
    assert!(logins.iter().all(|login| login.report["login"]["client_id"] != DOCUMENT));
    let records = scene.tenant.records("type=tool_call", 2 * logins.len()).await;
    assert!(records.iter().all(|record| record["owner"] == "ben@acme.example"), "{records:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn scopes_of_a_provider_narrow_and_its_id_tokens_are_refused() {
    let (scene, upstream) = scene(Provider::oidc_provider(600).await).await;
    let options = json!({"name": "reader", "scope": "openid mcp:read"}).to_string();
    let key = scene.stage.gateway.anonymous().with_key(&options);
    let endpoint = format!("{}/mcp", scene.balancer.url);
    let report = asking(&OFFICIAL[0], None, &endpoint, &key, &json!([call(1)])).await;
    let refused = &report["steps"][0]["ok"]["structuredContent"];
    assert_eq!(refused["code"], "operation_not_permitted", "{report}");
    assert_eq!(upstream.counts().calls, 0);
    let id_token = report["login"]["id_token"].as_str().unwrap();
    let answer = Mcp::bare(&bearer(&scene.stage, id_token)).request("ping", "{}").await;
    answer.refused(401, "unauthenticated");
}

/// Clients that are refused a call for its scope. Those for Python log in for it and call again by themselves; the one for
/// JavaScript 2.x sends the person to log in, and leaves the call to its program; that of 1.x refreshes its token, which gets it
/// no other scope, and gives up. Hence `identity.step_up` is off by default.
#[tokio::test(flavor = "multi_thread")]
async fn clients_log_in_again_for_a_broader_scope() {
    let provider = Provider::oidc_provider(600).await;
    let scene = Scene::start(provider, &[("MCPPROXY__IDENTITY__STEP_UP", "true")]).await;
    let scopes = json!({"advertised_scopes": ["openid", "mcp:read"]});
    scene.stage.platform().patch("/api/v1/issuers/corp", &scopes).await.expect(200);
    let upstream = Upstream::handshake(vec![Tool::writes("echo")]).await;
    scene.tenant.add("up", &upstream).await;
    let endpoint = format!("{}/mcp", scene.balancer.url);
    for (stack, is_called, logins) in OFFICIAL
        .iter()
        .zip([(false, 1), (false, 2), (true, 2), (true, 2)])
        .map(|(stack, (called, logins))| (stack, called, logins))
    {
        let key = scene
            .stage
            .gateway
            .anonymous()
            .with_key(&json!({"name": stack.name, "document": true}).to_string());
        let before = upstream.counts().calls;
        let report = asking(stack, None, &endpoint, &key, &json!([call(1)])).await;
        let called = report["steps"][0]["ok"]["content"].is_array();
        assert_eq!(
            (called, &report["login"]["logins"]),
            (is_called, &json!(logins)),
            "{}: {report}",
            stack.name
        );
        assert_eq!(upstream.counts().calls - before, usize::from(is_called), "{}", stack.name);
    }
    let asked = scene.provider.answered("/auth");
    let is_broader =
        |sent: &&Value| sent["params"]["scope"].as_str().is_some_and(|scope| scope.contains("mcp:write"));
    let broader = asked.iter().filter(is_broader).count();
    assert_eq!((asked.len(), broader), (7, 3), "{asked:?}");
}
