//! Cancellation of calls by their clients. A modern client closes its connection; a handshake client sends a notification
//! that names the request. That notification may reach any replica: it searches its own calls first, then sends one notice
//! to the others.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tokio_util::sync::CancellationToken;

use super::Calls;
use crate::domain::id::{KeyId, TenantId};
use crate::gateway::log::Attempt;
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
struct CallName {
    tenant: TenantId,
    key: Option<KeyId>,
    session: String,
    request: String,
}

impl CallName {
    /// Returns the name; `None` for a call that no notification can name.
    fn new(caller: &Caller, session: Option<&str>, request: &str) -> Option<CallName> {
        let session = session.filter(|_| request.len() <= REQUEST_ID_BYTES_MAX)?;
        Some(CallName {
            tenant: caller.tenant_id(),
            key: caller.key,
            session: session.to_owned(),
            request: request.to_owned(),
        })
    }
}

/// The calls of this replica that a notification may name.
#[derive(Debug, Default)]
pub(super) struct Cancellations {
    /// Calls by name. Several calls share a name if a client used an id again.
    calls: Mutex<HashMap<CallName, Vec<(u64, CancellationToken)>>>,
    /// Next serial number, which distinguishes calls of one name.
    serial: AtomicU64,
    notices: Mutex<Notices>,
}

#[derive(Debug, Default)]
struct Notices {
    window: Option<Instant>,
    sent: HashMap<(TenantId, Option<KeyId>), u32>,
    under_way: usize,
}

/// Registration of a call under its name; removed when dropped.
pub(super) struct Named {
    cancellations: Arc<Cancellations>,
    name: CallName,
    serial: u64,
}

impl Drop for Named {
    fn drop(&mut self) {
        self.cancellations.remove(&self.name, self.serial);
    }
}

impl Cancellations {
    fn add(&self, name: CallName, token: CancellationToken) -> u64 {
        let serial = self.serial.fetch_add(1, Ordering::Relaxed);
        self.calls.lock().entry(name).or_default().push((serial, token));
        serial
    }

    fn remove(&self, name: &CallName, serial: u64) {
        let mut calls = self.calls.lock();
        if let Some(tokens) = calls.get_mut(name) {
            tokens.retain(|(other, _)| *other != serial);
            if tokens.is_empty() {
                calls.remove(name);
            }
        }
    }

    /// Cancels the call of this name. If several calls share the name, none is cancelled: the intended one is unknown.
    /// Returns `false` if no call here has the name.
    fn cancel(&self, name: &CallName) -> bool {
        let calls = self.calls.lock();
        let Some(tokens) = calls.get(name) else { return false };
        if let [(_, token)] = tokens.as_slice() {
            token.cancel();
        }
        true
    }

    /// Returns whether another notice may be sent now for this key, and counts it if so.
    fn may_notify(&self, key: (TenantId, Option<KeyId>), now: Instant) -> bool {
        let mut notices = self.notices.lock();
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
        self.notices.lock().under_way -= 1;
    }
}

impl Calls {
    /// Registers a call under its name. Returns `None` if no notification can name it.
    pub(super) fn name_call(
        &self,
        attempt: &Attempt,
        request: &str,
        token: CancellationToken,
    ) -> Option<Named> {
        let name = CallName::new(&attempt.caller, attempt.session_id.as_deref(), request)?;
        let serial = self.cancellations.add(name.clone(), token);
        Some(Named { cancellations: Arc::clone(&self.cancellations), name, serial })
    }

    /// Cancels a call of this caller, here or on another replica. Returns nothing: the call may have ended, or never have
    /// existed.
    pub fn cancel_call(self: &Arc<Self>, caller: &Caller, session: Option<&str>, request: &str) {
        let Some(name) = CallName::new(caller, session, request) else { return };
        if self.cancellations.cancel(&name) {
            return;
        }
        if !self.cancellations.may_notify((name.tenant, name.key), Instant::now()) {
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
            calls.cancellations.notified();
        });
    }

    /// Cancels a call here after a notice from another replica, which had no call of that name.
    pub(in crate::gateway) fn cancelled_elsewhere(&self, notice: CancelNotice) {
        let CancelNotice { tenant, key, session: Some(session), request } = notice else { return };
        self.cancellations.cancel(&CallName { tenant, key, session, request });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(request: &str) -> CallName {
        CallName {
            tenant: TenantId::PLATFORM,
            key: None,
            session: "s".to_owned(),
            request: request.to_owned(),
        }
    }

    #[test]
    fn only_the_one_call_of_that_name_is_cancelled() {
        let cancellations = Cancellations::default();
        let tokens = [CancellationToken::new(), CancellationToken::new(), CancellationToken::new()];
        let [one, two, three] = &tokens;
        cancellations.add(name("1"), one.clone());
        let first = cancellations.add(name("2"), two.clone());
        cancellations.add(name("2"), three.clone());
        assert!(!cancellations.cancel(&name("3")));
        assert!(!cancellations.cancel(&CallName { session: "other".to_owned(), ..name("1") }));
        assert!(cancellations.cancel(&name("2")));
        assert!(!tokens.iter().any(CancellationToken::is_cancelled));
        assert!(cancellations.cancel(&name("1")));
        assert!(one.is_cancelled());
        // the end of one call takes nothing from another of its name
        cancellations.remove(&name("2"), first);
        assert!(cancellations.cancel(&name("2")));
        assert!(three.is_cancelled() && !two.is_cancelled());
    }

    #[test]
    fn notices_are_bounded_per_key_and_window() {
        let cancellations = Cancellations::default();
        let (now, key) = (Instant::now(), (TenantId::PLATFORM, None));
        let sent = (0..100)
            .filter(|_| {
                let may = cancellations.may_notify(key, now);
                if may {
                    cancellations.notified();
                }
                may
            })
            .count();
        assert_eq!(sent as u32, NOTICES_PER_KEY_MAX);
        assert!(cancellations.may_notify((TenantId::PLATFORM, Some(KeyId(uuid::Uuid::max()))), now));
        assert!(cancellations.may_notify(key, now + NOTICE_WINDOW));
    }
}
