//! Acts on API keys. The answer that has a new key is the only one that ever shows it.

use std::sync::Arc;

use axum::extract::Path;
use axum::response::Response;
use chrono::TimeDelta;
use serde_json::Map;

use super::setup::{NEW_KEY_MEMORY_BYTES, new_key};
use super::{KeyFault, TypedKey, has_ended, href_of, id_of, list_again};
use crate::domain::id::KeyId;
use crate::domain::tenant::Action;
use crate::faces::console::act::{VisitorAct, perform};
use crate::faces::console::done::with_notice;
use crate::faces::console::nav::Section;
use crate::faces::console::page_visit::PageVisit;
use crate::gateway::{GatewayError, KeyCreated, KeyRequest, KeyRotated};

/// Longest life of a key that is chosen in days: ten years.
const DAYS_MAX: i64 = 3650;
/// Time for which a replaced key still works, in seconds: a day.
const OVERLAP_S: u32 = 24 * 60 * 60;

/// Makes a key, and shows it.
pub(in crate::faces::console) async fn create(visit: PageVisit) -> Response {
    match made(&visit).await {
        Ok(created) => shown(&visit, &created, None).await,
        Err(error @ GatewayError::Invalid { .. }) => list_again(visit, KeyFault::of(&error)).await,
        Err(error @ GatewayError::Conflict(_)) => made_already(visit, &error).await,
        Err(error) => visit.failed(Section::Keys, &error),
    }
}

/// Shows that the key of the form was made already, with a link to it. Where something else is typed by now, and where the form is too
/// old, shows the form once more; the conflict alone where there is no such key.
async fn made_already(visit: PageVisit, error: &GatewayError) -> Response {
    let key = match once(&visit) {
        Ok(Some(id)) => visit.gateway().tenants.get_key(visit.caller(), id).await.ok(),
        Ok(None) => None,
        Err(_) => {
            let says = "This form is too old, so nothing was done now. If it was sent before, its key is in the list. To make one with what is typed \
                        below, send it.";
            return list_again(visit, KeyFault::send_again(says.to_owned())).await;
        }
    };
    let Some(key) = key else { return visit.failed(Section::Keys, error) };
    if !TypedKey::of(&visit).is_of(&key) {
        let says = format!(
            "This form has made the key '{}' already. To make another one with what is typed below, send it now.",
            key.name
        );
        return list_again(visit, KeyFault::send_again(says)).await;
    }
    let text = format!(
        "The key '{}' was made already, and is shown only once. If you have not copied it, revoke it and make another.",
        key.name
    );
    visit.failed_at(Section::Keys, error, &text, (&href_of(key.id), "To this key"))
}

/// Shows a new key. Where that fails, the page says that there is one all the same.
async fn shown(visit: &PageVisit, created: &KeyCreated, replaced: Option<(String, &KeyRotated)>) -> Response {
    let shown = new_key(visit, created, replaced).await;
    shown
        .unwrap_or_else(|error| visit.failed_with(Section::Keys, &error, &unshown(&created.key.name, &error)))
}

/// Returns what is said of a key that was made and cannot be shown.
fn unshown(name: &str, error: &GatewayError) -> String {
    format!(
        "The key '{name}' was made, and cannot be shown: {error}. Revoke it at Keys, and make another one."
    )
}

async fn made(visit: &PageVisit) -> Result<KeyCreated, GatewayError> {
    let names = ["role", "name", "owner", "expires_in_days"];
    let fields = names.map(|name| (name, visit.field(name).trim().to_owned()));
    let act = VisitorAct {
        fields: fields.iter().filter(|(_, value)| !value.is_empty()).cloned().collect(),
        ..VisitorAct::new("keys.create", Action::ManageKeys)
    };
    let (gateway, caller, now) = (Arc::clone(visit.gateway()), Arc::clone(visit.caller()), visit.now());
    let (id, memory) = (once(visit), visit.expecting(NEW_KEY_MEMORY_BYTES));
    let work = async move {
        let id = id?;
        let [role, name, owner, days] = fields.map(|(_, value)| value);
        if owner.is_empty() {
            return Err(GatewayError::invalid("owner", "owner is needed: name who holds the key"));
        }
        let days = days_of(&days)?;
        let text = |text: String| Some(text).filter(|text| !text.is_empty());
        let request = KeyRequest {
            role,
            name: text(name),
            owner: text(owner),
            identity_id: None,
            settings: Map::new(),
            expires_at: days.map(|days| now + days),
            id,
        };
        memory.await?;
        gateway.tenants.create_key(&caller, request).await
    };
    perform(visit, act, work).await
}

