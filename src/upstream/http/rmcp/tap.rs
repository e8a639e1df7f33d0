//! Filter between an upstream and rmcp. It drops messages that nobody waits for, and replaces a result that rmcp's
//! types cannot hold, which would stall rmcp.

use std::borrow::Cow;
use std::collections::HashSet;
use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;
use rmcp::model::ServerJsonRpcMessage;
use serde::Deserialize;
use serde_json::value::RawValue;
use tokio::time::Instant;

use super::heard::covering;
use crate::upstream::error::{FailureKind, UpstreamError};
use crate::upstream::protocol::jsonrpc::RpcMessage;
use crate::upstream::protocol::offers::Announced;

/// Notifications that rmcp always gets. Announcements pass only if they are wanted: others would cost tasks and log
/// lines, and would end a subscription that they are not part of.
const HEARD: [&str; 3] = [ACKNOWLEDGED, "notifications/cancelled", "notifications/progress"];
const ACKNOWLEDGED: &str = "notifications/subscriptions/acknowledged";
const UPDATED: &str = "notifications/resources/updated";
/// Largest notification or request of an upstream, in bytes.
const UNASKED_BYTES_MAX: usize = 64 * 1024;
/// Most requests of an upstream that are answered within [`REQUESTS_WINDOW`].
const REQUESTS_MAX: usize = 64;
const REQUESTS_WINDOW: Duration = Duration::from_secs(60);

#[derive(Deserialize)]
struct Acknowledged {
    notifications: Honoured,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Honoured {
    #[serde(rename = "toolsListChanged")]
    tools: bool,
    #[serde(rename = "promptsListChanged")]
    prompts: bool,
    #[serde(rename = "resourcesListChanged")]
    resources: bool,
}

#[derive(Deserialize)]
struct Updated<'a> {
    #[serde(borrow)]
    uri: Cow<'a, str>,
}

/// Filter of the messages that rmcp reads.
#[derive(Debug, Default)]
pub(in crate::upstream) struct Tap {
    /// Start of the current window, and the number of the upstream's requests in it.
    requests: Mutex<Option<(Instant, usize)>>,
    /// Announcements that pass.
    wanted: Mutex<Vec<Announced>>,
    /// Resources whose updates pass.
    watched: Mutex<HashSet<String>>,
    #[cfg(test)]
    results: Mutex<std::collections::HashMap<String, Bytes>>,
}

impl Tap {
    /// Lets only announcements of `wanted` pass from now on; fewer once the server acknowledges fewer.
    pub(super) fn listen_for(&self, wanted: &[Announced]) {
        *self.wanted.lock() = wanted.to_vec();
    }

    /// Lets only updates of these resources, and of parts of them, pass from now on.
    pub(super) fn watch(&self, uris: &[String]) {
        *self.watched.lock() = uris.iter().cloned().collect();
    }

    fn is_heard(&self, method: &str, params: Option<&RawValue>) -> bool {
        match method {
            UPDATED => params.is_some_and(|params| self.is_watched(params)),
            _ => HEARD.contains(&method) || self.wanted.lock().iter().any(|what| what.method() == method),
        }
    }

    fn is_watched(&self, params: &RawValue) -> bool {
        let updated = serde_json::from_str::<Updated<'_>>(params.get());
        updated.is_ok_and(|Updated { uri }| covering(&self.watched.lock(), &uri).next().is_some())
    }

    /// Restricts the announcements that pass to those that a server acknowledges, from the very next message on.
    fn narrow(&self, acknowledged: Option<&RawValue>) {
        let read = acknowledged.map(|params| serde_json::from_str::<Acknowledged>(params.get()));
        // rmcp refuses malformed acknowledgements
        if let Some(Ok(Acknowledged { notifications })) = read {
            self.wanted.lock().retain(|what| match what {
                Announced::Tools => notifications.tools,
                Announced::Prompts => notifications.prompts,
                Announced::Resources => notifications.resources,
            });
        }
    }

    /// Returns the message as rmcp may read it; `None` if it is dropped.
    ///
    /// # Errors
    /// [`FailureKind::Invalid`] for a malformed message and for too many requests of the upstream;
    /// [`FailureKind::TooLarge`] for a notification or a request over the bound.
    pub(super) fn read(&self, message: &Bytes) -> Result<Option<String>, UpstreamError> {
        let text = std::str::from_utf8(message).map_err(|_| UpstreamError::invalid("not UTF-8"))?;
        let read = RpcMessage::read(message)?;
        let Some(method) = read.method.as_deref() else { return Ok(Some(self.answer(message, &read, text))) };
        if message.len() > UNASKED_BYTES_MAX {
            return Err(UpstreamError::sent(FailureKind::TooLarge, "a message that nobody asked for"));
        }
        if read.id.is_some() {
            self.count_request(Instant::now())?;
            return Ok(Some(text.to_owned()));
        }
        if method == ACKNOWLEDGED {
            self.narrow(read.params);
        }
        Ok(self.is_heard(method, read.params).then(|| text.to_owned()))
    }

