//! The typed sections of the configuration.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use ipnet::IpNet;
use serde::Deserialize;

use super::environment::Ambient;
use super::error::ConfigError;
use super::fields::{milliseconds, networks, optional_address, optional_text, seconds, zero_is_none};
use super::secret::Secret;
use crate::domain::annotations::Unannotated;
use crate::domain::intent::IntentMode;
use crate::domain::operation::OperationType;
use crate::domain::settings::{Defaults, ToolNames};

/// Listeners and what they accept.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ServerSettings {
    /// Where clients connect; port 0 takes any free port.
    pub listen: SocketAddr,
    /// Where `/metrics` is served; `None` is nowhere.
    #[serde(deserialize_with = "optional_address")]
    pub admin_listen: Option<SocketAddr>,
    /// Accepted `Host` headers: `name` (any port), `name:port`, or `*`.
    pub allowed_hosts: Vec<String>,
    /// Accepted `Origin` headers, or `*`.
    pub allowed_origins: Vec<String>,
    /// Networks of the proxies in front of the gateway; empty: none is trusted.
    #[serde(deserialize_with = "networks")]
    pub trusted_proxies: Vec<IpNet>,
}

/// Where the database is.
#[derive(Clone, Debug)]
pub struct Database {
    /// Somebody's PostgreSQL, or a private one.
    pub location: DatabaseLocation,
    /// Prepared statements kept per connection; 0 is none.
    pub statement_cache: usize,
}

/// Whose database it is.
#[derive(Clone, Debug)]
pub enum DatabaseLocation {
    /// The operator's.
    Url {
        /// For everything, possibly through a pooler.
        url: Secret,
        /// Without a pooler: LISTEN, migrations, locks. The same as `url` when not set.
        direct_url: Secret,
    },
    /// Our own, started and stopped with the program.
    Private {
        /// Its folder, absolute.
        data_dir: PathBuf,
    },
}

/// `/mcp/direct`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Direct {
    /// The master switch; each key needs its own setting as well.
    pub enabled: bool,
}

/// The activity log.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Activity {
    /// Days after which records are dropped.
    pub retention_days: u32,
    /// Bytes kept of arguments, and again of a response.
    pub preview_bytes: usize,
}

/// How the section `defaults` reads into the domain's type.
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
    /// Taken from `activity.retention_days`.
    #[serde(skip)]
    activity_retention_days: u32,
}

/// Logs, traces, metrics.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Telemetry {
    /// How a log line looks.
    pub log_format: LogFormat,
    /// Directives of what is logged.
    pub log_filter: String,
    /// Where traces go; `None` is nowhere.
    #[serde(deserialize_with = "optional_text")]
    pub otlp_endpoint: Option<String>,
    /// How traces travel.
    pub otlp_protocol: OtlpProtocol,
    /// Share of calls that are traced, 0.0 to 1.0.
    pub sample_ratio: f64,
    /// The name under which telemetry is reported.
    pub service_name: String,
}

/// How a log line looks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LogFormat {
    /// For people.
    Text,
    /// One JSON object per line.
    Json,
}

/// How traces travel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
pub enum OtlpProtocol {
    /// Protobuf over HTTP.
    #[serde(rename = "http/protobuf")]
    HttpProtobuf,
    /// gRPC.
    #[serde(rename = "grpc")]
    Grpc,
}

