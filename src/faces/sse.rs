//! Server-sent events, for all faces: what a stream looks like, how many a key may hold open, when one must end.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::hash::Hash;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use axum::response::Response;
use bytes::Bytes;
use http::{HeaderValue, StatusCode, header};
use tokio::time::Instant;

use super::Faces;
use crate::domain::id::{KeyId, TenantId};
use crate::domain::measure::Count;
use crate::gateway::{Caller, Gateway};

/// How often a silent stream says that it is alive.
const KEEP_ALIVE: Duration = Duration::from_secs(15);
/// How often a stream asks whether its key still is valid.
pub(super) const CHECK: Duration = Duration::from_secs(1);

/// What a stream is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StreamKind {
    /// A client of `/mcp`.
    Search,
    /// A client of `/mcp/direct`.
    Direct,
    /// Somebody watches the activity log.
    Activity,
    /// Somebody reads the activity log out.
    Export,
    /// Somebody watches the state of servers.
    Events,
}

impl StreamKind {
    const ALL: [StreamKind; 5] = [
        StreamKind::Search,
        StreamKind::Direct,
        StreamKind::Activity,
        StreamKind::Export,
        StreamKind::Events,
    ];

    /// The name for those who count.
    pub fn as_str(self) -> &'static str {
        match self {
            StreamKind::Search => "mcp",
            StreamKind::Direct => "direct",
            StreamKind::Activity => "activity",
            StreamKind::Export => "export",
            StreamKind::Events => "events",
        }
    }
}

/// Open streams by key and by tenant, both bounded.
#[derive(Debug, Default)]
pub struct Streams {
    open: Mutex<Open>,
    by_kind: [AtomicUsize; 5],
    /// Those for which there was no place.
    refused: Count,
}

#[derive(Debug, Default)]
struct Open {
    by_key: HashMap<Option<KeyId>, usize>,
    /// Those of the tenants' own keys.
    by_tenant: HashMap<TenantId, usize>,
}

/// Why there is no place for another stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TooManyStreams {
    /// This key has this many open.
    Key(usize),
    /// The keys of this tenant have this many open together.
    Tenant(usize),
}

impl Streams {
    /// Streams open now, by what they are for.
    pub fn open_now(&self) -> impl Iterator<Item = (StreamKind, usize)> {
        StreamKind::ALL.into_iter().zip(self.by_kind.iter().map(|open| open.load(Ordering::Relaxed)))
    }

    /// Streams for which there was no place, since the start.
    pub fn refused(&self) -> u64 {
        self.refused.get()
    }

    fn counter(&self, kind: StreamKind) -> Option<&AtomicUsize> {
        self.by_kind.get(kind as usize)
    }

    fn take(&self, caller: &Caller, key_max: usize) -> Result<(), TooManyStreams> {
        let mut open = self.open();
        let of_key = open.by_key.get(&caller.key).copied().unwrap_or_default();
        if of_key >= key_max {
            return Err(TooManyStreams::Key(key_max));
        }
        let tenant = caller.tenant_id();
        let of_tenant = open.by_tenant.get(&tenant).copied().unwrap_or_default();
        if let Some(max) = caller.tenant_streams_max().filter(|max| of_tenant >= *max) {
            return Err(TooManyStreams::Tenant(max));
        }
        open.by_key.insert(caller.key, of_key + 1);
        if caller.key.is_some() {
            open.by_tenant.insert(tenant, of_tenant + 1);
        }
        Ok(())
    }

    fn give_back(&self, caller: &Caller) {
        let mut open = self.open();
        less(&mut open.by_key, caller.key);
        if caller.key.is_some() {
            less(&mut open.by_tenant, caller.tenant_id());
        }
    }

    /// Streams that a tenant's keys hold open here.
    pub(super) fn of_tenant(&self, tenant: TenantId) -> usize {
        self.open().by_tenant.get(&tenant).copied().unwrap_or_default()
    }

