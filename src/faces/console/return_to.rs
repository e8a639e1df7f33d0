//! Place to return to after a login: a page of the console, or that of a login at a server; never another site.

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};

/// Parameter of the login that says that a form came after the end of its session.
pub(super) const FORM_LOST: &str = "form_lost";
/// Longest place, in bytes.
const BYTES_MAX: usize = 1000;
/// Characters of a place that are escaped within the query of another.
const IN_QUERY: &AsciiSet =
    &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~').remove(b'/');

/// Returns a place if it is a page of the console: a path below `/console` or `/connect`, with no way to be read as another site or to lead out of
/// the folder.
pub(super) fn local(place: &str) -> Option<&str> {
    let path = place.split('?').next().unwrap_or_default();
    let below = path.strip_prefix(super::HOME).or_else(|| path.strip_prefix(super::CONNECT))?;
    let is_plain =
        place.len() <= BYTES_MAX && place.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'\\');
    let is_below = below.is_empty() || below.starts_with('/');
    // an escaped dot, slash or backslash may be read as a plain one by a proxy or a browser
    let has_dots = path.split('/').any(|part| part == ".." || part == ".");
    let is_escaped = path.contains('%');
    (is_plain && is_below && !has_dots && !is_escaped && !place.contains("//") && !place.contains('#'))
        .then_some(place)
}

/// Returns the URL of the login that leads back to a place.
pub(super) fn login_for(place: &str) -> String {
    with_return(super::LOGIN, place)
}

/// Returns the URL of the login for a visitor whose form came after the end of the session. It leads back to the page of the form, if that is
/// one of the console.
pub(super) fn login_after_form(page: Option<&str>) -> String {
    let login = page.map_or_else(|| super::LOGIN.to_owned(), login_for);
    format!("{login}{}{FORM_LOST}=1", if login.contains('?') { '&' } else { '?' })
}

/// Returns the URL of a step of the login that leads back to a place.
pub(super) fn with_return(step: &str, place: &str) -> String {
    match local(place).filter(|place| *place != super::HOME) {
        Some(place) => format!("{step}?return_to={}", utf8_percent_encode(place, IN_QUERY)),
        None => step.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_pages_of_the_console_are_returned_to() {
        for good in [
            "/connect/0199",
            "/console",
            "/console/activity",
            "/console?x=1",
            "/console/activity?tool=a%2Fb&s=x",
        ] {
            assert_eq!(local(good), Some(good));
        }
        let long = format!("/console/{}", "x".repeat(BYTES_MAX));
        for bad in [
            "",
            "/",
            "//evil.example",
            "//evil.example/console",
            "/\\evil.example",
            "/console\\..\\x",
            "https://evil.example",
            "https://evil.example/console",
            "javascript:alert(1)",
            "/api/v1/keys",
            "/console//evil.example",
            "/console?next=//evil.example",
            "/console/../api",
            "/console/%2e%2e/api",
            "/console/./x",
            "/consolex",
            "/console/a\r\nSet-Cookie: x=y",
            "/console/a\tb",
            "/console/ä",
            "/console/a b",
            "/console#x",
            "console",
            " /console",
            &long,
        ] {
            assert_eq!(local(bad), None, "{bad:?}");
        }
    }

    #[test]
    fn the_login_knows_the_way_back() {
        assert_eq!(login_for("/console"), "/console/login");
        assert_eq!(login_for("//evil.example"), "/console/login");
        assert_eq!(login_for("/console/a?b=c&d"), "/console/login?return_to=/console/a%3Fb%3Dc%26d");
        assert_eq!(login_after_form(Some("/console/a")), "/console/login?return_to=/console/a&form_lost=1");
        for nowhere in [None, Some("/console"), Some("/api/v1/keys")] {
            assert_eq!(login_after_form(nowhere), "/console/login?form_lost=1");
        }
    }
}
