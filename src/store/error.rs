//! What can go wrong with the database, as the gateway needs to know it.

use sqlx::migrate::MigrateError;
use thiserror::Error;

/// A failure of the store. Its text is for logs; callers are told a class, never the cause.
#[derive(Debug, Error)]
pub enum StoreError {
    /// No such row for this tenant.
    #[error("not found")]
    NotFound,
    /// A name is taken, or a version moved.
    #[error("conflict: {0}")]
    Conflict(&'static str),
    /// What was to be written because of a lease that is another replica's by now.
    #[error("another replica has taken over")]
    LostLease,
    /// A named bound of this deployment is reached.
    #[error("limit reached: {0}")]
    Limit(&'static str),
    /// A quota of this tenant is used up.
    #[error("quota of {what} ({max}) used up")]
    Quota {
        /// Of what.
        what: &'static str,
        /// The bound.
        max: i64,
    },
    /// A row holds what the program never writes.
    #[error("table {table}, column {column}: {value:?} is not a value of this version")]
    Inconsistent {
        /// The table.
        table: &'static str,
        /// The column.
        column: &'static str,
        /// What stands there.
        value: String,
    },
    /// The schema is not the one this binary needs.
    #[error("{0}")]
    Schema(String),
    /// Somebody else holds what is needed for too long.
    #[error("{0}")]
    Busy(String),
    /// The database does not answer, or refuses the login.
    #[error(
        "cannot connect to the database at {host}:{port} (database.url, or database.direct_url where that is set): \
         {source}"
    )]
    Unreachable {
        /// Host, or the folder of a Unix socket.
        host: String,
        /// Port.
        port: u16,
        /// Why.
        source: sqlx::Error,
    },
    /// The database cannot be reached, or said no.
    #[error("database: {0}")]
    Database(#[from] sqlx::Error),
    /// The database is away, and the unit of work's time to wait for it is over.
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
    /// Whether the connection is of no use any more, while another one may be: the line broke, the server takes
    /// no more sessions or no more writes, or the prepared statements are not those that were made.
    pub(super) fn is_broken_line(error: &sqlx::Error) -> bool {
        match error {
            sqlx::Error::Io(_)
            | sqlx::Error::Protocol(_)
            | sqlx::Error::Tls(_)
            | sqlx::Error::WorkerCrashed
            | sqlx::Error::PoolTimedOut => true,
            sqlx::Error::Database(error) => error.code().is_some_and(|code| {
                // 57P: the server's own goodbyes, shutting down, starting up; 08: connection gone;
                // 25006: read-only, after a failover; 53300: too many sessions;
                // 26000, 42P05: a pooler mixed up prepared statements
                ["57P", "08", "25006", "53300", "26000", "42P05"].iter().any(|known| code.starts_with(known))
            }),
            _ => false,
        }
    }

    /// Whether it is the database that is away, so that whatever else is asked of it now fails as well.
    pub fn is_away(&self) -> bool {
        match self {
            StoreError::Down(_) | StoreError::ReadOnly | StoreError::Unreachable { .. } => true,
            StoreError::Database(error) => StoreError::is_broken_line(error),
            _ => false,
        }
    }

    /// Whether it stays like this until somebody changes the settings, the login or the database: not for a machine to
    /// try again.
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

    /// Maps a violated constraint to a conflict by its name, everything else through.
    pub(super) fn from_insert(error: sqlx::Error, constraint: &str, what: &'static str) -> StoreError {
        match error.as_database_error().and_then(|e| e.constraint()) {
            Some(name) if name == constraint => StoreError::Conflict(what),
            _ => StoreError::Database(error),
        }
    }

    /// Whether it is the rows themselves that this version does not understand: whatever else is asked goes on.
    pub fn is_unreadable(&self) -> bool {
        matches!(
            self,
            StoreError::Inconsistent { .. }
                | StoreError::Database(sqlx::Error::ColumnDecode { .. } | sqlx::Error::Decode(_))
        )
    }

    /// Whether the log has no partition for a record's day (SQLSTATE 23514 on an insert into it).
    pub fn is_missing_partition(&self) -> bool {
        let StoreError::Database(sqlx::Error::Database(error)) = self else { return false };
        error.code().as_deref() == Some("23514")
    }

    /// Whether the data itself was refused (SQLSTATE classes 21, 22, 23, 54): repeating cannot help.
    pub fn is_bad_data(&self) -> bool {
        let StoreError::Database(sqlx::Error::Database(error)) = self else { return false };
        error
            .code()
            .is_some_and(|code| ["21", "22", "23", "54"].into_iter().any(|class| code.starts_with(class)))
    }
}
