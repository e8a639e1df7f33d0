//! rmcp's client of one upstream, over our connections and without capabilities.

use std::sync::Arc;
use std::time::Duration;

use http::Uri;
use rmcp::model::{
    ClientCapabilities, ClientConfig, ClientResult, ErrorCode, ErrorData, Implementation, ProtocolVersion,
    ServerNotification, ServerRequest,
};
use rmcp::service::{
    ClientInitializeError, ClientLifecycleMode, ClientServiceExt, NotificationContext, RequestContext,
    RoleClient, RunningService,
};
use rmcp::transport::common::client_side_sse::NeverRetry;
use rmcp::transport::streamable_http_client::{StreamableHttpClientTransportConfig, StreamableHttpError};
use rmcp::transport::{DynamicTransportError, StreamableHttpClientTransport};

use super::heard::{Announcement, announced};
use super::transport::RmcpTransport;
use crate::domain::era::Era;
use crate::upstream::error::{FailureKind, UpstreamError};
use crate::upstream::http::connect::Dialer;
use crate::upstream::http::discover;
use crate::upstream::http::post::Http;
use crate::upstream::http::wires::{Timeouts, Wires};
use crate::upstream::protocol::hello::VERSIONS;
use crate::upstream::protocol::jsonrpc::{CLIENT_NAME, CLIENT_VERSION};
use crate::upstream::target::{HttpServer, Target};

/// Most connections of one client: one for its stream, the others for requests beside it.
const CONNECTIONS_MAX: usize = 3;
/// Longest wait for the answer to `server/discover`.
const DISCOVER_WAIT_MAX: Duration = Duration::from_secs(5);
/// Most messages that wait between rmcp's tasks.
const MESSAGES_MAX: usize = 16;

/// Running client of rmcp on one upstream; its tasks end when it is dropped.
pub(in crate::upstream) type Service = RunningService<RoleClient, RmcpListener>;

/// Connects rmcp's client to a server, in the era that is known or detected.
pub(in crate::upstream) async fn connect(
    dialer: &Dialer,
    server: &HttpServer,
    target: &Target,
    bytes_max: usize,
    listener: RmcpListener,
) -> Result<(Service, RmcpTransport), UpstreamError> {
    let uri = dialer.check_url(&server.url)?;
    let base = server.base_headers(&uri)?;
    let http = own_connections(dialer, uri, server, target)?;
    let era = match target.era {
        Some(era) => era,
        // rmcp's own detection gives up on servers that answer anything with an empty result
        None if discover::discover(&http, &base, 0, DISCOVER_WAIT_MAX).await?.is_some() => Era::Modern,
        None => Era::Handshake,
    };
    let lifecycle = match era {
        Era::Modern => {
            ClientLifecycleMode::Discover { preferred_versions: vec![ProtocolVersion::V_2026_07_28] }
        }
        Era::Handshake => ClientLifecycleMode::Initialize,
    };
    let transport = RmcpTransport::new(http, base, bytes_max);
    let worker = StreamableHttpClientTransport::with_client(transport.clone(), config(&server.url));
    let served = listener.serve_with_lifecycle(worker, lifecycle).await;
    let service = served.map_err(|error| transport.take_fault().unwrap_or_else(|| failed(&error)))?;
    let version = service.peer().peer_info().map(|info| info.protocol_version.to_string());
    let is_known = |version: &str| era == Era::Modern || VERSIONS.contains(&version);
    if !version.as_deref().is_some_and(is_known) {
        return Err(UpstreamError::invalid("the upstream speaks no protocol version that we do"));
    }
    Ok((service, transport))
}

fn own_connections(
    dialer: &Dialer,
    uri: Uri,
    server: &HttpServer,
    target: &Target,
) -> Result<Http, UpstreamError> {
    let path = uri.path_and_query().map_or("/", |path| path.as_str());
    let path =
        path.parse().map_err(|_| UpstreamError::unsent(FailureKind::EgressRefused, "the path is refused"))?;
    let timeouts = Timeouts { connect: target.limits.connect_timeout, idle: target.limits.idle_timeout };
    // Apart from those of calls: a stream holds its connection for as long as it lives.
    let wires = Wires::new(dialer.for_upstream_of(target.tenant), uri, CONNECTIONS_MAX, timeouts);
    Ok(Http { wires: Arc::new(wires), target: path, login: dialer.login(server, target)? })
}

fn config(url: &str) -> StreamableHttpClientTransportConfig {
    let mut config = StreamableHttpClientTransportConfig::with_uri(url);
    config.retry_config = Arc::new(NeverRetry::default());
    config.channel_buffer_capacity = MESSAGES_MAX;
    config
}

/// Returns the error that stopped rmcp from connecting: our own if there is one, never a text of the upstream.
fn failed(error: &ClientInitializeError) -> UpstreamError {
    let own = match error {
        ClientInitializeError::TransportError { error, .. } => own_error(error),
        _ => None,
    };
    own.unwrap_or_else(|| UpstreamError::invalid("the handshake failed"))
}

/// Returns our own error inside an error of rmcp; `None` if there is none.
pub(in crate::upstream) fn own_error(error: &DynamicTransportError) -> Option<UpstreamError> {
    match error.error.downcast_ref::<StreamableHttpError<UpstreamError>>() {
        Some(StreamableHttpError::Client(own)) => Some(own.clone()),
        _ => None,
    }
}

/// Our side of rmcp's client: it declares no capabilities, and notes the changes that an upstream announces.
#[derive(Clone, Debug)]
pub(in crate::upstream) struct RmcpListener {
    /// Record of every change that is announced outside of a subscription.
    pub(in crate::upstream) heard: Arc<Announcement>,
}

impl rmcp::Service<RoleClient> for RmcpListener {
    async fn handle_request(
        &self,
        request: ServerRequest,
        _: RequestContext<RoleClient>,
    ) -> Result<ClientResult, ErrorData> {
        match request {
            ServerRequest::PingRequest(_) => Ok(ClientResult::empty(())),
            _ => Err(ErrorData::new(ErrorCode::METHOD_NOT_FOUND, "Method not found", None)),
        }
    }

    async fn handle_notification(
        &self,
        notification: ServerNotification,
        _: NotificationContext<RoleClient>,
    ) -> Result<(), ErrorData> {
        if let Some(what) = announced(&notification) {
            self.heard.note(what);
        }
        if let ServerNotification::ResourceUpdatedNotification(update) = &notification {
            self.heard.note_update(&update.params.uri);
        }
        Ok(())
    }

    fn get_info(&self) -> ClientConfig {
        let us = Implementation::new(CLIENT_NAME, CLIENT_VERSION);
        ClientConfig::new(ClientCapabilities::default(), us)
            .with_protocol_version(ProtocolVersion::V_2025_11_25)
    }
}
