//! Agents that call while replicas come and go, and retry as the protocol says.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tokio::task::JoinHandle;

use crate::support::{Api, DIRECT, Database, Gateway, Mcp, Upstream, eventually, settle};

/// Longest that one item is tried for; then it has failed.
const ITEM_MAX: Duration = Duration::from_secs(30);
/// A write without a record by then never ran: the gateway commits the record within 10 s, or refuses the call.
const RECORD_MAX: Duration = Duration::from_secs(15);
/// Time within which items are done through each replica.
const PROCEEDS: Duration = Duration::from_secs(60);
/// Codes of refusals that say: nothing ran, come back.
const NOT_RUN: [&str; 4] = ["overloaded", "rate_limited", "record_unavailable", "server_unavailable"];

/// Request of one item.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Write,
    /// A write that is still running when a drain begins.
    Long,
    Read,
    DirectWrite,
    Prompt,
    Resource,
}

/// Requests of an agent, one after the other. Every drain meets some of `LONG`.
const MIXED: &[Kind] =
    &[Kind::Write, Kind::Prompt, Kind::Read, Kind::Resource, Kind::DirectWrite, Kind::Read, Kind::Write];
const LONG: &[Kind] = &[Kind::Long];

impl Kind {
    fn path(self) -> &'static str {
        match self {
            Kind::Write | Kind::Long | Kind::Read => "/mcp",
            Kind::DirectWrite | Kind::Prompt | Kind::Resource => DIRECT,
        }
    }

    fn writes(self) -> bool {
        matches!(self, Kind::Write | Kind::Long | Kind::DirectWrite)
    }

    /// Returns the method, and raw params that carry the id of the attempt where they can carry any.
    fn request(self, server: &str, attempt: &str, item: &str) -> (&'static str, String) {
        let ticket = json!({"ticket": attempt, "item": item});
        let run = |variant: &str, tool: &str| {
            let arguments = json!({"name": format!("{server}:{tool}"), "args": ticket});
            json!({"name": format!("call_tool_{variant}"), "arguments": arguments})
        };
        let (method, params) = match self {
            Kind::Write => ("tools/call", run("write", "put")),
            Kind::Long => ("tools/call", run("write", "long")),
            Kind::Read => ("tools/call", run("read", "look")),
            Kind::DirectWrite => {
                ("tools/call", json!({"name": format!("{server}:put"), "arguments": ticket}))
            }
            Kind::Prompt => ("prompts/get", json!({"name": format!("{server}:one"), "arguments": ticket})),
            Kind::Resource => ("resources/read", json!({"uri": format!("{server}://one")})),
        };
        (method, params.to_string())
    }
}

/// End of an attempt, as its client knows it.
enum End {
    Done,
    /// Nothing ran: to be tried again.
    NotRun(String),
    /// The connection broke: it may have run.
    Lost(String),
}

struct Shared {
    /// Base URLs of the replicas, as a load balancer knows them.
    replicas: Mutex<Vec<String>>,
    /// The platform operator, acting as the tenant's admin.
    platform: Api,
    agent: Api,
    /// Number of the next item or attempt.
    next: AtomicUsize,
    /// Position of the next attempt's replica.
    turn: AtomicUsize,
    stops: AtomicBool,
    /// Items done, by the replica that answered.
    done: Mutex<HashMap<String, usize>>,
    /// Attempts that were answered with success, with their kind.
    answered: Mutex<Vec<(String, Kind)>>,
    /// Attempts whose connection broke.
    lost: Mutex<Vec<String>>,
    /// Reasons for further attempts, and how many there were.
    met: Mutex<BTreeMap<String, usize>>,
}

/// One client, which keeps its sessions from one replica to the next.
struct Client {
    shared: Arc<Shared>,
    server: &'static str,
    is_modern: bool,
    /// Ids of the sessions, by path.
    sessions: HashMap<&'static str, String>,
}

/// Agents that are running.
pub struct Load {
    shared: Arc<Shared>,
    tasks: Vec<JoinHandle<()>>,
}