/// Returns the id of the key that a form makes, however often it is sent; `None` for a request that comes from no page.
fn once(visit: &PageVisit) -> Result<Option<KeyId>, GatewayError> {
    let text = visit.field("once");
    if text.is_empty() {
        return Ok(None);
    }
    let id = visit.secret().and_then(|secret| secret.once_id(text, visit.now()));
    let old = || GatewayError::Conflict("this form is too old: load the page of keys again".to_owned());
    id.map(|id| Some(KeyId(id))).ok_or_else(old)
}

/// Reads the number of days after which a key ends; `None` for a key that does not.
fn days_of(text: &str) -> Result<Option<TimeDelta>, GatewayError> {
    if text.is_empty() {
        return Ok(None);
    }
    let days = text.parse().ok().filter(|days| (1..=DAYS_MAX).contains(days)).and_then(TimeDelta::try_days);
    let message = || format!("expires_in_days must be a whole number from 1 to {DAYS_MAX}, or absent");
    days.map(Some).ok_or_else(|| GatewayError::invalid("expires_in_days", message()))
}

/// Does something about a key, and shows what came of it.
pub(in crate::faces::console) async fn on_key(
    Path((id, verb)): Path<(String, String)>,
    visit: PageVisit,
) -> Response {
    let href = format!("{}/{id}", Section::Keys.href());
    match verb.as_str() {
        "rotate" => match rotated(&visit, &id).await {
            Ok(rotated) => shown(&visit, &rotated.created, Some((href, &rotated))).await,
            Err(error) => not_rotated(&visit, &id, &error).await,
        },
        "revoke" => {
            let to = with_notice(&visit, &href, "The key is revoked: nothing works with it any more.");
            visit.answer_act(Section::Keys, &to, revoked(&visit, &id).await)
        }
        _ => visit.failed(Section::Keys, &GatewayError::NotFound("page")),
    }
}

/// Shows why a key was not replaced. One that was replaced already is named, with a link to its successor.
async fn not_rotated(visit: &PageVisit, id: &str, error: &GatewayError) -> Response {
    let successor = match (error, id_of(id)) {
        (GatewayError::Conflict(_), Ok(id)) => {
            let key = visit.gateway().tenants.get_key(visit.caller(), id).await.ok();
            key.filter(|key| !has_ended(key, visit.now())).and_then(|key| Some((key.name, key.successor?)))
        }
        _ => None,
    };
    let Some((name, successor)) = successor else { return visit.failed(Section::Keys, error) };
    let text = format!(
        "The key '{name}' was replaced already, and its successor is shown only once. If you have not copied that one, revoke it, and \
         replace this key again."
    );
    visit.failed_at(Section::Keys, error, &text, (&href_of(successor), "To the key after it"))
}

async fn rotated(visit: &PageVisit, id: &str) -> Result<KeyRotated, GatewayError> {
    let id = id_of(id);
    let act = VisitorAct::new("keys.rotate", Action::ManageKeys);
    let (gateway, caller) = (Arc::clone(visit.gateway()), Arc::clone(visit.caller()));
    let memory = visit.expecting(NEW_KEY_MEMORY_BYTES);
    let work = async move {
        let id = id?;
        memory.await?;
        gateway.tenants.rotate_key(&caller, id, OVERLAP_S).await
    };
    perform(visit, act, work).await
}

async fn revoked(visit: &PageVisit, id: &str) -> Result<(), GatewayError> {
    let id = id_of(id);
    let act = VisitorAct::new("keys.revoke", Action::ManageKeys);
    let (gateway, attempt) = (Arc::clone(visit.gateway()), visit.attempt().clone());
    let work = async move {
        let id = id?;
        gateway.tenants.revoke_key(&attempt.caller, id).await?;
        // if this fails, the key is revoked once more, which is no error
        gateway.consent.withdraw_of(&attempt, id).await
    };
    perform(visit, act, work).await.map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_that_cannot_be_shown_is_named() {
        let text = unshown("laptop", &GatewayError::Unavailable);
        assert!(
            text.starts_with("The key 'laptop' was made, and cannot be shown: the gateway cannot reach"),
            "{text}"
        );
    }

    #[test]
    fn lives_are_whole_days() {
        assert_eq!(days_of("").ok(), Some(None));
        assert_eq!(days_of("30").ok(), Some(Some(TimeDelta::days(30))));
        for bad in ["0", "-1", "3651", "x", "1.5", "99999999999999999999"] {
            assert!(days_of(bad).is_err(), "{bad}");
        }
    }
}
