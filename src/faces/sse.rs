//! Open streams of all faces: their bounds, and when a stream must end. Format of server-sent events.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use axum::response::Response;
use bytes::Bytes;
use http::{HeaderValue, StatusCode, header};
use parking_lot::Mutex;
use tokio::time::Instant;

use super::Faces;
use crate::domain::id::{KeyId, TenantId};
use crate::domain::measure::Count;
use crate::domain::shares::{Amount, Shares};
use crate::domain::text_enum::text_enum;
use crate::gateway::{Caller, Gateway};

/// Interval of keep-alives on a silent stream.
const KEEP_ALIVE: Duration = Duration::from_secs(15);
/// Interval at which a stream checks whether its key is still valid.
pub(super) const CHECK: Duration = Duration::from_secs(1);

text_enum! {
    /// Purpose of a stream.
    pub enum StreamKind {
        /// Stream of a client of `/mcp`.
        Search = "mcp",
        /// Stream of a client of `/mcp/direct`.
        Direct = "direct",
        /// Activity records as they are written.
        Activity = "activity",
        /// Export of activity records.
        Export = "export",
        /// Changes of the state of servers.
        Events = "events",
        /// Permission requests.
        Consent = "consent",
        /// Permission requests to a client of the Agent Client Protocol.
        Acp = "acp",
        /// Hints to an open page of the console.
        Console = "console",
    }
}

/// Open streams by key and by tenant, both bounded.
#[derive(Debug, Default)]
pub struct Streams {
    open: Mutex<Open>,
    by_kind: [AtomicUsize; StreamKind::ALL.len()],
    /// Number of streams refused since the start.
    refused: Count,
}

#[derive(Debug, Default)]
struct Open {
    by_key: Shares<Option<KeyId>>,
    /// Streams by tenant, without those of the bootstrap key.
    by_tenant: Shares<TenantId>,
}

/// Reason why another stream is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TooManyStreams {
    /// The key has this many streams open, which is the limit.
    Key(usize),
    /// The keys of the tenant have this many streams open together, which is its quota.
    Tenant(usize),
}

impl TooManyStreams {
    /// Returns a sentence for the caller.
    pub(super) fn text(self) -> &'static str {
        match self {
            TooManyStreams::Key(_) => {
                "this key has too many streams open; close one, or try again in a few seconds"
            }
            TooManyStreams::Tenant(_) => {
                "the keys of this tenant have as many streams open as its quota allows; close one, or try again in a few \
                 seconds"
            }
        }
    }
}

impl Streams {
    /// Returns the number of open streams by purpose.
    pub fn open_now(&self) -> impl Iterator<Item = (StreamKind, usize)> {
        StreamKind::ALL.into_iter().zip(self.by_kind.iter().map(|open| open.load(Ordering::Relaxed)))
    }

    /// Returns the number of streams refused since the start.
    pub fn refused(&self) -> u64 {
        self.refused.get()
    }

    fn counter(&self, kind: StreamKind) -> Option<&AtomicUsize> {
        self.by_kind.get(kind as usize)
    }

    fn take(&self, caller: &Caller, key_max: usize) -> Result<(), TooManyStreams> {
        let mut open = self.open.lock();
        if open.by_key.of(&caller.key).items >= key_max {
            return Err(TooManyStreams::Key(key_max));
        }
        let tenant = caller.tenant_id();
        let of_tenant = open.by_tenant.of(&tenant).items;
        if let Some(max) = caller.tenant_streams_max().filter(|max| of_tenant >= *max) {
            return Err(TooManyStreams::Tenant(max));
        }
        open.by_key.take(caller.key, Amount::ONE);
        if caller.key.is_some() {
            open.by_tenant.take(tenant, Amount::ONE);
        }
        Ok(())
    }

    fn give_back(&self, caller: &Caller) {
        let mut open = self.open.lock();
        open.by_key.give_back(&caller.key, Amount::ONE);
        if caller.key.is_some() {
            open.by_tenant.give_back(&caller.tenant_id(), Amount::ONE);
        }
    }

    /// Returns the number of streams that a tenant's keys hold open on this replica.
    pub(super) fn of_tenant(&self, tenant: TenantId) -> usize {
        self.open.lock().by_tenant.of(&tenant).items
    }
}

/// Stream that a client holds open. It occupies a slot of its key and tenant, and knows when its last keep-alive was sent.
pub(super) struct OpenStream {
    faces: Arc<Faces>,
    caller: Arc<Caller>,
    kind: StreamKind,
    alive: Instant,
}

impl OpenStream {
    /// Takes a slot of the key and the tenant.
    ///
    /// # Errors
    /// [`TooManyStreams`] if either has none left.
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

    /// Returns the services of the gateway.
    pub(super) fn gateway(&self) -> &Arc<Gateway> {
        &self.faces.gateway
    }

    /// Returns the state shared by all handlers.
    pub(super) fn faces(&self) -> &Faces {
        &self.faces
    }

    /// Returns the caller that opened the stream.
    pub(super) fn caller(&self) -> &Caller {
        &self.caller
    }

    /// Returns whether the stream must end: the gateway stops, or the key is no longer valid.
    pub(super) fn must_end(&self) -> bool {
        self.gateway().life.is_draining() || !self.gateway().tenants.is_valid(&self.caller)
    }

    /// Returns when the next keep-alive is due.
    pub(super) fn sign_at(&self) -> Instant {
        self.alive + KEEP_ALIVE
    }

    /// Returns whether a keep-alive is due. If so, it counts as sent.
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

/// Returns a response with the headers of an event stream, which proxies must not buffer.
pub(super) fn event_stream(body: axum::body::Body) -> Response {
    let mut response = Response::new(body);
    *response.status_mut() = StatusCode::OK;
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache, no-transform"));
    headers.insert("x-accel-buffering", HeaderValue::from_static("no"));
    response
}

/// Start of an event, before its data.
pub(super) const EVENT_START: &str = "event: message\ndata: ";
/// End of an event.
pub(super) const EVENT_END: &str = "\n\n";

/// Returns a server-sent event with a JSON text as data.
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

/// Replaces line breaks in a part of a JSON text, since the data of an event is one line. JSON has line breaks between
/// tokens only.
pub(super) fn one_line(part: Bytes) -> Bytes {
    if !part.iter().any(is_break) {
        return part;
    }
    part.iter().map(|byte| if is_break(byte) { b' ' } else { *byte }).collect()
}

fn is_break(byte: &u8) -> bool {
    matches!(byte, b'\n' | b'\r')
}
