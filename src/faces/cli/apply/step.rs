//! Step of `mcpproxy apply`: one request that changes something, and the lines that show it beforehand.

use http::Method;
use serde_json::{Map, Value};

use super::super::client::{ApiAnswer, ApiClient};
use super::super::failure::Failure;

/// Effect of a step: a new thing, or a change of an existing one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mark {
    Make,
    Change,
}

/// Routes that a step's request goes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum StepRoom {
    /// Routes of the platform.
    Platform,
    /// Routes of the tenant.
    Tenant,
}

/// Change of one thing by one request.
pub(super) struct Step {
    pub(super) mark: Mark,
    /// Path of the thing: `acme`, `acme/servers/github`.
    pub(super) place: String,
    /// Changes, one per line, without credentials.
    pub(super) lines: Vec<String>,
    pub(super) room: StepRoom,
    pub(super) method: Method,
    pub(super) path: Vec<String>,
    pub(super) body: Option<Map<String, Value>>,
}

impl Step {
    /// Returns the lines that show the step.
    pub(super) fn shown(&self) -> Vec<String> {
        let mark = if self.mark == Mark::Make { '+' } else { '~' };
        self.lines.iter().map(|line| format!("{mark} {} {line}", self.place).trim_end().to_owned()).collect()
    }

    /// Returns whether the response has the secret of a new key.
    pub(super) fn makes_key(&self) -> bool {
        self.mark == Mark::Make && self.path.first().is_some_and(|first| first == "keys")
    }

    /// Sends the request.
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
