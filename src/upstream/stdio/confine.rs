//! Hides files of the gateway from the programs that it runs: they run as its own user, so file modes do not.
//!
//! This binary starts such a program: it gives up access to the folders for good (Landlock, Linux 5.13 and later),
//! then becomes the program. Landlock can only allow: allowed is everything beside the hidden folders and beside the
//! folders above them. A file that is made later directly in a folder above them is therefore out of reach too.

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Rules for starting programs that must not reach the hidden folders.
#[derive(Clone, Debug)]
pub struct Confinement {
    /// Path of this binary, and its argument that leads to [`become_confined`].
    pub helper: (PathBuf, String),
    /// Hidden folders, absolute and without symbolic links.
    pub hidden: Vec<PathBuf>,
}

impl Confinement {
    /// Returns the helper with all arguments but the program's own.
    pub(super) fn command(&self, program: &str) -> tokio::process::Command {
        let (helper, argument) = &self.helper;
        let mut command = tokio::process::Command::new(helper);
        command.arg(argument);
        for hidden in &self.hidden {
            command.arg("--hide").arg(hidden);
        }
        command.arg("--").arg(program);
        command
    }
}

/// Gives up access to `hidden`, then becomes the program. Returns only on failure, with a sentence for the server's log.
///
/// # Errors
/// The folders cannot be hidden, or the program cannot be started.
pub fn become_confined(hidden: &[PathBuf], argv: &[OsString]) -> String {
    let Some((program, arguments)) = argv.split_first() else {
        return "its entry names no program".to_owned();
    };
    if let Err(error) = confine(hidden) {
        return format!("mcpproxy: the gateway's files cannot be hidden from this program: {error}");
    }
    let error = Command::new(program).args(arguments).exec();
    format!("mcpproxy: {}", not_started(program, &error))
}

/// Returns why a program cannot be started, and what to do about one that is not there.
pub(super) fn not_started(program: &OsStr, error: &io::Error) -> String {
    let program = program.to_string_lossy();
    match error.kind() {
        io::ErrorKind::NotFound => format!(
            "it cannot be started: {program} was not found; install it, or give its whole path, or a PATH that has it in env \
             of its entry"
        ),
        kind => format!("it cannot be started: {program}: {kind}"),
    }
}

/// Returns whether the kernel can hide files from programs.
pub fn can_confine() -> bool {
    #[cfg(target_os = "linux")]
    {
        use landlock::{CompatLevel, Compatible, Ruleset, RulesetAttr};
        let ruleset = Ruleset::default().set_compatibility(CompatLevel::HardRequirement);
        ruleset.handle_access(landlock::AccessFs::ReadFile).and_then(Ruleset::create).is_ok()
    }
    #[cfg(not(target_os = "linux"))]
    false
}

/// Gives up access to these folders. Without Landlock in the kernel it does nothing; the gateway reports that at its
/// start.
#[cfg(target_os = "linux")]
fn confine(hidden: &[PathBuf]) -> Result<(), String> {
    use landlock::{ABI, Access, AccessFs, PathBeneath, PathFd};
    use landlock::{CompatLevel, Compatible, Ruleset, RulesetAttr, RulesetCreatedAttr};
    // names may be listed everywhere, and programs run: nothing secret is in either
    let access = AccessFs::from_all(ABI::V3) & !(AccessFs::Execute | AccessFs::ReadDir);
    let sentence = |error: landlock::RulesetError| error.to_string();
    let ruleset = Ruleset::default().set_compatibility(CompatLevel::BestEffort);
    let mut ruleset = ruleset.handle_access(access).and_then(Ruleset::create).map_err(sentence)?;
    for path in beside(hidden)? {
        // it may not exist any more, or be closed to this user anyway
        let Ok(opened) = PathFd::new(&path) else { continue };
        ruleset = ruleset.add_rule(PathBeneath::new(opened, access)).map_err(sentence)?;
    }
    ruleset.restrict_self().map(drop).map_err(sentence)
}

#[cfg(not(target_os = "linux"))]
fn confine(_hidden: &[PathBuf]) -> Result<(), String> {
    Ok(())
}

/// Returns the paths beside the hidden folders and beside all folders above them. Symbolic links are left out, since
/// their targets count.
fn beside(hidden: &[PathBuf]) -> Result<Vec<PathBuf>, String> {
    let leads_there = |path: &Path| hidden.iter().any(|hidden| hidden.starts_with(path));
    let mut above: Vec<&Path> = hidden.iter().flat_map(|hidden| hidden.ancestors().skip(1)).collect();
    above.sort_unstable();
    above.dedup();
    let is_hidden = |path: &Path| hidden.iter().any(|hidden| path.starts_with(hidden));
    let mut beside = Vec::new();
    for folder in above.into_iter().filter(|folder| !is_hidden(folder)) {
        let unreadable = |error: io::Error| format!("{} cannot be listed ({error})", folder.display());
        for entry in std::fs::read_dir(folder).map_err(unreadable)? {
            let entry = entry.map_err(unreadable)?;
            let is_link = entry.file_type().is_ok_and(|kind| kind.is_symlink());
            let path = entry.path();
            if !is_link && !leads_there(&path) {
                beside.push(path);
            }
        }
    }
    Ok(beside)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_but_the_hidden_and_the_way_there_stands_beside_them() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().canonicalize().unwrap();
        for path in ["a/b/secret/deep", "a/b/open", "a/c", "d/secret2", "e"] {
            std::fs::create_dir_all(root.join(path)).unwrap();
        }
        std::os::unix::fs::symlink(root.join("a/b/secret"), root.join("a/way")).unwrap();
        let hidden = [root.join("a/b/secret"), root.join("d/secret2"), root.join("a/b/secret/deep")];
        let all = beside(&hidden).unwrap();
        let mut own: Vec<_> = all.iter().filter_map(|path| path.strip_prefix(&root).ok()).collect();
        own.sort();
        assert_eq!(own, ["a/b/open", "a/c", "e"].map(Path::new));
        assert!(all.iter().any(|path| path == Path::new("/usr")) && !all.contains(&root));
    }
}
