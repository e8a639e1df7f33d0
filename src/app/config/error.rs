//! Errors of a configuration. Every text is a sentence that says what to do; none repeats a value.

use std::path::PathBuf;

/// Fails with the end of a sentence that begins with the setting's name, unless the value fits.
pub(super) fn must(fits: bool, must: impl Into<String>) -> Result<(), String> {
    if fits { Ok(()) } else { Err(must.into()) }
}

/// Reason why the configuration cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// A name that is no setting.
    #[error(
        "{subject} is not a setting{suggestion}. Correct or remove it; docs/configuration.md lists every name."
    )]
    UnknownName {
        /// Name as it was given, and its source.
        subject: String,
        /// The text ` (did you mean …?)`, or empty.
        suggestion: String,
    },
    /// A value that its setting does not take.
    #[error("The setting {name} ({origin}) {must}.")]
    Value {
        /// Dotted name of the setting.
        name: String,
        /// Source of the value.
        origin: String,
        /// End of the sentence: `must be …`.
        must: String,
    },
    /// Two names of one setting disagree.
    #[error("{first} and {second} are the same setting and disagree. Set only one of them.")]
    Conflict {
        /// First name, with its source.
        first: String,
        /// Second name, with its source.
        second: String,
    },
    /// Secrets are missing that must be given along with a database URL.
    #[error(
        "A database URL is set, so these secrets must be set too: {names}. Generate each with `openssl rand -base64 32` and give the same ones to every replica."
    )]
    MissingSecrets {
        /// Missing settings and their environment variables.
        names: String,
    },
    /// The configuration file cannot be used.
    #[error("The configuration file {path} {reason}.")]
    File {
        /// Path of the configuration file.
        path: PathBuf,
        /// End of the sentence.
        reason: String,
    },
    /// The settings are to be read again, and there is no file to read.
    #[error(
        "this gateway was started without --config, so it has no file to read again. Start it with `mcpproxy serve --config \
         FILE`."
    )]
    NoFile,
    /// A needed file or folder cannot be read, created or written at present.
    #[error("{path} {reason}.")]
    Io {
        /// Path of the file or folder.
        path: PathBuf,
        /// End of the sentence, with what to do.
        reason: String,
    },
    /// The file with the rules of the deployment cannot be used.
    #[error(
        "The setting policy.file names {path}, which is not usable: {fault}. Correct the file, then start again."
    )]
    Policy {
        /// Path of the file.
        path: PathBuf,
        /// Fault, with its place in the file.
        fault: String,
    },
    /// A generated secret is kept in a way that is not accepted.
    #[error("{path} {reason}.")]
    SecretFile {
        /// Path of the file or folder.
        path: PathBuf,
        /// End of the sentence, with what to do.
        reason: String,
    },
    /// No database is set in Kubernetes, where a private one is refused.
    #[error(
        "No database is set, and a private one is refused in Kubernetes, where it would vanish with its pod. Set DATABASE_URL."
    )]
    Kubernetes,
    /// No database is set in the container image, which has no PostgreSQL.
    #[error(
        "No database is set, and the container image holds no PostgreSQL to run a private one, which would vanish with its container. Set DATABASE_URL=postgres://user:password@host/name."
    )]
    Image,
    /// No folder for the private database is known.
    #[error(
        "There is no folder for the private database: neither HOME nor XDG_DATA_HOME is set. Set data_dir (MCPPROXY__DATA_DIR) to a folder, or DATABASE_URL to a PostgreSQL database."
    )]
    NoDataDir,
    /// The memory budget is larger than the memory of the process.
    #[error(
        "The setting limits.memory_bytes_max is {set}, but the control group of this process limits all its memory to {limit} bytes. Set less, or leave it out: the default is {percent} % of that limit."
    )]
    Memory {
        /// Configured budget, in bytes.
        set: usize,
        /// Limit of the control group, in bytes.
        limit: u64,
        /// Default budget, in percent of the limit.
        percent: u64,
    },
    /// An environment variable that matters is not text.
    #[error("The environment variable {name} is not valid UTF-8. Set it to plain text.")]
    NotUtf8 {
        /// Name of the variable.
        name: String,
    },
    /// The operating system gave no random bytes.
    #[error("The operating system gave no random bytes to generate a secret from: {0}.")]
    Random(getrandom::Error),
    /// The built-in `default.toml` does not fit the program.
    #[error("The built-in default.toml does not fit the program{at}: this build is broken, use another.")]
    BuiltIn {
        /// The text ` at NAME`, or empty.
        at: String,
    },
}
