//! Random histories on two replicas: at no moment does a list, a search or a call show a tool of a server that is disabled,
//! quarantined or disconnected, or one whose definition nobody approved at the place where the server is, or one that is
//! blocked. A key that may only read sees what counts as reading, by its server's word or a person's.
//!
//! `PROPTEST_CASES=200 cargo test --test it histories::` runs more of them than every build does.

mod model;

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use proptest::prelude::*;
use proptest::test_runner::{Config, TestCaseError, TestError, TestRunner};
use reqwest::Method;
use serde_json::{Value, json};

use self::model::{Ceiling, DESTRUCTIVE, Said, Server, TOOLS, World};
use crate::support::{Api, DIRECT, Gateway, Mcp, Stage, Tenant, Tool, Upstream};

/// Switches `/mcp/direct` on, and has nothing listed by itself that need not be.
const SETTINGS: [(&str, &str); 2] =
    [("MCPPROXY__DIRECT__ENABLED", "true"), ("MCPPROXY__LIMITS__RELIST_INTERVAL_S", "3600")];
/// Histories of a build.
const HISTORIES: u32 = 5;
/// What proptest says when nobody asked for another number.
const CASES_UNASKED: u32 = 256;
/// Acts of a history.
const ACTS: usize = 24;
const SERVERS: usize = 2;
/// Within this a replica follows what was done on the other.
const SOON: Duration = Duration::from_secs(1);
/// Shorter histories that are tried when one has failed.
const SHRINKS_MAX: u32 = 60;

#[derive(Clone, Debug)]
enum Act {
    Enable(usize),
    Disable(usize),
    Quarantine(usize),
    Release(usize),
    Refresh(usize),
    /// The server offers a tool in another version from now on, or none.
    Offer(usize, usize, u8),
    /// What is listed is approved.
    Approve(usize, usize),
    /// A tool is blocked, whatever it becomes.
    Block(usize, usize),
    Unblock(usize, usize),
    /// A person says that a listed tool is destructive, or that it only reads.
    Override(usize, usize, bool),
    /// The server's word counts again.
    Clear(usize, usize),
    /// An operator says that the server is at its other place.
    Move(usize),
    /// The server goes away where it is, or comes back.
    Power(usize, bool),
    /// A replica dies, and another is started.
    Crash,
}

fn act() -> impl Strategy<Value = Act> {
    let server = || 0..SERVERS;
    let tool = || (server(), 0..TOOLS);
    prop_oneof![
        3 => server().prop_map(Act::Enable),
        3 => server().prop_map(Act::Disable),
        2 => server().prop_map(Act::Quarantine),
        3 => server().prop_map(Act::Release),
        5 => server().prop_map(Act::Refresh),
        6 => (server(), 0..TOOLS, 0..3u8).prop_map(|(server, tool, version)| Act::Offer(server, tool, version)),
        4 => (server(), 0..TOOLS).prop_map(|(server, tool)| Act::Approve(server, tool)),
        2 => tool().prop_map(|(server, tool)| Act::Block(server, tool)),
        3 => tool().prop_map(|(server, tool)| Act::Unblock(server, tool)),
        4 => (tool(), any::<bool>()).prop_map(|((server, tool), worse)| Act::Override(server, tool, worse)),
        2 => tool().prop_map(|(server, tool)| Act::Clear(server, tool)),
        1 => server().prop_map(Act::Move),
        2 => (server(), any::<bool>()).prop_map(|(server, is_up)| Act::Power(server, is_up)),
        1 => Just(Act::Crash),
    ]
}

/// An act, and the replica that is asked.
type History = Vec<(Act, usize)>;

fn history() -> impl Strategy<Value = History> {
    proptest::collection::vec((act(), 0..2usize), ACTS)
}

fn name_of(server: usize) -> &'static str {
    ["alpha", "beta"][server]
}

fn tools(offered: [u8; TOOLS]) -> Vec<Tool> {
    let tools = offered.iter().enumerate().filter(|(_, version)| **version != 0);
    let definition = |(tool, version): (usize, &u8)| {
        let name = format!("tool{tool}");
        let hint = if *version == DESTRUCTIVE { "destructiveHint" } else { "readOnlyHint" };
        let definition = format!(
            r#"{{"name":"{name}","description":"A lamp, version {version}","inputSchema":{{"type":"object"}},"annotations":{{"{hint}":true}}}}"#
        );
        Tool::raw(&name, &definition)
    };
    tools.map(definition).collect()
}