impl Load {
    /// Starts agents of both eras that call these servers through these replicas.
    pub fn start(replicas: &[&Gateway], platform: &Api, agent: &Api, servers: &[&'static str]) -> Load {
        let shared = Arc::new(Shared {
            replicas: Mutex::new(replicas.iter().map(|gateway| gateway.url.clone()).collect()),
            platform: platform.clone(),
            agent: agent.clone(),
            next: AtomicUsize::new(0),
            turn: AtomicUsize::new(0),
            stops: AtomicBool::new(false),
            done: Mutex::default(),
            answered: Mutex::default(),
            lost: Mutex::default(),
            met: Mutex::default(),
        });
        let mut tasks = Vec::new();
        for &server in servers {
            for is_modern in [true, false] {
                for kinds in [MIXED, LONG] {
                    let shared = Arc::clone(&shared);
                    let client = Client { shared, server, is_modern, sessions: HashMap::new() };
                    tasks.push(tokio::spawn(client.work(kinds)));
                }
            }
        }
        Load { shared, tasks }
    }

    /// Sends attempts to these replicas alone from now on.
    pub fn use_replicas(&self, replicas: &[&Gateway]) {
        *self.shared.replicas.lock().unwrap() = replicas.iter().map(|gateway| gateway.url.clone()).collect();
    }

    /// Waits until each of these replicas has done that many items more.
    pub async fn proceeds(&self, replicas: &[&Gateway], items: usize) {
        let done = |gateway: &&Gateway| {
            self.shared.done.lock().unwrap().get(&gateway.url).copied().unwrap_or_default()
        };
        let before: Vec<usize> = replicas.iter().map(done).collect();
        settle(true, PROCEEDS, || {
            self.fail_if_failed();
            let is_there = replicas.iter().map(done).zip(&before).all(|(now, before)| now >= before + items);
            async move { is_there }
        })
        .await;
    }

    fn fail_if_failed(&self) {
        assert!(!self.tasks.iter().any(JoinHandle::is_finished), "an agent failed: see above");
    }

    /// Lets the agents end their items, and holds what they got and what the servers did against the log.
    pub async fn account(self, database: &Database, upstreams: &[&Upstream]) -> Value {
        self.fail_if_failed();
        self.shared.stops.store(true, Ordering::SeqCst);
        for task in self.tasks {
            task.await.unwrap();
        }
        let open = || async { database.count("select count(*) from activity_open").await };
        settle(0, Duration::from_secs(60), open).await;
        let records: Vec<(String, String)> = sqlx::query_as(
            "select request_id, status from activity where request_id like 'attempt-%' and type <> 'late_outcome'",
        )
        .fetch_all(&mut database.connect().await)
        .await
        .unwrap();
        let mut recorded: HashMap<&str, Vec<&str>> = HashMap::new();
        for (id, status) in &records {
            recorded.entry(id).or_default().push(status);
        }
        let twice: Vec<_> = recorded.iter().filter(|(_, all)| all.len() > 1).collect();
        assert!(twice.is_empty(), "recorded twice: {twice:?}");

        let answered = std::mem::take(&mut *self.shared.answered.lock().unwrap());
        let is_recorded = |id: &str| recorded.get(id).is_some_and(|all| all[0] == "success");
        let unrecorded: Vec<_> = answered.iter().filter(|(id, _)| !is_recorded(id)).collect();
        assert!(unrecorded.is_empty(), "answered without a record of success: {unrecorded:?}");

        let lost = std::mem::take(&mut *self.shared.lost.lock().unwrap());
        let cut: Vec<_> = lost.iter().filter(|id| recorded.contains_key(id.as_str())).collect();
        assert!(cut.is_empty(), "a drain lost the answers of calls that were under way: {cut:?}");

        let (mut attempts, mut written) = (HashSet::new(), HashSet::new());
        for (arguments, writes) in upstreams.iter().flat_map(|upstream| ran(upstream)) {
            let text = |name: &str| arguments[name].as_str().unwrap_or_default().to_owned();
            let (attempt, item) = (text("ticket"), text("item"));
            if !attempt.starts_with("attempt-") {
                continue;
            }
            assert!(recorded.contains_key(&*attempt), "{attempt} of {item} ran without a record");
            assert!(attempts.insert(attempt.clone()), "{attempt} was sent twice");
            assert!(!writes || written.insert(item.clone()), "{item} was written twice");
        }
        let writes = answered.iter().filter(|(_, kind)| kind.writes()).count();
        assert!(written.len() >= writes && writes > 0, "{writes} written, {} at the servers", written.len());
        json!({"answered": answered.len(), "writes": writes, "records": records.len(), "ran": attempts.len(),
            "met": *self.shared.met.lock().unwrap()})
    }
}

/// Returns arguments of every call and prompt that a server got, and whether it was a write.
fn ran(upstream: &Upstream) -> Vec<(Value, bool)> {
    let calls = upstream.calls().into_iter().map(|call| (call.arguments, call.tool != "look"));
    let calls = calls.map(|(raw, writes)| (serde_json::from_str(&raw).unwrap_or_default(), writes));
    let asked = upstream.asked().into_iter().filter(|(method, _)| method == "prompts/get");
    let asked = asked.map(|(_, raw)| serde_json::from_str::<Value>(&raw).unwrap()["arguments"].clone());
    calls.chain(asked.map(|arguments| (arguments, false))).collect()
}

impl Client {
    async fn work(mut self, kinds: &'static [Kind]) {
        for kind in kinds.iter().cycle() {
            if self.shared.stops.load(Ordering::SeqCst) {
                return;
            }
            let number = self.shared.next.fetch_add(1, Ordering::Relaxed);
            let item = format!("item-{number}-{}", self.server);
            let began = Instant::now();
            while !self.tries(*kind, &item).await {
                assert!(began.elapsed() < ITEM_MAX, "{kind:?} {item} was not done: {:?}", self.shared.met);
                tokio::task::yield_now().await;
            }
        }
    }

