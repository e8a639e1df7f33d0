//! Streams that a client holds open: a handshake GET, or a modern `subscriptions/listen`.
//!
//! On `/mcp/direct` they carry notifications of changed lists, and of updates of resources that the client subscribed to;
//! `/mcp` has none. Keep-alives are sent in between. A stream ends when its key does, when the gateway stops, or when the
//! client goes.

use std::collections::HashSet;
use std::convert::Infallible;
use std::future::pending;
use std::sync::Arc;

use axum::body::Body;
use axum::response::Response;
use bytes::Bytes;
use futures_util::stream;
use tokio::time::{Instant, sleep_until};

use super::Endpoint;
use super::jsonrpc::{RpcError, message, notification};
use super::notify::{Due, SeenNotices, Told, Topics, events};
use crate::domain::json::{self, escape_into};
use crate::domain::settings::ToolNames;
use crate::faces::Faces;
use crate::faces::sse::{OpenStream, StreamKind, TooManyStreams, event, event_stream};
use crate::gateway::{Caller, Heard, Listening, ResourceNews, SessionStreamHold, Topic, UpdatesDue};

/// Member of `subscriptions/listen` that names resources.
const SUBSCRIPTIONS: &str = "resourceSubscriptions";
/// First handshake revision whose clients expect an initial event with nothing but an id.
const PRIMED_SINCE: &str = "2025-11-25";

/// Caller, endpoint and spelling of a stream.
#[derive(Clone, Copy)]
pub(super) struct ListenStream<'a> {
    pub(super) faces: &'a Arc<Faces>,
    pub(super) caller: &'a Arc<Caller>,
    pub(super) endpoint: Endpoint,
    /// Spelling that was asked for; `None` for that of the key's settings.
    pub(super) names: Option<ToolNames>,
}

/// Request that opens a stream.
pub(super) enum Opening<'a> {
    /// Handshake GET.
    Get {
        /// Id of the session, whose subscriptions count; `None` without a session.
        session: Option<&'a str>,
        /// Revision that the client speaks, if it says so.
        version: Option<&'a str>,
        /// Id of the last event that the client received.
        last_event_id: Option<&'a str>,
    },
    /// Modern `subscriptions/listen`.
    Listen {
        /// Raw id of the request.
        id: &'a str,
        /// Kinds of lists that the client wants notifications of.
        wants: Topics,
        /// Resources whose updates the client wants notifications of.
        uris: Vec<String>,
    },
}

/// Returns the kinds of lists, and the URIs of resources, that a raw `notifications` member of `subscriptions/listen` asks
/// for.
///
/// # Errors
/// The member is missing, or no object.
pub(super) fn wants(notifications: Option<&str>) -> Result<(Topics, Vec<String>), RpcError> {
    let invalid = || RpcError::invalid_params("Invalid params: notifications must be an object");
    let members = json::top_level_members(notifications.ok_or_else(invalid)?).map_err(|_| invalid())?;
    let asked = members.iter().filter(|member| member.value == "true");
    let topics = asked.fold(Topics::default(), |topics, member| topics.or(Topics::of_member(&member.name)));
    let named = members.iter().find(|member| member.name == SUBSCRIPTIONS);
    let uris = named.and_then(|member| serde_json::from_str::<Vec<String>>(member.value).ok());
    let (mut seen, mut uris) = (HashSet::new(), uris.unwrap_or_default());
    uris.retain(|uri| seen.insert(uri.clone()));
    Ok((topics, uris))
}

