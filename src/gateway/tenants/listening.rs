//! Streams that clients hold open: their events and their end.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::{broadcast, watch};

use super::Tenants;
use super::live::access::Caller;
use super::live::fanout::served::{Kinds, latest};
use super::live::fanout::{Prints, Signal};
use crate::domain::tenant::Action;
use crate::gateway::catalog::{ServerStates, ViewKey};
use crate::gateway::{GatewayError, clock};

/// Event for a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Heard {
    /// The lists or settings may have changed, or the stream may have to end.
    Change,
    /// The client fetched outdated lists of these kinds at this moment, from any replica.
    Misled(Instant, Kinds),
    /// Notices were lost since this moment: lists fetched since then may have been outdated.
    Deaf(Instant),
}

/// Subscription of one stream to its events.
#[derive(Debug)]
pub struct Listening {
    caller: Arc<Caller>,
    /// Fingerprints of the lists; `None` for a platform key without a tenant, and for other topics than lists.
    lists: Option<watch::Receiver<Prints>>,
    moved: Option<watch::Receiver<()>>,
    signals: Option<broadcast::Receiver<Signal>>,
    pulse: watch::Receiver<()>,
    is_behind: bool,
}

/// Subject of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Topic {
    /// Changes of the lists of `/mcp/direct`.
    Direct,
    /// Changes of the servers' states.
    Servers,
    /// No events: the stream is only kept open.
    Nothing,
}

impl Listening {
    /// Returns the caller of the stream, with its current settings.
    pub fn caller(&self) -> &Arc<Caller> {
        &self.caller
    }

    /// Returns the fingerprints of the lists that the caller sees now; `None` for streams about other topics.
    pub fn prints(&self) -> Option<Prints> {
        self.lists.as_ref().map(|lists| *lists.borrow())
    }

    /// Returns when the caller was served outdated lists, and which kinds; `None` if that was not in the last seconds.
    /// Covers lists fetched before the stream began.
    pub fn misled(&self) -> Option<(Instant, Kinds)> {
        self.caller.tenant.as_ref()?.fanout.served.misled(self.caller.key)
    }

    /// Returns the time until the key expires, zero if it has; `None` for a key without expiry.
    pub fn expires_in(&self) -> Option<Duration> {
        let left = self.caller.expires_at? - clock::now();
        Some(left.to_std().unwrap_or_default())
    }

    /// Waits for an event. Dropping the future can lose a [`Heard::Change`] only: comparing [`Listening::prints`] again
    /// makes up for it.
    pub async fn heard(&mut self, tenants: &Tenants) -> Heard {
        if self.is_behind {
            self.catch_up(tenants).await;
            return Heard::Change;
        }
        let signal = tokio::select! {
            () = changed(self.lists.as_mut()) => return Heard::Change,
            () = changed(self.moved.as_mut()) => return Heard::Change,
            () = changed(Some(&mut self.pulse)) => return Heard::Change,
            signal = next(self.signals.as_mut()) => signal,
        };
        match signal {
            Some(Signal::Misled(keys)) => {
                let own = latest(keys.iter().filter(|misled| misled.is(self.caller.key)));
                own.map_or(Heard::Change, |(at, kinds)| Heard::Misled(at, kinds))
            }
            Some(Signal::Deaf(since)) => Heard::Deaf(since),
            Some(Signal::Access) => {
                self.is_behind = true;
                self.catch_up(tenants).await;
                Heard::Change
            }
            // signals were missed, which may have been of any kind
            None => {
                self.is_behind = true;
                Heard::Misled(Instant::now(), [true; 3])
            }
        }
    }

    /// Returns whether the key's settings must be read again before [`Listening::prints`] is current.
    pub fn is_behind(&self) -> bool {
        self.is_behind
    }

    /// Reads the current settings of the key.
    async fn catch_up(&mut self, tenants: &Tenants) {
        if let Some(current) = tenants.current(&self.caller) {
            if let (Some(_), Some(live)) = (&self.lists, &current.tenant)
                && ViewKey::of(&current.settings) != ViewKey::of(&self.caller.settings)
            {
                self.lists = Some(live.fanout.groups.join(live, &current.settings).await);
            }
            self.caller = current;
        }
        self.is_behind = false;
    }
}

async fn changed<T>(receiver: Option<&mut watch::Receiver<T>>) {
    let is_change = match receiver {
        Some(receiver) => receiver.changed().await.is_ok(),
        None => false,
    };
    if !is_change {
        std::future::pending::<()>().await;
    }
}

/// Waits for the next signal; `None` if signals were missed.
async fn next(receiver: Option<&mut broadcast::Receiver<Signal>>) -> Option<Signal> {
    match receiver {
        Some(receiver) => match receiver.recv().await {
            Ok(signal) => Some(signal),
            Err(broadcast::error::RecvError::Lagged(_)) => None,
            Err(broadcast::error::RecvError::Closed) => std::future::pending().await,
        },
        None => std::future::pending().await,
    }
}

impl Tenants {
    /// Begins a subscription for a caller. Its view is made first, off the threads that serve requests.
    pub async fn listen(&self, caller: &Arc<Caller>, topic: Topic) -> Listening {
        // subscribed before the first comparison, so that no change falls in between
        let pulse = self.life.pulse.subscribe();
        let signals = caller.tenant.as_ref().map(|live| live.fanout.signals.subscribe());
        let lists = match (&caller.tenant, topic) {
            (Some(live), Topic::Direct) => Some(live.fanout.groups.join(live, &caller.settings).await),
            _ => None,
        };
        let moved = caller.tenant.as_ref().filter(|_| topic == Topic::Servers);
        let moved = moved.map(|live| live.fanout.moved.subscribe());
        // the key's settings may have changed since the request came in
        let mut listening =
            Listening { caller: Arc::clone(caller), lists, moved, signals, pulse, is_behind: true };
        listening.catch_up(self).await;
        listening
    }

    /// Returns the caller with its key's current settings; `None` when the key has ended.
    fn current(&self, caller: &Arc<Caller>) -> Option<Arc<Caller>> {
        let Some(live) = &caller.tenant else { return Some(Arc::clone(caller)) };
        let access = live.access();
        let access = access.as_ref().as_ref()?;
        match caller.key {
            Some(_) if caller.login.is_some() => self.remapped(caller),
            Some(key) => access.by_id.get(&key).cloned(),
            None => Some(Arc::new(self.platform_in(Some(live), Some(access)))),
        }
    }
}

impl Tenants {
    /// Begins to follow the states of a tenant's servers.
    ///
    /// # Errors
    /// [`GatewayError::Forbidden`] for a role that may not see servers; [`GatewayError::Invalid`] for a platform caller
    /// without a tenant.
    pub async fn follow_servers(&self, caller: &Arc<Caller>) -> Result<Listening, GatewayError> {
        caller.authorise(Action::SeeServers)?;
        caller.tenant()?;
        Ok(self.listen(caller, Topic::Servers).await)
    }
}

impl Listening {
    /// Returns the current states of the servers; `None` if the key may no longer see them.
    pub fn servers(&self) -> Option<Arc<ServerStates>> {
        self.caller.authorise(Action::SeeServers).ok()?;
        Some(self.caller.catalogue()?.states())
    }
}
