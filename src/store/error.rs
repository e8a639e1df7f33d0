//! What can go wrong with the database, as the gateway needs to know it.

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
    /// A named bound of this deployment is reached.
    #[error("limit reached: {0}")]
    Limit(&'static str),
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
    /// The database does not answer, or refuses the login.
    #[error("cannot connect to the database at {host}:{port} (database.url): {source}")]
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
    /// A migration failed.
    #[error("migration: {0}")]
    Migrate(#[from] sqlx::migrate::MigrateError),
}

impl StoreError {
    /// Whether trying again on another connection may help: the line broke, nothing was decided.
    pub(super) fn is_broken_line(error: &sqlx::Error) -> bool {
        match error {
            sqlx::Error::Io(_) | sqlx::Error::Protocol(_) | sqlx::Error::WorkerCrashed => true,
            // the server's own goodbyes: shutting down, starting up, connection gone
            sqlx::Error::Database(error) => {
                error.code().is_some_and(|code| code.starts_with("57P") || code.starts_with("08"))
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

    /// Whether the log has no partition for a record's day (SQLSTATE 23514 on an insert into it).
    pub fn is_missing_partition(&self) -> bool {
        let StoreError::Database(sqlx::Error::Database(error)) = self else { return false };
        error.code().as_deref() == Some("23514")
    }

    /// Whether the data itself was refused (SQLSTATE classes 21, 22, 23, 42804…): repeating cannot help.
    pub fn is_bad_data(&self) -> bool {
        let StoreError::Database(sqlx::Error::Database(error)) = self else { return false };
        error
            .code()
            .is_some_and(|code| code.starts_with("22") || code.starts_with("23") || code.starts_with("21"))
    }
}
