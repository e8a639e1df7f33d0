//! Logins: tokens of identity providers in the place of API keys.
//!
//! Issuers and their keys are one snapshot for the whole replica; rules and blocks are part of each tenant's access. A token that was
//! verified is remembered for a while, with the versions of all that it was verified and mapped with.

mod administer;
mod book;
mod cache;
mod fetch;
mod metadata;
mod people;
mod seen;
mod verify;

pub use self::administer::{IssuerRequest, RulesView};

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Instant;

use arc_swap::{ArcSwap, Guard};
use parking_lot::Mutex;
use tokio::sync::{Semaphore, watch};

use self::book::IssuerBook;
use self::cache::TokenCache;
use self::seen::SeenPeople;
use crate::domain::id::IssuerId;
use crate::gateway::LoginOptions;

/// State of logins on this replica.
pub(in crate::gateway) struct Logins {
    book: ArcSwap<IssuerBook>,
    /// Told after each new book.
    renewed: watch::Sender<()>,
    reloading: tokio::sync::Mutex<()>,
    tokens: TokenCache,
    /// Permits for verifying signatures: bad tokens must not take all processors.
    verifying: Semaphore,
    /// Time until which unknown keys of an issuer cause no further question to the database, with the lock of one question.
    asked: Mutex<HashMap<IssuerId, Arc<tokio::sync::Mutex<Option<Instant>>>>>,
    /// People who were seen since the last write.
    pub(super) seen: SeenPeople,
}

impl Logins {
    pub(super) fn new(options: &LoginOptions) -> Logins {
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        Logins {
            book: ArcSwap::from_pointee(IssuerBook::default()),
            renewed: watch::Sender::default(),
            reloading: tokio::sync::Mutex::default(),
            tokens: TokenCache::new(options.tokens_max),
            verifying: Semaphore::new((processors / 2).max(1)),
            asked: Mutex::default(),
            seen: SeenPeople::default(),
        }
    }

    /// Returns the issuers as they are known here.
    fn book(&self) -> Guard<Arc<IssuerBook>> {
        self.book.load()
    }
}
