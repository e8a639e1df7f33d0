//! The streams on which the server announces that what it offers has changed.

use std::collections::HashSet;
use std::convert::Infallible;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use futures_util::stream;
use http::Response;
use http_body::Frame;
use http_body_util::{BodyExt, StreamBody};
use tokio::sync::broadcast;

use super::offers::Offers;
use super::serve::Body;

/// Announcements that may wait for a stream.
const WAITING_MAX: usize = 64;

/// What is announced.
#[derive(Clone, Debug)]
enum Announced {
    /// A changed list, so many times.
    List(&'static str, usize),
    /// An updated resource.
    Resource(String),
}

#[derive(Debug)]
pub(super) struct Announcer {
    is_on: AtomicBool,
    told: broadcast::Sender<Announced>,
    /// Resources that sessions are subscribed to.
    subscribed: Arc<Mutex<HashSet<String>>>,
    listeners: Arc<AtomicUsize>,
}

impl Default for Announcer {
    fn default() -> Announcer {
        let told = broadcast::Sender::new(WAITING_MAX);
        Announcer {
            is_on: AtomicBool::new(false),
            told,
            subscribed: Arc::default(),
            listeners: Arc::default(),
        }
    }
}

impl Announcer {
    pub(super) fn switch_on(&self) {
        self.is_on.store(true, Ordering::SeqCst);
    }

    pub(super) fn is_on(&self) -> bool {
        self.is_on.load(Ordering::SeqCst)
    }

    /// Announces a change of `tools`, `prompts` or `resources`.
    pub(super) fn announce(&self, what: &'static str, times: usize) {
        // nobody may be listening
        drop(self.told.send(Announced::List(what, times)));
    }

    /// Announces an update of a resource to those who asked for it.
    pub(super) fn update(&self, uri: &str) {
        drop(self.told.send(Announced::Resource(uri.to_owned())));
    }

    /// Resources that sessions are subscribed to now.
    pub(super) fn subscribed(&self) -> Vec<String> {
        let mut uris: Vec<String> = self.subscribed.lock().unwrap().iter().cloned().collect();
        uris.sort();
        uris
    }

    /// Notes `resources/subscribe` or `resources/unsubscribe`.
    pub(super) fn note(&self, method: &str, params: &str) {
        let params: serde_json::Value = serde_json::from_str(params).unwrap();
        let uri = params["uri"].as_str().unwrap().to_owned();
        let mut subscribed = self.subscribed.lock().unwrap();
        if method == "resources/subscribe" {
            subscribed.insert(uri)
        } else {
            subscribed.remove(&uri)
        };
    }

    pub(super) fn listeners(&self) -> usize {
        self.listeners.load(Ordering::SeqCst)
    }

    /// What `initialize` and `server/discover` say.
    pub(super) fn capabilities(&self, offers: &Offers) -> String {
        let listed = if self.is_on() { r#"{"listChanged":true}"# } else { "{}" };
        let mut out = format!(r#"{{"tools":{listed}"#);
        for what in offers.kinds() {
            let listed = match what {
                "resources" if offers.subscribable => r#"{"listChanged":true,"subscribe":true}"#,
                _ => listed,
            };
            out.push_str(&format!(r#","{what}":{listed}"#));
        }
        out.push_str(if offers.completes { r#","completions":{}}"# } else { "}" });
        out
    }

    /// The stream of a session.
    pub(super) fn session_stream(&self) -> Response<Body> {
        self.stream(": here\n\n".to_owned(), String::new(), Arc::clone(&self.subscribed))
    }

    /// The answer to `subscriptions/listen` with this id.
    pub(super) fn subscription(&self, id: &str, params: &str, offers: &Offers) -> Response<Body> {
        let asked: serde_json::Value = serde_json::from_str(params).unwrap();
        let asked = &asked["notifications"];
        let uris: HashSet<String> =
            serde_json::from_value(asked["resourceSubscriptions"].clone()).unwrap_or_default();
        let meta = format!(r#""_meta":{{"io.modelcontextprotocol/subscriptionId":{id}}}"#);
        let mut honoured = serde_json::Map::new();
        for what in ["tools"].into_iter().chain(offers.kinds()).map(|what| format!("{what}ListChanged")) {
            if asked[&what] == true {
                honoured.insert(what, true.into());
            }
        }
        if offers.subscribable && !uris.is_empty() {
            honoured.insert("resourceSubscriptions".to_owned(), uris.iter().cloned().collect());
        }
        let honoured = serde_json::Value::from(honoured);
        let acknowledged = format!(
            r#"{{"jsonrpc":"2.0","method":"notifications/subscriptions/acknowledged","params":{{{meta},"notifications":{honoured}}}}}"#
        );
        self.stream(format!("data: {acknowledged}\n\n"), meta, Arc::new(Mutex::new(uris)))
    }

    fn stream(&self, first: String, meta: String, wanted: Arc<Mutex<HashSet<String>>>) -> Response<Body> {
        let open = Open::new(&self.listeners);
        let events =
            stream::unfold((Some(first), self.told.subscribe(), open), move |(first, mut told, open)| {
                let (meta, wanted) = (meta.clone(), Arc::clone(&wanted));
                async move {
                    let text = match first {
                        Some(first) => first,
                        None => loop {
                            match told.recv().await {
                                Ok(Announced::List(what, times)) => break notice(what, &meta).repeat(times),
                                Ok(Announced::Resource(uri)) if wanted.lock().unwrap().contains(&uri) => {
                                    break updated(&uri, &meta);
                                }
                                Ok(Announced::Resource(_)) => {}
                                Err(broadcast::error::RecvError::Lagged(_)) => {}
                                Err(broadcast::error::RecvError::Closed) => return None,
                            }
                        },
                    };
                    Some((Ok::<_, Infallible>(Frame::data(Bytes::from(text))), (None, told, open)))
                }
            });
        let response = Response::builder().header("content-type", "text/event-stream");
        response.body(StreamBody::new(events).boxed_unsync()).unwrap()
    }
}

fn notice(what: &str, meta: &str) -> String {
    let method = format!("notifications/{what}/list_changed");
    let params = if meta.is_empty() { String::new() } else { format!(r#","params":{{{meta}}}"#) };
    format!("event: message\ndata: {{\"jsonrpc\":\"2.0\",\"method\":\"{method}\"{params}}}\n\n")
}

fn updated(uri: &str, meta: &str) -> String {
    let comma = if meta.is_empty() { "" } else { "," };
    let params = format!(r#"{{{meta}{comma}"uri":{}}}"#, serde_json::json!(uri));
    format!(
        "event: message\ndata: {{\"jsonrpc\":\"2.0\",\"method\":\"notifications/resources/updated\",\"params\":{params}}}\n\n"
    )
}

/// Counts one stream while it is open.
struct Open(Arc<AtomicUsize>);

impl Open {
    fn new(count: &Arc<AtomicUsize>) -> Open {
        count.fetch_add(1, Ordering::SeqCst);
        Open(Arc::clone(count))
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}
