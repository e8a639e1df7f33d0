//! Transport of rmcp: the guarded connections of one upstream, and no others.
//!
//! The URL, headers and session that rmcp names are not trusted. Requests go to the upstream's own URL with the
//! upstream's own headers; of rmcp's, only those of the protocol are taken. The session's id stays here: rmcp gets a
//! stand-in, so nothing it logs can open a session.

use std::collections::HashMap;
use std::sync::Arc;

use bytes::Bytes;
use futures_util::stream::BoxStream;
use http::header::{ACCEPT, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
use http::{Method, Response, StatusCode};
use hyper::body::Incoming;
use rmcp::model::{ClientJsonRpcMessage, ClientRequest, ErrorData, RequestId, ServerJsonRpcMessage};
use rmcp::transport::streamable_http_client::{
    SseError, StreamableHttpClient, StreamableHttpError, StreamableHttpPostResponse,
};
use sse_stream::Sse;
use tokio::sync::watch;
use tokio::time::timeout;

use super::shared::{OpeningFailed, SessionStream, SharedClient};
use super::stream::{StreamRole, messages};
use crate::upstream::error::UpstreamError;
use crate::upstream::http::post::{
    AnswerForm, DRAIN_WAIT_MAX, Http, MINOR_BODY_BYTES_MAX, read_all, refusal,
};
use crate::upstream::http::wires::Lease;
use crate::upstream::protocol::jsonrpc::Answer;
use crate::upstream::protocol::offers::Announced;

type Messages = BoxStream<'static, Result<Sse, SseError>>;

/// Connections of one upstream, behind the interface that rmcp requires.
#[derive(Clone)]
pub(in crate::upstream) struct RmcpTransport(Arc<SharedClient>);

impl RmcpTransport {
    pub(in crate::upstream) fn new(http: Http, base: HeaderMap, bytes_max: usize) -> Self {
        Self(Arc::new(SharedClient::new(http, base, bytes_max)))
    }

    /// Lets the session's stream be opened; until then rmcp waits for it.
    pub(super) fn allow_stream(&self) {
        self.0.allowed.send_replace(true);
    }

    /// Returns the state of the session's stream, to be watched.
    pub(super) fn stream(&self) -> watch::Receiver<SessionStream> {
        self.0.stream.subscribe()
    }

    /// Lets only announcements of `wanted` pass from now on.
    pub(super) fn listen_for(&self, wanted: &[Announced]) {
        self.0.tap.listen_for(wanted);
    }

    /// Lets only updates of these resources pass from now on.
    pub(super) fn watch(&self, uris: &[String]) {
        self.0.tap.watch(uris);
    }

    /// Returns whether the server named a session.
    pub(super) fn has_session(&self) -> bool {
        self.0.has_session()
    }

    /// Takes the error that ended a stream; `None` if there was none.
    pub(in crate::upstream) fn take_fault(&self) -> Option<UpstreamError> {
        self.0.take_fault()
    }

    #[cfg(test)]
    pub(in crate::upstream) fn tap(&self) -> &super::tap::Tap {
        &self.0.tap
    }

    async fn post(
        &self,
        message: ClientJsonRpcMessage,
        session: Option<Arc<str>>,
        own: HashMap<HeaderName, HeaderValue>,
    ) -> Result<StreamableHttpPostResponse, OpeningFailed> {
        let shared = &self.0;
        let headers = shared.headers(session.as_deref(), own)?;
        let body = serde_json::to_vec(&message)?;
        let (mut lease, response) = shared.exchange(Method::POST, headers, body.into()).await?;
        let status = response.status();
        let form = AnswerForm::of(&response);
        let Some(id) = request_id(&message) else { return receipt(lease, response).await };
        if status == StatusCode::ACCEPTED {
            return receipt(lease, response).await;
        }
        let opened = response.headers().get("mcp-session-id").cloned();
        let mut body = response.into_body();
        if status != StatusCode::OK {
            return refused(lease, body, status, form, id, session.as_deref()).await;
        }
        let opened = match &message {
            ClientJsonRpcMessage::Request(request)
                if matches!(request.request, ClientRequest::InitializeRequest(_)) =>
            {
                shared.open_session(opened).map_err(StreamableHttpError::Client)?
            }
            _ => None,
        };
        match form {
            AnswerForm::Json => {
                let read = read_all(&mut lease, &mut body, shared.bytes_max, None).await;
                let bytes = read.map_err(StreamableHttpError::Client)?;
                lease.give_back();
                let message = shared.tap.read(&bytes).map_err(StreamableHttpError::Client)?;
                let message: ServerJsonRpcMessage =
                    serde_json::from_str(message.as_deref().unwrap_or_default())
                        .map_err(|_| invalid("not an answer"))?;
                Ok(StreamableHttpPostResponse::Json(message, opened))
            }
            AnswerForm::Events => {
                let stream = messages(lease, body, StreamRole::Answer, Arc::clone(shared));
                Ok(StreamableHttpPostResponse::Sse(stream, opened))
            }
            AnswerForm::Other => Err(invalid("the answer has an unexpected content type")),
        }
    }

    /// Opens the stream of a session.
    async fn listen(
        &self,
        session: &str,
        own: HashMap<HeaderName, HeaderValue>,
    ) -> Result<Messages, OpeningFailed> {
        let shared = &self.0;
        let mut headers = shared.headers(Some(session), own)?;
        headers.remove(CONTENT_TYPE);
        headers.insert(ACCEPT, HeaderValue::from_static("text/event-stream"));
        let (lease, response) = shared.exchange(Method::GET, headers, Bytes::new()).await?;
        let status = response.status();
        if status == StatusCode::OK && AnswerForm::of(&response) == AnswerForm::Events {
            shared.session_stream_opened();
            return Ok(messages(lease, response.into_body(), StreamRole::Session, Arc::clone(shared)));
        }
        // A server without the stream answers 405; others have no such route at all.
        if matches!(status.as_u16(), 400 | 404..=406 | 501) || status == StatusCode::OK {
            return Err(StreamableHttpError::ServerDoesNotSupportSse);
        }
        Err(unexpected(status))
    }
}

impl StreamableHttpClient for RmcpTransport {
    type Error = UpstreamError;

    async fn post_message(
        &self,
        _: Arc<str>,
        message: ClientJsonRpcMessage,
        session_id: Option<Arc<str>>,
        _: Option<String>,
        custom_headers: HashMap<HeaderName, HeaderValue>,
    ) -> Result<StreamableHttpPostResponse, OpeningFailed> {
        self.post(message, session_id, custom_headers).await
    }

    async fn delete_session(
        &self,
        _: Arc<str>,
        session_id: Arc<str>,
        _: Option<String>,
        custom_headers: HashMap<HeaderName, HeaderValue>,
    ) -> Result<(), OpeningFailed> {
        let headers = self.0.headers(Some(&session_id), custom_headers)?;
        let (lease, response) = self.0.exchange(Method::DELETE, headers, Bytes::new()).await?;
        drain(lease, response.into_body()).await;
        Ok(())
    }

    async fn get_stream(
        &self,
        _: Arc<str>,
        session_id: Option<Arc<str>>,
        last_event_id: Option<String>,
        _: Option<String>,
        custom_headers: HashMap<HeaderName, HeaderValue>,
    ) -> Result<Messages, OpeningFailed> {
        // The sender is our own, so this ends with the permission, or with rmcp's task.
        drop(self.0.allowed.subscribe().wait_for(|allowed| *allowed).await);
        // No stream is resumed: after a lost stream, the server is listed again.
        let Some(session) = session_id.filter(|_| last_event_id.is_none()) else {
            return Err(StreamableHttpError::ServerDoesNotSupportSse);
        };
        let opened = self.listen(&session, custom_headers).await;
        match &opened {
            Ok(_) => {}
            Err(StreamableHttpError::ServerDoesNotSupportSse) => {
                self.0.stream.send_replace(SessionStream::Unsupported);
            }
            Err(error) => {
                if let StreamableHttpError::Client(error) = error {
                    self.0.note(error.clone());
                }
                self.0.session_stream_ended();
            }
        }
        opened
    }
}

fn invalid(detail: &'static str) -> OpeningFailed {
    StreamableHttpError::Client(UpstreamError::invalid(detail))
}

fn unexpected(status: StatusCode) -> OpeningFailed {
    if status.is_redirection() {
        return invalid("a redirect, which is never followed");
    }
    StreamableHttpError::Client(UpstreamError::invalid(format!("HTTP status {}", status.as_u16())))
}

fn request_id(message: &ClientJsonRpcMessage) -> Option<u64> {
    match message {
        ClientJsonRpcMessage::Request(request) => match &request.id {
            RequestId::Number(number) => u64::try_from(*number).ok(),
            RequestId::String(_) => None,
        },
        _ => None,
    }
}

/// Reads the receipt of a message that needs no answer.
async fn receipt(
    lease: Lease,
    response: Response<Incoming>,
) -> Result<StreamableHttpPostResponse, OpeningFailed> {
    let status = response.status();
    drain(lease, response.into_body()).await;
    match status {
        StatusCode::NOT_FOUND => Err(StreamableHttpError::SessionExpired),
        status if status.is_success() => Ok(StreamableHttpPostResponse::Accepted),
        status => Err(unexpected(status)),
    }
}

/// Reads the answer to a request whose status is not 200. Only a JSON-RPC error to the request is passed on.
async fn refused(
    lease: Lease,
    body: Incoming,
    status: StatusCode,
    form: AnswerForm,
    id: u64,
    session: Option<&str>,
) -> Result<StreamableHttpPostResponse, OpeningFailed> {
    let answer = refusal(lease, body, status, form, id).await.map_err(StreamableHttpError::Client)?;
    if status == StatusCode::NOT_FOUND && session.is_some() {
        return Err(StreamableHttpError::SessionExpired);
    }
    let Some(Answer::Error { raw, .. }) = answer else { return Err(unexpected(status)) };
    let error: ErrorData = serde_json::from_slice(&raw).map_err(|_| invalid("not an error"))?;
    let id = i64::try_from(id).ok().map(RequestId::Number);
    Ok(StreamableHttpPostResponse::Json(ServerJsonRpcMessage::error(error, id), None))
}

/// Reads and drops a body, so that the connection can be used again.
async fn drain(mut lease: Lease, mut body: Incoming) {
    let read = timeout(DRAIN_WAIT_MAX, read_all(&mut lease, &mut body, MINOR_BODY_BYTES_MAX, None)).await;
    if matches!(read, Ok(Ok(_))) {
        lease.give_back();
    }
}
