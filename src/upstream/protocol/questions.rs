//! Questions and notifications of an upstream in the middle of a request, on their way to its caller and back.

use std::convert::Infallible;
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;
use serde::Deserialize;
use serde_json::value::RawValue;
use tokio::sync::{Semaphore, oneshot};
use tokio::time::timeout;

use crate::domain::json;
use crate::domain::relay::{LogLevel, Relay};
use crate::domain::rounds::{QUESTION_BYTES_MAX, QuestionKind, has_other_spelling};
use crate::upstream::protocol::events::{CallEvent, Hears, QuestionReply, ServerQuestion};
use crate::upstream::protocol::jsonrpc;
use crate::upstream::protocol::sent::Sent;

/// Most requests of an upstream that are answered during one of ours.
pub(in crate::upstream) const UPSTREAM_REQUESTS_MAX: usize = 64;
/// Longest wait for the answer to one question.
pub(in crate::upstream) const QUESTION_WAIT_MAX: Duration = Duration::from_secs(300);
/// Bytes of log messages that one request passes on; later ones are dropped.
pub(in crate::upstream) const LOG_BYTES_MAX: usize = 256 * 1024;
/// Notification that a page is done (MCP 2025-11-25).
pub(in crate::upstream) const PAGE_DONE: &str = "notifications/elicitation/complete";
/// Longest id of an upstream's own request that is repeated in a reply, in bytes as it is written.
pub(in crate::upstream) const ID_BYTES_MAX: usize = 256;

/// Longest `params` of the notification that a page is done, in bytes.
const PAGE_DONE_BYTES_MAX: usize = 4096;

/// JSON-RPC error code for a question that nobody answered in time.
const UNANSWERED: i64 = -32001;
/// JSON-RPC error code for `params` that are no question.
const INVALID_PARAMS: i64 = -32602;

/// Caller of a request, as the upstream may talk to it.
#[derive(Clone, Copy)]
pub(in crate::upstream) struct Ear<'a> {
    pub(in crate::upstream) hears: &'a Hears,
    /// Messages that the server's administrators let pass.
    pub(in crate::upstream) relay: Relay,
    /// Request itself, whose time does not pass while a person is asked.
    pub(in crate::upstream) sent: &'a Sent,
    /// Places for open questions of the whole server.
    pub(in crate::upstream) places: &'a Semaphore,
}

impl Ear<'_> {
    /// Returns whether the caller can be asked anything, whatever may pass.
    pub(in crate::upstream) fn can_be_asked(&self) -> bool {
        self.hears.questions.is_some()
    }

    /// Returns the lowest level of the log messages that the caller gets; `None` for none.
    pub(in crate::upstream) fn log_level(&self) -> Option<LogLevel> {
        self.hears.log.filter(|_| self.relay.logging)
    }
}

/// Filter of the log messages of one request.
#[derive(Clone, Copy, Debug)]
pub(in crate::upstream) struct LogFilter {
    level: Option<LogLevel>,
    left: usize,
}

impl LogFilter {
    /// Creates a filter that lets messages of this level and above pass; `None` for none.
    pub(in crate::upstream) fn new(level: Option<LogLevel>) -> Self {
        Self { level, left: LOG_BYTES_MAX }
    }

    /// Returns whether the message with these `params` passes.
    pub(in crate::upstream) fn passes(&mut self, params: &RawValue) -> bool {
        #[derive(Deserialize)]
        struct Message {
            level: LogLevel,
        }
        let Some(wanted) = self.level else { return false };
        let params = params.get();
        if params.len() > self.left || !params.starts_with('{') {
            return false;
        }
        let is_wanted = serde_json::from_str::<Message>(params).is_ok_and(|said| said.level >= wanted);
        let passes = is_wanted && json::check(params).is_ok() && !has_other_spelling(params);
        if passes {
            self.left -= params.len();
        }
        passes
    }
}

type QuestionWork<'a> = Pin<Box<dyn Future<Output = ()> + Send + 'a>>;

/// Question that waits for its answer, or whose answer is on its way back.
struct OpenQuestion<'a> {
    /// Id of the upstream's request, raw.
    id: Box<str>,
    work: QuestionWork<'a>,
}

/// Talk of an upstream to the caller of one request.
pub(in crate::upstream) struct Talk<'a> {
    ear: Option<Ear<'a>>,
    log: LogFilter,
    open: Vec<OpenQuestion<'a>>,
    /// Ids of the pages that the caller was asked to open, and has answered about; each question adds one at most.
    pages: Arc<Mutex<Vec<String>>>,
}

