//! Declared capabilities of clients to answer input requests, and the check of a server's requests against them.

use std::ops::Range;

use super::{CAPABILITIES_BYTES_MAX, INPUT_REQUESTS_MAX, STATE_BYTES_MAX};
use crate::domain::json::{self, Member};
use crate::domain::relay::Relay;

/// Capabilities to answer input requests, each with the method of such a request.
const KINDS: [(&str, &str); 3] =
    [("elicitation", "elicitation/create"), ("sampling", "sampling/createMessage"), ("roots", "roots/list")];
/// Default mode of an elicitation.
const MODE_DEFAULT: &str = "form";
/// Prefix of keys of input requests, reserved for the gateway.
const OWN_PREFIX: &str = "mcpproxy.";
/// Key of the gateway's own input request, which asks whether a call may run.
pub const CONSENT_KEY: &str = "mcpproxy.consent";
/// Key of the gateway's own request to open the page of a login.
pub const LOGIN_KEY: &str = "mcpproxy.login";

/// Key of the question of a handshake server, whose call is held open.
pub const HELD_KEY: &str = "question";

/// Error for capabilities larger than [`CAPABILITIES_BYTES_MAX`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TooLarge;

/// Declared capabilities of a client to answer input requests, as a raw JSON object without its other capabilities.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Capabilities(String);

impl Capabilities {
    /// Reads `clientCapabilities`, from a message that passed [`json::check`]. A value that is no object declares nothing.
    ///
    /// # Errors
    /// [`TooLarge`] when the capabilities take more than [`CAPABILITIES_BYTES_MAX`].
    pub fn read(raw: &str) -> Result<Capabilities, TooLarge> {
        let members = json::top_level_members(raw).unwrap_or_default();
        let mut out = String::from("{");
        for Member { name, value, .. } in &members {
            if !value.starts_with('{') || !KINDS.iter().any(|(kind, _)| kind == name) {
                continue;
            }
            if out.len() > 1 {
                out.push(',');
            }
            json::escape_into(&mut out, name);
            out.push(':');
            out.push_str(value);
        }
        out.push('}');
        if out.len() > CAPABILITIES_BYTES_MAX { Err(TooLarge) } else { Ok(Capabilities(out)) }
    }

    /// Returns the JSON object as it is passed on to servers.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Returns the part of the capabilities that a server may use.
    #[must_use]
    pub fn within(&self, relay: Relay) -> Capabilities {
        let names =
            [(relay.elicitation, "elicitation"), (relay.sampling, "sampling"), (relay.roots, "roots")];
        let kept_back: Vec<&str> =
            names.into_iter().filter_map(|(may, name)| (!may).then_some(name)).collect();
        Capabilities(json::without_members(&self.0, &kept_back).into_owned())
    }

    /// Returns whether nothing is declared.
    pub fn is_empty(&self) -> bool {
        self.0 == "{}"
    }

    /// Returns whether a client with these capabilities shows forms to a person.
    pub fn has_forms(&self) -> bool {
        self.allows("elicitation/create", "{}")
    }

