//! Plan of `mcpproxy apply` for one tenant. This module only reads from the gateway.

use std::collections::HashSet;

use chrono::{DateTime, FixedOffset, SecondsFormat};
use http::Method;
use serde_json::{Map, Value, json};

use super::super::client::{ApiClient, ApiQuery};
use super::super::failure::Failure;
use super::super::output::text;
use super::super::same_server::{has_url, header_names};
use super::compare::{Changes, at, own_values};
use super::file::{DeclaredKey, DeclaredServer, DeclaredTenant};
use super::logins::rules_step;
use super::oauth::{DeclaredOauth, login_changes};
use super::step::{Mark, Step, StepRoom};
use crate::domain::relay::Relay;
use crate::domain::server_url::{ServerPlace, masked, without_query};

/// Condition for setting a server's headers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PlannedHeaders {
    WhenNamesDiffer,
    Again,
}

/// Plan of the changes to one tenant.
pub(super) struct ApplyPlan {
    pub(super) tenant: String,
    /// Steps in the order of execution. After a failure the rest is skipped.
    pub(super) steps: Vec<Step>,
    /// Steps that need the issuers of the file, executed when these are as it says: identity rules, and logins by exchange.
    pub(super) late: Vec<Step>,
    /// Suspension of the tenant, executed last even if a step failed.
    pub(super) suspend: Option<Step>,
    /// Number of things that the file names: the tenant, its servers and its keys.
    pub(super) things: usize,
    /// Things that exist and are not in the file.
    pub(super) others: Vec<String>,
}

/// Inputs of a plan.
pub(super) struct Planner<'a> {
    pub(super) platform: &'a ApiClient,
    pub(super) client: &'a ApiClient,
    pub(super) tenant: &'a DeclaredTenant,
    pub(super) headers: PlannedHeaders,
}

impl ApplyPlan {
    /// Returns all steps, in no order.
    pub(super) fn all(&self) -> impl Iterator<Item = &Step> {
        self.steps.iter().chain(&self.late).chain(&self.suspend)
    }
}

