//! `mcpproxy serve` and `mcpproxy migrate`.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, anyhow};
use tokio::net::TcpListener;
use tokio::signal::unix::Signal;
use tokio_util::sync::CancellationToken;
use zeroize::Zeroizing;

use super::config::{self, Config, Database, DatabaseLocation, Host, MigrationConfig, named_key};
use super::lifecycle::{Leave, hangups, leave_when_stopped, reload_on_hangup, stop_on_signals};
use super::listeners::BoundSockets;
use super::live_settings::{self, SettingsInForce};
use super::local_postgres::LocalPostgres;
use super::telemetry::{self, LogDirectives, Metrics, Traces};
use super::{memory_budget, open_files, own_memory, threads};
use crate::domain::bootstrap::BootstrapKey;
use crate::domain::id::ReplicaId;
use crate::domain::identity::PublicUrl;
use crate::domain::quota::Quotas;
use crate::domain::seal::{Key, Keyring};
use crate::faces::cli::{FoundSetting, FoundSettings};
use crate::faces::connections::{ConnectionRules, Connections};
use crate::faces::{FaceOptions, Faces, admin, http, mcp, rest, sse};
use crate::gateway::{
    ActivityLimits, BrowserLoginOptions, CLIENT_METADATA_PATH, EmbeddingsOptions, Gateway, LoginOptions,
    MemoryLimits, Options, Rounds, ServerLoginOptions,
};
use crate::store::{self, AskLimits, CacheQuota, Store, StoreOptions};
use crate::upstream::{
    BreakerRules, Confinement, Deny, Egress, EmbedderOptions, Limits, StdioRules, become_confined,
    can_confine, native_tls,
};

/// Hidden command with which this program ends the programs of a gateway that was killed.
pub const STDIO_WARDEN: &str = "stdio-warden";
/// Hidden command with which this program becomes that of a stdio server, without access to the gateway's files.
pub const STDIO_PROGRAM: &str = "stdio-program";

/// Serves until SIGTERM or SIGINT.
///
/// # Errors
/// The configuration cannot be used, or the gateway cannot start: threads, database, schema, master keys, listeners.
/// [`super::exit::code`] tells whether another start may help.
pub fn serve(config_file: Option<&Path>) -> anyhow::Result<()> {
    own_memory::close().context("the environment of this process cannot be closed to others")?;
    let mut config = Config::load_from_process(config_file)?;
    config.limits.memory_bytes_max = memory_budget::resolve(config.limits.memory_bytes_max)?;
    let log_filter = telemetry::start(&config.telemetry);
    open_files::raise(&config.limits);
    let runtime = threads::start(config.server.workers).context("the threads could not be started")?;
    let served = runtime.block_on(serve_with(&config, &log_filter));
    // a name that is looked up in vain must not keep the process from its end
    runtime.shutdown_background();
    served
}

/// Serves with this configuration until SIGTERM or SIGINT.
async fn serve_with(config: &Config, log_filter: &LogDirectives) -> anyhow::Result<()> {
    let (stop, hangups) = (stop_on_signals()?, hangups()?);
    // before a private database is made, which would be left behind
    let sockets = BoundSockets::bind(&config.server)?;
    let (options, local) = database(&config.database, &config.limits, &config.host).await?;
    if let Some(file) = &config.bootstrap_key_file {
        tracing::info!("the bootstrap key, which is the platform's, is in {}", file.display());
    }
    let place = (sockets, (&options, local.is_some()));
    let served = serve_on(config, place, (stop, hangups), log_filter).await;
    if let Some(local) = local {
        local.stop().await;
    }
    served
}

/// Ends the programs of a gateway that was killed. Returns when there is nothing to do.
pub fn stdio_warden() {
    crate::upstream::run_warden();
}

/// Becomes the program of a stdio server that must not reach these folders. Returns only if that fails, with the
/// reason.
pub fn stdio_program(hidden: &[PathBuf], argv: &[OsString]) -> String {
    become_confined(hidden, argv)
}

