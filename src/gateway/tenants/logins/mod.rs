//! Logins: tokens of identity providers in the place of API keys.
//!
//! Issuers and their keys are one snapshot for the whole replica; rules and blocks are part of each tenant's access. A token that was
//! verified is remembered for a while, with the versions of all that it was verified and mapped with.

mod administer;
mod administer_people;
mod book;
mod browser;
mod cache;
mod check;
mod explain;
mod fetch;
mod findings;
mod metadata;
mod people;
mod seen;
mod turns;
mod verifiers;
mod verify;

pub use self::administer::{IssuerRequest, RulesView};
pub use self::browser::{CLIENT_METADATA_PATH, LoginAnswer, LoginBegun, LoginEnd, LoginFault, PersonLogin};
pub(in crate::gateway) use self::browser::{callback_path, client_metadata_path};
pub use self::findings::{FindingGrade, IssuerFinding};

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use arc_swap::{ArcSwap, Guard};
use parking_lot::{Mutex, RwLock};
use tokio::sync::watch;

use self::book::IssuerBook;
use self::browser::{Begins, Providers};
use self::cache::TokenCache;
use self::seen::SeenPeople;
use self::turns::VerifyTurns;
use crate::domain::id::IssuerId;
use crate::gateway::LoginOptions;

/// State of logins on this replica.
pub(in crate::gateway) struct Logins {
    book: ArcSwap<IssuerBook>,
    /// Told after each new book.
    renewed: watch::Sender<()>,
    reloading: tokio::sync::Mutex<()>,
    /// Time when the issuers were last known to be those of the database.
    confirmed_at: RwLock<Option<Instant>>,
    tokens: TokenCache,
    /// Metadata of providers, for logins by browser.
    providers: Providers,
    /// Logins by browser that began a short time ago.
    begins: Begins,
    /// Turns to verify signatures.
    verifying: VerifyTurns,
    /// Questions to the database about unknown keys, by issuer.
    asked: Mutex<HashMap<IssuerId, Asked>>,
    /// People who were seen since the last write.
    pub(super) seen: SeenPeople,
}

/// Question about unknown keys of an issuer.
#[derive(Clone, Copy)]
struct Asked {
    /// Time until which further unknown keys cause no other question.
    until: Instant,
    /// True while a fetch may be under way, whose end is worth waiting for.
    is_fetching: bool,
}

impl Logins {
    pub(super) fn new(options: &LoginOptions) -> Logins {
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        Logins {
            book: ArcSwap::from_pointee(IssuerBook::default()),
            renewed: watch::Sender::default(),
            reloading: tokio::sync::Mutex::default(),
            confirmed_at: RwLock::default(),
            tokens: TokenCache::new(options.tokens_max),
            providers: Providers::default(),
            begins: Begins::default(),
            verifying: VerifyTurns::new((processors / 2).max(1)),
            asked: Mutex::default(),
            seen: SeenPeople::default(),
        }
    }

    /// Notes that the issuers were those of the database at this time.
    pub(in crate::gateway) fn confirm(&self, at: Instant) {
        *self.confirmed_at.write() = Some(at);
    }

    fn confirmed_ago(&self) -> Option<Duration> {
        self.confirmed_at.read().map(|at| at.elapsed())
    }

    /// Returns the issuers as they are known here.
    fn book(&self) -> Guard<Arc<IssuerBook>> {
        self.book.load()
    }
}
