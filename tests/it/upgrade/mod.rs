//! A rolling upgrade from the release before and a rollback to it: both programs, on one database, under load. `make
//! upgrade-test` builds the other program and names it in `MCPPROXY_TEST_RELEASE_BEFORE`.

mod load;
mod mixed;
mod scene;

use std::path::PathBuf;

use serde_json::{Value, json};

use self::load::Load;
use self::mixed::{Mixed, Stray, decide, decisions, rolled_back};
use self::scene::{
    SERVERS, SOON, Scene, changes, code, continued, inventory, last_header, offer_code, patch, tenant,
};
use crate::support::{Api, Database, Gateway, Tool, Upstream, settle};

/// Settings of every replica. Load balancers take a moment to hear of a drain.
const SETTINGS: [(&str, &str); 3] = [
    ("MCPPROXY__DIRECT__ENABLED", "true"),
    ("MCPPROXY__LIMITS__DRAIN_DELAY_S", "1"),
    ("MCPPROXY__LIMITS__RELIST_INTERVAL_S", "5"),
];
/// Items that are done through each replica before the next step.
const ITEMS: usize = 60;

/// Both programs on one database.
struct Programs {
    before: PathBuf,
    database: Database,
}

impl Programs {
    async fn start_old(&self) -> Gateway {
        Gateway::start_other(&self.before, &self.database, &SETTINGS).await
    }

    async fn start_new(&self) -> Gateway {
        Gateway::start(&self.database, &SETTINGS).await
    }
}

/// Drains a replica. The load balancer hears of it when it is gone.
async fn drain(mut replica: Gateway, load: &Load, others: &[&Gateway]) {
    replica.terminate();
    let ended = replica.ended().await;
    assert!(ended.success(), "{ended}: {}", replica.log());
    load.use_replicas(others);
}

/// Servers that the new release has moved, each by another right, and what became of them.
struct Moved {
    by_operator: Upstream,
    by_admin: Upstream,
    kept: Upstream,
}

impl Moved {
    /// Moves three servers to another path of their host.
    async fn make(gateway: &Gateway, scene: &Scene) -> Moved {
        let tenant = tenant(gateway);
        let start = || Upstream::handshake(vec![Tool::writes("t")]);
        let moved = Moved { by_operator: start().await, by_admin: start().await, kept: start().await };
        let operator = gateway.ask_as(&scene.operator);
        for (name, upstream, by, more) in [
            ("by-operator", &moved.by_operator, &operator, json!({})),
            ("by-admin", &moved.by_admin, &tenant.platform, json!({})),
            ("kept", &moved.kept, &tenant.platform, json!({"keep_credentials": true})),
        ] {
            tenant.add_with(name, upstream, json!({"headers": {"X-Key": format!("{name}-0")}})).await;
            let mut body = json!({"url": upstream.url.replace("/mcp", "/other")});
            body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            patch(by, name, body).await;
        }
        moved
    }

    /// Checks that nothing is more open than the move has left it.
    async fn holds(&self, agent: &Api) {
        for (name, expected) in [("by-operator", "server_quarantined"), ("by-admin", "ok"), ("kept", "ok")] {
            let tool = format!("{name}:t");
            settle(expected.to_owned(), SOON, || code(agent, "write", &tool)).await;
        }
        assert_eq!(last_header(&self.by_admin, "x-key"), "", "a credential went along to another place");
        assert_eq!(last_header(&self.kept, "x-key"), "kept-0");
        for upstream in [&self.by_operator, &self.by_admin] {
            let (paths, keys) = (upstream.sent(":path"), upstream.sent("x-key"));
            let leaked = paths.iter().zip(&keys).any(|(path, key)| path == "/other" && !key.is_empty());
            assert!(!leaked, "{paths:?} {keys:?}");
        }
    }
}

