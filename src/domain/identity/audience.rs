//! Audiences of tokens: the gateway's own URL, its MCP endpoints, and names that an issuer's entry adds.

use serde_json::Value;

/// Reach of a token, by its audience.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TokenReach {
    /// The whole gateway.
    Gateway,
    /// The MCP endpoints alone, never REST.
    Mcp,
}

/// Public URL of the gateway, without a slash at its end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PublicUrl(String);

impl PublicUrl {
    /// Creates the URL from a text that was checked; slashes at its end are dropped.
    pub fn new(text: &str) -> PublicUrl {
        PublicUrl(text.trim_end_matches('/').to_owned())
    }

    /// Returns the URL as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Returns the scheme, such as `https`.
    pub fn scheme(&self) -> &str {
        self.0.split_once("://").map_or("", |(scheme, _)| scheme)
    }

    /// Returns host and port, as written.
    pub fn authority(&self) -> &str {
        let rest = self.0.split_once("://").map_or("", |(_, rest)| rest);
        rest.split('/').next().unwrap_or_default()
    }

    /// Returns the path, without a slash at its end; empty for none.
    pub fn path(&self) -> &str {
        let rest = self.0.split_once("://").map_or("", |(_, rest)| rest);
        rest.find('/').and_then(|at| rest.get(at..)).unwrap_or_default()
    }

    /// Returns the URL with another host.
    pub fn at_host(&self, host: &str) -> PublicUrl {
        PublicUrl(format!("{}://{host}{}", self.scheme(), self.path()))
    }
}

/// Audiences that tokens of an issuer may have.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Audiences {
    gateway: Vec<String>,
    mcp: Vec<String>,
    /// Names that the issuer's entry adds. Only they count for a token without an audience.
    added: Vec<String>,
}

impl Audiences {
    /// Creates the audiences of an issuer: the gateway's URLs, their MCP endpoints, and the names that its entry adds.
    pub fn new(urls: &[PublicUrl], added: &[String]) -> Audiences {
        let mut audiences = Audiences::default();
        for url in urls {
            let url = url.as_str();
            audiences.gateway.extend([url.to_owned(), format!("{url}/")]);
            audiences.mcp.extend([format!("{url}/mcp"), format!("{url}/mcp/direct")]);
        }
        audiences.added = added.iter().filter(|name| !audiences.mcp.contains(name)).cloned().collect();
        audiences
    }

    /// Returns all accepted audiences.
    pub fn accepted(&self) -> impl Iterator<Item = &str> {
        self.gateway.iter().chain(&self.mcp).chain(&self.added).map(String::as_str)
    }

    /// Returns the reach of a token with this `aud`, or without one and with this client; `None` if it is for another
    /// audience.
    pub(super) fn reach(&self, aud: Option<&Value>, client: Option<&str>) -> Option<TokenReach> {
        let names: Vec<&str> = match aud {
            None => {
                let client = client.filter(|client| self.added.iter().any(|name| name == client));
                return client.map(|_| TokenReach::Gateway);
            }
            Some(Value::String(name)) => vec![name],
            Some(Value::Array(names)) => names.iter().map(Value::as_str).collect::<Option<_>>()?,
            Some(_) => return None,
        };
        let has = |list: &[String]| names.iter().any(|name| list.iter().any(|known| known == name));
        match () {
            () if has(&self.gateway) || has(&self.added) => Some(TokenReach::Gateway),
            () if has(&self.mcp) => Some(TokenReach::Mcp),
            () => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_token_is_for_the_gateway_or_for_its_endpoints_or_for_others() {
        let url = PublicUrl::new("https://gw.example/a/");
        assert_eq!((url.scheme(), url.authority(), url.path()), ("https", "gw.example", "/a"));
        assert_eq!(url.at_host("b.example").as_str(), "https://b.example/a");
        let added = ["client-7".to_owned(), "https://gw.example/a/mcp".to_owned()];
        let audiences = Audiences::new(&[url], &added);
        let (gateway, mcp) = (Some(TokenReach::Gateway), Some(TokenReach::Mcp));
        for (aud, client, reach) in [
            (Some(json!("https://gw.example/a")), None, gateway),
            (Some(json!("https://gw.example/a/")), None, gateway),
            (Some(json!("https://gw.example/a/mcp")), None, mcp),
            (Some(json!("https://gw.example/a/mcp/direct")), None, mcp),
            (Some(json!(["x", "https://gw.example/a/mcp"])), None, mcp),
            (Some(json!(["client-7", "https://gw.example/a/mcp"])), None, gateway),
            (Some(json!("https://gw.example")), None, None),
            (Some(json!("https://gw.example/a/mcp/")), None, None),
            (Some(json!("x")), Some("client-7"), None),
            (Some(json!([])), Some("client-7"), None),
            (Some(json!(["client-7", 7])), None, None),
            (Some(json!(null)), Some("client-7"), None),
            (Some(json!({"client-7": 1})), None, None),
            (None, Some("client-7"), gateway),
            (None, Some("https://gw.example/a"), None),
            (None, None, None),
        ] {
            assert_eq!(audiences.reach(aud.as_ref(), client), reach, "{aud:?} {client:?}");
        }
    }
}
