//! Secrets of a deployment that has its own private database: generated once, kept in `data_dir/secrets`.

use std::fs::{DirBuilder, File, OpenOptions, Permissions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};

use super::error::ConfigError;
use super::layers::{LayerOrigin, value_error};
use super::secret::{self, MasterKey, Secret};
use super::sections::DatabaseLocation;
use super::{names, rules, values};

/// Most bytes of a secret file.
const FILE_BYTES_MAX: u64 = 4096;
/// Bytes of a generated secret.
const RANDOM_BYTES: usize = 32;

/// Secrets of each kind: bootstrap, sessions, master; empty where there are none.
pub(super) type SecretsByKind = [Vec<Secret>; 3];

/// All secrets of the deployment.
pub(super) struct SecretKeys {
    pub(super) bootstrap: Secret,
    /// File of the bootstrap key; `None` if a source gives the key.
    pub(super) bootstrap_file: Option<PathBuf>,
    pub(super) sessions: Vec<Secret>,
    pub(super) master: Vec<MasterKey>,
}

/// A secret that the deployment needs.
#[derive(Clone, Copy)]
enum Needed {
    Bootstrap,
    Sessions,
    Master,
}

impl Needed {
    /// Returns the name of the setting, and of the file.
    fn names(self) -> (&'static str, &'static str) {
        match self {
            Needed::Bootstrap => ("auth.bootstrap_key", "bootstrap_key"),
            Needed::Sessions => ("sessions.key", "sessions_key"),
            Needed::Master => ("secrets.master_key", "master_key"),
        }
    }

    fn generate(self) -> Result<String, ConfigError> {
        let mut bytes = [0_u8; RANDOM_BYTES];
        getrandom::fill(&mut bytes).map_err(ConfigError::Random)?;
        Ok(match self {
            Needed::Bootstrap => format!("mcpk_{}", URL_SAFE_NO_PAD.encode(bytes)),
            Needed::Sessions => URL_SAFE_NO_PAD.encode(bytes),
            Needed::Master => STANDARD.encode(bytes),
        })
    }

    /// Reads the secrets in a file's text: one, or a list where the setting is a list. They are checked like those of
    /// the sources.
    fn read(self, text: &str, path: &Path) -> Result<Vec<Secret>, ConfigError> {
        let (name, _) = self.names();
        let origin = LayerOrigin::Generated(path.to_owned());
        let fail = |must: String| value_error(name, &origin, must);
        let entries = match self {
            Needed::Bootstrap => {
                secret::check_header_secret(text).map_err(fail)?;
                vec![text]
            }
            Needed::Sessions | Needed::Master => {
                let entries = values::entries(name, text).map_err(|must| fail(must.to_owned()))?;
                // an empty file counts as a weak secret, not as a missing one: a new one would be generated silently
                let entries = if entries.is_empty() { vec![""] } else { entries };
                rules::check_list(name, &entries, &origin)?;
                entries
            }
        };
        Ok(entries.into_iter().map(|entry| Secret::new(entry.to_owned())).collect())
    }

    /// Returns the path of the secret's file.
    fn path(self, data_dir: &Path) -> PathBuf {
        folder(data_dir).join(self.names().1)
    }
}

fn folder(data_dir: &Path) -> PathBuf {
    data_dir.join("secrets")
}

/// Completes the given secrets with those that `kept` returns for a private database; with a database URL, missing ones
/// are an error.
fn complete(
    mut given: SecretsByKind,
    location: &DatabaseLocation,
    mut kept: impl FnMut(&Path, Needed) -> Result<Vec<Secret>, ConfigError>,
) -> Result<SecretsByKind, ConfigError> {
    let mut missing = Vec::new();
    for (keys, needed) in given.iter_mut().zip([Needed::Bootstrap, Needed::Sessions, Needed::Master]) {
        match location {
            _ if !keys.is_empty() => {}
            DatabaseLocation::Private { data_dir } => *keys = kept(data_dir, needed)?,
            DatabaseLocation::Url { .. } => {
                let (name, _) = needed.names();
                missing.push(format!("{name} ({})", names::variable(name)));
            }
        }
    }
    if missing.is_empty() {
        Ok(given)
    } else {
        Err(ConfigError::MissingSecrets { names: missing.join(", ") })
    }
}

