//! `/identity/rules` and `/identities`: what people of identity providers may do in a tenant, and who they are.

use std::sync::Arc;

use serde::Serialize;
use uuid::Uuid;

use super::cursor;
use super::exchange::Exchange;
use super::fields::Nulls;
use super::params::Params;
use super::show;
use super::show::RestAnswer;
use crate::domain::id::{IdentityId, KeyId};
use crate::domain::identity::IdentityRule;
use crate::gateway::{GatewayError, RulesView};
use crate::store::Identity;

/// Memory of the answer with the largest rules, as loaded and as JSON, in bytes.
const RULES_MEMORY_BYTES: usize = 1024 * 1024;

#[derive(Serialize)]
struct ShownRules<'a> {
    version: i64,
    rules: &'a [IdentityRule],
}

#[derive(Serialize)]
struct ShownIdentity<'a> {
    id: Uuid,
    /// Name of the issuer; its id if it is gone.
    issuer: &'a str,
    subject: &'a str,
    owner: &'a str,
    email: Option<&'a str>,
    /// Role at the last sight; null for a person who was blocked before the first.
    role: Option<&'a str>,
    last_seen_at: Option<String>,
    blocked_at: Option<String>,
}

fn shown((identity, issuer): &(Identity, String)) -> ShownIdentity<'_> {
    let is_seen = !identity.role.is_empty();
    ShownIdentity {
        id: identity.id,
        issuer,
        subject: &identity.subject,
        owner: &identity.owner,
        email: identity.email.as_deref(),
        role: is_seen.then_some(&*identity.role),
        last_seen_at: is_seen.then(|| show::time(identity.last_seen_at)),
        blocked_at: identity.blocked_at.map(show::time),
    }
}

fn shown_rules(view: &RulesView) -> RestAnswer {
    show::ok(&ShownRules { version: view.version, rules: &view.rules })
}

pub(super) async fn rules(exchange: Arc<Exchange>, _: Params) -> RestAnswer {
    exchange.expect_answer(RULES_MEMORY_BYTES).await?;
    shown_rules(&exchange.gateway().tenants.identity_rules(exchange.caller()).await?)
}

pub(super) async fn put_rules(exchange: Arc<Exchange>) -> RestAnswer {
    exchange.expect_answer(RULES_MEMORY_BYTES).await?;
    let mut fields = exchange.fields(&["version", "rules"], Nulls::Absent).await?;
    let needed =
        || GatewayError::invalid("version", "version is needed: the one that reading gave, 0 at first");
    let version = fields.version()?.ok_or_else(needed)?;
    let rules = fields.needed_list("rules")?;
    let tenants = &exchange.gateway().tenants;
    shown_rules(&tenants.put_identity_rules(exchange.caller(), version, &rules).await?)
}

pub(super) async fn list(exchange: Arc<Exchange>, params: Params) -> RestAnswer {
    let page = params.page()?;
    let after = page.after(Uuid::nil(), |key| Uuid::try_parse(key).ok())?;
    let people = exchange.gateway().tenants.list_identities(exchange.caller(), after, page.fetch()).await?;
    cursor::list(&people, &page, |(identity, _)| identity.id.to_string(), |person| Ok(shown(person)))
}

pub(super) async fn block(exchange: Arc<Exchange>) -> RestAnswer {
    set_blocked(&exchange, true).await
}

pub(super) async fn unblock(exchange: Arc<Exchange>) -> RestAnswer {
    set_blocked(&exchange, false).await
}

pub(super) async fn block_subject(exchange: Arc<Exchange>) -> RestAnswer {
    let mut fields = exchange.fields(&["issuer", "subject"], Nulls::Absent).await?;
    let (issuer, subject) = (fields.needed_text("issuer")?, fields.needed_text("subject")?);
    let gateway = exchange.gateway();
    let person = gateway.tenants.block_subject(exchange.caller(), (&issuer, &subject)).await?;
    let principal = KeyId::of_identity(IdentityId(person.0.id));
    gateway.consent.withdraw_of(&exchange.attempt, principal).await?;
    show::ok(&shown(&person))
}

async fn set_blocked(exchange: &Exchange, is_blocked: bool) -> RestAnswer {
    exchange.no_body().await?;
    let id = Uuid::try_parse(exchange.segment("id")).map_err(|_| GatewayError::NotFound("identity"))?;
    let (gateway, identity) = (exchange.gateway(), IdentityId(id));
    let person = gateway.tenants.block_identity(exchange.caller(), identity, is_blocked).await?;
    if is_blocked {
        // if this fails, the person is blocked once more, which is no error
        gateway.consent.withdraw_of(&exchange.attempt, KeyId::of_identity(identity)).await?;
    }
    show::ok(&shown(&person))
}
