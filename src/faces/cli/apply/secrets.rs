//! Output of the secrets of new keys, which the gateway shows only once.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use serde_json::{Value, json};

use super::super::failure::Failure;
use super::super::output::{self, text};

/// Destination of secrets.
pub(super) struct Secrets<'a> {
    /// File with its path; `None` for standard output.
    file: Option<(File, &'a Path)>,
    /// Whether a secret could not be written. No more keys are made then.
    is_closed: bool,
    given: usize,
}

impl<'a> Secrets<'a> {
    /// Opens a new file that only its owner can read, or standard output if there is no path.
    ///
    /// # Errors
    /// The file exists, or cannot be created.
    pub(super) fn open(path: Option<&'a Path>) -> Result<Secrets<'a>, Failure> {
        let create = |path: &'a Path| {
            let made = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path);
            let unusable =
                |error| Failure::Usage(format!("--keys-out {}: {error}; nothing was done", path.display()));
            made.map(|file| (file, path)).map_err(unusable)
        };
        Ok(Secrets { file: path.map(create).transpose()?, is_closed: false, given: 0 })
    }

    /// Checks that a key may be made.
    ///
    /// # Errors
    /// An earlier secret could not be written.
    pub(super) fn check(&self) -> Result<(), Failure> {
        if self.is_closed {
            let sentence = "not made: its secret could not be written, as that of the key before";
            return Err(Failure::Refused(sentence.to_owned()));
        }
        Ok(())
    }

    /// Writes the secret of a new key at once, since it is not shown again.
    ///
    /// # Errors
    /// The secret cannot be written.
    pub(super) fn give(&mut self, tenant: &str, made: &Value) -> Result<(), Failure> {
        let line = json!({"tenant": tenant, "name": made["name"], "id": made["id"], "key": made["key"]});
        let is_given = match &mut self.file {
            Some((file, _)) => writeln!(file, "{line}").and_then(|()| file.sync_data()).is_ok(),
            None => output::line(&line.to_string()).is_ok(),
        };
        if is_given {
            self.given += 1;
            return Ok(());
        }
        self.is_closed = true;
        let sentence =
            format!("the secret of the key {} could not be written: revoke the key", text(made, "id"));
        Err(Failure::Refused(sentence))
    }

    /// Removes the file if it has no secrets: it would make the next run fail.
    pub(super) fn close(self) {
        if let Some((_, path)) = self.file.filter(|_| self.given == 0 && !self.is_closed) {
            drop(std::fs::remove_file(path));
        }
    }
}
