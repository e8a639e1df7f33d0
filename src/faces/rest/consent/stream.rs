//! `GET /consent/stream`: the permission requests that are open, and every step of any, as server-sent events.
//!
//! Each stream begins with what is pending. So a client that reconnects, to any replica, needs no event id.

use std::collections::HashMap;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use bytes::Bytes;
use futures_util::stream;
use tokio::time::{Instant, sleep_until};
use uuid::Uuid;

use crate::domain::consent::ConsentState;
use crate::domain::reason::Language;
use crate::faces::rest::error::RestError;
use crate::faces::rest::exchange::Exchange;
use crate::faces::rest::params::Params;
use crate::faces::rest::show::{RestAnswer, RouteAnswer};
use crate::faces::sse::{CHECK, OpenStream, StreamKind, event_stream};
use crate::gateway::{ConsentNews, ConsentView, next_consent_poll};
use crate::store::ConsentFilter;

/// Most open requests that a stream shows by itself; further ones are in the list.
const OPEN_MAX: i64 = 100;
/// Pause before open requests are read again that could not be read.
const RETRY: Duration = Duration::from_secs(5);

pub(in crate::faces::rest) async fn get(exchange: Arc<Exchange>, _: Params) -> RestAnswer {
    let open = exchange.open_stream(StreamKind::Consent)?;
    let news = exchange.gateway().consent.follow(exchange.caller())?;
    let state = Following {
        open,
        news,
        accepted: exchange.attempt.language,
        told: HashMap::new(),
        look_at: Instant::now(),
    };
    Ok(RouteAnswer::Ready(event_stream(Body::from_stream(stream::unfold(state, Following::step)))))
}

struct Following {
    open: OpenStream,
    news: ConsentNews,
    /// Language that the client asks for.
    accepted: Option<Language>,
    /// State in which the client knows each open request; at most as many as were read.
    told: HashMap<Uuid, String>,
    /// Time at which open requests are read next.
    look_at: Instant,
}

impl Following {
    async fn step(mut self) -> Option<(Result<Bytes, Infallible>, Following)> {
        loop {
            if self.open.must_end() {
                return None;
            }
            let mut events = String::new();
            if self.look_at <= Instant::now() {
                self.look_at = next_consent_poll(Instant::now());
                self.look(&mut events).await?;
            }
            if !events.is_empty() {
                return Some((Ok(events.into()), self));
            }
            if self.open.is_sign_due() {
                return Some((Ok(Bytes::from_static(b": alive\n\n")), self));
            }
            let until = self.look_at.min(self.open.sign_at()).min(Instant::now() + CHECK);
            let heard = tokio::select! {
                heard = self.news.next() => heard,
                () = sleep_until(until) => continue,
            };
            let Some(view) = heard else {
                // some news were lost: what is open is read again
                self.look_at = Instant::now();
                continue;
            };
            self.tell(&view, &mut events)?;
            if !events.is_empty() {
                return Some((Ok(events.into()), self));
            }
        }
    }

    /// Tells what is pending now, and how those went on that were.
    async fn look(&mut self, events: &mut String) -> Option<()> {
        // what is told of a request never goes back to an earlier state
        let _held = self.news.hold().await;
        while let Some(view) = self.news.rest() {
            self.tell(&view, events)?;
        }
        let (consent, caller) = (&self.open.gateway().consent, self.open.caller());
        let filter = ConsentFilter { state: Some(ConsentState::Pending), ..ConsentFilter::default() };
        let Ok(pending) = consent.list(caller, filter, OPEN_MAX).await else {
            self.look_at = Instant::now() + RETRY;
            return Some(());
        };
        let gone = self.told.keys().filter(|id| !pending.iter().any(|view| view.row.id == **id));
        let filter = ConsentFilter { ids: Some(gone.copied().collect()), ..ConsentFilter::default() };
        let mut views = Vec::new();
        if filter.ids.as_ref().is_some_and(|gone| !gone.is_empty()) {
            let Ok(gone) = consent.list(caller, filter, 2 * OPEN_MAX).await else {
                self.look_at = Instant::now() + RETRY;
                return Some(());
            };
            views = gone;
        }
        views.extend(pending);
        self.told.retain(|id, _| views.iter().any(|view| view.row.id == *id));
        views.iter().try_for_each(|view| self.tell(view, events))
    }

    /// Adds the event of a request, unless the client may not see it, or knows it in this state.
    fn tell(&mut self, view: &ConsentView, events: &mut String) -> Option<()> {
        if !view.is_visible_to(self.open.caller()) {
            return Some(());
        }
        let (id, state) = (view.row.id, view.row.state.as_str());
        if self.told.get(&id).is_some_and(|told| told == state) {
            return Some(());
        }
        let language = self.open.caller().settings.language(self.accepted);
        let data = serde_json::to_string(&view.shown(language)).map_err(RestError::unshowable).ok()?;
        events.push_str(&format!("event: consent\ndata: {data}\n\n"));
        match view.row.state == ConsentState::Pending && self.told.len() < 2 * OPEN_MAX as usize {
            true => drop(self.told.insert(id, state.to_owned())),
            false => drop(self.told.remove(&id)),
        }
        Some(())
    }
}
