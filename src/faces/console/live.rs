//! `GET /console/events`: hints to the pages that are open, as server-sent events.
//!
//! A hint says that a page may look different by now: `activity` for new records, `permissions` with the number of requests that
//! wait. It holds nothing else: pages ask for themselves again, and are shown as to everybody. Each stream begins with both hints, so a
//! page that comes back, to any replica, has missed nothing. A stream ends with its session.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use futures_util::stream;
use http::{StatusCode, header};
use tokio::time::{Instant, sleep_until};

use super::page_visit::PageVisit;
use crate::domain::tenant::Action;
use crate::faces::query::activity::{PARAMS, filter};
use crate::faces::query::params::Params;
use crate::faces::sse::{CHECK, OpenStream, StreamKind, event_stream};
use crate::gateway::{ConsentNews, ConsentView, GatewayError, News, TailReach};
use crate::store::{ActivityFilter, Commit};

/// Interval at which a stream looks whether its session has ended.
const SESSION_CHECK: Duration = Duration::from_secs(3);
/// Longest life of a stream. The browser comes back at once, with the rights that the visitor has by then.
const LIFE_MAX: Duration = Duration::from_secs(10 * 60);
/// Least time between two hints of one kind.
const HINT_PAUSE: Duration = Duration::from_secs(1);
/// Interval at which waiting requests are counted without news: some may have expired, or their news may be lost.
const RECOUNT: Duration = Duration::from_secs(30);
/// Time before a browser that lost the stream comes back, in milliseconds.
const RETRY_MS: u32 = 3000;
/// Seconds before a browser that was refused tries again.
const RETRY_AFTER_S: &str = "10";

/// Answers with the stream.
pub(super) async fn events(visit: PageVisit) -> Response {
    match begin(visit).await {
        Ok(hints) => event_stream(Body::from_stream(stream::unfold(hints, Hints::step))),
        Err(error) => {
            tracing::debug!(%error, "a page gets no stream of hints now");
            (StatusCode::SERVICE_UNAVAILABLE, [(header::RETRY_AFTER, RETRY_AFTER_S)]).into_response()
        }
    }
}

async fn begin(visit: PageVisit) -> Result<Hints, GatewayError> {
    let busy = |_| GatewayError::Busy("the key or its tenant has too many streams open");
    let (gateway, caller) = (visit.gateway(), visit.caller());
    let open = OpenStream::begin(visit.faces(), caller, StreamKind::Console).map_err(busy)?;
    let now = Instant::now();
    let activity = match caller.role.may(Action::ReadOwnActivity) {
        true => Some(Follower::of(&visit).await?),
        false => None,
    };
    let consent = gateway.consent.follow(caller).ok();
    Ok(Hints {
        has_moved: true,
        count_at: now,
        paused_until: now,
        told: None,
        session_at: now + SESSION_CHECK,
        ends_at: now + LIFE_MAX,
        has_begun: false,
        visit,
        open,
        activity,
        consent,
    })
}

/// Follower of the activity log.
struct Follower {
    news: News,
    /// Filter and position of those who see their own records alone; `None` for those who see all.
    own: Option<(ActivityFilter, Commit)>,
    /// True if there may be records that the page has not been told of.
    has_news: bool,
    /// True until the first hint, which makes up for what happened since the page was made.
    is_first: bool,
    /// Earliest time of the next hint.
    hint_at: Instant,
}

impl Follower {
    async fn of(visit: &PageVisit) -> Result<Follower, GatewayError> {
        let (at, news) = visit.gateway().log.follow_activity(visit.caller()).await?;
        let own = match visit.caller().role.may(Action::ReadActivity) {
            true => None,
            false => Some((filter(&Params::of(&[], PARAMS)?, visit.now())?, at)),
        };
        Ok(Follower { news, own, has_news: true, is_first: true, hint_at: Instant::now() })
    }

    /// Returns whether there are records for the visitor that the page has not been told of.
    async fn has_records(&mut self, visit: &PageVisit) -> bool {
        let Some((filter, at)) = &mut self.own else { return true };
        let log = &visit.gateway().log;
        match log.tail_activity(visit.caller(), filter, *at, TailReach::Recent).await {
            Ok(tail) => {
                *at = tail.end;
                self.has_news = tail.is_cut;
                !tail.rows.is_empty()
            }
            // the database is away or busy: the records come later
            Err(_) => {
                self.has_news = true;
                false
            }
        }
    }
}

