//! An MCP server on loopback that does what a test tells it to, and keeps its own log of what it was asked.

mod announce;
mod guard;
mod offers;
mod serve;
mod talk;
mod tool;

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::Value;
use tokio::net::TcpListener;
use tokio::sync::watch;

use self::announce::Announcer;
use self::guard::Guard;
pub use self::offers::Offers;
pub use self::talk::Talk;
pub use self::tool::{Say, Tool, zoo};
use super::place::Place;
use super::wait::settle;

/// Which eras it speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Era {
    Handshake,
    Modern,
}

/// In what form it answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    Json,
    Events,
}

/// One `tools/call` as it arrived.
#[derive(Clone, Debug)]
pub struct Call {
    pub tool: String,
    /// The arguments, byte for byte; "" when there were none.
    pub arguments: String,
    /// The whole of `params`, byte for byte.
    pub params: String,
    /// The raw id of the request.
    pub id: String,
    pub headers: HashMap<String, String>,
}

impl Call {
    /// The argument `ticket`, or "".
    pub fn ticket(&self) -> String {
        let arguments: Value = serde_json::from_str(&self.arguments).unwrap_or_default();
        arguments["ticket"].as_str().unwrap_or_default().to_owned()
    }
}

/// How often it was asked what.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Counts {
    pub calls: usize,
    pub lists: usize,
    /// Requests for a stream of announcements, be it in vain, with the discovery before each.
    pub listens: usize,
    pub initializes: usize,
    pub accepts: usize,
    /// Requests of any kind.
    pub requests: usize,
}

#[derive(Debug)]
struct State {
    era: Era,
    form: Form,
    tools: Mutex<Vec<Tool>>,
    calls: Mutex<Vec<Call>>,
    heads: Mutex<Vec<HashMap<String, String>>>,
    lists: AtomicUsize,
    /// Lists that are asked for wait while this is true.
    lists_wait: watch::Sender<bool>,
    listens: AtomicUsize,
    initializes: AtomicUsize,
    accepts: AtomicUsize,
    /// Connections that are open now.
    open: AtomicUsize,
    requests: AtomicUsize,
    /// Sessions opened before this many are unknown.
    oldest_session: AtomicUsize,
    /// Raw bodies of notifications.
    notifications: Mutex<Vec<String>>,
    /// Calls whose connection was closed before they were answered.
    abandoned: AtomicUsize,
    announcer: Announcer,
    guard: Guard,
    offers: Mutex<Offers>,
    /// What was asked of them: method and raw params.
    asked: Mutex<Vec<(String, String)>>,
    /// Raw replies to questions.
    replies: watch::Sender<Vec<String>>,
}

/// The running server; stops when dropped.
#[derive(Debug)]
pub struct Upstream {
    pub url: String,
    address: SocketAddr,
    state: Arc<State>,
    task: tokio::task::JoinHandle<()>,
    /// Port of the server while it is down.
    place: Option<Place>,
}

impl Upstream {
    /// Speaks the handshake revisions, answers in JSON.
    pub async fn handshake(tools: Vec<Tool>) -> Upstream {
        Upstream::start(Era::Handshake, Form::Json, tools).await
    }

    /// Speaks revision 2026-07-28, answers in JSON.
    pub async fn modern(tools: Vec<Tool>) -> Upstream {
        Upstream::start(Era::Modern, Form::Json, tools).await
    }

    pub async fn start(era: Era, form: Form, tools: Vec<Tool>) -> Upstream {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address: SocketAddr = listener.local_addr().unwrap();
        let state = Arc::new(State {
            era,
            form,
            tools: Mutex::new(tools),
            calls: Mutex::default(),
            heads: Mutex::default(),
            lists: AtomicUsize::new(0),
            lists_wait: watch::Sender::new(false),
            listens: AtomicUsize::new(0),
            initializes: AtomicUsize::new(0),
            accepts: AtomicUsize::new(0),
            open: AtomicUsize::new(0),
            requests: AtomicUsize::new(0),
            oldest_session: AtomicUsize::new(0),
            notifications: Mutex::default(),
            abandoned: AtomicUsize::new(0),
            announcer: Announcer::default(),
            guard: Guard::default(),
            offers: Mutex::default(),
            asked: Mutex::default(),
            replies: watch::Sender::default(),
        });
        let task = tokio::spawn(serve::run(listener, Arc::clone(&state)));
        Upstream { url: format!("http://{address}/mcp"), address, state, task, place: None }
    }

    /// The same, and says that it announces changes of its tools.
    pub async fn announcing(era: Era, tools: Vec<Tool>) -> Upstream {
        let upstream = Upstream::start(era, Form::Json, tools).await;
        upstream.state.announcer.switch_on();
        upstream
    }

    /// Announces, so many times, that its tools have changed.
    pub fn announce(&self, times: usize) {
        self.state.announcer.announce("tools", times);
    }

