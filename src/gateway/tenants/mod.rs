//! Tenants: those that this replica serves, their keys, limits and open streams, and their administration by the platform.

mod administer;
mod answers;
mod authenticate;
mod embedded;
mod keys;
mod limits;
mod listening;
mod live;
mod loads;
mod logins;
mod memory;
mod offered;
mod policies;
mod refused;
mod strangers;
mod suspension;
mod tenancy;
mod uses;
mod web_sessions;

pub use self::administer::QuotaView;
pub use self::answers::{AskingKeys, NamedKeys};
pub use self::authenticate::{AuthError, PresentedCredential};
pub use self::keys::{KeyCreated, KeyRequest, KeyRotated};
pub use self::listening::{Heard, Listening, Topic};
pub use self::live::LiveTenant;
pub use self::live::access::{Access, Caller, SUSPENDED};
pub use self::live::fanout::Prints;
pub use self::live::login::Login;
pub use self::live::policies::{CallerPolicies, CompiledPolicy};
pub use self::logins::{
    CLIENT_METADATA_PATH, FindingGrade, IssuerFinding, IssuerRequest, LoginAnswer, LoginBegun, LoginEnd,
    LoginFault, PersonLogin, RulesView,
};
pub(super) use self::logins::{callback_path, client_metadata_path};
pub use self::memory::{MEMORY_RETRY_AFTER_S, overloaded};
pub use self::policies::PolicyView;
pub use self::refused::RefusedPerson;
pub use self::web_sessions::{ConsoleSession, ProviderSession, SessionCookie, SessionView};

pub(in crate::gateway) use self::embedded::Embedded;
pub(in crate::gateway) use self::limits::{Shed, Sheds};
pub(in crate::gateway) use self::refused::{PersonRefusal, RefusedKey, RefusedRequests};
pub(in crate::gateway) use self::suspension::SuspendedRequests;
pub(in crate::gateway) use self::uses::AuthFailures;

use std::sync::Arc;
use std::time::Instant;

use self::limits::RateLimits;
use self::logins::Logins;
use self::refused::RefusedPeople;
use self::suspension::Suspensions;
use self::tenancy::Tenancy;
use self::uses::Uses;
use self::web_sessions::WebSessions;
use super::catalog::Catalogs;
use super::{EmbeddingsOptions, Ground, Lifecycle, Options};
use crate::store::Store;
use crate::upstream::Pool;

/// Use cases of tenants: authentication, limits, streams and administration.
pub struct Tenants {
    store: Store,
    upstreams: Arc<Pool>,
    options: Arc<Options>,
    life: Arc<Lifecycle>,
    /// Lists and schemas made of the tenants' definitions.
    pub(super) catalog: Catalogs,
    /// Tenants that are live on this replica.
    pub(super) live: Tenancy,
    /// Rate limits.
    pub(super) limits: RateLimits,
    /// Counters of suspended tenants' requests.
    pub(super) suspensions: Suspensions,
    /// Counters of key uses and of requests without a valid key.
    pub(super) uses: Uses,
    /// Requests of people who may not come in.
    pub(super) refused: RefusedPeople,
    /// Issuers of tokens, and people who log in.
    pub(super) logins: Logins,
    /// Look-ups of sessions of the console.
    web_sessions: WebSessions,
    /// State of the embeddings service; `None` without one.
    pub(super) embedded: Option<Embedded>,
}

impl Tenants {
    pub(super) fn new(ground: &Ground) -> Tenants {
        let Ground { store, upstreams, options, life } = ground.clone();
        Tenants {
            catalog: Catalogs::new(ground),
            live: Tenancy::new(options.key_lookups_max, options.reloads_max),
            limits: RateLimits::new(Instant::now()),
            refused: RefusedPeople::default(),
            suspensions: Suspensions::default(),
            uses: Uses::default(),
            logins: Logins::new(&options.logins),
            web_sessions: WebSessions::default(),
            embedded: options.embeddings.as_ref().map(EmbeddingsOptions::space).map(Embedded::new),
            store,
            upstreams,
            options,
            life,
        }
    }
}

#[cfg(test)]
pub(in crate::gateway) use self::live::access::tests::caller as example_caller;
