//! Calls under way, for the end of a turn: a person cancels it on any replica, and each one ends its own calls.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use tokio_util::sync::CancellationToken;

use super::Calls;
use crate::domain::id::TenantId;
use crate::gateway::log::Attempt;
use crate::store::{CallTurn, TurnNotice};

/// Calls of this replica that are under way, by serial number. There are at most as many as the log has room for.
#[derive(Debug, Default)]
pub(super) struct CallsUnderWay {
    calls: Mutex<HashMap<u64, CallUnderWay>>,
    serial: AtomicU64,
}

#[derive(Debug)]
struct CallUnderWay {
    tenant: TenantId,
    turn: CallTurn,
    ended: CancellationToken,
}

/// Registration of a call in its turn; removed when dropped.
pub(super) struct InTurn {
    turns: Arc<CallsUnderWay>,
    serial: u64,
    /// Cancelled when a person ends the turn.
    pub(super) ended: CancellationToken,
}

impl Drop for InTurn {
    fn drop(&mut self) {
        self.turns.calls.lock().remove(&self.serial);
    }
}

impl CallsUnderWay {
    fn add(self: &Arc<Self>, tenant: TenantId, turn: CallTurn) -> InTurn {
        let serial = self.serial.fetch_add(1, Ordering::Relaxed);
        let ended = CancellationToken::new();
        self.calls.lock().insert(serial, CallUnderWay { tenant, turn, ended: ended.clone() });
        InTurn { turns: Arc::clone(self), serial, ended }
    }

    /// Looks at all calls, since turns end seldom.
    fn end(&self, notice: &TurnNotice) {
        for call in self.calls.lock().values() {
            if call.tenant == notice.tenant && call.turn.is_ended_by(notice) {
                call.ended.cancel();
            }
        }
    }
}

impl Calls {
    /// Registers a call in its turn, before anything of it is checked: from then on the end of the turn reaches it.
    pub(super) fn in_turn(&self, attempt: &Attempt) -> InTurn {
        self.turns.add(attempt.caller.tenant_id(), attempt.turn())
    }

    /// Ends the calls of a turn on this replica.
    pub(in crate::gateway) fn turn_ended(&self, notice: &TurnNotice) {
        self.turns.end(notice);
    }
}

#[cfg(test)]
mod tests {
    use chrono::{DateTime, TimeDelta, Utc};
    use uuid::Uuid;

    use super::*;
    use crate::domain::id::KeyId;

    #[test]
    fn the_end_of_a_turn_reaches_its_calls_alone() {
        let at = |seconds| DateTime::<Utc>::UNIX_EPOCH + TimeDelta::seconds(seconds);
        let key = |n| Some(KeyId(Uuid::from_u128(n)));
        let call = |n, session: Option<&str>, began: Option<i64>| CallTurn {
            key: key(n),
            session: session.map(str::to_owned),
            session_began: began.map(at),
        };
        let calls = [
            call(1, Some("a"), Some(5)),
            call(1, Some("older"), Some(9)),
            call(1, Some("newer"), Some(10)),
            call(1, Some("unknown"), None),
            call(1, None, None),
            call(2, Some("a"), Some(5)),
        ];
        for (session, expected) in [
            (Some("a"), [true, false, true, true, true, false]),
            (None, [true, true, true, true, true, false]),
        ] {
            let turns = Arc::new(CallsUnderWay::default());
            let begun: Vec<InTurn> =
                calls.iter().map(|turn| turns.add(TenantId::PLATFORM, turn.clone())).collect();
            let session = session.map(str::to_owned);
            turns.end(&TurnNotice { tenant: TenantId::PLATFORM, key: key(1), session, began_at: at(10) });
            let ended: Vec<bool> = begun.iter().map(|call| call.ended.is_cancelled()).collect();
            assert_eq!(ended, expected);
            drop(begun);
            assert!(turns.calls.lock().is_empty());
        }
    }
}
