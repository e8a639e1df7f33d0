//! Locations of the cluster and its socket.

use std::fs::{DirBuilder, Metadata};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt, chown, symlink};
use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};

use super::account::Account;
use super::error::LocalPostgresError;
use super::programs::Programs;

/// Longest socket folder, in bytes: with the file's name, it must fit into the 104 bytes of a socket address.
const SOCKET_FOLDER_BYTES_MAX: usize = 85;

/// Folders of the system, exchanged by tests.
#[derive(Clone, Debug)]
pub(super) struct System {
    /// Parent folder for a cluster whose user cannot reach the data directory.
    pub(super) state: PathBuf,
    /// Parent folder for a socket whose path would be too long.
    pub(super) temporary: PathBuf,
}

impl System {
    pub(super) fn usual() -> System {
        System { state: PathBuf::from("/var/lib"), temporary: std::env::temp_dir() }
    }
}

/// Returns the cluster that `data_dir/postgres` is or links to; `None` if there is neither.
pub(super) fn existing(data_dir: &Path) -> Option<PathBuf> {
    let link = data_dir.join("postgres");
    match std::fs::read_link(&link) {
        Ok(target) => Some(data_dir.join(target)),
        Err(_) => link.exists().then_some(link),
    }
}

/// Returns the cluster's folder for a first start. It is in the data directory, if the server's user can get there.
/// Otherwise it is in a folder of the system, and the data directory then links to it.
pub(super) async fn first(
    data_dir: &Path,
    programs: &Programs,
    system: &System,
) -> Result<PathBuf, LocalPostgresError> {
    let link = data_dir.join("postgres");
    if programs.reach(data_dir).await {
        return Ok(link);
    }
    let home = system.state.join(format!("mcpproxy-{}", short_name(data_dir)));
    let cluster = home.join("postgres");
    if cluster.exists() {
        return Err(LocalPostgresError::LeftBehind { cluster, link });
    }
    let made = DirBuilder::new().recursive(true).mode(0o755).create(&home);
    made.map_err(LocalPostgresError::io("made", &home))?;
    // Linked before there is a cluster, so that an interrupted first start finds its way back.
    symlink(&cluster, &link).map_err(LocalPostgresError::io("made", &link))?;
    Ok(cluster)
}

/// Creates the folder of the socket, which only the server's user may enter.
pub(super) fn socket_folder(
    cluster: &Path,
    account: Option<&Account>,
    system: &System,
) -> Result<PathBuf, LocalPostgresError> {
    let near = cluster.with_file_name("run");
    let folder = if near.as_os_str().len() <= SOCKET_FOLDER_BYTES_MAX && near.to_str().is_some() {
        near
    } else {
        system.temporary.join(format!("mcpproxy-{}", short_name(cluster)))
    };
    private_folder(&folder, account)?;
    Ok(folder)
}

/// Creates a folder for the account alone, or checks that an existing one is.
pub(super) fn private_folder(path: &Path, account: Option<&Account>) -> Result<(), LocalPostgresError> {
    match DirBuilder::new().mode(0o700).create(path) {
        Ok(()) => {
            if let Some(account) = account {
                let given = chown(path, Some(account.uid), Some(account.gid));
                given.map_err(LocalPostgresError::io("given to the server's user", path))?;
            }
            Ok(())
        }
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            let found = std::fs::symlink_metadata(path).map_err(LocalPostgresError::io("read", path))?;
            if is_private(path, &found, account) {
                return Ok(());
            }
            Err(LocalPostgresError::ForeignFolder { path: path.to_owned() })
        }
        Err(error) => Err(LocalPostgresError::io("made", path)(error)),
    }
}

fn is_private(path: &Path, found: &Metadata, account: Option<&Account>) -> bool {
    let owned = match account {
        Some(account) => found.uid() == account.uid,
        // A folder that is closed to others and open to us is ours.
        None => std::fs::read_dir(path).is_ok(),
    };
    found.is_dir() && owned && found.permissions().mode() & 0o077 == 0
}

/// Returns a short name that is always the same for a path.
fn short_name(path: &Path) -> String {
    let digest = Sha256::digest(path.as_os_str().as_encoded_bytes());
    digest.iter().take(8).map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_path_gets_a_short_socket_folder() {
        let dir = tempfile::tempdir().unwrap();
        let system = System { state: dir.path().to_owned(), temporary: dir.path().to_owned() };
        let deep = dir.path().join("d".repeat(90));
        std::fs::create_dir(&deep).unwrap();
        let far = socket_folder(&deep.join("postgres"), None, &system).unwrap();
        assert_eq!(far.parent().unwrap(), dir.path());
        assert_eq!(socket_folder(&deep.join("postgres"), None, &system).unwrap(), far);
        let near = socket_folder(&dir.path().join("postgres"), None, &system).unwrap();
        assert_eq!(near, dir.path().join("run"));
    }

    #[test]
    fn a_folder_that_others_can_enter_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let system = System { state: dir.path().to_owned(), temporary: dir.path().to_owned() };
        let run = dir.path().join("run");
        let refused = || {
            let error = socket_folder(&dir.path().join("postgres"), None, &system).unwrap_err();
            assert!(matches!(&error, LocalPostgresError::ForeignFolder { path } if *path == run), "{error}");
        };
        std::fs::create_dir(&run).unwrap();
        std::fs::set_permissions(&run, PermissionsExt::from_mode(0o755)).unwrap();
        refused();
        std::fs::remove_dir(&run).unwrap();
        symlink("/tmp", &run).unwrap();
        refused();
    }
}
