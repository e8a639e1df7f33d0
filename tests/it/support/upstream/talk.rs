//! Calls in the middle of which the server asks its client, in the way of the handshake era.

use bytes::Bytes;
use futures_util::{StreamExt, stream};
use http::Response;
use http_body::Frame;
use http_body_util::{BodyExt, StreamBody};
use tokio::sync::watch;

use super::serve::{Body, Unanswered};

/// Questions of a call, one after the other, and what follows.
#[derive(Clone, Debug)]
pub struct Talk {
    /// Method and raw `params` of each question.
    pub asks: Vec<(&'static str, &'static str)>,
    /// The result waits for this gate.
    pub gate: watch::Receiver<bool>,
    /// Bytes that the result has besides the replies.
    pub bytes: usize,
    /// False for a server that asks everything at once, and does not wait for the replies.
    pub is_patient: bool,
}

impl Unanswered {
    /// A question that is taken back when the gate opens, and nothing more, ever.
    pub(super) fn retracts(
        self,
        id: &str,
        params: &'static str,
        mut gate: watch::Receiver<bool>,
    ) -> Response<Body> {
        let own = format!("\"ask-{}\"", id.trim_matches('"'));
        let asked = format!(
            "data: {{\"jsonrpc\":\"2.0\",\"id\":{own},\"method\":\"elicitation/create\",\"params\":{params}}}\n\n"
        );
        let rest = async move {
            drop(gate.wait_for(|is_open| *is_open).await);
            format!(
                "data: {{\"jsonrpc\":\"2.0\",\"method\":\"notifications/cancelled\",\"params\":{{\"requestId\":{own}}}}}\n\n"
            )
        };
        let never = async move {
            let _call = self;
            std::future::pending().await
        };
        let events = stream::iter([asked]).chain(stream::once(rest)).chain(stream::once(never));
        let response = Response::builder().header("content-type", "text/event-stream");
        let events = events.map(|event| Ok(Frame::data(Bytes::from(event))));
        response.body(StreamBody::new(events).boxed_unsync()).unwrap()
    }

    /// The questions, each once the one before has its reply, and a text with the raw replies.
    pub(super) fn talks(mut self, id: String, talk: Talk) -> Response<Body> {
        let Talk { asks, mut gate, bytes, is_patient } = talk;
        let names: Vec<String> =
            (0..asks.len()).map(|n| format!("\"ask-{}-{n}\"", id.trim_matches('"'))).collect();
        let (replies, before) = (self.state.replies.subscribe(), names.clone());
        let asked = stream::iter(asks.into_iter().enumerate()).then(move |(n, (method, params))| {
            let earlier = n.checked_sub(1).filter(|_| is_patient).map(|n| reply_to(replies.clone(), before[n].clone()));
            let own = before[n].clone();
            async move {
                if let Some(earlier) = earlier {
                    earlier.await;
                }
                format!(
                    "data: {{\"jsonrpc\":\"2.0\",\"id\":{own},\"method\":\"{method}\",\"params\":{params}}}\n\n"
                )
            }
        });
        let rest = async move {
            let mut text = String::new();
            if !is_patient {
                text.push_str("nobody answered");
            }
            for name in names.into_iter().filter(|_| is_patient) {
                text.push_str(&reply_to(self.state.replies.subscribe(), name).await);
            }
            drop(gate.wait_for(|is_open| *is_open).await);
            self.is_answered = true;
            text.push_str(&"x".repeat(bytes));
            format!("data: {{\"jsonrpc\":\"2.0\",\"id\":{id},\"result\":{}}}\n\n", self.state.text(&text))
        };
        let events = asked.chain(stream::once(rest)).map(|event| Ok(Frame::data(Bytes::from(event))));
        let response = Response::builder().header("content-type", "text/event-stream");
        response.body(StreamBody::new(events).boxed_unsync()).unwrap()
    }
}

/// The raw reply to the question with this raw id.
async fn reply_to(mut replies: watch::Receiver<Vec<String>>, own: String) -> String {
    let is_own = |reply: &&String| reply.contains(&own);
    let all = replies.wait_for(|replies| replies.iter().any(|reply| is_own(&reply))).await;
    all.ok().and_then(|all| all.iter().find(is_own).cloned()).unwrap_or_default()
}