impl Planner<'_> {
    /// Reads the state of the tenant, if it exists, and returns the plan.
    ///
    /// # Errors
    /// The state cannot be read, or cannot be changed to match the file.
    pub(super) async fn plan(&self, exists: bool) -> Result<ApplyPlan, Failure> {
        let wanted = self.tenant;
        let name = wanted.name.clone();
        let things = 1 + wanted.servers.iter().flatten().count() + wanted.keys.iter().flatten().count();
        let mut plan = ApplyPlan {
            tenant: name,
            steps: Vec::new(),
            late: Vec::new(),
            suspend: None,
            things,
            others: Vec::new(),
        };
        if exists {
            self.existing(&mut plan).await?;
        } else {
            self.new_tenant(&mut plan);
        }
        if let Some(rules) = &wanted.identity_rules {
            let there = match exists {
                true => self.client.get(&["identity", "rules"], &ApiQuery::default()).await?.json()?,
                false => Value::Null,
            };
            // they need no server
            plan.late.splice(0..0, rules_step(&wanted.name, rules, &there)?);
        }
        Ok(plan)
    }

    fn new_tenant(&self, plan: &mut ApplyPlan) {
        let wanted = self.tenant;
        let body = json!({ "name": wanted.name });
        let mut step = self.tenant_step(Mark::Make, Method::POST, &[]);
        step.body = body.as_object().cloned();
        step.lines = vec![String::new()];
        plan.steps.push(step);
        let none = Value::Null;
        let own = |wanted| own_values(wanted, &none, "tenant", &HashSet::new());
        self.push_quotas(plan, own(&wanted.quotas));
        self.push_settings(plan, own(&wanted.settings), None);
        for server in wanted.servers.iter().flatten() {
            plan.steps.push(self.new_server(server));
            self.push_login(plan, server, &none);
        }
        plan.steps.extend(wanted.keys.iter().flatten().map(|key| self.new_key(key)));
        if wanted.suspended == Some(true) {
            plan.suspend = Some(self.act("suspend", "suspended: false → true"));
        }
    }

    async fn existing(&self, plan: &mut ApplyPlan) -> Result<(), Failure> {
        let wanted = self.tenant;
        let page = self.platform.get(&["tenants", &wanted.name], &ApiQuery::default()).await?.json()?;
        let is_suspended = !at(&page, "suspended_at").is_null();
        match (is_suspended, wanted.suspended) {
            (true, Some(false)) => plan.steps.push(self.act("resume", "suspended: true → false")),
            (false, Some(true)) => plan.suspend = Some(self.act("suspend", "suspended: false → true")),
            _ => {}
        }
        let still = HashSet::new();
        self.push_quotas(plan, own_values(&wanted.quotas, at(&page, "quotas"), "tenant", &still));
        let mut moving = HashSet::new();
        if !wanted.settings.is_empty() {
            let shown = self.client.get(&["settings"], &ApiQuery::default()).await?.json()?;
            let changes = own_values(&wanted.settings, &shown, "tenant", &still);
            moving.extend(changes.body.keys().cloned());
            self.push_settings(plan, changes, shown.get("version"));
        }
        let before = plan.steps.len() + plan.late.len();
        self.servers(plan).await?;
        let stays_suspended = is_suspended && wanted.suspended != Some(false);
        if stays_suspended && plan.steps.len() + plan.late.len() > before {
            let sentence = "it is suspended, so its servers cannot be changed; resume it first \
                            (suspended: false), or leave its servers as they are";
            return Err(Failure::Refused(sentence.to_owned()));
        }
        self.keys(plan, &moving).await
    }

    async fn servers(&self, plan: &mut ApplyPlan) -> Result<(), Failure> {
        let Some(wanted) = &self.tenant.servers else { return Ok(()) };
        let there = self.list("servers").await?;
        for server in wanted {
            match there.iter().find(|is| text(is, "name") == server.name) {
                Some(is) => {
                    plan.steps.extend(self.changed_server(server, is)?);
                    self.push_login(plan, server, is);
                }
                None => {
                    plan.steps.push(self.new_server(server));
                    self.push_login(plan, server, &Value::Null);
                }
            }
        }
        let named: HashSet<&str> = wanted.iter().map(|server| server.name.as_str()).collect();
        self.note_others(plan, "servers", &there, &named);
        Ok(())
    }

    fn new_server(&self, server: &DeclaredServer) -> Step {
        let (field, place) = server.place();
        let mut body = Map::new();
        for (name, value) in [("name", &*server.name), ("kind", server.kind()), (field, place)] {
            body.insert(name.to_owned(), value.into());
        }
        let mut line = format!("({} {}", server.kind(), masked(place));
        if let Some(headers) = server.header_values().filter(|headers| !headers.is_empty()) {
            let names: Vec<&str> = headers.keys().map(String::as_str).collect();
            line.push_str(&format!(", headers {}", names.join(", ")));
            body.insert("headers".to_owned(), headers.into());
        }
        for (name, flag) in [("enabled", server.enabled), ("auto_approve", server.auto_approve)] {
            if let Some(flag) = flag {
                line.push_str(&format!(", {name}: {flag}"));
                body.insert(name.to_owned(), flag.into());
            }
        }
        for (name, members) in [("limits", &server.limits), ("relay", &server.relay)] {
            if let Some(members) = members {
                line.push_str(&format!(", {name} {}", Value::Object(members.clone())));
                body.insert(name.to_owned(), members.clone().into());
            }
        }
        line.push(')');
        self.step(Mark::Make, &["servers"], &server.name, Changes { lines: vec![line], body })
    }

    fn changed_server(&self, server: &DeclaredServer, is: &Value) -> Result<Option<Step>, Failure> {
        if text(is, "kind") != server.kind() {
            return Err(Failure::Refused(format!(
                "servers/{} is of kind {}, which cannot change to {}: remove it first (mcpproxy upstream remove)",
                server.name,
                text(is, "kind"),
                server.kind()
            )));
        }
        let mut changes = Changes::default();
        let moves = compare_place(&mut changes, server, is);
        changes.compare("enabled", at(is, "enabled"), server.enabled.map(Value::Bool));
        changes.compare("auto_approve", at(is, "auto_approve"), server.auto_approve.map(Value::Bool));
        changes.compare("limits", at(is, "limits"), server.limits.clone().map(Value::Object));
        self.compare_headers(&mut changes, server, is, moves);
        compare_relay(&mut changes, server, at(is, "relay"), moves);
        if moves && let Some(flag) = server.auto_approve {
            // a new address clears auto_approve, unless the request sets it
            changes.body.insert("auto_approve".to_owned(), flag.into());
        }
        if changes.is_empty() {
            return Ok(None);
        }
        changes.body.insert("version".to_owned(), at(is, "version").clone());
        Ok(Some(self.step(Mark::Change, &["servers", &server.name], &server.name, changes)))
    }

    /// Adds the step that configures or removes the login at a server, if there is one.
    fn push_login(&self, plan: &mut ApplyPlan, server: &DeclaredServer, is: &Value) {
        let is_late = server.oauth.iter().flatten().any(DeclaredOauth::is_exchange);
        let steps = if is_late { &mut plan.late } else { &mut plan.steps };
        steps.extend(self.login_step(server, is));
    }

    /// Returns the step that configures or removes the login at a server; `None` if it is as the file says.
    fn login_step(&self, server: &DeclaredServer, is: &Value) -> Option<Step> {
        let moves = server.url.as_deref().is_some_and(|url| {
            ServerPlace::of(url) != at(is, "url").as_str().and_then(|url| ServerPlace::of(without_query(url)))
        });
        // a login is for one place, and is removed with it
        let there = if moves { &Value::Null } else { at(is, "oauth") };
        let is_again = self.headers == PlannedHeaders::Again;
        let (method, changes) = login_changes(server.oauth.as_ref()?.as_ref(), there, is_again)?;
        let mark = if is.is_null() { Mark::Make } else { Mark::Change };
        let mut step = self.step(mark, &["servers", &server.name, "oauth"], &server.name, changes);
        step.body = step.body.filter(|_| method != Method::DELETE);
        step.method = method;
        Some(step)
    }

    /// Compares headers by name, since values cannot be read back. A new address clears headers, so they are sent with it.
    fn compare_headers(&self, changes: &mut Changes, server: &DeclaredServer, is: &Value, moves: bool) {
        let Some(headers) = server.header_values() else { return };
        let there =
            header_names(at(is, "headers").as_array().into_iter().flatten().filter_map(Value::as_str));
        let wanted = header_names(headers.keys().map(String::as_str));
        if there != wanted {
            changes.lines.push(format!("headers: {} → {}", listed(&there), listed(&wanted)));
        } else if self.headers == PlannedHeaders::Again && !wanted.is_empty() {
            changes.lines.push(format!("headers: {} set again", listed(&wanted)));
        } else if !moves {
            return;
        }
        changes.body.insert("headers".to_owned(), headers.into());
    }

    async fn keys(&self, plan: &mut ApplyPlan, moving: &HashSet<String>) -> Result<(), Failure> {
        let Some(wanted) = &self.tenant.keys else { return Ok(()) };
        let mut there = self.list("keys").await?;
        there.retain(|key| at(key, "revoked_at").is_null());
        for key in wanted {
            let mut named = there.iter().filter(|is| text(is, "name") == key.name);
            match (named.next(), named.next()) {
                (None, _) => plan.steps.push(self.new_key(key)),
                (Some(is), None) => self.changed_key(plan, key, is, moving).await?,
                (Some(one), Some(other)) => {
                    return Err(Failure::Refused(format!(
                        "keys/{} is the name of several keys ({}, {}): revoke all but one (mcpproxy key revoke ID)",
                        key.name,
                        text(one, "id"),
                        text(other, "id")
                    )));
                }
            }
        }
        let named: HashSet<&str> = wanted.iter().map(|key| key.name.as_str()).collect();
        self.note_others(plan, "keys", &there, &named);
        Ok(())
    }

    fn new_key(&self, key: &DeclaredKey) -> Step {
        let mut body = Map::new();
        let mut line = format!("({}", key.role);
        for (name, value) in
            [("name", Some(&key.name)), ("role", Some(&key.role)), ("owner", key.owner.as_ref())]
        {
            body.extend(value.map(|value| (name.to_owned(), Value::from(value.as_str()))));
        }
        line.extend(key.owner.iter().map(|owner| format!(", owner {owner}")));
        if let Some(identity) = key.identity_id.flatten() {
            line.push_str(&format!(", identity {identity}"));
            body.insert("identity_id".to_owned(), identity.to_string().into());
        }
        if let Some(at) = key.expires_at.flatten() {
            line.push_str(&format!(", until {}", time(at)));
            body.insert("expires_at".to_owned(), time(at).into());
        }
        if !key.settings.is_empty() {
            line.push_str(&format!(", settings {}", Value::Object(key.settings.clone())));
            body.insert("settings".to_owned(), key.settings.clone().into());
        }
        line.push(')');
        self.step(Mark::Make, &["keys"], &key.name, Changes { lines: vec![line], body })
    }

    async fn changed_key(
        &self,
        plan: &mut ApplyPlan,
        key: &DeclaredKey,
        is: &Value,
        moving: &HashSet<String>,
    ) -> Result<(), Failure> {
        let (id, role) = (text(is, "id"), text(is, "role"));
        if role != key.role {
            return Err(Failure::Refused(format!(
                "keys/{} has the role {role}, which cannot change to {}: give the new key another name, or revoke \
                 this one first (mcpproxy key revoke {id})",
                key.name, key.role
            )));
        }
        let mut changes = Changes::default();
        changes.compare("owner", at(is, "owner"), key.owner.as_deref().map(Value::from));
        if let Some(owner) = key.owner.as_deref().filter(|_| changes.is_empty())
            && at(is, "owner_given") == &Value::Bool(false)
        {
            changes.lines.push(format!("owner: {owner}, which was the key's name only"));
            changes.body.insert("owner".to_owned(), owner.into());
        }
        let identity = key.identity_id.map(|id| id.map_or(Value::Null, |id| id.to_string().into()));
        changes.compare("identity_id", at(is, "identity_id"), identity);
        if let Some(end) = key.expires_at {
            let there = DateTime::parse_from_rfc3339(&text(is, "expires_at")).ok();
            if there.map(|at| at.timestamp_millis()) != end.map(|at| at.timestamp_millis()) {
                changes.add(
                    "expires_at",
                    at(is, "expires_at"),
                    &end.map_or(Value::Null, |at| time(at).into()),
                );
            }
        }
        if !changes.is_empty() {
            changes.body.insert("version".to_owned(), at(is, "version").clone());
            plan.steps.push(self.step(Mark::Change, &["keys", &id], &key.name, changes));
        }
        if key.settings.is_empty() {
            return Ok(());
        }
        let shown = self.client.get(&["keys", &id, "settings"], &ApiQuery::default()).await?.json()?;
        let mut changes = own_values(&key.settings, &shown, "key", moving);
        if !changes.is_empty() {
            prefix(&mut changes.lines, "settings");
            changes.body.insert("version".to_owned(), at(&shown, "version").clone());
            plan.steps.push(self.step(Mark::Change, &["keys", &id, "settings"], &key.name, changes));
        }
        Ok(())
    }

    fn push_quotas(&self, plan: &mut ApplyPlan, mut changes: Changes) {
        if changes.is_empty() {
            return;
        }
        prefix(&mut changes.lines, "quotas");
        let mut step = self.tenant_step(Mark::Change, Method::PATCH, &[&self.tenant.name]);
        step.lines = changes.lines;
        step.body = Some(Map::from_iter([("quotas".to_owned(), changes.body.into())]));
        plan.steps.push(step);
    }

    fn push_settings(&self, plan: &mut ApplyPlan, mut changes: Changes, version: Option<&Value>) {
        if changes.is_empty() {
            return;
        }
        prefix(&mut changes.lines, "settings");
        changes.body.extend(version.map(|version| ("version".to_owned(), version.clone())));
        let step =
            Step { place: self.tenant.name.clone(), ..self.step(Mark::Change, &["settings"], "", changes) };
        plan.steps.push(step);
    }

    /// Returns the step that suspends or resumes the tenant.
    fn act(&self, verb: &str, line: &str) -> Step {
        let mut step = self.tenant_step(Mark::Change, Method::POST, &[&self.tenant.name, verb]);
        step.lines = vec![line.to_owned()];
        step
    }

    fn tenant_step(&self, mark: Mark, method: Method, path: &[&str]) -> Step {
        let place = match mark {
            Mark::Make => format!("tenant {}", self.tenant.name),
            Mark::Change => self.tenant.name.clone(),
        };
        let path = ["tenants"].iter().chain(path).map(|part| (*part).to_owned()).collect();
        Step { mark, place, lines: Vec::new(), room: StepRoom::Platform, method, path, body: None }
    }

    fn step(&self, mark: Mark, path: &[&str], name: &str, changes: Changes) -> Step {
        let place = format!("{}/{}/{name}", self.tenant.name, path.first().copied().unwrap_or_default());
        let method = if mark == Mark::Make { Method::POST } else { Method::PATCH };
        let path = path.iter().map(|part| (*part).to_owned()).collect();
        let Changes { lines, body } = changes;
        Step { mark, place, lines, room: StepRoom::Tenant, method, path, body: Some(body) }
    }

    async fn list(&self, what: &str) -> Result<Vec<Value>, Failure> {
        let items = self.client.list(&[what], &ApiQuery::default(), usize::MAX).await?;
        Ok(items.iter().map(|item| serde_json::from_str(item.get()).unwrap_or_default()).collect())
    }

    fn note_others(&self, plan: &mut ApplyPlan, what: &str, there: &[Value], named: &HashSet<&str>) {
        let others = there.iter().map(|item| text(item, "name")).filter(|name| !named.contains(&**name));
        plan.others.extend(others.map(|name| format!("{}/{what}/{name}", self.tenant.name)));
    }
}

