//! API keys, and settings of keys and tenants.

use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use chrono::{DateTime, Utc};
use serde_json::{Map, Value};
use uuid::Uuid;

use super::Tenants;
use super::authenticate::{KEY_PREFIX, hash_key};
use crate::domain::id::{IdentityId, KeyId};
use crate::domain::settings::{
    Scope, SettingError, Settings, idle_globs, keys_without_tools, read_back, unmatched_tools,
    unmatched_tools_within,
};
use crate::domain::tenant::{Action, Role};
use crate::gateway::clock;
use crate::gateway::error::GatewayError;
use crate::gateway::tenants::live::access::Caller;
use crate::store::{ApiKey, KeyPatch, KeyRotation, NewApiKey, RevisionKind, RotatedKey};

/// Characters of a key that stay visible: the prefix and a few of the random part.
const VISIBLE_CHARS: usize = 12;
/// Longest name or owner of a key, in characters.
const LABEL_CHARS_MAX: usize = 200;

/// Request to create a key.
#[derive(Clone, Debug)]
pub struct KeyRequest {
    /// Role of the key.
    pub role: String,
    /// Name of the key for people; the role if absent.
    pub name: Option<String>,
    /// Person who holds the key; the key's name if absent.
    pub owner: Option<String>,
    /// Identity of that person; `None` for none.
    pub identity_id: Option<IdentityId>,
    /// Settings of the key itself.
    pub settings: Map<String, Value>,
    /// Expiry of the key; `None` for none.
    pub expires_at: Option<DateTime<Utc>>,
    /// Id of the key, for a request that makes one key however often it comes; `None` for a new id.
    pub id: Option<KeyId>,
}

/// A new key, with its secret: the only time that the secret is shown.
#[derive(Debug)]
pub struct KeyCreated {
    /// Stored part of the key.
    pub key: ApiKey,
    /// Secret of the key.
    pub secret: String,
}

/// A key that was replaced: its successor, and its end.
#[derive(Debug)]
pub struct KeyRotated {
    /// New key with its secret.
    pub created: KeyCreated,
    /// Time when the old key ends.
    pub ends_at: DateTime<Utc>,
    /// Number of remembered decisions about calls of other keys that end with the old key, which gave them.
    pub grants_ended: i64,
}

fn setting_error(error: SettingError) -> GatewayError {
    GatewayError::invalid(error.field, error.message)
}

fn label(field: &str, text: &str) -> Result<String, GatewayError> {
    let good = !text.trim().is_empty()
        && text.chars().count() <= LABEL_CHARS_MAX
        && !text.chars().any(char::is_control);
    if good {
        return Ok(text.to_owned());
    }
    Err(GatewayError::invalid(
        field,
        format!("{field} must be 1 to {LABEL_CHARS_MAX} characters, none of them a control character"),
    ))
}

fn new_secret() -> Result<String, GatewayError> {
    let mut random = [0_u8; 32];
    getrandom::fill(&mut random).map_err(|error| {
        tracing::error!(%error, "the system's random source failed");
        GatewayError::Unavailable
    })?;
    Ok(format!("{KEY_PREFIX}{}", URL_SAFE_NO_PAD.encode(random)))
}

impl Tenants {
    /// Creates a key.
    ///
    /// # Errors
    /// [`GatewayError::Forbidden`] for the role, [`GatewayError::Invalid`] for a field or without a tenant,
    /// [`GatewayError::Conflict`] for an id that a key has, [`GatewayError::Limit`] for a used-up quota, or
    /// [`GatewayError::Unavailable`].
    pub async fn create_key(&self, caller: &Caller, request: KeyRequest) -> Result<KeyCreated, GatewayError> {
        caller.authorise(Action::ManageKeys)?;
        let tenant = caller.tenant()?;
        let role = Role::parse(&request.role).ok_or_else(|| {
            GatewayError::invalid("role", "role must be agent, auditor, operator, admin or approver")
        })?;
        Settings::default().patched(&request.settings, Scope::Key).map_err(setting_error)?;
        if request.expires_at.is_some_and(|at| at <= clock::now()) {
            return Err(GatewayError::invalid("expires_at", "expires_at must be in the future"));
        }
        let name = label("name", request.name.as_deref().unwrap_or(role.as_str()))?;
        let owner = label("owner", request.owner.as_deref().unwrap_or(&name))?;
        let secret = new_secret()?;
        let new = NewApiKey {
            id: request.id.unwrap_or_else(|| KeyId(Uuid::now_v7())),
            role,
            name,
            owner,
            owner_given: request.owner.is_some(),
            identity_id: request.identity_id,
            prefix: secret.chars().take(VISIBLE_CHARS).collect(),
            hash: hash_key(&secret),
            settings: request.settings,
            expires_at: request.expires_at,
            created_by: caller.person.root,
            origin: None,
            quotas: self.options.quotas,
        };
        let key = self
            .store
            .create_key(tenant.id, &new)
            .await
            .map_err(|e| GatewayError::from_store(e, "tenant"))?;
        self.refresh(tenant.id, RevisionKind::Access).await;
        Ok(KeyCreated { key, secret })
    }

