//! `/keys`: API keys.

use std::sync::Arc;

use serde::Serialize;
use uuid::Uuid;

use super::cursor;
use super::exchange::Exchange;
use super::fields::Nulls;
use super::params::Params;
use super::show;
use super::show::{RestAnswer, RouteAnswer};
use crate::domain::id::{IdentityId, KeyId};
use crate::domain::tenant::Role;
use crate::gateway::{GatewayError, KeyRequest};
use crate::store::{ApiKey, KeyPatch};

/// Default overlap of a rotation: how long the old key still works, in seconds.
const OVERLAP_S: u32 = 24 * 60 * 60;
/// Longest overlap of a rotation, in seconds: 30 days.
const OVERLAP_S_MAX: u32 = 30 * OVERLAP_S;

#[derive(Serialize)]
struct Shown<'a> {
    id: KeyId,
    role: Role,
    name: &'a str,
    owner: &'a str,
    owner_given: bool,
    identity_id: Option<IdentityId>,
    prefix: &'a str,
    created_at: String,
    expires_at: Option<String>,
    revoked_at: Option<String>,
    last_used_at: Option<String>,
    predecessor_id: Option<KeyId>,
    successor_id: Option<KeyId>,
    version: i64,
    /// Secret of the key; only in the answer that creates it.
    #[serde(skip_serializing_if = "Option::is_none")]
    key: Option<&'a str>,
}

fn shown<'a>(key: &'a ApiKey, secret: Option<&'a str>) -> Shown<'a> {
    Shown {
        id: key.id,
        role: key.role,
        name: &key.name,
        owner: &key.owner,
        owner_given: key.owner_given,
        identity_id: key.identity_id,
        prefix: &key.prefix,
        created_at: show::time(key.created_at),
        expires_at: key.expires_at.map(show::time),
        revoked_at: key.revoked_at.map(show::time),
        last_used_at: key.last_used_at.map(show::time),
        predecessor_id: key.predecessor,
        successor_id: key.successor,
        version: key.version,
        key: secret,
    }
}

/// Returns the id of a key in the path. A text that cannot be an id is not found.
pub(super) fn id(exchange: &Exchange) -> Result<KeyId, GatewayError> {
    Uuid::try_parse(exchange.segment("id")).map(KeyId).map_err(|_| GatewayError::NotFound("key"))
}

pub(super) async fn list(exchange: Arc<Exchange>, params: Params) -> RestAnswer {
    let page = params.page()?;
    let after = page.after(Uuid::nil(), |key| Uuid::try_parse(key).ok())?;
    let keys = exchange.gateway().tenants.list_keys(exchange.caller(), after, page.fetch()).await?;
    cursor::list(&keys, &page, |key| key.id.to_string(), |key| Ok(shown(key, None)))
}

pub(super) async fn create(exchange: Arc<Exchange>) -> RestAnswer {
    let mut fields = exchange
        .fields(&["role", "name", "owner", "identity_id", "settings", "expires_at"], Nulls::Absent)
        .await?;
    let request = KeyRequest {
        role: fields.needed_text("role")?,
        name: fields.text("name")?,
        owner: fields.text("owner")?,
        identity_id: fields.id("identity_id")?.flatten().map(IdentityId),
        settings: fields.object("settings")?.unwrap_or_default(),
        expires_at: fields.time("expires_at")?.flatten(),
        id: None,
    };
    let made = exchange.gateway().tenants.create_key(exchange.caller(), request).await?;
    show::created(&shown(&made.key, Some(&made.secret)))
}

pub(super) async fn get(exchange: Arc<Exchange>, _: Params) -> RestAnswer {
    let key = exchange.gateway().tenants.get_key(exchange.caller(), id(&exchange)?).await?;
    show::ok(&shown(&key, None))
}

pub(super) async fn update(exchange: Arc<Exchange>) -> RestAnswer {
    let mut fields =
        exchange.fields(&["name", "owner", "identity_id", "expires_at", "version"], Nulls::Kept).await?;
    let patch = KeyPatch {
        name: fields.text("name")?,
        owner: fields.text("owner")?,
        identity_id: fields.id("identity_id")?.map(|id| id.map(IdentityId)),
        expires_at: fields.time("expires_at")?,
        version: fields.version()?,
    };
    let key = exchange.gateway().tenants.update_key(exchange.caller(), id(&exchange)?, patch).await?;
    show::ok(&shown(&key, None))
}

/// Key that a rotation replaced.
#[derive(Serialize)]
struct Replaced {
    id: KeyId,
    expires_at: String,
}

/// New key of a rotation.
#[derive(Serialize)]
struct Rotated<'a> {
    #[serde(flatten)]
    key: Shown<'a>,
    replaces: Replaced,
    /// Number of grants to other keys that end with the old key.
    grants_ended: i64,
}

pub(super) async fn rotate(exchange: Arc<Exchange>) -> RestAnswer {
    let mut fields = exchange.fields(&["overlap_s"], Nulls::Absent).await?;
    let overlap_s = fields.count("overlap_s", OVERLAP_S_MAX)?.unwrap_or(OVERLAP_S);
    let old = id(&exchange)?;
    let rotated = exchange.gateway().tenants.rotate_key(exchange.caller(), old, overlap_s).await?;
    show::created(&Rotated {
        key: shown(&rotated.created.key, Some(&rotated.created.secret)),
        replaces: Replaced { id: old, expires_at: show::time(rotated.ends_at) },
        grants_ended: rotated.grants_ended,
    })
}

pub(super) async fn revoke(exchange: Arc<Exchange>) -> RestAnswer {
    exchange.no_body().await?;
    let key = id(&exchange)?;
    exchange.gateway().tenants.revoke_key(exchange.caller(), key).await?;
    // if this fails, the key is revoked once more, which is no error
    exchange.gateway().consent.withdraw_of(&exchange.attempt, key).await?;
    Ok(RouteAnswer::Nothing)
}

#[cfg(test)]
mod tests {
    use chrono::DateTime;
    use serde_json::json;

    use super::*;
    use crate::domain::tenant::Role;

    #[test]
    fn the_secret_is_shown_only_when_given() {
        let key = ApiKey {
            id: KeyId(Uuid::nil()),
            role: Role::Agent,
            name: "n".into(),
            owner: "o".into(),
            owner_given: true,
            identity_id: Some(IdentityId(Uuid::nil())),
            created_by: None,
            rotated_root: None,
            predecessor: None,
            successor: Some(KeyId(Uuid::nil())),
            rotation_end: None,
            line_creators: Vec::new(),
            prefix: "mcpk_abcdefg".into(),
            hash: [7; 32],
            created_at: DateTime::UNIX_EPOCH,
            expires_at: None,
            revoked_at: None,
            last_used_at: None,
            version: 3,
        };
        let expected = json!({
            "id": "00000000-0000-0000-0000-000000000000", "role": "agent", "name": "n", "owner": "o", "owner_given": true,
            "identity_id": "00000000-0000-0000-0000-000000000000", "prefix": "mcpk_abcdefg", "created_at": "1970-01-01T00:00:00.000Z", "expires_at": null,
            "revoked_at": null, "last_used_at": null, "predecessor_id": null,
            "successor_id": "00000000-0000-0000-0000-000000000000", "version": 3,
        });
        assert_eq!(serde_json::to_value(shown(&key, None)).unwrap(), expected);
        assert_eq!(serde_json::to_value(shown(&key, Some("s"))).unwrap()["key"], "s");
    }
}
