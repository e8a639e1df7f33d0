//! The tenants file of `mcpproxy apply`: its format, and its checks, whose errors name the path in the file.

use std::collections::{BTreeMap, HashSet};
use std::path::Path;

use chrono::{DateTime, FixedOffset};
use serde::{Deserialize, Deserializer};
use serde_json::{Map, Value};
use uuid::Uuid;

use super::super::failure::Failure;
use super::super::input;
use super::declared::DeclaredSecret;
use super::logins::DeclaredIssuer;
use super::oauth::DeclaredOauth;
use crate::domain::id::is_name;
use crate::domain::identity::IdentityRule;
use crate::domain::quota::OwnQuotas;
use crate::domain::server_url::is_masked;
use crate::domain::settings::{Scope, Settings};
use crate::domain::tenant::Role;
use crate::domain::yaml;

/// Content of the whole file. Things that it does not mention stay as they are.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct File {
    #[serde(default)]
    pub(super) tenants: Vec<DeclaredTenant>,
    pub(super) issuers: Option<Vec<DeclaredIssuer>>,
}

/// Wanted state of a tenant.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct DeclaredTenant {
    pub(super) name: String,
    pub(super) suspended: Option<bool>,
    #[serde(default)]
    pub(super) quotas: Map<String, Value>,
    #[serde(default)]
    pub(super) settings: Map<String, Value>,
    pub(super) servers: Option<Vec<DeclaredServer>>,
    pub(super) keys: Option<Vec<DeclaredKey>>,
    /// Rules for people who log in: the whole list, in order. `None`: unchanged.
    pub(super) identity_rules: Option<Vec<IdentityRule>>,
}

/// Wanted state of a server.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct DeclaredServer {
    pub(super) name: String,
    kind: Option<String>,
    pub(super) url: Option<String>,
    pub(super) command: Option<String>,
    pub(super) headers: Option<BTreeMap<String, DeclaredSecret>>,
    pub(super) enabled: Option<bool>,
    pub(super) auto_approve: Option<bool>,
    pub(super) limits: Option<Map<String, Value>>,
    pub(super) relay: Option<Map<String, Value>>,
    /// Login of the gateway. `None`: unchanged; `Some(None)`: none.
    #[serde(default, deserialize_with = "said")]
    pub(super) oauth: Option<Option<DeclaredOauth>>,
}

/// Wanted state of a key, which its name identifies.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct DeclaredKey {
    pub(super) name: String,
    pub(super) role: String,
    pub(super) owner: Option<String>,
    /// Identity of the owner. `None`: unchanged; `Some(None)`: none.
    #[serde(default, deserialize_with = "said")]
    pub(super) identity_id: Option<Option<Uuid>>,
    /// Expiry time. `None`: unchanged; `Some(None)`: never.
    #[serde(default, deserialize_with = "said")]
    pub(super) expires_at: Option<Option<DateTime<FixedOffset>>>,
    #[serde(default)]
    pub(super) settings: Map<String, Value>,
}

/// Deserializes a field that differs from an absent one even if it is `null`.
pub(super) fn said<'de, D: Deserializer<'de>, T: Deserialize<'de>>(from: D) -> Result<Option<T>, D::Error> {
    T::deserialize(from).map(Some)
}

impl DeclaredServer {
    /// Returns the kind that the file gives; else `stdio` if there is a command, `http` if not.
    pub(super) fn kind(&self) -> &str {
        let guess = if self.command.is_some() { "stdio" } else { "http" };
        self.kind.as_deref().unwrap_or(guess)
    }

    /// Returns the field that locates the server (`url` or `command`), and its value.
    pub(super) fn place(&self) -> (&'static str, &str) {
        match (&self.url, &self.command) {
            (_, Some(command)) => ("command", command),
            (url, None) => ("url", url.as_deref().unwrap_or_default()),
        }
    }

    /// Returns the headers with their values; `None` if the file does not mention headers.
    pub(super) fn header_values(&self) -> Option<Map<String, Value>> {
        let headers = self.headers.as_ref()?;
        Some(headers.iter().map(|(name, secret)| (name.clone(), secret.value())).collect())
    }
}