/// Returns how programs are kept from the files of a private database and its secrets. `None` if there are none, if it
/// is switched off, or if the system cannot do it.
fn confinement(config: &Config) -> Option<Confinement> {
    let DatabaseLocation::Private { data_dir } = &config.database.location else { return None };
    // also without a program: one may come while the gateway runs
    if !config.stdio_enabled || !config.stdio_hide_data_dir {
        return None;
    }
    if !can_confine() {
        tracing::warn!(
            "programs of stdio servers can read the secrets in {}: this system has no Landlock; run the gateway with \
             database.url and secrets from the environment, or run only programs that may read them",
            data_dir.display()
        );
        return None;
    }
    // the cluster may be elsewhere, behind a link
    let folders = [data_dir.clone(), data_dir.join("postgres")];
    let hidden = folders.iter().filter_map(|folder| std::fs::canonicalize(folder).ok()).collect();
    let helper = std::env::current_exe().ok()?;
    Some(Confinement { helper: (helper, STDIO_PROGRAM.to_owned()), hidden })
}

/// Applies the migrations of this version to the configured database.
///
/// # Errors
/// The configuration cannot be used, the migration fails, or a signal stops it.
pub async fn migrate(config_file: Option<&Path>) -> anyhow::Result<()> {
    let config = MigrationConfig::load_from_process(config_file)?;
    drop(telemetry::start(&config.telemetry));
    let stop = stop_on_signals()?;
    let (options, local) = database(&config.database, &config.limits, &config.host).await?;
    // an interrupted migration is repeated the next time: each file is a transaction
    let migrated = tokio::select! {
        migrated = store::migrate(&options) => migrated.map_err(anyhow::Error::from),
        () = stop.cancelled() => Err(anyhow!("told to stop before the database was migrated")),
    };
    if let Some(local) = local {
        local.stop().await;
    }
    match migrated? {
        0 => tracing::info!("no files to apply: the database is at this version's schema"),
        applied => tracing::info!(applied, "migrated: the database is at this version's schema"),
    }
    Ok(())
}

/// Returns the configuration as `serve` would read it, without any effect.
///
/// # Errors
/// The configuration cannot be used ([`config::ConfigError`]).
pub fn find_config(file: Option<&Path>) -> anyhow::Result<FoundSettings> {
    let review = config::Review::load_from_process(file)?;
    let mut notes = vec![match &review.location {
        DatabaseLocation::Url { .. } => "The database is the one of database.url.".to_owned(),
        DatabaseLocation::Private { data_dir } => {
            format!("The database is a private one in {}.", data_dir.display())
        }
    }];
    if !review.to_generate.is_empty() {
        notes.push(format!("The first start generates {}.", review.to_generate.join(", ")));
    }
    let settings = review.settings.into_iter().map(|setting| FoundSetting {
        is_default: setting.is_default(),
        name: setting.name,
        value: setting.value,
        origin: setting.origin,
    });
    Ok(FoundSettings { settings: settings.collect(), notes })
}

/// Returns how to connect to the database; starts the private one if no URL is configured.
async fn database(
    database: &Database,
    limits: &config::LimitSettings,
    host: &Host,
) -> anyhow::Result<(StoreOptions, Option<LocalPostgres>)> {
    let options = |url: &str, direct_url: &str| StoreOptions {
        url: url.to_owned(),
        direct_url: direct_url.to_owned(),
        statement_cache: database.statement_cache,
        commit_connections: limits.database_pool_commit,
        control_connections: limits.database_pool_control,
        report_connections: limits.database_pool_report,
        commit_max: limits.record_commit_timeout,
    };
    match &database.location {
        DatabaseLocation::Url { url, direct_url } => Ok((options(url.expose(), direct_url.expose()), None)),
        DatabaseLocation::Private { data_dir } => {
            let local = LocalPostgres::start(data_dir, host).await?;
            tracing::info!(data_dir = %data_dir.display(), "using a private Postgres");
            Ok((options(local.url(), local.url()), Some(local)))
        }
    }
}