async fn records(gateway: &Gateway) -> Vec<Value> {
    tenant(gateway).platform.items("/api/v1/activity?type=admin").await
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs the program of the release before: make upgrade-test"]
async fn a_rolling_upgrade_and_a_rollback_lose_nothing() {
    let before = std::env::var_os("MCPPROXY_TEST_RELEASE_BEFORE").expect("make upgrade-test sets this");
    let programs = Programs { before: PathBuf::from(before), database: Database::create().await };
    let database = &programs.database;

    // two replicas of the release before, and all there is on them
    Gateway::migrate_with(&programs.before, database);
    let (a, b) = (programs.start_old().await, programs.start_old().await);
    let scene = Scene::make(&a).await;
    for gateway in [&a, &b] {
        scene.holds(gateway).await;
        scene.offers_are_given(gateway).await;
    }
    let (had, recorded) = (inventory(&a).await, records(&a).await);
    let load = Load::start(&[&a, &b], &tenant(&a).platform, &scene.agent, &SERVERS);
    load.proceeds(&[&a, &b], ITEMS).await;

    // the schema first, under them; then one of them is replaced
    Gateway::migrate(database);
    load.proceeds(&[&a, &b], ITEMS).await;
    let c = programs.start_new().await;
    load.use_replicas(&[&a, &b, &c]);
    load.proceeds(&[&c], ITEMS).await;
    drain(a, &load, &[&b, &c]).await;

    // side by side
    for gateway in [&b, &c] {
        assert_eq!(inventory(gateway).await, had);
        scene.holds(gateway).await;
        scene.offers_are_given(gateway).await;
    }
    changes(&b, &c).await;
    changes(&c, &b).await;
    continued(&b, &c).await;
    continued(&c, &b).await;
    decisions(&b, &c, &scene).await;
    let mixed = Mixed::make(&b, &c, &scene).await;
    load.proceeds(&[&b, &c], ITEMS).await;

    // the second one is replaced
    let d = programs.start_new().await;
    load.use_replicas(&[&b, &c, &d]);
    drain(b, &load, &[&c, &d]).await;
    let all = records(&d).await;
    assert!(
        recorded.iter().all(|record| all.contains(record)),
        "records of acts are gone or not as they were"
    );
    for gateway in [&c, &d] {
        scene.holds(gateway).await;
        scene.offers_are_given(gateway).await;
        mixed.holds(gateway, &scene).await;
    }
    let moved = Moved::make(&c, &scene).await;
    moved.holds(&d.ask_as(&scene.agent)).await;
    patch(&tenant(&d).platform, "up", json!({"headers": {"X-Key": "up-1"}})).await;
    decide(&tenant(&d).platform, "up", "three", "block").await;
    let agent = c.ask_as(&scene.agent);
    settle("tool_blocked".to_owned(), SOON, || offer_code(&agent, "up:three")).await;
    load.proceeds(&[&c, &d], ITEMS).await;

    // back: the older program leaves the schema as it is and runs on it
    let said = Gateway::migrate_with(&programs.before, database);
    assert!(said.contains("no files to apply"), "{said}");
    let (e, f) = (programs.start_old().await, programs.start_old().await);
    load.use_replicas(&[&c, &d, &e, &f]);
    drain(c, &load, &[&d, &e, &f]).await;
    drain(d, &load, &[&e, &f]).await;
    for gateway in [&e, &f] {
        scene.holds(gateway).await;
        let agent = gateway.ask_as(&scene.agent);
        moved.holds(&agent).await;
        mixed.is_called(gateway, &scene).await;
    }
    load.proceeds(&[&e, &f], ITEMS).await;
    assert_eq!(last_header(&scene.up, "x-key"), "up-1", "of the new release");
    let stray = Stray::make(&e).await;
    stray.holds(&f.ask_as(&scene.agent)).await;
    rolled_back(&e, &scene).await;

    // and forward again: what was decided before counts, what came meanwhile was approved by nobody
    let (g, h) = (programs.start_new().await, programs.start_new().await);
    load.use_replicas(&[&e, &f, &g, &h]);
    drain(e, &load, &[&f, &g, &h]).await;
    drain(f, &load, &[&g, &h]).await;
    for gateway in [&g, &h] {
        scene.holds(gateway).await;
        let agent = gateway.ask_as(&scene.agent);
        moved.holds(&agent).await;
        stray.holds(&agent).await;
        mixed.holds(gateway, &scene).await;
        for (offer, expected) in [
            ("up:one", "ok"),
            ("up:two", "tool_changed"),
            ("up://two", "tool_changed"),
            ("up:three", "tool_blocked"),
        ] {
            settle(expected.to_owned(), SOON, || offer_code(&agent, offer)).await;
        }
    }
    load.proceeds(&[&g, &h], ITEMS).await;
    assert_eq!(last_header(&scene.up, "x-key"), "up-2", "of the release before");
    let report = load.account(database, &[&scene.up, &scene.modern]).await;
    drop(std::io::Write::write_all(&mut std::io::stderr(), format!("{report}\n").as_bytes()));
}
