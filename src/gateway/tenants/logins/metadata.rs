//! Metadata of the gateway as a protected resource (RFC 9728): where clients log in.

#[cfg(test)]
mod fuzz;

use std::sync::Arc;

use serde_json::{Value, json};

use super::book::KnownIssuer;
use crate::domain::host::is_host;
use crate::domain::identity::PublicUrl;
use crate::gateway::tenants::Tenants;

/// Path of the metadata, before that of the resource.
const WELL_KNOWN: &str = "/.well-known/oauth-protected-resource";

impl Tenants {
    /// Returns whether people can log in at a host: whether an issuer is in its metadata.
    pub fn has_logins_at(&self, host: &str) -> bool {
        self.logins.book().all().any(|issuer| is_listed(issuer.host.as_deref(), host))
    }

    /// Returns the URL of the metadata of an endpoint such as `/mcp`, for clients that came by this host. `None` without
    /// issuers, and without a public URL: clients must not be sent to an address that nobody configured.
    pub fn metadata_url(&self, host: &str, endpoint: &str) -> Option<String> {
        let base = self.has_logins_at(host).then(|| self.base_at(host)).flatten()?;
        Some(format!("{}://{}{WELL_KNOWN}{}{endpoint}", base.scheme(), base.authority(), base.path()))
    }

    /// Returns the metadata that a path names, for clients that came by this host; `None` where there is none.
    pub fn resource_metadata(&self, host: &str, path: &str) -> Option<Value> {
        let base = self.base_at(host)?;
        let named = path.strip_prefix(WELL_KNOWN)?;
        let endpoint = named.strip_prefix(base.path()).unwrap_or(named);
        let endpoint = ["/mcp", "/mcp/direct"].into_iter().find(|known| *known == endpoint)?;
        let issuers = self.issuers_at(host);
        let first = issuers.first()?;
        let servers: Vec<&str> = issuers.iter().map(|issuer| issuer.url.as_str()).collect();
        let mut metadata = json!({
            "resource": format!("{}{endpoint}", base.as_str()),
            "authorization_servers": servers,
            "bearer_methods_supported": ["header"],
            "resource_name": "mcpproxy",
        });
        if let Some(members) = metadata.as_object_mut().filter(|_| !first.scopes.is_empty()) {
            members.insert("scopes_supported".to_owned(), json!(first.scopes));
        }
        Some(metadata)
    }

    /// Returns the scopes that clients of a host are told to ask for, separated by spaces; `None` for none.
    pub fn scopes_at(&self, host: &str) -> Option<String> {
        let issuers = self.issuers_at(host);
        issuers.first().filter(|first| !first.scopes.is_empty()).map(|first| first.scopes.join(" "))
    }

    /// Returns the issuers in the metadata of a host. Clients take the first: the host's own come before those of all hosts.
    fn issuers_at(&self, host: &str) -> Vec<Arc<KnownIssuer>> {
        let book = self.logins.book();
        let listed = book.all().filter(|issuer| is_listed(issuer.host.as_deref(), host));
        let mut issuers: Vec<_> = listed.cloned().collect();
        issuers
            .sort_by(|one, other| (one.host.is_none(), &one.name).cmp(&(other.host.is_none(), &other.name)));
        issuers
    }

    /// Returns the URL under which clients of a host reach the gateway: the public one, or that of an issuer's own host.
    fn base_at(&self, host: &str) -> Option<PublicUrl> {
        let public = self.options.logins.public_url.as_ref()?;
        let book = self.logins.book();
        let own = book.all().filter_map(|issuer| issuer.host.as_deref()).find(|own| is_host(own, host));
        Some(match own {
            Some(_) if !public.authority().eq_ignore_ascii_case(host) => public.at_host(host),
            _ => public.clone(),
        })
    }
}

fn is_listed(own: Option<&str>, host: &str) -> bool {
    own.is_none_or(|own| is_host(own, host))
}
