//! Arguments of the built-in tools, from raw JSON.

use std::fmt::Display;

use crate::domain::json::{self, Member};
use crate::domain::refusal::{Code, Refusal};
use crate::gateway::{Detail, LIMIT_DEFAULT, LIMIT_MAX, ReadRequest, SearchRequest};

/// Largest offset or limit of `read_cache`.
const POSITION_MAX: f64 = 1e9;

/// Reads the arguments of `retrieve_tools`; a refusal names the parameter and what it may be.
pub(super) fn search(arguments: &str) -> Result<SearchRequest, Refusal> {
    let members = known_members(
        arguments,
        &[
            "query",
            "limit",
            "server",
            "read_only_only",
            "exclude_destructive",
            "include_site_tools",
            "detail",
        ],
    )?;
    let query = text(&members, "query")?
        .filter(|query| !query.trim().is_empty())
        .ok_or_else(|| refuse("Invalid query: it is required, a text"))?;
    Ok(SearchRequest {
        query,
        limit: limit(&members)?,
        server: text(&members, "server")?,
        read_only_only: flag(&members, "read_only_only")?,
        exclude_destructive: flag(&members, "exclude_destructive")?,
        include_site_tools: flag(&members, "include_site_tools")?,
        detail: detail(&members)?,
    })
}

/// Reads the arguments of `read_cache`; a refusal names the parameter and what it may be.
pub(super) fn read(arguments: &str) -> Result<ReadRequest, Refusal> {
    let members = known_members(arguments, &["key", "offset", "limit"])?;
    let key = text(&members, "key")?
        .ok_or_else(|| refuse("Invalid key: it is required, as the end of a text that was cut names it"))?;
    let offset = position(&members, "offset", 0)?.unwrap_or_default();
    Ok(ReadRequest { key, offset, limit: position(&members, "limit", 1)? })
}

/// Returns the members of the arguments; refuses any that is not in `known`.
fn known_members<'a>(arguments: &'a str, known: &[&str]) -> Result<Vec<Member<'a>>, Refusal> {
    let members =
        json::members(arguments).map_err(|fault| refuse(format_args!("Invalid arguments: {fault}")))?;
    if let Some(unknown) = members.iter().find(|member| !known.contains(&&*member.name)) {
        let shown: String = unknown.name.chars().take(100).collect();
        return Err(refuse(format_args!(
            "Invalid arguments: unknown parameter '{shown}'; known are {}",
            known.join(", ")
        )));
    }
    Ok(members)
}

/// Reads a whole number of at least `least`; `None` if absent.
fn position(members: &[Member<'_>], name: &str, least: u32) -> Result<Option<usize>, Refusal> {
    let Some(raw) = raw(members, name) else { return Ok(None) };
    let number = raw.parse::<f64>().ok();
    let number = number.filter(|n| n.fract() == 0.0 && (f64::from(least)..=POSITION_MAX).contains(n));
    number.map(|n| Some(n as usize)).ok_or_else(|| {
        refuse(format_args!("Invalid {name}: must be a whole number from {least} to {POSITION_MAX}"))
    })
}

fn refuse(message: impl Display) -> Refusal {
    Refusal::new(Code::InvalidQuery, message.to_string())
}

fn raw<'a>(members: &'a [Member<'_>], name: &str) -> Option<&'a str> {
    members.iter().find(|member| member.name == name).map(|member| member.value).filter(|raw| *raw != "null")
}

fn text(members: &[Member<'_>], name: &str) -> Result<Option<String>, Refusal> {
    raw(members, name)
        .map(|raw| {
            serde_json::from_str(raw).map_err(|_| refuse(format_args!("Invalid {name}: must be a string")))
        })
        .transpose()
}

fn flag(members: &[Member<'_>], name: &str) -> Result<bool, Refusal> {
    match raw(members, name) {
        None | Some("false") => Ok(false),
        Some("true") => Ok(true),
        Some(_) => Err(refuse(format_args!("Invalid {name}: must be true or false"))),
    }
}

fn detail(members: &[Member<'_>]) -> Result<Detail, Refusal> {
    let Some(name) = text(members, "detail")? else { return Ok(Detail::default()) };
    Detail::parse(&name)
        .ok_or_else(|| refuse(format_args!("Invalid detail: must be {}", Detail::WORDS.join(" or "))))
}

fn limit(members: &[Member<'_>]) -> Result<usize, Refusal> {
    let Some(raw) = raw(members, "limit") else { return Ok(LIMIT_DEFAULT) };
    // 5.0 is the integer 5 to a JSON schema
    let number = raw.parse::<f64>().ok().filter(|n| n.fract() == 0.0 && (1.0..=LIMIT_MAX as f64).contains(n));
    number
        .map(|n| n as usize)
        .ok_or_else(|| refuse(format_args!("Invalid limit: must be a whole number from 1 to {LIMIT_MAX}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_read_is_read_or_named() {
        let request = read(r#"{"key":"k","offset":0,"limit":1.0}"#).unwrap();
        assert_eq!((request.key.as_str(), request.offset, request.limit), ("k", 0, Some(1)));
        assert_eq!(read(r#"{"key":"k","limit":null}"#).unwrap().limit, None);
        for bad in [
            "{}",
            r#"{"key":7}"#,
            r#"{"key":"k","limit":0}"#,
            r#"{"key":"k","limit":"5"}"#,
            r#"{"key":"k","offset":-1}"#,
            r#"{"key":"k","offset":1.5}"#,
            r#"{"key":"k","offset":1e10}"#,
            r#"{"key":"k","page":1}"#,
        ] {
            assert!(read(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_search_is_read_or_named() {
        let request = search(r#"{"query":"x","limit":100,"read_only_only":true,"server":null}"#).unwrap();
        assert_eq!((request.limit, request.read_only_only, request.server), (100, true, None));
        assert_eq!(search(r#"{"query":"x"}"#).unwrap().limit, 15);
        assert_eq!(search(r#"{"query":"x","detail":"compact"}"#).unwrap().detail, Detail::Compact);
        for bad in [
            "{}",
            r#"{"query":""}"#,
            r#"{"query":7}"#,
            r#"{"query":"x","limit":0}"#,
            r#"{"query":"x","limit":101}"#,
            r#"{"query":"x","limit":"5"}"#,
            r#"{"query":"x","limit":1.5}"#,
            r#"{"query":"x","read_only_only":"yes"}"#,
            r#"{"query":"x","nope":1}"#,
            r#"{"query":"x","detail":"short"}"#,
            r#"{"query":"x","detail":1}"#,
        ] {
            assert!(search(bad).is_err(), "{bad}");
        }
    }
}
