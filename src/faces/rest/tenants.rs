//! `/tenants`, for the platform.

use std::sync::Arc;

use serde::Serialize;
use uuid::Uuid;

use super::cursor;
use super::exchange::Exchange;
use super::fields::Nulls;
use super::params::Params;
use super::route::Answer;
use super::show;
use crate::domain::id::is_name;
use crate::gateway::GatewayError;
use crate::store::Tenant;

#[derive(Serialize)]
struct Shown<'a> {
    name: &'a str,
    id: Uuid,
    created_at: String,
}

fn shown(tenant: &Tenant) -> Shown<'_> {
    Shown { name: &tenant.name, id: tenant.id, created_at: show::time(tenant.created_at) }
}

/// What cannot be a name is no tenant's.
fn name(exchange: &Exchange) -> Result<&str, GatewayError> {
    let name = exchange.segment("name");
    if is_name(name) { Ok(name) } else { Err(GatewayError::NotFound("tenant")) }
}

pub(super) async fn list(exchange: Arc<Exchange>, params: Params) -> Answer {
    let page = params.page()?;
    let after = page.after(String::new(), |key| is_name(key).then(|| key.to_owned()))?;
    let tenants = exchange.gateway().list_tenants(exchange.caller(), &after, page.fetch()).await?;
    cursor::list(&tenants, &page, |tenant| tenant.name.clone(), |tenant| Ok(shown(tenant)))
}

pub(super) async fn create(exchange: Arc<Exchange>) -> Answer {
    let name = exchange.fields(&["name"], Nulls::Absent)?.needed_text("name")?;
    let tenant = exchange.gateway().create_tenant(exchange.caller(), &name).await?;
    show::created(&shown(&tenant))
}

pub(super) async fn get(exchange: Arc<Exchange>, _: Params) -> Answer {
    let tenant = exchange.gateway().get_tenant(exchange.caller(), name(&exchange)?).await?;
    show::ok(&shown(&tenant))
}

pub(super) async fn delete(exchange: Arc<Exchange>) -> Answer {
    exchange.no_body()?;
    exchange.gateway().delete_tenant(exchange.caller(), name(&exchange)?).await?;
    Ok(show::nothing())
}
