//! Answers of calls as event streams: what a client is told and asked before the answer, and the answer.

use std::convert::Infallible;

use axum::body::Body;
use axum::response::Response;
use bytes::Bytes;
use futures_util::stream;
use tokio::sync::mpsc;
use tokio::sync::mpsc::error::TryRecvError;

use super::asked::{question_event, withdraw_event};
use super::jsonrpc::{BROKEN, notification};
use super::recipient::To;
use super::result::Answered;
use super::text::{Chunks, Text};
use crate::domain::json;
use crate::faces::sse;
use crate::gateway::{Apart, CallEvent, CallOutcome, Outlive, ToClient};

/// Member of `_meta` that names the progress of a request.
pub(super) const PROGRESS_TOKEN: &str = "progressToken";
/// Comment that keeps a silent stream open.
const KEEP_ALIVE: &[u8] = b": keep-alive\n\n";
/// Step of progress that only says that a call still waits: far below what servers count in.
const STEP: f64 = 1e-6;

/// Source of messages to a client, and their form.
pub(super) struct Telling {
    source: Source,
    /// Raw token of the client's progress; `None` if it wants none.
    token: Option<String>,
    /// Revision of a client that is asked; empty for others.
    version: String,
    /// Last progress that was told.
    progress: f64,
}

enum Source {
    /// Messages of the upstream alone.
    Upstream(mpsc::Receiver<CallEvent>),
    /// Messages of the upstream, and questions.
    Line(mpsc::Receiver<ToClient>),
}

impl Telling {
    /// Returns the source of a client that is told what the upstream says and cannot be asked.
    pub(super) fn upstream(events: mpsc::Receiver<CallEvent>, token: Option<String>) -> Telling {
        let source = Source::Upstream(events);
        Telling { source, token, version: String::new(), progress: 0.0 }
    }

    /// Returns the source of a client that can be asked, and speaks this revision.
    pub(super) fn questions(
        line: mpsc::Receiver<ToClient>,
        token: Option<String>,
        version: String,
    ) -> Telling {
        Telling { source: Source::Line(line), token, version, progress: 0.0 }
    }

    /// Returns the next message; `None` once there are no more.
    async fn next(&mut self) -> Option<ToClient> {
        match &mut self.source {
            Source::Upstream(events) => events.recv().await.map(told),
            Source::Line(line) => line.recv().await,
        }
    }

    fn try_next(&mut self) -> Result<ToClient, TryRecvError> {
        match &mut self.source {
            Source::Upstream(events) => events.try_recv().map(told),
            Source::Line(line) => line.try_recv(),
        }
    }

