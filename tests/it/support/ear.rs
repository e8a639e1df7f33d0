//! A client that listens on an open stream and notes what it hears, and when.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use futures_util::StreamExt;
use reqwest::{Method, RequestBuilder};
use serde_json::{Value, json};
use sse_stream::{Sse, SseStream};

use super::mcp::Mcp;
use super::wait::eventually;

/// How long a test waits for a stream to open, or to end.
const WAIT_MAX: Duration = Duration::from_secs(20);
/// One message.
#[derive(Clone, Debug)]
pub struct Message {
    pub json: Value,
    pub at: Instant,
}

#[derive(Debug, Default)]
struct Notes {
    messages: Vec<Message>,
    last_id: Option<String>,
    is_open: bool,
    is_ended: bool,
}

/// The open stream; closed when dropped.
pub struct Ear {
    notes: Arc<Mutex<Notes>>,
    task: tokio::task::JoinHandle<()>,
}

impl Ear {
    /// Listens in the way of the client's era, from now on; on GET streams after the event with this id.
    pub async fn of(client: &Mcp, last_event_id: Option<&str>) -> Ear {
        if client.is_modern() {
            let wants = json!({"toolsListChanged": true});
            return Ear::listen(client, &wants).await;
        }
        let mut request = client.http(Method::GET);
        if let Some(id) = last_event_id {
            request = request.header("Last-Event-ID", id);
        }
        Ear::open(request, false).await
    }

    /// `subscriptions/listen` with these notifications.
    pub async fn listen(client: &Mcp, wants: &Value) -> Ear {
        let params = json!({ "notifications": wants }).to_string();
        Ear::open(client.unsent("\"ear\"", "subscriptions/listen", &params), true).await
    }

    /// Streams that begin with an acknowledgement are open when it has come.
    async fn open(request: RequestBuilder, acknowledges: bool) -> Ear {
        let notes = Arc::new(Mutex::new(Notes::default()));
        let kept = Arc::clone(&notes);
        // streams last longer than the client's own bound
        let request = request.timeout(Duration::from_secs(300));
        let task = tokio::spawn(async move {
            let response = request.send().await.unwrap();
            assert_eq!(response.status(), 200, "{response:?}");
            assert_eq!(response.headers()["content-type"], "text/event-stream");
            kept.lock().unwrap().is_open = !acknowledges;
            let mut stream = SseStream::from_bytes_stream(response.bytes_stream().boxed());
            while let Some(Ok(event)) = stream.next().await {
                kept.lock().unwrap().note(event);
            }
            kept.lock().unwrap().is_ended = true;
        });
        let ear = Ear { notes, task };
        ear.until("the stream to open", WAIT_MAX, |notes| notes.is_open.then_some(())).await;
        ear
    }

    async fn until<T>(&self, what: &str, bound: Duration, look: impl Fn(&Notes) -> Option<T>) -> T {
        eventually(what, bound, || {
            let found = look(&self.notes.lock().unwrap());
            async { found }
        })
        .await
    }

    /// Everything that was heard so far.
    pub fn messages(&self) -> Vec<Message> {
        self.notes.lock().unwrap().messages.clone()
    }

    /// When it heard that its tools are other ones.
    pub fn notices(&self) -> Vec<Instant> {
        self.notices_of("tools")
    }

    /// The same of `tools`, `prompts` or `resources`.
    pub fn notices_of(&self, list: &str) -> Vec<Instant> {
        let (messages, method) = (self.messages(), format!("notifications/{list}/list_changed"));
        messages.iter().filter(|message| message.json["method"] == method).map(|message| message.at).collect()
    }

    /// Waits for this many notices of other tools in all, and says when the last of them came.
    pub async fn hears(&self, count: usize, bound: Duration) -> Instant {
        self.hears_of("tools", count, bound).await
    }

    /// The same of `tools`, `prompts` or `resources`.
    pub async fn hears_of(&self, list: &str, count: usize, bound: Duration) -> Instant {
        let what = format!("{count} notices of {list}");
        let notices = eventually(&what, bound, || {
            let notices = self.notices_of(list);
            async move { (notices.len() >= count).then_some(notices) }
        })
        .await;
        assert_eq!(notices.len(), count, "{:?}", self.messages());
        *notices.last().unwrap()
    }

    /// URIs of the resources of whose updates it heard, in order.
    pub fn updates(&self) -> Vec<String> {
        let updates = self.messages().into_iter().map(|message| message.json);
        let updates = updates.filter(|json| json["method"] == "notifications/resources/updated");
        updates.map(|json| json["params"]["uri"].as_str().unwrap().to_owned()).collect()
    }

    /// Waits until these are the URIs of the resources of whose updates it heard.
    pub async fn hears_updates(&self, uris: &[&str], bound: Duration) {
        eventually(&format!("updates of {uris:?}"), bound, || {
            let updates = self.updates();
            async move { (updates.len() >= uris.len()).then_some(()) }
        })
        .await;
        assert_eq!(self.updates(), uris);
    }

    pub fn has_ended(&self) -> bool {
        self.notes.lock().unwrap().is_ended
    }

    /// Waits for its end.
    pub async fn ends(&self, bound: Duration) {
        self.until("the stream to end", bound, |notes| notes.is_ended.then_some(())).await;
    }

    /// The id of the first event, or of the last that came until now.
    pub async fn id(&self) -> String {
        self.until("an event with an id", WAIT_MAX, |notes| notes.last_id.clone()).await
    }

    /// The id of the last event.
    pub fn last_id(&self) -> Option<String> {
        self.notes.lock().unwrap().last_id.clone()
    }
}

impl Notes {
    fn note(&mut self, event: Sse) {
        self.is_open = true;
        if event.id.is_some() {
            self.last_id = event.id;
        }
        if let Some(data) = event.data.filter(|data| !data.is_empty()) {
            let json = serde_json::from_str(&data).unwrap();
            self.messages.push(Message { json, at: Instant::now() });
        }
    }
}

impl Drop for Ear {
    fn drop(&mut self) {
        self.task.abort();
    }
}
