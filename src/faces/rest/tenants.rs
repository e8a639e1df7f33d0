//! `/tenants`, for the platform.

use std::sync::Arc;

use serde::Serialize;
use uuid::Uuid;

use super::cursor;
use super::exchange::Exchange;
use super::fields::Nulls;
use super::params::Params;
use super::show;
use super::show::{RestAnswer, RouteAnswer};
use crate::domain::id::is_name;
use crate::gateway::{GatewayError, QuotaView};
use crate::store::{Suspend, Tenant};

#[derive(Serialize)]
struct Shown<'a> {
    name: &'a str,
    id: Uuid,
    created_at: String,
    suspended_at: Option<String>,
    /// Quotas; only in answers about a single tenant.
    #[serde(skip_serializing_if = "Option::is_none")]
    quotas: Option<ShownQuotas>,
}

fn shown(tenant: &Tenant) -> Shown<'_> {
    Shown {
        name: &tenant.name,
        id: tenant.id,
        created_at: show::time(tenant.created_at),
        suspended_at: tenant.suspended_at.map(show::time),
        quotas: None,
    }
}

#[derive(Serialize)]
struct ShownQuotas {
    servers: Quota,
    tools: Quota,
    definition_bytes: Quota,
    keys: Quota,
    streams: Quota,
}

/// Quota, the level that sets it, and the amount used.
#[derive(Serialize)]
struct Quota {
    value: i64,
    origin: &'static str,
    used: i64,
}

impl ShownQuotas {
    fn of(view: &QuotaView, streams: usize) -> ShownQuotas {
        let QuotaView { own, quotas, usage } = view;
        let quota = |own: Option<i64>, value, used| {
            let origin = if own.is_some() { "tenant" } else { "deployment" };
            Quota { value, origin, used }
        };
        ShownQuotas {
            servers: quota(own.servers, quotas.servers, usage.servers),
            tools: quota(own.tools, quotas.tools, usage.tools),
            definition_bytes: quota(own.definition_bytes, quotas.definition_bytes, usage.definition_bytes),
            keys: quota(own.keys, quotas.keys, usage.keys),
            streams: quota(own.streams, quotas.streams, i64::try_from(streams).unwrap_or(i64::MAX)),
        }
    }
}

/// Returns a tenant with its quotas.
async fn whole<'a>(exchange: &Exchange, tenant: &'a Tenant) -> Result<Shown<'a>, GatewayError> {
    let view = exchange.gateway().tenants.tenant_quotas(exchange.caller(), tenant).await?;
    let quotas = ShownQuotas::of(&view, exchange.streams_of(tenant.tenant_id()));
    Ok(Shown { quotas: Some(quotas), ..shown(tenant) })
}

/// Returns the name of a tenant in the path. A text that cannot be a name is not found.
fn name(exchange: &Exchange) -> Result<&str, GatewayError> {
    let name = exchange.segment("name");
    if is_name(name) { Ok(name) } else { Err(GatewayError::NotFound("tenant")) }
}

pub(super) async fn list(exchange: Arc<Exchange>, params: Params) -> RestAnswer {
    let page = params.page()?;
    let after = page.after(String::new(), |key| is_name(key).then(|| key.to_owned()))?;
    let tenants = exchange.gateway().tenants.list_tenants(exchange.caller(), &after, page.fetch()).await?;
    cursor::list(&tenants, &page, |tenant| tenant.name.clone(), |tenant| Ok(shown(tenant)))
}

pub(super) async fn create(exchange: Arc<Exchange>) -> RestAnswer {
    let name = exchange.fields(&["name"], Nulls::Absent).await?.needed_text("name")?;
    let tenant = exchange.gateway().tenants.create_tenant(exchange.caller(), &name).await?;
    show::created(&whole(&exchange, &tenant).await?)
}

pub(super) async fn get(exchange: Arc<Exchange>, _: Params) -> RestAnswer {
    let tenant = exchange.gateway().tenants.get_tenant(exchange.caller(), name(&exchange)?).await?;
    show::ok(&whole(&exchange, &tenant).await?)
}

pub(super) async fn update(exchange: Arc<Exchange>) -> RestAnswer {
    let quotas = exchange.fields(&["quotas"], Nulls::Kept).await?.object("quotas")?.unwrap_or_default();
    let tenant =
        exchange.gateway().tenants.patch_quotas(exchange.caller(), name(&exchange)?, &quotas).await?;
    show::ok(&whole(&exchange, &tenant).await?)
}

pub(super) async fn suspend(exchange: Arc<Exchange>) -> RestAnswer {
    set_suspended(&exchange, Suspend::Yes).await
}

pub(super) async fn resume(exchange: Arc<Exchange>) -> RestAnswer {
    set_suspended(&exchange, Suspend::No).await
}

async fn set_suspended(exchange: &Exchange, suspend: Suspend) -> RestAnswer {
    exchange.no_body().await?;
    let tenant =
        exchange.gateway().tenants.suspend_tenant(exchange.caller(), name(exchange)?, suspend).await?;
    show::ok(&whole(exchange, &tenant).await?)
}

pub(super) async fn delete(exchange: Arc<Exchange>) -> RestAnswer {
    exchange.no_body().await?;
    exchange.gateway().tenants.delete_tenant(exchange.caller(), name(&exchange)?).await?;
    Ok(RouteAnswer::Nothing)
}
