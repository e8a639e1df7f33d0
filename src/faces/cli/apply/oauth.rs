//! Logins of the gateway at servers in the tenants file.

use http::Method;
use serde::Deserialize;
use serde_json::{Map, Value};

use super::compare::{Changes, at};
use super::declared::DeclaredSecret;
use crate::domain::server_login::LoginKind;
use crate::domain::server_url::masked;

/// Wanted login of the gateway at a server.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct DeclaredOauth {
    kind: Option<String>,
    client_id: Option<String>,
    client_secret: Option<DeclaredSecret>,
    issuer: Option<String>,
    token_endpoint: Option<String>,
    authorization_endpoint: Option<String>,
    resource: Option<String>,
    audience: Option<String>,
    exchange_grant: Option<String>,
    scopes: Option<Vec<String>>,
    client_auth: Option<String>,
}

impl DeclaredOauth {
    /// Replaces a reference to an environment variable by its value.
    pub(super) fn resolve(&mut self, path: &str, env: &dyn Fn(&str) -> Option<String>) -> Result<(), String> {
        match &mut self.client_secret {
            Some(secret) => secret.resolve(&format!("{path}.client_secret"), env),
            None => Ok(()),
        }
    }

    /// Returns whether people's tokens are exchanged, at an issuer that has to be there.
    pub(super) fn is_exchange(&self) -> bool {
        self.kind.as_deref() == Some(LoginKind::TokenExchange.as_str())
    }

    /// Returns the members that the gateway shows as well.
    fn shown(&self) -> Map<String, Value> {
        let kind = self.kind.as_deref().unwrap_or(LoginKind::ClientCredentials.as_str());
        let mut shown = Map::new();
        shown.insert("kind".to_owned(), kind.into());
        for (name, text) in [
            ("client_id", &self.client_id),
            ("issuer", &self.issuer),
            ("token_endpoint", &self.token_endpoint),
            ("authorization_endpoint", &self.authorization_endpoint),
            ("resource", &self.resource),
            ("audience", &self.audience),
            ("exchange_grant", &self.exchange_grant),
            ("client_auth", &self.client_auth),
        ] {
            shown.extend(text.as_ref().map(|text| (name.to_owned(), text.clone().into())));
        }
        shown.extend(self.scopes.as_ref().map(|scopes| ("scopes".to_owned(), scopes.clone().into())));
        shown
    }
}

/// Returns the request that makes the login at a server as wanted, with its lines; `None` if it is. The secret cannot be
/// compared: it is set with the rest, or `again`.
pub(super) fn login_changes(
    wanted: Option<&DeclaredOauth>,
    is: &Value,
    again: bool,
) -> Option<(Method, Changes)> {
    let mut changes = Changes::default();
    let Some(wanted) = wanted else {
        if is.is_null() {
            return None;
        }
        changes.lines.push("oauth: removed".to_owned());
        return Some((Method::DELETE, changes));
    };
    let shown = wanted.shown();
    for (name, value) in &shown {
        // none is shown as null
        let is_none = matches!(name.as_str(), "resource" | "audience")
            && value == ""
            && at(is, name).is_null()
            && !is.is_null();
        if !is_none {
            // shown without its query
            let value = match value.as_str() {
                Some(url)
                    if matches!(name.as_str(), "token_endpoint" | "authorization_endpoint" | "resource") =>
                {
                    masked(url).into()
                }
                _ => value.clone(),
            };
            changes.compare(name, at(is, name), Some(value));
        }
    }
    changes.lines.iter_mut().for_each(|line| line.insert_str(0, "oauth."));
    if changes.is_empty() {
        if !again || wanted.client_secret.is_none() {
            return None;
        }
        changes.lines.push("oauth: client_secret set again".to_owned());
    }
    changes.body = shown;
    if let Some(secret) = &wanted.client_secret {
        changes.body.insert("client_secret".to_owned(), secret.value());
    }
    Some((Method::PUT, changes))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_login_is_compared_without_its_secret() {
        let given = json!({"client_id": "gw", "client_secret": "s3cret", "scopes": ["a"], "resource": ""});
        let given: DeclaredOauth = serde_json::from_value(given).unwrap();
        let there = json!({
            "kind": "client_credentials", "client_id": "gw", "scopes": ["a"], "resource": null, "issuer": "https://i",
        });
        assert!(login_changes(Some(&given), &there, false).is_none());
        let (method, again) = login_changes(Some(&given), &there, true).unwrap();
        assert_eq!((method, again.body["client_secret"].as_str()), (Method::PUT, Some("s3cret")));
        let other =
            json!({"kind": "client_credentials", "client_id": "old", "scopes": ["a"], "resource": null});
        let (_, changed) = login_changes(Some(&given), &other, false).unwrap();
        assert_eq!(changed.lines.len(), 1, "{:?}", changed.lines);
        assert!(!changed.lines.concat().contains("s3cret"));
        let (_, new) = login_changes(Some(&given), &Value::Null, false).unwrap();
        assert_eq!(new.body["client_id"], "gw");
        assert!(login_changes(None, &Value::Null, true).is_none());
        assert_eq!(login_changes(None, &there, false).unwrap().0, Method::DELETE);
    }
}
