//! Acts of the platform operator on tenants.

use std::sync::Arc;

use axum::extract::Path;
use axum::response::{IntoResponse, Redirect, Response};
use http::HeaderValue;
use serde_json::{Map, Value, json};

use super::href_of;
use crate::domain::id::is_name;
use crate::domain::quota::QUOTA_NAMES;
use crate::domain::tenant::Action;
use crate::faces::console::act::{VisitorAct, perform};
use crate::faces::console::gate::set_cookie;
use crate::faces::console::nav::Section;
use crate::faces::console::page_visit::PageVisit;
use crate::faces::console::{HOME, TENANTS};
use crate::faces::session_cookie;
use crate::gateway::GatewayError;
use crate::store::Suspend;

/// Makes a tenant, or has the platform operator act in none any more.
pub(in crate::faces::console) async fn on_list(Path(verb): Path<String>, visit: PageVisit) -> Response {
    match verb.as_str() {
        "create" => match created(&visit).await {
            Ok(name) => visit.answer_act(Section::Tenants, &href_of(&name), Ok(())),
            Err(error) => visit.failed(Section::Tenants, &error),
        },
        "leave" => {
            let act = VisitorAct::new("console.leave_tenant", Action::ManageTenants);
            match perform(&visit, act, async { Ok(()) }).await {
                Ok(()) => lead_on(TENANTS, session_cookie::unset(session_cookie::TENANT)),
                Err(error) => visit.failed(Section::Tenants, &error),
            }
        }
        _ => visit.failed(Section::Tenants, &GatewayError::NotFound("page")),
    }
}

async fn created(visit: &PageVisit) -> Result<String, GatewayError> {
    let name = visit.field("name").trim().to_owned();
    let act = VisitorAct {
        fields: vec![("name", name.clone())],
        ..VisitorAct::new("tenants.create", Action::ManageTenants)
    };
    let (gateway, caller) = (Arc::clone(visit.gateway()), Arc::clone(visit.caller()));
    let work = async move { gateway.tenants.create_tenant(&caller, &name).await.map(|tenant| tenant.name) };
    perform(visit, act, work).await
}

/// Does something about a tenant, and shows it.
pub(in crate::faces::console) async fn on_tenant(
    Path((name, verb)): Path<(String, String)>,
    visit: PageVisit,
) -> Response {
    let done = match verb.as_str() {
        "enter" => {
            return match entered(&visit, &name).await {
                Ok(()) => lead_on(HOME, session_cookie::set(session_cookie::TENANT, &name)),
                Err(error) => visit.failed(Section::Tenants, &error),
            };
        }
        "update" => updated(&visit, &name).await,
        "suspend" => suspended(&visit, &name, Suspend::Yes).await,
        "resume" => suspended(&visit, &name, Suspend::No).await,
        _ => Err(GatewayError::NotFound("page")),
    };
    visit.answer_act(Section::Tenants, &href_of(&name), done)
}

fn needs_name(name: &str) -> Result<(), GatewayError> {
    if is_name(name) { Ok(()) } else { Err(GatewayError::NotFound("tenant")) }
}

async fn entered(visit: &PageVisit, name: &str) -> Result<(), GatewayError> {
    let act = VisitorAct::new("console.enter_tenant", Action::ManageTenants);
    let (gateway, caller, name) = (Arc::clone(visit.gateway()), Arc::clone(visit.caller()), name.to_owned());
    let work = async move {
        needs_name(&name)?;
        gateway.tenants.get_tenant(&caller, &name).await.map(drop)
    };
    perform(visit, act, work).await
}

async fn updated(visit: &PageVisit, name: &str) -> Result<(), GatewayError> {
    let quotas = quotas(|name| visit.field(name).to_owned());
    let mut act = VisitorAct::new("tenants.update", Action::ManageTenants);
    act.sent = quotas.as_ref().ok().map(|quotas| json!({ "quotas": quotas }));
    let (gateway, caller, name) = (Arc::clone(visit.gateway()), Arc::clone(visit.caller()), name.to_owned());
    let work = async move {
        needs_name(&name)?;
        gateway.tenants.patch_quotas(&caller, &name, &quotas?).await.map(drop)
    };
    perform(visit, act, work).await
}

/// Reads the quotas that a form changes, beside those that it was made with; an empty field is the deployment's.
fn quotas(field: impl Fn(&str) -> String) -> Result<Map<String, Value>, GatewayError> {
    let mut found = Map::new();
    for name in QUOTA_NAMES {
        let [given, was] = ["quotas", "was"].map(|of| field(&format!("{of}.{name}")));
        if given.trim() == was.trim() {
            continue;
        }
        let value = match given.trim() {
            "" => Value::Null,
            number => number.parse::<i64>().map(Value::from).map_err(|_| {
                let path = format!("quotas.{name}");
                let message = format!("{path} must be a whole number, or empty for the deployment's");
                GatewayError::invalid(path, message)
            })?,
        };
        found.insert(name.to_owned(), value);
    }
    Ok(found)
}

async fn suspended(visit: &PageVisit, name: &str, suspend: Suspend) -> Result<(), GatewayError> {
    let what = match suspend {
        Suspend::Yes => "tenants.suspend",
        Suspend::No => "tenants.resume",
    };
    let act = VisitorAct::new(what, Action::ManageTenants);
    let (gateway, caller, name) = (Arc::clone(visit.gateway()), Arc::clone(visit.caller()), name.to_owned());
    let work = async move {
        needs_name(&name)?;
        gateway.tenants.suspend_tenant(&caller, &name, suspend).await.map(drop)
    };
    perform(visit, act, work).await
}

fn lead_on(to: &str, cookie: Option<HeaderValue>) -> Response {
    let mut response = Redirect::to(to).into_response();
    set_cookie(response.headers_mut(), cookie);
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quotas_that_differ_are_numbers_or_inherited() {
        let of = |was: &'static str, value: &'static str| {
            let field = |name: &str| match name {
                "quotas.keys" => value.to_owned(),
                "was.keys" => was.to_owned(),
                _ => String::new(),
            };
            quotas(field).map(Value::Object).map_err(|error| error.to_string())
        };
        assert_eq!(of("", " 7 "), Ok(json!({"keys": 7})));
        assert_eq!(of("7", ""), Ok(json!({"keys": null})));
        assert_eq!(of("7", "7"), Ok(json!({})));
        assert!(of("7", "many").is_err());
    }
}
