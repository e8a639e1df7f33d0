//! Section `search`: the embeddings service that the operator may name.

use std::time::Duration;

use config::ValueKind;
use serde::Deserialize;

use super::error::ConfigError;
use super::fields::{milliseconds, seconds};
use super::layers::{LayeredSettings, value_error};
use super::secret::Secret;
use crate::upstream::{Egress, EgressError};

/// Longest name of a model, in bytes.
const MODEL_BYTES_MAX: usize = 200;
/// Longest key, in bytes: it must fit into a header.
const KEY_BYTES_MAX: usize = 4096;

/// Settings of an embeddings service.
#[derive(Clone, Debug)]
pub struct EmbeddingsSettings {
    /// Complete URL of the endpoint.
    pub url: String,
    /// Name of the model; never empty.
    pub model: String,
    /// Bearer token of the service; `None` for none.
    pub api_key: Option<Secret>,
    /// Longest wait of a search for the service; after that the search is ranked without it.
    pub wait: Duration,
    /// Timeout of one request.
    pub timeout: Duration,
    /// Most tools in one request.
    pub batch: usize,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct SearchSection {
    embeddings_url: String,
    embeddings_model: String,
    embeddings_api_key: Secret,
    #[serde(rename = "embeddings_wait_ms", deserialize_with = "milliseconds")]
    embeddings_wait: Duration,
    #[serde(rename = "embeddings_timeout_s", deserialize_with = "seconds")]
    embeddings_timeout: Duration,
    embeddings_batch: usize,
}

impl SearchSection {
    /// Returns the service; `None` if no URL is set.
    pub(super) fn embeddings(self) -> Option<EmbeddingsSettings> {
        (!self.embeddings_url.is_empty()).then(|| EmbeddingsSettings {
            url: self.embeddings_url,
            model: self.embeddings_model,
            api_key: Some(self.embeddings_api_key).filter(|key| !key.expose().is_empty()),
            wait: self.embeddings_wait,
            timeout: self.embeddings_timeout,
            batch: self.embeddings_batch,
        })
    }
}

/// Checks the URL of the service. No address is refused, because the operator chooses it.
pub(super) fn check_url(url: &str) -> Result<(), String> {
    match Egress::new(Vec::new(), Vec::new()).check_url(url) {
        Ok(_) | Err(EgressError::Address { .. }) => Ok(()),
        Err(_) => Err("must be an http:// or https:// URL without a user name or fragment, for example \
                       http://ollama:11434/v1/embeddings"
            .to_owned()),
    }
}

pub(super) fn check_model(model: &str) -> Result<(), String> {
    if model.len() <= MODEL_BYTES_MAX && !model.contains(char::is_control) {
        return Ok(());
    }
    Err(format!("must have at most {MODEL_BYTES_MAX} bytes and no control characters"))
}

/// Checks the form of the service's key; its strength is not ours to judge.
pub(super) fn check_key(key: &str) -> Result<(), String> {
    if key.len() <= KEY_BYTES_MAX && key.bytes().all(|byte| byte.is_ascii_graphic()) {
        return Ok(());
    }
    Err("must be of visible ASCII characters without spaces, at most 4096".to_owned())
}

/// Refuses a service without a model.
pub(super) fn check_together(settings: &LayeredSettings) -> Result<(), ConfigError> {
    let given = |key: &str| {
        let setting = settings.known().get(key);
        setting.filter(|setting| !matches!(&setting.value, ValueKind::String(text) if text.is_empty()))
    };
    if let Some(url) = given("search.embeddings_url")
        && given("search.embeddings_model").is_none()
    {
        let must = "must come with search.embeddings_model, which is not set".to_owned();
        return Err(value_error("search.embeddings_url", &url.origin, must));
    }
    Ok(())
}
