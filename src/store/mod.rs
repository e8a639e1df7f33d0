//! Floor 1: Postgres. The only room that knows SQL and table names.
//!
//! Every unit of work is one transaction that starts by dropping to a role: [`Access::Tenant`] sees one
//! tenant, [`Access::System`] is for the few cross-tenant jobs. No query runs outside such a transaction,
//! so a forgotten tenant filter finds nothing even when the deployment's URL is a superuser's.

mod activity_read;
mod activity_write;
mod api_keys;
mod error;
mod master_keys;
mod migrate;
mod partitions;
mod replicas;
mod revisions;
mod secrets;
mod servers;
mod settings;
mod system;
mod tenants;
mod tools;
mod tx;

pub use activity_read::{ActivityFilter, ActivityRow};
pub use activity_write::Close;
pub use api_keys::{AccessRows, ApiKey, KeyPatch, NewApiKey};
pub use error::StoreError;
pub use master_keys::Canary;
pub use migrate::migrate;
pub use replicas::{HEARTBEAT_TTL_S, Lease};
pub use revisions::{CancelNotice, Change, Kind, Listener, Notice};
pub use secrets::{DataKey, HeadersPatch, SealedHeaders, SecretRows, ServerSecret};
pub use servers::{CatalogueRows, NewServer, Server, ServerPatch};
pub use settings::StoredSettings;
pub use system::{DueServer, FoundKey};
pub use tenants::Tenant;
pub use tools::{Applied, Discovered, StoredTool};
pub use tx::Access;

use std::time::Duration;

use sqlx::postgres::{PgConnectOptions, PgPoolOptions};
use sqlx::{ConnectOptions, PgPool};

/// How to reach the database, and how many connections each kind of work may hold.
#[derive(Clone, Debug)]
pub struct StoreOptions {
    /// May go through a pooler in transaction mode.
    pub url: String,
    /// Straight to Postgres: LISTEN, migrations, partition upkeep.
    pub direct_url: String,
    /// Prepared statements kept per connection; 0 behind poolers that cannot keep them.
    pub statement_cache: usize,
    /// Connections for committing activity.
    pub commit_connections: u32,
    /// Connections for everything short.
    pub control_connections: u32,
    /// Connections for reading the activity log.
    pub report_connections: u32,
}

/// The database. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Store {
    commit: PgPool,
    control: PgPool,
    report: PgPool,
    direct: PgConnectOptions,
}

/// How long a unit of work waits for a connection before it fails.
const ACQUIRE_TIMEOUT: Duration = Duration::from_secs(5);
/// The same for the log's commits: they wait as long as a call waits for its record.
const COMMIT_ACQUIRE_TIMEOUT: Duration = Duration::from_secs(10);

impl Store {
    /// Prepares the pools; connects lazily, so a database that is down is no error yet.
    pub fn new(options: &StoreOptions) -> Result<Store, StoreError> {
        let pooled = connect_options(&options.url, options.statement_cache)?;
        let direct = connect_options(&options.direct_url, options.statement_cache)?;
        let pool = |connections: u32, acquire: Duration| {
            PgPoolOptions::new()
                .max_connections(connections.max(1))
                .acquire_timeout(acquire)
                // a broken connection is noticed by the unit of work that meets it, which tries again: a ping
                // before each would cost every commit a round trip
                .test_before_acquire(false)
                .connect_lazy_with(pooled.clone())
        };
        Ok(Store {
            commit: pool(options.commit_connections, COMMIT_ACQUIRE_TIMEOUT),
            control: pool(options.control_connections, ACQUIRE_TIMEOUT),
            report: pool(options.report_connections, ACQUIRE_TIMEOUT),
            direct,
        })
    }

    /// Closes every connection, in an orderly way.
    pub async fn close(&self) {
        self.commit.close().await;
        self.control.close().await;
        self.report.close().await;
    }
}

fn connect_options(url: &str, statement_cache: usize) -> Result<PgConnectOptions, StoreError> {
    let options: PgConnectOptions = url.parse()?;
    Ok(options
        .application_name("mcpproxy")
        .statement_cache_capacity(statement_cache)
        .disable_statement_logging())
}
