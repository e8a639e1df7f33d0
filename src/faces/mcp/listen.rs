//! Streams that a client holds open: a handshake GET, a modern `subscriptions/listen`.
//!
//! On `/mcp/direct` they carry word of changed lists; `/mcp` has nothing to announce. Between that there are signs of
//! life. They end when the key does, when the gateway stops, or when the client goes.

use std::convert::Infallible;
use std::sync::Arc;

use axum::body::Body;
use axum::response::Response;
use bytes::Bytes;
use futures_util::stream;
use tokio::time::{Instant, sleep_until};

use super::Endpoint;
use super::jsonrpc::{RpcError, message, notification};
use super::notify::{Due, SeenNotices, Told, Topics, events};
use crate::domain::json;
use crate::domain::settings::ToolNames;
use crate::faces::Faces;
use crate::faces::sse::{OpenStream, StreamKind, TooManyStreams, event, event_stream};
use crate::gateway::{Caller, Heard, Listening, Topic};

/// The first handshake revision whose clients expect an event that carries nothing but an id.
const PRIMED_SINCE: &str = "2025-11-25";

/// Whose stream, and of what.
#[derive(Clone, Copy)]
pub(super) struct ListenStream<'a> {
    pub(super) faces: &'a Arc<Faces>,
    pub(super) caller: &'a Arc<Caller>,
    pub(super) endpoint: Endpoint,
    /// The spelling that was asked for; `None` for the key's own.
    pub(super) names: Option<ToolNames>,
}

/// The ways in which streams are opened.
pub(super) enum Opening<'a> {
    /// A handshake GET.
    Get {
        /// The version that the client speaks, when it says so.
        version: Option<&'a str>,
        /// The last event that it was told.
        last_event_id: Option<&'a str>,
    },
    /// A modern `subscriptions/listen`.
    Listen {
        /// The raw id of the request.
        id: &'a str,
        /// What it wants to hear of.
        wants: Topics,
    },
}

/// What a raw `notifications` member of `subscriptions/listen` asks for.
///
/// # Errors
/// It is missing, or no object.
pub(super) fn wants(notifications: Option<&str>) -> Result<Topics, RpcError> {
    let invalid = || RpcError::invalid_params("Invalid params: notifications must be an object");
    let members = json::top_level_members(notifications.ok_or_else(invalid)?).map_err(|_| invalid())?;
    let asked = members.iter().filter(|member| member.value == "true");
    Ok(asked.fold(Topics::default(), |topics, member| topics.or(Topics::of_member(&member.name))))
}