async fn serve_on(
    config: &Config,
    (sockets, (database, is_private)): (BoundSockets, (&StoreOptions, bool)),
    (stop, hangups): (CancellationToken, Signal),
    log_filter: &LogDirectives,
) -> anyhow::Result<()> {
    if is_private {
        store::migrate(database).await.context("the private database could not be migrated")?;
    }
    let store = Store::new(database)?;
    store.check_connection().await?;
    store.check_statements().await?;
    store.check_schema().await?;
    let egress = egress(config)?;
    egress.look_up_own().await;
    let tls = match native_tls() {
        Ok(tls) => Some(tls),
        Err(error) => {
            tracing::warn!(%error, "no trusted root certificates: https upstreams cannot be reached");
            None
        }
    };
    let keys = config.master_keys.iter().map(|key| Key::new(*key.expose()));
    let keyring = Keyring::new(keys).context("secrets.master_key is empty")?;
    let replica = ReplicaId(uuid::Uuid::now_v7());
    let traces = Traces::start(&config.telemetry, replica)?;
    let tracer = traces.as_ref().map(Traces::tracer);
    let options = Options { tracer, ..gateway_options(config, replica, keyring, (log_filter, &egress)) };
    let gateway = Gateway::new(store, Arc::clone(&egress), tls, options).map(Arc::new);
    let gateway = gateway.context("search.embeddings_url cannot be used")?;
    gateway.servers.settle_master_keys().await?;
    let (listener, admin) = sockets.listen()?;
    gateway.upkeep.start().await.context("the gateway could not register with its database")?;
    reload_on_hangup(&gateway, hangups);
    let log = gateway.upkeep.run_log();
    tokio::spawn(egress.keep_own_known(stop.clone()));
    let address = listener.local_addr()?;
    let faces = faces(config, &gateway);
    let admin_stop = CancellationToken::new();
    let age_max = config.limits.metrics_age_max;
    let scraped =
        admin.map(|listener| tokio::spawn(serve_metrics((listener, age_max), &faces, admin_stop.clone())));
    tracing::info!(version = env!("CARGO_PKG_VERSION"), replica = %gateway.options.replica, "listening on http://{address}");
    if config.direct.enabled {
        tracing::info!("/mcp/direct is open to keys whose setting direct_endpoint is on");
    }
    let leave = Leave { delay: config.limits.drain_delay, drain: config.limits.drain };
    let closing = leave_when_stopped(Arc::clone(&gateway), stop, leave);
    // one deadline for connections and calls: together they must fit into the grace period of Kubernetes
    let deadline = http::serve(listener, faces, closing, config.limits.drain).await;
    gateway.upkeep.finish(deadline, log).await;
    if let Some(traces) = traces {
        traces.stop(deadline).await;
    }
    // last, so that the end of the calls under way can still be scraped
    admin_stop.cancel();
    if let Some(scraped) = scraped {
        drop(scraped.await);
    }
    tracing::info!("stopped");
    Ok(())
}

/// Serves metrics until `stop`; a page is reused for `age_max`.
fn serve_metrics(
    (listener, age_max): (TcpListener, Duration),
    faces: &Arc<Faces>,
    stop: CancellationToken,
) -> impl Future<Output = ()> + use<> {
    admin::serve(listener, Arc::clone(faces), (Metrics::of(faces).into_scrape(), age_max), stop)
}

/// Returns the guard of upstream connections. It also refuses the deployment's own addresses: database and listeners.
fn egress(config: &Config) -> anyhow::Result<Arc<Egress>> {
    let mut deny = vec![Deny::Socket(config.server.listen)];
    deny.extend(config.server.admin_listen.map(Deny::Socket));
    let mut hosts = Vec::new();
    if let DatabaseLocation::Url { url, direct_url } = &config.database.location {
        for url in [url, direct_url] {
            hosts.extend(store::database_host(url.expose())?);
        }
    }
    hosts.dedup();
    Ok(Arc::new(Egress::new(config.egress_allow.clone(), deny).with_own_hosts(hosts)))
}

/// Bytes that are counted for a record's texts beside the two previews.
const RECORD_BYTES: usize = 2048;
/// Purpose label for deriving the keys of digests of calls from the shared secrets.
const CONSENT_PURPOSE: &[u8] = b"mcpproxy permission requests v1";
/// Purpose label for deriving the keys that seal ids of requests to clients.
const REPLY_PURPOSE: &[u8] = b"mcpproxy requests to clients v1";
/// Purpose label for deriving the keys that seal logins by browser.
const LOGIN_PURPOSE: &[u8] = b"mcpproxy logins by browser v1";

