//! `/settings` of the tenant and `/keys/{id}/settings`.

use std::sync::Arc;

use super::exchange::Exchange;
use super::keys;
use super::params::Params;
use super::show;
use super::show::RestAnswer;
use crate::domain::id::KeyId;

pub(super) async fn of_tenant(exchange: Arc<Exchange>, _: Params) -> RestAnswer {
    read(&exchange, None).await
}

pub(super) async fn of_key(exchange: Arc<Exchange>, _: Params) -> RestAnswer {
    let key = keys::id(&exchange)?;
    read(&exchange, Some(key)).await
}

pub(super) async fn patch_tenant(exchange: Arc<Exchange>) -> RestAnswer {
    patch(&exchange, None).await
}

pub(super) async fn patch_key(exchange: Arc<Exchange>) -> RestAnswer {
    let key = keys::id(&exchange)?;
    patch(&exchange, Some(key)).await
}

async fn read(exchange: &Exchange, key: Option<KeyId>) -> RestAnswer {
    show::ok(&exchange.gateway().tenants.read_settings(exchange.caller(), key).await?)
}

/// Changes settings. The gateway knows their names, so it refuses all others.
async fn patch(exchange: &Exchange, key: Option<KeyId>) -> RestAnswer {
    let mut fields = exchange.any_fields().await?;
    let version = fields.version()?;
    let patch = fields.rest();
    show::ok(&exchange.gateway().tenants.patch_settings(exchange.caller(), key, &patch, version).await?)
}
