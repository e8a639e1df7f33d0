//! Streams that clients hold open: what they are told, and until when.

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

/// What a stream hears.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Heard {
    /// What it sees may be something else now, or the stream may have to end.
    Change,
    /// What it fetched at this moment of these kinds, from whichever replica, was out of date.
    Misled(Instant, Kinds),
    /// Whether it was is not known for what it fetched since this moment.
    Deaf(Instant),
}

/// A stream's place among those that are told.
#[derive(Debug)]
pub struct Listening {
    caller: Arc<Caller>,
    /// None for a platform key that named no tenant, and where no lists are told of.
    lists: Option<watch::Receiver<Prints>>,
    moved: Option<watch::Receiver<()>>,
    signals: Option<broadcast::Receiver<Signal>>,
    pulse: watch::Receiver<()>,
    is_behind: bool,
}

/// What is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Topic {
    /// Lists of `/mcp/direct`.
    Direct,
    /// The state of the servers.
    Servers,
    /// Nothing: the stream is only kept open.
    Nothing,
}

impl Listening {
    /// Whose stream it is, with the settings of now.
    pub fn caller(&self) -> &Arc<Caller> {
        &self.caller
    }

    /// What it sees now. `None` where nothing is told.
    pub fn prints(&self) -> Option<Prints> {
        self.lists.as_ref().map(|lists| *lists.borrow())
    }

    /// When it was served lists that were out of date, and which, if that was a short while ago: before it began to
    /// listen.
    pub fn misled(&self) -> Option<(Instant, Kinds)> {
        self.caller.tenant.as_ref()?.fanout.served.misled(self.caller.key)
    }

    /// How long its key lasts by itself; zero when it has ended.
    pub fn expires_in(&self) -> Option<Duration> {
        let left = self.caller.expires_at? - clock::now();
        Some(left.to_std().unwrap_or_default())
    }

    /// Waits for something to hear. Forgetting about the answer loses a [`Heard::Change`] at most, after which looking
    /// at [`Listening::prints`] again is enough.
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
            // signals were missed: either may have been among them
            None => {
                self.is_behind = true;
                Heard::Misled(Instant::now(), [true; 3])
            }
        }
    }

    /// Whether settings of the key have to be looked at before [`Listening::prints`] says what it sees.
    pub fn is_behind(&self) -> bool {
        self.is_behind
    }

    /// Takes over the settings that the key has now.
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

/// `None` when signals were missed.
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
    /// Begins to listen for a caller. Its view is made beforehand, away from the threads that serve calls.
    pub async fn listen(&self, caller: &Arc<Caller>, topic: Topic) -> Listening {
        // before what it is compared with, so that nothing falls in between
        let pulse = self.life.pulse.subscribe();
        let signals = caller.tenant.as_ref().map(|live| live.fanout.signals.subscribe());
        let lists = match (&caller.tenant, topic) {
            (Some(live), Topic::Direct) => Some(live.fanout.groups.join(live, &caller.settings).await),
            _ => None,
        };
        let moved = caller.tenant.as_ref().filter(|_| topic == Topic::Servers);
        let moved = moved.map(|live| live.fanout.moved.subscribe());
        // the key may have been given other settings since the request came in
        let mut listening =
            Listening { caller: Arc::clone(caller), lists, moved, signals, pulse, is_behind: true };
        listening.catch_up(self).await;
        listening
    }

    /// The caller that this caller's key makes now; `None` when the key has ended.
    fn current(&self, caller: &Arc<Caller>) -> Option<Arc<Caller>> {
        let Some(live) = &caller.tenant else { return Some(Arc::clone(caller)) };
        let access = live.access();
        let access = access.as_ref().as_ref()?;
        match caller.key {
            Some(key) => access.by_id.get(&key).cloned(),
            None => Some(Arc::new(self.platform_in(Some(live), Some(&access.tenant_settings)))),
        }
    }
}

impl Tenants {
    /// Begins to follow the state of a tenant's servers.
    ///
    /// # Errors
    /// `Forbidden` for a role that may not see servers; `Invalid` for a platform caller that named no tenant.
    pub async fn follow_servers(&self, caller: &Arc<Caller>) -> Result<Listening, GatewayError> {
        caller.authorise(Action::SeeServers)?;
        caller.tenant()?;
        Ok(self.listen(caller, Topic::Servers).await)
    }
}

impl Listening {
    /// The state of the servers now; `None` when its key may not see it any more.
    pub fn servers(&self) -> Option<Arc<ServerStates>> {
        self.caller.authorise(Action::SeeServers).ok()?;
        Some(self.caller.catalogue()?.states())
    }
}
