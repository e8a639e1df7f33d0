//! One server listed by two replicas at once: what is shown was read last.

use std::time::Duration;

use serde_json::{Value, json};
use tokio::sync::watch;

use crate::support::upstream::{Era, Offers};
use crate::support::{Gateway, Stage, Tenant, Tool, Upstream, settle};

/// What a server is asked for, in this order.
const METHODS: [&str; 4] = ["tools/list", "prompts/list", "resources/list", "resources/templates/list"];
const SOON: Duration = Duration::from_secs(5);
/// Nothing is listed again by itself.
const ONCE: (&str, &str) = ("MCPPROXY__LIMITS__RELIST_INTERVAL_S", "3600");

/// Two replicas and a server that both list.
struct Scene {
    /// Looks after the server.
    stage: Stage,
    _other: Gateway,
    here: Tenant,
    there: Tenant,
    upstream: Upstream,
}

impl Scene {
    /// With settings of the other replica's own.
    async fn with(others: &[(&str, &str)]) -> Scene {
        let stage = Stage::with(&[ONCE]).await;
        let other = Gateway::start(&stage.database, &[&[ONCE], others].concat()).await;
        let here = stage.tenant("acme").await;
        let there = Tenant::of(&other.ask_as(&here.platform), &other.anonymous());
        let upstream = Upstream::announcing(Era::Handshake, Vec::new()).await;
        let scene = Scene { stage, _other: other, here, there, upstream };
        scene.offers("first");
        scene.here.add_with("up", &scene.upstream, json!({"auto_approve": true})).await;
        settle(1, Duration::from_secs(10), || async { scene.upstream.listeners() }).await;
        // the listings that follow the opening
        settle([2; 4], SOON, || async { METHODS.map(|method| scene.asked_of(method)) }).await;
        scene
    }

    /// One thing of each kind, by this name, from now on.
    fn offers(&self, name: &str) {
        self.offers_behind(name, Vec::new());
    }

