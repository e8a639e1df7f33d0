//! Typed sections of the configuration. A duration has the name of its setting without the unit.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use ipnet::IpNet;
use serde::Deserialize;

use super::environment::Ambient;
use super::error::ConfigError;
use super::fields::{optional, zero_is_none};
use super::secret::Secret;
use crate::domain::annotations::Unannotated;
use crate::domain::intent::IntentMode;
use crate::domain::operation::OperationType;
use crate::domain::policy::PolicyMode;
use crate::domain::reason::Language;
use crate::domain::settings::{Defaults, ToolNames};

/// Settings of the listeners.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ServerSettings {
    /// Address that clients connect to; port 0 takes any free port.
    pub listen: SocketAddr,
    /// Address of `/metrics`; `None` for no such listener.
    #[serde(deserialize_with = "optional")]
    pub admin_listen: Option<SocketAddr>,
    /// Accepted `Host` headers: `name` (any port), `name:port`, or `*`.
    pub allowed_hosts: Vec<String>,
    /// Accepted `Origin` headers, or `*`.
    pub allowed_origins: Vec<String>,
    /// Networks of the proxies in front of the gateway; empty: none is trusted.
    pub trusted_proxies: Vec<IpNet>,
    /// URL under which clients reach the gateway; `None` if it is not set.
    #[serde(deserialize_with = "optional")]
    pub public_url: Option<String>,
    /// Number of threads that serve, 0 to 256. 0 stands for one for each processor that the process may use, at most 16.
    pub workers: usize,
}

/// Settings of logins with an identity provider.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct IdentitySettings {
    /// Tolerated difference of clocks.
    pub leeway: Duration,
    /// True if clients are told which scope a refused operation needs; false if tools beyond the token's scopes are hidden.
    pub step_up: bool,
    /// Longest lifetime of a token.
    pub token_lifetime_max: Duration,
    /// Interval between fetches of an identity provider's keys.
    pub jwks_refresh: Duration,
    /// Shortest interval between fetches because of unknown keys, and from a failed fetch to the next.
    pub jwks_retry: Duration,
    /// Age from which keys are not used any more.
    pub jwks_stale_max: Duration,
}

/// Settings of the console.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ConsoleSettings {
    /// True if the console is served.
    pub enabled: bool,
    /// Name of the issuer whose login the console offers; `None` for none.
    #[serde(deserialize_with = "optional")]
    pub issuer: Option<String>,
    /// Client id of the gateway at that provider; `None` for the URL of its own metadata.
    #[serde(deserialize_with = "optional")]
    pub client_id: Option<String>,
    /// Client secret at that provider; `None` for a public client.
    #[serde(deserialize_with = "optional")]
    pub client_secret: Option<Secret>,
}

/// Settings of logins by browser.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OauthSettings {
    /// URL of the metadata that is the gateway's client id; `None` for its own.
    #[serde(deserialize_with = "optional")]
    pub client_metadata_url: Option<String>,
    /// Timeout of a request to a provider.
    pub timeout: Duration,
    /// Time for which one replica alone asks a provider for a server's token.
    pub refresh_lease: Duration,
    /// Time for which a login that was begun can be completed.
    pub connect_ttl: Duration,
}

/// Location of the database, and how to connect to it.
#[derive(Clone, Debug)]
pub struct Database {
    /// The operator's PostgreSQL, or a private one.
    pub location: DatabaseLocation,
    /// Most prepared statements kept per connection; 0 for none.
    pub statement_cache: usize,
}

/// Location of the database.
#[derive(Clone, Debug)]
pub enum DatabaseLocation {
    /// A database of the operator.
    Url {
        /// Database URL; may lead through a pooler.
        url: Secret,
        /// Database URL without a pooler, for LISTEN, migrations and locks; `url` if not set.
        direct_url: Secret,
    },
    /// A private database, started and stopped with the program.
    Private {
        /// Absolute path of the data directory.
        data_dir: PathBuf,
    },
}

/// Settings of `/mcp/direct`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Direct {
    /// Master switch; each key or tenant needs its own setting as well.
    pub enabled: bool,
}

/// Settings of the activity log.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Activity {
    /// Days after which records are dropped.
    pub retention_days: u32,
    /// Bytes kept of a call's arguments, and again of its response.
    pub preview_bytes: usize,
}

