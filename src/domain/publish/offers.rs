//! Prompts, resources and templates as `/mcp/direct` lists them. As with tools, clients refuse a whole list for one fault.

use std::ops::Range;

use chrono::DateTime;
use serde_json::Value;

use super::faults::{NotListed, are_icons};
use super::members::{all_elements, is_object, is_string, text};
use crate::domain::json::{self, escape_into};

/// Schemes whose URIs have a host, always (WHATWG URL).
const SPECIAL: [&str; 5] = ["http", "https", "ws", "wss", "ftp"];

/// Definition of an offer as listed, with the range of its name where another name is listed.
#[derive(Debug, PartialEq, Eq)]
pub struct OfferPart {
    text: Box<str>,
    name: Option<Range<usize>>,
}

impl OfferPart {
    /// Prepares a prompt for listing under another name.
    ///
    /// # Errors
    /// [`NotListed`], where clients would refuse the whole list for it.
    pub fn prompt(definition: &str) -> Result<OfferPart, NotListed> {
        let unnamed = NotListed("it has no name");
        let mut part = Self::of(definition, |name, raw| match name {
            "title" | "description" => is_string(raw),
            "arguments" => all_elements(raw, is_argument),
            _ => true,
        })?;
        let members = json::top_level_members(&part.text).map_err(|_| unnamed)?;
        let name = members.iter().find(|member| member.name == "name").ok_or(unnamed)?;
        part.name = Some(name.value_range());
        Ok(part)
    }

    /// Prepares a resource for listing.
    ///
    /// # Errors
    /// [`NotListed`], where clients would refuse the whole list for it.
    pub fn resource(definition: &str) -> Result<OfferPart, NotListed> {
        let part = Self::of_resource(definition)?;
        let [uri] = json::find_members(definition, ["uri"]).unwrap_or_default();
        match uri.and_then(text) {
            Some(uri) if is_uri(&uri) => Ok(part),
            _ => Err(NotListed("its uri is not one that every client can read")),
        }
    }

    /// Prepares a resource template for listing.
    ///
    /// # Errors
    /// [`NotListed`], where clients would refuse the whole list for it.
    pub fn template(definition: &str) -> Result<OfferPart, NotListed> {
        Self::of_resource(definition)
    }

    fn of_resource(definition: &str) -> Result<OfferPart, NotListed> {
        let [name] = json::find_members(definition, ["name"]).unwrap_or_default();
        if !name.is_some_and(is_string) {
            return Err(NotListed("it has no name"));
        }
        Self::of(definition, |name, raw| match name {
            "title" | "description" | "mimeType" => is_string(raw),
            "size" => !raw.is_empty() && raw.len() < 16 && raw.bytes().all(|byte| byte.is_ascii_digit()),
            "annotations" => are_annotations(raw),
            _ => true,
        })
    }

    /// Prepares a definition without those optional members that are not of the protocol's form.
    fn of(definition: &str, is_good: impl Fn(&str, &str) -> bool) -> Result<OfferPart, NotListed> {
        // lone surrogates and numbers out of range, which some clients refuse
        if !matches!(serde_json::from_str(definition), Ok(Value::Object(_))) {
            return Err(NotListed("not every client can read its definition"));
        }
        let mut left_out: Vec<String> = Vec::new();
        json::for_each_member(definition, |member| {
            let is_good = match &*member.name {
                "icons" => are_icons(member.value),
                "_meta" => is_object(member.value),
                name => is_good(name, member.value),
            };
            if !is_good {
                left_out.push(member.name.to_string());
            }
        });
        let left_out: Vec<&str> = left_out.iter().map(String::as_str).collect();
        Ok(OfferPart { text: json::without_members(definition, &left_out).into(), name: None })
    }

    /// Writes the definition. `name` replaces the name of a prompt; others keep theirs.
    pub fn write(&self, name: &str, out: &mut String) {
        let Some(own) = &self.name else { return out.push_str(&self.text) };
        out.push_str(self.text.get(..own.start).unwrap_or_default());
        escape_into(out, name);
        out.push_str(self.text.get(own.end..).unwrap_or_default());
    }

