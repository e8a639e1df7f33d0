//! Names of the API's own headers, and what others say.

use http::{HeaderMap, HeaderName, header};

use crate::domain::reason::Language;
use crate::gateway::Client;

/// Response header with a warning about a call that ran.
pub const WARNING: HeaderName = HeaderName::from_static("x-mcpproxy-warning");
/// Response header that names the servers missing from a search: the body has the contract's fields only.
pub const MISSING: HeaderName = HeaderName::from_static("x-mcpproxy-missing");
/// Request header that the command line sets to [`CLI`]. It decides the `source` of the record, and for rules of policies
/// the endpoint, where that loosens nothing but what trusts the client's word.
pub const SOURCE: HeaderName = HeaderName::from_static("x-mcpproxy-source");
/// Value of [`SOURCE`] that the command line sends.
pub const CLI: &str = "cli";

/// Longest name or version of a client, in characters; records keep no more.
const CLIENT_CHARS_MAX: usize = 100;

/// Returns the client program as the first product of `User-Agent` names it, such as `curl/8.5.0`; no name and version
/// without one.
pub fn client(headers: &HeaderMap) -> Client {
    let agent = headers.get(header::USER_AGENT).and_then(|value| value.to_str().ok()).unwrap_or_default();
    // what follows are comments, and products that the first one is built on
    let product = agent.split_ascii_whitespace().next().unwrap_or_default();
    let (name, version) = product.split_once('/').unwrap_or((product, ""));
    let text = |text: &str| {
        let text: String = text.chars().take(CLIENT_CHARS_MAX).collect();
        Some(text).filter(|text| !text.is_empty())
    };
    match text(name).filter(|name| !name.starts_with('(')) {
        Some(name) => Client { name: Some(name), version: text(version) },
        None => Client::default(),
    }
}

/// Returns the language that a client asks for; `None` if there are no texts in it.
pub fn language(headers: &HeaderMap) -> Option<Language> {
    Language::accepted(headers.get(header::ACCEPT_LANGUAGE)?.to_str().ok()?)
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    #[test]
    fn a_client_is_the_first_product_of_its_user_agent() {
        let long = "x".repeat(200);
        let cut = long.get(..CLIENT_CHARS_MAX);
        for (agent, name, version) in [
            ("curl/8.5.0", Some("curl"), Some("8.5.0")),
            ("Mozilla/5.0 (X11; Linux x86_64) Gecko/20100101", Some("Mozilla"), Some("5.0")),
            ("okhttp", Some("okhttp"), None),
            ("a/b/c", Some("a"), Some("b/c")),
            ("(compatible; x/1)", None, None),
            ("/1.0", None, None),
            ("", None, None),
            (&*long, cut, None),
        ] {
            let headers = HeaderMap::from_iter([(header::USER_AGENT, HeaderValue::from_str(agent).unwrap())]);
            let client = client(&headers);
            assert_eq!((client.name.as_deref(), client.version.as_deref()), (name, version), "{agent}");
        }
        let odd = HeaderValue::from_bytes(b"\xe9/1").unwrap();
        assert_eq!(client(&HeaderMap::from_iter([(header::USER_AGENT, odd)])).name, None);
        assert_eq!(client(&HeaderMap::new()).name, None);
    }
}
