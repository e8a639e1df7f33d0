//! Floor 1: Postgres. Only this module knows SQL and table names.
//!
//! Every unit of work is one transaction that starts by dropping to a role. [`TxAccess::Tenant`] sees one tenant;
//! [`TxAccess::System`] is for the few cross-tenant jobs. A query without its tenant filter then finds no rows of other
//! tenants, even when the deployment's URL is a superuser's. Activity records are opened by a database function that
//! checks the role itself. LISTEN, migrations and partition upkeep use connections of their own.

mod activity_columns;
mod activity_find;
mod activity_minutes;
mod activity_past;
mod activity_read;
mod activity_summary;
mod activity_tail;
mod activity_write;
mod api_keys;
mod catalogue;
mod client_replies;
mod client_sessions;
mod connect;
mod connect_flows;
mod connected;
mod connections;
mod consent;
mod error;
mod identity;
mod leftovers;
mod listings;
mod locks;
mod master_keys;
mod migrate;
mod offer_pins;
mod offers;
mod page_reports;
mod partitions;
mod patches;
mod pins;
mod policies;
mod pooler;
mod principals;
mod purge;
mod quotas;
mod reach;
mod removed;
mod replicas;
mod response_cache;
mod retention;
mod revisions;
mod schema;
mod sealed_rows;
mod secrets;
mod server_logs;
mod server_oauth;
mod server_oauth_changes;
mod servers;
mod settings;
mod stored;
mod system;
mod tenants;
mod tool_embeddings;
mod tools;
mod tx;
mod unit;
mod vitals;
mod wear_off;
mod web_cookies;
mod web_drafts;
mod web_logins;
mod web_provenance;
mod web_sessions;

pub use activity_find::ActivityHits;
pub use activity_minutes::MinuteCalls;
pub use activity_past::{PastCalls, PastTimes};
pub use activity_read::{ActivityFilter, ActivityRow};
pub use activity_summary::{ActivityCount, ActivitySummary, CallSummary, DecisionCount, SummaryScope};
pub use activity_tail::{Commit, Tail};
pub use activity_write::Close;
pub use api_keys::{AccessRows, ApiKey, KeyOrigin, KeyPatch, KeyRotation, NewApiKey, RotatedKey};
pub use catalogue::CatalogueRows;
pub use client_replies::NewReply;
pub use client_sessions::{KEY_SESSIONS_MAX, SESSION_URIS_MAX, SessionOf, SessionWishes, WishOutcome};
pub use connect_flows::{FlowDeparture, FlowRow, NewFlow};
pub use connected::{ConnectionRow, RemovedConnection};
pub use connections::{LoginClaim, LoginConfig, LoginOf, LoginTurn, NewTokens, SealedText, SealedToken};
pub use consent::{
    AskLimits, AskOutcome, CallTurn, ConsentAsked, ConsentClaim, ConsentDecider, ConsentFilter, ConsentGrant,
    ConsentOrder, ConsentRow, ConsentSwept, ConsumeOutcome, DecideOutcome, GrantInForce, GrantOrigin,
    GrantedCall, HeldFence, LostEvent, NewConsent, NewDecision, NewGrant, NewWebhook, OLD_CONSENT_TABLES,
    OpenRequests, OwnDecision, PendingOf, StepAuthor, TurnEnder, WEBHOOK_EVENTS_MAX, WebhookClaim,
    WebhookEvent, WebhookParts, WebhookRoom, WebhookRow, WebhookTry,
};
pub use error::StoreError;
pub use identity::{
    BarredIdentity, Identity, Issuer, IssuerAssignment, IssuerPatch, IssuerRows, KeyFetch, KeyFetchCause,
    KeyFetchClaim, NewIssuer, SeenIdentity, StoredRules,
};
pub use listings::{
    Applied, AppliedOffers, Before, Discovered, FailureNoted, FoundOffers, NewListing, NewOffers, Right,
    Tally,
};
pub use master_keys::Canary;
pub use migrate::migrate;
pub use offer_pins::OfferRef;
pub use offers::{OfferFilter, OfferView, StoredOffer};
pub use pins::NewOverride;
pub use policies::{NewPolicy, PolicyInForce, PolicyVersion};
pub use principals::PrincipalName;
pub use purge::{Deleted, PURGED_TABLES};
pub use quotas::Usage;
pub use removed::TABLES_OF_SERVERS;
pub use replicas::{Beat, HEARTBEAT_TTL_S, REPLICA_GONE_AFTER_S, ReplicaLease};
pub use response_cache::{CacheQuota, CachedText, NewCachedTexts};
pub use revisions::{
    CancelNotice, Change, ConsentNotice, Listener, MISLED_KEYS_MAX, Misled, MisledKey, Notice, ReloadNotice,
    ReplyNews, ReplyNotice, RevisionKind, SessionNotice, TurnNotice,
};
pub use sealed_rows::{NewSealedRow, SealedRow};
pub use secrets::{DataKey, HeadersPatch, SealedHeaders, SecretRows, ServerSecret};
pub use server_logs::{NewLogLine, StoredLogLine};
pub use server_oauth::ServerOauth;
pub use server_oauth_changes::NewServerOauth;
pub use servers::{NAME_TAKEN, NewServer, Server, ServerPatch};
pub use settings::StoredSettings;
pub use stored::Stored;
pub use system::{DueServer, FoundKey};
pub use tenants::{Suspend, Tenant};
pub use tool_embeddings::{EMBEDDED_PER_TENANT_MAX, EmbeddingRows, Unembedded};
pub use tools::{StoredOverride, StoredTool};
pub use tx::TxAccess;
pub use vitals::{StorePoolVitals, StoreVitals};
pub use wear_off::Silence;
pub use web_cookies::{CookieOwners, CookiePlace, CookiesStored, FoundCookies};
pub use web_drafts::{DraftPlace, DraftStored};
pub use web_logins::{NewWebLogin, WebLogin};
pub use web_sessions::{
    NewWebSession, SessionHolder, SessionLogin, SessionTouch, WebSessionRow, WebSessionRules,
};