    /// Returns the size of the definition with its own name, in bytes.
    pub fn bytes(&self) -> usize {
        self.text.len()
    }
}

fn is_argument(raw: &str) -> bool {
    let Ok([name, title, description, required]) =
        json::find_members(raw, ["name", "title", "description", "required"])
    else {
        return false;
    };
    name.is_some_and(is_string)
        && title.is_none_or(is_string)
        && description.is_none_or(is_string)
        && required.is_none_or(|required| matches!(required, "true" | "false"))
}

fn are_annotations(raw: &str) -> bool {
    let Ok([audience, priority, modified]) =
        json::find_members(raw, ["audience", "priority", "lastModified"])
    else {
        return false;
    };
    let is_role = |raw: &str| matches!(text(raw).as_deref(), Some("user" | "assistant"));
    let is_time = |raw: &str| text(raw).is_some_and(|time| is_time(&time));
    is_object(raw)
        && audience.is_none_or(|raw| all_elements(raw, is_role))
        && priority.is_none_or(|raw| raw.parse().is_ok_and(|priority: f64| (0.0..=1.0).contains(&priority)))
        && modified.is_none_or(is_time)
}

/// Returns whether the strictest client accepts the time: no leap second, no lower-case letters.
fn is_time(time: &str) -> bool {
    let has_letters =
        time.as_bytes().get(10) == Some(&b'T') && !time.contains(|c: char| c.is_ascii_lowercase());
    // `2026-01-02T03:04:05`, whatever follows
    has_letters && time.get(17..19) != Some("60") && DateTime::parse_from_rfc3339(time).is_ok()
}

/// Returns whether the strictest clients, which parse URIs as URLs, accept the URI.
fn is_uri(uri: &str) -> bool {
    let Some((scheme, rest)) = uri.split_once(':') else { return false };
    let is_scheme = scheme.starts_with(|c: char| c.is_ascii_alphabetic())
        && scheme.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '+' | '-' | '.'));
    let is_odd =
        |c: char| c.is_control() || c.is_whitespace() || matches!(c, '<' | '>' | '"' | '\\' | '^' | '`');
    if !is_scheme || rest.contains(is_odd) {
        return false;
    }
    let is_special = SPECIAL.iter().any(|special| scheme.eq_ignore_ascii_case(special));
    let Some(rest) = rest.strip_prefix("//") else { return !is_special };
    let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
    if scheme.eq_ignore_ascii_case("file") {
        // neither port nor user
        return authority.is_empty() || is_drive(authority) || is_host(authority, true);
    }
    if !is_special && authority.is_empty() {
        return true;
    }
    let place = authority.rsplit_once('@').map_or(authority, |(_, place)| place);
    // addresses in brackets are not worth a parser here
    let (host, port) = place.split_at(place.find(':').unwrap_or(place.len()));
    let is_port = match port.strip_prefix(':') {
        Some(digits) => {
            digits.is_empty() || digits.bytes().all(|b| b.is_ascii_digit()) && digits.parse::<u16>().is_ok()
        }
        None => port.is_empty(),
    };
    is_port && !host.is_empty() && is_host(host, is_special)
}

/// Returns whether the authority is a drive (`C:`), as in some file URIs.
fn is_drive(authority: &str) -> bool {
    matches!(authority.as_bytes(), [letter, b':'] if letter.is_ascii_alphabetic())
}

fn is_host(host: &str, is_special: bool) -> bool {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_' | '~');
    if !is_special {
        return host
            .chars()
            .all(|c| is_plain(c) || matches!(c, '%' | '!' | '$' | '&' | '+' | ',' | '=' | '*'));
    }
    let last = host.trim_end_matches('.').rsplit('.').next().unwrap_or_default();
    let is_number = last.starts_with(|c: char| c.is_ascii_digit())
        && (last.bytes().all(|b| b.is_ascii_digit()) || last.to_ascii_lowercase().starts_with("0x"));
    !host.is_empty()
        && host.chars().all(is_plain)
        && !host.to_ascii_lowercase().contains("xn--")
        && (!is_number || is_ipv4(host))
}

