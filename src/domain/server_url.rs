//! URLs of upstream servers: the place that trust is bound to, and the query, which may be a credential.

use std::borrow::Cow;
use std::fmt;

use http::Uri;
use ring::hmac;

use super::id::ServerId;
use super::origin::Origin;
use super::redact::MASK;

/// Version prefix of a query digest.
const DIGEST_VERSION: &str = "v1:";
/// Domain separation of query digests.
const DIGEST_PURPOSE: &[u8] = b"mcpproxy url query v1\0";

/// Place of a server: scheme, host, port and path. Approvals and credentials hold for one place only.
///
/// The path is compared byte for byte, as it is sent: another spelling of a path may lead elsewhere.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerPlace {
    origin: Origin,
    path: String,
}

impl ServerPlace {
    /// Reads the place of an absolute URL; `None` when the URL is not absolute.
    pub fn of(url: &str) -> Option<ServerPlace> {
        let uri: Uri = url.parse().ok()?;
        Some(ServerPlace { origin: Origin::of(url)?, path: uri.path().to_owned() })
    }
}

impl fmt::Display for ServerPlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", self.origin, self.path)
    }
}

/// Returns a URL without its query.
pub fn without_query(url: &str) -> &str {
    url.split_once('?').map_or(url, |(before, _)| before)
}

/// Returns the query of a URL; `None` when it is absent or empty.
pub fn query(url: &str) -> Option<&str> {
    url.split_once('?').map(|(_, query)| query).filter(|query| !query.is_empty())
}

/// Returns a URL as it may be shown: user, password and query are masked.
pub fn masked(url: &str) -> Cow<'_, str> {
    let (rest, scheme) = match url.split_once("://") {
        Some((scheme, rest)) => (rest, Some(scheme)),
        None => (url, None),
    };
    let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
    let user = authority.rsplit_once('@').map(|(user, _)| user);
    if user.is_none() && query(url).is_none() {
        return Cow::Borrowed(url);
    }
    let mut out = String::new();
    if let Some(scheme) = scheme {
        out.push_str(scheme);
        out.push_str("://");
    }
    let mut after = without_query(rest);
    if let Some(user) = user {
        out.push_str(MASK);
        after = after.strip_prefix(user).unwrap_or_default();
    }
    out.push_str(after);
    if query(url).is_some() {
        out.push('?');
        out.push_str(MASK);
    }
    Cow::Owned(out)
}

/// Returns a URL as those see it who may not know its path, which can be a secret of its own: scheme, host and port, and the
/// mask for what follows.
pub fn masked_after_host(url: &str) -> Cow<'_, str> {
    let masked = masked(url);
    let host = masked.find("://").map_or(0, |at| at + "://".len());
    let Some(end) = masked.get(host..).and_then(|rest| rest.find(['/', '?', '#'])).map(|at| host + at) else {
        return masked;
    };
    match masked.get(end..) {
        None | Some("" | "/") => masked,
        Some(_) => Cow::Owned(format!("{}/{MASK}", masked.get(..end).unwrap_or_default())),
    }
}

/// Returns whether a URL contains the mask, that is, was copied from an answer of the gateway.
pub fn is_masked(url: &str) -> bool {
    url.contains(MASK)
}

/// Returns the digest of a URL's query, `v1:` and 64 hexadecimal digits; `None` without a query.
///
/// The digest is keyed with the server's id, so that equal queries of two servers have different digests. The hash is
/// fast: short queries can be guessed from their digest.
pub fn query_digest(server: ServerId, url: &str) -> Option<String> {
    let mut context = hmac::Context::with_key(&hmac::Key::new(hmac::HMAC_SHA256, server.0.as_bytes()));
    context.update(DIGEST_PURPOSE);
    context.update(query(url)?.as_bytes());
    let digits: String = context.sign().as_ref().iter().map(|byte| format!("{byte:02x}")).collect();
    Some(format!("{DIGEST_VERSION}{digits}"))
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;

    #[test]
    fn places_compare_origin_and_path() {
        let of = |url| ServerPlace::of(url).unwrap();
        assert_eq!(of("http://A.example/x"), of("HTTP://a.example:80/x?key=1"));
        assert_eq!(of("https://a.example"), of("https://a.example:443/?q"));
        for other in [
            "http://a.example/x/",
            "http://a.example/X",
            "http://a.example/y/../x",
            "http://a.example/%78",
            "http://a.example//x",
            "http://a.example/",
            "https://a.example/x",
            "http://a.example:81/x",
            "http://b.example/x",
        ] {
            assert_ne!(of("http://a.example/x"), of(other), "{other}");
        }
        assert_eq!(of("https://A.example/x?y").to_string(), "https://a.example:443/x");
        assert_eq!(ServerPlace::of("/x"), None);
    }

    #[test]
    fn a_path_is_masked_where_it_may_not_be_seen() {
        for (url, shown) in [
            ("https://h.example", "https://h.example"),
            ("https://h.example/", "https://h.example/"),
            ("https://h.example:8443/hooks/T0/s3cret", "https://h.example:8443/[redacted]"),
            ("https://h.example/?k=s3cret", "https://h.example/[redacted]"),
            ("https://h.example?k=s3cret", "https://h.example/[redacted]"),
            ("https://h.example#s3cret", "https://h.example/[redacted]"),
            ("https://u:s3cret@h.example/a/s3cret", "https://[redacted]@h.example/[redacted]"),
            ("/s3cret", "/[redacted]"),
            ("ä/s3cret", "ä/[redacted]"),
        ] {
            assert_eq!(masked_after_host(url), shown, "{url}");
        }
    }

    #[test]
    fn user_and_query_are_masked() {
        for (url, shown) in [
            ("https://a.example/x", "https://a.example/x"),
            ("https://a.example/x?", "https://a.example/x?"),
            ("https://a.example/x?k=s3cret", "https://a.example/x?[redacted]"),
            ("https://a.example?k=s3cret?x", "https://a.example?[redacted]"),
            ("https://s3cret@a.example/@x", "https://[redacted]@a.example/@x"),
            ("https://u:s3cret@a.example/x?s3cret", "https://[redacted]@a.example/x?[redacted]"),
            ("https://u:p@s3cret@a.example", "https://[redacted]@a.example"),
            ("u:s3cret@a.example?s3cret", "[redacted]@a.example?[redacted]"),
            ("not a url", "not a url"),
            ("", ""),
        ] {
            assert_eq!(masked(url), shown, "{url}");
            assert_eq!(is_masked(&masked(url)), shown != url, "{url}");
        }
    }

    #[test]
    fn digests_tell_queries_of_one_server_apart() {
        let digest = |server: u128, url: &str| query_digest(ServerId(Uuid::from_u128(server)), url);
        let one = digest(1, "http://a/x?k=1");
        assert_eq!(one, digest(1, "http://b/?k=1"));
        assert!(one.as_ref().is_some_and(|text| text.len() == 67 && text.starts_with("v1:")), "{one:?}");
        assert_ne!(one, digest(1, "http://a/x?k=2"));
        assert_ne!(one, digest(2, "http://a/x?k=1"));
        assert_eq!((digest(1, "http://a/x"), digest(1, "http://a/x?")), (None, None));
    }
}
