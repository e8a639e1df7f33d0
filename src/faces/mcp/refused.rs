//! Records of calls that are refused before the pipeline. Each is an attempt all the same.

use std::borrow::Cow;

use axum::extract::Request;
use bytes::Bytes;
use http::{HeaderMap, Method};

use super::entry::McpEntry;
use super::envelope::{self, Message};

use super::jsonrpc::RpcError;
use super::management::Managing;
use super::{Endpoint, tools};
use crate::domain::activity::RecordKind;
use crate::domain::json;
use crate::faces::wire::credentials::without_credentials;
use crate::gateway::{Attempt, Gateway, RefusedAttempt};

/// Parts of a refused `tools/call`, as far as they could be read.
pub(super) struct Called<'a> {
    /// Endpoint that it came to.
    pub(super) endpoint: Endpoint,
    /// Name of the tool.
    pub(super) name: Option<&'a str>,
    /// Raw arguments.
    pub(super) arguments: Option<&'a str>,
    /// Raw text that the record keeps of a tool that is not the gateway's own.
    pub(super) whole: Option<&'a str>,
}

impl Called<'_> {
    /// Records the call as refused.
    pub(super) async fn record(&self, gateway: &Gateway, attempt: &Attempt, code: &str, message: &str) {
        let (kind, body) = (self.kind(), self.recordable());
        let refused = RefusedAttempt { kind, tool: self.name, body: body.as_deref(), code, message };
        match kind {
            RecordKind::DirectCall => gateway.calls.record_refused_directly(attempt, &refused).await,
            _ => gateway.log.record_refused(attempt, &refused),
        }
    }

    /// Returns the kind of the record of such a call.
    fn kind(&self) -> RecordKind {
        match self.name {
            Some(tools::RETRIEVE_TOOLS) if self.endpoint == Endpoint::Search => RecordKind::Search,
            Some(tools::READ_CACHE) => RecordKind::CacheRead,
            Some(name) if Managing::named(name).is_some() => RecordKind::Admin,
            _ => self.endpoint.call_kind(),
        }
    }

    /// Returns the part of the call that may stand in its record: no credentials, answers of people or states of servers.
    ///
    /// `None` for `read_cache`, whose arguments open a kept text, and for params that cannot be searched for such parts.
    fn recordable(&self) -> Option<Cow<'_, str>> {
        match self.name? {
            tools::READ_CACHE => None,
            name if Managing::named(name).is_some() => Some(without_credentials(self.arguments?).into()),
            // answers of people and states of servers are in no record, nor is a text that may contain them
            _ => self
                .whole
                .filter(|whole| json::top_level_members(whole).is_ok())
                .map(|whole| json::without_members(whole, &["inputResponses", "requestState"])),
        }
    }
}

impl McpEntry<'_> {
    /// Records a call that is refused before its raw params are checked.
    pub(super) async fn record(self, attempt: &Attempt, params: Option<&str>, code: &str, message: &str) {
        let members = params.and_then(|params| json::find_members(params, ["name", "arguments"]).ok());
        let [name, arguments] = members.unwrap_or_default();
        let name = name.and_then(|raw| serde_json::from_str::<String>(raw).ok());
        let called = Called { endpoint: self.endpoint, name: name.as_deref(), arguments, whole: params };
        called.record(&self.faces.gateway, attempt, code, message).await;
    }

    /// Records a call that is refused before its body is read, for example because of its key's role. Other requests are
    /// left out.
    pub(super) async fn record_unread(self, request: Request, code: &str, message: &str) {
        if *request.method() != Method::POST {
            return;
        }
        let headers = request.headers().clone();
        let Ok(body) = self.read(request.into_body()).await else { return };
        let Ok(Message::Request { id, method, params }) = self.parse(&body, || envelope::read(&body)).await
        else {
            return;
        };
        if method == "tools/call" {
            self.record(&self.attempt(&headers, id, &[]), params, code, message).await;
        }
    }

    /// Records a call that is refused because it can be read in more than one way. Other requests are left out.
    pub(super) async fn record_unreadable(self, headers: &HeaderMap, body: &Bytes, error: &RpcError) {
        let Ok(text) = std::str::from_utf8(body) else { return };
        let found = self.parse(body, || json::find_members(text, ["id", "method", "params"])).await;
        let Ok([id, Some("\"tools/call\""), params]) = found else { return };
        let attempt = self.attempt(headers, id.unwrap_or("null"), &[]);
        self.record(&attempt, params, error.name(), error.message()).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn recordable(name: Option<&str>, whole: Option<&str>) -> Option<String> {
        let called = Called { endpoint: Endpoint::Search, name, arguments: None, whole };
        called.recordable().map(Cow::into_owned)
    }

    #[test]
    fn answers_of_people_and_states_of_servers_are_in_no_record() {
        let whole = r#"{"name":"up:t","arguments":{"a":1},"inputResponses":{"w":{"action":"accept"}},"requestState":"s"}"#;
        let shown = recordable(Some("up:t"), Some(whole)).unwrap();
        assert_eq!(shown, r#"{"name":"up:t","arguments":{"a":1}}"#);
        // an escaped name is the same member
        let spelled = r#"{"input\u0052esponses":{"w":1},"name":"up:t","requestState":[1]}"#;
        assert_eq!(recordable(Some("up:t"), Some(spelled)).unwrap(), r#"{"name":"up:t"}"#);
        // texts that may contain them
        for odd in [r#"{"inputResponses":{}"#, "[]", "7", r#"{"a":1,"a":2}"#] {
            let shown = recordable(Some("up:t"), Some(odd));
            assert!(shown.is_none_or(|shown| !shown.contains("inputResponses")), "{odd}");
        }
        assert_eq!(recordable(Some(tools::READ_CACHE), Some(whole)), None);
        assert_eq!(recordable(None, Some(whole)), None);
    }
}
