//! Tokens of identity providers that others wrote, on three replicas: rotation, withdrawn keys and outages.

use std::time::Duration;

use serde_json::json;

use super::{bearer, register_url, set_rules};
use crate::support::{Api, Balancer, Gateway, Provider, Stage, Tenant, settle};

/// Within this a change made on one replica holds on the others.
const SOON: Duration = Duration::from_secs(1);
/// Bound of what waits for an interval of the gateway.
const SLOWLY: Duration = Duration::from_secs(10);

/// Three replicas behind a balancer, a tenant whose people may use tools as agents, and their provider.
pub struct Scene {
    pub stage: Stage,
    pub others: [Gateway; 2],
    pub tenant: Tenant,
    pub balancer: Balancer,
    pub provider: Provider,
    settings: Vec<(&'static str, String)>,
}

impl Scene {
    /// With settings on top of those of all such scenes.
    pub async fn start(provider: Provider, more: &[(&'static str, &str)]) -> Scene {
        let balancer = Balancer::start().await;
        let mut settings = vec![
            ("MCPPROXY__SERVER__PUBLIC_URL", balancer.url.clone()),
            // else a token outlives its end by a minute
            ("MCPPROXY__IDENTITY__LEEWAY_S", "1".to_owned()),
        ];
        settings.extend(more.iter().map(|(name, value)| (*name, (*value).to_owned())));
        let stage = Stage::with(&borrowed(&settings)).await;
        let others = [
            Gateway::start(&stage.database, &borrowed(&settings)).await,
            Gateway::start(&stage.database, &borrowed(&settings)).await,
        ];
        balancer.put_before(&[&stage.gateway, &others[0], &others[1]]);
        let tenant = stage.tenant("acme").await;
        register_url(&stage, &provider.url, "corp", "acme").await;
        set_rules(&tenant, json!([{"role": "agent"}])).await;
        Scene { stage, others, tenant, balancer, provider, settings }
    }

    /// Starts a further replica.
    async fn another(&self) -> Gateway {
        Gateway::start(&self.stage.database, &borrowed(&self.settings)).await
    }

    /// The robot with a new token for all of the gateway, at each replica.
    async fn robot(&self) -> [Api; 3] {
        let token = self.provider.robot(&self.balancer.url).await;
        let robot = bearer(&self.stage, &token);
        [robot.clone(), self.others[0].ask_as(&robot), self.others[1].ask_as(&robot)]
    }
}

fn borrowed<'a>(settings: &'a [(&'static str, String)]) -> Vec<(&'static str, &'a str)> {
    settings.iter().map(|(name, value)| (*name, value.as_str())).collect()
}

async fn status(api: &Api) -> u16 {
    api.get("/api/v1/status").await.status
}

/// Waits until all replicas answer so.
async fn all(robot: &[Api; 3], expected: u16) {
    for there in robot {
        settle(expected, SOON, || status(there)).await;
    }
}

#[tokio::test]
async fn a_rotation_at_a_provider_is_one_fetch_for_all_replicas() {
    let scene = Scene::start(Provider::oidc_provider(600).await, &[]).await;
    let old = scene.robot().await;
    all(&old, 200).await;
    let fetches = || scene.provider.answered("/jwks").len();
    assert_eq!(fetches(), 1);
    scene.provider.tell("rotate").await;
    let new = scene.robot().await;
    assert_eq!(status(&new[0]).await, 200);
    all(&new, 200).await;
    assert_eq!(fetches(), 2, "one fetch for three replicas");
    // the old key counts as long as the provider shows it
    all(&old, 200).await;
}

#[tokio::test]
async fn a_key_that_a_provider_withdraws_is_refused_on_all_replicas() {
    let settings = [("MCPPROXY__IDENTITY__JWKS_RETRY_S", "1")];
    let scene = Scene::start(Provider::oidc_provider(600).await, &settings).await;
    let old = scene.robot().await;
    all(&old, 200).await;
    scene.provider.tell("rotate").await;
    scene.provider.tell("withdraw").await;
    let new = scene.robot().await;
    // a fetch for an unknown key may have been made a moment ago
    settle(200, SLOWLY, || status(&new[0])).await;
    all(&new, 200).await;
    all(&old, 401).await;
}

#[tokio::test]
async fn nobody_is_refused_while_a_provider_is_down() {
    let scene = Scene::start(Provider::oidc_provider(600).await, &[]).await;
    let (known, unknown) = (scene.robot().await, scene.robot().await);
    all(&known, 200).await;
    scene.provider.tell("down").await;
    assert!(!scene.provider.is_up().await);
    all(&known, 200).await;
    // a token that no replica has seen, on those that are warm and on one that starts now
    all(&unknown, 200).await;
    let cold = scene.another().await;
    for robot in [&known[0], &unknown[0]] {
        settle(200, SOON, || async { status(&cold.ask_as(robot)).await }).await;
    }
    scene.provider.tell("up").await;
    all(&scene.robot().await, 200).await;
}

#[tokio::test]
async fn a_block_reaches_a_robot_of_a_provider_within_a_second() {
    let scene = Scene::start(Provider::oidc_provider(600).await, &[]).await;
    let robot = scene.robot().await;
    all(&robot, 200).await;
    let who = robot[0].get("/api/v1/status").await.expect(200);
    let id = who["identity_id"].as_str().unwrap();
    settle(true, SLOWLY, || async {
        scene.tenant.platform.items("/api/v1/identities").await.iter().any(|person| person["id"] == id)
    })
    .await;
    let block = format!("/api/v1/identities/{id}/block");
    scene.tenant.platform.post(&block, &json!({})).await.expect(200);
    all(&robot, 403).await;
    all(&scene.robot().await, 403).await;
}

#[tokio::test]
async fn a_token_of_a_provider_for_something_else_is_refused() {
    let scene = Scene::start(Provider::oidc_provider(600).await, &[]).await;
    let refused = async |resource: &str| {
        let token = scene.provider.robot(resource).await;
        let answer = bearer(&scene.stage, &token).get("/api/v1/status").await;
        answer.refused(401, "unauthenticated")
    };
    let elsewhere = "the access token was issued for something other than this gateway";
    assert_eq!(refused("https://other.example").await, elsewhere);
    // it opens MCP, and nothing else
    assert_eq!(refused(&format!("{}/mcp", scene.balancer.url)).await, elsewhere);
    // as whoever runs the gateway sees it, with a token that is good
    let body = json!({"token": scene.provider.robot(&scene.balancer.url).await});
    let report = scene.stage.platform().post("/api/v1/issuers/corp/check", &body).await.expect(200);
    let checks = report["checks"].as_array().unwrap();
    assert!(checks.iter().all(|check| check["result"] != "bad"), "{report}");
    assert!(checks.iter().any(|check| check["check"] == "verdict" && check["result"] == "ok"), "{report}");
}