/// Returns all secrets. Missing ones are generated for a private database; with a database URL they are an error.
pub(super) fn resolve(given: SecretsByKind, location: &DatabaseLocation) -> Result<SecretKeys, ConfigError> {
    let mut bootstrap_file = None;
    let [bootstrap, sessions, master] = complete(given, location, |data_dir, needed| {
        if let Needed::Bootstrap = needed {
            bootstrap_file = Some(needed.path(data_dir));
        }
        read_or_generate(data_dir, needed)
    })?;
    let broken = |needed: Needed| ConfigError::BuiltIn { at: format!(" at {}", needed.names().0) };
    let master = master.iter().map(|key| MasterKey::parse(key.expose()).map_err(|_| broken(Needed::Master)));
    Ok(SecretKeys {
        bootstrap: bootstrap.into_iter().next().ok_or_else(|| broken(Needed::Bootstrap))?,
        bootstrap_file,
        sessions,
        master: master.collect::<Result<_, _>>()?,
    })
}

/// Returns the settings that [`resolve`] would generate. Fails as it does, and writes nothing.
pub(super) fn to_generate(
    given: SecretsByKind,
    location: &DatabaseLocation,
) -> Result<Vec<&'static str>, ConfigError> {
    let mut to_generate = Vec::new();
    complete(given, location, |data_dir, needed| {
        let (dir, path) = (folder(data_dir), needed.path(data_dir));
        if std::fs::symlink_metadata(&dir).is_ok() {
            check_folder(&dir)?;
        }
        let Some(text) = read(&path)? else {
            to_generate.push(needed.names().0);
            return Ok(Vec::new());
        };
        needed.read(&text, &path)
    })?;
    Ok(to_generate)
}

fn read_or_generate(data_dir: &Path, needed: Needed) -> Result<Vec<Secret>, ConfigError> {
    let (dir, path) = (folder(data_dir), needed.path(data_dir));
    prepare(&dir)?;
    let text = match read(&path)? {
        Some(text) => text,
        None => {
            write_new(&dir, &path, &needed.generate()?).map_err(|error| {
                io_failed(&path, format!("cannot be written ({error}). Check the folder and its disk"))
            })?;
            // Read back: another process may have been first, and its value is the one that stays.
            read(&path)?.ok_or_else(|| io_failed(&path, "vanished while it was written. Start again"))?
        }
    };
    needed.read(&text, &path)
}

fn failed(path: &Path, reason: impl Into<String>) -> ConfigError {
    ConfigError::SecretFile { path: path.to_owned(), reason: reason.into() }
}

fn io_failed(path: &Path, reason: impl Into<String>) -> ConfigError {
    ConfigError::Io { path: path.to_owned(), reason: reason.into() }
}

/// Creates the folder, or checks that other users cannot look into it.
fn prepare(dir: &Path) -> Result<(), ConfigError> {
    let made = dir.parent().map_or(Ok(()), std::fs::create_dir_all).and_then(|()| {
        match DirBuilder::new().mode(0o700).create(dir) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
            made => made,
        }
    });
    made.map_err(|error| {
        let advice = "Set data_dir (MCPPROXY__DATA_DIR) to a folder that can be written";
        io_failed(dir, format!("cannot be made ({error}). {advice}"))
    })?;
    check_folder(dir)
}

