//! `/issuers`, for the platform: identity providers whose tokens are accepted, and the tenants of their people.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::cursor;
use super::exchange::Exchange;
use super::fields::{Fields, Nulls};
use super::params::Params;
use super::show;
use super::show::{RestAnswer, RouteAnswer};
use crate::domain::id::is_name;
use crate::gateway::{FindingGrade, GatewayError, IssuerRequest};
use crate::store::{Issuer, IssuerAssignment};

/// Fields of a request to create an issuer.
const CREATED: [&str; 12] = [
    "name",
    "issuer",
    "audiences",
    "host",
    "algorithms",
    "token_types",
    "advertised_scopes",
    "tenant",
    "subject_claim",
    "owner_claim",
    "tenant_claim",
    "jwks_uri",
];
/// Fields of a request to change an issuer.
const CHANGED: [&str; 11] = [
    "audiences",
    "host",
    "algorithms",
    "token_types",
    "advertised_scopes",
    "tenant",
    "subject_claim",
    "owner_claim",
    "tenant_claim",
    "jwks_uri",
    "version",
];

#[derive(Serialize)]
struct ShownIssuer<'a> {
    name: &'a str,
    id: Uuid,
    issuer: &'a str,
    audiences: &'a [String],
    host: Option<&'a str>,
    algorithms: &'a [String],
    /// Accepted kinds of tokens; null for all.
    token_types: Option<&'a [String]>,
    advertised_scopes: &'a [String],
    /// Tenant of all its people; null if assignments decide.
    tenant: Option<&'a str>,
    subject_claim: &'a str,
    owner_claim: Option<&'a str>,
    tenant_claim: Option<&'a str>,
    jwks_uri: Option<&'a str>,
    keys_fetched_at: Option<String>,
    keys_error: Option<&'a str>,
    created_at: String,
    version: i64,
}

fn shown(issuer: &Issuer) -> ShownIssuer<'_> {
    ShownIssuer {
        name: &issuer.name,
        id: issuer.id,
        issuer: &issuer.issuer,
        audiences: &issuer.audiences,
        host: issuer.host.as_deref(),
        algorithms: &issuer.algorithms,
        token_types: issuer.token_types.as_deref(),
        advertised_scopes: &issuer.advertised_scopes,
        tenant: issuer.tenant.as_deref(),
        subject_claim: &issuer.subject_claim,
        owner_claim: issuer.owner_claim.as_deref(),
        tenant_claim: issuer.tenant_claim.as_deref(),
        jwks_uri: issuer.jwks_uri.as_deref(),
        keys_fetched_at: issuer.jwks_fetched_at.map(show::time),
        keys_error: issuer.jwks_error.as_deref(),
        created_at: show::time(issuer.created_at),
        version: issuer.version,
    }
}

/// Assignment of people to a tenant.
#[derive(Serialize)]
struct ShownAssignment<'a> {
    claim: &'a str,
    value: &'a str,
    /// Name of the tenant; null for a deleted one.
    tenant: Option<&'a str>,
}

#[derive(Serialize)]
struct ShownAssignments<'a> {
    /// Version of the issuer, which each change of the assignments raises.
    version: i64,
    items: Vec<ShownAssignment<'a>>,
}

/// Finding of a check.
#[derive(Serialize)]
struct ShownFinding<'a> {
    check: &'a str,
    result: FindingGrade,
    says: &'a str,
}

#[derive(Serialize)]
struct ShownFindings<'a> {
    checks: Vec<ShownFinding<'a>>,
}

/// Assignment in a request.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Assigned {
    claim: Option<String>,
    value: String,
    tenant: String,
}

/// Returns the name of an issuer in the path. A text that cannot be a name is not found.
fn name(exchange: &Exchange) -> Result<&str, GatewayError> {
    let name = exchange.segment("name");
    if is_name(name) { Ok(name) } else { Err(GatewayError::NotFound("issuer")) }
}

