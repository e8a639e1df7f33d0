//! Tokens that the server asks for.

use std::fmt;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use http::HeaderMap;
use serde_json::json;

type Accepts = Box<dyn Fn(&str) -> bool + Send + Sync>;

/// Tokens that the server asks for: none, until it is told.
#[derive(Default)]
pub(super) struct Guard {
    accepts: Mutex<Option<Accepts>>,
    /// URL of the metadata, and the document.
    metadata: Mutex<Option<(String, String)>>,
    challenged: AtomicUsize,
    /// Scope that requests need, and tokens that have it.
    wants: Mutex<Option<(String, Accepts)>>,
}

impl fmt::Debug for Guard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Guard")
    }
}

impl Guard {
    pub(super) fn set(&self, accepts: Accepts) {
        *self.accepts.lock().unwrap() = Some(accepts);
    }

    pub(super) fn name_issuer(&self, url: &str, issuer: &str) {
        let base = url.strip_suffix("/mcp").unwrap();
        let document = json!({"resource": url, "authorization_servers": [issuer]}).to_string();
        let place = format!("{base}/.well-known/oauth-protected-resource/mcp");
        *self.metadata.lock().unwrap() = Some((place, document));
    }

    pub(super) fn want(&self, scope: &str, has: Accepts) {
        *self.wants.lock().unwrap() = Some((scope.to_owned(), has));
    }

    /// The challenge for a request whose token has too few scopes.
    pub(super) fn wants(&self, headers: &HeaderMap) -> Option<String> {
        let wants = self.wants.lock().unwrap();
        let (scope, has) = wants.as_ref()?;
        let token = headers.get("authorization")?.to_str().ok()?.strip_prefix("Bearer ")?;
        (!has(token)).then(|| format!("Bearer error=\"insufficient_scope\", scope=\"{scope}\""))
    }

    pub(super) fn challenged(&self) -> usize {
        self.challenged.load(Ordering::SeqCst)
    }

    /// The metadata, for its path.
    pub(super) fn document(&self, path: &str) -> Option<String> {
        let metadata = self.metadata.lock().unwrap();
        metadata
            .as_ref()
            .filter(|(url, _)| path.starts_with("/.well-known/") && url.ends_with(path))
            .map(|(_, document)| document.clone())
    }

    /// The challenge for a request that must not pass.
    pub(super) fn challenge(&self, headers: &HeaderMap) -> Option<String> {
        let accepts = self.accepts.lock().unwrap();
        let accepts = accepts.as_ref()?;
        let sent = headers.get("authorization").and_then(|value| value.to_str().ok());
        let token = sent.and_then(|value| value.strip_prefix("Bearer "));
        if token.is_some_and(accepts) {
            return None;
        }
        self.challenged.fetch_add(1, Ordering::SeqCst);
        let fault = if token.is_some() { "error=\"invalid_token\", " } else { "" };
        let metadata = self.metadata.lock().unwrap();
        let named = metadata.as_ref().map(|(url, _)| format!(", resource_metadata=\"{url}\""));
        Some(format!("Bearer {fault}scope=\"tools:use\"{}", named.unwrap_or_default()))
    }
}