impl<'a> Talk<'a> {
    /// Creates the talk to a caller; `None` if nobody listens.
    pub(in crate::upstream) fn new(ear: Option<Ear<'a>>) -> Self {
        let log = LogFilter::new(ear.and_then(|ear| ear.log_level()));
        Self { ear, log, open: Vec::new(), pages: Arc::default() }
    }

    /// Returns the event for a notification during the request `of`; `None` if the caller does not get it.
    pub(in crate::upstream) fn event(
        &mut self,
        method: &str,
        params: &RawValue,
        of: u64,
    ) -> Option<fn(Bytes) -> CallEvent> {
        let ear = self.ear?;
        match method {
            "notifications/progress" if ear.hears.progress && jsonrpc::is_progress_of(params, of) => {
                Some(CallEvent::Progress)
            }
            "notifications/message" if self.log.passes(params) => Some(CallEvent::Log),
            PAGE_DONE if self.ends_page(params) => Some(CallEvent::PageDone),
            _ => None,
        }
    }

    /// Returns whether a notification ends a page that the caller was asked to open. Each page ends once.
    pub(in crate::upstream) fn ends_page(&self, params: &RawValue) -> bool {
        let params = params.get();
        let is_sound = params.len() <= PAGE_DONE_BYTES_MAX
            && params.starts_with('{')
            && json::check(params).is_ok()
            && !has_other_spelling(params);
        let id = is_sound.then(|| text(params, "elicitationId")).flatten();
        let mut pages = self.pages.lock();
        let known = id.and_then(|id| pages.iter().position(|page| *page == id));
        known.map(|at| pages.swap_remove(at)).is_some()
    }

    /// Passes an event on to the caller. One that does not keep up misses it.
    pub(in crate::upstream) fn tell(&self, event: CallEvent) {
        if self.ear.is_none_or(|ear| ear.hears.events.try_send(event).is_err()) {
            tracing::trace!("a message to the caller was dropped");
        }
    }

    /// Returns the kind of a question that the caller can be asked. Whether it may be asked so, [`Talk::ask`] decides.
    ///
    /// # Errors
    /// The answer to any other request.
    pub(in crate::upstream) fn admit(
        &self,
        method: &str,
        id: &RawValue,
        params: Option<&RawValue>,
    ) -> Result<QuestionKind, Bytes> {
        if method == "ping" {
            return Err(jsonrpc::pong(id));
        }
        let unsupported = || jsonrpc::unsupported(id);
        let kind = QuestionKind::parse(method).ok_or_else(unsupported)?;
        let capabilities = self.ear.and_then(|ear| ear.hears.questions.as_ref()).ok_or_else(unsupported)?;
        if id.get().len() > ID_BYTES_MAX {
            return Err(unsupported());
        }
        let params = params.map_or("{}", RawValue::get);
        // strict: the client reads the same as is checked here
        if params.len() > QUESTION_BYTES_MAX || json::check(params).is_err() || !params.starts_with('{') {
            return Err(jsonrpc::reply(id.get(), &refused(INVALID_PARAMS, "Invalid params")));
        }
        if !capabilities.allows(method, params) {
            return Err(unsupported());
        }
        Ok(kind)
    }

    /// Puts a question that was admitted, unless `relay` keeps it back: then it is told for the record, and refused.
    /// [`Talk::go_on`] works on it; `deliver` sends the answer to the upstream.
    pub(in crate::upstream) fn ask<F: Future<Output = ()> + Send + 'a>(
        &mut self,
        kind: QuestionKind,
        id: &str,
        params: Bytes,
        deliver: impl FnOnce(Bytes) -> F + Send + 'a,
    ) {
        let Some(ear) = self.ear else { return };
        let raw: Box<str> = id.into();
        let (id, page, pages) = (raw.clone(), page(kind, &params), Arc::clone(&self.pages));
        let work = Box::pin(async move {
            let reply = put(ear, kind, params, QUESTION_WAIT_MAX).await;
            // before the upstream has the answer, and may say that the page is done
            if matches!(reply, QuestionReply::Result(_)) {
                pages.lock().extend(page);
            }
            deliver(jsonrpc::reply(&raw, &reply)).await;
        });
        self.open.push(OpenQuestion { id, work });
    }

    /// Forgets a question that the upstream has taken back, by its raw id.
    pub(in crate::upstream) fn withdraw(&mut self, id: &RawValue) {
        self.open.retain(|open| *open.id != *id.get());
    }

    /// Works on the open questions; never ends.
    pub(in crate::upstream) async fn go_on(&mut self) -> Infallible {
        poll_fn(|cx| {
            self.open.retain_mut(|open| open.work.as_mut().poll(cx).is_pending());
            Poll::Pending
        })
        .await
    }
}

