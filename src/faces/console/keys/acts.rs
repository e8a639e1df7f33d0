//! Acts on API keys. The answer that has a new key is the only one that ever shows it.

use std::sync::Arc;

use axum::extract::Path;
use axum::response::Response;
use chrono::TimeDelta;
use serde_json::Map;

use super::setup::{NEW_KEY_MEMORY_BYTES, new_key};
use super::{href_of, id_of};
use crate::domain::tenant::Action;
use crate::faces::console::act::{VisitorAct, perform};
use crate::faces::console::nav::Section;
use crate::faces::console::page_visit::PageVisit;
use crate::gateway::{GatewayError, KeyRequest};

/// Longest life of a key that is chosen in days: ten years.
const DAYS_MAX: i64 = 3650;
/// Time for which a replaced key still works, in seconds: a day.
const OVERLAP_S: u32 = 24 * 60 * 60;

/// Makes a key, and shows it.
pub(in crate::faces::console) async fn create(visit: PageVisit) -> Response {
    let made = made(&visit).await;
    made.unwrap_or_else(|error| visit.failed(Section::Keys, &error))
}

async fn made(visit: &PageVisit) -> Result<Response, GatewayError> {
    visit.needs_tenant()?;
    let names = ["role", "name", "owner", "expires_in_days"];
    let fields = names.map(|name| (name, visit.field(name).trim().to_owned()));
    let act = VisitorAct {
        fields: fields.iter().filter(|(_, value)| !value.is_empty()).cloned().collect(),
        ..VisitorAct::new("keys.create", Action::ManageKeys)
    };
    let (gateway, caller, now) = (Arc::clone(visit.gateway()), Arc::clone(visit.caller()), visit.now());
    let work = async move {
        let [role, name, owner, days] = fields.map(|(_, value)| value);
        let days = days_of(&days)?;
        let text = |text: String| Some(text).filter(|text| !text.is_empty());
        let request = KeyRequest {
            role,
            name: text(name),
            owner: text(owner),
            identity_id: None,
            settings: Map::new(),
            expires_at: days.map(|days| now + days),
        };
        gateway.tenants.create_key(&caller, request).await
    };
    visit.expect(NEW_KEY_MEMORY_BYTES).await?;
    let created = perform(visit, act, work).await?;
    new_key(visit, &created, None).await
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
    let done = match verb.as_str() {
        "rotate" => rotated(&visit, &id).await,
        "revoke" => {
            let done = revoked(&visit, &id).await;
            return visit.answer_act(Section::Keys, &format!("{}/{id}", Section::Keys.href()), done);
        }
        _ => Err(GatewayError::NotFound("page")),
    };
    done.unwrap_or_else(|error| visit.failed(Section::Keys, &error))
}

async fn rotated(visit: &PageVisit, id: &str) -> Result<Response, GatewayError> {
    visit.needs_tenant()?;
    let id = id_of(id)?;
    let act = VisitorAct::new("keys.rotate", Action::ManageKeys);
    let (gateway, caller) = (Arc::clone(visit.gateway()), Arc::clone(visit.caller()));
    let work = async move { gateway.tenants.rotate_key(&caller, id, OVERLAP_S).await };
    visit.expect(NEW_KEY_MEMORY_BYTES).await?;
    let rotated = perform(visit, act, work).await?;
    new_key(visit, &rotated.created, Some((href_of(id), rotated.ends_at))).await
}

async fn revoked(visit: &PageVisit, id: &str) -> Result<(), GatewayError> {
    visit.needs_tenant()?;
    let id = id_of(id)?;
    let act = VisitorAct::new("keys.revoke", Action::ManageKeys);
    let (gateway, attempt) = (Arc::clone(visit.gateway()), visit.attempt().clone());
    let work = async move {
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
    fn lives_are_whole_days() {
        assert_eq!(days_of("").ok(), Some(None));
        assert_eq!(days_of("30").ok(), Some(Some(TimeDelta::days(30))));
        for bad in ["0", "-1", "3651", "x", "1.5", "99999999999999999999"] {
            assert!(days_of(bad).is_err(), "{bad}");
        }
    }
}
