//! A connection outside the pools.

use std::io;
use std::time::Duration;

use sqlx::postgres::PgConnectOptions;
use sqlx::{ConnectOptions, PgConnection};

use super::StoreError;

/// Connect timeout while a person waits for the program to start.
const CONNECT_MAX: Duration = Duration::from_secs(10);

/// Connects to the database. The error names host and port for a person: "connection refused" alone says little.
pub(super) async fn connect(options: &PgConnectOptions) -> Result<PgConnection, StoreError> {
    let connected = tokio::time::timeout(CONNECT_MAX, options.connect()).await;
    let silent = || {
        let text = format!("no answer within {} s", CONNECT_MAX.as_secs());
        Err(sqlx::Error::Io(io::Error::new(io::ErrorKind::TimedOut, text)))
    };
    connected.unwrap_or_else(|_| silent()).map_err(|source| StoreError::Unreachable {
        host: options.get_host().to_owned(),
        port: options.get_port(),
        source,
    })
}
