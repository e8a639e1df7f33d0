//! `/consent/webhook`: where the permission requests of a tenant are told.

use std::sync::Arc;

use serde::Serialize;

use super::exchange::Exchange;
use super::fields::Nulls;
use super::params::Params;
use super::show::{self, RestAnswer, RouteAnswer};
use crate::domain::server_url::masked;
use crate::domain::webhook::{SECRET_BYTES_MAX, SECRET_BYTES_MIN, WebhookSecret};
use crate::gateway::{GatewayError, WebhookRequest};
use crate::store::WebhookRow;

/// Webhook without its secret; all members but `waiting` are null without a webhook.
#[derive(Default, Serialize)]
struct ShownWebhook {
    url: Option<String>,
    created_at: Option<String>,
    /// Time until which the secret before the present one signs events too; null if it does not.
    previous_until: Option<String>,
    last_success_at: Option<String>,
    last_failure_at: Option<String>,
    last_error: Option<String>,
    /// True if the last delivery failed.
    failing: Option<bool>,
    /// Number of events that the receiver has not confirmed yet.
    waiting: i64,
}

#[derive(Serialize)]
struct ShownTest {
    delivered: bool,
    error: Option<String>,
}

fn shown(row: Option<WebhookRow>) -> RestAnswer {
    let shown = row.map(|row| ShownWebhook {
        failing: Some(row.is_failing()),
        url: Some(masked(&row.url).into_owned()),
        created_at: Some(show::time(row.created_at)),
        previous_until: row.previous_until.map(show::time),
        last_success_at: row.succeeded_at.map(show::time),
        last_failure_at: row.failed_at.map(show::time),
        last_error: row.last_error,
        waiting: row.waiting,
    });
    show::ok(&shown.unwrap_or_default())
}

pub(super) async fn get(exchange: Arc<Exchange>, _: Params) -> RestAnswer {
    shown(exchange.gateway().consent.webhook(exchange.caller()).await?)
}

pub(super) async fn put(exchange: Arc<Exchange>) -> RestAnswer {
    let mut fields = exchange.fields(&["url", "secret"], Nulls::Absent).await?;
    let url = fields.needed_text("url")?;
    let secret = WebhookSecret::parse(&fields.needed_text("secret")?).ok_or_else(|| {
        // the text may be a secret of another form: it is not repeated
        let message = format!(
            "secret must be whsec_ and the Base64 of {SECRET_BYTES_MIN} to {SECRET_BYTES_MAX} random bytes, such as: \
             echo whsec_$(openssl rand -base64 32)"
        );
        GatewayError::invalid("secret", message)
    })?;
    let request = WebhookRequest { url, secret };
    shown(exchange.gateway().consent.set_webhook(exchange.caller(), request).await?)
}

pub(super) async fn remove(exchange: Arc<Exchange>) -> RestAnswer {
    exchange.no_body().await?;
    exchange.gateway().consent.remove_webhook(exchange.caller()).await?;
    Ok(RouteAnswer::Nothing)
}

pub(super) async fn test(exchange: Arc<Exchange>) -> RestAnswer {
    exchange.no_body().await?;
    let error = exchange.gateway().consent.test_webhook(exchange.caller()).await?;
    exchange.note_failure(error.clone());
    show::ok(&ShownTest { delivered: error.is_none(), error })
}
