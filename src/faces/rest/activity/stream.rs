//! `GET /activity/stream`: records as they are written, as server-sent events.
//!
//! The order is that of the commits, which is the same on every replica. The id of an event is a position in that order. A
//! client that sends it as `Last-Event-ID`, to any replica, gets each record that it missed once.

use axum::body::Body;
use std::convert::Infallible;
use std::sync::Arc;

use bytes::Bytes;
use futures_util::stream;
use http::HeaderMap;
use tokio::time::timeout;

use super::{filter, filters, shown};
use crate::faces::body::hold_answer;
use crate::faces::rest::error::RestError;
use crate::faces::rest::exchange::Exchange;
use crate::faces::rest::params::{ParamNames, Params};
use crate::faces::rest::place::TenantPlaces;
use crate::faces::rest::show::{RestAnswer, RouteAnswer};
use crate::faces::sse::{CHECK, OpenStream, StreamKind, event_stream};
use crate::gateway::{GatewayError, News, TailReach};
use crate::store::{ActivityFilter, ActivityRow, Commit};

/// Parameters: those of a list without paging and times.
pub(in crate::faces::rest) const PARAMS: ParamNames = filters![];
/// Header with the id of the last event that a client received.
const LAST_EVENT_ID: &str = "last-event-id";

pub(in crate::faces::rest) async fn get(exchange: Arc<Exchange>, params: Params) -> RestAnswer {
    let filter = filter(&params, exchange.attempt.started_at)?;
    let places = exchange.places();
    let seen = last_event(exchange.headers(), &places)?;
    let open = exchange.open_stream(StreamKind::Activity)?;
    let (now, news) = exchange.gateway().log.follow_activity(exchange.caller()).await?;
    // a position still to come is one of another database: nothing is known of what was missed
    let at = seen.map_or(now, |seen| seen.min(now));
    let reach = if seen.is_some() { TailReach::Whole } else { TailReach::Recent };
    let state = Following { open, places, filter, news, at, reach, next: Next::Place };
    Ok(RouteAnswer::Ready(event_stream(Body::from_stream(stream::unfold(state, Following::step)))))
}

/// Returns the position of the last event that the client received; `None` without the header.
fn last_event(headers: &HeaderMap, places: &TenantPlaces) -> Result<Option<Commit>, GatewayError> {
    let Some(value) = headers.get(LAST_EVENT_ID) else { return Ok(None) };
    let place = value.to_str().ok().and_then(|id| places.read(id));
    let message = "Last-Event-ID must be the id of an event of this stream; leave it out to begin now";
    place.map(Some).ok_or_else(|| GatewayError::invalid("Last-Event-ID", message))
}

enum Next {
    /// Send the position of the stream, so that a client without events can resume there.
    Place,
    /// Read the records after the position.
    Read,
    /// Wait for new records.
    Wait,
}

struct Following {
    open: OpenStream,
    places: TenantPlaces,
    filter: ActivityFilter,
    news: News,
    at: Commit,
    reach: TailReach,
    next: Next,
}

impl Following {
    async fn step(mut self) -> Option<(Result<Bytes, Infallible>, Following)> {
        loop {
            if self.open.must_end() {
                return None;
            }
            match self.next {
                Next::Place => {
                    self.next = Next::Read;
                    return Some((Ok(self.sign(": following\n")?), self));
                }
                Next::Read => {
                    let (gateway, caller) = (self.open.gateway(), self.open.caller());
                    let tail = gateway.log.tail_activity(caller, &self.filter, self.at, self.reach).await;
                    let Ok(tail) = tail else {
                        // the database is away or busy: nothing is missed, the records come later
                        tokio::time::sleep(CHECK).await;
                        if self.open.is_sign_due() {
                            return Some((Ok(self.sign(": alive\n")?), self));
                        }
                        continue;
                    };
                    // the key may have ended while its records were read
                    if self.open.must_end() {
                        return None;
                    }
                    self.at = tail.end;
                    if !tail.is_cut {
                        self.reach = TailReach::Recent;
                    }
                    self.next = if tail.is_cut { Next::Read } else { Next::Wait };
                    if !tail.rows.is_empty() {
                        let events = self.events(&tail.rows)?;
                        let (gateway, caller) = (self.open.gateway(), self.open.caller());
                        // without memory for the events the stream ends: its client resumes where it was
                        let events = hold_answer(gateway, caller, None, events).await.ok()?;
                        return Some((Ok(events), self));
                    }
                }
                Next::Wait => {
                    if timeout(CHECK, self.news.wait()).await.is_ok() {
                        self.next = Next::Read;
                    } else if self.open.is_sign_due() {
                        // records that the filter left out need not be read again
                        return Some((Ok(self.sign(": alive\n")?), self));
                    }
                }
            }
        }
    }

    /// Returns an event without data. It only moves the client's last event id.
    fn sign(&self, comment: &str) -> Option<Bytes> {
        Some(format!("{comment}id: {}\n\n", self.places.show(self.at)?).into())
    }

    fn events(&self, rows: &[(Commit, ActivityRow)]) -> Option<Bytes> {
        let mut text = Vec::new();
        for (at, row) in rows {
            text.extend_from_slice(b"id: ");
            text.extend_from_slice(self.places.show(*at)?.as_bytes());
            text.extend_from_slice(b"\nevent: activity\ndata: ");
            serde_json::to_writer(&mut text, &shown(row)).map_err(RestError::unshowable).ok()?;
            text.extend_from_slice(b"\n\n");
        }
        Some(text.into())
    }
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;
    use uuid::Uuid;

    use super::*;
    use crate::domain::id::TenantId;
    use crate::faces::rest::place::Places;

    #[test]
    fn a_header_is_a_place_of_this_tenants_log() {
        let at = Commit { xid: 7, record: Uuid::from_u128(7) };
        let places = Places::new([b"secret".as_slice()]);
        let [own, others] = [1, 2].map(|tenant| places.of(TenantId(Uuid::from_u128(tenant))));
        let mut headers = HeaderMap::new();
        assert_eq!(last_event(&headers, &own).unwrap(), None);
        let mut send = |id: &str, places| {
            headers.insert(LAST_EVENT_ID, HeaderValue::from_str(id).unwrap());
            last_event(&headers, places)
        };
        assert_eq!(send(&own.show(at).unwrap(), &own).unwrap(), Some(at));
        assert!(send(&own.show(at).unwrap(), &others).is_err());
        assert!(send("yesterday", &own).is_err());
    }
}
