//! An attempt to do something: who, through which face, and when it began.

use std::sync::Arc;
use std::time::Instant;

use chrono::{DateTime, Utc};

use super::access::Caller;
use super::clock;
use super::trace::Trace;
use crate::domain::activity::Source;
use crate::domain::trace::TraceParent;

/// The client program's own name and version, for the record; never for a decision.
#[derive(Clone, Debug, Default)]
pub struct Client {
    /// `clientInfo.name`
    pub name: Option<String>,
    /// `clientInfo.version`
    pub version: Option<String>,
}

/// Who attempts something, through which face, and when it began.
#[derive(Clone, Debug)]
pub struct Attempt {
    /// The authenticated caller.
    pub caller: Arc<Caller>,
    /// The face.
    pub source: Source,
    /// The client program.
    pub client: Client,
    /// The handshake session, where there is one.
    pub session_id: Option<String>,
    /// The request's own id.
    pub request_id: Option<String>,
    /// W3C trace id.
    pub trace_id: Option<String>,
    /// The trace itself, where traces are told of.
    pub trace: Option<Arc<Trace>>,
    /// When it arrived.
    pub started_at: DateTime<Utc>,
    /// The same on the monotonic clock.
    pub started: Instant,
}

impl Attempt {
    /// An attempt that begins now.
    pub fn now(caller: Arc<Caller>, source: Source) -> Attempt {
        Attempt {
            caller,
            source,
            client: Client::default(),
            session_id: None,
            request_id: None,
            trace_id: None,
            trace: None,
            started_at: clock::now(),
            started: Instant::now(),
        }
    }

    /// The same as a part of this trace.
    pub fn traced(self, trace: &Arc<Trace>) -> Attempt {
        Attempt { trace_id: Some(trace.here().trace_id()), trace: Some(Arc::clone(trace)), ..self }
    }

    /// The span in whose name it is done.
    pub(super) fn span(&self) -> Option<TraceParent> {
        self.trace.as_ref().map(|trace| trace.here())
    }
}
