//! Options that the program gives the gateway at start.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use zeroize::Zeroizing;

use super::rounds::Rounds;
use super::trace::Tracer;
use crate::domain::bootstrap::BootstrapKey;
use crate::domain::id::ReplicaId;
use crate::domain::identity::PublicUrl;
use crate::domain::policy::RuleSet;
use crate::domain::quota::Quotas;
use crate::domain::seal::{Key, Keyring};
use crate::domain::search::TEXT_VERSION;
use crate::domain::settings::Defaults;
use crate::store::{AskLimits, CacheQuota};
use crate::upstream::{Commands, EmbedderOptions, Limits, MemoryLimits, StdioRules};

/// Limits and defaults of this deployment.
#[derive(Clone, Debug)]
pub struct Options {
    /// Id of this run of the replica.
    pub replica: ReplicaId,
    /// Deployment defaults of settings.
    pub defaults: Defaults,
    /// Rules of the deployment.
    pub policy: Arc<RuleSet>,
    /// Master keys: the first seals credentials, all open them.
    pub keyring: Arc<Keyring>,
    /// Sealing of the state that requests carry between rounds.
    pub rounds: Arc<Rounds>,
    /// Keys of the digests by which permission requests know their calls; the first is stored, all are looked for.
    pub consent_keys: Arc<[Key]>,
    /// Keys that seal the ids of requests to clients; the first seals, all open.
    pub reply_keys: Arc<[Key]>,
    /// Longest time that a call is held for the person at its client, who is asked whether it may run.
    pub consent_hold: Duration,
    /// Limits on the permission requests of one key.
    pub consent: AskLimits,
    /// Bootstrap key, by its digests.
    pub bootstrap: BootstrapKey,
    /// Longest time without confirmation of keys and revisions before requests are refused.
    pub stale_max: Duration,
    /// Programs that tenants may run as upstream servers.
    pub commands: Arc<Commands>,
    /// Rules for running these programs.
    pub stdio: StdioRules,
    /// Default limits towards an upstream.
    pub upstream: Limits,
    /// Limits on the memory of requests and answers.
    pub memory: MemoryLimits,
    /// Memory for finished lists of `/mcp/direct`, in bytes.
    pub lists_bytes_max: usize,
    /// Memory for compiled input schemas, in bytes; one tenant's take at most a quarter.
    pub schemas_bytes_max: usize,
    /// Interval at which servers without announcements are listed again.
    pub relist_interval: Duration,
    /// Interval at which web pages are fetched again.
    pub page_refresh: Duration,
    /// Interval at which servers that announce changes are listed again.
    pub relist_announced_interval: Duration,
    /// Most servers whose announcements one replica awaits.
    pub upstream_streams_max: usize,
    /// Longest backoff between listings of a server that fails.
    pub relist_pause_max: Duration,
    /// Most scheduled listings at the same time.
    pub relist_places: usize,
    /// Time after its last sign of life for which a server counts as connected.
    pub connected_for: Duration,
    /// Time after the last fetch that worked for which web pages count as connected.
    pub pages_connected_for: Duration,
    /// Most bytes of arguments and of results that a record keeps.
    pub preview_bytes: usize,
    /// Limits of the activity log.
    pub activity: ActivityLimits,
    /// Most tenants of the deployment.
    pub tenants_max: i64,
    /// Default quotas of each tenant.
    pub quotas: Quotas,
    /// Most tools of a server.
    pub tools_max: usize,
    /// Most look-ups of unknown keys at the same time.
    pub key_lookups_max: usize,
    /// Most reports of one tenant at the same time.
    pub reports_per_tenant: usize,
    /// Quota of a tenant's cached texts, which were cut off results.
    pub cache_quota: CacheQuota,
    /// Most cached texts of all tenants that are stored or read at the same time.
    pub cache_turns: usize,
    /// Interval between runs of partition upkeep and retention.
    pub retention_interval: Duration,
    /// Most tenants reloaded at the same time.
    pub reloads_max: usize,
    /// Embeddings service for searches; `None` without one.
    pub embeddings: Option<EmbeddingsOptions>,
    /// Settings of logins.
    pub logins: LoginOptions,
    /// Settings of the gateway's logins at servers.
    pub server_logins: ServerLoginOptions,
    /// Trace exporter; `None` without tracing.
    pub tracer: Option<Arc<Tracer>>,
    /// Settings that the program takes again while it runs.
    pub live_settings: Arc<dyn LiveSettings>,
}