/// Two replicas, of which the second may die.
struct Replicas {
    stage: Stage,
    second: Gateway,
}

impl Replicas {
    fn at(&self, replica: usize) -> &Gateway {
        if replica == 0 { &self.stage.gateway } else { &self.second }
    }
}

/// A tenant with its servers, and what is known of it.
struct Scene {
    tenant: Tenant,
    agent: Api,
    /// An agent that may use one server only.
    narrow: Api,
    /// An agent that may only read.
    reader: Api,
    operator: Api,
    /// Each server at the places where it can be.
    upstreams: Vec<[Upstream; 2]>,
    world: World,
}

impl Scene {
    async fn set(replicas: &Replicas, name: &str) -> Scene {
        let tenant = replicas.stage.tenant(name).await;
        tenant.platform.patch("/api/v1/settings", &json!({"direct_endpoint": true})).await.expect(200);
        let (mut upstreams, mut servers) = (Vec::new(), Vec::new());
        for server in 0..SERVERS {
            let (offered, auto_approve) = ([1, 1, 0], server == 1);
            let places =
                [Upstream::handshake(tools(offered)).await, Upstream::handshake(tools(offered)).await];
            tenant.add_with(name_of(server), &places[0], json!({"auto_approve": auto_approve})).await;
            upstreams.push(places);
            servers.push(Server::added(auto_approve, offered));
        }
        let agent = tenant.agent().await;
        let narrow = tenant.agent_with(json!({"allowed_tools": ["alpha:*"]})).await;
        let reader = tenant.agent_with(json!({"max_operation": "read"})).await;
        let operator = tenant.operator().await;
        Scene { tenant, agent, narrow, reader, operator, upstreams, world: World::of(servers) }
    }

    /// Does it; `false` for what cannot be done now.
    async fn act(&mut self, replicas: &mut Replicas, act: &Act, on: usize) -> bool {
        let api = replicas.at(on).ask_as(&self.tenant.platform);
        let post = async |server: usize, what: &str| {
            api.post(&format!("/api/v1/servers/{}/{what}", name_of(server)), &json!({})).await.expect(200)
        };
        match *act {
            Act::Enable(server) if !self.world.any(server).enabled => {
                post(server, "enable").await;
                self.world.happens(server, |server| {
                    server.enabled = true;
                    server.list();
                });
            }
            Act::Disable(server) if self.world.any(server).enabled => {
                post(server, "disable").await;
                self.world.happens(server, |server| {
                    server.enabled = false;
                    server.connected = false;
                });
            }
            Act::Quarantine(server) if !self.world.any(server).quarantined => {
                post(server, "quarantine").await;
                self.world.happens(server, |server| server.quarantined = true);
            }
            Act::Release(server) if self.world.any(server).quarantined => {
                post(server, "unquarantine").await;
                self.world.happens(server, |server| {
                    server.quarantined = false;
                    server.list();
                });
            }
            Act::Refresh(server) if self.world.any(server).enabled => {
                post(server, "refresh").await;
                self.world.happens(server, Server::list);
            }
            Act::Offer(server, tool, version) => {
                self.world.happens(server, |server| server.offered[tool] = version);
                for place in &self.upstreams[server] {
                    place.set_tools(tools(self.world.any(server).offered));
                }
            }
            Act::Approve(server, tool) => return self.approve(&api, server, tool).await,
            Act::Block(server, tool) => {
                let is_done = decide(&api, Method::POST, server, tool, "block", None).await;
                if is_done {
                    self.world.happens(server, |server| server.blocked[tool] = true);
                }
                return is_done;
            }
            Act::Unblock(server, tool) => {
                let is_done = decide(&api, Method::DELETE, server, tool, "block", None).await;
                if is_done {
                    self.world.happens(server, |server| server.blocked[tool] = false);
                }
                return is_done;
            }
            Act::Override(server, tool, worse) => return self.say(&api, server, tool, worse).await,
            Act::Clear(server, tool) => {
                let is_done = decide(&api, Method::DELETE, server, tool, "override", None).await;
                if is_done {
                    self.world.happens(server, |server| server.said[tool] = None);
                }
                return is_done;
            }
            Act::Move(server) => {
                let there = &self.upstreams[server][1 - self.world.any(server).place].url;
                let operator = replicas.at(on).ask_as(&self.operator);
                let path = format!("/api/v1/servers/{}", name_of(server));
                operator.patch(&path, &json!({ "url": there })).await.expect(200);
                self.world.happens(server, Server::moves);
            }
            Act::Power(server, is_up) if self.world.any(server).up[self.world.any(server).place] != is_up => {
                let place = self.world.any(server).place;
                let upstream = &mut self.upstreams[server][place];
                if is_up {
                    upstream.come_back().await;
                } else {
                    upstream.go_down().await;
                }
                self.world.happens(server, |server| server.up[place] = is_up);
            }
            Act::Crash => {
                replicas.second.kill();
                replicas.second = Gateway::start(&replicas.stage.database, &SETTINGS).await;
            }
            _ => return false,
        }
        true
    }

