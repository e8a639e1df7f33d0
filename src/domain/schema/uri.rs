//! Resolution of URI references between schemas (RFC 3986, section 5), to compare names. Nothing is fetched.

use std::borrow::Cow;

use percent_encoding::percent_decode_str;

/// Parts of a URI reference without its fragment.
struct Parts<'a> {
    /// Scheme with its colon.
    scheme: &'a str,
    /// Authority with its leading slashes.
    authority: Option<&'a str>,
    path: &'a str,
    /// Query with its question mark.
    query: &'a str,
}

fn parts(text: &str) -> Parts<'_> {
    let is_scheme = |scheme: &&str| {
        let mut bytes = scheme.bytes();
        bytes.next().is_some_and(|first| first.is_ascii_alphabetic())
            && bytes.all(|byte| byte.is_ascii_alphanumeric() || b"+-.".contains(&byte))
    };
    let scheme = text.split_once(':').map(|(scheme, _)| scheme).filter(is_scheme);
    let (scheme, rest) =
        text.split_at_checked(scheme.map_or(0, |scheme| scheme.len() + 1)).unwrap_or(("", text));
    let (rest, query) = rest.split_at_checked(rest.find('?').unwrap_or(rest.len())).unwrap_or((rest, ""));
    let authority_end = rest.strip_prefix("//").map(|after| 2 + after.find('/').unwrap_or(after.len()));
    let (authority, path) = match authority_end.and_then(|end| rest.split_at_checked(end)) {
        Some((authority, path)) => (Some(authority), path),
        None => (None, rest),
    };
    Parts { scheme, authority, path, query }
}

/// Resolves a reference without fragment against a base.
pub(super) fn resolve(base: &str, reference: &str) -> String {
    let (base, own) = (parts(base), parts(reference));
    if !own.scheme.is_empty() {
        return [own.scheme, own.authority.unwrap_or_default(), &without_dots(own.path), own.query].concat();
    }
    if let Some(authority) = own.authority {
        return [base.scheme, authority, &without_dots(own.path), own.query].concat();
    }
    let authority = base.authority.unwrap_or_default();
    if own.path.is_empty() {
        let query = if own.query.is_empty() { base.query } else { own.query };
        return [base.scheme, authority, base.path, query].concat();
    }
    let path = if own.path.starts_with('/') {
        own.path.to_owned()
    } else if base.path.is_empty() && base.authority.is_some() {
        format!("/{}", own.path)
    } else {
        let folder = base.path.rfind('/').map_or(0, |slash| slash + 1);
        [base.path.get(..folder).unwrap_or_default(), own.path].concat()
    };
    [base.scheme, authority, &without_dots(&path), own.query].concat()
}

fn without_dots(path: &str) -> String {
    if !path.contains("./") && !path.ends_with('.') {
        return path.to_owned();
    }
    let mut kept: Vec<&str> = Vec::new();
    let segments: Vec<&str> = path.split('/').collect();
    let last = segments.len().saturating_sub(1);
    for (at, segment) in segments.into_iter().enumerate() {
        match segment {
            "." | ".." => {
                if segment == ".." && kept.len() > 1 {
                    kept.pop();
                }
                if at == last {
                    kept.push("");
                }
            }
            other => kept.push(other),
        }
    }
    kept.join("/")
}

/// Decodes the percent signs of a fragment; `None` when the result is not UTF-8.
pub(super) fn decoded(fragment: &str) -> Option<String> {
    percent_decode_str(fragment).decode_utf8().ok().map(Cow::into_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn references_resolve_as_rfc_3986_shows() {
        let base = "http://a/b/c/d;p?q";
        for (reference, expected) in [
            ("g:h", "g:h"),
            ("g", "http://a/b/c/g"),
            ("./g", "http://a/b/c/g"),
            ("g/", "http://a/b/c/g/"),
            ("/g", "http://a/g"),
            ("//g", "http://g"),
            ("?y", "http://a/b/c/d;p?y"),
            ("g?y", "http://a/b/c/g?y"),
            ("", "http://a/b/c/d;p?q"),
            (".", "http://a/b/c/"),
            ("..", "http://a/b/"),
            ("../g", "http://a/b/g"),
            ("../../../g", "http://a/g"),
            ("a/../b", "http://a/b/c/b"),
        ] {
            assert_eq!(resolve(base, reference), expected, "{reference}");
        }
        assert_eq!(resolve("", "item.json"), "item.json");
        assert_eq!(resolve("http://a", "b"), "http://a/b");
        assert_eq!(resolve("urn:example:root", "urn:example:other"), "urn:example:other");
        assert_eq!(decoded("a%25b%2%é%+5%zz").as_deref(), Some("a%b%2%é%+5%zz"));
        assert_eq!(decoded("%ff"), None);
    }
}