/// Opens a stream.
///
/// # Errors
/// [`TooManyStreams`]
pub(super) async fn open(
    listener: ListenStream<'_>,
    opening: Opening<'_>,
) -> Result<Response, TooManyStreams> {
    let ListenStream { faces, caller, endpoint, names } = listener;
    let (topic, kind) = match endpoint {
        Endpoint::Search => (Topic::Nothing, StreamKind::Search),
        Endpoint::Direct => (Topic::Direct, StreamKind::Direct),
    };
    // before anything is made for it
    let place = OpenStream::begin(faces, caller, kind)?;
    let listening = faces.gateway.tenants.listen(caller, topic).await;
    let seen = seen(&listening, names);
    let opened = Instant::now();
    let state = match opening {
        Opening::Get { version, last_event_id } => {
            let told = seen.map(|seen| Told::new(seen, Topics::ALL, opened));
            let told = told.map(|told| match last_event_id {
                Some(id) => told.with_id(id),
                None => since_listed(told, &listening),
            });
            // an id says that all before it was told
            let is_owed = told.as_ref().is_some_and(Told::is_owed);
            let is_primed = version.is_some_and(|version| version >= PRIMED_SINCE) && !is_owed;
            let first = match seen.filter(|_| is_primed) {
                Some(seen) => format!("id: {}\ndata:\n\n", seen.id()).into(),
                None => Bytes::from_static(b": open\n\n"),
            };
            State { place, listening, endpoint, names, told, way: Way::Get, next: Next::First(first) }
        }
        Opening::Listen { id, wants } => {
            let wants = if seen.is_some() { wants } else { Topics::default() };
            let honoured: Vec<String> = wants.members().map(|name| format!("\"{name}\":true")).collect();
            let meta = subscription(id);
            let params = format!(r#"{{"notifications":{{{}}},"_meta":{meta}}}"#, honoured.join(","));
            let first = event(&notification("notifications/subscriptions/acknowledged", &params));
            let told = seen.map(|seen| since_listed(Told::new(seen, wants, opened), &listening));
            let way = Way::Listen { id: id.to_owned() };
            State { place, listening, endpoint, names, told, way, next: Next::First(first) }
        }
    };
    Ok(event_stream(Body::from_stream(stream::unfold(state, step))))
}

/// A client that has listed a moment ago, when that was out of date.
fn since_listed(mut told: Told, listening: &Listening) -> Told {
    if let Some((at, kinds)) = listening.misled() {
        told.misled(at.into(), kinds);
    }
    told
}

/// The `_meta` of everything that belongs to a subscription.
fn subscription(id: &str) -> String {
    format!(r#"{{"io.modelcontextprotocol/subscriptionId":{id}}}"#)
}

/// What the client would be served now; `None` where lists are not told of.
fn seen(listening: &Listening, names: Option<ToolNames>) -> Option<SeenNotices> {
    let names = names.unwrap_or(listening.caller().settings.tool_names);
    let manages = listening.caller().manages();
    listening.prints().map(|prints| SeenNotices::of(prints, names, manages))
}

enum Way {
    Get,
    Listen { id: String },
}

enum Next {
    First(Bytes),
    Wait,
    End,
}

struct State {
    place: OpenStream,
    listening: Listening,
    endpoint: Endpoint,
    names: Option<ToolNames>,
    /// `None` where nothing is told.
    told: Option<Told>,
    way: Way,
    next: Next,
}

impl State {
    fn must_end(&self) -> bool {
        let is_closed =
            self.endpoint == Endpoint::Direct && !self.place.faces().has_direct(self.listening.caller());
        is_closed || self.place.must_end()
    }

    /// The last event of a stream that the gateway ends: clients come back elsewhere.
    fn last(&self) -> Option<Bytes> {
        let Way::Listen { id } = &self.way else { return None };
        let result = format!(r#"{{"resultType":"complete","_meta":{}}}"#, subscription(id));
        Some(event(&message(id, "result", &result)))
    }

    /// What is to be told now, or when to look again.
    fn news(&mut self) -> Result<Bytes, Option<Instant>> {
        // settings that are out of date say nothing of what is seen
        if self.listening.is_behind() {
            return Err(None);
        }
        let seen = seen(&self.listening, self.names);
        let (Some(told), Some(seen)) = (&mut self.told, seen) else { return Err(None) };
        match told.due(seen, Instant::now()) {
            Due::Nothing => Err(None),
            Due::At(at) => Err(Some(at)),
            Due::Now(topics) => Ok(match &self.way {
                Way::Get => events(topics, "{}", Some(&seen.id())),
                Way::Listen { id } => events(topics, &format!(r#"{{"_meta":{}}}"#, subscription(id)), None),
            }
            .into()),
        }
    }

    /// Waits until there may be something to do.
    async fn wait(&mut self, merged: Option<Instant>) {
        let mut until = self.place.sign_at();
        let expiry = self.listening.expires_in().map(|after| Instant::now() + after);
        for at in [merged, expiry].into_iter().flatten() {
            until = until.min(at);
        }
        let heard = tokio::select! {
            heard = self.listening.heard(&self.place.gateway().tenants) => heard,
            () = sleep_until(until) => return,
        };
        match (heard, &mut self.told) {
            (Heard::Misled(at, kinds), Some(told)) => told.misled(at.into(), kinds),
            (Heard::Deaf(since), Some(told)) => told.deaf(since.into()),
            _ => {}
        }
    }
}

async fn step(mut state: State) -> Option<(Result<Bytes, Infallible>, State)> {
    match std::mem::replace(&mut state.next, Next::Wait) {
        Next::End => None,
        Next::First(event) => Some((Ok(event), state)),
        Next::Wait => loop {
            if state.must_end() {
                state.next = Next::End;
                let last = state.last()?;
                return Some((Ok(last), state));
            }
            let merged = match state.news() {
                Ok(news) => return Some((Ok(news), state)),
                Err(merged) => merged,
            };
            if state.place.is_sign_due() {
                return Some((Ok(Bytes::from_static(b": alive\n\n")), state));
            }
            state.wait(merged).await;
        },
    }
}
