//! The REST client behind every command.

mod mcp;
mod meant;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::StreamExt;
use futures_util::stream::BoxStream;
use http::{HeaderMap, HeaderValue, Method, StatusCode};
use reqwest::{RequestBuilder, Response, Url};
use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;
use sse_stream::{ByteStreamBody, SseStream};
use tokio::sync::OnceCell;
use tokio::time::timeout;

use super::failure::Failure;
use super::output;
use crate::domain::identity::is_token;
use crate::domain::tenant::{Action, Role};
use crate::faces::wire::headers::{CLI, SOURCE};

/// Time limit for connecting.
const CONNECT_WAIT_MAX: Duration = Duration::from_secs(10);
/// Time limit for a whole response, longer than that of any call.
const ANSWER_WAIT_MAX: Duration = Duration::from_secs(660);
/// Time limit for the next piece of a streamed response.
const PIECE_WAIT_MAX: Duration = Duration::from_secs(60);
/// Role of the platform's keys, which belong to no tenant.
const PLATFORM: &str = "platform";
/// Items requested per page.
const PAGE: usize = 100;

/// REST client of one gateway, with one key.
#[derive(Clone)]
pub(super) struct ApiClient {
    http: reqwest::Client,
    base: Url,
    key: Key,
    /// The key itself; `None` if none was given.
    secret: Option<Arc<str>>,
    /// Tenant to act in, sent as `X-Tenant`; `None` if none is named.
    tenant: Option<HeaderValue>,
    /// Role and tenant of the key, fetched on first use; the inner `None` if they could not be fetched.
    holder: Arc<OnceCell<Option<Holder>>>,
}

/// Role and tenant of a key.
#[derive(Deserialize)]
struct Holder {
    role: String,
    tenant: String,
}

/// Kind of text that is sent as key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Key {
    None,
    Given,
    /// Text with a `$` in it: probably a variable that was not expanded.
    Unexpanded,
}

/// Successful response.
pub(super) struct ApiAnswer {
    /// Headers of the response.
    pub(super) headers: HeaderMap,
    /// Body of the response, as received.
    pub(super) text: String,
}

impl ApiAnswer {
    /// Parses the body as JSON.
    pub(super) fn json(&self) -> Result<Value, Failure> {
        serde_json::from_str(&self.text).map_err(|_| not_ours())
    }
}

/// Response of any status.
pub(super) struct Probed {
    pub(super) status: StatusCode,
    pub(super) headers: HeaderMap,
    pub(super) text: String,
}

/// Event of a server-sent event stream.
pub(super) struct Event {
    /// Type of the event.
    pub(super) kind: Option<String>,
    /// Id of the event, after which a stream can be resumed.
    pub(super) id: Option<String>,
    /// Data of the event.
    pub(super) data: String,
}