    /// Returns a message as an event.
    fn event(&mut self, message: &ToClient) -> Bytes {
        match (message, &self.token) {
            (ToClient::Progress(params), Some(token)) => {
                let text = String::from_utf8_lossy(params);
                if let Ok([Some(progress)]) = json::find_members(&text, ["progress"]) {
                    self.progress = progress.parse().unwrap_or(self.progress);
                }
                progress_event(&text, token)
            }
            (ToClient::Waiting, Some(token)) => {
                self.progress += STEP.max(self.progress.abs() * STEP);
                let params = format!(r#"{{"progress":{},"message":"Waiting for an answer"}}"#, self.progress);
                progress_event(&params, token)
            }
            (ToClient::Waiting | ToClient::Progress(_), _) => Bytes::from_static(KEEP_ALIVE),
            (ToClient::Log(params), _) => {
                sse::event(&notification("notifications/message", &String::from_utf8_lossy(params)))
            }
            (ToClient::PageDone(params), _) => sse::event(&notification(
                "notifications/elicitation/complete",
                &String::from_utf8_lossy(params),
            )),
            (ToClient::Ask(question), _) => question_event(question, &self.version),
            (ToClient::Withdraw(id), _) => withdraw_event(id),
        }
    }
}

fn told(event: CallEvent) -> ToClient {
    match event {
        CallEvent::Progress(params) => ToClient::Progress(params),
        CallEvent::Log(params) => ToClient::Log(params),
        CallEvent::PageDone(params) => ToClient::PageDone(params),
        // not asked for: dropping a question refuses it
        CallEvent::Question(_) | CallEvent::KeptBack { .. } => ToClient::Waiting,
    }
}

/// Returns progress as an event, under the caller's own token.
fn progress_event(params: &str, token: &str) -> Bytes {
    let params =
        json::with_member_first(&json::without_members(params, &[PROGRESS_TOKEN]), PROGRESS_TOKEN, token);
    sse::event(&notification("notifications/progress", &params))
}

/// Waits for the outcome. Responds with JSON, or with an event stream if the client is told something first.
pub(super) async fn respond_telling(
    to: To,
    mut telling: Telling,
    mut outcome: Outlive<CallOutcome>,
) -> Response {
    let (first, last) = tokio::select! {
        biased;
        Some(first) = telling.next() => (first, None),
        ended = &mut outcome => {
            let answered = to.answer(&ended);
            // one poll of the call may both report progress and end it
            match telling.try_next() {
                Ok(first) => (first, Some(answered)),
                Err(_) => return to.response(answered),
            }
        }
    };
    // the call goes on even if the client stops reading, and its deadline holds
    let ending = match last {
        Some(answered) => Ending::Answered(answered),
        None => Ending::Awaited(outcome.apart()),
    };
    to.operation.streams();
    let begin = Told { to, telling, first: Some(first), ending };
    sse::event_stream(Body::from_stream(stream::unfold(begin, step)))
}

struct Told {
    to: To,
    telling: Telling,
    first: Option<ToClient>,
    ending: Ending,
}

/// State of a stream before its end.
enum Ending {
    Awaited(Apart<CallOutcome>),
    /// The answer is known. What was told before is sent first.
    Answered(Answered),
    /// The final message is being sent.
    Leaving(Chunks),
}

async fn step(mut state: Told) -> Option<(Result<Bytes, Infallible>, Told)> {
    if let (None, Ending::Awaited(outcome)) = (&state.first, &mut state.ending) {
        tokio::select! {
            biased;
            Some(message) = state.telling.next() => state.first = Some(message),
            ended = outcome => match ended {
                Some(ended) => state.ending = Ending::Answered(state.to.answer(&ended)),
                None => {
                    // the call broke, which its record says too
                    state.to.operation.ended(BROKEN);
                    return None;
                }
            },
        }
    }
    if let Some(message) = state.first.take().or_else(|| state.telling.try_next().ok()) {
        let event = state.telling.event(&message);
        return Some((Ok(event), state));
    }
    let mut chunks = match state.ending {
        Ending::Answered(
            Answered::Message(text) | Answered::Rejected(text) | Answered::NeedsScope(text, _),
        ) => text.into_event(),
        Ending::Answered(Answered::Failed(error)) => Text::Whole(error.text(Some(&state.to.id))).into_event(),
        Ending::Leaving(chunks) => chunks,
        Ending::Answered(Answered::Withdrawn(_)) | Ending::Awaited(_) => return None,
    };
    let chunk = chunks.next()?;
    Some((Ok(chunk), Told { ending: Ending::Leaving(chunks), ..state }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(telling: &mut Telling, message: &ToClient) -> String {
        String::from_utf8(telling.event(message).to_vec()).unwrap()
    }

    #[test]
    fn progress_grows_while_a_call_waits() {
        let (_sender, line) = mpsc::channel(1);
        let mut telling = Telling::questions(line, Some("7".to_owned()), "2025-11-25".to_owned());
        let first = event(&mut telling, &ToClient::Waiting);
        assert!(first.contains(r#""progressToken":7,"progress":0.000001,"message":"#), "{first}");
        let of_server = ToClient::Progress(Bytes::from_static(br#"{"progressToken":"x","progress":5}"#));
        assert!(event(&mut telling, &of_server).contains(r#"{"progressToken":7,"progress":5}"#));
        let second = event(&mut telling, &ToClient::Waiting);
        assert!(second.contains(r#""progress":5.000005,"#), "{second}");
        let third = event(&mut telling, &ToClient::Waiting);
        assert!(third.contains(r#""progress":5.00001"#), "{third}");
    }

    #[test]
    fn without_a_token_there_is_no_progress() {
        let (_sender, line) = mpsc::channel(1);
        let mut telling = Telling::questions(line, None, "2025-11-25".to_owned());
        assert_eq!(event(&mut telling, &ToClient::Waiting), ": keep-alive\n\n");
    }
}
