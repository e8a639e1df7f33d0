//! Origins of URLs: scheme, host and port.

use std::fmt;

use http::Uri;

/// Scheme, host and port of a URL. Spelling that could matter to a resolver (a dot at the end, another form of an
/// address) makes another origin: in doubt, two origins differ.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Origin {
    scheme: String,
    host: String,
    port: u16,
}

impl Origin {
    /// Returns the origin of an absolute URL; `None` when `url` is not one.
    pub fn of(url: &str) -> Option<Origin> {
        let uri: Uri = url.parse().ok()?;
        let scheme = uri.scheme_str()?.to_ascii_lowercase();
        let port = uri.port_u16().unwrap_or(if scheme == "https" { 443 } else { 80 });
        Some(Origin { scheme, host: uri.host()?.to_ascii_lowercase(), port })
    }
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}://{}:{}", self.scheme, self.host, self.port)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn origins_compare_scheme_host_and_port() {
        let of = |url| Origin::of(url).unwrap();
        assert_eq!(of("http://A.example/x"), of("HTTP://a.example:80/y?z"));
        for other in ["https://a.example/", "http://a.example:81/", "http://a.example./", "http://b.example/"]
        {
            assert_ne!(of("http://a.example/"), of(other), "{other}");
        }
        assert_eq!(of("https://A.example/x").to_string(), "https://a.example:443");
        assert_eq!(of("http://[::1]:9/").to_string(), "http://[::1]:9");
        assert_eq!(Origin::of("/x"), None);
    }
}
