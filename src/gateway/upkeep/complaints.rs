//! Failures that are reported once, however often they repeat.

use std::collections::HashMap;

use parking_lot::Mutex;

/// Last failure of each job that is reported once.
#[derive(Debug, Default)]
pub(super) struct Complaints(Mutex<HashMap<&'static str, String>>);

impl Complaints {
    /// Notes a failure. Returns whether it differs from the job's last one.
    pub(super) fn is_new(&self, job: &'static str, text: &str) -> bool {
        let mut complaints = self.0.lock();
        complaints.insert(job, text.to_owned()).is_none_or(|last| last != text)
    }

    /// Forgets the job's failure. Returns whether there was one.
    pub(super) fn forget(&self, job: &'static str) -> bool {
        self.0.lock().remove(job).is_some()
    }

    /// Returns whether the job's last run failed.
    #[cfg(test)]
    pub(super) fn has(&self, job: &str) -> bool {
        self.0.lock().contains_key(job)
    }
}