/// Fields of the section `defaults`, for reading it into the domain's type.
#[derive(Deserialize)]
#[serde(remote = "Defaults", deny_unknown_fields)]
pub(super) struct DefaultsSection {
    strict_server_validation: bool,
    intent_declaration: IntentMode,
    unannotated_tools: Unannotated,
    max_operation: OperationType,
    allowed_tools: Vec<String>,
    direct_endpoint: bool,
    tool_names: ToolNames,
    #[serde(deserialize_with = "zero_is_none")]
    rate_limit: Option<u32>,
    response_limit: u32,
    policy_mode: PolicyMode,
    in_band_answers: bool,
    host_prompts: Vec<OperationType>,
    locale: Language,
    /// Taken from `activity.retention_days`.
    #[serde(skip)]
    activity_retention_days: u32,
}

/// Settings of logs, traces and metrics.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Telemetry {
    /// Format of log lines.
    pub log_format: LogFormat,
    /// Filter directives of the log.
    pub log_filter: String,
    /// URL of the trace collector; `None` for no traces.
    #[serde(deserialize_with = "optional")]
    pub otlp_endpoint: Option<String>,
    /// Protocol to the trace collector.
    pub otlp_protocol: OtlpProtocol,
    /// Share of requests that are traced, 0.0 to 1.0, where the caller has made no decision.
    pub sample_ratio: f64,
    /// Name of the service in telemetry.
    pub service_name: String,
}

/// Format of log lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LogFormat {
    /// Text for people.
    Text,
    /// JSON for collectors, one object per line.
    Json,
}

/// Protocol to the trace collector.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
pub enum OtlpProtocol {
    /// Protobuf over HTTP.
    #[serde(rename = "http/protobuf")]
    HttpProtobuf,
    /// gRPC.
    #[serde(rename = "grpc")]
    Grpc,
}

/// Limits that an operator may change. All are at least 1 unless they say otherwise; `default.toml` has their defaults.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LimitSettings {
    /// Most bytes of a client's request.
    pub request_bytes_max: usize,
    /// Most bytes of an upstream's answer.
    pub response_bytes_max: usize,
    /// Most bytes that requests and answers of all tenants may hold in memory. 0 is 60 % of the memory limit of the
    /// process's control group, or of 1 GiB where there is none.
    pub memory_bytes_max: usize,
    /// Most bytes that requests and answers of one tenant may hold in memory.
    pub tenant_answers_bytes_max: usize,
    /// Most bytes of finished lists of `/mcp/direct` that are kept.
    pub list_cache_bytes_max: usize,
    /// Most bytes of compiled input schemas that are kept.
    pub schema_cache_bytes_max: usize,
    /// Most sealed bytes that are kept of one tenant's cut results.
    pub tenant_cache_bytes_max: usize,
    /// Most texts that are kept of one tenant's cut results.
    pub tenant_cache_entries_max: usize,
    /// Timeout of one call at its upstream.
    pub call_timeout: Duration,
    /// Timeout for connecting to an upstream.
    pub connect_timeout: Duration,
    /// Most concurrent calls per upstream server.
    pub upstream_concurrency: usize,
    /// Most calls that wait in the queue of an upstream server.
    pub upstream_queue: usize,
    /// Longest wait of a call in the queue of its upstream server.
    pub upstream_queue_wait: Duration,
    /// Number of failures in a row that opens the circuit breaker of an upstream.
    pub upstream_failures_max: u32,
    /// First duration for which the circuit breaker stays open.
    pub upstream_rest_min: Duration,
    /// Longest duration for which the circuit breaker stays open; not below the first.
    pub upstream_rest_max: Duration,
    /// Most connections per upstream server.
    pub upstream_connections: usize,
    /// Idle time after which an upstream connection is closed.
    pub upstream_idle: Duration,
    /// Idle time after which the program of a stdio server is ended.
    pub stdio_idle: Duration,
    /// Timeout for the start of a program.
    pub stdio_start_timeout: Duration,
    /// Most programs that run on one replica.
    pub stdio_running_max: usize,
    /// Most programs of one tenant that run on one replica.
    pub stdio_running_per_tenant_max: usize,
    /// Most client connections at the same time.
    pub connections_max: usize,
    /// Most client connections of one address on which no valid key has been presented yet.
    pub connections_per_address_max: usize,
    /// Timeout for a client to send its headers.
    pub header_read_timeout: Duration,
    /// Most activity records that wait to be written.
    pub activity_queue: usize,
    /// Most bytes of memory that waiting activity records may take.
    pub activity_queue_bytes: usize,
    /// Most activity records in one batch; not above `activity_queue`.
    pub activity_batch: usize,
    /// Time after which an unfilled batch is written.
    pub activity_flush: Duration,
    /// Longest wait of a call for its record to be committed.
    pub record_commit_timeout: Duration,
    /// Interval between listings of an upstream that does not announce changes.
    pub relist_interval: Duration,
    /// Interval between listings of an upstream that does announce changes.
    pub relist_announced_interval: Duration,
    /// Interval between fetches of web pages.
    pub page_refresh: Duration,
    /// Most upstreams that one replica waits on for announcements.
    pub upstream_streams_max: usize,
    /// Longest backoff between listings of an upstream that fails.
    pub relist_pause_max: Duration,
    /// Most upstreams that are listed again at the same time.
    pub relist_concurrency: usize,
    /// Time after its last sign of life for which an upstream counts as connected.
    pub connected: Duration,
    /// Timeout of one listing of an upstream.
    pub listing_timeout: Duration,
    /// Most tools of one upstream server.
    pub tools_per_server_max: usize,
    /// Most upstream servers of one tenant.
    pub servers_per_tenant_max: usize,
    /// Most tools of all servers of one tenant.
    pub tools_per_tenant_max: usize,
    /// Most bytes of all definitions of one tenant.
    pub definition_bytes_per_tenant_max: usize,
    /// Most API keys of one tenant.
    pub keys_per_tenant_max: usize,
    /// Most tenants.
    pub tenants_max: usize,
    /// Most open streams of one key, on one replica.
    pub streams_per_key_max: usize,
    /// Most open streams of all keys of one tenant, on one replica.
    pub streams_per_tenant_max: usize,
    /// Longest wait for calls under way at a graceful shutdown.
    pub drain: Duration,
    /// Time before the drain for which new connections are still accepted, while `/readyz` says `draining`; may be 0.
    pub drain_delay: Duration,
    /// Most new permission requests of one key per minute, over all replicas.
    pub consent_asks_per_minute: u32,
    /// Most open permission requests of one key.
    pub consent_pending_per_key: u32,
    /// Longest time that a call is held for the person at its client.
    pub consent_hold: Duration,
    /// Time for which a page of `/metrics` is reused.
    pub metrics_age_max: Duration,
    /// Database connections for committing activity records.
    pub database_pool_commit: u32,
    /// Database connections for management and reloads.
    pub database_pool_control: u32,
    /// Database connections for reports, exports and cut results.
    pub database_pool_report: u32,
    /// Most reports of one tenant at the same time.
    pub reports_per_tenant: usize,
    /// Interval between two passes of partition upkeep and retention.
    pub retention_interval: Duration,
    /// Most tenants whose catalogue is reloaded at the same time.
    pub reload_concurrency: usize,
    /// Most tenants that are loaded at the same time for keys that a replica sees for the first time.
    pub key_lookup_concurrency: usize,
    /// Most bytes of a token of an identity provider.
    pub token_bytes_max: usize,
    /// Most verified tokens that a replica remembers.
    pub token_cache: usize,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct DatabaseSection {
    #[serde(deserialize_with = "optional")]
    url: Option<Secret>,
    #[serde(deserialize_with = "optional")]
    direct_url: Option<Secret>,
    statement_cache: usize,
}

