//! Why the private database cannot run: sentences that say what to do.

use std::io;
use std::path::PathBuf;

/// Why the private database cannot run.
#[derive(Debug, thiserror::Error)]
pub enum LocalPostgresError {
    /// Pods come and go, and so would the data.
    #[error(
        "No database is set, and a private one is refused in Kubernetes, where it would vanish with its pod. Set DATABASE_URL."
    )]
    Kubernetes,
    /// No server programs.
    #[error(
        "No database is set and no PostgreSQL {least} or newer was found to run a private one{found}. Install it (`apt-get install postgresql`, `dnf install postgresql-server`, `brew install postgresql@17`) or set DATABASE_URL=postgres://user:password@host/name."
    )]
    NoPrograms {
        /// The least major version.
        least: u32,
        /// ` (found: …)` or nothing.
        found: String,
    },
    /// The data were made by a version that is not installed.
    #[error(
        "The private database in {path} was made by PostgreSQL {wanted}, which was not found{found}. Install that version, or move the data with pg_upgrade."
    )]
    WrongVersion {
        /// The cluster.
        path: PathBuf,
        /// Its major version.
        wanted: u32,
        /// ` (found: …)` or nothing.
        found: String,
    },
    /// Another gateway runs on the same data.
    #[error(
        "Another mcpproxy (process {pid}) is using {path}. Stop it, or set data_dir (MCPPROXY__DATA_DIR) to another folder."
    )]
    InUse {
        /// The other's process id, or `unknown`.
        pid: String,
        /// The data directory.
        path: PathBuf,
    },
    /// Root without anybody to hand the server to.
    #[error(
        "PostgreSQL does not run as root, and there is neither a user postgres nor a user nobody to run it as. Start mcpproxy as another user, or set DATABASE_URL."
    )]
    NoAccount,
    /// Something else is where the cluster belongs.
    #[error(
        "{path} is not a PostgreSQL cluster and not empty. Move it away, or set data_dir (MCPPROXY__DATA_DIR) to another folder."
    )]
    NotACluster {
        /// Where.
        path: PathBuf,
    },
    /// The data of a folder that was deleted.
    #[error("{cluster} holds the database of an earlier {link}, which is gone. To keep it, run `ln -s {cluster} {link}` and restore the secrets; to start anew, remove it.", cluster = .cluster.display(), link = .link.display())]
    LeftBehind {
        /// The cluster.
        cluster: PathBuf,
        /// The link that should lead to it.
        link: PathBuf,
    },
    /// A folder that others may use.
    #[error(
        "The socket folder {path} belongs to somebody else or is open to other users. Remove it and start again."
    )]
    ForeignFolder {
        /// Which one.
        path: PathBuf,
    },
    /// A file operation failed.
    #[error("{path} cannot be {what} ({source}). Check the folder's owner, mode and disk.")]
    Io {
        /// What was tried.
        what: &'static str,
        /// On what.
        path: PathBuf,
        /// The system's word.
        source: io::Error,
    },
    /// A program of PostgreSQL failed.
    #[error("{program} failed: {output}")]
    Program {
        /// Which one.
        program: &'static str,
        /// The end of what it said.
        output: String,
    },
    /// The server ended or never got ready.
    #[error("The private PostgreSQL did not start; its log is {log}: {tail}", log = .log.display())]
    NotReady {
        /// Its log.
        log: PathBuf,
        /// The end of its log.
        tail: String,
    },
}

impl LocalPostgresError {
    /// Whether it stays like this until somebody installs, moves or removes something.
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

    /// For `map_err` on file operations.
    pub(super) fn io(
        what: &'static str,
        path: &std::path::Path,
    ) -> impl FnOnce(io::Error) -> LocalPostgresError {
        let path = path.to_owned();
        move |source| LocalPostgresError::Io { what, path, source }
    }
}
