//! The streams on which the server announces that what it offers has changed.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

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

#[derive(Debug)]
pub(super) struct Announcer {
    is_on: AtomicBool,
    told: broadcast::Sender<(&'static str, usize)>,
    listeners: Arc<AtomicUsize>,
}

impl Default for Announcer {
    fn default() -> Announcer {
        let told = broadcast::Sender::new(WAITING_MAX);
        Announcer { is_on: AtomicBool::new(false), told, listeners: Arc::default() }
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
        drop(self.told.send((what, times)));
    }

    pub(super) fn listeners(&self) -> usize {
        self.listeners.load(Ordering::SeqCst)
    }

    /// What `initialize` and `server/discover` say.
    pub(super) fn capabilities(&self, offers: &Offers) -> String {
        let listed = if self.is_on() { r#"{"listChanged":true}"# } else { "{}" };
        let mut out = format!(r#"{{"tools":{listed}"#);
        for what in offers.kinds() {
            out.push_str(&format!(r#","{what}":{listed}"#));
        }
        out.push_str(if offers.completes { r#","completions":{}}"# } else { "}" });
        out
    }

    /// The stream of a session.
    pub(super) fn session_stream(&self) -> Response<Body> {
        self.stream(": here\n\n".to_owned(), String::new())
    }

    /// The answer to `subscriptions/listen` with this id.
    pub(super) fn subscription(&self, id: &str, offers: &Offers) -> Response<Body> {
        let meta = format!(r#""_meta":{{"io.modelcontextprotocol/subscriptionId":{id}}}"#);
        let more: String = offers.kinds().map(|what| format!(r#","{what}ListChanged":true"#)).collect();
        let acknowledged = format!(
            r#"{{"jsonrpc":"2.0","method":"notifications/subscriptions/acknowledged","params":{{{meta},"notifications":{{"toolsListChanged":true{more}}}}}}}"#
        );
        self.stream(format!("data: {acknowledged}\n\n"), format!(r#","params":{{{meta}}}"#))
    }

    fn stream(&self, first: String, params: String) -> Response<Body> {
        let open = Open::new(&self.listeners);
        let events =
            stream::unfold((Some(first), self.told.subscribe(), open), move |(first, mut told, open)| {
                let params = params.clone();
                async move {
                    let text = match first {
                        Some(first) => first,
                        None => loop {
                            match told.recv().await {
                                Ok((what, times)) => break notice(what, &params).repeat(times),
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

fn notice(what: &str, params: &str) -> String {
    let method = format!("notifications/{what}/list_changed");
    format!("event: message\ndata: {{\"jsonrpc\":\"2.0\",\"method\":\"{method}\"{params}}}\n\n")
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
