//! Open streams of handshake sessions on this replica. A session with a stream keeps its wishes when its key has too many.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use super::{ClientSessions, SessionKey};
use crate::gateway::tenants::Caller;
use crate::store::StoreError;

/// Sessions that one statement notes: some milliseconds of work.
const BATCH: usize = 1000;
/// Most sessions whose change waits to be noted. Of others, open streams are noted a little later, and notes of ended ones
/// end by themselves.
const CHANGED_MAX: usize = 10_000;

/// Sessions with streams on this replica.
#[derive(Debug, Default)]
pub(super) struct SessionStreams {
    /// Number of streams by session.
    open: HashMap<SessionKey, usize>,
    /// Sessions of which the note may be wrong: their first stream has begun, their last one has ended, or their wishes have
    /// changed.
    changed: HashSet<SessionKey>,
}

impl SessionStreams {
    fn begin(&mut self, key: &SessionKey) {
        let count = self.open.entry(key.clone()).or_default();
        *count += 1;
        if *count == 1 {
            self.has_changed(key);
        }
    }

    fn end(&mut self, key: &SessionKey) {
        let Some(count) = self.open.get_mut(key) else { return };
        *count -= 1;
        if *count == 0 {
            self.open.remove(key);
            self.has_changed(key);
        }
    }

    fn has_changed(&mut self, key: &SessionKey) {
        if self.changed.len() < CHANGED_MAX {
            self.changed.insert(key.clone());
        }
    }

    /// Notes that a session may have wishes that it did not have.
    pub(super) fn wishes_changed(&mut self, key: &SessionKey) {
        if self.open.contains_key(key) {
            self.has_changed(key);
        }
    }

    /// Returns the sessions whose note may be wrong: those with a stream, and those without.
    fn take_changed(&mut self) -> (Vec<SessionKey>, Vec<SessionKey>) {
        std::mem::take(&mut self.changed).into_iter().partition(|key| self.open.contains_key(key))
    }
}

/// Open stream of a session, which ends when this is dropped.
pub struct SessionStreamHold {
    sessions: Arc<ClientSessions>,
    key: SessionKey,
}

impl Drop for SessionStreamHold {
    fn drop(&mut self) {
        self.sessions.streams.lock().end(&self.key);
    }
}

impl ClientSessions {
    /// Counts a stream of a session.
    pub fn hold_stream(self: &Arc<Self>, caller: &Caller, session: &str) -> SessionStreamHold {
        let key = (caller.tenant_id(), session.to_owned());
        self.streams.lock().begin(&key);
        SessionStreamHold { sessions: Arc::clone(self), key }
    }

    /// Notes in the database that the sessions with a stream here have one.
    pub(in crate::gateway) async fn note_open_streams(&self) -> Result<(), StoreError> {
        let open: Vec<SessionKey> = self.streams.lock().open.keys().cloned().collect();
        self.note(&open, true).await
    }

    /// Notes in the database of which sessions the first stream here has begun, or the last one ended. One with a stream at
    /// another replica is noted again by that one.
    pub(in crate::gateway) async fn note_changed_streams(&self) -> Result<(), StoreError> {
        let (open, ended) = self.streams.lock().take_changed();
        self.note(&open, true).await?;
        self.note(&ended, false).await
    }

    async fn note(&self, sessions: &[SessionKey], have_one: bool) -> Result<(), StoreError> {
        for batch in sessions.chunks(BATCH) {
            self.store.note_streams(batch, have_one).await?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;
    use crate::domain::id::TenantId;

    #[test]
    fn a_session_has_a_stream_until_its_last_one_ends() {
        let mut streams = SessionStreams::default();
        let key = (TenantId(Uuid::from_u128(1)), "s".to_owned());
        let (one, none) = (vec![key.clone()], Vec::new());
        streams.wishes_changed(&key);
        assert_eq!(streams.take_changed(), (none.clone(), none.clone()), "it has no stream");
        streams.begin(&key);
        streams.begin(&key);
        assert_eq!(streams.take_changed(), (one.clone(), none.clone()));
        streams.end(&key);
        assert_eq!(streams.take_changed(), (none.clone(), none.clone()), "another is open");
        streams.wishes_changed(&key);
        assert_eq!(streams.take_changed(), (one.clone(), none.clone()));
        streams.end(&key);
        assert_eq!(streams.take_changed(), (none.clone(), one.clone()));
        streams.end(&key);
        streams.begin(&key);
        assert_eq!(streams.take_changed(), (one, none), "it is back");
    }
}