    /// Announces once that `prompts` or `resources` have changed.
    pub fn announce_of(&self, what: &'static str) {
        self.state.announcer.announce(what, 1);
    }

    /// Announces an update of a resource to those who asked for it.
    pub fn update(&self, uri: &str) {
        self.state.announcer.update(uri);
    }

    /// Resources that sessions are subscribed to now.
    pub fn subscribed(&self) -> Vec<String> {
        self.state.announcer.subscribed()
    }

    /// Prompts and resources from now on. What it declares is told to those who ask from then on.
    pub fn set_offers(&self, offers: Offers) {
        *self.state.offers.lock().unwrap() = offers;
    }

    /// What was asked of prompts and resources so far, lists as well: method and raw params.
    pub fn asked(&self) -> Vec<(String, String)> {
        self.state.asked.lock().unwrap().clone()
    }

    /// How often it was asked this.
    pub fn asked_of(&self, method: &str) -> usize {
        self.asked().iter().filter(|(asked, _)| asked == method).count()
    }

    /// Streams that are open for its announcements now.
    pub fn listeners(&self) -> usize {
        self.state.announcer.listeners()
    }

    /// Connections that are open now.
    pub fn connections(&self) -> usize {
        self.state.open.load(Ordering::SeqCst)
    }

    /// Its tools from now on.
    pub fn set_tools(&self, tools: Vec<Tool>) {
        *self.state.tools.lock().unwrap() = tools;
    }

    /// From now on lists of its tools wait, as they are when they are asked for.
    pub fn hold_lists(&self) {
        self.state.lists_wait.send_replace(true);
    }

    /// Answers lists that wait, and those to come.
    pub fn release_lists(&self) {
        self.state.lists_wait.send_replace(false);
    }

    /// Every call so far.
    pub fn calls(&self) -> Vec<Call> {
        self.state.calls.lock().unwrap().clone()
    }

    /// Value of a header (or `:path`) in every request so far; "" where it was absent.
    pub fn sent(&self, header: &str) -> Vec<String> {
        let heads = self.state.heads.lock().unwrap();
        heads.iter().map(|head| head.get(header).cloned().unwrap_or_default()).collect()
    }

    /// The `ticket` of every call so far.
    pub fn tickets(&self) -> Vec<String> {
        self.state.calls.lock().unwrap().iter().map(Call::ticket).collect()
    }

    /// The replies to its questions so far, raw.
    pub fn replies(&self) -> Vec<String> {
        self.state.replies.borrow().clone()
    }

    /// The notifications of this method so far, raw.
    pub fn notifications(&self, method: &str) -> Vec<String> {
        let all = self.state.notifications.lock().unwrap();
        all.iter().filter(|body| body.contains(&format!("\"{method}\""))).cloned().collect()
    }

    /// Calls whose connection was closed before they were answered.
    pub fn abandoned(&self) -> usize {
        self.state.abandoned.load(Ordering::SeqCst)
    }

    pub fn counts(&self) -> Counts {
        let of = |counter: &AtomicUsize| counter.load(Ordering::SeqCst);
        Counts {
            calls: self.state.calls.lock().unwrap().len(),
            lists: of(&self.state.lists),
            listens: of(&self.state.listens),
            initializes: of(&self.state.initializes),
            accepts: of(&self.state.accepts),
            requests: of(&self.state.requests),
        }
    }

    /// Forgets every session.
    pub fn expire_sessions(&self) {
        let opened = self.state.initializes.load(Ordering::SeqCst);
        self.state.oldest_session.store(opened, Ordering::SeqCst);
    }

    /// Takes requests with these bearer tokens alone from now on; the others get a challenge.
    pub fn guard(&self, accepts: impl Fn(&str) -> bool + Send + Sync + 'static) {
        self.state.guard.set(Box::new(accepts));
    }

    /// Names this issuer in its metadata, and the metadata in its challenges.
    pub fn name_issuer(&self, issuer: &str) {
        self.state.guard.name_issuer(&self.url, issuer);
    }

    /// Takes requests with tokens that have this scope alone from now on.
    pub fn want_scope(&self, scope: &str, has: impl Fn(&str) -> bool + Send + Sync + 'static) {
        self.state.guard.want(scope, Box::new(has));
    }

    /// Requests that got a challenge.
    pub fn challenged(&self) -> usize {
        self.state.guard.challenged()
    }

    /// Ends every connection, and takes no more.
    pub async fn go_down(&mut self) {
        self.task.abort();
        settle(true, Duration::from_secs(5), || async { self.task.is_finished() }).await;
        self.place = Some(Place::hold(self.address));
    }

    /// Takes connections again, at the same address.
    pub async fn come_back(&mut self) {
        let place = self.place.take().expect("it went down before");
        self.task = tokio::spawn(serve::run(place.listen(), Arc::clone(&self.state)));
    }
}

impl Drop for Upstream {
    fn drop(&mut self) {
        self.task.abort();
    }
}
