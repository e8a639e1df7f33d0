//! Section `search`: the embeddings service that the operator may name.

use std::time::Duration;

use config::ValueKind;
use serde::Deserialize;

use super::error::{ConfigError, must};
use super::fields::optional;
use super::layers::{Layer, value_error};
use super::secret::Secret;
use crate::upstream::{Egress, EgressError};

/// Longest name of a model, in bytes.
const MODEL_BYTES_MAX: usize = 200;
/// Longest key, in bytes: it must fit into a header.
const KEY_BYTES_MAX: usize = 4096;

/// Settings of an embeddings service.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EmbeddingsSettings {
    /// Complete URL of the endpoint.
    #[serde(rename = "embeddings_url")]
    pub url: String,
    /// Name of the model; never empty.
    #[serde(rename = "embeddings_model")]
    pub model: String,
    /// Bearer token of the service; `None` for none.
    #[serde(rename = "embeddings_api_key", deserialize_with = "optional")]
    pub api_key: Option<Secret>,
    /// Longest wait of a search for the service; after that the search is ranked without it.
    #[serde(rename = "embeddings_wait")]
    pub wait: Duration,
    /// Timeout of one request.
    #[serde(rename = "embeddings_timeout")]
    pub timeout: Duration,
    /// Most tools in one request.
    #[serde(rename = "embeddings_batch")]
    pub batch: usize,
}

/// Checks the URL of the service. No address is refused, because the operator chooses it.
pub(super) fn check_url(url: &str) -> Result<(), String> {
    let checked = Egress::new(Vec::new(), Vec::new()).check_url(url);
    must(
        matches!(checked, Ok(_) | Err(EgressError::Address { .. })),
        "must be an http:// or https:// URL without a user name or fragment, for example \
         http://ollama:11434/v1/embeddings",
    )
}

pub(super) fn check_model(model: &str) -> Result<(), String> {
    let fits = model.len() <= MODEL_BYTES_MAX && !model.contains(char::is_control);
    must(fits, format!("must have at most {MODEL_BYTES_MAX} bytes and no control characters"))
}

/// Checks the form of the service's key; its strength is not ours to judge.
pub(super) fn check_key(key: &str) -> Result<(), String> {
    let fits = key.len() <= KEY_BYTES_MAX && key.bytes().all(|byte| byte.is_ascii_graphic());
    must(fits, "must be of visible ASCII characters without spaces, at most 4096")
}

/// Refuses a service without a model.
pub(super) fn check_together(settings: &Layer) -> Result<(), ConfigError> {
    let given = |key: &str| {
        let setting = settings.get(key);
        setting.filter(|setting| !matches!(&setting.value, ValueKind::String(text) if text.is_empty()))
    };
    if let Some(url) = given("search.embeddings_url")
        && given("search.embeddings_model").is_none()
    {
        let must = "must come with search.embeddings_model, which is not set";
        return Err(value_error("search.embeddings_url", &url.origin, must));
    }
    Ok(())
}
