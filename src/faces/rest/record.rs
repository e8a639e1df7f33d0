//! Records of administrators' acts, of reads, and of attempts that are refused before their use case.

use uuid::Uuid;

use super::error::code_of;
use super::exchange::Exchange;
use crate::domain::activity::RecordKind;
use crate::domain::id::is_name;
use crate::domain::json;
use crate::faces::wire::credentials::{without_credentials, without_webhook_secrets};
use crate::gateway::{Act, Acting, GatewayError, ReadAttempt, ReadUnderWay, RefusedAttempt};

/// Commits the record of an act before it is run. The activity log masks secrets and cuts long texts.
pub(super) async fn begin(exchange: &Exchange, what: &str) -> Result<Acting, GatewayError> {
    let (server, body, consent_id) = described(exchange).await;
    let act = Act { what, server: server.as_deref(), body: Some(&body), consent_id };
    exchange.gateway().log.begin_act(&exchange.attempt, &act).await
}

/// Records or counts an act that its key may not do, before anything of it began.
///
/// # Errors
/// `Unavailable` if the log has no room for the record.
pub(super) async fn refused_act(
    exchange: &Exchange,
    what: &str,
    error: &GatewayError,
) -> Result<(), GatewayError> {
    let log = &exchange.gateway().log;
    if !log.keeps_forbidden(&exchange.attempt) {
        return Ok(());
    }
    let (server, body, consent_id) = described(exchange).await;
    let act = Act { what, server: server.as_deref(), body: Some(&body), consent_id };
    log.record_refused_act(&exchange.attempt, &act, error).await
}

/// Returns the id of the permission request that an act is about. An act about a grant is about the request that the grant
/// came from, if the caller may see the grant.
async fn consent_id(exchange: &Exchange) -> Option<Uuid> {
    let below = exchange.path.strip_prefix("/consent/")?;
    let id = Uuid::try_parse(exchange.segment("id")).ok()?;
    match below.starts_with("grants/") {
        true => exchange.gateway().consent.request_of_grant(exchange.caller(), id).await,
        false => Some(id),
    }
}

/// Returns the server that an act is about, its path and body as JSON, and the id of its permission request. An act about a
/// permission request has the request's server and tool, if the caller may see the request.
async fn described(exchange: &Exchange) -> (Option<String>, String, Option<Uuid>) {
    let sent = exchange.raw_body();
    let consent_id = consent_id(exchange).await;
    let request = match consent_id {
        Some(id) => exchange.gateway().consent.get(exchange.caller(), id).await.ok(),
        None => None,
    };
    let tool = request.as_ref().map(|request| request.row.tool.as_str());
    let server = match &request {
        Some(request) => Some(request.row.server.clone()),
        None => server_of(&exchange.path, exchange.segment("name"), sent),
    };
    (server, exchange.parse(|| text(&exchange.path, tool, sent)).await, consent_id)
}

/// Begins the record of a sensitive read, and reserves its slot.
pub(super) async fn begin_read(
    exchange: &Exchange,
    what: &'static str,
) -> Result<ReadUnderWay, GatewayError> {
    let server = server_of(&exchange.path, exchange.segment("name"), None);
    let asked = asked(&exchange.path, exchange.raw_query());
    let read = ReadAttempt { what, server: server.as_deref(), asked: &asked };
    exchange.gateway().log.begin_read(&exchange.attempt, &read).await
}

/// Records that a key may not make this read. Other failures of reads are not recorded.
pub(super) fn refused_read(exchange: &Exchange, what: &'static str, error: &GatewayError) {
    if !matches!(error, GatewayError::Forbidden(_)) {
        return;
    }
    let server = server_of(&exchange.path, exchange.segment("name"), None);
    let asked = asked(&exchange.path, exchange.raw_query());
    let read = ReadAttempt { what, server: server.as_deref(), asked: &asked };
    exchange.gateway().log.record_refused_read(&exchange.attempt, &read, error);
}