/// Hints under way to one page.
struct Hints {
    visit: PageVisit,
    open: OpenStream,
    /// Follower of the log; `None` for roles that see no records.
    activity: Option<Follower>,
    /// News of permission requests; `None` for those who see none.
    consent: Option<ConsentNews>,
    /// True if a request has moved since the last count.
    has_moved: bool,
    /// Time of the next count.
    count_at: Instant,
    /// Earliest time of the next hint about requests.
    paused_until: Instant,
    /// Number of waiting requests that the page knows.
    told: Option<i64>,
    /// Time at which the session is looked up next.
    session_at: Instant,
    ends_at: Instant,
    has_begun: bool,
}

impl Hints {
    async fn step(mut self) -> Option<(Result<Bytes, Infallible>, Hints)> {
        if !self.has_begun {
            self.has_begun = true;
            return Some((Ok(format!("retry: {RETRY_MS}\n\n").into()), self));
        }
        loop {
            if self.open.must_end() || self.ends_at <= Instant::now() || self.has_session_ended().await {
                return None;
            }
            let mut events = String::new();
            self.tell_waiting(&mut events).await;
            self.tell_activity(&mut events).await;
            if !events.is_empty() {
                return Some((Ok(events.into()), self));
            }
            if self.open.is_sign_due() {
                return Some((Ok(Bytes::from_static(b": alive\n\n")), self));
            }
            self.wait().await;
        }
    }

    /// Waits for news, at most until something is due.
    async fn wait(&mut self) {
        let hint_at =
            self.activity.as_ref().filter(|activity| activity.has_news).map(|activity| activity.hint_at);
        let until = [Some(self.count_at), Some(self.session_at), hint_at, Some(Instant::now() + CHECK)];
        let until = until.into_iter().flatten().min().unwrap_or_else(Instant::now);
        tokio::select! {
            () = heard(self.activity.as_mut()) => {}
            moved = next(self.consent.as_mut()) => {
                // some news were lost, or one is of a request that this visitor sees
                if moved.is_none_or(|view| view.is_visible_to(self.visit.caller())) && !self.has_moved {
                    self.has_moved = true;
                    self.count_at = self.count_at.min(self.paused_until);
                }
            }
            () = sleep_until(until) => {}
        }
    }

    /// Returns whether the session has ended. One that cannot be looked up now has not.
    async fn has_session_ended(&mut self) -> bool {
        if self.session_at > Instant::now() {
            return false;
        }
        self.session_at = Instant::now() + SESSION_CHECK;
        let Some(secret) = self.visit.secret() else { return true };
        self.visit.gateway().tenants.has_session_ended(secret).await.unwrap_or_default()
    }

    /// Adds the hint with the number of requests that wait, if a request has moved or the number is another one.
    async fn tell_waiting(&mut self, events: &mut String) {
        if self.consent.is_none() || self.count_at > Instant::now() {
            return;
        }
        let Ok(waiting) = self.visit.gateway().consent.count_waiting(self.visit.caller()).await else {
            self.count_at = Instant::now() + SESSION_CHECK;
            return;
        };
        self.count_at = Instant::now() + RECOUNT;
        self.paused_until = Instant::now() + HINT_PAUSE;
        let has_moved = std::mem::take(&mut self.has_moved);
        if has_moved || self.told != Some(waiting) {
            self.told = Some(waiting);
            events.push_str(&format!("event: permissions\ndata: {waiting}\n\n"));
        }
    }

    /// Adds the hint about new records, if there are some.
    async fn tell_activity(&mut self, events: &mut String) {
        let Some(activity) = &mut self.activity else { return };
        if !activity.has_news || activity.hint_at > Instant::now() {
            return;
        }
        activity.has_news = false;
        activity.hint_at = Instant::now() + HINT_PAUSE;
        let is_first = std::mem::take(&mut activity.is_first);
        if is_first || activity.has_records(&self.visit).await {
            events.push_str("event: activity\ndata: 1\n\n");
        }
    }
}

/// Waits for records, and notes them.
async fn heard(activity: Option<&mut Follower>) {
    match activity {
        Some(activity) => {
            activity.news.wait().await;
            activity.has_news = true;
        }
        None => std::future::pending().await,
    }
}

/// Waits for the next request that moves; `None` if some news were lost.
async fn next(consent: Option<&mut ConsentNews>) -> Option<Arc<ConsentView>> {
    match consent {
        Some(consent) => consent.next().await,
        None => std::future::pending().await,
    }
}
