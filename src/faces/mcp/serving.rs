//! A request of a client, from when it came until it is answered: measured here, however it ends.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Instant;

use super::ended::Ended;
use super::jsonrpc::RpcError;
use crate::domain::measure::{Between, OTHER, Operation, Transport, known_method, known_version};
use crate::faces::Faces;

/// One request. All who work on it share it; with the last of them it ends.
#[derive(Clone)]
pub(super) struct Serving(Arc<Served>);

struct Served {
    faces: Arc<Faces>,
    began: Instant,
    method: &'static str,
    tool: OnceLock<&'static str>,
    version: OnceLock<&'static str>,
    end: OnceLock<Ended>,
    /// Its answer is a stream that has not ended yet.
    streams: AtomicBool,
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
        Serving::begin(faces, began, OTHER).ended(error.ended());
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
            self.ended(Ended::Well);
        }
    }

    /// It is answered, or nobody waits for that any more; what comes later does not count.
    pub(super) fn ended(&self, ended: Ended) {
        self.0.end.get_or_init(|| ended);
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        let (error, code) = self.end.get().copied().unwrap_or(Ended::GIVEN_UP).labels();
        let between = Between { transport: Transport::Tcp, version: self.version.get().copied() };
        let tool = self.tool.get().copied();
        let operation = Operation { method: self.method, tool, error, code, between };
        self.faces.measures.operations.observe(operation, self.began.elapsed());
    }
}
