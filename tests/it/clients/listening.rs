//! The official clients with a stream open on `/mcp/direct`: what they hear, and what they then list.

use std::time::Duration;

use futures_util::future::join_all;
use serde_json::json;

use super::stacks::{Listener, STACKS, Stack, now_ms};
use crate::support::{Balancer, DIRECT, Gateway, Stage, Tenant, Tool, Upstream};

/// Within this a client has heard of what a person changed; generous, the clients share the machine.
const HEARD_MS_MAX: u128 = 1000;
/// How long a client may take to start.
const WAIT_MAX: Duration = Duration::from_secs(20);

/// A client each of what listens by itself; a program on stdio cannot tell when its bridge does.
async fn listeners(tenant: &Tenant, url: &str) -> Vec<(Stack, Listener)> {
    let stacks = STACKS.into_iter().filter(|stack| !stack.name.contains("mcp-remote"));
    join_all(stacks.map(|stack| async move {
        let key = tenant.agent_with(json!({"direct_endpoint": true})).await;
        let endpoint = format!("{url}{DIRECT}");
        let mut listener = Listener::start(&stack, &endpoint, key.key.as_deref().unwrap());
        listener.heard("READY", WAIT_MAX).await;
        let (_, tools) = listener.heard("TOOLS", WAIT_MAX).await;
        assert!(tools.contains("one:echo"), "{}: {tools}", stack.name);
        (stack, listener)
    }))
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn every_client_hears_of_changes() {
    let settings = [("MCPPROXY__DIRECT__ENABLED", "true")];
    let stage = Stage::with(&settings).await;
    let other = Gateway::start(&stage.database, &settings).await;
    let tenant = stage.tenant("acme").await;
    let upstream = Upstream::handshake(vec![Tool::reads("echo")]).await;
    tenant.add("one", &upstream).await;
    tenant.add("two", &upstream).await;
    let balancer = Balancer::before(&[&stage.gateway, &other]).await;
    let mut listeners = listeners(&tenant, &balancer.url).await;

    let changed = now_ms();
    tenant.platform.post("/api/v1/servers/one/disable", &json!({})).await.expect(200);
    for (stack, listener) in &mut listeners {
        let after = listener.told_after(changed, WAIT_MAX).await;
        assert!(after < HEARD_MS_MAX, "{}: heard after {after} ms", stack.name);
        // the list may be asked of the replica that knows later; who got an old one is told once more
        listener.listed(WAIT_MAX, |tools| !tools.contains("one:echo") && tools.contains("two:echo")).await;
    }

    tenant.platform.post("/api/v1/servers/one/enable", &json!({})).await.expect(200);
    for (stack, listener) in &mut listeners {
        listener.listed(WAIT_MAX, |tools| tools.contains("one:echo")).await;
        assert!(listener.is_running(), "{}", stack.name);
    }
}