    /// Returns true if the item is done.
    async fn tries(&mut self, kind: Kind, item: &str) -> bool {
        let number = self.shared.next.fetch_add(1, Ordering::Relaxed);
        let url = {
            let replicas = self.shared.replicas.lock().unwrap();
            replicas[self.shared.turn.fetch_add(1, Ordering::Relaxed) % replicas.len()].clone()
        };
        let attempt = format!("attempt-{number}");
        let end = match self.client(&url, kind.path()).await {
            Ok(client) => self.ask(&client, kind, &attempt, item).await,
            Err(why) => End::NotRun(why),
        };
        match end {
            End::Done => {
                self.shared.answered.lock().unwrap().push((attempt, kind));
                *self.shared.done.lock().unwrap().entry(url).or_default() += 1;
                true
            }
            End::NotRun(why) => {
                self.meets(&why);
                false
            }
            End::Lost(why) => {
                self.meets(&why);
                self.shared.lost.lock().unwrap().push(attempt.clone());
                kind.writes() && self.is_on_record(&attempt).await
            }
        }
    }

    fn meets(&self, what: &str) {
        *self.shared.met.lock().unwrap().entry(what.to_owned()).or_default() += 1;
    }

    /// Returns a client of this replica, in the session that was opened before, at whichever replica.
    async fn client(&mut self, url: &str, path: &'static str) -> Result<Mcp, String> {
        let api = self.shared.agent.at(url);
        if self.is_modern {
            return Ok(Mcp::modern(&api).at(path));
        }
        if let Some(id) = self.sessions.get(path) {
            return Ok(Mcp::in_session(&api, id).at(path));
        }
        let hello = json!({"protocolVersion": "2025-11-25", "capabilities": {},
            "clientInfo": {"name": "it-client", "version": "1.2.3"}});
        let answer = Mcp::bare(&api).at(path).request("initialize", &hello.to_string()).await;
        let id = answer.header("mcp-session-id").to_owned();
        if answer.status != 200 || id.is_empty() {
            return Err(format!("initialize {}", answer.status));
        }
        self.sessions.insert(path, id.clone());
        Ok(Mcp::in_session(&api, &id).at(path))
    }

    async fn ask(&mut self, client: &Mcp, kind: Kind, attempt: &str, item: &str) -> End {
        let (method, params) = kind.request(self.server, attempt, item);
        let sent = client.unsent(&format!("\"{attempt}\""), method, &params).send().await;
        let response = match sent {
            Ok(response) => response,
            Err(error) if error.is_connect() => return End::NotRun("connection refused".to_owned()),
            Err(_) => return End::Lost("connection lost".to_owned()),
        };
        let status = response.status().as_u16();
        match status {
            404 if !self.is_modern => {
                self.sessions.remove(kind.path());
                return End::NotRun("session 404".to_owned());
            }
            429 | 503 => return End::NotRun(format!("status {status}")),
            _ => {}
        }
        let Ok(text) = response.text().await else { return End::Lost("answer lost".to_owned()) };
        let data = text.lines().filter_map(|line| line.strip_prefix("data:")).next_back().unwrap_or(&text);
        let message: Value = serde_json::from_str(data).unwrap_or_default();
        let (result, error) = (&message["result"], &message["error"]);
        let code = result["structuredContent"]["code"].as_str().or_else(|| error["data"]["code"].as_str());
        match code {
            None if result.is_object() && result["isError"] != true => {
                let is_own = kind == Kind::Resource || text.contains(item);
                assert!(is_own, "another's answer to {item}: {text}");
                End::Done
            }
            Some(code) if NOT_RUN.contains(&code) => End::NotRun(code.to_owned()),
            _ => panic!("{kind:?} {item} failed at {}: {status} {text}", client.api.base_url()),
        }
    }

    /// Waits until the log says what became of a write whose answer was lost. Returns true if it ran.
    async fn is_on_record(&self, attempt: &str) -> bool {
        let began = Instant::now();
        let path = format!("/api/v1/activity?request_id={attempt}");
        eventually("the record of a lost write", ITEM_MAX, || async {
            let url = self.shared.replicas.lock().unwrap()[0].clone();
            let answer = self.shared.platform.at(&url).get(&path).await;
            let body = answer.json();
            match body["items"][0]["status"].as_str() {
                Some("success") => Some(true),
                Some("blocked" | "rejected") => Some(false),
                Some("pending") => None,
                Some(status) => panic!("the record of {attempt} says {status}"),
                None if answer.status == 200 && began.elapsed() > RECORD_MAX => Some(false),
                None => None,
            }
        })
        .await
    }
}
