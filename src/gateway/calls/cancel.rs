//! Cancellation of calls by their clients. A modern client closes its connection; a handshake client sends a notification
//! that names the request. That notification may reach any replica: it searches its own calls first, then sends one notice
//! to the others.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use uuid::Uuid;

use super::Calls;
use crate::domain::id::{KeyId, TenantId};
use crate::gateway::tenants::Caller;
use crate::store::CancelNotice;

/// Longest request id by which a call can be cancelled, in bytes: a notice between replicas has at most 8000.
const REQUEST_ID_BYTES_MAX: usize = 512;
/// Notices to other replicas that one key may cause per [`NOTICE_WINDOW`]; the rest is dropped, as the
/// protocol allows.
const NOTICES_PER_KEY_MAX: u32 = 20;
const NOTICE_WINDOW: Duration = Duration::from_secs(1);
/// Notices being sent at once, over all keys.
const NOTICES_MAX: usize = 64;

/// Event that cancels a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CancelBy<'a> {
    /// No event: the call runs to its end.
    Nothing,
    /// The loss of its connection (MCP 2026-07-28, transports).
    Disconnect,
    /// A notification with this raw request id, in the same session (MCP 2025-11-25, cancellation). A call without a session
    /// cannot be cancelled so: programs that share a key choose the same small numbers as ids.
    Notification(&'a str),
}

/// Name of a call for cancellation. It includes the principal and the session, so no other one can name the call.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct CallName {
    tenant: TenantId,
    key: Option<KeyId>,
    session: String,
    request: String,
}

/// Session in the names of rounds; no client's session has such a name.
const ROUNDS: &str = "\0rounds";

impl CallName {
    /// Returns the name of a call that is held open, while the round with this waiter waits for its outcome.
    pub(super) fn of_round(caller: &Caller, waiter: Uuid) -> CallName {
        let (session, request) = (ROUNDS.to_owned(), waiter.to_string());
        CallName { tenant: caller.tenant_id(), key: caller.key, session, request }
    }

    /// Returns the name; `None` for a call that no notification can name.
    pub(super) fn new(caller: &Caller, session: Option<&str>, request: &str) -> Option<CallName> {
        let session = session.filter(|_| request.len() <= REQUEST_ID_BYTES_MAX)?;
        Some(CallName {
            tenant: caller.tenant_id(),
            key: caller.key,
            session: session.to_owned(),
            request: request.to_owned(),
        })
    }
}

/// Notices to other replicas: those that are being sent, and how many each key has caused.
#[derive(Debug, Default)]
pub(super) struct CancelNotices(Mutex<Notices>);

#[derive(Debug, Default)]
struct Notices {
    window: Option<Instant>,
    sent: HashMap<(TenantId, Option<KeyId>), u32>,
    under_way: usize,
}

impl CancelNotices {
    /// Returns whether another notice may be sent now for this key, and counts it if so.
    fn may_notify(&self, key: (TenantId, Option<KeyId>), now: Instant) -> bool {
        let mut notices = self.0.lock();
        if notices.window.is_none_or(|began| now.duration_since(began) >= NOTICE_WINDOW) {
            notices.window = Some(now);
            notices.sent.clear();
        }
        if notices.under_way >= NOTICES_MAX {
            return false;
        }
        let sent = notices.sent.entry(key).or_insert(0);
        if *sent >= NOTICES_PER_KEY_MAX {
            return false;
        }
        *sent += 1;
        notices.under_way += 1;
        true
    }

    fn notified(&self) {
        self.0.lock().under_way -= 1;
    }
}

impl Calls {
    /// Cancels a call of this caller, here or on another replica. Returns nothing: the call may have ended, or never have
    /// existed.
    pub fn cancel_call(self: &Arc<Self>, caller: &Caller, session: Option<&str>, request: &str) {
        let Some(name) = CallName::new(caller, session, request) else { return };
        self.cancel_named(name);
    }

    /// Cancels the call of this name, here or on another replica.
    pub(super) fn cancel_named(self: &Arc<Self>, name: CallName) {
        if self.under_way.cancel(&name) {
            return;
        }
        if !self.cancel_notices.may_notify((name.tenant, name.key), Instant::now()) {
            tracing::debug!(tenant = %name.tenant, "a cancellation was not passed on: too many of one key");
            return;
        }
        let calls = Arc::clone(self);
        self.life.tasks.spawn(async move {
            let CallName { tenant, key, session, request } = name;
            let notice = CancelNotice { tenant, key, session: Some(session), request };
            if let Err(error) = calls.store.notify_cancel(&notice).await {
                tracing::debug!(%error, "a cancellation could not be passed on");
            }
            calls.cancel_notices.notified();
        });
    }

    /// Cancels a call here after a notice from another replica, which had no call of that name.
    pub(in crate::gateway) fn cancelled_elsewhere(&self, notice: CancelNotice) {
        let CancelNotice { tenant, key, session: Some(session), request } = notice else { return };
        self.under_way.cancel(&CallName { tenant, key, session, request });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    impl CallName {
        pub(in crate::gateway::calls) fn example(session: &str, request: &str) -> CallName {
            let (session, request) = (session.to_owned(), request.to_owned());
            CallName { tenant: TenantId::PLATFORM, key: None, session, request }
        }
    }

    #[test]
    fn notices_are_bounded_per_key_and_window() {
        let notices = CancelNotices::default();
        let (now, key) = (Instant::now(), (TenantId::PLATFORM, None));
        let sent = (0..100)
            .filter(|_| {
                let may = notices.may_notify(key, now);
                if may {
                    notices.notified();
                }
                may
            })
            .count();
        assert_eq!(sent as u32, NOTICES_PER_KEY_MAX);
        assert!(notices.may_notify((TenantId::PLATFORM, Some(KeyId(Uuid::max()))), now));
        assert!(notices.may_notify(key, now + NOTICE_WINDOW));
    }
}