    /// Replaces a key by a new one with the same role, name, owner, expiry, settings and policy, and the
    /// remembered decisions about its calls. The old one ends after `overlap_s` seconds.
    ///
    /// # Errors
    /// [`GatewayError::Forbidden`] for the role, [`GatewayError::Invalid`] without a tenant, [`GatewayError::NotFound`],
    /// [`GatewayError::Conflict`] for a key that has ended or has a successor, [`GatewayError::Limit`] for a used-up quota, or
    /// [`GatewayError::Unavailable`].
    pub async fn rotate_key(
        &self,
        caller: &Caller,
        key: KeyId,
        overlap_s: u32,
    ) -> Result<KeyRotated, GatewayError> {
        caller.authorise(Action::ManageKeys)?;
        let tenant = caller.tenant()?;
        let (secret, now) = (new_secret()?, clock::now());
        let rotation = KeyRotation {
            prefix: secret.chars().take(VISIBLE_CHARS).collect(),
            hash: hash_key(&secret),
            now,
            ends_at: now + Duration::from_secs(overlap_s.into()),
            created_by: caller.person.root,
            quotas: self.options.quotas,
        };
        let rotated = self.store.rotate_key(tenant.id, key, &rotation).await;
        let RotatedKey { successor, ends_at, grants_ended } =
            rotated.map_err(|e| GatewayError::from_store(e, "key"))?;
        self.refresh(tenant.id, RevisionKind::Access).await;
        Ok(KeyRotated { created: KeyCreated { key: successor, secret }, ends_at, grants_ended })
    }

    /// Returns a page of keys in id order, after the id `after`.
    ///
    /// # Errors
    /// [`GatewayError::Forbidden`] for the role, [`GatewayError::Invalid`] without a tenant, or
    /// [`GatewayError::Unavailable`].
    pub async fn list_keys(
        &self,
        caller: &Caller,
        after: Uuid,
        limit: i64,
    ) -> Result<Vec<ApiKey>, GatewayError> {
        caller.authorise(Action::ManageKeys)?;
        let tenant = caller.tenant()?;
        self.store.list_keys(tenant.id, after, limit).await.map_err(|e| GatewayError::from_store(e, "key"))
    }

    /// Returns one key.
    ///
    /// # Errors
    /// [`GatewayError::Forbidden`] for the role, [`GatewayError::NotFound`], [`GatewayError::Invalid`] without a tenant, or
    /// [`GatewayError::Unavailable`].
    pub async fn get_key(&self, caller: &Caller, key: KeyId) -> Result<ApiKey, GatewayError> {
        caller.authorise(Action::ManageKeys)?;
        let tenant = caller.tenant()?;
        self.store.get_key(tenant.id, key).await.map_err(|e| GatewayError::from_store(e, "key"))
    }

    /// Changes a key's name, owner, identity or expiry.
    ///
    /// # Errors
    /// [`GatewayError::Forbidden`] for the role, [`GatewayError::Invalid`] for a field or without a tenant,
    /// [`GatewayError::NotFound`], [`GatewayError::Conflict`], or [`GatewayError::Unavailable`].
    pub async fn update_key(
        &self,
        caller: &Caller,
        key: KeyId,
        patch: KeyPatch,
    ) -> Result<ApiKey, GatewayError> {
        caller.authorise(Action::ManageKeys)?;
        let tenant = caller.tenant()?;
        let check = |field: &str, text: &Option<String>| {
            text.as_deref().map_or(Ok(()), |t| label(field, t).map(drop))
        };
        check("name", &patch.name)?;
        check("owner", &patch.owner)?;
        let updated = self
            .store
            .update_key(tenant.id, key, &patch)
            .await
            .map_err(|e| GatewayError::from_store(e, "key"))?;
        self.refresh(tenant.id, RevisionKind::Access).await;
        Ok(updated)
    }

    /// Revokes a key. It stops working within a second on every replica.
    ///
    /// # Errors
    /// [`GatewayError::Forbidden`] for the role, [`GatewayError::NotFound`], [`GatewayError::Invalid`] without a tenant, or
    /// [`GatewayError::Unavailable`].
    pub async fn revoke_key(&self, caller: &Caller, key: KeyId) -> Result<(), GatewayError> {
        caller.authorise(Action::ManageKeys)?;
        let tenant = caller.tenant()?;
        self.store.revoke_key(tenant.id, key).await.map_err(|e| GatewayError::from_store(e, "key"))?;
        self.refresh(tenant.id, RevisionKind::Access).await;
        Ok(())
    }

