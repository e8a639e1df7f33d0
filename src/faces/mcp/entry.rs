//! The caller of a request over MCP, and the endpoint that it came to.

use std::net::IpAddr;
use std::sync::Arc;

use axum::body::Body;
use bytes::Bytes;
use http::HeaderMap;

use super::Endpoint;
use super::listen::ListenStream;
use crate::domain::json::Member;
use crate::domain::settings::ToolNames;
use crate::faces::Faces;
use crate::faces::body::{BodyError, read_body};
use crate::faces::wire;
use crate::gateway::{Attempt, Caller};

/// Caller and endpoint of a request.
#[derive(Clone, Copy)]
pub(super) struct McpEntry<'a> {
    /// Services of all faces.
    pub(super) faces: &'a Arc<Faces>,
    /// Holder of the request's API key.
    pub(super) caller: &'a Arc<Caller>,
    /// Endpoint that the request came to.
    pub(super) endpoint: Endpoint,
    /// Spelling of tool names that the request asks for, on `/mcp/direct`; `None` for that of the key's settings.
    pub(super) names: Option<ToolNames>,
    /// Address of the client; `None` without a connection.
    pub(super) address: Option<IpAddr>,
}

impl<'a> McpEntry<'a> {
    /// Returns the listener that a stream of this request opens.
    pub(super) fn listener(self) -> ListenStream<'a> {
        let McpEntry { faces, caller, endpoint, names, .. } = self;
        ListenStream { faces, caller, endpoint, names }
    }

    /// Reads a whole body.
    ///
    /// # Errors
    /// Those of [`read_body`].
    pub(super) async fn read(self, body: Body) -> Result<Bytes, BodyError> {
        let McpEntry { faces, caller, .. } = self;
        read_body(body, faces.options.request_bytes_max, &faces.gateway, caller).await
    }

    /// Parses a body: at once if it is small, else queued with other long work of the caller's tenant.
    pub(super) async fn parse<T: Send>(self, body: &Bytes, parse: impl FnOnce() -> T + Send) -> T {
        self.faces.gateway.tenants.parse(self.caller, body.len(), parse).await
    }

    /// Returns the spelling of tools on `/mcp/direct`.
    pub(super) fn names(self) -> ToolNames {
        self.names.unwrap_or(self.caller.settings.tool_names)
    }

    /// Creates the attempt of a request with this raw id and these members of `_meta`.
    pub(super) fn attempt(self, headers: &HeaderMap, id: &str, meta: &[Member<'_>]) -> Attempt {
        let mut attempt = Attempt::now(Arc::clone(self.caller), self.endpoint.source());
        attempt.request_id = Some(id.trim_matches('"').to_owned());
        attempt.client_address = self.address;
        attempt.trace_id = wire::trace::trace_id(headers, meta);
        attempt.language = wire::headers::language(headers);
        attempt
    }
}