    fn open(&self) -> MutexGuard<'_, Open> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One less; nothing is remembered of whoever has none.
fn less<K: Eq + Hash>(counts: &mut HashMap<K, usize>, of: K) {
    if let Entry::Occupied(mut count) = counts.entry(of) {
        *count.get_mut() -= 1;
        if *count.get() == 0 {
            count.remove();
        }
    }
}

/// A stream that a client holds open: its place among those of its key, and what keeps it alive.
pub(super) struct OpenStream {
    faces: Arc<Faces>,
    caller: Arc<Caller>,
    kind: StreamKind,
    alive: Instant,
}

impl OpenStream {
    /// Takes a place among those of its key and its tenant.
    ///
    /// # Errors
    /// [`TooManyStreams`]
    pub(super) fn begin(
        faces: &Arc<Faces>,
        caller: &Arc<Caller>,
        kind: StreamKind,
    ) -> Result<OpenStream, TooManyStreams> {
        let streams = &faces.streams;
        let taken = streams.take(caller, faces.options.streams_per_key_max);
        taken.inspect_err(|_| streams.refused.one())?;
        if let Some(open) = streams.counter(kind) {
            open.fetch_add(1, Ordering::Relaxed);
        }
        Ok(OpenStream { faces: Arc::clone(faces), caller: Arc::clone(caller), kind, alive: Instant::now() })
    }

    /// The use cases.
    pub(super) fn gateway(&self) -> &Arc<Gateway> {
        &self.faces.gateway
    }

    /// The deployment.
    pub(super) fn faces(&self) -> &Faces {
        &self.faces
    }

    /// Whose it is.
    pub(super) fn caller(&self) -> &Caller {
        &self.caller
    }

    /// Whether the gateway has to end it: it stops, or the key has ended.
    pub(super) fn must_end(&self) -> bool {
        self.gateway().life.is_draining() || !self.gateway().tenants.is_valid(&self.caller)
    }

    /// When it should say again that it is alive.
    pub(super) fn sign_at(&self) -> Instant {
        self.alive + KEEP_ALIVE
    }

    /// Whether it has been silent for so long that it should say that it is alive; asking is saying.
    pub(super) fn is_sign_due(&mut self) -> bool {
        let is_due = self.alive.elapsed() >= KEEP_ALIVE;
        if is_due {
            self.alive = Instant::now();
        }
        is_due
    }
}

impl Drop for OpenStream {
    fn drop(&mut self) {
        let streams = &self.faces.streams;
        streams.give_back(&self.caller);
        if let Some(open) = streams.counter(self.kind) {
            open.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

/// Headers of an event stream that no proxy may hold back.
pub(super) fn event_stream(body: axum::body::Body) -> Response {
    let mut response = Response::new(body);
    *response.status_mut() = StatusCode::OK;
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache, no-transform"));
    headers.insert("x-accel-buffering", HeaderValue::from_static("no"));
    response
}

/// What an event begins with.
pub(super) const EVENT_START: &str = "event: message\ndata: ";
/// What ends it.
pub(super) const EVENT_END: &str = "\n\n";

/// One server-sent event around a JSON text.
pub(super) fn event(message: &str) -> Bytes {
    let mut out = Vec::with_capacity(EVENT_START.len() + message.len() + EVENT_END.len());
    out.extend_from_slice(EVENT_START.as_bytes());
    out.extend_from_slice(message.as_bytes());
    if let Some(data) = out.get_mut(EVENT_START.len()..) {
        data.iter_mut().filter(|byte| is_break(byte)).for_each(|byte| *byte = b' ');
    }
    out.extend_from_slice(EVENT_END.as_bytes());
    out.into()
}

/// Part of a JSON text as part of an event's data, which is one line; JSON has its line breaks between tokens only.
pub(super) fn one_line(part: Bytes) -> Bytes {
    if !part.iter().any(is_break) {
        return part;
    }
    part.iter().map(|byte| if is_break(byte) { b' ' } else { *byte }).collect()
}

fn is_break(byte: &u8) -> bool {
    matches!(byte, b'\n' | b'\r')
}
