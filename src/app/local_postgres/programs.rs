//! Search for the programs of PostgreSQL.

use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::account::Account;
use super::command::{QUICK_WAIT, run};
use super::error::LocalPostgresError;

/// Least major version that the schema needs.
const MAJOR_MIN: u32 = 14;
/// Usual locations of the programs, searched after `PATH`: a folder, the prefix of a folder in it, the rest of the
/// path.
const USUAL: [(&str, &str, &str); 6] = [
    ("/usr/lib/postgresql", "", "bin"),
    ("/usr", "pgsql-", "bin"),
    ("/usr/libexec", "postgresql", ""),
    ("/opt/homebrew/opt", "postgresql", "bin"),
    ("/usr/local/opt", "postgresql", "bin"),
    ("/Applications/Postgres.app/Contents/Versions", "", "bin"),
];
/// Programs that must be in the folder.
const NEEDED: [&str; 3] = ["postgres", "initdb", "pg_ctl"];

/// Folder of the programs, and the account that runs them.
#[derive(Clone, Debug)]
pub(super) struct Programs {
    folder: PathBuf,
    account: Option<Account>,
}

impl Programs {
    /// Finds the first folder with a fitting version, in `search_path` and then in the usual locations, newest first.
    /// For existing data, exactly the version `wanted` fits, or else any from [`MAJOR_MIN`] on.
    pub(super) async fn find(
        search_path: &[PathBuf],
        account: Option<Account>,
        wanted: Option<(&Path, u32)>,
    ) -> Result<Programs, LocalPostgresError> {
        let mut seen = Vec::new();
        for folder in candidates(search_path) {
            let programs = Programs { folder, account: account.clone() };
            let Some(major) = programs.major().await else { continue };
            if wanted.map_or(major >= MAJOR_MIN, |(_, wanted)| major == wanted) {
                return Ok(programs);
            }
            seen.push(format!("{major} in {}", programs.folder.display()));
        }
        let found = if seen.is_empty() { String::new() } else { format!(" (found: {})", seen.join(", ")) };
        Err(match wanted {
            Some((path, wanted)) => LocalPostgresError::WrongVersion { path: path.to_owned(), wanted, found },
            None => LocalPostgresError::NoPrograms { least: MAJOR_MIN, found },
        })
    }

    /// Returns a command that runs as the account and does not inherit our environment, which may contain secrets.
    pub(super) fn command(&self, program: &str) -> Command {
        let mut command = Command::new(self.folder.join(program));
        command.env_clear().env("PATH", "/usr/local/bin:/usr/bin:/bin").env("LC_ALL", "C");
        command.current_dir("/").stdin(Stdio::null());
        if let Some(account) = &self.account {
            // As root this also drops all supplementary groups.
            command.uid(account.uid).gid(account.gid);
        }
        command
    }

    /// Returns whether the account can enter `folder`.
    pub(super) async fn reach(&self, folder: &Path) -> bool {
        // The child changes its folder after it has changed its user.
        let mut command = self.command("postgres");
        command.arg("--version").current_dir(folder);
        run("postgres", command, "", QUICK_WAIT).await.is_ok()
    }

    async fn major(&self) -> Option<u32> {
        let mut command = self.command("postgres");
        command.arg("--version");
        major_of(&run("postgres", command, "", QUICK_WAIT).await.ok()?)
    }
}

/// Parses a major version: `postgres (PostgreSQL) 15.18 (Debian …)` is 15, `17beta1` is 17.
fn major_of(text: &str) -> Option<u32> {
    let version = text.split_whitespace().find(|word| word.starts_with(|c: char| c.is_ascii_digit()))?;
    version.split(|c: char| !c.is_ascii_digit()).next()?.parse().ok()
}

fn candidates(search_path: &[PathBuf]) -> Vec<PathBuf> {
    let mut folders: Vec<PathBuf> = Vec::new();
    // Distributions link single programs into PATH; the others are where the link leads.
    let linked = search_path.iter().filter_map(|folder| std::fs::canonicalize(folder.join("postgres")).ok());
    folders.extend(linked.filter_map(|program| program.parent().map(Path::to_owned)));
    for (parent, prefix, rest) in USUAL {
        folders.extend(versions(Path::new(parent), prefix).into_iter().map(|folder| folder.join(rest)));
    }
    let mut unique: Vec<PathBuf> = Vec::new();
    for folder in folders {
        if NEEDED.iter().all(|program| folder.join(program).is_file()) && !unique.contains(&folder) {
            unique.push(folder);
        }
    }
    unique
}

/// Returns the folders in `parent` whose name begins with `prefix`, the highest version first.
fn versions(parent: &Path, prefix: &str) -> Vec<PathBuf> {
    let Ok(entries) = std::fs::read_dir(parent) else { return Vec::new() };
    let mut found: Vec<(u32, PathBuf)> = entries
        .flatten()
        .filter_map(|entry| {
            let name = entry.file_name().into_string().ok()?;
            let digits = name.strip_prefix(prefix)?.trim_start_matches('@');
            let major = digits.split(|c: char| !c.is_ascii_digit()).next()?.parse().unwrap_or_default();
            Some((major, entry.path()))
        })
        .collect();
    found.sort_by(|left, right| right.cmp(left));
    found.into_iter().map(|(_, path)| path).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_read() {
        for (text, major) in [
            ("postgres (PostgreSQL) 15.18 (Debian 15.18-0+deb12u1)", Some(15)),
            ("postgres (PostgreSQL) 17beta1", Some(17)),
            ("postgres (PostgreSQL) 9.6.24", Some(9)),
            ("", None),
            ("nonsense", None),
        ] {
            assert_eq!(major_of(text), major, "{text}");
        }
    }

    #[test]
    fn the_newest_folder_comes_first() {
        let dir = tempfile::tempdir().unwrap();
        for name in ["postgresql@9", "postgresql@17", "postgresql@16", "postgresql", "other"] {
            std::fs::create_dir(dir.path().join(name)).unwrap();
        }
        let names: Vec<_> = versions(dir.path(), "postgresql")
            .iter()
            .map(|path| path.file_name().unwrap().to_str().unwrap().to_owned())
            .collect();
        assert_eq!(names, ["postgresql@17", "postgresql@16", "postgresql@9", "postgresql"]);
    }

    #[tokio::test]
    async fn a_missing_version_says_what_was_found() {
        let path = Path::new("/data/postgres");
        let error = Programs::find(&[], None, Some((path, 999))).await.unwrap_err().to_string();
        assert!(error.contains("PostgreSQL 999") && error.contains("/data/postgres"), "{error}");
    }
}
