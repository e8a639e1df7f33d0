//! Both clients behind one interface: our own on raw bytes, and rmcp's over the tap.

use std::sync::Arc;
use std::time::Duration;

use ::rmcp::ServiceError;
use ::rmcp::model::{
    CallToolRequest, CallToolRequestParams, ClientRequest, GetPromptRequest, GetPromptRequestParams,
    ListPromptsRequest, ListResourceTemplatesRequest, ListResourcesRequest, ListToolsRequest,
    PaginatedRequestParams, ReadResourceRequest, ReadResourceRequestParams, RequestId,
};
use ::rmcp::service::PeerRequestOptions;
use bytes::Bytes;

use super::super::*;
use super::fake::*;
use crate::upstream::http::rmcp::{Announcement, RmcpListener, RmcpTransport, Service, connect, own_error};
use crate::upstream::protocol::jsonrpc;

const BOUND: Duration = Duration::from_secs(5);

/// Client of one upstream.
pub(super) enum Way {
    Raw(Arc<Connection>),
    Rmcp { service: Service, transport: RmcpTransport },
}

impl Way {
    /// Creates our own client.
    pub(super) fn raw(pool: &Pool, target: &Target) -> Way {
        Way::Raw(pool.connection(target))
    }

    /// Creates rmcp's client, which shakes hands at once.
    pub(super) async fn rmcp(pool: &Pool, target: &Target) -> Result<Way, UpstreamError> {
        let listener = RmcpListener { heard: Arc::new(Announcement::default()) };
        let limit = target.limits.response_bytes_max;
        let (service, transport) = connect(&pool.dialer, target.http(), target, limit, listener).await?;
        Ok(Way::Rmcp { service, transport })
    }

    pub(super) fn name(&self) -> &'static str {
        match self {
            Way::Raw(_) => "raw",
            Way::Rmcp { .. } => "rmcp",
        }
    }

    /// Calls a tool; returns the raw answer.
    pub(super) async fn call(&self, name: &str, arguments: &str) -> Result<Answer, UpstreamError> {
        match self {
            Way::Raw(connection) => {
                let arguments = Bytes::copy_from_slice(arguments.as_bytes());
                connection.ask(calling(name, arguments)).await
            }
            Way::Rmcp { .. } => {
                let arguments = serde_json::from_str(arguments).unwrap();
                let params = CallToolRequestParams::new(name.to_owned()).with_arguments(arguments);
                self.ask(ClientRequest::CallToolRequest(CallToolRequest::new(params))).await
            }
        }
    }

    /// Lists what there is of a kind; returns the raw definitions.
    pub(super) async fn list(&self, kind: ListKind) -> Result<Vec<String>, UpstreamError> {
        if let Way::Raw(connection) = self {
            let listing = connection.list(kind).await?;
            let text = |entry: &Entry| String::from_utf8(entry.definition.to_vec()).unwrap();
            return Ok(listing.entries.iter().map(text).collect());
        }
        let (mut entries, mut cursor) = (Vec::new(), None);
        loop {
            let params = PaginatedRequestParams::default().with_cursor(cursor);
            let request = match kind {
                ListKind::Tools => ListToolsRequest::with_param(params).into(),
                ListKind::Prompts => ListPromptsRequest::with_param(params).into(),
                ListKind::Resources => ListResourcesRequest::with_param(params).into(),
                ListKind::Templates => ListResourceTemplatesRequest::with_param(params).into(),
            };
            let Answer::Result(page) = self.ask(request).await? else { panic!("an error for a list") };
            let page: RawPage<'_> = serde_json::from_slice(&page).unwrap();
            entries.extend(page.entries.iter().map(|entry| entry.get().to_owned()));
            match page.next {
                Some(next) => cursor = Some(next),
                None => return Ok(entries),
            }
        }
    }

    /// Sends a request that is no tool call; returns the raw answer.
    pub(super) async fn request(&self, subject: Subject) -> Result<Answer, UpstreamError> {
        if let Way::Raw(connection) = self {
            return connection.ask(request(subject)).await;
        }
        match subject {
            Subject::Prompt(name) => {
                self.ask(GetPromptRequest::new(GetPromptRequestParams::new(name)).into()).await
            }
            Subject::Resource(uri) => {
                self.ask(ReadResourceRequest::new(ReadResourceRequestParams::new(uri)).into()).await
            }
            Subject::Tool(_) | Subject::Completion => panic!("not asked for here"),
        }
    }

    async fn ask(&self, request: ClientRequest) -> Result<Answer, UpstreamError> {
        let Way::Rmcp { service, transport } = self else { panic!("rmcp only") };
        let options = PeerRequestOptions::no_options();
        let asked = service.peer().send_cancellable_request(request, options).await.unwrap();
        let RequestId::Number(id) = asked.id.clone() else { panic!("an id that is no number") };
        let answer = tokio::time::timeout(BOUND, asked.rx).await.unwrap().unwrap();
        if let Some(raw) = transport.tap().take(&id.to_string()) {
            return jsonrpc::read_answer(&raw, u64::try_from(id).unwrap());
        }
        // not a message of the upstream: an error with a status, or of the transport
        match answer {
            Err(ServiceError::McpError(error)) => {
                let raw = serde_json::to_vec(&error).unwrap().into();
                Ok(Answer::Error { raw, code: error.code.0.into() })
            }
            Err(error) => Err(transport.take_fault().unwrap_or_else(|| own(&error))),
            Ok(answer) => panic!("an answer beside the tap: {answer:?}"),
        }
    }
}

#[derive(serde::Deserialize)]
struct RawPage<'a> {
    #[serde(borrow, alias = "tools", alias = "prompts", alias = "resources", alias = "resourceTemplates")]
    entries: Vec<&'a serde_json::value::RawValue>,
    #[serde(rename = "nextCursor")]
    next: Option<String>,
}

/// Returns our own error inside an error of rmcp.
fn own(error: &ServiceError) -> UpstreamError {
    let found = match error {
        ServiceError::TransportSend(error) => own_error(error),
        _ => None,
    };
    found.unwrap_or_else(|| panic!("an error of rmcp's own: {error:?}"))
}

/// Returns the code of a JSON-RPC error.
pub(super) fn code(answer: &Answer) -> i64 {
    let Answer::Error { code, .. } = answer else { panic!("{answer:?}") };
    *code
}