fn request(fields: &mut Fields) -> Result<IssuerRequest, GatewayError> {
    Ok(IssuerRequest {
        host: fields.nullable_text("host")?,
        tenant: fields.nullable_text("tenant")?,
        audiences: fields.texts("audiences")?,
        algorithms: fields.texts("algorithms")?,
        token_types: fields.nullable_texts("token_types")?,
        advertised_scopes: fields.texts("advertised_scopes")?,
        subject_claim: fields.nullable_text("subject_claim")?,
        owner_claim: fields.nullable_text("owner_claim")?,
        tenant_claim: fields.nullable_text("tenant_claim")?,
        jwks_uri: fields.nullable_text("jwks_uri")?,
        version: fields.version()?,
    })
}

pub(super) async fn list(exchange: Arc<Exchange>, params: Params) -> RestAnswer {
    let page = params.page()?;
    let after = page.after(String::new(), |key| is_name(key).then(|| key.to_owned()))?;
    let issuers = exchange.gateway().tenants.list_issuers(exchange.caller(), &after, page.fetch()).await?;
    cursor::list(&issuers, &page, |issuer| issuer.name.clone(), |issuer| Ok(shown(issuer)))
}

pub(super) async fn create(exchange: Arc<Exchange>) -> RestAnswer {
    let mut fields = exchange.fields(&CREATED, Nulls::Absent).await?;
    let named = (fields.needed_text("name")?, fields.needed_text("issuer")?);
    let request = request(&mut fields)?;
    let made = exchange.gateway().tenants.create_issuer(exchange.caller(), named, request).await?;
    show::created(&shown(&made))
}

pub(super) async fn get(exchange: Arc<Exchange>, _: Params) -> RestAnswer {
    show::ok(&shown(&exchange.gateway().tenants.get_issuer(exchange.caller(), name(&exchange)?).await?))
}

pub(super) async fn update(exchange: Arc<Exchange>) -> RestAnswer {
    let mut fields = exchange.fields(&CHANGED, Nulls::Kept).await?;
    let request = request(&mut fields)?;
    let tenants = &exchange.gateway().tenants;
    show::ok(&shown(&tenants.update_issuer(exchange.caller(), name(&exchange)?, request).await?))
}

pub(super) async fn remove(exchange: Arc<Exchange>) -> RestAnswer {
    exchange.no_body().await?;
    exchange.gateway().tenants.delete_issuer(exchange.caller(), name(&exchange)?).await?;
    Ok(RouteAnswer::Nothing)
}

/// Checks an issuer. The token of the body gets into no record: see [`super::record`].
pub(super) async fn check(exchange: Arc<Exchange>) -> RestAnswer {
    let token = match exchange.raw_body() {
        Some("") => None,
        _ => exchange.fields(&["token"], Nulls::Absent).await?.text("token")?,
    };
    let tenants = &exchange.gateway().tenants;
    let checked = tenants.check_issuer_now(exchange.caller(), name(&exchange)?, token.as_deref()).await?;
    let checks = checked.iter().map(|finding| ShownFinding {
        check: finding.check,
        result: finding.grade,
        says: &finding.says,
    });
    show::ok(&ShownFindings { checks: checks.collect() })
}

fn assignments((version, rows): &(i64, Vec<IssuerAssignment>)) -> RestAnswer {
    let items = rows.iter().map(|row| ShownAssignment {
        claim: &row.claim,
        value: &row.value,
        tenant: row.tenant.as_deref(),
    });
    show::ok(&ShownAssignments { version: *version, items: items.collect() })
}

pub(super) async fn tenants(exchange: Arc<Exchange>, _: Params) -> RestAnswer {
    let tenants = &exchange.gateway().tenants;
    assignments(&tenants.issuer_tenants(exchange.caller(), name(&exchange)?).await?)
}

pub(super) async fn put_tenants(exchange: Arc<Exchange>) -> RestAnswer {
    let mut fields = exchange.fields(&["version", "items"], Nulls::Absent).await?;
    let version = fields.version()?;
    let given = fields.needed_list("items")?;
    let mut items = Vec::new();
    for (at, item) in given.into_iter().enumerate() {
        let Assigned { claim, value, tenant } = serde_json::from_value(item)
            .map_err(|error| GatewayError::invalid(format!("items[{at}]"), error.to_string()))?;
        items.push((claim, value, tenant));
    }
    let tenants = &exchange.gateway().tenants;
    let of = (name(&exchange)?, version);
    assignments(&tenants.put_issuer_tenants(exchange.caller(), of, items).await?)
}