/// Reads and checks the file; `-` is standard input. No request to the gateway has been made when this fails.
///
/// # Errors
/// The file cannot be read, is no valid YAML or not of the format, or names a variable that is not set. The error names the
/// path in the file.
pub(super) fn read(path: &Path) -> Result<File, Failure> {
    let shown = path.display().to_string();
    let from = if shown == "-" { shown.clone() } else { format!("@{shown}") };
    let text = input::text("-f", &from)?;
    let parsed = parse(&text).and_then(|mut file| {
        check(&mut file, &input::variable)?;
        Ok(file)
    });
    parsed.map_err(|fault| Failure::Usage(format!("{shown}: {fault}")))
}

fn parse(text: &str) -> Result<File, String> {
    let tree = yaml::read(text)?;
    serde_path_to_error::deserialize(tree).map_err(|error| {
        let path = error.path().to_string();
        let fault = error.into_inner().to_string();
        // "invalid type: string "…", expected a map": what stands there may be a credential
        let fault = match fault.rsplit_once(", expected ") {
            Some((found, expected)) if found.starts_with("invalid") => format!("expected {expected}"),
            _ => fault,
        };
        format!("{path}: {fault}")
    })
}

/// Checks what the types do not, and replaces references to environment variables by their values.
fn check(file: &mut File, env: &dyn Fn(&str) -> Option<String>) -> Result<(), String> {
    let mut names = HashSet::new();
    for (at, tenant) in file.tenants.iter_mut().enumerate() {
        let path = format!("tenants[{at}]");
        check_name(&path, &tenant.name)?;
        once(&mut names, &path, &tenant.name)?;
        OwnQuotas::default()
            .patched(&tenant.quotas)
            .map_err(|error| format!("{path}.{}: {}", error.field, error.message))?;
        check_settings(&path, &tenant.settings, Scope::Tenant)?;
        let mut names = HashSet::new();
        for (at, server) in tenant.servers.iter_mut().flatten().enumerate() {
            let path = format!("{path}.servers[{at}]");
            once(&mut names, &path, &server.name)?;
            check_server(&path, server, env)?;
        }
        let mut names = HashSet::new();
        for (at, key) in tenant.keys.iter().flatten().enumerate() {
            let path = format!("{path}.keys[{at}]");
            once(&mut names, &path, &key.name)?;
            check_key(&path, key)?;
        }
        let rules = tenant.identity_rules.as_deref().unwrap_or_default();
        IdentityRule::check_all(rules).map_err(|fault| format!("{path}.identity_{fault}"))?;
    }
    let mut names = HashSet::new();
    for (at, issuer) in file.issuers.iter().flatten().enumerate() {
        let path = format!("issuers[{at}]");
        once(&mut names, &path, &issuer.name)?;
        issuer.check(&path)?;
    }
    Ok(())
}

fn check_name(path: &str, name: &str) -> Result<(), String> {
    if is_name(name) {
        return Ok(());
    }
    Err(format!("{path}.name: must be 1 to 32 of a-z, 0-9 and single hyphens"))
}

fn once(seen: &mut HashSet<String>, path: &str, name: &str) -> Result<(), String> {
    if seen.insert(name.to_owned()) {
        return Ok(());
    }
    Err(format!("{path}.name: '{name}' is there twice"))
}

fn check_settings(path: &str, settings: &Map<String, Value>, scope: Scope) -> Result<(), String> {
    let checked = Settings::default().patched(settings, scope);
    checked.map(drop).map_err(|error| format!("{path}.settings.{}: {}", error.field, error.message))
}

fn check_server(
    path: &str,
    server: &mut DeclaredServer,
    env: &dyn Fn(&str) -> Option<String>,
) -> Result<(), String> {
    check_name(path, &server.name)?;
    match (server.kind(), &server.url, &server.command) {
        ("http", Some(_), None) | ("stdio", None, Some(_)) => {}
        _ => return Err(format!("{path}: needs a url (kind http) or a command (kind stdio)")),
    }
    if server.url.as_deref().is_some_and(is_masked) {
        return Err(format!("{path}.url: is masked, as the gateway shows it; write the whole URL"));
    }
    for (name, secret) in server.headers.iter_mut().flatten() {
        secret.resolve(&format!("{path}.headers.{name}"), env)?;
    }
    match server.oauth.as_mut() {
        Some(_) if server.command.is_some() => Err(format!("{path}.oauth: is for a server with a url")),
        Some(Some(oauth)) => oauth.resolve(&format!("{path}.oauth"), env),
        Some(None) | None => Ok(()),
    }
}

