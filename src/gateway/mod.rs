//! Floor 2: the use cases. The only floor that knows both store and upstream; it returns values, never HTTP or JSON-RPC.
//!
//! Each folder is a wing with one owner. A wing uses those after it in this list and never one before it: `upkeep`,
//! `servers`, `calls`, `connect`, `search`, `consent`, `log`, `mailbox`, `sessions`, `tenants`, `catalog`. The files beside the folders are shared by all wings and know
//! none of them.

mod calls;
mod catalog;
mod clock;
mod connect;
mod consent;
mod credentials;
mod error;
#[cfg(test)]
mod example;
mod kept;
mod life;
mod log;
mod mailbox;
mod options;
mod outlive;
mod recent;
mod rounds;
mod search;
mod server_logins;
mod servers;
mod sessions;
mod tenants;
mod trace;
mod upkeep;

pub use crate::store::{NAME_TAKEN, OfferView};
pub use crate::upstream::{
    CallEvent, FREE_BYTES_MAX, Hears, MemoryHold, MemoryLimits, MemoryPurpose, MemoryShort, MemoryVitals,
    QuestionReply, ServerQuestion, URI_BYTES_MAX,
};
pub use calls::{
    CallOutcome, CallRequest, Callee, Calls, CancelBy, ClientLine, ClientQuestion, Door, ExplainRequest,
    Explained, OfferRequest, PastOutcome, PolicyVerdict, ReadRequest, ReadResult, Refused, Rehearsed,
    Replaced, ReplayReport, ReplayedCalls, RoundRequest, SubscribeFault, TextPage, ToClient, ToolRequest,
    Unanswered, Wanted,
};
pub use catalog::{
    Catalog, DirectPage, DirectView, ListKey, ListPlan, Offer, OffersPage, OffersView, ServerEntry,
    ServerState, ServerStates, Tool, ToolCounts, View,
};
pub use connect::{
    Arrival, Connect, ConnectBegun, ConnectEnd, ConnectFault, ConnectPage, Departure, Returned,
};
pub use consent::{
    Consent, ConsentBoard, ConsentEnd, ConsentHeard, ConsentMeasures, ConsentNews, ConsentView,
    DecideRequest, Deciding, Deliveries, LET_THROUGH_MAX, RequestedTool, ShownConsent, TurnReach,
    WebhookRequest, next_consent_poll,
};
pub use credentials::{FieldSecrets, Headers};
pub use error::GatewayError;
pub use life::Lifecycle;
pub use log::{
    Act, Acting, ActivityLog, Attempt, Attempted, Client, CountedHour, Log, LogMeasures, LogVitals, News,
    ReadAttempt, ReadUnderWay, RecordUnavailable, RefusedAttempt, TailReach,
};
pub use mailbox::{Mailbox, REPLY_BYTES_MAX, ReplyEnd};
pub use options::{
    ActivityLimits, BrowserLoginOptions, EmbeddingsOptions, LiveSettings, LoginOptions, Options, Reread,
    ServerLoginOptions,
};
pub use outlive::{Apart, Outlive};
pub use rounds::Rounds;
pub use search::{Detail, LIMIT_DEFAULT, LIMIT_MAX, Search, SearchRequest, SearchResult};
pub use servers::{
    LOG_LIMIT_MAX, LogPage, MasterKeysError, OWN_LIMITS, OauthRequest, OfferName, OverrideRequest,
    OverrideView, Reconnect, ServerChange, ServerRequest, ServerView, Servers, ToolView, wants_credentials,
};
pub use sessions::{ClientSessions, ResourceNews, SessionStreamHold, UpdatesDue};
pub use tenants::{
    Access, AskingKeys, AuthError, CLIENT_METADATA_PATH, Caller, CallerPolicies, CompiledPolicy,
    ConsoleSession, FindingGrade, Heard, IssuerFinding, IssuerRequest, KeyCreated, KeyRequest, KeyRotated,
    Listening, Login, LoginAnswer, LoginBegun, LoginEnd, LoginFault, MEMORY_RETRY_AFTER_S, NamedKeys,
    PersonLogin, PolicyView, PresentedCredential, Prints, ProviderSession, QuotaView, RefusedPerson,
    RulesView, SUSPENDED, SessionCookie, SessionView, Tenants, Topic, overloaded,
};
pub use trace::{
    LostSpans, OpenSpan, SpanSink, Trace, Tracer, current as current_span, within as within_span,
};
pub use upkeep::{Readiness, ServerCounts, Upkeep, Vitals};

