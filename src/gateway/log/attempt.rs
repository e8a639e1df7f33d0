//! An attempt to do something: who, through which face, and when it began.

use std::sync::Arc;
use std::time::Instant;

use chrono::{DateTime, Utc};

use crate::domain::activity::{Record, RecordKind, Source};
use crate::domain::redact;
use crate::domain::trace::TraceParent;
use crate::gateway::clock;
use crate::gateway::tenants::Caller;
use crate::gateway::trace::Trace;

/// Longest text of a client about itself that is kept, in characters.
const CLIENT_CHARS_MAX: usize = 100;

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

    /// Returns the record of this attempt as it begins, with who and through what.
    pub(in crate::gateway) fn record(&self, kind: RecordKind) -> Record {
        let caller = &self.caller;
        let short = |text: &String| {
            let cut: String = text.chars().take(CLIENT_CHARS_MAX).collect();
            redact::redact(&cut).into_owned()
        };
        Record {
            key: caller.key,
            owner: Some(caller.owner.clone()),
            client_name: self.client.name.as_ref().map(short),
            client_version: self.client.version.as_ref().map(short),
            session_id: self.session_id.clone(),
            request_id: self.request_id.as_ref().map(short),
            trace_id: self.trace_id.clone(),
            ..Record::start(caller.tenant_id(), kind, self.source, self.started_at)
        }
    }

    /// The span in whose name it is done.
    pub(in crate::gateway) fn span(&self) -> Option<TraceParent> {
        self.trace.as_ref().map(|trace| trace.here())
    }
}