    /// Returns whether a client with these capabilities opens pages for a person.
    pub fn has_pages(&self) -> bool {
        self.allows("elicitation/create", r#"{"mode":"url"}"#)
    }

    /// Returns whether a client with these capabilities can answer this request.
    pub fn allows(&self, method: &str, params: &str) -> bool {
        let Some((kind, _)) = KINDS.iter().find(|(_, asks)| *asks == method) else { return false };
        let Some(declared) = member(&self.0, kind) else { return false };
        if has_other_spelling(params) {
            return false;
        }
        match *kind {
            "elicitation" => allows_mode(declared, params),
            // a request that offers tools to a model needs a client that has declared support for that
            "sampling" => {
                let uses_tools = ["tools", "toolChoice"].iter().any(|name| member(params, name).is_some());
                !uses_tools || member(declared, "tools").is_some()
            }
            _ => true,
        }
    }
}

/// Members of a question, and of a log message, that are checked or replaced on the way.
const READ_MEMBERS: [&str; 10] = [
    "mode",
    "message",
    "requestedSchema",
    "url",
    "elicitationId",
    "tools",
    "toolChoice",
    "_meta",
    "logger",
    "level",
];

/// Returns whether an object has a member whose name is one of [`READ_MEMBERS`] but for upper and lower case. A client whose
/// parser ignores case would read that one, which nobody has checked.
pub fn has_other_spelling(object: &str) -> bool {
    let members = json::top_level_members(object).unwrap_or_default();
    members.iter().any(|member| {
        let is_close = |name: &&str| member.name.eq_ignore_ascii_case(name) && member.name != *name;
        READ_MEMBERS.iter().any(is_close)
    })
}

/// Returns whether the declared `elicitation` has the mode of the request. One without modes means forms.
fn allows_mode(declared: &str, params: &str) -> bool {
    let mode: Option<String> = match member(params, "mode") {
        None => Some(MODE_DEFAULT.to_owned()),
        Some(raw) => serde_json::from_str(raw).ok(),
    };
    let Some(mode) = mode else { return false };
    let says_nothing = json::top_level_members(declared).is_ok_and(|members| members.is_empty());
    member(declared, &mode).is_some() || (says_nothing && mode == MODE_DEFAULT)
}

/// Returns the value of a member; `None` for an absent member and for `null`.
fn member<'a>(object: &'a str, name: &str) -> Option<&'a str> {
    let [value] = json::find_members(object, [name]).ok()?;
    value.filter(|raw| *raw != "null")
}

/// Largest answer that requests input, and largest `params` of a question, in bytes.
pub const QUESTION_BYTES_MAX: usize = 1024 * 1024;

/// Answer of a server that requests input.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Asked {
    /// Range of the server's `requestState` in the answer, a JSON string with its quotes; `None` when there is none.
    pub state: Option<Range<usize>>,
}

/// Reason why an answer that requests input cannot be passed on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Misfit {
    /// The answer requests input that the client did not declare.
    NotDeclared,
    /// The answer violates the protocol, or is ambiguous.
    Malformed,
    /// The answer, its state or the number of its requests is over a bound.
    TooLarge,
}

impl Asked {
    /// Reads a result with `resultType: "input_required"`, and checks it against the client's capabilities.
    ///
    /// # Errors
    /// [`Misfit`] when the result cannot be passed on to the client.
    pub fn read(result: &str, capabilities: &Capabilities) -> Result<Asked, Misfit> {
        // before anything is parsed: a question for a person is never that long
        if result.len() > QUESTION_BYTES_MAX {
            return Err(Misfit::TooLarge);
        }
        let (mut requests, mut state) = (None, None);
        let members = json::top_level_members(result).map_err(|_| Misfit::Malformed)?;
        for member in members {
            let range = member.value_range();
            let before = match &*member.name {
                "inputRequests" => requests.replace(member.value).is_some(),
                "requestState" => state.replace((member.value, range)).is_some(),
                _ => false,
            };
            if before {
                return Err(Misfit::Malformed);
            }
        }
        if let Some(requests) = requests {
            check_requests(requests, capabilities)?;
        }
        let state = match state {
            Some((raw, _)) if !raw.starts_with('"') => return Err(Misfit::Malformed),
            Some((raw, _)) if raw.len() > STATE_BYTES_MAX => return Err(Misfit::TooLarge),
            Some((_, range)) => Some(range),
            None if requests.is_none() => return Err(Misfit::Malformed),
            None => None,
        };
        Ok(Asked { state })
    }
}

