//! Password of the private database. Programs of stdio servers run as the gateway's user and reach the
//! database's socket. The file with the password is closed to them.

use std::fs::OpenOptions;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use super::cluster::{Cluster, NAME, small_file};
use super::error::LocalPostgresError;

/// Name of the password file in the data directory.
pub(super) const FILE: &str = "postgres.password";
/// Content of `pg_hba.conf`: every connection over the socket needs the password.
const ACCESS: &str = "local all all scram-sha-256\n";

/// Returns the database's password. A cluster without one, as earlier releases made them, gets one. While
/// such a cluster's server runs, the result is `None`: the cluster gets a password at the next start.
pub(super) async fn settle(
    data_dir: &Path,
    cluster: &Cluster,
    is_running: bool,
) -> Result<Option<String>, LocalPostgresError> {
    let path = data_dir.join(FILE);
    if let Some(known) = small_file(&path)? {
        return Ok(Some(known.trim().to_owned()));
    }
    if is_running {
        return Ok(None);
    }
    let mut bytes = [0; 32];
    getrandom::fill(&mut bytes)
        .map_err(|error| LocalPostgresError::io("made", &path)(std::io::Error::other(error.to_string())))?;
    let password: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    cluster.single(&format!("ALTER ROLE {NAME} PASSWORD '{password}'\n")).await?;
    let access = cluster.path.join("pg_hba.conf");
    std::fs::write(&access, ACCESS).map_err(LocalPostgresError::io("written", &access))?;
    // last, so that an interrupted start does all of this again
    let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path);
    let written = file.and_then(|mut file| file.write_all(password.as_bytes()));
    written.map_err(LocalPostgresError::io("written", &path))?;
    Ok(Some(password))
}