/// Compares which messages of a server pass; absent members have their defaults. A new address takes back what had to be
/// allowed, so the choice is sent with it.
fn compare_relay(changes: &mut Changes, server: &DeclaredServer, is: &Value, moves: bool) {
    let Some(given) = &server.relay else { return };
    // what cannot be read is for the gateway to refuse
    let read = Relay::read(given).ok().and_then(|relay| serde_json::to_value(relay).ok());
    let wanted = read.unwrap_or_else(|| Value::Object(given.clone()));
    if moves {
        changes.body.insert("relay".to_owned(), wanted.clone());
    }
    changes.compare("relay", is, Some(wanted));
}

/// Compares the address of a server, and returns whether its headers and approvals are cleared by the change. Queries are
/// credentials: they are compared by digest, and never shown.
fn compare_place(changes: &mut Changes, server: &DeclaredServer, is: &Value) -> bool {
    let (field, wanted) = server.place();
    if field != "url" {
        changes.compare(field, at(is, field), Some(wanted.into()));
        return !changes.is_empty();
    }
    let there = text(is, "url");
    if has_url(is, wanted) {
        return false;
    }
    let note = if masked(wanted) == there { " (another query)" } else { "" };
    changes.lines.push(format!("url: {} → {}{note}", masked(&there), masked(wanted)));
    changes.body.insert("url".to_owned(), wanted.into());
    ServerPlace::of(without_query(&there)) != ServerPlace::of(wanted)
}

fn listed(names: &[String]) -> String {
    if names.is_empty() { "none".to_owned() } else { names.join(", ") }
}

fn prefix(lines: &mut [String], with: &str) {
    for line in lines {
        line.insert_str(0, &format!("{with}."));
    }
}

fn time(at: DateTime<FixedOffset>) -> String {
    at.to_utc().to_rfc3339_opts(SecondsFormat::Millis, true)
}
