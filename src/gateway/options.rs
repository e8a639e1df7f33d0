//! What the composition root gives the gateway.

use std::sync::Arc;
use std::time::Duration;

use super::rounds::Rounds;
use super::trace::Tracer;
use crate::domain::id::ReplicaId;
use crate::domain::quota::Quotas;
use crate::domain::seal::Keyring;
use crate::domain::search::TEXT_VERSION;
use crate::domain::settings::Defaults;
use crate::store::CacheQuota;
use crate::upstream::{Commands, EmbedderOptions, Limits, MemoryLimits, StdioRules};

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

/// Bounds of the activity log.
#[derive(Clone, Debug)]
pub struct ActivityLimits {
    /// Attempts that may be unfinished or unwritten at once, over all tenants.
    pub queue: usize,
    /// What their records may take in memory, in bytes.
    pub queue_bytes: usize,
    /// Counted for an attempt whose record is not complete yet, in bytes.
    pub attempt_bytes: usize,
    /// Records per batch.
    pub batch: usize,
    /// How long ends are gathered before they are written.
    pub flush: Duration,
    /// How long a call waits for its record.
    pub commit_timeout: Duration,
}

/// An embeddings service, as the operator names it.
#[derive(Clone, Debug)]
pub struct EmbeddingsOptions {
    /// Where it is.
    pub embedder: EmbedderOptions,
    /// How long a search waits for the vector of its question.
    pub wait: Duration,
    /// Definitions sent in one request.
    pub batch: usize,
}

impl EmbeddingsOptions {
    /// Returns where vectors can be compared: the model, and how texts are made for it.
    pub(in crate::gateway) fn space(&self) -> String {
        format!("{}#{TEXT_VERSION}", self.embedder.model)
    }
}
