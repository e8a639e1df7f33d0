//! `GET /events`: the state of the servers and every change of it, as server-sent events.
//!
//! Each stream begins with the state of all servers. So a client that reconnects, to any replica, needs no event id.

use axum::body::Body;
use std::convert::Infallible;
use std::sync::Arc;

use bytes::Bytes;
use futures_util::stream;
use serde::Serialize;
use tokio::time::{Instant, sleep_until};

use super::error::RestError;
use super::exchange::Exchange;
use super::params::Params;
use super::show::{RestAnswer, RouteAnswer};
use crate::faces::sse::{OpenStream, StreamKind, event_stream};
use crate::gateway::{Listening, ServerState, ServerStates};

#[derive(Serialize)]
struct Shown<'a> {
    name: &'a str,
    enabled: bool,
    quarantined: bool,
    connected: bool,
    tools: Tools,
}

#[derive(Serialize)]
struct Tools {
    approved: usize,
    pending: usize,
    changed: usize,
    blocked: usize,
}

#[derive(Serialize)]
struct All<'a> {
    items: Vec<Shown<'a>>,
}

#[derive(Serialize)]
struct Removed<'a> {
    name: &'a str,
}

pub(super) async fn get(exchange: Arc<Exchange>, _params: Params) -> RestAnswer {
    let open = exchange.open_stream(StreamKind::Events)?;
    let listening = exchange.gateway().tenants.follow_servers(exchange.caller_handle()).await?;
    let state = Following { open, listening, told: None };
    Ok(RouteAnswer::Ready(event_stream(Body::from_stream(stream::unfold(state, Following::step)))))
}

struct Following {
    open: OpenStream,
    listening: Listening,
    /// State that the client knows; `None` before the first event.
    told: Option<Arc<ServerStates>>,
}

impl Following {
    async fn step(mut self) -> Option<(Result<Bytes, Infallible>, Following)> {
        loop {
            if self.open.must_end() {
                return None;
            }
            let now = self.listening.servers()?;
            let news = match &self.told {
                None => event("servers", &All { items: now.iter().map(shown).collect() })?,
                Some(told) if Arc::ptr_eq(told, &now) => String::new(),
                Some(told) => changes(told, &now)?,
            };
            self.told = Some(now);
            if !news.is_empty() {
                return Some((Ok(news.into()), self));
            }
            if self.open.is_sign_due() {
                return Some((Ok(Bytes::from_static(b": alive\n\n")), self));
            }
            let expiry = self.listening.expires_in().map(|after| Instant::now() + after);
            let until = expiry.map_or(self.open.sign_at(), |at| at.min(self.open.sign_at()));
            tokio::select! {
                _ = self.listening.heard(&self.open.gateway().tenants) => {}
                () = sleep_until(until) => {}
            }
        }
    }
}

/// Returns an event for each server that was changed, added or removed.
fn changes(told: &ServerStates, now: &ServerStates) -> Option<String> {
    let mut out = String::new();
    for server in now.iter().filter(|(name, state)| told.get(*name) != Some(state)) {
        out.push_str(&event("server", &shown(server))?);
    }
    for name in told.keys().filter(|name| !now.contains_key(*name)) {
        out.push_str(&event("removed", &Removed { name })?);
    }
    Some(out)
}

fn shown<'a>((name, state): (&'a String, &ServerState)) -> Shown<'a> {
    let ServerState {
        enabled,
        quarantined,
        connected,
        approved,
        pending,
        changed,
        blocked,
        waiting_offers: _,
    } = *state;
    Shown { name, enabled, quarantined, connected, tools: Tools { approved, pending, changed, blocked } }
}

fn event<T: Serialize>(name: &str, data: &T) -> Option<String> {
    let data = serde_json::to_string(data).map_err(RestError::unshowable).ok()?;
    Some(format!("event: {name}\ndata: {data}\n\n"))
}
