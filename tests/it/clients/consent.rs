//! Permission requests, as users of the official clients see them, on two replicas that take turns.

use std::time::Duration;

use serde_json::{Value, json};

use super::stacks::{HANDSHAKE_STACKS, MODERN_STACKS, Stack, asking};
use crate::support::{Api, Balancer, Gateway, Stage, Tenant, Tool, Upstream, settle};

/// A tenant whose every call asks, on two replicas.
pub(super) struct Scene {
    stage: Stage,
    _other: Gateway,
    pub(super) tenant: Tenant,
    pub(super) upstream: Upstream,
    pub(super) balancer: Balancer,
}

impl Scene {
    pub(super) async fn start() -> Scene {
        let stage = Stage::start().await;
        let other = Gateway::start(&stage.database, &[]).await;
        let tenant = stage.tenant("acme").await;
        let upstream = Upstream::handshake(vec![Tool::writes("writer")]).await;
        tenant.add("zoo", &upstream).await;
        tenant.platform.patch("/api/v1/settings", &json!({"policy_mode": "always_ask"})).await.expect(200);
        let balancer = Balancer::before(&[&stage.gateway, &other]).await;
        Scene { stage, _other: other, tenant, upstream, balancer }
    }

    /// A client that makes one call, with this answer to forms: the result, and what it was asked.
    async fn call(&self, stack: &Stack, key: &Api, answer: Option<&Value>) -> (Value, Vec<Value>) {
        let arguments = json!({"name": "zoo:writer", "args": {"path": "/a"}});
        let steps = json!([{"call": {"name": "call_tool_write", "arguments": arguments}}]);
        let report = asking(stack, answer, &format!("{}/mcp", self.balancer.url), key, &steps).await;
        (report["steps"][0]["ok"].clone(), report["asked"].as_array().unwrap().clone())
    }

    /// The only request of an agent.
    pub(super) async fn request(&self, key: &Api) -> Value {
        let items = self.stage.gateway.ask_as(key).items("/api/v1/consent").await;
        assert_eq!(items.len(), 1, "{items:?}");
        items[0].clone()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_user_allows_the_call_in_the_client() {
    let scene = Scene::start().await;
    let answer = json!({"action": "accept", "content": {"decision": "allow_once"}});
    for (done, stack) in MODERN_STACKS.iter().enumerate() {
        let key = scene.tenant.agent().await;
        let (result, asked) = scene.call(stack, &key, Some(&answer)).await;
        let who = stack.name;
        assert!(result["content"].is_array() && result["isError"] != true, "{who}: {result}");
        let [form] = &asked[..] else { panic!("{who}: asked {asked:?}") };
        let id = scene.request(&key).await["id"].as_str().unwrap().to_owned();
        let says = form["message"].as_str().unwrap();
        assert!(says.contains("/a") && says.contains(&id), "{who}: {says}");
        assert_eq!(form["requestedSchema"]["required"], json!(["decision"]), "{who}: {form}");
        settle(json!("succeeded"), Duration::from_secs(5), async || {
            scene.request(&key).await["state"].clone()
        })
        .await;
        assert_eq!(scene.request(&key).await["decided_via"], "elicitation", "{who}");
        assert_eq!(scene.upstream.counts().calls, done + 1, "{who}");
        let passed = scene.balancer.passed(key.key.as_deref().unwrap());
        let calls: Vec<usize> =
            passed.iter().filter(|sent| sent.rpc == "tools/call").map(|sent| sent.replica).collect();
        assert!(matches!(calls[..], [0, 1] | [1, 0]), "{who}: {passed:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_user_refuses_the_call_in_the_client() {
    let scene = Scene::start().await;
    for stack in &MODERN_STACKS {
        for answer in [
            json!({"action": "decline"}),
            json!({"action": "accept", "content": {"decision": "reject_once"}}),
        ] {
            let key = scene.tenant.agent().await;
            let (result, asked) = scene.call(stack, &key, Some(&answer)).await;
            assert_eq!(asked.len(), 1, "{}: {asked:?}", stack.name);
            assert_eq!(result["structuredContent"]["code"], "consent_denied", "{}: {result}", stack.name);
            assert_eq!(scene.request(&key).await["state"], "denied", "{}", stack.name);
        }
    }
    assert_eq!(scene.upstream.counts().calls, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_user_answers_in_a_handshake_client() {
    let scene = Scene::start().await;
    let accept = |decision: &str| json!({"action": "accept", "content": {"decision": decision}});
    let mut calls = 0;
    for stack in &HANDSHAKE_STACKS {
        for (answer, code, state) in [
            (accept("allow_once"), None, "succeeded"),
            (json!({"action": "decline"}), Some("consent_denied"), "denied"),
            (json!({"action": "cancel"}), Some("consent_pending"), "pending"),
        ] {
            let key = scene.tenant.agent().await;
            let (result, asked) = scene.call(stack, &key, Some(&answer)).await;
            let who = format!("{}: {answer}", stack.name);
            let [form] = &asked[..] else { panic!("{who}: asked {asked:?}") };
            assert!(form["message"].as_str().unwrap().contains("/a"), "{who}: {form}");
            assert_eq!(result["structuredContent"]["code"].as_str(), code, "{who}: {result}");
            settle(json!(state), Duration::from_secs(5), async || scene.request(&key).await["state"].clone())
                .await;
            calls += usize::from(code.is_none());
            assert_eq!(scene.upstream.counts().calls, calls, "{who}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_without_forms_repeats_the_call_once_a_person_allowed_it() {
    let scene = Scene::start().await;
    let approver = scene.tenant.approver().await.at(&scene.balancer.url);
    for (done, stack) in MODERN_STACKS.iter().enumerate() {
        let key = scene.tenant.agent().await;
        let (result, asked) = scene.call(stack, &key, None).await;
        let who = stack.name;
        assert_eq!(asked, [Value::Null; 0], "{who}");
        assert_eq!(result["structuredContent"]["code"], "consent_pending", "{who}: {result}");
        let id = result["structuredContent"]["consent_id"].as_str().unwrap();
        let path = format!("/api/v1/consent/{id}/decision");
        approver.post(&path, &json!({"decision": "allow_once"})).await.expect(200);
        let (result, _) = scene.call(stack, &key, None).await;
        assert!(result["content"].is_array() && result["isError"] != true, "{who}: {result}");
        assert_eq!(scene.upstream.counts().calls, done + 1, "{who}");
    }
}
