//! Floor 2: the use cases. The only floor that knows both store and upstream; it returns values, never HTTP
//! or JSON-RPC.

mod access;
mod activity;
mod attempt;
mod call_tool;
mod caller;
mod cancel;
mod catalog;
mod clock;
mod credentials;
mod direct;
mod discovery;
mod embeddings;
mod error;
mod fanout;
mod kept;
mod keys;
mod limits;
mod memory;
mod offer_pins;
mod offers;
mod outlive;
mod pins;
mod read_cache;
mod reads;
mod report_lane;
mod reports;
mod response_cache;
mod retrieve_tools;
mod rounds;
mod schemas;
mod servers;
mod suspension;
mod tail;
mod tenancy;
mod tenants;
mod trace;
mod views;
mod vitals;
mod watch;

pub use crate::store::OfferView;
pub use crate::upstream::{
    FREE_BYTES_MAX, MemoryHold, MemoryLimits, MemoryPurpose, MemoryShort, MemoryVitals, URI_BYTES_MAX,
};
pub use access::{Access, Caller};
pub use activity::{ActivityLimits, ActivityLog, Attempted, LogMeasures, LogVitals, RecordUnavailable};
pub use attempt::{Attempt, Client};
pub use call_tool::{Asked, CallOutcome, CallRequest, Door, OfferRequest, Refused, Replaced, RoundRequest};
pub use caller::AuthError;
pub use cancel::CancelBy;
pub use catalog::{Catalog, ServerEntry, Tool};
pub use credentials::{Headers, MasterKeysError};
pub use direct::{DirectPage, DirectView, ListKey, ListPlan};
pub use embeddings::EmbeddingsOptions;
pub use error::GatewayError;
pub use fanout::{Heard, Listening, Prints, ServerState, ServerStates, Topic};
pub use keys::{KeyCreated, KeyRequest};
pub use memory::{MEMORY_RETRY_AFTER_S, overloaded};
pub use offer_pins::OfferName;
pub use offers::{Offer, OffersPage, OffersView};
pub use outlive::{Apart, Outlive};
pub use pins::OverrideRequest;
pub use read_cache::{ReadRequest, ReadResult, TextPage};
pub use reads::{ReadAttempt, ReadUnderWay};
pub use reports::{Act, Acting, RefusedAttempt};
pub use retrieve_tools::{Detail, LIMIT_DEFAULT, LIMIT_MAX, SearchRequest, SearchResult};
pub use rounds::Rounds;
pub use servers::{
    LOG_LIMIT_MAX, LogPage, OverrideView, Reconnect, ServerChange, ServerRequest, ServerView, ToolView,
};
pub use tail::{News, Reach};
pub use tenants::QuotaView;
pub use trace::{
    LostSpans, OpenSpan, SpanSink, Trace, Tracer, current as current_span, within as within_span,
};
pub use views::View;
pub use vitals::{ServerCounts, Vitals};
pub use watch::Readiness;

use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use tokio::sync::{mpsc, watch as tokio_watch};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::domain::id::ReplicaId;
use crate::domain::measure::Series;
use crate::domain::quota::Quotas;
use crate::domain::seal::Keyring;
use crate::domain::settings::Defaults;
use crate::store::{CacheQuota, Store};
use crate::upstream::{Commands, Egress, Journal, Limits, LogLine, Pool, StdioRules, UpstreamError};

/// Streams of one tenant that read the activity log at the same time.
const TAILS_PER_TENANT: usize = 1;

/// Bounds and defaults of this deployment, as the gateway needs them.
#[derive(Clone, Debug)]
pub struct Options {
    /// This run's id.
    pub replica: ReplicaId,
    /// Deployment defaults of settings.
    pub defaults: Defaults,
    /// Master keys: the first seals credentials, all open them.
    pub keyring: Arc<Keyring>,
    /// Seals what requests carry from one round to the next.
    pub rounds: Arc<Rounds>,
    /// SHA-256 of the bootstrap key.
    pub bootstrap_hash: [u8; 32],
    /// How long keys and revisions may stay unconfirmed before requests are refused.
    pub stale_max: Duration,
    /// Programs that tenants may run as upstream servers.
    pub commands: Arc<Commands>,
    /// How they are run.
    pub stdio: StdioRules,
    /// Default bounds towards an upstream.
    pub upstream: Limits,
    /// Bounds on the memory of requests and answers.
    pub memory: MemoryLimits,
    /// Memory of finished lists of `/mcp/direct`, in bytes.
    pub lists_bytes_max: usize,
    /// Memory of compiled input schemas, in bytes; one tenant's take a quarter of it at most.
    pub schemas_bytes_max: usize,
    /// How often silent servers are listed again.
    pub relist_interval: Duration,
    /// How often servers that announce changes are listed again.
    pub relist_announced_interval: Duration,
    /// Servers that one replica waits on for announcements.
    pub upstream_streams_max: usize,
    /// The longest pause between listings of a server that fails.
    pub relist_pause_max: Duration,
    /// Servers listed at the same time because it is time.
    pub relist_places: usize,
    /// How long after its last sign of life a server counts as connected.
    pub connected_for: Duration,
    /// Bytes of arguments and of results kept in a record.
    pub preview_bytes: usize,
    /// Bounds of the activity log.
    pub activity: ActivityLimits,
    /// Tenants of the deployment.
    pub tenants_max: i64,
    /// What each tenant may have of which nothing else is said.
    pub quotas: Quotas,
    /// Tools of a server.
    pub tools_max: usize,
    /// Look-ups of unknown keys at the same time.
    pub key_lookups_max: usize,
    /// Reports of one tenant at the same time.
    pub reports_per_tenant: usize,
    /// What may be kept of a tenant's results that were cut.
    pub cache_quota: CacheQuota,
    /// Of those of all tenants, how many are kept or read at the same time.
    pub cache_turns: usize,
    /// How often partitions and retention are seen to.
    pub retention_interval: Duration,
    /// Tenants reloaded at the same time.
    pub reloads_max: usize,
    /// An embeddings service that helps with searches.
    pub embeddings: Option<EmbeddingsOptions>,
    /// Traces, where somebody is told of them.
    pub tracer: Option<Arc<Tracer>>,
}

