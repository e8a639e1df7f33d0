//! A request of a client, from when it came until it is answered: measured here, however it ends.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Instant;

use super::jsonrpc::RpcError;
use crate::domain::measure::{
    Between, OTHER, Operation, TOOL_ERROR, Transport, code_name, known_method, known_version,
};
use crate::domain::refusal::Code;
use crate::faces::Faces;
use crate::gateway::CallOutcome;

/// What a request ends in that nobody waits for any more.
const GIVEN_UP: &str = "cancelled";

/// One request. All who work on it share it; with the last of them it ends.
#[derive(Clone)]
pub(super) struct Serving(Arc<Served>);

struct Served {
    faces: Arc<Faces>,
    began: Instant,
    method: &'static str,
    tool: OnceLock<&'static str>,
    version: OnceLock<&'static str>,
    end: OnceLock<End>,
    /// Its answer is a stream that has not ended yet.
    streams: AtomicBool,
}

/// How it ended.
#[derive(Clone, Copy, Default)]
struct End {
    error: Option<&'static str>,
    code: Option<&'static str>,
}

impl Serving {
    /// It came in then, and asks for this.
    pub(super) fn begin(faces: &Arc<Faces>, began: Instant, method: &str) -> Serving {
        Serving(Arc::new(Served {
            faces: Arc::clone(faces),
            began,
            method: known_method(method),
            tool: OnceLock::new(),
            version: OnceLock::new(),
            end: OnceLock::new(),
            streams: AtomicBool::new(false),
        }))
    }

    /// One of which nobody could find out what it asks for.
    pub(super) fn unreadable(faces: &Arc<Faces>, began: Instant, error: &RpcError) {
        Serving::begin(faces, began, OTHER).refused(error);
    }

    /// It is about one of the gateway's own tools. Those of upstreams are too many to be told apart.
    pub(super) fn tool(&self, name: &'static str) {
        self.0.tool.get_or_init(|| name);
    }

    /// The revision that is spoken.
    pub(super) fn speaks(&self, version: &str) {
        if let Some(version) = known_version(version) {
            self.0.version.get_or_init(|| version);
        }
    }

    /// The answer is on its way as a stream, and says later how it ends.
    pub(super) fn streams(&self) {
        self.0.streams.store(true, Ordering::Relaxed);
    }

    /// It is answered, with whatever was said of it so far.
    pub(super) fn answered(&self) {
        if !self.0.streams.load(Ordering::Relaxed) {
            self.ends(End::default());
        }
    }

    /// It is answered with a JSON-RPC error. To who is asked, those about the request itself are none.
    pub(super) fn refused(&self, error: &RpcError) {
        let code = code_name(error.code());
        let is_callers = matches!(error.code(), -32700 | -32600 | -32601 | -32602 | -32002);
        self.ends(End { error: (!is_callers).then_some(code), code: Some(code) });
    }

    /// It is answered with a result that says why it is none.
    pub(super) fn failed(&self, code: &'static str) {
        self.ends(End { error: Some(code), code: None });
    }

    /// A call has ended.
    pub(super) fn concluded(&self, outcome: &CallOutcome) {
        match outcome {
            CallOutcome::Result { head, .. } if head.is_error => self.failed(TOOL_ERROR),
            CallOutcome::Result { .. } | CallOutcome::InputRequired { .. } => self.ends(End::default()),
            CallOutcome::UpstreamError(raw) => self.refused(&RpcError::of_upstream(raw)),
            CallOutcome::Refused(refused) => {
                let code = refused.refusal.code;
                // a tool's result says it; other methods have none that could
                let in_band = (self.0.method != "tools/call").then_some(match code {
                    Code::NotFound => "-32602",
                    Code::RateLimited => "-31429",
                    _ => "-32603",
                });
                self.ends(End { error: Some(code.as_str()), code: in_band });
            }
            CallOutcome::InvalidState => self.refused(&RpcError::invalid_state()),
        }
    }

    fn ends(&self, end: End) {
        self.0.end.get_or_init(|| end);
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        let given_up = End { error: Some(GIVEN_UP), code: None };
        let End { error, code } = self.end.get().copied().unwrap_or(given_up);
        let between = Between { transport: Transport::Tcp, version: self.version.get().copied() };
        let tool = self.tool.get().copied();
        let operation = Operation { method: self.method, tool, error, code, between };
        self.faces.measures.operations.observe(operation, self.began.elapsed());
    }
}