    /// Approves what is listed, when it is certain what that is. A block ends with that.
    async fn approve(&mut self, api: &Api, server: usize, tool: usize) -> bool {
        let Some((listed, pin)) = self.looked_at(api, server, tool).await else { return false };
        let is_done = decide(api, Method::POST, server, tool, "approve", Some(&json!({ "pin": pin }))).await;
        if is_done {
            self.world.happens(server, |server| {
                // else it was not this version that was approved
                if server.listed[tool] == listed {
                    server.approved[tool] = Some(listed);
                    server.blocked[tool] = false;
                }
            });
        }
        is_done
    }

    /// Says annotations of what is listed anew, when it is certain what that is.
    async fn say(&mut self, api: &Api, server: usize, tool: usize, worse: bool) -> bool {
        let Some((listed, pin)) = self.looked_at(api, server, tool).await else { return false };
        let annotations = json!({"readOnlyHint": !worse, "destructiveHint": worse});
        let body = json!({"pin": pin, "annotations": annotations});
        let is_done = decide(api, Method::PUT, server, tool, "override", Some(&body)).await;
        if is_done {
            let said = if worse { Said::Worse } else { Said::Harmless(listed) };
            self.world.happens(server, |server| server.said[tool] = Some(said));
        }
        is_done
    }

    /// The version of a tool that is listed, with its pin, when it is certain what that is.
    async fn looked_at(&self, api: &Api, server: usize, tool: usize) -> Option<(u8, Value)> {
        let listed = self.world.any(server).listed[tool];
        if listed == 0 || !self.world.is_sure_of(server) {
            return None;
        }
        let shown = api.items(&format!("/api/v1/servers/{}/tools", name_of(server))).await;
        let shown = shown.into_iter().find(|shown| shown["name"] == format!("tool{tool}").as_str())?;
        // it may be listed meanwhile
        let is_it = shown["definition"]["description"] == format!("A lamp, version {listed}").as_str();
        is_it.then(|| (listed, shown["pin"].clone()))
    }