/// Puts a question to the caller, and waits for the answer for at most `wait_max`.
async fn put(ear: Ear<'_>, kind: QuestionKind, params: Bytes, wait_max: Duration) -> QuestionReply {
    if !ear.relay.allows(kind) {
        drop(timeout(wait_max, ear.hears.events.send(CallEvent::KeptBack { kind, params })).await);
        return QuestionReply::unsupported();
    }
    let Ok(_place) = ear.places.try_acquire() else {
        return QuestionReply::unasked("Too many questions of this server are open");
    };
    let _asking = ear.sent.asks();
    let (reply, answer) = oneshot::channel();
    let question = CallEvent::Question(ServerQuestion { kind, params, reply });
    let asked = async {
        ear.hears.events.send(question).await.ok()?;
        answer.await.ok()
    };
    match timeout(wait_max, asked).await {
        Ok(Some(reply)) => reply,
        Ok(None) => QuestionReply::unasked("The client cannot be asked now"),
        Err(_) => refused(UNANSWERED, "Nobody answered in time"),
    }
}

/// Returns the id of the page that a question is about; `None` for any other question.
fn page(kind: QuestionKind, params: &Bytes) -> Option<String> {
    let params = std::str::from_utf8(params).ok().filter(|_| kind == QuestionKind::Elicitation)?;
    let mode = text(params, "mode").filter(|mode| mode == "url");
    // a longer one would never be found
    mode.and_then(|_| text(params, "elicitationId")).filter(|id| id.len() <= PAGE_DONE_BYTES_MAX)
}

/// Returns the value of a member that is a text.
fn text(object: &str, name: &str) -> Option<String> {
    let [value] = json::find_members(object, [name]).ok()?;
    serde_json::from_str(value?).ok()
}