/// Records a call or search that was refused before its use case. If the gateway itself failed, nothing is recorded here,
/// since the use case may have done it already.
pub(super) fn refused(exchange: &Exchange, kind: RecordKind, error: &GatewayError) {
    let code = match error {
        GatewayError::Unavailable | GatewayError::Refused(_) => return,
        other => code_of(other),
    };
    let name = exchange.raw_body().and_then(|body| json::find_members(body, ["name"]).ok());
    let name = name.and_then(|[name]| name).and_then(|raw| serde_json::from_str::<String>(raw).ok());
    let message = error.to_string();
    let body = exchange.raw_body().filter(|body| !body.is_empty()).or(exchange.raw_query());
    let refused = RefusedAttempt { kind, tool: name.as_deref(), body, code, message: &message };
    exchange.gateway().log.record_refused(&exchange.attempt, &refused);
}

/// Returns the server that an act is about: the one in the path, or the one to be added. Only a valid name gets into the
/// column of the log.
fn server_of(path: &str, segment: &str, body: Option<&str>) -> Option<String> {
    let name = match path {
        "/servers" => {
            let [name] = json::find_members(body?, ["name"]).ok()?;
            serde_json::from_str(name?).ok()?
        }
        _ if path.starts_with("/servers/") => segment.to_owned(),
        _ => return None,
    };
    is_name(&name).then_some(name)
}

