//! Dependencies of use cases for tests: the database is never reached, and no time of the deployment passes.

use std::sync::Arc;
use std::time::Duration;

use uuid::Uuid;

use super::{
    ActivityLimits, Ground, LiveSettings, LoginOptions, Options, Reread, Rounds, ServerLoginOptions,
};
use crate::domain::bootstrap::BootstrapKey;
use crate::domain::id::ReplicaId;
use crate::domain::quota::Quotas;
use crate::domain::seal::{Key, Keyring};
use crate::domain::settings::Defaults;
use crate::store::{AskLimits, CacheQuota, Store, StoreOptions};
use crate::upstream::{BreakerRules, Egress, Limits, MemoryLimits, Pool, StdioRules};

const SECOND: Duration = Duration::from_secs(1);

/// Settings that are never read again.
#[derive(Debug)]
struct Unread;

impl LiveSettings for Unread {
    fn reread(&self) -> Result<Reread, String> {
        Ok(Reread::default())
    }
}

/// Limits towards an upstream, the least of each.
pub(super) fn limits() -> Limits {
    Limits {
        concurrency: 1,
        queue: 1,
        queue_wait: SECOND,
        breaker: BreakerRules { failures_max: 1, rest_min: SECOND, rest_max: SECOND },
        connections: 1,
        connect_timeout: SECOND,
        call_timeout: SECOND,
        listing_timeout: SECOND,
        idle_timeout: SECOND,
        response_bytes_max: 1,
    }
}

impl Ground {
    /// Returns the dependencies, with a database that nobody reaches.
    pub(super) fn example() -> Ground {
        let url = "postgres://nobody@127.0.0.1:1/none".to_owned();
        let store = StoreOptions {
            direct_url: url.clone(),
            url,
            statement_cache: 1,
            commit_connections: 1,
            control_connections: 1,
            report_connections: 1,
            commit_max: SECOND,
        };
        let upstreams = Pool::new(Arc::new(Egress::new(Vec::new(), Vec::new())), None);
        Ground {
            store: Store::new(&store).unwrap(),
            upstreams: Arc::new(upstreams),
            options: Arc::new(Options::example()),
            life: Arc::default(),
        }
    }
}

impl Options {
    /// Returns options of a small deployment.
    fn example() -> Options {
        let key = || Key::new([1; 32]);
        Options {
            replica: ReplicaId(Uuid::from_u128(1)),
            defaults: Defaults::example(),
            policy: Arc::default(),
            keyring: Arc::new(Keyring::new([key()]).unwrap()),
            rounds: Arc::new(Rounds::new([&b"secret"[..]])),
            consent_keys: [key()].into(),
            reply_keys: [key()].into(),
            consent_hold: SECOND,
            consent: AskLimits { per_minute: 1, pending: 1 },
            bootstrap: BootstrapKey::new("bootstrap", None),
            stale_max: SECOND,
            commands: Arc::default(),
            stdio: StdioRules {
                idle: SECOND,
                start_timeout: SECOND,
                running_max: 1,
                running_per_tenant_max: 1,
                warden: None,
                confinement: None,
            },
            upstream: limits(),
            memory: MemoryLimits::default(),
            lists_bytes_max: 1,
            schemas_bytes_max: 1,
            relist_interval: SECOND,
            page_refresh: SECOND,
            relist_announced_interval: SECOND,
            upstream_streams_max: 1,
            relist_pause_max: SECOND,
            relist_places: 1,
            connected_for: SECOND,
            pages_connected_for: SECOND,
            preview_bytes: 1,
            activity: ActivityLimits {
                queue: 1,
                queue_bytes: 1,
                attempt_bytes: 1,
                batch: 1,
                flush: SECOND,
                commit_timeout: SECOND,
            },
            tenants_max: 1,
            quotas: Quotas { servers: 1, tools: 1, definition_bytes: 1, keys: 1, streams: 1 },
            tools_max: 1,
            key_lookups_max: 1,
            reports_per_tenant: 1,
            cache_quota: CacheQuota { bytes: 1, entries: 1 },
            cache_turns: 1,
            retention_interval: SECOND,
            reloads_max: 1,
            embeddings: None,
            logins: LoginOptions {
                public_url: None,
                leeway_s: 60,
                step_up: false,
                lifetime_max_s: 86_400,
                refresh: SECOND,
                retry: SECOND,
                stale_max: SECOND,
                token_bytes_max: 16_384,
                tokens_max: 100,
                allowed_hosts: Vec::new(),
                browser: None,
            },
            server_logins: ServerLoginOptions {
                timeout: SECOND,
                lease: SECOND,
                keep: SECOND,
                metadata_url: None,
            },
            tracer: None,
            live_settings: Arc::new(Unread),
        }
    }
}