    /// Returns the settings of the tenant, or of one key, each as `{value, origin}`, with their version; and those that are set for it itself,
    /// whether or not they count.
    ///
    /// # Errors
    /// As [`Tenants::read_settings`].
    pub async fn read_settings_and_own(
        &self,
        caller: &Caller,
        key: Option<KeyId>,
    ) -> Result<(Map<String, Value>, Settings), GatewayError> {
        caller.authorise(Action::ManageKeys)?;
        let tenant = caller.tenant()?;
        if let Some(key) = key {
            self.get_key(caller, key).await?;
        }
        let store = |error| GatewayError::from_store(error, "key");
        let own = self.store.get_settings(tenant.id, None).await.map_err(store)?;
        let (shown, stored) = match key {
            None => (read_back(None, &own.settings, &self.options.defaults), own),
            Some(key) => {
                let stored = self.store.get_settings(tenant.id, Some(key)).await.map_err(store)?;
                (read_back(Some(&stored.settings), &own.settings, &self.options.defaults), stored)
            }
        };
        let mut out = Map::new();
        out.insert("version".to_owned(), stored.version.into());
        out.extend(shown);
        Ok((out, stored.settings))
    }

    /// Returns the settings of the tenant, or of one key, each as `{value, origin}`, with their version.
    ///
    /// # Errors
    /// [`GatewayError::Forbidden`] for the role, [`GatewayError::NotFound`] for the key, [`GatewayError::Invalid`] without a
    /// tenant, or [`GatewayError::Unavailable`].
    pub async fn read_settings(
        &self,
        caller: &Caller,
        key: Option<KeyId>,
    ) -> Result<Map<String, Value>, GatewayError> {
        self.read_settings_and_own(caller, key).await.map(|(shown, _)| shown)
    }

    /// Changes settings of the tenant, or of one key; `null` restores the inherited value. `version`, if given, guards
    /// against lost updates.
    ///
    /// # Errors
    /// [`GatewayError::Forbidden`] for the role, [`GatewayError::Invalid`] for a setting or without a tenant,
    /// [`GatewayError::NotFound`] for the key, [`GatewayError::Conflict`] for a changed version, or
    /// [`GatewayError::Unavailable`].
    pub async fn patch_settings(
        &self,
        caller: &Caller,
        key: Option<KeyId>,
        patch: &Map<String, Value>,
        version: Option<i64>,
    ) -> Result<Map<String, Value>, GatewayError> {
        caller.authorise(Action::ManageKeys)?;
        let tenant = caller.tenant()?;
        if let Some(key) = key {
            self.get_key(caller, key).await?;
        }
        let store = |error| GatewayError::from_store(error, "key");
        let stored = self.store.get_settings(tenant.id, key).await.map_err(store)?;
        let scope = if key.is_some() { Scope::Key } else { Scope::Tenant };
        stored.settings.patched(patch, scope).map_err(setting_error)?;
        let at = version.unwrap_or(stored.version);
        self.store.patch_settings(tenant.id, key, patch, at).await.map_err(store)?;
        self.refresh(tenant.id, RevisionKind::Access).await;
        self.read_settings(caller, key).await
    }

    /// Returns a warning about a value of `allowed_tools`, of the tenant or of one key, that lets through none of the tenant's tools that are known
    /// now, or leaves keys with a list of their own without one; `None` if it is fine.
    ///
    /// # Errors
    /// [`GatewayError::Forbidden`] for the role, [`GatewayError::Invalid`] without a tenant, or [`GatewayError::Unavailable`].
    pub async fn lint_allowed_tools(
        &self,
        caller: &Caller,
        key: Option<KeyId>,
        globs: &[String],
    ) -> Result<Option<String>, GatewayError> {
        caller.authorise(Action::ManageKeys)?;
        let tenant = caller.tenant()?;
        let (catalogue, access, now) = (tenant.catalogue(), tenant.access(), clock::now());
        let outer = match key {
            Some(_) => {
                let stored = self.store.get_settings(tenant.id, None).await;
                let stored = stored.map_err(|error| GatewayError::from_store(error, "key"))?;
                Some(stored.settings.allowed_tools.unwrap_or_else(|| vec!["*".to_owned()]))
            }
            None => None,
        };
        let lint = || {
            let known: Vec<&str> = catalogue.unblocked_names().collect();
            let Some(outer) = &outer else {
                let own = access.iter().flat_map(|access| access.by_id.values()).filter(|caller| {
                    let is_own = caller.settings.allowed_tools_from == Some("key");
                    is_own && caller.role.may(Action::UseTools) && !caller.is_expired(now)
                });
                let lists = own.map(|caller| {
                    let name = caller.key_name.as_deref().unwrap_or(&caller.owner);
                    (name, &caller.settings.allowed_tools)
                });
                let about_keys = keys_without_tools(lists.collect(), &known);
                return unmatched_tools(globs, &known).or_else(|| {
                    let warnings: Vec<String> =
                        idle_globs(globs, &known).into_iter().chain(about_keys).collect();
                    (!warnings.is_empty()).then(|| warnings.join(" Also, "))
                });
            };
            unmatched_tools_within(globs, [outer, &self.options.defaults.allowed_tools], &known)
        };
        Ok(self.upstreams.in_turn(caller.tenant_id().0, lint).await)
    }
}