/// Returns `{"path", "tool"?, "body"?}`; the path names the object of the act. A body that is not JSON is left out.
fn text(path: &str, tool: Option<&str>, body: Option<&str>) -> String {
    let mut out = String::from(r#"{"path":"#);
    json::escape_into(&mut out, path);
    if let Some(tool) = tool {
        out.push_str(r#","tool":"#);
        json::escape_into(&mut out, tool);
    }
    if let Some(body) = body.filter(|body| json::check(body).is_ok()) {
        out.push_str(r#","body":"#);
        match path {
            _ if path.starts_with("/servers") => out.push_str(&without_credentials(body)),
            _ if path.starts_with("/consent/webhook") => out.push_str(&without_webhook_secrets(body)),
            _ if is_check(path) => out.push_str(without_token(body)),
            _ => out.push_str(body),
        }
    }
    out.push('}');
    out
}

/// Returns whether a path is that of a check of an issuer, which may have a token in its body.
fn is_check(path: &str) -> bool {
    path.starts_with("/issuers/") && path.ends_with("/check")
}

/// Returns the body of a check of an issuer as it may be recorded: whether there is a token. Names of other members are
/// left out as well, since a token may be in the wrong place.
fn without_token(body: &str) -> &'static str {
    let members = json::top_level_members(body).unwrap_or_default();
    let has_token = members.iter().any(|member| member.name == "token");
    if has_token { r#"{"token":"[redacted]"}"# } else { "{}" }
}

/// Returns `{"path", "query"?}`.
fn asked(path: &str, query: Option<&str>) -> String {
    let mut out = String::from(r#"{"path":"#);
    json::escape_into(&mut out, path);
    if let Some(query) = query {
        out.push_str(r#","query":"#);
        json::escape_into(&mut out, query);
    }
    out.push('}');
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_server_is_found_in_path_or_body() {
        for (path, segment, body, expected) in [
            ("/servers/gh/enable", "gh", None, Some("gh")),
            ("/servers/a%00b", "a\0b", None, None),
            ("/servers", "", Some(r#"{"name":"gh","url":"u"}"#), Some("gh")),
            ("/servers", "", Some(r#"{"name":"NOT A NAME"}"#), None),
            ("/servers", "", Some("{"), None),
            ("/servers", "", None, None),
            ("/tenants/acme", "acme", None, None),
        ] {
            assert_eq!(server_of(path, segment, body).as_deref(), expected, "{path} {body:?}");
        }
    }

    #[test]
    fn the_text_is_always_json() {
        for (path, tool, body, expected) in [
            ("/keys", None, Some(r#"{ "role":"agent" }"#), r#"{"path":"/keys","body":{ "role":"agent" }}"#),
            ("/keys", None, Some("{"), r#"{"path":"/keys"}"#),
            ("/keys", None, Some(""), r#"{"path":"/keys"}"#),
            (r#"/keys/""#, None, None, r#"{"path":"/keys/\""}"#),
            (
                "/consent/1/decision",
                Some("a\"b"),
                Some("{}"),
                r#"{"path":"/consent/1/decision","tool":"a\"b","body":{}}"#,
            ),
        ] {
            assert_eq!(text(path, tool, body), expected);
        }
    }

    #[test]
    fn no_secret_of_a_webhook_is_recorded() {
        let body =
            r#"{"url":"https://a/s3cret?k=s3cret","secret":"s3cret","Secret":["s3cret"],"name":"s3cret"}"#;
        let expected = r#"{"url":"https://a/[redacted]","secret":"[redacted]","Secret":"[redacted]","name":"[redacted]"}"#;
        let wanted = format!(r#"{{"path":"/consent/webhook","body":{expected}}}"#);
        assert_eq!(text("/consent/webhook", None, Some(body)), wanted);
    }

    #[test]
    fn no_token_of_a_check_is_recorded() {
        for (body, expected) in [
            (r#"{"token":"s3cret"}"#, r#"{"token":"[redacted]"}"#),
            (r#"{"t\u006fken":["s3cret"],"s3cret":"s3cret"}"#, r#"{"token":"[redacted]"}"#),
            (r#"{"s3cret":1}"#, "{}"),
            (r#""s3cret""#, "{}"),
        ] {
            let path = "/issuers/corp/check";
            assert_eq!(text(path, None, Some(body)), format!(r#"{{"path":"{path}","body":{expected}}}"#));
        }
    }

    #[test]
    fn no_credential_of_a_server_is_recorded() {
        for (body, expected) in [
            (
                r#"{"name":"gh", "headers":{"Authorization":"s3cret","X-A":["s3cret"]}}"#,
                r#"{"name":"gh","headers":{"Authorization":"[redacted]","X-A":"[redacted]"}}"#,
            ),
            (r#"{"he\u0061ders":{"X-A":{"b":"s3cret"}}}"#, r#"{"headers":{"X-A":"[redacted]"}}"#),
            (r#"{"headers":"s3cret"}"#, r#"{"headers":"[redacted]"}"#),
            (r#"{"headers":{}}"#, r#"{"headers":{}}"#),
            (r#"{"header":{"X-A":"s3cret"},"enabled":true}"#, r#"{"header":"[redacted]","enabled":true}"#),
            (
                r#"{"url":"https://a/b?k=s3cret","keep_credentials":true}"#,
                r#"{"url":"https://a/b?[redacted]","keep_credentials":true}"#,
            ),
            (r#"{"url":"https://u:s3cret@a/"}"#, r#"{"url":"https://[redacted]@a/"}"#),
            (r#"{"url":["https://a/?s3cret"]}"#, r#"{"url":"[redacted]"}"#),
            (
                r#"{"kind":"resource","uri":"x://u:s3cret@a/b?k=s3cret"}"#,
                r#"{"kind":"resource","uri":"x://[redacted]@a/b?[redacted]"}"#,
            ),
            (r#"{"uri":"note:one"}"#, r#"{"uri":"note:one"}"#),
            (r#"["s3cret"]"#, r#""[redacted]""#),
            (r#""s3cret""#, r#""[redacted]""#),
        ] {
            for path in ["/servers", "/servers/gh", "/servers/gh/enable"] {
                assert_eq!(text(path, None, Some(body)), format!(r#"{{"path":"{path}","body":{expected}}}"#));
            }
        }
    }
}
