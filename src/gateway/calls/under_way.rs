//! Calls of this replica that are under way, for those who end them: a client that names its request, and a person who
//! cancels a turn on any replica.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio_util::sync::CancellationToken;

use super::Calls;
use super::cancel::CallName;
use crate::domain::id::TenantId;
use crate::gateway::log::Attempt;
use crate::store::{CallTurn, TurnNotice};

/// Calls under way. There are at most as many as the log has room for.
#[derive(Debug, Default)]
pub(super) struct CallsUnderWay(Mutex<Table>);

#[derive(Debug, Default)]
struct Table {
    calls: HashMap<u64, CallUnderWay>,
    /// Calls by the name that a client gave them. Several calls share a name if a client used an id again.
    named: HashMap<CallName, Vec<(u64, CancellationToken)>>,
    /// Serial number of the newest call.
    serial: u64,
}

#[derive(Debug)]
struct CallUnderWay {
    tenant: TenantId,
    turn: CallTurn,
    ended: CancellationToken,
    /// Comment of the person who ended the turn.
    comment: Option<String>,
}

/// Stop of a call, by who stopped it.
pub(super) enum CallStop {
    /// The caller.
    Caller,
    /// A person who ended the caller's turn, with the comment.
    Person(Option<String>),
}

/// Registration of a call; removed when dropped.
pub(super) struct UnderWay {
    all: Arc<CallsUnderWay>,
    serial: u64,
    name: Option<CallName>,
    /// Cancelled when a person ends the turn.
    ended: CancellationToken,
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        let mut table = self.all.0.lock();
        table.calls.remove(&self.serial);
        let Some(name) = &self.name else { return };
        if let Some(calls) = table.named.get_mut(name) {
            calls.retain(|(serial, _)| *serial != self.serial);
            if calls.is_empty() {
                table.named.remove(name);
            }
        }
    }
}

impl UnderWay {
    /// Waits until a person ends the turn.
    pub(super) async fn ended(&self) -> CallStop {
        self.ended.cancelled().await;
        let table = self.all.0.lock();
        CallStop::Person(table.calls.get(&self.serial).and_then(|call| call.comment.clone()))
    }
}

impl CallsUnderWay {
    /// Registers a call, by which the end of its turn reaches it. One with a name has a token for those who name it.
    fn add(
        self: &Arc<Self>,
        (tenant, turn): (TenantId, CallTurn),
        named: Option<(CallName, CancellationToken)>,
    ) -> UnderWay {
        let ended = CancellationToken::new();
        let call = CallUnderWay { tenant, turn, ended: ended.clone(), comment: None };
        let name = named.as_ref().map(|(name, _)| name.clone());
        let mut table = self.0.lock();
        table.serial += 1;
        let serial = table.serial;
        table.calls.insert(serial, call);
        if let Some((name, token)) = named {
            table.named.entry(name).or_default().push((serial, token));
        }
        drop(table);
        UnderWay { all: Arc::clone(self), serial, name, ended }
    }

    /// Cancels the call of this name. If several calls share the name, none is cancelled: the intended one is unknown.
    /// Returns `false` if no call here has the name.
    pub(super) fn cancel(&self, name: &CallName) -> bool {
        let table = self.0.lock();
        let Some(calls) = table.named.get(name) else { return false };
        if let [(_, token)] = calls.as_slice() {
            token.cancel();
        }
        true
    }

    /// Looks at all calls, since turns end seldom.
    fn end(&self, notice: &TurnNotice) {
        for call in self.0.lock().calls.values_mut() {
            if call.tenant == notice.tenant && call.turn.is_ended_by(notice) {
                call.comment.clone_from(&notice.comment);
                call.ended.cancel();
            }
        }
    }
}

impl Calls {
    /// Registers a call before anything of it is checked: from then on the end of its turn reaches it, and a notification
    /// with its name.
    pub(super) fn register(
        &self,
        attempt: &Attempt,
        named: Option<(CallName, CancellationToken)>,
    ) -> UnderWay {
        self.under_way.add((attempt.caller.tenant_id(), attempt.turn()), named)
    }

    /// Ends the calls of a turn on this replica.
    pub(in crate::gateway) fn turn_ended(&self, notice: &TurnNotice) {
        self.under_way.end(notice);
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
            let all = Arc::new(CallsUnderWay::default());
            let add = |turn: &CallTurn| all.add((TenantId::PLATFORM, turn.clone()), None);
            let begun: Vec<UnderWay> = calls.iter().map(add).collect();
            let session = session.map(str::to_owned);
            all.end(&TurnNotice {
                tenant: TenantId::PLATFORM,
                key: key(1),
                session,
                began_at: at(10),
                comment: None,
            });
            let ended: Vec<bool> = begun.iter().map(|call| call.ended.is_cancelled()).collect();
            assert_eq!(ended, expected);
            drop(begun);
            assert!(all.0.lock().calls.is_empty());
        }
    }

    #[test]
    fn the_end_of_a_turn_stays_in_its_tenant() {
        let all = Arc::new(CallsUnderWay::default());
        let tenants = [1, 2].map(|n| TenantId(Uuid::from_u128(n)));
        // the bootstrap key, which acts in every tenant
        let turn = || CallTurn { key: None, session: None, session_began: None };
        let begun = tenants.map(|tenant| all.add((tenant, turn()), None));
        let began_at = DateTime::<Utc>::UNIX_EPOCH;
        all.end(&TurnNotice { tenant: tenants[0], key: None, session: None, began_at, comment: None });
        assert_eq!(begun.map(|call| call.ended.is_cancelled()), [true, false]);
    }

    #[test]
    fn only_the_one_call_of_that_name_is_cancelled() {
        let all = Arc::new(CallsUnderWay::default());
        let turn = CallTurn { key: None, session: None, session_began: None };
        let add = |name, token: &CancellationToken| {
            all.add((TenantId::PLATFORM, turn.clone()), Some((name, token.clone())))
        };
        let tokens = [CancellationToken::new(), CancellationToken::new(), CancellationToken::new()];
        let [one, two, three] = &tokens;
        let name = |request| CallName::example("s", request);
        let (_one, first, last) = (add(name("1"), one), add(name("2"), two), add(name("2"), three));
        assert!(!all.cancel(&name("3")));
        assert!(!all.cancel(&CallName::example("other", "1")));
        assert!(all.cancel(&name("2")));
        assert!(!tokens.iter().any(CancellationToken::is_cancelled));
        assert!(all.cancel(&name("1")));
        assert!(one.is_cancelled());
        // the end of one call takes nothing from another of its name
        drop(first);
        assert!(all.cancel(&name("2")));
        assert!(three.is_cancelled() && !two.is_cancelled());
        drop(last);
        assert!(!all.cancel(&name("2")));
    }
}