    /// Returns an answer to one of our requests. If rmcp cannot hold it, an empty result replaces it: rmcp would wait
    /// for ever.
    fn answer(&self, message: &Bytes, read: &RpcMessage<'_>, text: &str) -> String {
        self.keep(message, read);
        match read.id {
            Some(id) if serde_json::from_str::<ServerJsonRpcMessage>(text).is_err() => {
                format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{{}}}}"#)
            }
            _ => text.to_owned(),
        }
    }

    fn count_request(&self, now: Instant) -> Result<(), UpstreamError> {
        let mut requests = self.requests.lock();
        let (began, count) = requests
            .filter(|(began, _)| now.duration_since(*began) < REQUESTS_WINDOW)
            .map_or((now, 1), |(began, count)| (began, count + 1));
        *requests = Some((began, count));
        if count > REQUESTS_MAX {
            return Err(UpstreamError::invalid("too many requests from the upstream"));
        }
        Ok(())
    }

    #[cfg(not(test))]
    fn keep(&self, _: &Bytes, _: &RpcMessage<'_>) {}

    /// Keeps the raw answer, since rmcp's types drop what they do not know.
    #[cfg(test)]
    fn keep(&self, message: &Bytes, read: &RpcMessage<'_>) {
        let Some(id) = read.id else { return };
        self.results.lock().insert(id.get().to_owned(), message.clone());
    }

    /// Takes the raw message that answered the request with this id.
    #[cfg(test)]
    pub(in crate::upstream) fn take(&self, id: &str) -> Option<Bytes> {
        self.results.lock().remove(id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(tap: &Tap, message: &str) -> Result<Option<String>, UpstreamError> {
        tap.read(&Bytes::copy_from_slice(message.as_bytes()))
    }

    #[test]
    fn only_what_is_waited_for_passes() {
        let tap = Tap::default();
        let table = [
            (r#"{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}"#, false),
            (r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}"#, true),
            (
                r#"{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":1}}"#,
                false,
            ),
            (r#"{"jsonrpc":"2.0","method":"notifications/resources/updated","params":{"uri":"u"}}"#, false),
            (r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#, true),
            (r#"{"jsonrpc":"2.0","id":1,"result":{"x":1}}"#, true),
        ];
        for (message, passes) in table {
            assert_eq!(read(&tap, message).unwrap().as_deref(), passes.then_some(message), "{message}");
        }
        let large = "x".repeat(UNASKED_BYTES_MAX);
        let large =
            format!(r#"{{"jsonrpc":"2.0","method":"notifications/message","params":{{"x":"{large}"}}}}"#);
        assert_eq!(read(&tap, &large).unwrap_err().kind, FailureKind::TooLarge);
        for bad in ["", "[]", "{}", "nonsense", r#"{"jsonrpc":"1.0","id":1,"result":{}}"#] {
            assert!(read(&tap, bad).is_err(), "{bad}");
        }
        assert!(tap.read(&Bytes::from_static(b"\xff")).is_err());
    }

    #[test]
    fn updates_pass_of_what_is_watched() {
        let tap = Tap::default();
        let updated = |params: &str| {
            let message = format!(r#"{{"jsonrpc":"2.0","method":"{UPDATED}","params":{params}}}"#);
            read(&tap, &message).unwrap().is_some()
        };
        assert!(!updated(r#"{"uri":"a://1"}"#));
        tap.watch(&["a://1".to_owned()]);
        assert!(updated(r#"{"uri":"a:\u002f/1"}"#) && updated(r#"{"uri":"a://1/x","y":1}"#));
        for other in [r#"{"uri":"a://2"}"#, r#"{"uri":7}"#, "{}", "[]", "7"] {
            assert!(!updated(other), "{other}");
        }
    }

    #[test]
    fn announcements_pass_that_somebody_waits_for() {
        let tap = Tap::default();
        let all = [Announced::Tools, Announced::Prompts, Announced::Resources];
        for wanted in [&all[..0], &all[..1], &all[1..], &all] {
            tap.listen_for(wanted);
            for what in all {
                let message = format!(r#"{{"jsonrpc":"2.0","method":"{}"}}"#, what.method());
                let passed = read(&tap, &message).unwrap();
                assert_eq!(passed.is_some(), wanted.contains(&what), "{what:?} of {wanted:?}");
            }
        }
        // only acknowledged kinds pass after the acknowledgement; a malformed one changes nothing
        let acknowledges = |notifications: &str| {
            let params = format!(r#"{{"notifications":{notifications}}}"#);
            read(&tap, &format!(r#"{{"jsonrpc":"2.0","method":"{ACKNOWLEDGED}","params":{params}}}"#))
                .unwrap()
        };
        assert!(acknowledges("7").is_some());
        assert_eq!(*tap.wanted.lock(), all);
        assert!(acknowledges(r#"{"toolsListChanged":true,"promptsListChanged":false,"x":1}"#).is_some());
        assert_eq!(*tap.wanted.lock(), all[..1]);
    }

    #[test]
    fn whatever_rmcp_gets_it_can_read() {
        let odd = r#"{"content":[{"type":"vendor/odd","x":[1.0]}],"more":{"deep":1e400}}"#;
        let tap = Tap::default();
        let message = format!(r#"{{"jsonrpc":"2.0","id":7,"result":{odd}}}"#);
        let passed = read(&tap, &message).unwrap().unwrap();
        serde_json::from_str::<ServerJsonRpcMessage>(&passed).unwrap();
        assert_eq!(tap.take("7").unwrap(), message);
    }

    #[test]
    fn an_upstream_may_not_ask_for_ever() {
        let (tap, began) = (Tap::default(), Instant::now());
        for _ in 0..REQUESTS_MAX {
            tap.count_request(began).unwrap();
        }
        tap.count_request(began).unwrap_err();
        tap.count_request(began + REQUESTS_WINDOW).unwrap();
    }
}