/// Checks that an existing folder can hold secrets.
fn check_folder(dir: &Path) -> Result<(), ConfigError> {
    let found = std::fs::symlink_metadata(dir)
        .map_err(|error| io_failed(dir, format!("cannot be read ({error})")))?;
    if !found.is_dir() {
        return Err(failed(dir, "is not a folder. Move it away"));
    }
    refuse_open(dir, &found.permissions(), "700")
}

/// Reads a secret file; `None` if there is none.
fn read(path: &Path) -> Result<Option<String>, ConfigError> {
    let unreadable = |error: io::Error| match error.kind() {
        io::ErrorKind::InvalidData => failed(path, "is not valid UTF-8. Leave only secrets in it"),
        _ => io_failed(path, format!("cannot be read ({error}). Check its owner and mode")),
    };
    let found = match std::fs::symlink_metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        found => found.map_err(unreadable)?,
    };
    if !found.is_file() {
        return Err(failed(path, "is not a regular file. Move it away"));
    }
    refuse_open(path, &found.permissions(), "600")?;
    let mut text = String::new();
    File::open(path)
        .and_then(|file| file.take(FILE_BYTES_MAX + 1).read_to_string(&mut text))
        .map_err(unreadable)?;
    if text.len() as u64 > FILE_BYTES_MAX {
        return Err(failed(path, format!("is larger than {FILE_BYTES_MAX} bytes. Leave only secrets in it")));
    }
    Ok(Some(text.trim_end().to_owned()))
}

fn refuse_open(path: &Path, permissions: &Permissions, mode: &str) -> Result<(), ConfigError> {
    if permissions.mode() & 0o077 == 0 {
        return Ok(());
    }
    let advice =
        format!("Run `chmod {mode} {}`, and replace the secret if they may have seen it", path.display());
    Err(failed(path, format!("can be read by other users. {advice}")))
}

/// Writes a file atomically. Keeps an existing file, if the file system has hard links.
fn write_new(dir: &Path, path: &Path, text: &str) -> io::Result<()> {
    let draft = draft_beside(path);
    let written = write_draft(&draft, text).and_then(|()| publish(&draft, path));
    match std::fs::remove_file(&draft) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => written?,
    }
    File::open(dir)?.sync_all()
}

fn draft_beside(path: &Path) -> PathBuf {
    path.with_extension(format!("new-{}", std::process::id()))
}

fn write_draft(draft: &Path, text: &str) -> io::Result<()> {
    let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(draft)?;
    writeln!(file, "{text}")?;
    file.sync_all()
}

fn publish(draft: &Path, path: &Path) -> io::Result<()> {
    match std::fs::hard_link(draft, path) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        // Some file systems have no hard links; there the last of several concurrent first starts wins.
        Err(error)
            if matches!(error.kind(), io::ErrorKind::Unsupported | io::ErrorKind::PermissionDenied) =>
        {
            std::fs::rename(draft, path)
        }
        linked => linked,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Errors of the disk and wrong settings end the program with different exit codes.
    #[test]
    fn what_the_disk_refuses_is_no_wrong_setting() {
        let home = tempfile::tempdir().unwrap();
        let in_the_way = home.path().join("data");
        std::fs::write(&in_the_way, "a file").unwrap();
        let made = read_or_generate(&in_the_way, Needed::Sessions);
        assert!(matches!(made, Err(ConfigError::Io { .. })), "{made:?}");
        let path = Needed::Sessions.path(home.path());
        read_or_generate(home.path(), Needed::Sessions).unwrap();
        std::fs::write(&path, b"\xff").unwrap();
        let kept = read_or_generate(home.path(), Needed::Sessions);
        assert!(matches!(kept, Err(ConfigError::SecretFile { .. })), "{kept:?}");
        // a folder where the file is to be written
        std::fs::remove_file(&path).unwrap();
        std::fs::create_dir(draft_beside(&path)).unwrap();
        let written = read_or_generate(home.path(), Needed::Sessions);
        assert!(matches!(written, Err(ConfigError::Io { .. })), "{written:?}");
    }
}