/// Returns the keys for one purpose, one of each shared secret.
fn derived(config: &Config, purpose: &[u8]) -> Arc<[Key]> {
    config.session_keys.iter().map(|key| Key::of_secret(key.expose().as_bytes(), purpose)).collect()
}

fn bootstrap_key(config: &Config) -> BootstrapKey {
    let text = config.bootstrap_key.expose();
    BootstrapKey::new(text, named_key(text))
}

fn gateway_options(
    config: &Config,
    replica: ReplicaId,
    keyring: Keyring,
    (log_filter, egress): (&LogDirectives, &Arc<Egress>),
) -> Options {
    let limits = &config.limits;
    let commands = live_settings::commands(config);
    let live_settings = Arc::new(SettingsInForce::new(config, log_filter, &commands, egress));
    let bound = |n: usize| i64::try_from(n).unwrap_or(i64::MAX);
    Options {
        replica,
        defaults: config.defaults.clone(),
        policy: Arc::clone(&config.policy),
        keyring: Arc::new(keyring),
        rounds: Arc::new(Rounds::new(config.session_keys.iter().map(|key| key.expose().as_bytes()))),
        consent_keys: derived(config, CONSENT_PURPOSE),
        reply_keys: derived(config, REPLY_PURPOSE),
        consent_hold: limits.consent_hold,
        consent: AskLimits {
            per_minute: limits.consent_asks_per_minute.into(),
            pending: limits.consent_pending_per_key.into(),
        },
        bootstrap: bootstrap_key(config),
        stale_max: config.stale_max,
        commands,
        stdio: StdioRules {
            idle: limits.stdio_idle,
            start_timeout: limits.stdio_start_timeout,
            running_max: limits.stdio_running_max,
            running_per_tenant_max: limits.stdio_running_per_tenant_max,
            warden: std::env::current_exe().ok().map(|program| (program, STDIO_WARDEN.to_owned())),
            confinement: confinement(config),
        },
        upstream: Limits {
            concurrency: limits.upstream_concurrency,
            queue: limits.upstream_queue,
            queue_wait: limits.upstream_queue_wait,
            breaker: BreakerRules {
                failures_max: limits.upstream_failures_max,
                rest_min: limits.upstream_rest_min,
                rest_max: limits.upstream_rest_max,
            },
            connections: limits.upstream_connections,
            connect_timeout: limits.connect_timeout,
            call_timeout: limits.call_timeout,
            listing_timeout: limits.listing_timeout,
            idle_timeout: limits.upstream_idle,
            response_bytes_max: limits.response_bytes_max,
        },
        memory: MemoryLimits {
            replica_bytes_max: limits.memory_bytes_max,
            tenant_bytes_max: limits.tenant_answers_bytes_max,
        },
        lists_bytes_max: limits.list_cache_bytes_max,
        schemas_bytes_max: limits.schema_cache_bytes_max,
        relist_interval: limits.relist_interval,
        relist_announced_interval: limits.relist_announced_interval,
        page_refresh: limits.page_refresh,
        upstream_streams_max: limits.upstream_streams_max,
        relist_pause_max: limits.relist_pause_max,
        relist_places: limits.relist_concurrency,
        // a server that is listed more rarely must not expire between two listings
        connected_for: limits.connected.max(limits.relist_interval * 2),
        pages_connected_for: limits.connected.max(limits.page_refresh * 2),
        preview_bytes: config.activity.preview_bytes,
        activity: ActivityLimits {
            queue: limits.activity_queue,
            queue_bytes: limits.activity_queue_bytes,
            attempt_bytes: 2 * config.activity.preview_bytes + RECORD_BYTES,
            batch: limits.activity_batch,
            flush: limits.activity_flush,
            commit_timeout: limits.record_commit_timeout,
        },
        tenants_max: bound(limits.tenants_max),
        quotas: Quotas {
            servers: bound(limits.servers_per_tenant_max),
            tools: bound(limits.tools_per_tenant_max),
            definition_bytes: bound(limits.definition_bytes_per_tenant_max),
            keys: bound(limits.keys_per_tenant_max),
            streams: bound(limits.streams_per_tenant_max),
        },
        tools_max: limits.tools_per_server_max,
        key_lookups_max: limits.key_lookup_concurrency,
        reports_per_tenant: limits.reports_per_tenant,
        cache_quota: CacheQuota {
            bytes: bound(limits.tenant_cache_bytes_max),
            entries: bound(limits.tenant_cache_entries_max),
        },
        // the other half is for reports
        cache_turns: (limits.database_pool_report / 2) as usize,
        retention_interval: limits.retention_interval,
        reloads_max: limits.reload_concurrency,
        embeddings: config.embeddings.as_ref().map(|service| embeddings(service, limits)),
        logins: LoginOptions {
            public_url: config.server.public_url.as_deref().map(PublicUrl::new),
            leeway_s: seconds(config.identity.leeway),
            step_up: config.identity.step_up,
            lifetime_max_s: seconds(config.identity.token_lifetime_max),
            refresh: config.identity.jwks_refresh,
            retry: config.identity.jwks_retry,
            stale_max: config.identity.jwks_stale_max,
            token_bytes_max: limits.token_bytes_max,
            tokens_max: limits.token_cache,
            allowed_hosts: config.server.allowed_hosts.clone(),
            browser: browser_logins(config),
        },
        server_logins: ServerLoginOptions {
            timeout: config.oauth.timeout,
            // a lease that ends during its request would let another replica ask as well
            lease: config.oauth.refresh_lease.max(config.oauth.timeout),
            keep: config.oauth.connect_ttl,
            metadata_url: config.oauth.client_metadata_url.clone(),
        },
        tracer: None,
        live_settings,
    }
}

