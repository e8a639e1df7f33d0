//! Upstream servers: administration, listing, and decisions about their tools and offers.

mod administer;
mod discovery;
mod duties;
mod freshness;
mod logs;
mod master_keys;
mod oauth;
mod offer_pins;
mod pages;
mod pins;
mod place;
mod requests;
mod seals;

pub use self::administer::{OWN_LIMITS, OverrideView, Reconnect, ServerView, ToolView};
pub use self::discovery::wants_credentials;
pub use self::logs::{LOG_LIMIT_MAX, LogPage};
pub use self::master_keys::MasterKeysError;
pub use self::oauth::OauthRequest;
pub use self::offer_pins::OfferName;
pub use self::pins::OverrideRequest;
pub use self::requests::{ServerChange, ServerRequest};

pub(in crate::gateway) use self::discovery::{ListingError, What};

use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::mpsc;

use super::{Ground, Lifecycle, Log, Options, Tenants};
use crate::store::Store;
use crate::upstream::{Egress, Journal, LogLine, Pool};

/// Sender and receiver of log lines of servers.
pub(super) type JournalEnds = (Journal, mpsc::Receiver<LogLine>);

/// Creates a channel for log lines of servers.
pub(super) fn journal() -> JournalEnds {
    mpsc::channel(logs::WAITING_MAX)
}

/// Use cases of upstream servers.
pub struct Servers {
    store: Store,
    upstreams: Arc<Pool>,
    options: Arc<Options>,
    life: Arc<Lifecycle>,
    egress: Arc<Egress>,
    tenants: Arc<Tenants>,
    log: Arc<Log>,
    /// Sender of log lines; [`Servers::take_journal`] gives the receiver to the task that writes them.
    journal: Journal,
    journal_lines: Mutex<Option<mpsc::Receiver<LogLine>>>,
}

impl Servers {
    pub(super) fn new(
        ground: &Ground,
        egress: Arc<Egress>,
        tenants: &Arc<Tenants>,
        log: &Arc<Log>,
        (journal, lines): JournalEnds,
    ) -> Servers {
        let Ground { store, upstreams, options, life } = ground.clone();
        Servers {
            store,
            upstreams,
            options,
            life,
            egress,
            tenants: Arc::clone(tenants),
            log: Arc::clone(log),
            journal,
            journal_lines: Mutex::new(Some(lines)),
        }
    }
}