fn check_requests(requests: &str, capabilities: &Capabilities) -> Result<(), Misfit> {
    // the strict check of all that is in it: the client sees the same that is checked here
    let requests = json::members(requests).map_err(|_| Misfit::Malformed)?;
    if requests.len() > INPUT_REQUESTS_MAX {
        return Err(Misfit::TooLarge);
    }
    for request in requests {
        let [method, params] =
            json::find_members(request.value, ["method", "params"]).map_err(|_| Misfit::Malformed)?;
        let method = method.and_then(|raw| serde_json::from_str::<String>(raw).ok());
        let method = method.ok_or(Misfit::Malformed)?;
        if request.name.starts_with(OWN_PREFIX) {
            return Err(Misfit::Malformed);
        }
        if !capabilities.allows(&method, params.unwrap_or("{}")) {
            return Err(Misfit::NotDeclared);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn declared(raw: &str) -> Capabilities {
        Capabilities::read(raw).unwrap()
    }

    #[test]
    fn only_what_is_about_being_asked_goes_on() {
        let raw = r#"{ "roots":{"listChanged":true}, "extensions":{"x":1},"sampling":7,"elicitation": { "url":{} } }"#;
        assert_eq!(declared(raw).as_str(), r#"{"roots":{"listChanged":true},"elicitation":{ "url":{} }}"#);
        for nothing in ["{}", "7", "[]", r#"{"tools":{}}"#] {
            assert_eq!(declared(nothing).as_str(), "{}", "{nothing}");
        }
        let sized = |bytes: usize| {
            let raw = format!(r#"{{"roots":{{"x":"{}"}},"y":"{}"}}"#, "x".repeat(bytes), "y".repeat(9000));
            Capabilities::read(&raw)
        };
        let frame = r#"{"roots":{"x":""}}"#.len();
        assert_eq!(sized(CAPABILITIES_BYTES_MAX - frame).unwrap().as_str().len(), CAPABILITIES_BYTES_MAX);
        assert_eq!(sized(CAPABILITIES_BYTES_MAX - frame + 1), Err(TooLarge));
    }

    #[test]
    fn a_server_sees_what_its_relay_lets_pass() {
        let all = declared(r#"{"elicitation":{"url":{}},"sampling":{"tools":{}},"roots":{}}"#);
        let within = |relay| all.within(relay).as_str().to_owned();
        assert_eq!(within(Relay::NOTHING), "{}");
        assert_eq!(within(Relay::default()), r#"{"elicitation":{"url":{}}}"#);
        assert_eq!(within(Relay { roots: true, ..Relay::NOTHING }), r#"{"roots":{}}"#);
        assert_eq!(within(Relay { sampling: true, roots: true, ..Relay::default() }), all.as_str());
    }

    #[test]
    fn a_question_has_a_length() {
        let sized = |bytes: usize| {
            let frame = r#"{"requestState":"s","x":""}"#.len();
            let result = format!(r#"{{"requestState":"s","x":"{}"}}"#, "x".repeat(bytes - frame));
            assert_eq!(result.len(), bytes);
            Asked::read(&result, &declared("{}"))
        };
        assert!(sized(QUESTION_BYTES_MAX).is_ok());
        assert_eq!(sized(QUESTION_BYTES_MAX + 1), Err(Misfit::TooLarge));
        // a too large text is refused before it is parsed
        assert_eq!(Asked::read(&"x".repeat(QUESTION_BYTES_MAX + 1), &declared("{}")), Err(Misfit::TooLarge));
    }

    #[test]
    fn what_was_declared_may_be_asked_and_nothing_else() {
        let form = r#"{"method":"elicitation/create","params":{"message":"?"}}"#;
        let url = r#"{"method":"elicitation/create","params":{"mode":"url","url":"https://x.example"}}"#;
        let odd = r#"{"method":"elicitation/create","params":{"mode":7}}"#;
        let sampling = r#"{"method":"sampling/createMessage","params":{"messages":[],"tools":null}}"#;
        let tools = r#"{"method":"sampling/createMessage","params":{"tools":[]}}"#;
        let roots = r#"{"method":"roots/list"}"#;
        let other = r#"{"method":"tools/call","params":{}}"#;
        let cased = r#"{"method":"elicitation/create","params":{"message":"?","Message":"!"}}"#;
        let all = [form, url, odd, sampling, tools, roots, other, cased];
        for (capabilities, allowed) in [
            ("{}", &[][..]),
            (r#"{"elicitation":{}}"#, &[form]),
            (r#"{"elicitation":{"form":{}}}"#, &[form]),
            (r#"{"elicitation":{"url":{}}}"#, &[url]),
            (r#"{"elicitation":{"form":{},"url":{}}}"#, &[form, url]),
            (r#"{"elicitation":{"form":{},"url":null}}"#, &[form]),
            (r#"{"elicitation":{"later":{}}}"#, &[]),
            (r#"{"sampling":{}}"#, &[sampling]),
            (r#"{"sampling":{"tools":{}}}"#, &[sampling, tools]),
            (r#"{"roots":{}}"#, &[roots]),
            (r#"{"roots":{},"sampling":{},"elicitation":{}}"#, &[roots, sampling, form]),
        ] {
            for request in all {
                let result =
                    format!(r#"{{"resultType":"input_required","inputRequests":{{"a":{request}}}}}"#);
                let expected = match allowed.contains(&request) {
                    true => Ok(Asked { state: None }),
                    false => Err(Misfit::NotDeclared),
                };
                assert_eq!(
                    Asked::read(&result, &declared(capabilities)),
                    expected,
                    "{capabilities} {request}"
                );
            }
        }
    }

    #[test]
    fn an_answer_has_one_reading_and_a_size() {
        let all = declared(r#"{"elicitation":{},"sampling":{},"roots":{}}"#);
        let read = |result: &str| Asked::read(result, &all);
        let result = r#"{"x":1, "requestState" : "a\"b" ,"inputRequests":{}}"#;
        let state = read(result).unwrap().state.unwrap();
        assert_eq!(result.get(state), Some(r#""a\"b""#));
        for malformed in [
            "{}",
            "[]",
            r#"{"requestState":7}"#,
            r#"{"requestState":null}"#,
            r#"{"requestState":"a","requestState":"b"}"#,
            r#"{"inputRequests":{},"inputRequests":{}}"#,
            r#"{"inputRequests":[]}"#,
            r#"{"inputRequests":{"a":7}}"#,
            r#"{"inputRequests":{"a":{}}}"#,
            r#"{"inputRequests":{"a":{"method":7}}}"#,
            r#"{"inputRequests":{"a":{"method":"roots/list","m\u0065thod":"tools/call"}}}"#,
            r#"{"inputRequests":{"a":{"method":"roots/list"},"\u0061":{"method":"roots/list"}}}"#,
            r#"{"inputRequests":{"mcpproxy.consent":{"method":"roots/list"}}}"#,
            r#"{"inputRequests":{"a":{"method":"elicitation/create","params":{"mode":"form","mode":"url"}}}}"#,
        ] {
            assert_eq!(read(malformed), Err(Misfit::Malformed), "{malformed}");
        }
        let requests = |count: usize| {
            let one = |n: usize| format!(r#""{n}":{{"method":"roots/list"}}"#);
            let all: Vec<String> = (0..count).map(one).collect();
            format!(r#"{{"inputRequests":{{{}}}}}"#, all.join(","))
        };
        assert_eq!(read(&requests(INPUT_REQUESTS_MAX)), Ok(Asked { state: None }));
        assert_eq!(read(&requests(INPUT_REQUESTS_MAX + 1)), Err(Misfit::TooLarge));
        let state = |bytes: usize| format!(r#"{{"requestState":"{}"}}"#, "x".repeat(bytes - 2));
        assert!(read(&state(STATE_BYTES_MAX)).is_ok());
        assert_eq!(read(&state(STATE_BYTES_MAX + 1)), Err(Misfit::TooLarge));
    }
}