/// Opens a stream.
///
/// # Errors
/// [`TooManyStreams`] if the key or its tenant has too many streams open.
pub(super) async fn open(
    listener: ListenStream<'_>,
    opening: Opening<'_>,
) -> Result<Response, TooManyStreams> {
    let ListenStream { faces, caller, endpoint, names } = listener;
    let (topic, kind) = match endpoint {
        Endpoint::Search => (Topic::Nothing, StreamKind::Search),
        Endpoint::Direct => (Topic::Direct, StreamKind::Direct),
    };
    // takes a slot before anything is made for the stream
    let place = OpenStream::begin(faces, caller, kind)?;
    let listening = faces.gateway.tenants.listen(caller, topic).await;
    let seen = seen(&listening, names);
    let opened = Instant::now();
    let state = match opening {
        Opening::Get { session, version, last_event_id } => {
            let told = seen.map(|seen| Told::new(seen, Topics::ALL, opened));
            let told = told.map(|told| match last_event_id {
                Some(id) => told.with_id(id),
                None => since_listed(told, &listening),
            });
            // an id would mean that the client knows everything before it
            let is_owed = told.as_ref().is_some_and(Told::is_owed);
            let is_primed = version.is_some_and(|version| version >= PRIMED_SINCE) && !is_owed;
            let first = match seen.filter(|_| is_primed) {
                Some(seen) => format!("id: {}\ndata:\n\n", seen.id()).into(),
                None => Bytes::from_static(b": open\n\n"),
            };
            let sessions = &faces.gateway.sessions;
            let of_session = session.map(|session| sessions.hold_stream(caller, session));
            let updates = session.filter(|_| endpoint == Endpoint::Direct);
            let updates = updates.map(|session| sessions.follow(caller, session));
            State {
                place,
                listening,
                endpoint,
                names,
                told,
                updates,
                _of_session: of_session,
                way: Way::Get,
                next: Next::First(first),
            }
        }
        Opening::Listen { id, wants, uris } => {
            let wants = if seen.is_some() { wants } else { Topics::default() };
            let mut honoured: Vec<String> = wants.members().map(|name| format!("\"{name}\":true")).collect();
            let uris = match endpoint {
                Endpoint::Search => Vec::new(),
                Endpoint::Direct => faces.gateway.calls.watchable(caller, uris).await,
            };
            if !uris.is_empty() {
                honoured.push(format!("\"{SUBSCRIPTIONS}\":{}", serde_json::json!(uris)));
            }
            let meta = subscription(id);
            let params = format!(r#"{{"notifications":{{{}}},"_meta":{meta}}}"#, honoured.join(","));
            let first = event(&notification("notifications/subscriptions/acknowledged", &params));
            let told = seen.map(|seen| since_listed(Told::new(seen, wants, opened), &listening));
            let way = Way::Listen { id: id.to_owned() };
            let updates = (!uris.is_empty()).then(|| faces.gateway.sessions.follow_uris(uris));
            let next = Next::First(first);
            State { place, listening, endpoint, names, told, updates, _of_session: None, way, next }
        }
    };
    Ok(event_stream(Body::from_stream(stream::unfold(state, step))))
}

/// Marks lists as owed that were out of date when the client was served them, shortly before its stream.
fn since_listed(mut told: Told, listening: &Listening) -> Told {
    if let Some((at, kinds)) = listening.misled() {
        told.misled(at.into(), kinds);
    }
    told
}

/// Returns the `_meta` of every message of a subscription.
fn subscription(id: &str) -> String {
    format!(r#"{{"io.modelcontextprotocol/subscriptionId":{id}}}"#)
}

/// Returns the lists that the client would be served now; `None` for streams without notifications.
fn seen(listening: &Listening, names: Option<ToolNames>) -> Option<SeenNotices> {
    let names = names.unwrap_or(listening.caller().settings.tool_names);
    let manages = listening.caller().manages();
    listening.prints().map(|prints| SeenNotices::of(prints, names, manages))
}

enum Way {
    Get,
    Listen { id: String },
}

impl Way {
    /// Returns the events about updates of resources.
    fn updated(&self, uris: &[String]) -> Bytes {
        let mut out = Vec::new();
        for uri in uris {
            let mut params = String::from(r#"{"uri":"#);
            escape_into(&mut params, uri);
            if let Way::Listen { id } = self {
                params.push_str(&format!(r#","_meta":{}"#, subscription(id)));
            }
            params.push('}');
            out.extend_from_slice(&event(&notification("notifications/resources/updated", &params)));
        }
        out.into()
    }
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
    /// State of the notifications; `None` for streams without any.
    told: Option<Told>,
    /// Updates of resources; `None` for streams that are about none.
    updates: Option<ResourceNews>,
    /// Count of the session's streams; `None` without a session.
    _of_session: Option<SessionStreamHold>,
    way: Way,
    next: Next,
}

impl State {
    fn must_end(&self) -> bool {
        let is_closed =
            self.endpoint == Endpoint::Direct && !self.place.faces().has_direct(self.listening.caller());
        is_closed || self.place.must_end()
    }

    /// Returns the last event of a subscription that the gateway ends, so that the client opens it elsewhere; `None` for a
    /// GET.
    fn last(&self) -> Option<Bytes> {
        let Way::Listen { id } = &self.way else { return None };
        let result = format!(r#"{{"resultType":"complete","_meta":{}}}"#, subscription(id));
        Some(event(&message(id, "result", &result)))
    }

    /// Returns the notifications that are due now. The error is the time of the next check; `None` until something changes.
    fn news(&mut self) -> Result<Bytes, Option<Instant>> {
        // outdated settings do not say what the client sees
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

    /// Returns the notifications about resources that are due now; the error is that of [`State::news`].
    fn updates(&mut self) -> Result<Bytes, Option<Instant>> {
        let Some(updates) = self.updates.as_mut().filter(|_| !self.listening.is_behind()) else {
            return Err(None);
        };
        match updates.due(self.listening.caller(), Instant::now()) {
            UpdatesDue::Nothing => Err(None),
            UpdatesDue::At(at) => Err(Some(at)),
            UpdatesDue::Now(uris) => Ok(self.way.updated(&uris)),
        }
    }

    /// Waits for a change, or until something is due.
    async fn wait(&mut self, merged: Option<Instant>) {
        let mut until = self.place.sign_at();
        let expiry = self.listening.expires_in().map(|after| Instant::now() + after);
        for at in [merged, expiry].into_iter().flatten() {
            until = until.min(at);
        }
        let heard = tokio::select! {
            heard = self.listening.heard(&self.place.gateway().tenants) => heard,
            () = updated(self.updates.as_ref()) => return,
            () = sleep_until(until) => return,
        };
        match (heard, &mut self.told) {
            (Heard::Misled(at, kinds), Some(told)) => told.misled(at.into(), kinds),
            (Heard::Deaf(since), Some(told)) => told.deaf(since.into()),
            _ => {}
        }
    }
}

async fn updated(updates: Option<&ResourceNews>) {
    match updates {
        Some(updates) => updates.changed().await,
        None => pending().await,
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
            if let Some(updates) = state.updates.as_mut().filter(|_| !state.listening.is_behind()) {
                updates.catch_up(state.listening.caller()).await;
            }
            let merged = match state.news() {
                Ok(news) => return Some((Ok(news), state)),
                Err(merged) => merged,
            };
            let merged = match state.updates() {
                Ok(news) => return Some((Ok(news), state)),
                Err(later) => merged.into_iter().chain(later).min(),
            };
            if state.place.is_sign_due() {
                return Some((Ok(Bytes::from_static(b": alive\n\n")), state));
            }
            state.wait(merged).await;
        },
    }
}