fn refused(code: i64, message: &str) -> QuestionReply {
    QuestionReply::Refused { code, message: message.to_owned() }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};
    use tokio::sync::mpsc;

    use super::*;
    use crate::domain::rounds::Capabilities;

    const ALL: Relay = Relay { elicitation: true, sampling: true, roots: true, logging: true };

    fn raw(text: &str) -> &RawValue {
        serde_json::from_str(text).unwrap()
    }

    /// Caller that can be asked everything, with its queue.
    fn caller() -> (Hears, mpsc::Receiver<CallEvent>) {
        let (events, heard) = mpsc::channel(4);
        let questions = Capabilities::read(r#"{"elicitation":{},"sampling":{},"roots":{}}"#).unwrap();
        (Hears { events, progress: true, log: Some(LogLevel::Info), questions: Some(questions) }, heard)
    }

    async fn question(heard: &mut mpsc::Receiver<CallEvent>) -> ServerQuestion {
        match heard.recv().await {
            Some(CallEvent::Question(question)) => question,
            other => panic!("no question: {other:?}"),
        }
    }

    fn code_of(reply: &Bytes) -> i64 {
        serde_json::from_slice::<Value>(reply).unwrap()["error"]["code"].as_i64().unwrap()
    }

    #[test]
    fn a_question_needs_the_capability() {
        let (all, _heard) = caller();
        let forms = Some(Capabilities::read(r#"{"elicitation":{}}"#).unwrap());
        let (sent, places) = (Sent::default(), Semaphore::new(1));
        let (none, url) = ("{}", r#"{"mode":"url","url":"https://x.example"}"#);
        let admit = |questions, method, params| {
            let hears = Hears { questions, ..all.clone() };
            let ear = Ear { hears: &hears, relay: ALL, sent: &sent, places: &places };
            let talk = Talk::new(Some(ear));
            talk.admit(method, raw("7"), Some(raw(params))).map_err(|reply| code_of(&reply))
        };
        let every = || all.questions.clone();
        for kind in QuestionKind::ALL {
            assert_eq!(admit(every(), kind.as_str(), none), Ok(kind));
            assert_eq!(admit(None, kind.as_str(), none), Err(-32601), "{kind:?}");
        }
        assert_eq!(admit(forms.clone(), "sampling/createMessage", none), Err(-32601));
        assert_eq!(admit(forms.clone(), "elicitation/create", none), Ok(QuestionKind::Elicitation));
        assert_eq!(admit(forms, "elicitation/create", url), Err(-32601));
        assert_eq!(admit(every(), "tools/call", none), Err(-32601));
        for malformed in ["[]", "7", r#"{"mode":"form","mode":"url"}"#] {
            assert_eq!(admit(every(), "elicitation/create", malformed), Err(-32602), "{malformed}");
        }
        let long = format!(r#"{{"message":"{}"}}"#, "x".repeat(QUESTION_BYTES_MAX));
        assert_eq!(admit(every(), "elicitation/create", &long), Err(-32602));
        let id = format!(r#""{}""#, "x".repeat(ID_BYTES_MAX));
        let ear = Ear { hears: &all, relay: ALL, sent: &sent, places: &places };
        let refused = Talk::new(Some(ear)).admit("roots/list", raw(&id), None).unwrap_err();
        assert_eq!(code_of(&refused), -32601);
        assert_eq!(code_of(&Talk::new(None).admit("roots/list", raw("1"), None).unwrap_err()), -32601);
    }

    #[tokio::test]
    async fn a_question_that_relay_keeps_back_is_told_and_refused() {
        let (hears, mut heard) = caller();
        let (sent, places) = (Sent::default(), Semaphore::new(1));
        let reply = QuestionReply::Result("{}".into());
        for kind in QuestionKind::ALL {
            for (relay, passes) in [(Relay::NOTHING, false), (ALL, true)] {
                let ear = Ear { hears: &hears, relay, sent: &sent, places: &places };
                let asked = put(ear, kind, r#"{"a":1}"#.into(), QUESTION_WAIT_MAX);
                let (got, ()) = tokio::join!(asked, async {
                    match heard.recv().await {
                        Some(CallEvent::Question(question)) if passes => {
                            question.reply.send(reply.clone()).unwrap();
                        }
                        Some(CallEvent::KeptBack { kind: told, params }) if !passes => {
                            assert_eq!((told, &*params), (kind, &br#"{"a":1}"#[..]));
                        }
                        other => panic!("{kind:?} {relay:?}: {other:?}"),
                    }
                });
                assert_eq!(
                    got,
                    if passes { reply.clone() } else { QuestionReply::unsupported() },
                    "{kind:?}"
                );
            }
        }
        let id = raw(r#""a""#);
        assert_eq!(jsonrpc::reply(id.get(), &QuestionReply::unsupported()), jsonrpc::unsupported(id));
    }

    #[test]
    fn log_messages_pass_by_level_and_within_their_bytes() {
        let message = |level: &str, bytes: usize| {
            RawValue::from_string(json!({ "level": level, "data": "x".repeat(bytes) }).to_string()).unwrap()
        };
        let mut filter = LogFilter::new(Some(LogLevel::Warning));
        for (level, passes) in [("debug", false), ("info", false), ("warning", true), ("emergency", true)] {
            assert_eq!(filter.passes(&message(level, 1)), passes, "{level}");
        }
        for malformed in ["[]", r#"{"data":1}"#, r#"{"level":"loud"}"#, r#"{"level":"error","a":1,"a":2}"#] {
            assert!(!filter.passes(raw(malformed)), "{malformed}");
        }
        assert!(!LogFilter::new(None).passes(&message("emergency", 1)));
        let mut filter = LogFilter::new(Some(LogLevel::Debug));
        assert!(filter.passes(&message("info", LOG_BYTES_MAX / 2)));
        assert!(!filter.passes(&message("info", LOG_BYTES_MAX / 2)));
        assert!(filter.passes(&message("info", 100)), "a short one still fits");

        let (hears, _heard) = caller();
        let (sent, places) = (Sent::default(), Semaphore::new(1));
        for (relay, passes) in [(ALL, true), (Relay { logging: false, ..ALL }, false)] {
            let mut talk = Talk::new(Some(Ear { hears: &hears, relay, sent: &sent, places: &places }));
            let event = talk.event("notifications/message", &message("info", 1), 1);
            assert_eq!(event.is_some(), passes, "{relay:?}");
        }
    }

    #[tokio::test]
    async fn a_question_waits_so_long_and_holds_its_place_meanwhile() {
        let (hears, mut heard) = caller();
        let (sent, places) = (Sent::default(), Semaphore::new(1));
        let ear = Ear { hears: &hears, relay: ALL, sent: &sent, places: &places };
        let (roots, short) = (QuestionKind::Roots, Duration::from_millis(200));
        let (first, second) = tokio::join!(put(ear, roots, "{}".into(), short), async {
            let mut open = question(&mut heard).await;
            assert!(sent.is_asking());
            let second = put(ear, roots, "{}".into(), short).await;
            open.reply.closed().await;
            second
        });
        let QuestionReply::Refused { code: late, .. } = first else { panic!("{first:?}") };
        let QuestionReply::Refused { code: crowded, .. } = second else { panic!("{second:?}") };
        assert_eq!((late, crowded), (UNANSWERED, -32603));
        assert!(sent.asked() >= short && !sent.is_asking());
        assert_eq!(places.available_permits(), 1);
    }

    #[tokio::test]
    async fn a_page_ends_once_and_only_if_the_caller_answered_about_it() {
        let (hears, mut heard) = caller();
        let (sent, places) = (Sent::default(), Semaphore::new(4));
        let mut talk = Talk::new(Some(Ear { hears: &hears, relay: ALL, sent: &sent, places: &places }));
        let (replied, mut replies) = mpsc::channel::<Bytes>(4);
        let ended = |talk: &mut Talk<'_>, params: &str| talk.event(PAGE_DONE, raw(params), 1).is_some();
        for (id, params) in [
            ("1", r#"{"mode":"url","url":"https://x.example","elicitationId":"one"}"#),
            ("2", r#"{"mode":"url","url":"https://x.example","elicitationId":"two"}"#),
            ("3", r#"{"mode":"form","elicitationId":"three"}"#),
        ] {
            let replied = replied.clone();
            talk.ask(QuestionKind::Elicitation, id, params.into(), |body| async move {
                replied.send(body).await.unwrap();
            });
        }
        assert!(!ended(&mut talk, r#"{"elicitationId":"one"}"#), "nobody has seen it yet");
        let client = async {
            for answer in [true, false, true] {
                let reply = question(&mut heard).await.reply;
                match answer {
                    true => drop(reply.send(QuestionReply::Result(r#"{"action":"accept"}"#.into()))),
                    false => drop(reply.send(QuestionReply::unasked("no"))),
                }
                replies.recv().await.unwrap();
            }
        };
        tokio::select! {
            () = client => {}
            never = talk.go_on() => match never {},
        }
        for unknown in [
            r#"{"elicitationId":"two"}"#,
            r#"{"elicitationId":"three"}"#,
            r#"{"elicitationId":7}"#,
            r#"{"ElicitationId":"one"}"#,
            r#"{"elicitationId":"one","elicitationId":"one"}"#,
            r#"["one"]"#,
            "{}",
        ] {
            assert!(!ended(&mut talk, unknown), "{unknown}");
        }
        let long = format!(r#"{{"elicitationId":"one","a":"{}"}}"#, "x".repeat(PAGE_DONE_BYTES_MAX));
        assert!(!ended(&mut talk, &long));
        assert!(ended(&mut talk, r#"{"elicitationId":"one"}"#));
        assert!(!ended(&mut talk, r#"{"elicitationId":"one"}"#), "once");
        assert!(!ended(&mut Talk::new(None), r#"{"elicitationId":"one"}"#));
    }

    #[tokio::test]
    async fn questions_are_answered_in_any_order_and_taken_back() {
        let (hears, mut heard) = caller();
        let (sent, places) = (Sent::default(), Semaphore::new(4));
        let (replied, mut replies) = mpsc::channel::<Bytes>(4);
        let mut talk = Talk::new(Some(Ear { hears: &hears, relay: ALL, sent: &sent, places: &places }));
        for id in ["1", r#""two""#, "3"] {
            let replied = replied.clone();
            talk.ask(QuestionKind::Roots, id, "{}".into(), |body| async move {
                replied.send(body).await.unwrap();
            });
        }
        let client = async {
            let (one, two, three) =
                (question(&mut heard).await, question(&mut heard).await, question(&mut heard).await);
            two.reply.send(QuestionReply::Result(r#"{"roots":[]}"#.into())).unwrap();
            let answer = replies.recv().await.unwrap();
            assert_eq!(answer, r#"{"jsonrpc":"2.0","id":"two","result":{"roots":[]}}"#);
            drop(one.reply);
            assert_eq!(code_of(&replies.recv().await.unwrap()), -32603);
            three
        };
        let three = tokio::select! {
            three = client => three,
            never = talk.go_on() => match never {},
        };
        talk.withdraw(raw("4"));
        assert!(!three.reply.is_closed());
        talk.withdraw(raw("3"));
        assert!(three.reply.is_closed());
    }
}
