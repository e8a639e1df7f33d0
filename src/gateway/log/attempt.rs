//! Attempts: caller, endpoint and time of an action.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Instant;

use chrono::{DateTime, Utc};

use crate::domain::activity::{Record, RecordKind, Source};
use crate::domain::reason::Language;
use crate::domain::redact;
use crate::domain::trace::TraceParent;
use crate::gateway::clock;
use crate::gateway::tenants::Caller;
use crate::gateway::trace::Trace;
use crate::store::CallTurn;

/// Longest client-supplied text that a record keeps, in characters.
const CLIENT_CHARS_MAX: usize = 100;

/// Name and version that the client program gives for itself; used in records, never for decisions.
#[derive(Clone, Debug, Default)]
pub struct Client {
    /// `clientInfo.name`
    pub name: Option<String>,
    /// `clientInfo.version`
    pub version: Option<String>,
}

/// Caller, endpoint and start time of an action.
#[derive(Clone, Debug)]
pub struct Attempt {
    /// The authenticated caller.
    pub caller: Arc<Caller>,
    /// Endpoint that the attempt came in by.
    pub source: Source,
    /// The client program.
    pub client: Client,
    /// Address that the request came from, behind trusted proxies that of their client; `None` without a connection.
    pub client_address: Option<IpAddr>,
    /// Handshake session; `None` without one.
    pub session_id: Option<String>,
    /// Time at which that session began at the latest; `None` if that is unknown.
    pub session_began: Option<DateTime<Utc>>,
    /// Language that the client asks for; `None` if it asks for none that there are texts in.
    pub language: Option<Language>,
    /// Id that the client gave the request.
    pub request_id: Option<String>,
    /// W3C trace id; `None` without a trace.
    pub trace_id: Option<String>,
    /// Trace of the request; `None` without tracing.
    pub trace: Option<Arc<Trace>>,
    /// Time of arrival.
    pub started_at: DateTime<Utc>,
    /// Time of arrival on the monotonic clock.
    pub started: Instant,
}

impl Attempt {
    /// Returns an attempt that begins now.
    pub fn now(caller: Arc<Caller>, source: Source) -> Attempt {
        Attempt {
            caller,
            source,
            client: Client::default(),
            client_address: None,
            session_id: None,
            session_began: None,
            language: None,
            request_id: None,
            trace_id: None,
            trace: None,
            started_at: clock::now(),
            started: Instant::now(),
        }
    }

    /// Returns the language for the reader at the client.
    pub fn language(&self) -> Language {
        self.caller.settings.language(self.language)
    }

    /// Returns the attempt as a part of this trace.
    pub fn traced(self, trace: &Arc<Trace>) -> Attempt {
        Attempt { trace_id: Some(trace.here().trace_id()), trace: Some(Arc::clone(trace)), ..self }
    }

    /// Returns the record of this attempt at its beginning, with caller and client.
    pub(in crate::gateway) fn record(&self, kind: RecordKind) -> Record {
        let caller = &self.caller;
        let short = |text: &String| {
            let cut: String = text.chars().take(CLIENT_CHARS_MAX).collect();
            redact::redact(&cut).into_owned()
        };
        Record {
            key: caller.key,
            key_name: caller.key_name.clone(),
            identity: caller.person.identity,
            owner: Some(caller.owner.clone()),
            client_name: self.client.name.as_ref().map(short),
            client_version: self.client.version.as_ref().map(short),
            client_address: self.client_address,
            session_id: self.session_id.clone(),
            request_id: self.request_id.as_ref().map(short),
            trace_id: self.trace_id.clone(),
            ..Record::start(caller.tenant_id(), kind, self.source, self.started_at)
        }
    }

    /// Returns the turn that the attempt belongs to.
    pub(in crate::gateway) fn turn(&self) -> CallTurn {
        CallTurn { key: self.caller.key, session: self.session_id.clone(), session_began: self.session_began }
    }

    /// Returns the span that the attempt is part of; `None` without a trace.
    pub(in crate::gateway) fn span(&self) -> Option<TraceParent> {
        self.trace.as_ref().map(|trace| trace.here())
    }
}
