//! Failures of the database, classified as the gateway needs them.

use sqlx::migrate::MigrateError;
use thiserror::Error;

use crate::domain::id::KeyId;

/// A failure of the store. The text is for logs; callers get its class, never the cause.
#[derive(Debug, Error)]
pub enum StoreError {
    /// The tenant has no such row, or the tenant is deleted.
    #[error("not found")]
    NotFound,
    /// A name is taken, or the row has another version than expected.
    #[error("conflict: {0}")]
    Conflict(&'static str),
    /// The API key has a successor, which is not revoked.
    #[error("the key was rotated: its successor is {0:?}")]
    Rotated(KeyId),
    /// The lease under which a write was to be made belongs to another replica by now.
    #[error("another replica has taken over")]
    LostLease,
    /// A bound of this deployment is reached; the text names it.
    #[error("limit reached: {0}")]
    Limit(&'static str),
    /// A quota of this tenant is used up.
    #[error("quota of {what} ({max}) used up")]
    Quota {
        /// Name of the quota, for example `keys`.
        what: &'static str,
        /// Bound that the quota sets.
        max: i64,
    },
    /// A row holds a value that this version of the program never writes.
    #[error("table {table}, column {column}: {value:?} is not a value of this version")]
    Inconsistent {
        /// Name of the table.
        table: &'static str,
        /// Name of the column.
        column: &'static str,
        /// Value that the row holds.
        value: String,
    },
    /// Schema, roles or connection do not fit this binary; the text says what to do.
    #[error("{0}")]
    Schema(String),
    /// Another session has held a lock for too long; the text says what to do.
    #[error("{0}")]
    Busy(String),
    /// The database does not answer, or refuses the login.
    #[error(
        "cannot connect to the database at {host}:{port} (database.url, or database.direct_url where that is set): \
         {source}"
    )]
    Unreachable {
        /// Host of the database, or the folder of its Unix socket.
        host: String,
        /// Port of the database.
        port: u16,
        /// Cause of the failure.
        source: sqlx::Error,
    },
    /// A statement or the connection failed. During a commit this leaves the outcome unknown.
    #[error("database: {0}")]
    Database(#[from] sqlx::Error),
    /// The database is unreachable or confirms no changes, and the wait for it has timed out; the text says why.
    #[error("the database is out of reach: {0}")]
    Down(String),
    /// The database takes no writes: a standby, or one that its operator made read-only.
    #[error("the database is read-only: is database.url still the primary?")]
    ReadOnly,
    /// A migration failed.
    #[error("migration: {0}")]
    Migrate(#[from] MigrateError),
}

impl StoreError {
    /// Returns whether the connection is unusable while another one may work. The connection broke, the server takes no
    /// more sessions or no writes, or the prepared statements got mixed up.
    pub(super) fn is_broken_line(error: &sqlx::Error) -> bool {
        match error {
            sqlx::Error::Io(_)
            | sqlx::Error::Protocol(_)
            | sqlx::Error::Tls(_)
            | sqlx::Error::WorkerCrashed
            | sqlx::Error::PoolTimedOut => true,
            sqlx::Error::Database(error) => error.code().is_some_and(|code| {
                // 57P: the server shuts down or starts up; 08: connection gone;
                // 25006: read-only, after a failover; 53300: too many sessions;
                // 26000, 42P05: a pooler mixed up prepared statements
                ["57P", "08", "25006", "53300", "26000", "42P05"].iter().any(|known| code.starts_with(known))
            }),
            _ => false,
        }
    }

    /// Returns whether the database itself is away, so that other work would fail as well.
    pub fn is_away(&self) -> bool {
        match self {
            StoreError::Down(_) | StoreError::ReadOnly | StoreError::Unreachable { .. } => true,
            StoreError::Database(error) => StoreError::is_broken_line(error),
            _ => false,
        }
    }

    /// Returns whether the failure lasts until settings, login or database are changed, so that automatic retries are
    /// pointless.
    pub fn is_lasting(&self) -> bool {
        match self {
            StoreError::Schema(_)
            | StoreError::Database(sqlx::Error::Configuration(_))
            | StoreError::Migrate(MigrateError::VersionMismatch(_)) => true,
            // 28: the login is refused; 3D000: no such database
            StoreError::Unreachable { source: sqlx::Error::Database(error), .. } => {
                error.code().is_some_and(|code| code.starts_with("28") || code == "3D000")
            }
            _ => false,
        }
    }

    /// Returns the conflict `what` if the error is a violation of `constraint`, and else the error itself.
    pub(super) fn from_insert(error: sqlx::Error, constraint: &str, what: &'static str) -> StoreError {
        match error.as_database_error().and_then(|e| e.constraint()) {
            Some(name) if name == constraint => StoreError::Conflict(what),
            _ => StoreError::Database(error),
        }
    }

    /// Returns whether this version cannot read the rows themselves; other work is not affected.
    pub fn is_unreadable(&self) -> bool {
        matches!(
            self,
            StoreError::Inconsistent { .. }
                | StoreError::Database(sqlx::Error::ColumnDecode { .. } | sqlx::Error::Decode(_))
        )
    }

    /// Returns whether the log has no partition for a record's day (SQLSTATE 23514 on an insert into it).
    pub fn is_missing_partition(&self) -> bool {
        let StoreError::Database(sqlx::Error::Database(error)) = self else { return false };
        error.code().as_deref() == Some("23514")
    }

    /// Returns whether a row with this key exists already.
    pub fn is_duplicate(&self) -> bool {
        let StoreError::Database(sqlx::Error::Database(error)) = self else { return false };
        error.is_unique_violation()
    }

    /// Returns whether the data itself was refused (SQLSTATE classes 21, 22, 23, 54), so that a retry cannot help.
    pub fn is_bad_data(&self) -> bool {
        let StoreError::Database(sqlx::Error::Database(error)) = self else { return false };
        error
            .code()
            .is_some_and(|code| ["21", "22", "23", "54"].into_iter().any(|class| code.starts_with(class)))
    }
}
