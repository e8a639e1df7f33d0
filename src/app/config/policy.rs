//! `policy.file`: the rules of the deployment, read and compiled at the start.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::Deserialize;
use serde_json::Value;

use super::error::ConfigError;
use super::fields::optional;
use crate::domain::policy::{DOCUMENT_BYTES_MAX, PolicyDocument, RuleSet, read_file};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct PolicySection {
    #[serde(deserialize_with = "optional")]
    file: Option<String>,
}

impl PolicySection {
    /// Reads the rules; none without a file.
    ///
    /// # Errors
    /// The file cannot be read, or has a fault. The text names the file, the path in it and what was meant.
    pub(super) fn rules(&self) -> Result<Arc<RuleSet>, ConfigError> {
        let Some(file) = &self.file else { return Ok(Arc::default()) };
        let path = PathBuf::from(file);
        match read(&path) {
            Ok(rules) => Ok(Arc::new(rules)),
            Err(fault) => Err(ConfigError::Policy { path, fault }),
        }
    }
}

fn read(path: &Path) -> Result<RuleSet, String> {
    let file = File::open(path).map_err(|error| format!("cannot be opened: {error}"))?;
    let (mut text, bytes_max) = (String::new(), DOCUMENT_BYTES_MAX as u64);
    let read = file.take(bytes_max + 1).read_to_string(&mut text);
    let bytes = read.map_err(|error| format!("cannot be read: {error}"))?;
    if bytes as u64 > bytes_max {
        return Err(format!("has more than {bytes_max} bytes"));
    }
    let tree = Value::Object(read_file(&text)?);
    let document = PolicyDocument::parse(&tree.to_string()).map_err(|fault| fault.to_string())?;
    match document {
        PolicyDocument { mode: Some(_), .. } => {
            Err("mode is not for this file: set defaults.policy_mode".to_owned())
        }
        PolicyDocument { version: Some(_), .. } => {
            Err("version is not for this file, which has no versions: remove it".to_owned())
        }
        PolicyDocument { rules, .. } => Ok(rules),
    }
}
