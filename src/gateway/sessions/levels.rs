//! Log levels of sessions, as last read. They are asked for in calls, so that no call after the first waits for the database.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use super::SessionKey;
use crate::domain::id::TenantId;
use crate::domain::relay::LogLevel;
use crate::gateway::kept::{Kept, Owned};

/// Most sessions whose level is kept; of one tenant at most a quarter.
const LEVELS_MAX: usize = 20_000;
/// Memory that one entry counts as, in bytes.
const LEVEL_BYTES: usize = 256;
/// Age from which a level is read again, if its session is still used.
const AGE_MAX: Duration = Duration::from_secs(600);

impl Owned for SessionKey {
    fn tenant(&self) -> TenantId {
        self.0
    }
}

/// Moment at which a level was asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct AskedLevel(u64);

/// Levels by session, `None` for those that never set one.
#[derive(Debug)]
pub(super) struct Levels {
    kept: Mutex<Kept<SessionKey, (Option<LogLevel>, Instant)>>,
    /// Number of changes so far: what was read before a change is not kept.
    changes: AtomicU64,
}

impl Default for Levels {
    fn default() -> Levels {
        Levels { kept: Mutex::new(empty()), changes: AtomicU64::new(0) }
    }
}

impl Levels {
    /// Returns the level of a session. The error is for [`Levels::put`], once the level has been read.
    pub(super) fn get(&self, key: &SessionKey) -> Result<Option<LogLevel>, AskedLevel> {
        let asked = AskedLevel(self.changes.load(Ordering::SeqCst));
        let mut kept = self.kept.lock();
        match kept.get(key) {
            Some((level, at)) if at.elapsed() < AGE_MAX => Ok(*level),
            _ => Err(asked),
        }
    }

    /// Keeps a level that was read, unless any has changed since it was asked for.
    pub(super) fn put(&self, key: SessionKey, level: Option<LogLevel>, asked: AskedLevel) {
        let mut kept = self.kept.lock();
        if AskedLevel(self.changes.load(Ordering::SeqCst)) == asked {
            drop(kept.put(key, (level, Instant::now()), LEVEL_BYTES));
        }
    }

    /// Drops the level of a session.
    pub(super) fn forget(&self, key: &SessionKey) {
        let mut kept = self.kept.lock();
        self.changes.fetch_add(1, Ordering::SeqCst);
        kept.remove(key);
    }

    /// Drops all levels.
    pub(super) fn forget_all(&self) {
        let mut kept = self.kept.lock();
        self.changes.fetch_add(1, Ordering::SeqCst);
        *kept = empty();
    }
}

fn empty() -> Kept<SessionKey, (Option<LogLevel>, Instant)> {
    Kept::new(LEVELS_MAX * LEVEL_BYTES, LEVELS_MAX)
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;

    #[test]
    fn a_level_is_kept_until_it_changes() {
        let (levels, key) = (Levels::default(), (TenantId(Uuid::from_u128(1)), "s".to_owned()));
        let other = (TenantId(Uuid::from_u128(2)), "s".to_owned());
        let asked = levels.get(&key).unwrap_err();
        levels.put(key.clone(), Some(LogLevel::Info), asked);
        assert_eq!(levels.get(&key), Ok(Some(LogLevel::Info)));
        assert!(levels.get(&other).is_err(), "of another tenant");
        levels.forget(&key);
        let before = levels.get(&key).unwrap_err();
        levels.forget(&key);
        levels.put(key.clone(), Some(LogLevel::Debug), before);
        assert!(levels.get(&key).is_err(), "read before the change");
        let asked = levels.get(&key).unwrap_err();
        levels.put(key.clone(), None, asked);
        assert_eq!(levels.get(&key), Ok(None), "known to be unset");
        levels.forget_all();
        assert!(levels.get(&key).is_err());
    }
}