use leftovers::Leftovers;
use reach::Reach;
use unit::Statements;

use std::sync::Arc;
use std::time::Duration;

use sqlx::postgres::{PgConnectOptions, PgPoolOptions};
use sqlx::{ConnectOptions, PgPool};

/// Settings of a [`Store`]: the database URLs, and the number of connections in each pool.
#[derive(Clone, Debug)]
pub struct StoreOptions {
    /// Database URL; may lead through a pooler in transaction mode.
    pub url: String,
    /// Database URL without a pooler, for LISTEN, migrations and partition upkeep.
    pub direct_url: String,
    /// Prepared statements kept per connection; 0 behind poolers that cannot keep them.
    pub statement_cache: usize,
    /// Connections for committing activity records; 0 counts as 1.
    pub commit_connections: u32,
    /// Connections for all short work; 0 counts as 1.
    pub control_connections: u32,
    /// Connections for reading the activity log and for the response cache; 0 counts as 1.
    pub report_connections: u32,
    /// Longest wait of a call for its record to be committed.
    pub commit_max: Duration,
}

/// Handle of the database and its connection pools. Clones are cheap and share the pools.
#[derive(Clone, Debug)]
pub struct Store {
    commit: PgPool,
    control: PgPool,
    report: PgPool,
    direct: PgConnectOptions,
    /// True if the settings name no pooler: `url` equals `direct_url`.
    is_direct: bool,
    statements: Statements,
    commit_max: Duration,
    reach: Arc<Reach>,
    noted: Arc<vitals::Noted>,
    /// Connections of the commit pool that were given up before Postgres answered.
    late_records: Leftovers,
    /// Connections of the other pools that were given up, and permits of changes that wait for their commit.
    changes: Leftovers,
}

/// Longest time of one attempt to get a connection, whether a free one or a new one.
const CONNECT_MAX: Duration = Duration::from_secs(3);
/// Longest time to close all connections.
const CLOSE_MAX: Duration = Duration::from_secs(5);

impl Store {
    /// Creates the pools. Connects lazily, so a database that is down is no error yet.
    ///
    /// # Errors
    /// A URL cannot be parsed.
    pub fn new(options: &StoreOptions) -> Result<Store, StoreError> {
        let pooled = connect_options(&options.url, options.statement_cache)?;
        let direct = connect_options(&options.direct_url, options.statement_cache)?;
        // `open_activity` may run without a transaction of its own and needs a statement timeout at the server all the
        // same; a pooler would refuse the option, or keep it for the session of another client
        // and its statements are the same for any values: Postgres plans each once, and not six times
        let bound = [
            ("statement_timeout", tx::commit_statement_max(options.commit_max).as_millis().to_string()),
            ("plan_cache_mode", "force_generic_plan".to_owned()),
        ];
        let is_direct = options.url == options.direct_url;
        let writing = if is_direct { pooled.clone().options(bound) } else { pooled.clone() };
        let pool = |connections: u32, options: &PgConnectOptions| {
            PgPoolOptions::new()
                .max_connections(connections.max(1))
                .acquire_timeout(CONNECT_MAX)
                // a broken connection is noticed by the unit of work that meets it, which tries again: a ping
                // before each would cost every commit a round trip
                .test_before_acquire(false)
                .connect_lazy_with(options.clone())
        };
        Ok(Store {
            commit: pool(options.commit_connections, &writing),
            control: pool(options.control_connections, &pooled),
            report: pool(options.report_connections, &pooled),
            direct,
            is_direct,
            statements: if options.statement_cache == 0 { Statements::Unnamed } else { Statements::Kept },
            commit_max: options.commit_max,
            reach: Arc::new(Reach::new()),
            noted: Arc::default(),
            late_records: Leftovers::new(options.commit_connections.max(1)),
            // the other half is for reading and upkeep, which wait for no standby
            changes: Leftovers::new((options.control_connections / 2).max(1)),
        })
    }

    /// Closes all connections in an orderly way; gives up after 5 s if the database does not take part.
    pub async fn close(&self) {
        let closing = async {
            self.commit.close().await;
            self.control.close().await;
            self.report.close().await;
        };
        if tokio::time::timeout(CLOSE_MAX, closing).await.is_err() {
            tracing::warn!("the database connections could not be closed in an orderly way");
        }
    }
}

/// Host name or address, and port, of the server that a database URL leads to; `None` for a Unix socket.
///
/// # Errors
/// The URL cannot be read.
pub fn database_host(url: &str) -> Result<Option<(String, u16)>, StoreError> {
    let options: PgConnectOptions = url.parse()?;
    let is_socket = options.get_socket().is_some() || options.get_host().starts_with('/');
    Ok((!is_socket).then(|| (options.get_host().trim_matches(['[', ']']).to_owned(), options.get_port())))
}

fn connect_options(url: &str, statement_cache: usize) -> Result<PgConnectOptions, StoreError> {
    let options: PgConnectOptions = url.parse()?;
    Ok(options
        .application_name("mcpproxy")
        // poolers refuse unknown startup parameters, and no floating-point number travels as text
        .extra_float_digits(None)
        .statement_cache_capacity(statement_cache)
        .disable_statement_logging())
}
