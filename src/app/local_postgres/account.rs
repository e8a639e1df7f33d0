//! Account that runs the server: PostgreSQL refuses to run as root.

use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::Command;

use super::command::{QUICK_WAIT, run};
use super::error::LocalPostgresError;

/// Users that root may run the server as; the first that exists is taken.
const USERS: [&str; 2] = ["postgres", "nobody"];

/// A user of this machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Account {
    pub(super) uid: u32,
    pub(super) gid: u32,
}

/// Chooses the account for the server. `None` is our own account, unless we are root. Existing data decide by their
/// owner.
pub(super) async fn choose(cluster: &Path) -> Result<Option<Account>, LocalPostgresError> {
    let mut id = Command::new("id");
    id.arg("-u").env_clear().env("PATH", "/usr/bin:/bin");
    if run("id", id, "", QUICK_WAIT).await?.trim() != "0" {
        return Ok(None);
    }
    if let Ok(found) = std::fs::metadata(cluster)
        && found.uid() != 0
    {
        return Ok(Some(Account { uid: found.uid(), gid: found.gid() }));
    }
    let path = Path::new("/etc/passwd");
    let passwd = std::fs::read_to_string(path).map_err(LocalPostgresError::io("read", path))?;
    let account = USERS.iter().find_map(|user| parse(&passwd, user));
    account.map(Some).ok_or(LocalPostgresError::NoAccount)
}

/// Finds a user in the text of `/etc/passwd`; never root under another name.
fn parse(passwd: &str, user: &str) -> Option<Account> {
    let fields = passwd.lines().map(|line| line.split(':')).find_map(|mut fields| {
        if fields.next() != Some(user) {
            return None;
        }
        let mut numbers = fields.skip(1).map(str::parse::<u32>);
        Some(Account { uid: numbers.next()?.ok()?, gid: numbers.next()?.ok()? })
    });
    fields.filter(|account| account.uid != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn users_are_found() {
        let passwd = "root:x:0:0::/:/bin/sh\npostgresql:x:1:1:\nbroken:x\ntoor:x:0:0:\npostgres:x:101:104:P,,,:/v:/b\n";
        assert_eq!(parse(passwd, "postgres"), Some(Account { uid: 101, gid: 104 }));
        for user in ["nobody", "broken", "toor", "root", ""] {
            assert_eq!(parse(passwd, user), None, "{user}");
        }
    }
}
