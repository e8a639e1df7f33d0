//! One request that changes something, and how it is shown beforehand.

use http::Method;
use serde_json::{Map, Value};

use super::super::client::{ApiAnswer, ApiClient};
use super::super::failure::Failure;

/// Whether a step makes something or changes what is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mark {
    Make,
    Change,
}

/// Where a step's request goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum StepRoom {
    /// The platform's own routes.
    Platform,
    /// Those of the tenant.
    Tenant,
}

/// One change.
pub(super) struct Step {
    pub(super) mark: Mark,
    /// What it is about: `acme`, `acme/servers/github`.
    pub(super) place: String,
    /// What changes, a line each; never a credential.
    pub(super) lines: Vec<String>,
    pub(super) room: StepRoom,
    pub(super) method: Method,
    pub(super) path: Vec<String>,
    pub(super) body: Option<Map<String, Value>>,
}

impl Step {
    /// Its lines as they are shown.
    pub(super) fn shown(&self) -> Vec<String> {
        let mark = if self.mark == Mark::Make { '+' } else { '~' };
        self.lines.iter().map(|line| format!("{mark} {} {line}", self.place).trim_end().to_owned()).collect()
    }

    /// Whether its answer has a new key's secret.
    pub(super) fn makes_key(&self) -> bool {
        self.mark == Mark::Make && self.path.first().is_some_and(|first| first == "keys")
    }

    /// Does it.
    pub(super) async fn run(&self, platform: &ApiClient, tenant: &ApiClient) -> Result<ApiAnswer, Failure> {
        let client = if self.room == StepRoom::Platform { platform } else { tenant };
        let path: Vec<&str> = self.path.iter().map(String::as_str).collect();
        match &self.body {
            Some(body) => {
                client.send(self.method.clone(), &path, Value::Object(body.clone()).to_string()).await
            }
            None => client.act(self.method.clone(), &path).await,
        }
    }
}
