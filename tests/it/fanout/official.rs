//! What people run: official clients, three replicas, one of them through pgbouncer, and nginx before them, which gives
//! each request to the next.

use std::time::Duration;

use futures_util::future::join_all;
use serde_json::json;

use super::{ACT, NO_RELIST, ON, OWN, ears, modern, open, pooled};
use crate::clients::stacks::{Listener, STACKS, now_ms};
use crate::support::upstream::Era;
use crate::support::{
    Api, Database, Ear, Gateway, Mcp, Nginx, PgBouncer, Stage, Tenant, Tool, Upstream, settle,
};

/// One of each stack that hears of changes by itself or by its program.
const CLIENTS: [&str; 4] = ["npm sdk 1.x", "npm client 2.x, modern", "PyPI mcp 1.x", "PyPI mcp 2.x, auto"];
/// How long a client may take to start, or to come back: those of the handshake revisions wait for a second.
const WAIT_MAX: Duration = Duration::from_secs(20);

/// Replicas, and what stands around them; dropped in this order.
struct Deployment {
    replicas: Vec<Gateway>,
    nginx: Nginx,
    _bouncer: PgBouncer,
    database: Database,
}

/// With two tenants.
async fn deploy() -> (Deployment, [Tenant; 2]) {
    let stage = Stage::with(&[ON, NO_RELIST]).await;
    let tenants = [open(&stage, "acme").await, open(&stage, "globex").await];
    let Stage { gateway, database } = stage;
    let bouncer = PgBouncer::start(&database).await;
    let replicas =
        vec![gateway, Gateway::start(&database, &[ON, NO_RELIST]).await, pooled(&database, &bouncer).await];
    let nginx = Nginx::before(&replicas.iter().collect::<Vec<_>>()).await;
    (Deployment { replicas, nginx, _bouncer: bouncer, database }, tenants)
}

impl Deployment {
    /// A person's act by this replica, and when it was begun.
    async fn act(&self, replica: usize, tenant: &Tenant, server: &str, act: &str) -> u128 {
        let began = now_ms();
        let api = self.replicas[replica].ask_as(&tenant.platform);
        api.post(&format!("/api/v1/servers/{server}/{act}"), &json!({})).await.expect(200);
        began
    }

    /// The official clients, listening, and one key of theirs.
    async fn clients(&self, tenant: &Tenant) -> Vec<Listener> {
        let endpoint = format!("{}/mcp/direct", self.nginx.url);
        let stacks = STACKS.into_iter().filter(|stack| CLIENTS.contains(&stack.name));
        let clients: Vec<Listener> = join_all(stacks.map(|stack| {
            let endpoint = endpoint.clone();
            async move {
                let key = tenant.agent().await.key.unwrap();
                let mut client = Listener::start(&stack, &endpoint, &key);
                client.heard("READY", WAIT_MAX).await;
                client.listed(WAIT_MAX, |tools| sees(tools, "pen") && sees(tools, "zoo")).await;
                client
            }
        }))
        .await;
        assert_eq!(clients.len(), CLIENTS.len());
        clients
    }

    /// Whether every replica lists the same bytes for the same key, to clients of both eras.
    async fn lists_are_equal(&self, key: &Api) {
        let lists = self.replicas.iter().map(|replica| async {
            let key = replica.ask_as(key);
            let mut lists = Vec::new();
            for client in [Mcp::direct(&key), modern(&key)] {
                let answer = client.request_as("1", "tools/list", "{}").await;
                lists.push((answer.status, answer.text));
            }
            lists
        });
        let lists = join_all(lists).await;
        assert!(lists[0].iter().all(|(status, text)| *status == 200 && text.contains(":")), "{lists:?}");
        assert!(lists.windows(2).all(|pair| pair[0] == pair[1]), "{lists:?}");
    }
}

fn sees(tools: &str, server: &str) -> bool {
    tools.contains(&format!("\"{server}:"))
}

/// Every client has been told in time, and lists what it should.
async fn all_hear(clients: &mut [Listener], since: u128, bound: Duration, is_right: impl Fn(&str) -> bool) {
    for client in clients {
        let after = client.told_after(since, WAIT_MAX).await;
        assert!(after < bound.as_millis(), "{}: heard after {after} ms", client.name());
        // the list may be asked of the replica that knows last; who got an old one is told once more
        client.listed(WAIT_MAX, &is_right).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn every_client_hears_of_what_another_replica_was_told() {
    let (mut deployment, [tenant, foreign]) = deploy().await;
    let plain = Upstream::handshake(vec![Tool::reads("t")]).await;
    let announcing = Upstream::announcing(Era::Modern, vec![Tool::reads("alpha")]).await;
    tenant.add("lab", &plain).await;
    tenant.add("pen", &plain).await;
    tenant.add_with("zoo", &announcing, json!({"auto_approve": true})).await;
    foreign.add("pen", &plain).await;
    settle(1, WAIT_MAX, || async { announcing.listeners() }).await;
    settle(true, OWN, || async { announcing.counts().lists >= 2 }).await;
    let key = tenant.agent().await;
    let limited = tenant.agent_with(json!({"allowed_tools": ["lab:*"]})).await;
    let stranger = foreign.agent().await;
    deployment.lists_are_equal(&key).await;
    let mut spared: Vec<Vec<Ear>> = Vec::new();
    for replica in &deployment.replicas {
        let mut here = Vec::from(ears(&replica.ask_as(&limited)).await);
        here.extend(ears(&replica.ask_as(&stranger)).await);
        spared.push(here);
    }
    let mut clients = deployment.clients(&tenant).await;

    for (replica, act) in ["disable", "enable", "disable"].into_iter().enumerate() {
        let began = deployment.act(replica, &tenant, "pen", act).await;
        all_hear(&mut clients, began, ACT, |tools| sees(tools, "pen") == (act == "enable")).await;
    }
    let began = now_ms();
    announcing.set_tools(vec![Tool::reads("beta")]);
    announcing.announce(1);
    all_hear(&mut clients, began, OWN, |tools| tools.contains("zoo:beta") && !tools.contains("zoo:alpha"))
        .await;
    // one that was not there for any of it
    let cold = Gateway::start(&deployment.database, &[ON, NO_RELIST]).await;
    deployment.replicas.push(cold);
    for key in [&key, &limited] {
        deployment.lists_are_equal(key).await;
    }

    // the one with the most streams dies
    let streams = |deployment: &Deployment| {
        let replicas = deployment.replicas.iter();
        replicas.map(|replica| deployment.nginx.open_at(replica)).collect::<Vec<_>>()
    };
    settle(clients.len(), ACT, || async { streams(&deployment).iter().sum() }).await;
    let held = streams(&deployment);
    let (dying, lost) = held.iter().copied().enumerate().max_by_key(|(_, held)| *held).unwrap();
    deployment.replicas[dying].kill();
    drop((deployment.replicas.remove(dying), spared.remove(dying)));
    settle(clients.len(), WAIT_MAX, || async { streams(&deployment).iter().sum() }).await;
    let began = deployment.act(1, &tenant, "pen", "enable").await;
    all_hear(&mut clients, began, ACT, |tools| sees(tools, "pen") && sees(tools, "zoo")).await;
    let opened: usize = clients.iter().map(|client| client.said("READY")).sum();
    assert_eq!(opened, clients.len() + lost, "{held:?}");

    // the first that the others hear is what concerns them
    deployment.act(0, &tenant, "lab", "disable").await;
    deployment.act(1, &foreign, "pen", "disable").await;
    for ear in spared.iter().flatten() {
        ear.hears(1, ACT).await;
    }
}