/// Returns the settings of logins by browser; `None` if no issuer offers them.
fn browser_logins(config: &Config) -> Option<BrowserLoginOptions> {
    let issuer = config.console.issuer.clone().filter(|_| config.console.enabled)?;
    let public_url = PublicUrl::new(config.server.public_url.as_deref()?);
    let own = || format!("{}{CLIENT_METADATA_PATH}", public_url.as_str());
    let named = config.console.client_id.clone().or_else(|| config.oauth.client_metadata_url.clone());
    let secret = config.console.client_secret.as_ref();
    Some(BrowserLoginOptions {
        issuer,
        client_id: named.unwrap_or_else(own),
        client_secret: secret.map(|secret| Zeroizing::new(secret.expose().to_owned())),
        timeout: config.oauth.timeout,
        keep: config.oauth.connect_ttl,
        keys: derived(config, LOGIN_PURPOSE),
        public_url,
    })
}

fn seconds(duration: Duration) -> i64 {
    i64::try_from(duration.as_secs()).unwrap_or(i64::MAX)
}

fn embeddings(service: &config::EmbeddingsSettings, limits: &config::LimitSettings) -> EmbeddingsOptions {
    EmbeddingsOptions {
        embedder: EmbedderOptions {
            url: service.url.clone(),
            model: service.model.clone(),
            api_key: service.api_key.as_ref().map(|key| key.expose().to_owned()),
            connect_timeout: limits.connect_timeout,
            timeout: service.timeout,
        },
        wait: service.wait,
        batch: service.batch,
    }
}

fn faces(config: &Config, gateway: &Arc<Gateway>) -> Arc<Faces> {
    let keys: Vec<Vec<u8>> = config.session_keys.iter().map(|key| key.expose().as_bytes().to_vec()).collect();
    Arc::new(Faces {
        gateway: Arc::clone(gateway),
        places: rest::Places::new(keys.iter().map(Vec::as_slice)),
        sessions: mcp::Sessions::new(keys),
        streams: sse::Streams::default(),
        measures: Default::default(),
        connections: Connections::new(ConnectionRules {
            max: config.limits.connections_max,
            per_address_max: config.limits.connections_per_address_max,
            trusted_proxies: config.server.trusted_proxies.clone(),
        }),
        options: FaceOptions {
            allowed_hosts: config.server.allowed_hosts.clone(),
            allowed_origins: config.server.allowed_origins.clone(),
            request_bytes_max: config.limits.request_bytes_max,
            streams_per_key_max: config.limits.streams_per_key_max,
            header_read_timeout: config.limits.header_read_timeout,
            token_bytes_max: config.limits.token_bytes_max,
            direct_enabled: config.direct.enabled,
            console_enabled: config.console.enabled,
        },
    })
}
