//! Errors of the private database: sentences that say what to do.

use std::io;
use std::path::PathBuf;

/// Reason why the private database cannot run.
#[derive(Debug, thiserror::Error)]
pub enum LocalPostgresError {
    /// A private database is refused in Kubernetes, where its data would vanish with the pod.
    #[error(
        "No database is set, and a private one is refused in Kubernetes, where it would vanish with its pod. Set DATABASE_URL."
    )]
    Kubernetes,
    /// No PostgreSQL was found that is new enough.
    #[error(
        "No database is set and no PostgreSQL {least} or newer was found to run a private one{found}. Install it (`apt-get install postgresql`, `dnf install postgresql-server`, `brew install postgresql@17`) or set DATABASE_URL=postgres://user:password@host/name."
    )]
    NoPrograms {
        /// Least major version.
        least: u32,
        /// The text ` (found: …)`, or empty.
        found: String,
    },
    /// The data were made by a version that is not installed.
    #[error(
        "The private database in {path} was made by PostgreSQL {wanted}, which was not found{found}. Install that version, or move the data with pg_upgrade."
    )]
    WrongVersion {
        /// Path of the cluster.
        path: PathBuf,
        /// Major version of the cluster.
        wanted: u32,
        /// The text ` (found: …)`, or empty.
        found: String,
    },
    /// Another gateway runs on the same data.
    #[error(
        "Another mcpproxy (process {pid}) is using {path}. Stop it, or set data_dir (MCPPROXY__DATA_DIR) to another folder."
    )]
    InUse {
        /// Process id of the other gateway, or `unknown`.
        pid: String,
        /// Path of the data directory.
        path: PathBuf,
    },
    /// The gateway runs as root, and there is no user to run the server as.
    #[error(
        "PostgreSQL does not run as root, and there is neither a user postgres nor a user nobody to run it as. Start mcpproxy as another user, or set DATABASE_URL."
    )]
    NoAccount,
    /// Something else is in the place of the cluster.
    #[error(
        "{path} is not a PostgreSQL cluster and not empty. Move it away, or set data_dir (MCPPROXY__DATA_DIR) to another folder."
    )]
    NotACluster {
        /// Path where the cluster belongs.
        path: PathBuf,
    },
    /// A cluster is left of a data directory that was deleted.
    #[error("{cluster} holds the database of an earlier {link}, which is gone. To keep it, run `ln -s {cluster} {link}` and restore the secrets; to start anew, remove it.", cluster = .cluster.display(), link = .link.display())]
    LeftBehind {
        /// Path of the cluster.
        cluster: PathBuf,
        /// Path of the link that should lead to the cluster.
        link: PathBuf,
    },
    /// The socket folder is not private to the server's user.
    #[error(
        "The socket folder {path} belongs to somebody else or is open to other users. Remove it and start again."
    )]
    ForeignFolder {
        /// Path of the socket folder.
        path: PathBuf,
    },
    /// A file operation failed.
    #[error("{path} cannot be {what} ({source}). Check the folder's owner, mode and disk.")]
    Io {
        /// Failed operation, as a participle: `read`.
        what: &'static str,
        /// File or folder of the operation.
        path: PathBuf,
        /// Error of the operating system.
        source: io::Error,
    },
    /// A program of PostgreSQL failed.
    #[error("{program} failed: {output}")]
    Program {
        /// Name of the program.
        program: &'static str,
        /// End of the program's output.
        output: String,
    },
    /// The server ended, or did not get ready in time.
    #[error("The private PostgreSQL did not start; its log is {log}: {tail}", log = .log.display())]
    NotReady {
        /// Path of the server's log.
        log: PathBuf,
        /// End of the log.
        tail: String,
    },
}

impl LocalPostgresError {
    /// Returns whether the failure lasts until somebody installs, moves or removes something.
    pub fn is_lasting(&self) -> bool {
        match self {
            Self::Kubernetes
            | Self::NoPrograms { .. }
            | Self::WrongVersion { .. }
            | Self::NoAccount
            | Self::NotACluster { .. }
            | Self::LeftBehind { .. }
            | Self::ForeignFolder { .. } => true,
            Self::InUse { .. } | Self::Io { .. } | Self::Program { .. } | Self::NotReady { .. } => false,
        }
    }

    /// Returns a function for `map_err` on file operations.
    pub(super) fn io(
        what: &'static str,
        path: &std::path::Path,
    ) -> impl FnOnce(io::Error) -> LocalPostgresError {
        let path = path.to_owned();
        move |source| LocalPostgresError::Io { what, path, source }
    }
}
