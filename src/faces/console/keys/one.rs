//! The page of one API key: its settings with their origin, and the acts on it.

use askama::Template;
use axum::extract::Path;
use axum::response::Response;
use http::StatusCode;
use serde_json::{Map, Value};

use super::{KeyLine, LIST_MEMORY_BYTES, has_ended, href_of, id_of, line};
use crate::domain::id::KeyId;
use crate::domain::tenant::Action;
use crate::faces::console::done::{DONE, notice};
use crate::faces::console::moment::Moment;
use crate::faces::console::nav::{Nav, Section};
use crate::faces::console::page_visit::PageVisit;
use crate::faces::query::params::{ParamNames, Params};
use crate::gateway::GatewayError;
use crate::store::ApiKey;

/// Parameters of the page.
const PARAMS: ParamNames = &[DONE];

/// Setting of a key.
struct SettingLine {
    name: String,
    value: String,
    origin: String,
}

#[derive(Template)]
#[template(path = "key.html", config = "src/faces/console/askama.toml")]
struct KeyPage {
    nav: Nav,
    csrf: String,
    /// Notice of what the visitor has just done; `None` without one.
    done: Option<String>,
    id: KeyId,
    href: String,
    key: KeyLine,
    /// Page of the key that was replaced by this one; `None` if none was.
    predecessor: Option<String>,
    /// End of that key, which still works until then; `None` if it does not work.
    predecessor_ends: Option<String>,
    /// Page of the key that replaced this one; `None` if none did.
    successor: Option<String>,
    /// True if the key has `/mcp/direct` only by a setting of its own, which it has not.
    needs_own_direct: bool,
    /// Settings with their origin; none for a key that was revoked.
    settings: Vec<SettingLine>,
    may_rotate: bool,
    may_revoke: bool,
}

/// Shows the page.
pub(in crate::faces::console) async fn show(Path(id): Path<String>, visit: PageVisit) -> Response {
    visit
        .answer_sensitive("keys.get", Section::Keys, move |visit| {
            Box::pin(async move { key(visit, &id).await })
        })
        .await
}

async fn key(visit: &PageVisit, id: &str) -> Result<Response, GatewayError> {
    visit.caller().authorise(Action::ManageKeys)?;
    visit.needs_tenant()?;
    let params = Params::of(&visit.given(PARAMS)?, PARAMS)?;
    visit.expect(LIST_MEMORY_BYTES).await?;
    let (tenants, id) = (&visit.gateway().tenants, id_of(id)?);
    let key = tenants.get_key(visit.caller(), id).await?;
    let settings = tenants.read_settings(visit.caller(), Some(id)).await?;
    let successor = other(visit, key.successor).await?;
    let nav = visit.nav(Section::Keys);
    let works = !has_ended(&key, visit.now());
    let page = KeyPage {
        csrf: nav.csrf.clone(),
        nav,
        done: notice(visit, &params),
        id,
        href: href_of(id),
        predecessor: key.predecessor.map(href_of),
        predecessor_ends: predecessor_ends(visit, &key).await?,
        successor: key.successor.map(href_of),
        // those that are read back then are what a key without any has
        settings: settings.iter().filter_map(setting).filter(|_| key.revoked_at.is_none()).collect(),
        needs_own_direct: needs_own_direct(&settings),
        may_rotate: works && successor.is_none_or(|successor| successor.revoked_at.is_some()),
        may_revoke: works,
        key: line(visit, &key),
    };
    visit.show(StatusCode::OK, &page).await
}

/// Returns the end of the key that was replaced by this one; `None` if there is none, or it does not work any more.
async fn predecessor_ends(visit: &PageVisit, key: &ApiKey) -> Result<Option<String>, GatewayError> {
    let old = other(visit, key.predecessor).await?.filter(|old| !has_ended(old, visit.now()));
    Ok(old.and_then(|old| Some(Moment::new(old.expires_at?, visit.now()).exact())))
}

/// Returns the key before or after another one; `None` if there is none, or it is gone.
pub(super) async fn other(visit: &PageVisit, id: Option<KeyId>) -> Result<Option<ApiKey>, GatewayError> {
    let Some(id) = id else { return Ok(None) };
    match visit.gateway().tenants.get_key(visit.caller(), id).await {
        Ok(key) => Ok(Some(key)),
        Err(GatewayError::NotFound(_)) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Returns whether the key must declare its intent, and so has `/mcp/direct` only by a setting of its own, which it has not.
fn needs_own_direct(settings: &Map<String, Value>) -> bool {
    let of = |name: &str, member: &str| settings.get(name).and_then(|setting| setting.get(member)).cloned();
    of("intent_declaration", "value") == Some(Value::from("required"))
        && of("direct_endpoint", "origin").is_some_and(|origin| origin != "key")
}

/// Returns a setting as it is read back; `None` for a member that is none, such as the version.
fn setting((name, member): (&String, &Value)) -> Option<SettingLine> {
    let value = match member.get("value")? {
        Value::Null => "none".to_owned(),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    };
    let origin = member.get("origin")?.as_str()?.to_owned();
    Some(SettingLine { name: name.clone(), value, origin })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn settings_are_read_without_quotes_and_the_version_is_none() {
        let shown = |member: Value| setting((&"x".to_owned(), &member)).map(|line| (line.value, line.origin));
        let of = |value: &str| Some((value.to_owned(), "key".to_owned()));
        assert_eq!(shown(json!({"value": "trust", "origin": "key"})), of("trust"));
        assert_eq!(shown(json!({"value": ["a:*"], "origin": "key"})), of("[\"a:*\"]"));
        assert_eq!(shown(json!({"value": null, "origin": "key"})), of("none"));
        assert_eq!(shown(json!(7)), None);
    }
}
