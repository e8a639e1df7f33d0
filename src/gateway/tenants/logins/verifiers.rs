//! Threads that verify signatures at a low priority. A signature takes as long as a whole call of somebody else, and whoever sends bad
//! tokens has one verified each time: calls come first.

use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, OnceLock};
use std::thread;

use parking_lot::Mutex;
use tokio::sync::oneshot;

use crate::domain::identity::{KeyDigest, SignatureCheck, TokenFault};
use crate::upstream::lower_priority;

/// Outcome of a check: the digest of the key, or why the signature is not good.
pub(super) type SignatureVerdict = Result<KeyDigest, TokenFault>;

/// Check of a signature, and who waits for its outcome.
type Job = (SignatureCheck, oneshot::Sender<SignatureVerdict>);

/// Threads that verify signatures, started with the first.
pub(super) struct Verifiers {
    count: usize,
    jobs: OnceLock<Sender<Job>>,
}

impl Verifiers {
    pub(super) fn new(count: usize) -> Verifiers {
        Verifiers { count, jobs: OnceLock::new() }
    }

    /// Verifies a signature. If no thread can be started, the current one does it.
    pub(super) async fn verify(&self, check: SignatureCheck) -> SignatureVerdict {
        let jobs = self.jobs.get_or_init(|| start(self.count));
        let (told, outcome) = oneshot::channel();
        match jobs.send((check, told)) {
            // dropped with its thread, for all that is known
            Ok(()) => {
                outcome.await.unwrap_or(Err(TokenFault::Unverifiable("the signature was not verified")))
            }
            Err(unsent) => unsent.0.0.run(),
        }
    }
}

/// Starts the threads, which end when nobody can send them anything any more.
fn start(count: usize) -> Sender<Job> {
    let (jobs, waiting) = channel();
    let waiting = Arc::new(Mutex::new(waiting));
    for _ in 0..count {
        let waiting: Arc<Mutex<Receiver<Job>>> = Arc::clone(&waiting);
        let work = move || {
            lower_priority();
            // the lock is held while waiting, and not during the work
            while let Some((check, told)) = next(&waiting) {
                // whoever waited may be gone
                if !told.is_closed() {
                    told.send(check.run()).ok();
                }
            }
        };
        if let Err(error) = thread::Builder::new().name("verifier".to_owned()).spawn(work) {
            tracing::warn!(%error, "a thread that verifies signatures could not be started");
        }
    }
    jobs
}

fn next(waiting: &Mutex<Receiver<Job>>) -> Option<Job> {
    waiting.lock().recv().ok()
}
