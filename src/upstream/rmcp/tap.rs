//! What an upstream says, before rmcp reads it: messages that nobody here waits for stop at the tap, and a
//! result that rmcp's types cannot hold does not stall it.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use rmcp::model::ServerJsonRpcMessage;
use serde::Deserialize;
use serde_json::value::RawValue;
use tokio::time::Instant;

use super::super::error::{FailureKind, UpstreamError};
use super::super::jsonrpc::RpcMessage;
use super::super::offers::Announced;

/// Notifications that rmcp always gets to see, and announcements that somebody waits for; the rest would only cost
/// tasks and log lines, and one that no subscription is for would end it.
const HEARD: [&str; 3] = [ACKNOWLEDGED, "notifications/cancelled", "notifications/progress"];
const ACKNOWLEDGED: &str = "notifications/subscriptions/acknowledged";
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

/// Stands between the wire and rmcp.
#[derive(Debug, Default)]
pub(in super::super) struct Tap {
    /// Requests of the upstream in the current window, and when that began.
    requests: Mutex<Option<(Instant, usize)>>,
    /// Announcements that somebody waits for.
    wanted: Mutex<Vec<Announced>>,
    #[cfg(test)]
    results: Mutex<std::collections::HashMap<String, Bytes>>,
}

impl Tap {
    /// Lets announcements of these through from now on, and of nothing else; less once the server acknowledges less.
    pub(super) fn listen_for(&self, wanted: &[Announced]) {
        *self.wanted() = wanted.to_vec();
    }

    fn is_heard(&self, method: &str) -> bool {
        HEARD.contains(&method) || self.wanted().iter().any(|what| what.method() == method)
    }

    /// What a server acknowledges holds for the very next message.
    fn narrow(&self, acknowledged: Option<&RawValue>) {
        let read = acknowledged.map(|params| serde_json::from_str::<Acknowledged>(params.get()));
        // what is not of the form is rmcp's to refuse
        if let Some(Ok(Acknowledged { notifications })) = read {
            self.wanted().retain(|what| match what {
                Announced::Tools => notifications.tools,
                Announced::Prompts => notifications.prompts,
                Announced::Resources => notifications.resources,
            });
        }
    }

    fn wanted(&self) -> MutexGuard<'_, Vec<Announced>> {
        self.wanted.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The message as rmcp may read it, or nothing.
    ///
    /// # Errors
    /// For what is no JSON-RPC message, and for an upstream that asks too much.
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
        Ok(self.is_heard(method).then(|| text.to_owned()))
    }

    /// An answer to one of our requests. One that rmcp cannot hold is replaced: it would wait for ever.
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
        let mut requests = self.requests.lock().unwrap_or_else(PoisonError::into_inner);
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

    /// rmcp's types drop what they do not know: where a result goes on to a caller, it is this one.
    #[cfg(test)]
    fn keep(&self, message: &Bytes, read: &RpcMessage<'_>) {
        let Some(id) = read.id else { return };
        self.results.lock().unwrap().insert(id.get().to_owned(), message.clone());
    }

    /// The raw message that answered the request with this id.
    #[cfg(test)]
    pub(in super::super) fn take(&self, id: &str) -> Option<Bytes> {
        self.results.lock().unwrap().remove(id)
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
        // from the acknowledgement on, only what is acknowledged; what that does not say changes nothing
        let acknowledges = |notifications: &str| {
            let params = format!(r#"{{"notifications":{notifications}}}"#);
            read(&tap, &format!(r#"{{"jsonrpc":"2.0","method":"{ACKNOWLEDGED}","params":{params}}}"#))
                .unwrap()
        };
        assert!(acknowledges("7").is_some());
        assert_eq!(*tap.wanted(), all);
        assert!(acknowledges(r#"{"toolsListChanged":true,"promptsListChanged":false,"x":1}"#).is_some());
        assert_eq!(*tap.wanted(), all[..1]);
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