/// Open event stream.
pub(super) struct ApiEvents(SseStream<ByteStreamBody<BoxStream<'static, reqwest::Result<Bytes>>, Bytes>>);

impl ApiEvents {
    /// Returns the next event; `None` when the connection has ended, or has been silent for longer than keep-alives allow.
    pub(super) async fn next(&mut self) -> Option<Event> {
        let event = timeout(PIECE_WAIT_MAX, self.0.next()).await.ok()??.ok()?;
        Some(Event { kind: event.event, id: event.id, data: event.data.unwrap_or_default() })
    }
}

/// Page of a list.
#[derive(Deserialize)]
struct Page {
    items: Vec<Box<RawValue>>,
    next_cursor: Option<String>,
}

/// Body of an error response.
#[derive(Deserialize)]
struct ErrorBody {
    error: ErrorDetail,
}

#[derive(Deserialize)]
struct ErrorDetail {
    code: String,
    message: String,
    recommended: Option<String>,
    request_id: Option<String>,
}

impl ApiClient {
    /// Creates a client for a URL, a key and a tenant.
    ///
    /// # Errors
    /// The URL is not valid, or the key or tenant cannot be sent in a header.
    pub(super) fn new(url: &str, key: Option<&str>, tenant: Option<&str>) -> Result<ApiClient, Failure> {
        let base = base(url)?;
        let mut headers = HeaderMap::new();
        headers.insert(SOURCE, HeaderValue::from_static(CLI));
        let kind = match key {
            None => Key::None,
            Some(key) if key.contains('$') => Key::Unexpanded,
            Some(_) => Key::Given,
        };
        if let Some(key) = key {
            // a token of an identity provider is one only there
            let is_token = is_token(trimmed(key));
            let mut value = header("key", &if is_token { format!("Bearer {key}") } else { key.to_owned() })?;
            value.set_sensitive(true);
            headers.insert(if is_token { "authorization" } else { "x-api-key" }, value);
        }
        let tenant = tenant.map(|tenant| header("tenant", tenant)).transpose()?;
        // the only provider that is built in; a second installation changes nothing
        drop(rustls::crypto::ring::default_provider().install_default());
        let built = reqwest::Client::builder()
            .default_headers(headers)
            .user_agent(concat!("mcpproxy-cli/", env!("CARGO_PKG_VERSION")))
            // redirects would send the key to another address
            .redirect(reqwest::redirect::Policy::none())
            .connect_timeout(CONNECT_WAIT_MAX)
            .build();
        let http = built.map_err(|error| Failure::Unreachable(format!("no HTTP client: {error}")))?;
        let secret = key.map(|key| Arc::from(trimmed(key)));
        Ok(ApiClient { http, base, key: kind, secret, tenant, holder: Arc::default() })
    }

    /// Returns a client of the same gateway with another key, in that key's own tenant.
    ///
    /// # Errors
    /// The key cannot be sent in a header.
    pub(super) fn with_key(&self, key: &str) -> Result<ApiClient, Failure> {
        ApiClient::new(self.base.as_str(), Some(key), None)
    }

    /// Returns the key; `None` if none was given.
    pub(super) fn key(&self) -> Option<&str> {
        self.secret.as_deref()
    }

    /// Returns this client acting in `tenant`, or in none.
    ///
    /// # Errors
    /// The name cannot be sent in a header.
    pub(super) fn in_tenant(&self, tenant: Option<&str>) -> Result<ApiClient, Failure> {
        let tenant = tenant.map(|tenant| header("tenant", tenant)).transpose()?;
        Ok(ApiClient { tenant, ..self.clone() })
    }

    /// Returns the base URL of the gateway.
    pub(super) fn url(&self) -> &Url {
        &self.base
    }

    /// Returns whether a tenant is named.
    pub(super) fn is_in_tenant(&self) -> bool {
        self.tenant.is_some()
    }

    /// Returns whether the key is one of the platform; `false` if that cannot be found out.
    pub(super) async fn is_of_platform(&self) -> bool {
        self.holder().await.is_some_and(|holder| holder.role == PLATFORM)
    }

    /// Returns the tenant that the key acts in; `None` for a platform key that names none, or if that cannot be found out.
    pub(super) async fn tenant_name(&self) -> Option<&str> {
        let holder = self.holder().await?;
        (holder.role != PLATFORM || self.is_in_tenant()).then_some(&*holder.tenant)
    }

    /// Returns whether the key's role permits an act; `false` if that cannot be found out.
    pub(super) async fn may(&self, action: Action) -> bool {
        let role = match self.tenant_name().await.and(self.holder().await) {
            Some(holder) => Role::ALL.into_iter().find(|role| role.as_str() == holder.role),
            None => None,
        };
        role.is_some_and(|role| role.may(action))
    }

    async fn holder(&self) -> Option<&Holder> {
        let ask = async || {
            let request =
                self.request(Method::GET, &["status"], &ApiQuery::default()).timeout(CONNECT_WAIT_MAX);
            serde_json::from_str(&request.send().await.ok()?.text().await.ok()?).ok()
        };
        self.holder.get_or_init(ask).await.as_ref()
    }

    /// Refuses a named tenant other than that of the key. The gateway would act in the key's own tenant instead.
    async fn check_tenant(&self) -> Result<(), Failure> {
        let Some(wanted) = self.tenant.as_ref().and_then(|tenant| tenant.to_str().ok()) else {
            return Ok(());
        };
        match self.holder().await {
            Some(Holder { role, tenant }) if role != PLATFORM && tenant != wanted => {
                Err(Failure::Usage(format!(
                    "this key is of the tenant {tenant}, not {wanted}: leave --tenant and MCPPROXY_TENANT out, or use \
                 another key"
                )))
            }
            _ => Ok(()),
        }
    }

    /// Returns the URL of a path at the root of the port.
    pub(super) fn at(&self, path: &str) -> Url {
        let mut url = self.base.clone();
        if let Ok(mut segments) = url.path_segments_mut() {
            segments.pop_if_empty().push(path);
        }
        url
    }

    /// Requests a path at the root of the port, which needs no key. Any status is a success.
    pub(super) async fn probe(&self, path: &str) -> Result<Probed, Failure> {
        let request = self.http.get(self.at(path)).timeout(CONNECT_WAIT_MAX);
        let response = request.send().await.map_err(|error| self.unreachable(&error))?;
        let (status, headers) = (response.status(), response.headers().clone());
        let text = response.text().await.map_err(|error| self.unreachable(&error))?;
        Ok(Probed { status, headers, text })
    }

    /// Sends a GET request.
    pub(super) async fn get(&self, path: &[&str], query: &ApiQuery) -> Result<ApiAnswer, Failure> {
        self.ask(Method::GET, path, query, None).await
    }

    /// Sends a request without a body.
    pub(super) async fn act(&self, method: Method, path: &[&str]) -> Result<ApiAnswer, Failure> {
        self.ask(method, path, &ApiQuery::default(), None).await
    }

    /// Sends a request with a JSON body.
    pub(super) async fn send(
        &self,
        method: Method,
        path: &[&str],
        body: String,
    ) -> Result<ApiAnswer, Failure> {
        self.ask(method, path, &ApiQuery::default(), Some(body)).await
    }

    /// Fetches the items of a list page by page, at most `limit`.
    pub(super) async fn list(
        &self,
        path: &[&str],
        query: &ApiQuery,
        limit: usize,
    ) -> Result<Vec<Box<RawValue>>, Failure> {
        let mut items = Vec::new();
        let mut cursor: Option<String> = None;
        while items.len() < limit {
            let mut query = query.clone();
            query.add("limit", Some((limit - items.len()).min(PAGE).to_string()));
            query.add("cursor", cursor);
            let answer = self.get(path, &query).await?;
            let page: Page = serde_json::from_str(&answer.text).map_err(|_| not_ours())?;
            items.extend(page.items);
            cursor = page.next_cursor;
            if cursor.is_none() {
                break;
            }
        }
        Ok(items)
    }

    /// Copies a response to standard output while it arrives.
    pub(super) async fn copy(&self, path: &[&str], query: &ApiQuery) -> Result<(), Failure> {
        let mut response = self.send_request(self.request(Method::GET, path, query)).await?;
        let mut copied = 0_u64;
        loop {
            match timeout(PIECE_WAIT_MAX, response.chunk()).await {
                Ok(Ok(Some(piece))) => {
                    output::bytes(&piece)?;
                    copied += piece.len() as u64;
                }
                Ok(Ok(None)) => return output::flush(),
                Ok(Err(_)) | Err(_) => {
                    let sentence =
                        format!("the answer broke off after {copied} bytes: what was written is not all");
                    return Err(Failure::Unreachable(sentence));
                }
            }
        }
    }

    /// Opens an event stream after the event with the id `last`; `None` begins with new events.
    pub(super) async fn events(
        &self,
        path: &[&str],
        query: &ApiQuery,
        last: Option<&str>,
    ) -> Result<ApiEvents, Failure> {
        let mut request = self.request(Method::GET, path, query);
        if let Some(last) = last {
            request = request.header("last-event-id", last);
        }
        let opened = timeout(CONNECT_WAIT_MAX * 2, self.send_request(request)).await;
        let silent = || Failure::Unreachable(format!("no answer from {} in time", self.base));
        let pieces = opened.map_err(|_| silent())??.bytes_stream();
        Ok(ApiEvents(SseStream::from_bytes_stream(pieces.boxed())))
    }

    fn request(&self, method: Method, path: &[&str], query: &ApiQuery) -> RequestBuilder {
        let mut url = self.base.clone();
        if let Ok(mut segments) = url.path_segments_mut() {
            segments.pop_if_empty().extend(["api", "v1"]).extend(path);
        }
        let request = self.http.request(method, url).query(&query.0);
        match &self.tenant {
            Some(tenant) => request.header("x-tenant", tenant),
            None => request,
        }
    }

    async fn ask(
        &self,
        method: Method,
        path: &[&str],
        query: &ApiQuery,
        body: Option<String>,
    ) -> Result<ApiAnswer, Failure> {
        let mut request = self.request(method, path, query).timeout(ANSWER_WAIT_MAX);
        if let Some(body) = body {
            request = request.header(http::header::CONTENT_TYPE, "application/json").body(body);
        }
        let response = match self.send_request(request).await {
            Ok(response) => response,
            Err(failure) => return Err(self.with_meant(failure, path).await),
        };
        let headers = response.headers().clone();
        let text = response.text().await.map_err(|error| self.unreachable(&error))?;
        Ok(ApiAnswer { headers, text })
    }

    /// Sends a request. An error response is returned as a failure.
    async fn send_request(&self, request: RequestBuilder) -> Result<Response, Failure> {
        self.check_tenant().await?;
        let response = request.send().await.map_err(|error| self.unreachable(&error))?;
        let status = response.status();
        if status.is_success() {
            return Ok(response);
        }
        let text = response.text().await.map_err(|error| self.unreachable(&error))?;
        Err(failure(status, &text, self.key))
    }

    fn unreachable(&self, error: &reqwest::Error) -> Failure {
        let url = &self.base;
        if error.is_timeout() && !error.is_connect() {
            return Failure::Unreachable(format!(
                "no answer from {url} in time; what was asked may have been done"
            ));
        }
        // the last cause says it best: refused, no such host, a certificate
        let mut cause: &dyn std::error::Error = error;
        while let Some(deeper) = cause.source() {
            cause = deeper;
        }
        if error.is_connect() {
            let hint = "is the gateway running, and is this its address (--url, MCPPROXY_URL, profile)?";
            return Failure::Unreachable(format!("no connection to {url}: {cause}; {hint}"));
        }
        Failure::Unreachable(format!(
            "the connection to {url} was lost: {cause}; what was asked may have been done"
        ))
    }
}

/// Query parameters of a request.
#[derive(Clone, Default)]
pub(super) struct ApiQuery(Vec<(&'static str, String)>);

impl ApiQuery {
    /// Adds a parameter, if it has a value.
    pub(super) fn add(&mut self, name: &'static str, value: Option<String>) {
        self.0.extend(value.map(|value| (name, value)));
    }
}

/// Returns a value without the newline with which a file or a Secret that it comes from often ends.
fn trimmed(value: &str) -> &str {
    value.trim_end_matches(['\r', '\n'])
}

fn header(what: &str, value: &str) -> Result<HeaderValue, Failure> {
    let sent = HeaderValue::from_str(trimmed(value));
    sent.map_err(|_| Failure::Usage(format!("the {what} has characters that cannot be sent")))
}

fn base(url: &str) -> Result<Url, Failure> {
    let wrong = |why: &str| Failure::Usage(format!("'{url}' is not the URL of a gateway: {why}"));
    let mut base = Url::parse(url).map_err(|_| wrong("it needs a form such as http://127.0.0.1:8080"))?;
    if !matches!(base.scheme(), "http" | "https") || base.host().is_none() {
        return Err(wrong("it must begin with http:// or https://"));
    }
    if !base.username().is_empty() || base.password().is_some() {
        return Err(Failure::Usage(
            "the URL must not hold a user or password; the key is --api-key".to_owned(),
        ));
    }
    // the URL for IDEs ends with /mcp and names the same gateway
    if base.path().trim_end_matches('/') == "/mcp" {
        base.set_path("/");
    }
    base.set_query(None);
    base.set_fragment(None);
    Ok(base)
}

/// Returns the failure for an error response, with advice.
fn failure(status: StatusCode, text: &str, key: Key) -> Failure {
    let Ok(ErrorBody { error }) = serde_json::from_str::<ErrorBody>(text) else {
        let sentence = format!("{status} from something that is not this gateway's API; is the URL right?");
        return Failure::from_answer(status.as_u16(), "", sentence);
    };
    let mut sentence = format!("{} ({})", error.message, error.code);
    if let Some(variant) = error.recommended.as_deref().and_then(|tool| tool.strip_prefix("call_tool_")) {
        sentence.push_str(&format!("; try: mcpproxy call tool-{variant}"));
    }
    if error.message.contains("X-Tenant") {
        sentence.push_str("; here: --tenant NAME or MCPPROXY_TENANT");
    }
    if let Some(hint) = command_for(&error.code, &error.message) {
        sentence.push_str(&format!("; here: {hint}"));
    }
    if status == StatusCode::UNAUTHORIZED {
        sentence.push_str(match key {
            Key::None => "; none was sent: give --api-key, MCPPROXY_API_KEY or a profile",
            Key::Given => {
                "; the one of --api-key, MCPPROXY_API_KEY or the profile is unknown, revoked or past its time"
            }
            Key::Unexpanded => "; the one that was sent has a $ in it: a variable that nobody replaced?",
        });
    }
    if status.is_server_error()
        && let Some(id) = &error.request_id
    {
        sentence.push_str(&format!(" [request {id}]"));
    }
    Failure::from_answer(status.as_u16(), &error.code, sentence)
}

/// Returns the command that helps with a refusal. The message names the server or tool in quotes.
fn command_for(code: &str, message: &str) -> Option<String> {
    let name = message.split('\'').nth(1).filter(|name| !name.is_empty())?;
    let server = name.split_once(':').map_or(name, |(server, _)| server);
    match code {
        "server_quarantined" => {
            Some(format!("mcpproxy upstream unquarantine {server} (an operator or admin)"))
        }
        "server_disabled" => Some(format!("mcpproxy upstream enable {server} (an operator or admin)")),
        "tool_pending" | "tool_changed" => {
            Some(format!("mcpproxy tools show {name}, then tools approve (an operator or admin)"))
        }
        "not_found" => Some("mcpproxy tools search WORDS".to_owned()),
        _ => None,
    }
}

fn not_ours() -> Failure {
    Failure::Unreachable("the answer is not one of this gateway's API; is the URL right?".to_owned())
}