/// Every bound that an operator may move. All are at least 1.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LimitSettings {
    /// Bytes of a client's request.
    pub request_bytes_max: usize,
    /// Bytes of an upstream's answer.
    pub response_bytes_max: usize,
    /// Bytes that requests and answers of all tenants may hold in memory; 0 is 60 % of the memory limit of the
    /// process' control group, or of 1 GiB where there is none.
    pub memory_bytes_max: usize,
    /// Bytes that requests and answers of one tenant may hold in memory.
    pub tenant_answers_bytes_max: usize,
    /// Bytes of finished lists of `/mcp/direct`.
    pub list_cache_bytes_max: usize,
    /// Bytes of compiled input schemas.
    pub schema_cache_bytes_max: usize,
    /// Sealed bytes that are kept of one tenant's results that were cut.
    pub tenant_cache_bytes_max: usize,
    /// Texts that are kept of them.
    pub tenant_cache_entries_max: usize,
    /// How long one call may take at its upstream.
    #[serde(rename = "call_timeout_s", deserialize_with = "seconds")]
    pub call_timeout: Duration,
    /// How long connecting to an upstream may take.
    #[serde(rename = "connect_timeout_s", deserialize_with = "seconds")]
    pub connect_timeout: Duration,
    /// Calls at the same time per upstream server.
    pub upstream_concurrency: usize,
    /// Calls that wait for their turn per upstream server.
    pub upstream_queue: usize,
    /// How long a call may wait for its turn.
    #[serde(rename = "upstream_queue_wait_s", deserialize_with = "seconds")]
    pub upstream_queue_wait: Duration,
    /// Failures in a row after which an upstream is left alone.
    pub upstream_failures_max: u32,
    /// The first rest of an upstream that fails.
    #[serde(rename = "upstream_rest_min_ms", deserialize_with = "milliseconds")]
    pub upstream_rest_min: Duration,
    /// Its longest rest; not below the first.
    #[serde(rename = "upstream_rest_max_ms", deserialize_with = "milliseconds")]
    pub upstream_rest_max: Duration,
    /// Connections per upstream server.
    pub upstream_connections: usize,
    /// After this, an unused upstream connection is closed.
    #[serde(rename = "upstream_idle_s", deserialize_with = "seconds")]
    pub upstream_idle: Duration,
    /// After this, a program that nobody calls is ended.
    #[serde(rename = "stdio_idle_s", deserialize_with = "seconds")]
    pub stdio_idle: Duration,
    /// How long a program may take to start.
    #[serde(rename = "stdio_start_timeout_s", deserialize_with = "seconds")]
    pub stdio_start_timeout: Duration,
    /// Programs on one replica.
    pub stdio_running_max: usize,
    /// Of them at most for one tenant.
    pub stdio_running_per_tenant_max: usize,
    /// Client connections at the same time.
    pub connections_max: usize,
    /// Client connections of one address on which no valid key has been presented yet.
    pub connections_per_address_max: usize,
    /// How long a client may take to send its headers.
    #[serde(rename = "header_read_timeout_s", deserialize_with = "seconds")]
    pub header_read_timeout: Duration,
    /// Activity records that wait to be written.
    pub activity_queue: usize,
    /// What they may take in memory, in bytes.
    pub activity_queue_bytes: usize,
    /// Activity records written at once; not above `activity_queue`.
    pub activity_batch: usize,
    /// After this, an unfilled batch is written.
    #[serde(rename = "activity_flush_ms", deserialize_with = "milliseconds")]
    pub activity_flush: Duration,
    /// How long a call waits for its record to be committed.
    #[serde(rename = "record_commit_timeout_s", deserialize_with = "seconds")]
    pub record_commit_timeout: Duration,
    /// Between listings of an upstream that does not announce changes.
    #[serde(rename = "relist_interval_s", deserialize_with = "seconds")]
    pub relist_interval: Duration,
    /// Between listings of an upstream that does announce changes.
    #[serde(rename = "relist_announced_interval_s", deserialize_with = "seconds")]
    pub relist_announced_interval: Duration,
    /// Upstreams that one replica waits on for announcements.
    pub upstream_streams_max: usize,
    /// The longest pause between listings of an upstream that fails.
    #[serde(rename = "relist_pause_max_s", deserialize_with = "seconds")]
    pub relist_pause_max: Duration,
    /// Upstreams listed again at the same time.
    pub relist_concurrency: usize,
    /// How long after its last sign of life an upstream counts as connected.
    #[serde(rename = "connected_s", deserialize_with = "seconds")]
    pub connected: Duration,
    /// How long one listing of an upstream may take.
    #[serde(rename = "listing_timeout_s", deserialize_with = "seconds")]
    pub listing_timeout: Duration,
    /// Tools of one upstream server.
    pub tools_per_server_max: usize,
    /// Upstream servers of one tenant.
    pub servers_per_tenant_max: usize,
    /// Tools of all servers of one tenant.
    pub tools_per_tenant_max: usize,
    /// Bytes of their definitions.
    pub definition_bytes_per_tenant_max: usize,
    /// API keys of one tenant.
    pub keys_per_tenant_max: usize,
    /// Tenants.
    pub tenants_max: usize,
    /// Open streams of one key, on one replica.
    pub streams_per_key_max: usize,
    /// Open streams of all keys of one tenant, on one replica.
    pub streams_per_tenant_max: usize,
    /// How long running calls are given when the program is told to stop.
    #[serde(rename = "drain_s", deserialize_with = "seconds")]
    pub drain: Duration,
    /// How long new connections are still taken before that, while `/readyz` says `draining`.
    #[serde(rename = "drain_delay_s", deserialize_with = "seconds")]
    pub drain_delay: Duration,
    /// How long a page of `/metrics` is handed out again.
    #[serde(rename = "metrics_age_max_ms", deserialize_with = "milliseconds")]
    pub metrics_age_max: Duration,
    /// Database connections for committing activity records.
    pub database_pool_commit: u32,
    /// Database connections for management and reloads.
    pub database_pool_control: u32,
    /// Database connections for reports and exports.
    pub database_pool_report: u32,
    /// Of them at most for one tenant.
    pub reports_per_tenant: usize,
    /// Between two passes of partition upkeep and retention.
    #[serde(rename = "retention_interval_s", deserialize_with = "seconds")]
    pub retention_interval: Duration,
    /// Tenants whose catalogue is reloaded at the same time.
    pub reload_concurrency: usize,
    /// Look-ups of unknown keys at the same time.
    pub key_lookup_concurrency: usize,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct DatabaseSection {
    url: String,
    direct_url: String,
    statement_cache: usize,
}

impl DatabaseSection {
    /// The given URL, or the folder of a private database.
    pub(super) fn location(
        &self,
        data_dir: &str,
        ambient: &Ambient,
    ) -> Result<DatabaseLocation, ConfigError> {
        if !self.url.is_empty() {
            let direct = if self.direct_url.is_empty() { &self.url } else { &self.direct_url };
            return Ok(DatabaseLocation::Url {
                url: Secret::new(self.url.clone()),
                direct_url: Secret::new(direct.clone()),
            });
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
    pub(super) bootstrap_key: Secret,
    #[serde(rename = "stale_max_s", deserialize_with = "seconds")]
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
    #[serde(deserialize_with = "networks")]
    pub(super) allow: Vec<IpNet>,
}
