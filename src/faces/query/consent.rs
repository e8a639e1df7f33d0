//! Filters of permission requests.

use super::params::Params;
use crate::domain::id::{KeyId, split_canonical};
use crate::domain::risk::RiskLevel;
use crate::gateway::GatewayError;
use crate::store::ConsentFilter;

/// Returns the filter that `tool`, `server`, `key`, `owner` and `risk` ask for: requests of any state, the newest first.
///
/// # Errors
/// [`GatewayError::Invalid`] for a value that cannot be read.
pub(in crate::faces) fn filter(params: &Params) -> Result<ConsentFilter, GatewayError> {
    let text = |name: &str| params.text(name).map(str::to_owned);
    // a tool's canonical name says its server too
    let (server, tool) = match params.text("tool").and_then(split_canonical) {
        Some((server, tool)) if params.text("server").is_none_or(|given| given == server) => {
            (Some(server.to_owned()), Some(tool.to_owned()))
        }
        _ => (text("server"), text("tool")),
    };
    let key = params.id("key")?;
    Ok(ConsentFilter {
        tool,
        server,
        key: key.map(|key| Some(KeyId(key))),
        owner: text("owner"),
        risk: params.one_of("risk", &RiskLevel::ALL)?,
        ..ConsentFilter::default()
    })
}