fn is_ipv4(host: &str) -> bool {
    let is_byte = |part: &str| part.parse::<u8>().is_ok_and(|byte| byte.to_string() == part);
    host.split('.').count() == 4 && host.split('.').all(is_byte)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(part: Result<OfferPart, NotListed>, name: &str) -> String {
        let mut out = String::new();
        part.unwrap().write(name, &mut out);
        out
    }

    #[test]
    fn a_prompt_gets_its_name_and_keeps_the_rest() {
        let prompt = r#"{"x": 1.0, "name":"a" ,"arguments":[{"name":"n","required":true,"y":[]}],"_meta":{"k":18446744073709551616}}"#;
        assert_eq!(written(OfferPart::prompt(prompt), "s:\"a"), prompt.replace("\"a\"", r#""s:\"a""#));
        for odd in [
            r#""arguments":null"#,
            r#""arguments":[{"title":"x"}]"#,
            r#""arguments":[{"name":"n","required":"yes"}]"#,
            r#""description":7"#,
            r#""icons":{}"#,
            r#""_meta":[]"#,
        ] {
            let prompt = format!(r#"{{"name":"a",{odd}}}"#);
            assert_eq!(written(OfferPart::prompt(&prompt), "b"), r#"{"name":"b"}"#, "{odd}");
        }
        for bad in [r#"{"name":"a","x":"\ud800"}"#, r#"{"name":"a","x":1e400}"#, "[]", r#"{"title":"a"}"#] {
            assert!(OfferPart::prompt(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_resource_stays_as_it_is_but_for_what_clients_cannot_read() {
        let good = r#"{"uri":"x://a","name":"n","size":7,"annotations":{"audience":["user"],"priority":0.5,"lastModified":"2026-01-02T03:04:05Z"}}"#;
        assert_eq!(written(OfferPart::resource(good), "other"), good);
        for odd in [
            r#""size":1.5"#,
            r#""size":-1"#,
            r#""mimeType":null"#,
            r#""annotations":{"audience":["robot"]}"#,
            r#""annotations":{"priority":2}"#,
            r#""annotations":{"lastModified":"yesterday"}"#,
            r#""annotations":{"lastModified":"2026-01-02T03:04:05z"}"#,
            r#""annotations":{"lastModified":"2026-01-02T03:04:60Z"}"#,
            r#""annotations":[]"#,
        ] {
            let resource = format!(r#"{{"uri":"x://a",{odd},"name":"n"}}"#);
            assert_eq!(written(OfferPart::resource(&resource), ""), r#"{"uri":"x://a","name":"n"}"#, "{odd}");
        }
        assert!(OfferPart::resource(r#"{"uri":"x://a"}"#).is_err());
        assert!(OfferPart::resource(r#"{"uri":"a b","name":"n"}"#).is_err());
        let template = r#"{"uriTemplate":"a b{x}","name":"n"}"#;
        assert_eq!(written(OfferPart::template(template), ""), template);
    }

    #[test]
    fn uris_that_every_client_reads() {
        for good in [
            "file:///a/b",
            "note://7",
            "x:y",
            "ui://app/x.html",
            "https://a.b:8/c?d=e#f",
            "http://10.0.0.1:80/",
            "urn:isbn:1",
            "https://10.0.0.1/",
            "data:text/plain,é",
            "repo://a/b%20c",
            "https://u:p@h/",
            "postgres://user:pw@h:5432/db",
            "x:///a",
            "x://",
            "file://localhost/a",
            "file://C:/a",
        ] {
            assert!(is_uri(good), "{good}");
        }
        for bad in [
            "",
            "a",
            "1x://a",
            "http://",
            "http:///a",
            "http:a",
            "http://a b",
            "http://h:99999/",
            "http://[::1]/",
            "http://1.2.3/",
            "http://1.2.3.256/",
            "x://a:b",
            "x://<a>",
            "http://a%2fb/",
            "x://a\u{7f}",
            "x://u@/p",
            "postgres://user:pw@/db/t/schema",
            "x://:80/",
            "x://@/",
            "file://h:80/x",
            "file://u@h/x",
            "file://a%b/",
            "file://1.2.3.256/",
            "file://xn--a/",
            "FILE://XN--a/",
            "http://h.0X7g/",
        ] {
            assert!(!is_uri(bad), "{bad:?}");
        }
    }
}