    /// The same, behind these gates.
    fn offers_behind(&self, name: &str, gates: Vec<(&'static str, watch::Receiver<bool>)>) {
        self.upstream.set_tools(vec![Tool::reads(name)]);
        self.upstream.set_offers(Offers {
            prompts: Offers::prompts(&[name]).prompts,
            templates: Offers::templates(&[&format!("{name}://{{id}}")]).templates,
            gates,
            ..Offers::resources(&[&format!("{name}://")])
        });
    }

    fn asked_of(&self, method: &str) -> usize {
        match method {
            "tools/list" => self.upstream.counts().lists,
            _ => self.upstream.asked_of(method),
        }
    }

    /// What is stored of it, by the names in the test.
    async fn stored(&self) -> Vec<String> {
        let mut names = Vec::new();
        for (kind, key) in [("tools", "name"), ("prompts", "name"), ("resources", "uri")] {
            let items = self.here.platform.items(&format!("/api/v1/servers/up/{kind}")).await;
            names.extend(items.iter().map(|item| {
                let name = item[key].as_str().unwrap();
                format!("{kind} {}", name.split_once("://").map_or(name, |(name, _)| name))
            }));
        }
        names
    }

    async fn has(&self, name: &str) {
        let all = ["tools", "prompts", "resources", "resources"].map(|kind| format!("{kind} {name}"));
        assert_eq!(self.stored().await, all);
    }
}

async fn refresh(tenant: &Tenant) -> Value {
    let shown = tenant.platform.post("/api/v1/servers/up/refresh", &json!({})).await.expect(200);
    assert_eq!((&shown["connection"], &shown["last_error"]), (&json!("connected"), &Value::Null));
    shown
}

#[tokio::test]
async fn what_was_read_before_another_replica_listed_puts_nothing_back() {
    let scene = Scene::with(&[]).await;
    for method in METHODS {
        // be it what is stored anyway that the other replica finds, or something else
        for (stored, now) in [("same", "same"), ("old", "new")] {
            scene.offers(stored);
            refresh(&scene.here).await;
            let (open, gate) = watch::channel(false);
            scene.offers_behind("gone", vec![(method, gate)]);
            let before = scene.asked_of(method);
            let overtakes = async {
                settle(before + 1, SOON, || async { scene.asked_of(method) }).await;
                scene.offers(now);
                refresh(&scene.here).await;
                scene.has(now).await;
                open.send_replace(true);
            };
            tokio::join!(refresh(&scene.there), overtakes);
            scene.has(now).await;
        }
    }
}

#[tokio::test]
async fn what_was_announced_and_read_before_somebody_asked_puts_nothing_back() {
    let scene = Scene::with(&[]).await;
    for (what, method) in [("tools", METHODS[0]), ("prompts", METHODS[1]), ("resources", METHODS[2])] {
        let (open, gate) = watch::channel(false);
        scene.offers_behind("gone", vec![(method, gate)]);
        let before = scene.asked_of(method);
        scene.upstream.announce_of(what);
        settle(before + 1, SOON, || async { scene.asked_of(method) }).await;
        scene.offers(what);
        refresh(&scene.there).await;
        open.send_replace(true);
        // who was overtaken asks once more
        settle(before + 3, SOON, || async { scene.asked_of(method) }).await;
        scene.has(what).await;
    }
}

/// Whoever begins first may read last.
#[tokio::test]
async fn what_began_later_and_was_read_earlier_puts_nothing_back() {
    let scene = Scene::with(&[]).await;
    let [(begin, begins), (read, reads)] = [(); 2].map(|()| watch::channel(false));
    scene.offers_behind("gone", vec![("prompts/list", begins)]);
    let first = async {
        refresh(&scene.here).await;
        read.send_replace(true);
    };
    let second = async {
        settle(3, SOON, || async { scene.asked_of("prompts/list") }).await;
        scene.offers_behind("gone", vec![("resources/list", reads)]);
        let begins_now = async {
            settle(3, SOON, || async { scene.asked_of("resources/list") }).await;
            scene.offers("new");
            begin.send_replace(true);
        };
        tokio::join!(refresh(&scene.there), begins_now);
    };
    tokio::join!(first, second);
    let resources = scene.stored().await.into_iter().filter(|name| name.starts_with("resources "));
    assert_eq!(resources.collect::<Vec<_>>(), ["resources new"; 2]);
}

#[tokio::test]
async fn a_failure_takes_nothing_away_that_another_replica_lists_meanwhile() {
    let scene = Scene::with(&[("MCPPROXY__LIMITS__LISTING_TIMEOUT_S", "1")]).await;
    for (name, method) in [("one", METHODS[0]), ("two", METHODS[3])] {
        let (_shut, gate) = watch::channel(false);
        scene.offers_behind("gone", vec![(method, gate)]);
        let before = scene.asked_of(method);
        let overtakes = async {
            settle(before + 1, SOON, || async { scene.asked_of(method) }).await;
            scene.offers(name);
            refresh(&scene.here).await;
        };
        tokio::join!(refresh(&scene.there), overtakes);
        scene.has(name).await;
    }
}

#[tokio::test]
async fn a_replica_that_dies_while_it_lists_holds_nobody_up() {
    let Scene { stage, _other: other, here, there, upstream } = Scene::with(&[]).await;
    upstream.hold_lists();
    let asks =
        tokio::spawn(async move { there.platform.post("/api/v1/servers/up/refresh", &json!({})).await });
    settle(3, SOON, || async { upstream.counts().lists }).await;
    drop(other);
    asks.abort();
    upstream.release_lists();
    upstream.set_tools(vec![Tool::reads("new")]);
    refresh(&here).await;
    let tools = here.platform.items("/api/v1/servers/up/tools").await;
    assert_eq!((tools.len(), &tools[0]["name"]), (1, &json!("new")));
    drop(stage);
}

/// Both as a server that announces its tools, and as one that is listed because it is time.
#[tokio::test]
async fn what_was_not_declared_earlier_takes_nothing_away_that_another_replica_lists() {
    for interval in ["3600", "1"] {
        let stage = Stage::with(&[("MCPPROXY__LIMITS__RELIST_INTERVAL_S", interval)]).await;
        let here = stage.tenant("acme").await;
        let announces = interval == "3600";
        let upstream = match announces {
            true => Upstream::announcing(Era::Modern, vec![Tool::reads("old")]).await,
            false => Upstream::modern(vec![Tool::reads("old")]).await,
        };
        here.add_with("up", &upstream, json!({"auto_approve": true})).await;
        if announces {
            settle(1, SOON, || async { upstream.listeners() }).await;
            settle(2, SOON, || async { upstream.counts().lists }).await;
        }
        // it knows nothing of the server yet
        let other = Gateway::start(&stage.database, &[ONCE]).await;
        let there = Tenant::of(&other.ask_as(&here.platform), &other.anonymous());
        upstream.set_offers(Offers::prompts(&["one"]));
        refresh(&there).await;
        let names = async |kind: &str| {
            let items = here.platform.items(&format!("/api/v1/servers/up/{kind}")).await;
            items.iter().map(|item| item["name"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
        };
        assert_eq!(names("prompts").await, ["one"], "{announces}");
        upstream.set_tools(vec![Tool::reads("new")]);
        if announces {
            upstream.announce(1);
        }
        settle(vec!["new".to_owned()], SOON, || names("tools")).await;
        // another round, if there is one
        settle(true, SOON, || async { announces || upstream.asked_of("prompts/list") >= 3 }).await;
        assert_eq!(names("prompts").await, ["one"], "{announces}");
        // nor is what somebody asks for here answered with what was declared a while ago
        upstream.set_offers(Offers::default());
        refresh(&there).await;
        settle(Vec::<String>::new(), SOON, || names("prompts")).await;
        let prompts = Offers::prompts(&["two"]);
        upstream.set_offers(Offers { resources: Some(Vec::new()), ..prompts });
        refresh(&there).await;
        assert_eq!(names("prompts").await, ["two"], "{announces}");
    }
}

/// A failure says something newer than what another replica stored meanwhile and had read before.
#[tokio::test]
async fn a_server_that_goes_away_after_another_replica_read_it_is_away() {
    let scene = Scene::with(&[("MCPPROXY__LIMITS__LISTING_TIMEOUT_S", "2")]).await;
    let (_shut, gate) = watch::channel(false);
    let before = scene.asked_of("tools/list");
    scene.offers_behind("gone", vec![("tools/list", gate.clone())]);
    let asks = scene.there.platform.post("/api/v1/servers/up/refresh", &json!({}));
    let overtakes = async {
        settle(before + 1, SOON, || async { scene.asked_of("tools/list") }).await;
        scene.offers("new");
        refresh(&scene.here).await;
        scene.offers_behind("gone", vec![("tools/list", gate)]);
    };
    let (shown, ()) = tokio::join!(asks, overtakes);
    let shown = shown.expect(200);
    assert_eq!((&shown["connection"], scene.asked_of("tools/list")), (&json!("disconnected"), before + 3));
    assert!(shown["last_error"].as_str().is_some_and(|error| error.contains("within 2 s")), "{shown}");
}

/// Of a server that has the tools alone by now, as only a session is told that began since.
#[tokio::test]
async fn who_is_overtaken_twice_by_listings_of_tools_still_asks_for_the_rest() {
    let scene = Scene::with(&[]).await;
    let [(first, begins), (second, goes_on)] = [(); 2].map(|()| watch::channel(false));
    let has_tools_alone = |gate: Option<watch::Receiver<bool>>| {
        let gates = gate.into_iter().map(|gate| ("tools/list", gate)).collect();
        scene.upstream.set_offers(Offers { gates, ..Offers::default() });
    };
    let before = scene.asked_of("tools/list");
    has_tools_alone(Some(begins));
    let overtakes = async {
        for (name, asked, open, next) in [("one", 1, first, Some(goes_on)), ("two", 3, second, None)] {
            settle(before + asked, SOON, || async { scene.asked_of("tools/list") }).await;
            has_tools_alone(None);
            scene.upstream.set_tools(vec![Tool::reads(name)]);
            scene.upstream.announce(1);
            settle(format!("tools {name}"), SOON, || async { scene.stored().await.swap_remove(0) }).await;
            has_tools_alone(next);
            open.send_replace(true);
        }
    };
    tokio::join!(refresh(&scene.there), overtakes);
    assert_eq!(scene.stored().await, ["tools two"]);
}
