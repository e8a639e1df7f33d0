//! Replacement of a client's file, with a copy of the old one beside it.

use std::fs::{self, OpenOptions};
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use chrono::Utc;

/// Returns the text of a file; empty if there is none.
///
/// # Errors
/// The file cannot be read, is no text, is a link to nothing, or belongs to another user than that of the command.
pub(super) fn read(path: &Path) -> io::Result<String> {
    if let (Ok(target), false) = (fs::read_link(path), path.exists()) {
        let target = target.display();
        return Err(io::Error::other(format!(
            "is a link to {target}, which is not there: make it, or remove the link"
        )));
    }
    let is_of_another = |found: fs::Metadata| found.uid() != rustix::process::geteuid().as_raw();
    if path.ancestors().find_map(|path| fs::metadata(path).ok()).is_some_and(is_of_another) {
        return Err(io::Error::other("belongs to another user: run the command as that user, without sudo"));
    }
    match fs::read_to_string(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(String::new()),
        read => read,
    }
}

/// Replaces the text `old` of a file by `new`, and returns the path of the copy of the old one; `None` for a new file.
///
/// Only the owner can read the file and its copy. Behind a link, the file that it leads to is replaced. A reader sees the old
/// text or the new one, whole.
///
/// # Errors
/// The file cannot be written, or has another text than `old` by now.
pub(super) fn replace(path: &Path, old: &str, new: &str) -> io::Result<Option<PathBuf>> {
    let path = fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder)?;
    }
    if read(&path)? != old {
        return Err(io::Error::other("somebody else has just changed it: try again"));
    }
    let beside = |end: String| {
        let mut name = path.file_name().unwrap_or_default().to_owned();
        name.push(end);
        path.with_file_name(name)
    };
    let copy = path.exists().then(|| beside(format!(".{}.bak", Utc::now().format("%Y%m%dT%H%M%S%3f"))));
    if let Some(copy) = &copy {
        write(copy, old)?;
    }
    let next = beside(format!(".{}.tmp", std::process::id()));
    write(&next, new)?;
    fs::rename(&next, &path).inspect_err(|_| drop(fs::remove_file(&next)))?;
    Ok(copy)
}

/// Writes a new file, and deletes it if it cannot be written whole. A file that was there stays.
fn write(path: &Path, text: &str) -> io::Result<()> {
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
    let written = file.write_all(text.as_bytes()).and_then(|()| file.sync_all());
    written.inspect_err(|_| drop(fs::remove_file(path)))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// With sudo the caller's own file would belong to root afterwards.
    #[test]
    fn a_file_of_another_user_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let mut path = folder.path().join("mcp.json");
        fs::write(&path, "old").unwrap();
        assert_eq!(read(&path).unwrap(), "old");
        if rustix::process::geteuid().is_root() {
            std::os::unix::fs::chown(&path, Some(1), None).unwrap();
        } else {
            path = PathBuf::from("/etc/passwd");
        }
        let refused = read(&path).unwrap_err().to_string();
        assert!(refused.contains("belongs to another user"), "{refused}");
    }

    /// Claude Code writes its file while it runs.
    #[test]
    fn a_change_of_somebody_else_is_not_overwritten() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("mcp.json");
        fs::write(&path, "newer").unwrap();
        let refused = replace(&path, "old", "new").unwrap_err().to_string();
        assert!(refused.contains("somebody else has just changed it"), "{refused}");
        assert_eq!(fs::read_to_string(&path).unwrap(), "newer");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }

    #[test]
    fn only_an_own_file_is_deleted() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("mcp.json");
        let taken = folder.path().join(format!("mcp.json.{}.tmp", std::process::id()));
        fs::write(&taken, "of somebody else").unwrap();
        assert_eq!(replace(&path, "", "new").unwrap_err().kind(), ErrorKind::AlreadyExists);
        assert_eq!(fs::read_to_string(&taken).unwrap(), "of somebody else");
        fs::remove_file(&taken).unwrap();
        assert_eq!(replace(&path, "", "new").unwrap(), None);
        assert_eq!((fs::read_to_string(&path).unwrap().as_str(), taken.exists()), ("new", false));
    }
}