    /// Looks through every door of a replica. Until `deadline` it may show what was before.
    async fn look(&mut self, gateway: &Gateway, deadline: Option<Instant>) -> Result<(), TestCaseError> {
        let agent = gateway.ask_as(&self.agent);
        let (direct, search) = (Mcp::modern(&agent).at(DIRECT), Mcp::bare(&agent));
        let reader = Mcp::modern(&gateway.ask_as(&self.reader)).at(DIRECT);
        for (door, ceiling) in
            [("list", Ceiling::All), ("search", Ceiling::All), ("a reader's list", Ceiling::Read)]
        {
            loop {
                let seen = match door {
                    "list" => listed(&direct).await,
                    "search" => found(&search).await,
                    _ => listed(&reader).await,
                };
                if self.world.sees(ceiling, &seen) {
                    break;
                }
                if deadline.is_none_or(|deadline| Instant::now() > deadline) {
                    let expected = self.world.expected(ceiling);
                    return Err(TestCaseError::fail(format!(
                        "{door} shows {seen:?} instead of any of {expected:?}"
                    )));
                }
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        }
        let narrow = listed(&Mcp::modern(&gateway.ask_as(&self.narrow)).at(DIRECT)).await;
        for (server, tool) in narrow {
            if server != 0 || !self.world.may_show(server, tool) {
                return Err(TestCaseError::fail(format!("a narrow key sees {server}:{tool}")));
            }
        }
        for (server, tool) in (0..SERVERS).flat_map(|server| (0..TOOLS).map(move |tool| (server, tool))) {
            if self.world.may_show(server, tool) {
                continue;
            }
            let name = format!("{}:tool{tool}", name_of(server));
            let calls = || self.upstreams[server].iter().map(|place| place.counts().calls).sum::<usize>();
            let before = calls();
            for outcome in [
                search.run("read", &name, &json!({})).await,
                Mcp::direct(&agent).call(&name, &json!({})).await,
            ] {
                let ran = calls() > before;
                if (outcome.code() == "ok" || ran) && !self.world.may_show(server, tool) {
                    return Err(TestCaseError::fail(format!("{name} was called: {}", outcome.code())));
                }
            }
        }
        Ok(())
    }
}

/// Decides something about a tool; `false` where it is not there, or not what was looked at.
async fn decide(
    api: &Api,
    method: Method,
    server: usize,
    tool: usize,
    verb: &str,
    body: Option<&Value>,
) -> bool {
    let path = format!("/api/v1/servers/{}/tools/tool{tool}/{verb}", name_of(server));
    let answer = api.ask(method, &path, body).await;
    assert!(matches!(answer.status, 200 | 404 | 409), "{path}: {answer:?}");
    answer.status == 200
}

fn places<'a>(names: impl Iterator<Item = &'a Value>) -> BTreeSet<(usize, usize)> {
    let place = |name: &Value| {
        let (server, tool) = name.as_str()?.split_once(":tool")?;
        Some(((0..SERVERS).find(|at| name_of(*at) == server)?, tool.parse().ok()?))
    };
    names.filter_map(place).collect()
}

async fn listed(client: &Mcp) -> BTreeSet<(usize, usize)> {
    places(client.tools().await.iter().map(|tool| &tool["name"]))
}

async fn found(client: &Mcp) -> BTreeSet<(usize, usize)> {
    let found = client.search(&json!({"query": "lamp version", "limit": 50})).await;
    places(found["tools"].as_array().unwrap().iter().map(|tool| &tool["name"]))
}

async fn run(replicas: &mut Replicas, name: &str, history: &History) -> Result<(), TestCaseError> {
    let mut scene = Scene::set(replicas, name).await;
    for (step, (act, on)) in history.iter().enumerate() {
        if !scene.act(replicas, act, *on).await {
            continue;
        }
        let why = |error: TestCaseError| {
            TestCaseError::fail(format!("after step {step}, {act:?} on {on}: {error}"))
        };
        // who answered has applied it; the other follows
        let deadline = Instant::now() + SOON;
        scene.look(replicas.at(*on), None).await.map_err(why)?;
        scene.look(replicas.at(1 - *on), Some(deadline)).await.map_err(why)?;
    }
    Ok(())
}

#[test]
fn nothing_is_shown_that_must_not_be() {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    let replicas = runtime.block_on(async {
        let stage = Stage::with(&SETTINGS).await;
        let second = Gateway::start(&stage.database, &SETTINGS).await;
        Replicas { stage, second }
    });
    let (replicas, tenants) = (std::cell::RefCell::new(replicas), std::cell::Cell::new(0));
    let cases = match Config::default().cases {
        CASES_UNASKED => HISTORIES,
        asked => asked,
    };
    let config =
        Config { cases, max_shrink_iters: SHRINKS_MAX, failure_persistence: None, ..Config::default() };
    let outcome = TestRunner::new(config).run(&history(), |history| {
        // a tenant of its own for each, also for those that are tried because one has failed
        tenants.set(tenants.get() + 1);
        let name = format!("history-{}", tenants.get());
        runtime.block_on(run(&mut replicas.borrow_mut(), &name, &history))
    });
    // within the runtime, where servers are stopped
    let _entered = runtime.enter();
    drop(replicas);
    match outcome {
        Ok(()) => {}
        Err(TestError::Fail(why, history)) => panic!("{why}\n{history:#?}"),
        Err(TestError::Abort(why)) => panic!("{why}"),
    }
}
