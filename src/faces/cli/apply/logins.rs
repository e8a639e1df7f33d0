//! Issuers and identity rules in the tenants file: their format, checks and plan.

use std::collections::HashSet;

use http::Method;
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::super::client::{ApiClient, ApiQuery};
use super::super::failure::Failure;
use super::super::output::text;
use super::compare::{Changes, at};
use super::step::{Mark, Step, StepRoom};
use crate::domain::id::is_name;
use crate::domain::identity::IdentityRule;

/// Wanted state of an issuer. Fields that are absent stay as they are, or have their defaults in a new one; `null` takes away.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct DeclaredIssuer {
    pub(super) name: String,
    /// Issuer URL, which identifies the provider and never changes.
    issuer: String,
    /// Tenants that claims lead to: the whole list, in order. `None`: unchanged.
    tenants: Option<Vec<DeclaredAssignment>>,
    audiences: Option<Vec<String>>,
    algorithms: Option<Vec<String>>,
    advertised_scopes: Option<Vec<String>>,
    #[serde(default, deserialize_with = "super::file::said")]
    token_types: Option<Option<Vec<String>>>,
    #[serde(default, deserialize_with = "super::file::said")]
    host: Option<Option<String>>,
    #[serde(default, deserialize_with = "super::file::said")]
    tenant: Option<Option<String>>,
    subject_claim: Option<String>,
    #[serde(default, deserialize_with = "super::file::said")]
    owner_claim: Option<Option<String>>,
    #[serde(default, deserialize_with = "super::file::said")]
    tenant_claim: Option<Option<String>>,
    #[serde(default, deserialize_with = "super::file::said")]
    jwks_uri: Option<Option<String>>,
}

/// Tenant that a claim leads to.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
struct DeclaredAssignment {
    /// Name of the claim; the issuer's `tenant_claim` if absent.
    claim: Option<String>,
    value: String,
    tenant: String,
}

/// Plan of the changes to one issuer.
pub(super) struct IssuerPlan {
    pub(super) name: String,
    /// Steps in the order of execution. After a failure the rest is skipped.
    pub(super) steps: Vec<Step>,
}

impl DeclaredIssuer {
    /// Returns the fields that the file sets, by name.
    fn given(&self) -> Vec<(&'static str, Value)> {
        let mut given = Vec::new();
        let mut add = |name, value: Option<Value>| given.extend(value.map(|value| (name, value)));
        add("tenant", self.tenant.clone().map(Value::from));
        add("host", self.host.clone().map(Value::from));
        add("audiences", self.audiences.clone().map(Value::from));
        add("algorithms", self.algorithms.clone().map(Value::from));
        add("token_types", self.token_types.clone().map(|types| types.map_or(Value::Null, Value::from)));
        add("advertised_scopes", self.advertised_scopes.clone().map(Value::from));
        add("subject_claim", self.subject_claim.clone().map(Value::from));
        add("owner_claim", self.owner_claim.clone().map(Value::from));
        add("tenant_claim", self.tenant_claim.clone().map(Value::from));
        add("jwks_uri", self.jwks_uri.clone().map(Value::from));
        given
    }

    /// Checks what the types do not. Values are the gateway's to check.
    pub(super) fn check(&self, path: &str) -> Result<(), String> {
        if !is_name(&self.name) {
            return Err(format!("{path}.name: must be 1 to 32 of a-z, 0-9 and single hyphens"));
        }
        let has_claim = self.tenant_claim.as_ref().is_some_and(Option::is_some);
        let unnamed = self.tenants.iter().flatten().position(|item| item.claim.is_none());
        match unnamed.filter(|_| !has_claim) {
            Some(at) => {
                Err(format!("{path}.tenants[{at}].claim: name it, or give the issuer a tenant_claim"))
            }
            None => Ok(()),
        }
    }

    /// Reads the state of the issuer, if it exists, and returns the plan.
    ///
    /// # Errors
    /// The state cannot be read, or cannot be changed to match the file.
    pub(super) async fn plan(&self, platform: &ApiClient, is: Option<&Value>) -> Result<IssuerPlan, Failure> {
        let steps = match is {
            None => self.new_steps(),
            Some(is) => self.changing_steps(platform, is).await?,
        };
        Ok(IssuerPlan { name: self.name.clone(), steps })
    }

    fn new_steps(&self) -> Vec<Step> {
        let mut body = Map::new();
        body.insert("name".to_owned(), self.name.clone().into());
        body.insert("issuer".to_owned(), self.issuer.clone().into());
        let mut line = format!("({}", self.issuer);
        for (name, value) in self.given().into_iter().filter(|(_, value)| !value.is_null()) {
            line.push_str(&format!(", {name} {}", shown(&value)));
            body.insert(name.to_owned(), value);
        }
        line.push(')');
        let make = self.step(Mark::Make, Method::POST, &["issuers"], vec![line], body);
        let assigned = self.tenants.as_ref().filter(|tenants| !tenants.is_empty());
        let assigned = assigned.map(|_| self.assign(&Value::Null, None));
        [make].into_iter().chain(assigned).collect()
    }