/// Settings that the program takes again while it runs, as whoever read them keeps them.
pub trait LiveSettings: fmt::Debug + Send + Sync {
    /// Reads the settings again, and puts those into force that may change while the gateway runs. Blocks the thread.
    ///
    /// # Errors
    /// Sentences that say why nothing has changed, and what to do. They repeat no value.
    fn reread(&self) -> Result<Reread, String>;
}

/// Outcome of reading the settings again.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reread {
    /// Names of the settings that have another value in force now.
    pub changed: Vec<String>,
    /// Names of the settings that were given another value, which only a restart takes.
    pub needs_restart: Vec<String>,
}

/// Limits of the activity log.
#[derive(Clone, Debug)]
pub struct ActivityLimits {
    /// Most attempts unfinished or unwritten at once, over all tenants.
    pub queue: usize,
    /// Most memory of their records, in bytes.
    pub queue_bytes: usize,
    /// Bytes charged for an attempt whose record is not complete yet.
    pub attempt_bytes: usize,
    /// Most records per batch.
    pub batch: usize,
    /// Longest time that ends are gathered before they are written.
    pub flush: Duration,
    /// Longest wait for the commit of a record.
    pub commit_timeout: Duration,
}

/// Settings of logins.
#[derive(Clone, Debug)]
pub struct LoginOptions {
    /// URL under which clients reach the gateway; `None` if it is not configured.
    pub public_url: Option<PublicUrl>,
    /// Tolerated difference of clocks, in seconds.
    pub leeway_s: i64,
    /// True if scopes of a token refuse what they do not allow, so that clients ask for more; false if they hide it.
    pub step_up: bool,
    /// Longest lifetime of a token, in seconds.
    pub lifetime_max_s: i64,
    /// Interval between fetches of an issuer's keys.
    pub refresh: Duration,
    /// Shortest interval between fetches that unknown keys cause, and between a failed fetch and the next.
    pub retry: Duration,
    /// Age from which keys are not used any more.
    pub stale_max: Duration,
    /// Largest token, in bytes.
    pub token_bytes_max: usize,
    /// Most verified tokens that are remembered.
    pub tokens_max: usize,
    /// Hosts that requests may name; `*` is any.
    pub allowed_hosts: Vec<String>,
    /// Login by browser; `None` if no issuer offers it.
    pub browser: Option<BrowserLoginOptions>,
}

/// Settings of logins at servers.
#[derive(Clone, Debug)]
pub struct ServerLoginOptions {
    /// Time limit of a request to a token endpoint.
    pub timeout: Duration,
    /// Time for which one replica alone asks a token endpoint.
    pub lease: Duration,
    /// Time for which a login that was begun can be completed.
    pub keep: Duration,
    /// URL of the metadata that is the gateway's client id at authorization servers; `None` for its own, one for each login.
    pub metadata_url: Option<String>,
}

/// Login by browser at an identity provider. `Debug` shows no secret.
#[derive(Clone)]
pub struct BrowserLoginOptions {
    /// Name of the issuer.
    pub issuer: String,
    /// Client id of the gateway at the provider.
    pub client_id: String,
    /// Client secret at the provider; `None` for a public client.
    pub client_secret: Option<Zeroizing<String>>,
    /// URL of the gateway as clients reach it.
    pub public_url: PublicUrl,
    /// Time limit of a request to the provider.
    pub timeout: Duration,
    /// Time for which a login that was begun can be completed.
    pub keep: Duration,
    /// Keys that seal logins under way; the first seals, all open.
    pub keys: Arc<[Key]>,
}

impl fmt::Debug for BrowserLoginOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BrowserLoginOptions").field("issuer", &self.issuer).finish_non_exhaustive()
    }
}

/// Configuration of the embeddings service.
#[derive(Clone, Debug)]
pub struct EmbeddingsOptions {
    /// Address, key and model of the service.
    pub embedder: EmbedderOptions,
    /// Longest wait of a search for the vector of its query.
    pub wait: Duration,
    /// Most definitions in one request.
    pub batch: usize,
}

impl EmbeddingsOptions {
    /// Returns the name of the vector space: the model, and the version of the texts made for it. Only vectors of one
    /// space can be compared.
    pub(in crate::gateway) fn space(&self) -> String {
        format!("{}#{TEXT_VERSION}", self.embedder.model)
    }
}