fn check_key(path: &str, key: &DeclaredKey) -> Result<(), String> {
    if key.name.trim().is_empty() {
        return Err(format!("{path}.name: must not be empty"));
    }
    if Role::parse(&key.role).is_none() {
        return Err(format!("{path}.role: must be agent, operator, approver, auditor or admin"));
    }
    check_settings(path, &key.settings, Scope::Key)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fault(text: &str) -> String {
        let read = parse(text).and_then(|mut file| check(&mut file, &|_| None));
        read.expect_err(text)
    }

    #[test]
    fn faults_name_the_path_and_no_credential() {
        let server = |more: &str| format!("tenants: [{{name: a, servers: [{{name: s, {more}}}]}}]");
        let table = [
            (
                "tenants: [{name: a, servers: [{name: s, urll: x}]}]".to_owned(),
                "tenants[0].servers[0].urll: ",
            ),
            (server("url: x, headers: s3cret"), "tenants[0].servers[0].headers: expected a map"),
            (server("url: x, headers: {A: [s3cret]}"), "tenants[0].servers[0].headers.A: must be a text"),
            (server("url: x, headers: {A: {env: 's3cret!'}}"), "tenants[0].servers[0].headers.A: env must"),
            (server("url: x, headers: {A: {env: TOKEN}}"), "variable TOKEN is not set"),
            (server("url: x, headers: {A: '${TOKEN}'}"), "is written {env: NAME}"),
            (server("url: x, headers: {A: *s3cret}"), "line 1, column "),
            (server("url: x, command: y"), "tenants[0].servers[0]: needs a url"),
            (server("url: x, enabled: yes"), "tenants[0].servers[0].enabled: expected a boolean"),
            ("tenants: [{name: a}, {name: a}]".to_owned(), "tenants[1].name: 'a' is there twice"),
            ("tenants: [{name: a, name: b}]".to_owned(), "says a name twice"),
            ("tenants: [{name: A}]".to_owned(), "tenants[0].name: must be"),
            ("tenants: [{name: a, quotas: {cars: 1}}]".to_owned(), "tenants[0].quotas.cars: unknown quota"),
            (
                "tenants: [{name: a, settings: {rate_limit: 0}}]".to_owned(),
                "tenants[0].settings.rate_limit: ",
            ),
            ("tenants: [{name: a, keys: [{name: k, role: king}]}]".to_owned(), "tenants[0].keys[0].role: "),
            (
                "tenants: [{name: a, identity_rules: [{role: agent}, {role: admin}]}]".to_owned(),
                "tenants[0].identity_rules[1].conditions: ",
            ),
            ("issuers: [{name: A, issuer: x}]".to_owned(), "issuers[0].name: must be"),
            ("issuers: [{name: a}]".to_owned(), "issuers[0]: missing field `issuer`"),
            ("issuers: [{name: a, issuer: x, secret: s3cret}]".to_owned(), "issuers[0].secret: "),
            (
                "issuers: [{name: a, issuer: x, tenants: [{value: v, tenant: t}]}]".to_owned(),
                "issuers[0].tenants[0].claim: name it",
            ),
            (
                "tenants: [{name: a, keys: [{name: k, role: agent, expires_at: soon}]}]".to_owned(),
                "tenants[0].keys[0].expires_at: ",
            ),
            (
                "tenants: [{name: a, keys: [{name: k, role: agent, settings: {response_limit: 1}}]}]"
                    .to_owned(),
                "tenants[0].keys[0].settings.response_limit: ",
            ),
        ];
        for (text, says) in table {
            let fault = fault(&text);
            assert!(fault.contains(says) && !fault.contains("s3cret"), "{text}: {fault}");
        }
    }

    #[test]
    fn null_and_absent_differ_for_the_end_of_a_key() {
        let end = |more: &str| {
            let file = parse(&format!("tenants: [{{name: a, keys: [{{name: k, role: agent{more}}}]}}]"));
            file.unwrap_or_else(|fault| panic!("{fault}")).tenants[0].keys.as_ref().unwrap()[0].expires_at
        };
        assert_eq!((end(""), end(", expires_at: null")), (None, Some(None)));
        assert!(end(", expires_at: 2030-01-01T00:00:00Z").flatten().is_some());
    }
}