/// Everything the faces use.
pub struct Gateway {
    store: Store,
    upstreams: Pool,
    egress: Arc<Egress>,
    options: Options,
    replica: ReplicaId,
    tenants: tenancy::Tenancy,
    activity: ActivityLog,
    tasks: TaskTracker,
    /// What writes servers' logs; it ends after everything that says something.
    log_tasks: TaskTracker,
    cancellations: cancel::Cancellations,
    stop: CancellationToken,
    leaving: AtomicBool,
    draining: AtomicBool,
    /// Beats when every open stream has to look whether it may go on.
    pulse: tokio_watch::Sender<()>,
    upkeep: watch::Upkeep,
    limits: limits::Limits,
    suspensions: suspension::Suspensions,
    reads: reads::ReadCounts,
    report_lane: report_lane::ReportLane,
    tails: Arc<tail::Tails>,
    /// Apart from other reports: whoever has many streams open must not keep others from the log.
    tail_lane: report_lane::ReportLane,
    cache_lane: response_cache::CacheLane,
    lists: direct::Lists,
    schemas: schemas::Schemas,
    embeddings: Option<Arc<embeddings::Embeddings>>,
    /// Lines of servers' logs go in here; the other end is taken by whoever writes them.
    journal: Journal,
    journal_lines: Mutex<Option<mpsc::Receiver<LogLine>>>,
    /// What the gateway itself added to calls.
    overhead: Series<&'static str>,
}

impl Gateway {
    /// Puts the gateway together; nothing runs until [`Gateway::start`].
    ///
    /// # Errors
    /// An embeddings service that nothing can be sent to.
    pub fn new(
        store: Store,
        egress: Arc<Egress>,
        tls: Option<Arc<rustls::ClientConfig>>,
        options: Options,
    ) -> Result<Arc<Gateway>, UpstreamError> {
        let replica = options.replica;
        let (journal, journal_lines) = mpsc::channel(servers::WAITING_MAX);
        let programs = options.stdio.clone();
        let embeddings = options.embeddings.as_ref();
        let embeddings =
            embeddings.map(|options| embeddings::Embeddings::new(options, tls.clone())).transpose()?;
        Ok(Arc::new(Gateway {
            upstreams: Pool::new(Arc::clone(&egress), tls)
                .with_memory(options.memory)
                .with_programs(programs, journal.clone()),
            egress,
            replica,
            tenants: tenancy::Tenancy::new(options.key_lookups_max, options.reloads_max),
            activity: ActivityLog::new(store.clone(), replica, options.activity.clone()),
            store,
            report_lane: report_lane::ReportLane::new(options.reports_per_tenant),
            cache_lane: response_cache::CacheLane::new(options.cache_turns),
            lists: direct::Lists::new(options.lists_bytes_max),
            schemas: schemas::Schemas::new(options.schemas_bytes_max),
            options,
            tails: Arc::default(),
            tail_lane: report_lane::ReportLane::new(TAILS_PER_TENANT),
            tasks: TaskTracker::new(),
            log_tasks: TaskTracker::new(),
            cancellations: cancel::Cancellations::default(),
            stop: CancellationToken::new(),
            leaving: AtomicBool::new(false),
            draining: AtomicBool::new(false),
            pulse: tokio_watch::Sender::default(),
            upkeep: watch::Upkeep::default(),
            limits: limits::Limits::new(Instant::now()),
            suspensions: suspension::Suspensions::default(),
            reads: reads::ReadCounts::default(),
            journal,
            journal_lines: Mutex::new(Some(journal_lines)),
            embeddings: embeddings.map(Arc::new),
            overhead: Series::of_own(),
        }))
    }

    /// The activity log.
    pub fn activity(&self) -> &ActivityLog {
        &self.activity
    }

    /// This run's id.
    pub fn replica(&self) -> ReplicaId {
        self.replica
    }

    /// TCP connections opened to upstreams since the start.
    pub fn upstream_connects(&self) -> u64 {
        self.upstreams.tcp_connects()
    }

    /// Traces, where somebody is told of them.
    pub fn tracer(&self) -> Option<&Arc<Tracer>> {
        self.options.tracer.as_ref()
    }

    /// The deployment's defaults of settings.
    pub fn defaults(&self) -> &Defaults {
        &self.options.defaults
    }
}
