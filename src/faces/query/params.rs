//! Query parameters: each known, each once, each well-formed.

use std::collections::HashMap;

use chrono::{DateTime, Utc};
use uuid::Uuid;

use super::cursor::{self, CursorPage, LIMIT_DEFAULT, LIMIT_MAX};
use super::{clip, unknown};
use crate::gateway::GatewayError;

/// Names of the parameters that a route takes.
pub(in crate::faces) type ParamNames = &'static [&'static str];
/// Parameters of a route that takes none.
pub(in crate::faces) const NONE: ParamNames = &[];
/// Parameters of a list.
pub(in crate::faces) const PAGE: ParamNames = &["cursor", "limit"];

/// Query parameters of one request, decoded.
#[derive(Debug, Default)]
pub(in crate::faces) struct Params(HashMap<&'static str, String>);

impl Params {
    /// Parses a raw query (`+` and `%20` are both a space). A parameter that is unknown, repeated, empty or malformed
    /// is an error that names it.
    pub(in crate::faces) fn parse(query: Option<&str>, names: ParamNames) -> Result<Params, GatewayError> {
        let mut found = HashMap::new();
        for pair in query.unwrap_or_default().split('&').filter(|pair| !pair.is_empty()) {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            let message = "the query must be percent-encoded UTF-8";
            let name = decode(name)
                .ok_or_else(|| GatewayError::Invalid { field: None, message: message.to_owned() })?;
            put(&mut found, names, &name, decode(value))?;
        }
        Ok(Params(found))
    }

    /// Takes parameters that are decoded already, under the same rules.
    pub(in crate::faces) fn of(
        given: &[(&'static str, String)],
        names: ParamNames,
    ) -> Result<Params, GatewayError> {
        let mut found = HashMap::new();
        for (name, value) in given {
            put(&mut found, names, name, Some(value.clone()))?;
        }
        Ok(Params(found))
    }

    /// Returns the text of a parameter; `None` if absent.
    pub(in crate::faces) fn text(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(String::as_str)
    }

    /// Reads a parameter that is `true` or `false`; `false` if absent.
    pub(in crate::faces) fn flag(&self, name: &str) -> Result<bool, GatewayError> {
        match self.text(name) {
            None | Some("false") => Ok(false),
            Some("true") => Ok(true),
            Some(_) => Err(GatewayError::invalid(name, format!("{name} must be true or false"))),
        }
    }

    /// Reads a parameter that is a whole number from 1 to `max`; `default` if absent.
    pub(in crate::faces) fn count(
        &self,
        name: &str,
        default: usize,
        max: usize,
    ) -> Result<usize, GatewayError> {
        let Some(text) = self.text(name) else { return Ok(default) };
        let digits = text.bytes().all(|b| b.is_ascii_digit());
        let number = text.parse().ok().filter(|number| digits && (1..=max).contains(number));
        number.ok_or_else(|| {
            GatewayError::invalid(name, format!("{name} must be a whole number from 1 to {max}"))
        })
    }

    /// Reads a parameter that is one of `known`; `None` if absent.
    pub(in crate::faces) fn one_of<T: Copy + Into<&'static str>>(
        &self,
        name: &str,
        known: &[T],
    ) -> Result<Option<T>, GatewayError> {
        self.text(name).map(|text| one_of(name, text, known)).transpose()
    }

    /// Reads a parameter that is an id (a UUID); `None` if absent.
    pub(in crate::faces) fn id(&self, name: &str) -> Result<Option<Uuid>, GatewayError> {
        let id = self.text(name).map(Uuid::try_parse).transpose();
        id.map_err(|_| GatewayError::invalid(name, format!("{name} must be the id of a {name} (a UUID)")))
    }

    /// Reads a parameter that is a time (RFC 3339); `None` if absent.
    pub(in crate::faces) fn time(&self, name: &str) -> Result<Option<DateTime<Utc>>, GatewayError> {
        let Some(text) = self.text(name) else { return Ok(None) };
        match DateTime::parse_from_rfc3339(text) {
            Ok(time) => Ok(Some(time.to_utc())),
            Err(_) => {
                let message =
                    format!("{name} must be an RFC 3339 time such as 2026-01-31T12:00:00Z ('+' as %2B)");
                Err(GatewayError::invalid(name, message))
            }
        }
    }

    /// Returns the page that `limit` and `cursor` ask for.
    pub(in crate::faces) fn page(&self) -> Result<CursorPage, GatewayError> {
        let limit = self.count("limit", LIMIT_DEFAULT, LIMIT_MAX)?;
        let after = self.text("cursor").map(cursor::decode).transpose()?;
        Ok(CursorPage { limit, after })
    }
}

/// Adds a parameter. `value` is `None` if it could not be decoded.
fn put(
    found: &mut HashMap<&'static str, String>,
    names: ParamNames,
    name: &str,
    value: Option<String>,
) -> Result<(), GatewayError> {
    let Some(known) = names.iter().find(|known| **known == name) else {
        return Err(unknown("query parameter", &clip(name), names));
    };
    let value = value.filter(|value| !value.is_empty() && !value.contains('\0'));
    let value = value.ok_or_else(|| {
        GatewayError::invalid(*known, format!("{known} must not be empty, and percent-encoded UTF-8"))
    })?;
    if found.insert(*known, value).is_some() {
        return Err(GatewayError::invalid(*known, format!("{known} is given more than once")));
    }
    Ok(())
}

/// Returns the value among `known` whose word is `text`.
pub(in crate::faces) fn one_of<T: Copy + Into<&'static str>>(
    name: &str,
    text: &str,
    known: &[T],
) -> Result<T, GatewayError> {
    let words: Vec<&'static str> = known.iter().map(|value| (*value).into()).collect();
    let at = words.iter().position(|word| *word == text);
    at.and_then(|at| known.get(at).copied())
        .ok_or_else(|| GatewayError::invalid(name, format!("{name} must be one of {}", words.join(", "))))
}

/// Decodes one name or value; `None` if it is malformed.
fn decode(text: &str) -> Option<String> {
    let mut out = Vec::with_capacity(text.len());
    let mut bytes = text.bytes();
    while let Some(byte) = bytes.next() {
        out.push(match byte {
            b'+' => b' ',
            b'%' => hex(bytes.next()?)? << 4 | hex(bytes.next()?)?,
            other => other,
        });
    }
    String::from_utf8(out).ok()
}

fn hex(digit: u8) -> Option<u8> {
    char::from(digit).to_digit(16).and_then(|value| u8::try_from(value).ok())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const NAMES: ParamNames = &["cursor", "limit", "query", "flag", "at", "status"];

    fn parse(query: &str) -> Result<Params, GatewayError> {
        Params::parse(Some(query), NAMES)
    }

    fn field(error: GatewayError) -> Option<String> {
        match error {
            GatewayError::Invalid { field, .. } => field,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn values_are_decoded() {
        let params = parse("query=read+a%20file%2B%C3%A9&&flag=true").unwrap();
        assert_eq!(params.text("query"), Some("read a file+é"));
        assert_eq!((params.flag("flag").unwrap(), params.flag("at").unwrap_or(true)), (true, false));
        assert!(Params::parse(None, NONE).unwrap().0.is_empty());
        assert!(Params::parse(Some(""), NONE).unwrap().0.is_empty());
    }

    #[test]
    fn what_is_unknown_repeated_or_malformed_is_named() {
        for (query, expected) in [
            ("nope=1", Some("nope")),
            ("Query=1", Some("Query")),
            ("=1", Some("")),
            ("query=a&query=a", Some("query")),
            ("query=a&qu%65ry=b", Some("query")),
            ("query", Some("query")),
            ("query=", Some("query")),
            ("query=%", Some("query")),
            ("query=%4", Some("query")),
            ("query=%zz", Some("query")),
            ("query=%ff", Some("query")),
            ("query=%00", Some("query")),
            ("%ff=1", None),
        ] {
            assert_eq!(field(parse(query).unwrap_err()).as_deref(), expected, "{query}");
        }
        let long = field(parse(&"x".repeat(500)).unwrap_err()).unwrap();
        assert!(long.chars().count() < 70, "{long}");
    }

    #[test]
    fn pages_have_a_limit() {
        assert_eq!(parse("").unwrap().page().unwrap(), CursorPage { limit: 50, after: None });
        let page = parse("limit=100&cursor=YQ").unwrap().page().unwrap();
        assert_eq!(page, CursorPage { limit: 100, after: Some("a".into()) });
        for bad in ["0", "101", "-1", "%2B5", "5.0", "x", "99999999999999999999"] {
            let error = parse(&format!("limit={bad}")).unwrap().page().unwrap_err();
            assert_eq!(field(error).as_deref(), Some("limit"), "{bad}");
        }
        assert_eq!(field(parse("cursor=*").unwrap().page().unwrap_err()).as_deref(), Some("cursor"));
    }

    #[test]
    fn closed_lists_flags_and_times() {
        let status = parse("status=success").unwrap();
        assert_eq!(status.one_of("status", &["success", "error"]).unwrap(), Some("success"));
        assert_eq!(field(status.one_of("status", &["error"]).unwrap_err()).as_deref(), Some("status"));
        assert_eq!(field(parse("flag=1").unwrap().flag("flag").unwrap_err()).as_deref(), Some("flag"));
        let at = |text: &str| parse(&format!("at={text}")).unwrap().time("at");
        assert_eq!(
            at("2026-01-31T14:00:00.5%2B02:00").unwrap().unwrap().timestamp_millis(),
            1_769_860_800_500
        );
        for bad in ["2026-01-31", "1769860800", "2026-02-30T00:00:00Z", "2026-01-31T14:00:00"] {
            assert_eq!(field(at(bad).unwrap_err()).as_deref(), Some("at"), "{bad}");
        }
    }

    proptest! {
        #[test]
        fn any_text_survives_encoding(text in "[^\0]{1,60}") {
            let encoded = percent_encoding::utf8_percent_encode(&text, percent_encoding::NON_ALPHANUMERIC);
            let params = parse(&format!("query={encoded}")).unwrap();
            prop_assert_eq!(params.text("query"), Some(text.as_str()));
        }

        #[test]
        fn no_query_panics(query in ".{0,80}") {
            drop(parse(&query).map(|params| (params.page().is_ok(), params.time("at").is_ok())));
        }
    }
}