impl DatabaseSection {
    /// Returns the location of the database: the given URL, or the folder of a private one.
    pub(super) fn location(
        &self,
        data_dir: &str,
        ambient: &Ambient,
    ) -> Result<DatabaseLocation, ConfigError> {
        if let Some(url) = self.url.clone() {
            let direct_url = self.direct_url.clone().unwrap_or_else(|| url.clone());
            return Ok(DatabaseLocation::Url { url, direct_url });
        }
        // Refused here already, before secrets are generated into a pod.
        if ambient.host.in_kubernetes {
            return Err(ConfigError::Kubernetes);
        }
        if ambient.host.in_image {
            return Err(ConfigError::Image);
        }
        let data_dir = match (data_dir, &ambient.data_dir) {
            ("", None) => return Err(ConfigError::NoDataDir),
            ("", Some(usual)) => usual.clone(),
            // A later change of the working directory must not move the data.
            (given, _) => std::path::absolute(given).map_err(|_| ConfigError::NoDataDir)?,
        };
        Ok(DatabaseLocation::Private { data_dir })
    }

    pub(super) fn with_location(self, location: DatabaseLocation) -> Database {
        Database { location, statement_cache: self.statement_cache }
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct AuthSection {
    #[serde(deserialize_with = "optional")]
    pub(super) bootstrap_key: Option<Secret>,
    pub(super) stale_max: Duration,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct SessionsSection {
    pub(super) key: Vec<Secret>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct SecretsSection {
    pub(super) master_key: Vec<Secret>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct EgressSection {
    pub(super) allow: Vec<IpNet>,
}
