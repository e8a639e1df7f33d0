//! `GET /activity/stream`: records as they are written, as server-sent events.
//!
//! In the order of their commits, which is the same on every replica: the id of an event is a place in that order, so
//! a client that comes back with `Last-Event-ID`, wherever it comes back, gets what it missed, each record once.

use std::convert::Infallible;
use std::sync::Arc;

use bytes::Bytes;
use futures_util::stream;
use http::HeaderMap;
use tokio::time::timeout;
use ulid::Ulid;

use super::{filter, shown};
use crate::faces::http::stream_body;
use crate::faces::rest::error::RestError;
use crate::faces::rest::exchange::Exchange;
use crate::faces::rest::params::{Names, Params};
use crate::faces::rest::route::Answer;
use crate::faces::sse::{CHECK, OpenStream, event_stream};
use crate::gateway::{GatewayError, News, Reach};
use crate::store::{ActivityFilter, ActivityRow, Commit};

/// The parameters: those of a list without its pages and times.
pub(in crate::faces::rest) const PARAMS: Names = filters![];
/// The header with which a client says where it was.
const LAST_EVENT_ID: &str = "last-event-id";

pub(in crate::faces::rest) async fn get(exchange: Arc<Exchange>, params: Params) -> Answer {
    let filter = filter(&params, exchange.attempt.started_at)?;
    let seen = last_event(exchange.headers())?;
    let open = exchange.open_stream()?;
    let (now, news) = exchange.gateway().follow_activity(exchange.caller()).await?;
    // a place that is still to come is one of another database: nothing is known of what was missed
    let at = seen.map_or(now, |seen| seen.min(now));
    let reach = if seen.is_some() { Reach::Whole } else { Reach::Recent };
    let state = Following { open, filter, news, at, reach, next: Next::Place };
    Ok(event_stream(stream_body(stream::unfold(state, Following::step))))
}

/// Where the client was, if it says.
fn last_event(headers: &HeaderMap) -> Result<Option<Commit>, GatewayError> {
    let Some(value) = headers.get(LAST_EVENT_ID) else { return Ok(None) };
    let place = value.to_str().ok().and_then(|text| {
        let (xid, record) = text.split_once('-')?;
        Some(Commit { xid: xid.parse().ok()?, record: Ulid::from_string(record).ok()?.into() })
    });
    let message = "Last-Event-ID must be the id of an event of this stream; leave it out to begin now";
    place.map(Some).ok_or_else(|| GatewayError::invalid("Last-Event-ID", message))
}

enum Next {
    /// Say where the stream is, so that a client that has got nothing yet can come back there.
    Place,
    /// Read what there is.
    Read,
    /// Wait until there is something.
    Wait,
}

struct Following {
    open: OpenStream,
    filter: ActivityFilter,
    news: News,
    at: Commit,
    reach: Reach,
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
                    let place = place(self.at, ": following\n");
                    return Some((Ok(place), self));
                }
                Next::Read => {
                    let (gateway, caller) = (self.open.gateway(), self.open.caller());
                    let tail = gateway.tail_activity(caller, &self.filter, self.at, self.reach).await;
                    let Ok(tail) = tail else {
                        // the database is away or busy: nothing is missed, it comes later
                        tokio::time::sleep(CHECK).await;
                        if self.open.is_sign_due() {
                            return Some((Ok(place(self.at, ": alive\n")), self));
                        }
                        continue;
                    };
                    // the key may have ended while its records were read
                    if self.open.must_end() {
                        return None;
                    }
                    self.at = tail.end;
                    if !tail.is_cut {
                        self.reach = Reach::Recent;
                    }
                    self.next = if tail.is_cut { Next::Read } else { Next::Wait };
                    if !tail.rows.is_empty() {
                        return Some((Ok(events(&tail.rows).ok()?), self));
                    }
                }
                Next::Wait => {
                    if timeout(CHECK, self.news.wait()).await.is_ok() {
                        self.next = Next::Read;
                    } else if self.open.is_sign_due() {
                        // what came and was not asked for need not be looked at again
                        let sign = place(self.at, ": alive\n");
                        return Some((Ok(sign), self));
                    }
                }
            }
        }
    }
}

/// An event without data: it moves the client's last id, and nothing else.
fn place(at: Commit, comment: &str) -> Bytes {
    format!("{comment}id: {}\n\n", id(at)).into()
}

fn id(at: Commit) -> String {
    format!("{}-{}", at.xid, Ulid::from(at.record))
}

fn events(rows: &[(Commit, ActivityRow)]) -> Result<Bytes, RestError> {
    let mut text = Vec::new();
    for (at, row) in rows {
        text.extend_from_slice(format!("id: {}\nevent: activity\ndata: ", id(*at)).as_bytes());
        serde_json::to_writer(&mut text, &shown(row)).map_err(RestError::unshowable)?;
        text.extend_from_slice(b"\n\n");
    }
    Ok(text.into())
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;
    use uuid::Uuid;

    use super::*;

    #[test]
    fn places_come_back_as_they_went() {
        let at = Commit { xid: u64::MAX, record: Uuid::from_u128(7) };
        let mut headers = HeaderMap::new();
        assert_eq!(last_event(&headers).unwrap(), None);
        headers.insert(LAST_EVENT_ID, HeaderValue::from_str(&id(at)).unwrap());
        assert_eq!(last_event(&headers).unwrap(), Some(at));
        for bad in ["", "7", "7-", "-00000000000000000000000007", "x-00000000000000000000000007", "7-0-0"] {
            headers.insert(LAST_EVENT_ID, HeaderValue::from_str(bad).unwrap());
            assert!(last_event(&headers).is_err(), "{bad}");
        }
    }
}
