//! The webhook of a tenant: its receiver, set by an administrator. The secret is sealed, and never read back.

use std::time::Duration;

use super::deliver::OutgoingEvent;
use super::{Consent, failed};
use crate::domain::backoff::chance;
use crate::domain::id::TenantId;
use crate::domain::seal::{self, Place};
use crate::domain::server_url::is_masked;
use crate::domain::tenant::Action;
use crate::domain::webhook::WebhookSecret;
use crate::gateway::credentials::{data_key, random, unsealable};
use crate::gateway::error::GatewayError;
use crate::gateway::tenants::Caller;
use crate::store::{NewWebhook, WebhookRow, WebhookTry};

/// Time for which the secret before the present one signs events too, so that a receiver can change over.
const PREVIOUS_LIFE: Duration = Duration::from_secs(24 * 60 * 60);

/// Request to set the webhook of a tenant.
#[derive(Debug)]
pub struct WebhookRequest {
    /// URL of the receiver.
    pub url: String,
    /// Secret that signs the events.
    pub secret: WebhookSecret,
}

impl Consent {
    /// Returns the webhook of the caller's tenant; `None` without one.
    ///
    /// # Errors
    /// [`GatewayError::Forbidden`] for the role, [`GatewayError::Invalid`] without a tenant, or
    /// [`GatewayError::Unavailable`].
    pub async fn webhook(&self, caller: &Caller) -> Result<Option<WebhookRow>, GatewayError> {
        caller.authorise(Action::ManageKeys)?;
        let tenant = caller.tenant()?.id;
        let row = self.store.get_webhook(tenant).await;
        row.map_err(|error| GatewayError::from_store(error, "webhook"))
    }

    /// Sets the webhook of the caller's tenant, in place of the one before. If only the secret differs, the one before signs
    /// events too for 24 hours; the same secret again ends that.
    ///
    /// # Errors
    /// [`GatewayError::Invalid`] for a URL that the egress guard refuses; others as [`Consent::webhook`].
    pub async fn set_webhook(
        &self,
        caller: &Caller,
        request: WebhookRequest,
    ) -> Result<Option<WebhookRow>, GatewayError> {
        caller.authorise(Action::ManageKeys)?;
        let tenant = caller.tenant()?.id;
        let WebhookRequest { url, secret } = request;
        if is_masked(&url) {
            let message = "url is masked: its credentials are never shown. Give the whole URL.";
            return Err(GatewayError::invalid("url", message));
        }
        self.upstreams.check_url(&url).map_err(|error| GatewayError::invalid("url", error.detail))?;
        let (key_id, key) = data_key(&self.store, &self.options.keyring, tenant).await?;
        let before = self.store.webhook_parts(tenant, None).await;
        let before = before.map_err(|error| GatewayError::from_store(error, "webhook"))?;
        let before = before.and_then(|parts| self.open_secret(tenant, &parts.webhook, &parts.keys));
        let is_another = before.is_some_and(|before| before.expose() != secret.expose());
        let place = Place::WebhookSecret { tenant, url: &url };
        let sealed = seal::seal(&key, random()?, place, secret.expose()).map_err(unsealable)?;
        let previous_s = is_another.then_some(PREVIOUS_LIFE.as_secs_f64());
        let new = NewWebhook { url, key_id, sealed, previous_s };
        let stored = self.store.put_webhook(tenant, &new).await;
        stored.map_err(|error| GatewayError::from_store(error, "tenant"))?;
        self.deliveries.wake();
        self.webhook(caller).await
    }

    /// Removes the webhook of the caller's tenant. Events that wait are told nobody.
    ///
    /// # Errors
    /// [`GatewayError::NotFound`] without a webhook; others as [`Consent::webhook`].
    pub async fn remove_webhook(&self, caller: &Caller) -> Result<(), GatewayError> {
        caller.authorise(Action::ManageKeys)?;
        let removed = self.store.remove_webhook(caller.tenant()?.id).await;
        removed.map_err(|error| GatewayError::from_store(error, "webhook"))
    }

    /// Sends an event about nothing to the webhook of the caller's tenant, once. Returns why it was not confirmed; `None` if
    /// it was.
    ///
    /// # Errors
    /// [`GatewayError::NotFound`] without a webhook, [`GatewayError::Busy`] while the tenant has too many deliveries under
    /// way; others as [`Consent::webhook`].
    pub async fn test_webhook(&self, caller: &Caller) -> Result<Option<String>, GatewayError> {
        caller.authorise(Action::ManageKeys)?;
        let tenant = caller.tenant()?.id;
        let Some(slot) = self.deliveries.begin(tenant, false) else {
            return Err(GatewayError::Busy("too many deliveries are under way; try again in a few seconds"));
        };
        let tried = self.try_to_deliver(tenant, &OutgoingEvent::test()).await;
        let tried = tried.map_err(|error| GatewayError::from_store(error, "webhook"))?;
        let error = tried.ok_or(GatewayError::NotFound("webhook"))?.error;
        let ended = match &error {
            None => WebhookTry::Confirmed,
            Some(error) => WebhookTry::Failed(error, chance()),
        };
        if let Err(error) = self.store.note_webhook(tenant, ended).await {
            failed(tenant, &error);
        }
        drop(slot);
        Ok(error)
    }

    /// Returns whether a tenant has a webhook. What cannot be known counts as no.
    pub(super) async fn has_webhook(&self, tenant: TenantId) -> bool {
        match self.store.get_webhook(tenant).await {
            Ok(webhook) => webhook.is_some(),
            Err(error) => {
                failed(tenant, &error);
                false
            }
        }
    }
}
