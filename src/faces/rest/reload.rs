//! `/reload`: settings that change while the gateway runs, for the platform.

use std::sync::Arc;

use serde::Serialize;

use super::exchange::Exchange;
use super::show;
use super::show::RestAnswer;
use crate::gateway::Reread;

#[derive(Serialize)]
struct Reloaded {
    /// Replica whose file was read.
    replica_id: String,
    /// Names of settings with another value in force.
    changed: Vec<String>,
    /// Names of settings that were given another value, which only a restart takes.
    needs_restart: Vec<String>,
}

pub(super) async fn post(exchange: Arc<Exchange>) -> RestAnswer {
    exchange.no_body().await?;
    let gateway = exchange.gateway();
    let Reread { changed, needs_restart } = gateway.upkeep.reload_for(exchange.caller()).await?;
    show::ok(&Reloaded { replica_id: gateway.options.replica.to_string(), changed, needs_restart })
}
