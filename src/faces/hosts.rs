//! Hosts and origins that a request may name.

use axum::extract::Request;
use http::{HeaderMap, header};

use super::Faces;
use super::auth::{HeaderFault, single};
use crate::domain::host::is_allowed;
use crate::domain::identity::PublicUrl;

/// Returns the host that a request names, in its `Host` header or, where it has none, in its target.
pub(super) fn host(request: &Request) -> Result<Option<&str>, HeaderFault> {
    let header = single(request.headers(), "Host")?.map(|value| value.to_str().unwrap_or_default());
    let target = request.uri().authority().map(http::uri::Authority::as_str);
    match (header, target) {
        (Some(header), Some(target)) if !is_same_authority(header, target) => {
            Err(HeaderFault { name: "Host", message: "Host and the request target name different hosts" })
        }
        (header, target) => Ok(header.or(target)),
    }
}

/// Compares two authorities. A missing port means 80.
fn is_same_authority(one: &str, other: &str) -> bool {
    let one = one.strip_suffix(":80").unwrap_or(one);
    one.eq_ignore_ascii_case(other.strip_suffix(":80").unwrap_or(other))
}

/// Checks the host, so that a page in a browser cannot reach a local gateway under a name of its own choosing.
pub(super) fn check_host(faces: &Faces, host: Option<&str>) -> Result<(), &'static str> {
    let known = host.is_some_and(|host| is_allowed(&faces.options.allowed_hosts, host));
    if known { Ok(()) } else { Err("this Host is not one of server.allowed_hosts") }
}

/// Checks the origin that a browser names. `has_own` says whether pages of the gateway itself may ask.
pub(super) fn check_origin(
    faces: &Faces,
    headers: &HeaderMap,
    host: Option<&str>,
    has_own: HasOwnPages,
) -> Result<(), &'static str> {
    let Some(origin) = headers.get(header::ORIGIN) else { return Ok(()) };
    let origin = origin.to_str().unwrap_or_default();
    let is_listed = |allowed: &String| allowed == "*" || allowed.eq_ignore_ascii_case(origin);
    let known = faces.options.allowed_origins.iter().any(is_listed)
        || (has_own == HasOwnPages::Yes && is_own_origin(faces, origin, host));
    if known { Ok(()) } else { Err("this Origin is not one of server.allowed_origins") }
}

/// Use of a route by pages of the gateway itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum HasOwnPages {
    /// Pages use the route: their origin is allowed.
    Yes,
    /// No page uses the route.
    No,
}

/// Returns whether an origin is the gateway's own: that of the public URL, or of the host that the request names. Behind a proxy the
/// gateway cannot see that a browser came over TLS, so `https` is always its own scheme; `http` is, unless the public URL says
/// otherwise.
pub(super) fn is_own_origin(faces: &Faces, origin: &str, host: Option<&str>) -> bool {
    let public = faces.gateway.options.logins.public_url.as_ref();
    is_own(origin, host.unwrap_or_default(), public)
}

fn is_own(origin: &str, host: &str, public: Option<&PublicUrl>) -> bool {
    let is_at = |scheme: &str, authority: &str| {
        let rest = origin.strip_prefix(scheme).and_then(|rest| rest.strip_prefix("://"));
        // browsers leave the scheme's own port out, and some proxies write it into Host
        let own_port = if scheme == "https" { ":443" } else { ":80" };
        let authority = authority.strip_suffix(own_port).unwrap_or(authority);
        !authority.is_empty() && rest.is_some_and(|rest| rest.eq_ignore_ascii_case(authority))
    };
    public.is_some_and(|public| is_at(public.scheme(), public.authority()))
        || is_at("https", host)
        || (public.is_none_or(|public| public.scheme() != "https") && is_at("http", host))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn own_origins() {
        let public = PublicUrl::new("https://gw.example/a");
        let local = PublicUrl::new("http://localhost:8080");
        for (origin, host, public, expected) in [
            ("https://gw.example", "internal:8080", Some(&public), true),
            ("http://gw.example", "gw.example", Some(&public), false),
            ("https://internal:8080", "internal:8080", Some(&public), true),
            ("http://localhost:8080", "127.0.0.1:8080", Some(&local), true),
            ("http://127.0.0.1:8080", "127.0.0.1:8080", Some(&local), true),
            ("http://127.0.0.1:8080", "127.0.0.1:8080", None, true),
            ("https://GW.example", "gw.EXAMPLE", None, true),
            ("https://gw.example", "gw.example:443", None, true),
            ("http://gw.example", "gw.example:443", None, false),
            ("http://gw.example", "gw.example:80", None, true),
            ("http://127.0.0.1:8081", "127.0.0.1:8080", None, false),
            ("http://127.0.0.1", "127.0.0.1:8080", None, false),
            ("https://gw.example.evil.example", "gw.example", Some(&public), false),
            ("https://evil.example", "gw.example", Some(&public), false),
            ("null", "gw.example", Some(&public), false),
            ("https://", "", None, false),
            ("", "", None, false),
        ] {
            assert_eq!(is_own(origin, host, public), expected, "{origin} {host}");
        }
    }
}