    async fn changing_steps(&self, platform: &ApiClient, is: &Value) -> Result<Vec<Step>, Failure> {
        if text(is, "issuer") != self.issuer {
            return Err(Failure::Refused(format!(
                "issuers/{} is {}, which cannot change to {}: another URL has other people; give the new one \
                 another name, or remove this one first (mcpproxy issuer remove {0})",
                self.name,
                text(is, "issuer"),
                self.issuer
            )));
        }
        let mut steps = Vec::new();
        let mut version = at(is, "version").as_i64().unwrap_or_default();
        if let Some(wanted) = &self.tenants {
            let path = ["issuers", &self.name, "tenants"];
            let there = platform.get(&path, &ApiQuery::default()).await?.json()?;
            if at(&there, "items") != &self.items(wanted) {
                steps.push(self.assign(at(&there, "items"), Some(version)));
                version += 1;
            }
        }
        let mut changes = Changes::default();
        for (name, wanted) in self.given() {
            changes.compare(name, at(is, name), Some(wanted));
        }
        if !changes.is_empty() {
            changes.body.insert("version".to_owned(), version.into());
            let Changes { lines, body } = changes;
            steps.push(self.step(Mark::Change, Method::PATCH, &["issuers", &self.name], lines, body));
        }
        Ok(steps)
    }

    /// Returns the assignments as the gateway shows them.
    fn items(&self, wanted: &[DeclaredAssignment]) -> Value {
        let default = self.tenant_claim.clone().flatten();
        let items = wanted.iter().map(|item| {
            let claim = item.claim.clone().or_else(|| default.clone());
            json!({ "claim": claim, "value": item.value, "tenant": item.tenant })
        });
        items.collect()
    }

    fn assign(&self, there: &Value, version: Option<i64>) -> Step {
        let items = self.items(self.tenants.as_deref().unwrap_or_default());
        let line = format!("tenants: {} → {}", assigned(there), assigned(&items));
        let version = version.map(|version| ("version".to_owned(), version.into()));
        let body = [("items".to_owned(), items)].into_iter().chain(version).collect();
        self.step(Mark::Change, Method::PUT, &["issuers", &self.name, "tenants"], vec![line], body)
    }

    fn step(
        &self,
        mark: Mark,
        method: Method,
        path: &[&str],
        lines: Vec<String>,
        body: Map<String, Value>,
    ) -> Step {
        let path = path.iter().map(|part| (*part).to_owned()).collect();
        let place = format!("issuers/{}", self.name);
        Step { mark, place, lines, room: StepRoom::Platform, method, path, body: Some(body) }
    }
}

/// Returns assignments as `claim=value:tenant`.
fn assigned(items: &Value) -> String {
    let one =
        |item: &Value| format!("{}={}:{}", text(item, "claim"), text(item, "value"), text(item, "tenant"));
    let items: Vec<String> = items.as_array().into_iter().flatten().map(one).collect();
    if items.is_empty() { "none".to_owned() } else { items.join(", ") }
}

fn shown(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

/// Returns the step that replaces the identity rules of a tenant; `None` if they are the same. `there` is the answer of the gateway,
/// or null for a new tenant.
///
/// # Errors
/// The rules of the gateway are of a newer release.
pub(super) fn rules_step(
    tenant: &str,
    wanted: &[IdentityRule],
    there: &Value,
) -> Result<Option<Step>, Failure> {
    let of = |rules: &Value| serde_json::from_value::<Vec<IdentityRule>>(rules.clone());
    let is = match at(there, "rules") {
        Value::Null => Vec::new(),
        rules => of(rules).map_err(|_| {
            Failure::Refused("its identity rules are of a newer release: apply the file with that".to_owned())
        })?,
    };
    if is == wanted {
        return Ok(None);
    }
    let same = is.iter().zip(wanted).take_while(|(is, wanted)| is == wanted).count();
    let line =
        format!("identity_rules: {} → {} rules, which differ from rules[{same}] on", is.len(), wanted.len());
    let version = at(there, "version").as_i64().unwrap_or_default();
    let body = json!({ "version": version, "rules": wanted });
    Ok(Some(Step {
        mark: Mark::Change,
        place: tenant.to_owned(),
        lines: vec![line],
        room: StepRoom::Tenant,
        method: Method::PUT,
        path: ["identity", "rules"].map(str::to_owned).to_vec(),
        body: body.as_object().cloned(),
    }))
}

/// Returns the issuers that exist and are not in the file.
pub(super) fn others(there: &[Value], wanted: &[DeclaredIssuer]) -> Vec<String> {
    let named: HashSet<&str> = wanted.iter().map(|issuer| issuer.name.as_str()).collect();
    let names = there.iter().map(|issuer| text(issuer, "name")).filter(|name| !named.contains(&**name));
    names.map(|name| format!("issuers/{name}")).collect()
}
