//! `/status`: who is asking, and which replica answers.

use std::sync::Arc;

use serde::Serialize;

use super::exchange::Exchange;
use super::params::Params;
use super::route::Answer;
use super::show;
use crate::domain::id::KeyId;
use crate::gateway::Readiness;

#[derive(Serialize)]
struct Status<'a> {
    version: &'static str,
    replica_id: String,
    /// The tenant's name; `platform` for a platform key that names none.
    tenant: &'a str,
    role: &'static str,
    key_id: Option<KeyId>,
    owner: &'a str,
    ready: bool,
    /// The deployment's switch of `/mcp/direct`.
    direct_enabled: bool,
    /// Whether this key has it.
    direct_endpoint: bool,
}

pub(super) async fn get(exchange: Arc<Exchange>, _: Params) -> Answer {
    let caller = exchange.caller();
    let gateway = exchange.gateway();
    show::ok(&Status {
        version: env!("CARGO_PKG_VERSION"),
        replica_id: gateway.replica().to_string(),
        tenant: caller.tenant_name(),
        role: caller.role.as_str(),
        key_id: caller.key,
        owner: &caller.owner,
        ready: matches!(gateway.readiness(), Readiness::Ready | Readiness::Degraded),
        direct_enabled: exchange.faces.options.direct_enabled,
        direct_endpoint: exchange.faces.has_direct(caller),
    })
}