use std::sync::Arc;

use self::server_logins::ServerLogins;
use crate::store::Store;
use crate::upstream::{Egress, Pool, UpstreamError};

/// All use cases, as the faces (MCP and REST) use them.
pub struct Gateway {
    /// Limits and defaults of this deployment.
    pub options: Arc<Options>,
    /// Work under way and the signals that stop it.
    pub life: Arc<Lifecycle>,
    /// Tenants, their API keys and their open streams.
    pub tenants: Arc<Tenants>,
    /// The activity log.
    pub log: Arc<Log>,
    /// Searches for tools.
    pub search: Arc<Search>,
    /// Permission requests.
    pub consent: Arc<Consent>,
    /// Replies of clients to requests of the gateway.
    pub mailbox: Arc<Mailbox>,
    /// Wishes of handshake sessions, and watches of resources.
    pub sessions: Arc<ClientSessions>,
    /// Calls of tools, prompts and resources.
    pub calls: Arc<Calls>,
    /// Logins of people at servers.
    pub connect: Arc<Connect>,
    /// Upstream servers, and decisions about them.
    pub servers: Arc<Servers>,
    /// Background tasks.
    pub upkeep: Arc<Upkeep>,
}

impl Gateway {
    /// Builds all use cases. No task runs until [`Upkeep::start`].
    ///
    /// # Errors
    /// The address or key of the embeddings service cannot be used for requests.
    pub fn new(
        store: Store,
        egress: Arc<Egress>,
        tls: Option<Arc<rustls::ClientConfig>>,
        options: Options,
    ) -> Result<Gateway, UpstreamError> {
        let (journal, lines) = servers::journal();
        let pool = Pool::new(Arc::clone(&egress), tls.clone())
            .with_memory(options.memory)
            .with_programs(options.stdio.clone(), journal.clone());
        let (options, life) = (Arc::new(options), Arc::new(Lifecycle::default()));
        let logins =
            ServerLogins::new(store.clone(), pool.token_client(), Arc::clone(&options), Arc::clone(&life));
        let upstreams = Arc::new(pool.with_tokens(Arc::new(logins)));
        let ground = Ground { store, upstreams, options, life };
        let tenants = Arc::new(Tenants::new(&ground));
        let log = Arc::new(Log::new(&ground, &tenants));
        let search = Arc::new(Search::new(&ground, &tenants, &log, tls)?);
        let consent = Arc::new(Consent::new(&ground, &tenants));
        let mailbox = Arc::new(Mailbox::new(&ground));
        let sessions = Arc::new(ClientSessions::new(&ground));
        let connect = Arc::new(Connect::new(&ground, &tenants));
        let calls = Arc::new(Calls::new(&ground, &tenants, &log, (&consent, &mailbox, &connect)));
        let servers = Arc::new(Servers::new(&ground, egress, &tenants, &log, (journal, lines)));
        let upkeep = Arc::new(Upkeep::new(
            &ground,
            &tenants,
            &log,
            &search,
            (&consent, &calls, &mailbox, &sessions),
            &servers,
        ));
        let Ground { options, life, .. } = ground;
        Ok(Gateway {
            options,
            life,
            tenants,
            log,
            search,
            consent,
            mailbox,
            sessions,
            calls,
            connect,
            servers,
            upkeep,
        })
    }
}

/// Common dependencies of all use cases.
#[derive(Clone)]
struct Ground {
    store: Store,
    upstreams: Arc<Pool>,
    options: Arc<Options>,
    life: Arc<Lifecycle>,
}
