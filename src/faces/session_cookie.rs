//! Cookie of a session of the console.

use std::time::Duration;

use http::{HeaderMap, HeaderValue, Method, header};

use super::auth::{HeaderFault, single};
use crate::domain::web_session::CookieSecret;

/// Name of the cookie. By its prefix browsers take it over TLS alone, for this host alone, and send it to no other.
pub(super) const SESSION: &str = "__Host-mcpproxy";
/// Name of the cookie that binds a login under way to its browser.
pub(super) const FLOW: &str = "__Host-mcpproxy-flow";
/// Name of the cookie that holds the name of the tenant in which the platform operator acts.
pub(super) const TENANT: &str = "__Host-mcpproxy-tenant";
/// Character before the tenant in the text that forms of the platform operator carry.
pub(super) const TENANT_MARK: char = '~';
/// Request header of a page's script, with the text that forms of the session carry.
const CSRF: &str = "X-CSRF-Token";

/// Returns the value of a cookie; `None` if the request has none of this name.
///
/// # Errors
/// [`HeaderFault`] if there are several: readers of the first and of the last would serve different people.
pub(super) fn value<'a>(headers: &'a HeaderMap, name: &str) -> Result<Option<&'a str>, HeaderFault> {
    // other programs of the host may have cookies that are no text
    let pairs =
        headers.get_all(header::COOKIE).iter().flat_map(|line| line.as_bytes().split(|byte| *byte == b';'));
    let pairs = pairs.filter_map(|pair| std::str::from_utf8(pair).ok()?.split_once('='));
    let mut values = pairs.filter(|(own, _)| own.trim() == name).map(|(_, value)| value.trim());
    let first = values.next();
    if values.next().is_some() {
        let message = "the session's cookie is repeated: delete this site's cookies, and log in once more";
        return Err(HeaderFault { name: "Cookie", message });
    }
    Ok(first)
}

/// Returns the cookie of a request of a page's script to REST. It counts only if the request shows that it comes from a page of the
/// session: by an `Origin`, which the gate has checked, and the text of its forms. Browsers send no `Origin` with a read of the same
/// site; `Sec-Fetch-Site`, which no page can set either, stands for it there.
///
/// # Errors
/// [`HeaderFault`] if the cookie or the text is repeated.
pub(super) fn for_rest<'a>(method: &Method, headers: &'a HeaderMap) -> Result<Option<&'a str>, HeaderFault> {
    let Some(cookie) = value(headers, SESSION)? else { return Ok(None) };
    let is_read = method == Method::GET || method == Method::HEAD;
    let site = headers.get("sec-fetch-site").map(HeaderValue::as_bytes);
    let has_origin =
        single(headers, "Origin")?.is_some() || (is_read && site == Some(b"same-origin".as_slice()));
    let token = single(headers, CSRF)?.and_then(|token| token.to_str().ok());
    // over REST the tenant is that of `X-Tenant`
    let token = token.and_then(|token| token.split(TENANT_MARK).next());
    let is_own = CookieSecret::read(cookie)
        .zip(token)
        .is_some_and(|(secret, token)| has_origin && secret.is_form_token(token));
    Ok(is_own.then_some(cookie))
}

/// Returns the `Set-Cookie` of a cookie that ends with the browser; `None` for a value that no header can hold.
pub(super) fn set(name: &str, value: &str) -> Option<HeaderValue> {
    HeaderValue::try_from(format!("{name}={value}; Path=/; Secure; HttpOnly; SameSite=Lax")).ok().map(
        |mut header| {
            header.set_sensitive(true);
            header
        },
    )
}

/// Returns the `Set-Cookie` of a cookie that ends after this time.
pub(super) fn set_for(name: &str, value: &str, lifetime: Duration) -> Option<HeaderValue> {
    let seconds = lifetime.as_secs();
    let mut header = HeaderValue::try_from(format!(
        "{name}={value}; Path=/; Secure; HttpOnly; SameSite=Lax; Max-Age={seconds}"
    ))
    .ok()?;
    header.set_sensitive(true);
    Some(header)
}

/// Returns the `Set-Cookie` that removes a cookie.
pub(super) fn unset(name: &str) -> Option<HeaderValue> {
    HeaderValue::try_from(format!("{name}=; Path=/; Secure; HttpOnly; SameSite=Lax; Max-Age=0")).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(pairs: &[(&'static str, &str)]) -> HeaderMap {
        pairs
            .iter()
            .map(|(name, value)| (name.parse::<http::HeaderName>().unwrap(), value.parse().unwrap()))
            .collect()
    }

    #[test]
    fn one_cookie_of_the_name_counts() {
        for (lines, expected) in [
            (&["a=b; __Host-mcpproxy=x; c=d"][..], Ok(Some("x"))),
            (&["a=b", "__Host-mcpproxy=x"], Ok(Some("x"))),
            (&["__Host-mcpproxy-flow=x; __host-mcpproxy=y; mcpproxy=z"], Ok(None)),
            (&["__Host-mcpproxy=x; __Host-mcpproxy=x"], Err("Cookie")),
            (&["__Host-mcpproxy=x", "__Host-mcpproxy=y"], Err("Cookie")),
            (&[], Ok(None)),
        ] {
            let lines: Vec<_> = lines.iter().map(|line| ("cookie", *line)).collect();
            let headers = headers(&lines);
            assert_eq!(value(&headers, SESSION).map_err(|fault| fault.name), expected, "{lines:?}");
        }
    }

    #[test]
    fn rest_takes_a_cookie_with_origin_and_the_text_of_its_forms() {
        let secret = CookieSecret::new([1; 32]);
        let (cookie, token) = (secret.cookie(), secret.form_token());
        let pair = format!("{SESSION}={}", *cookie);
        let origin = ("origin", "https://gw.example");
        let (own, text) = (("cookie", pair.as_str()), ("x-csrf-token", token.as_str()));
        let foreign = CookieSecret::new([2; 32]).form_token();
        let in_tenant = format!("{token}~acme");
        for (method, pairs, counts) in [
            (Method::POST, vec![own, origin, text], true),
            (Method::GET, vec![own, origin, text], true),
            (Method::GET, vec![own, ("sec-fetch-site", "same-origin"), text], true),
            (Method::POST, vec![own, origin, ("x-csrf-token", in_tenant.as_str())], true),
            (Method::POST, vec![own, ("sec-fetch-site", "same-origin"), text], false),
            (Method::GET, vec![own, ("sec-fetch-site", "same-site"), text], false),
            (Method::POST, vec![own, text], false),
            (Method::POST, vec![own, origin], false),
            (Method::POST, vec![own, origin, ("x-csrf-token", foreign.as_str())], false),
            (Method::POST, vec![origin, text], false),
        ] {
            let headers = headers(&pairs);
            let found = for_rest(&method, &headers).unwrap();
            assert_eq!(found, counts.then_some(cookie.as_str()), "{method} {pairs:?}");
        }
    }
}
