//! Opens connections to upstreams: resolves the name, checks every address with the egress guard, dials, then does
//! TLS.

use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use http::Uri;
use hyper_rustls::{ConfigBuilderExt, HttpsConnector, MaybeHttpsStream};
use hyper_util::rt::TokioIo;
use socket2::{SockRef, TcpKeepalive};
use tokio::net::TcpStream;
use tokio::time::{Instant, timeout, timeout_at};
use tower_service::Service;
use uuid::Uuid;
use zeroize::Zeroizing;

use crate::domain::measure::Measures;
use crate::upstream::admission::egress::{Egress, EgressError};
use crate::upstream::admission::shares::{
    MemoryHold, MemoryLimits, MemoryPurpose, MemoryVitals, Share, TenantShares,
};
use crate::upstream::error::{FailureKind, UpstreamError};
use crate::upstream::http::login::{AccessToken, BoundLogin, ServerLogin, TokenSource};
use crate::upstream::http::meter::{Meter, Metered, Passage};
use crate::upstream::target::{HttpServer, Target};

/// Longest part of a TLS error that is kept, in characters.
const TLS_REASON_CHARS_MAX: usize = 200;

/// Silence after which TCP keep-alive probes a connection, then every [`KEEP_ALIVE_EVERY`]. A dead one closes within
/// 60 s.
const KEEP_ALIVE_AFTER: Duration = Duration::from_secs(30);
const KEEP_ALIVE_EVERY: Duration = Duration::from_secs(10);
const KEEP_ALIVE_PROBES: u32 = 3;

/// Byte stream of one connection, over TCP or TLS.
pub(in crate::upstream) type Io = MaybeHttpsStream<TokioIo<Metered>>;

/// Open connection, with the meter of the bytes read from it.
pub(in crate::upstream) struct Dialed {
    pub(in crate::upstream) io: Io,
    pub(in crate::upstream) meter: Meter,
}

/// Loads TLS settings that trust the operating system's root certificates. Reads files: call it once, at start.
///
///
/// # Errors
/// If the system has no usable root certificates.
pub fn native_tls() -> io::Result<Arc<rustls::ClientConfig>> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(io::Error::other)?
        .with_native_roots()?
        .with_no_client_auth();
    Ok(Arc::new(config))
}

/// Rules for the addresses of a dialer, besides those of the egress guard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum DialRules {
    /// No others.
    Servers,
    /// Rules of identity providers: https, unless `egress.allow` names the address.
    Issuers,
    /// Rules of web pages: https on port 443, unless `egress.allow` names the address.
    Pages,
}

/// Parts that all connections of a pool share.
#[derive(Clone, Debug)]
pub(in crate::upstream) struct Dialer {
    egress: Arc<Egress>,
    rules: DialRules,
    tls: Option<Arc<rustls::ClientConfig>>,
    connects: Arc<AtomicU64>,
    shares: Arc<TenantShares>,
    /// Source of the tokens that servers are called with; `None` where no server is.
    tokens: Option<Arc<dyn TokenSource>>,
    pub(in crate::upstream) share: Share,
    pub(in crate::upstream) measures: Arc<Measures>,
}

impl Dialer {
    pub(in crate::upstream) fn new(egress: Arc<Egress>, tls: Option<Arc<rustls::ClientConfig>>) -> Self {
        let shares = Arc::new(TenantShares::new(MemoryLimits::default()));
        let share = shares.of(Uuid::nil());
        let rules = DialRules::Servers;
        let tokens = None;
        Self { egress, rules, tls, connects: Arc::default(), share, shares, tokens, measures: Arc::default() }
    }

    /// Sets the bounds on the memory of requests and answers.
    pub(in crate::upstream) fn with_memory(self, limits: MemoryLimits) -> Self {
        let shares = Arc::new(TenantShares::new(limits));
        Self { share: shares.of(Uuid::nil()), shares, ..self }
    }

    /// Sets the source of the tokens that servers are called with.
    pub(in crate::upstream) fn with_tokens(self, source: Arc<dyn TokenSource>) -> Self {
        Self { tokens: Some(source), ..self }
    }

    /// Returns the login with which a server is called; `None` if it is called without one.
    ///
    /// # Errors
    /// [`FailureKind::Locked`] without a source of tokens: no request goes out without its token.
    pub(in crate::upstream) fn login(
        &self,
        server: &HttpServer,
        target: &Target,
    ) -> Result<Option<BoundLogin>, UpstreamError> {
        let Some(own) = server.login else { return Ok(None) };
        let login = ServerLogin::of(target, own)?;
        let source = self.tokens.clone();
        let source = source.ok_or_else(|| UpstreamError::unsent(FailureKind::Locked, "no tokens here"))?;
        source.as_of(login, own.epoch);
        Ok(Some(BoundLogin { login, source }))
    }

    /// Returns the tokens that a server was called with in the last minutes.
    pub(in crate::upstream) fn sent_tokens(&self, target: &Target) -> Vec<Zeroizing<String>> {
        let login = target.upstream.login().and_then(|login| ServerLogin::of(target, login).ok());
        let tokens = login.zip(self.tokens.as_ref()).map(|(login, source)| source.recent(login));
        tokens.unwrap_or_default().iter().map(AccessToken::text).collect()
    }

    /// Forgets a failure of a moment ago of the login at a server.
    pub(in crate::upstream) fn reset_login(&self, tenant: Uuid, server: Uuid) {
        if let Some(source) = &self.tokens {
            source.reset(tenant, server);
        }
    }

    /// Notes how new what is known of the logins at a server is.
    pub(in crate::upstream) fn note_logins(&self, target: &Target) {
        let Some(own) = target.upstream.login() else { return };
        if let (Some(source), Ok(login)) = (&self.tokens, ServerLogin::of(target, own)) {
            source.as_of(login, own.epoch);
            if let Some(token) = target.upstream.caller_token() {
                source.present(login, token);
            }
        }
    }

    /// Forgets tokens that have ended.
    pub(in crate::upstream) fn sweep_logins(&self) {
        if let Some(source) = &self.tokens {
            source.sweep();
        }
    }

    /// Forgets the logins of a tenant.
    pub(in crate::upstream) fn forget_logins(&self, tenant: Uuid) {
        if let Some(source) = &self.tokens {
            source.forget(tenant);
        }
    }

    /// Returns a copy with the share of one upstream of this tenant.
    pub(in crate::upstream) fn for_upstream_of(&self, tenant: Uuid) -> Self {
        Self { share: self.shares.of(tenant), ..self.clone() }
    }

    /// Returns a copy for web pages of this tenant, which are at https on port 443 only, unless `egress.allow` names their
    /// addresses.
    pub(in crate::upstream) fn for_pages_of(&self, tenant: Uuid) -> Self {
        Self { rules: DialRules::Pages, ..self.for_upstream_of(tenant) }
    }

    /// Returns a copy for identity providers and authorization servers, which are at https only, unless `egress.allow` names their
    /// addresses. It has the share of the tenant that named them; `None` for the platform's own.
    pub(in crate::upstream) fn for_issuers_of(&self, tenant: Option<Uuid>) -> Self {
        let own = tenant.map_or_else(|| self.clone(), |tenant| self.for_upstream_of(tenant));
        Self { rules: DialRules::Issuers, ..own }
    }

    /// Returns the share of a tenant.
    pub(in crate::upstream) fn share_of(&self, tenant: Uuid) -> Share {
        self.shares.of(tenant)
    }

    /// Returns a hold for the memory of a request or an answer; nothing is held yet.
    pub(in crate::upstream) fn memory(
        &self,
        tenant: Uuid,
        key: Option<Uuid>,
        purpose: MemoryPurpose,
    ) -> MemoryHold {
        self.shares.memory(tenant, key, purpose)
    }

    /// Returns the state of the memory budget of requests and answers.
    pub(in crate::upstream) fn memory_vitals(&self) -> MemoryVitals {
        self.shares.memory_vitals()
    }

    /// Returns the number of TCP connections opened so far.
    pub(in crate::upstream) fn connects(&self) -> u64 {
        self.connects.load(Ordering::Relaxed)
    }

    pub(in crate::upstream) fn check_url(&self, url: &str) -> Result<Uri, UpstreamError> {
        self.egress.check_url(url).map_err(|error| refusal(&error))
    }

    pub(in crate::upstream) fn check_issuer_url(&self, url: &str) -> Result<(), UpstreamError> {
        self.egress.check_issuer_url(url).map_err(|error| refusal(&error))
    }

    /// Opens a connection to `uri` within `limit`, name look-up and TLS included.
    pub(in crate::upstream) async fn dial(
        &self,
        uri: &Uri,
        limit: Duration,
    ) -> Result<Dialed, UpstreamError> {
        timeout(limit, self.open(uri, Instant::now() + limit)).await.unwrap_or_else(|_| {
            Err(UpstreamError::unsent(FailureKind::Unreachable, "connecting took too long"))
        })
    }

    async fn open(&self, uri: &Uri, deadline: Instant) -> Result<Dialed, UpstreamError> {
        let meter = Meter::default();
        let tcp = Tcp { dialer: self.clone(), deadline, meter: meter.clone() };
        if uri.scheme_str() != Some("https") {
            return Ok(Dialed { io: MaybeHttpsStream::Http(tcp.connect(uri).await?), meter });
        }
        let Some(tls) = self.tls.clone() else {
            return Err(UpstreamError::unsent(
                FailureKind::Unreachable,
                "this deployment has no root certificates",
            ));
        };
        let opened = HttpsConnector::from((tcp, tls)).call(uri.clone()).await;
        opened.map(|io| Dialed { io, meter }).map_err(|error| match error.downcast::<UpstreamError>() {
            Ok(ours) => *ours,
            Err(tls) => {
                // The error may repeat any number of names from the certificate.
                let reason: String = tls.to_string().chars().take(TLS_REASON_CHARS_MAX).collect();
                UpstreamError::unsent(FailureKind::Unreachable, format!("TLS failed: {reason}"))
            }
        })
    }
}

fn keep_alive() -> TcpKeepalive {
    TcpKeepalive::new()
        .with_time(KEEP_ALIVE_AFTER)
        .with_interval(KEEP_ALIVE_EVERY)
        .with_retries(KEEP_ALIVE_PROBES)
}

fn refusal(error: &EgressError) -> UpstreamError {
    let kind = match error {
        EgressError::Unknown(_) => FailureKind::Unreachable,
        EgressError::Url(_)
        | EgressError::Address { .. }
        | EgressError::TooMany(_)
        | EgressError::Issuer(_)
        | EgressError::Page(_) => FailureKind::EgressRefused,
    };
    UpstreamError::unsent(kind, error.to_string())
}

/// The TCP half, as the service that the TLS connector wraps.
#[derive(Clone)]
struct Tcp {
    dialer: Dialer,
    deadline: Instant,
    meter: Meter,
}

impl Tcp {
    async fn connect(&self, uri: &Uri) -> Result<TokioIo<Metered>, UpstreamError> {
        // before the check, so that no change after it goes unnoticed
        let checked = self.dialer.egress.changes();
        let addresses = self.addresses(uri).await?;
        let (tcp, address) = self.first_that_answers(&addresses).await.map_err(|error| {
            UpstreamError::unsent(FailureKind::Unreachable, format!("connecting failed: {}", error.kind()))
        })?;
        self.dialer.connects.fetch_add(1, Ordering::Relaxed);
        // Small requests would wait for acknowledgements otherwise; failing to set it costs only time.
        if let Err(error) = tcp.set_nodelay(true) {
            tracing::debug!(%error, "TCP_NODELAY not set");
        }
        // A stream may be silent for long: without this, one whose other side vanished would stay open.
        if let Err(error) = SockRef::from(&tcp).set_tcp_keepalive(&keep_alive()) {
            tracing::debug!(%error, "TCP keep-alive not set");
        }
        let passage = Passage::new(&self.dialer.egress, address, checked);
        Ok(TokioIo::new(Metered::new(tcp, self.meter.clone(), passage)))
    }

    /// Resolves the host in a task of its own: a look-up that nobody waits for any more still occupies its thread and
    /// its permits.
    async fn addresses(&self, uri: &Uri) -> Result<Vec<SocketAddr>, UpstreamError> {
        let lost = || UpstreamError::unsent(FailureKind::Unreachable, "the name could not be looked up");
        let turn = self.dialer.share.lookup().await.ok_or_else(lost)?;
        let (egress, rules, uri) = (Arc::clone(&self.dialer.egress), self.dialer.rules, uri.clone());
        let found = tokio::spawn(async move {
            let _turn = turn;
            let found = egress.addresses(&uri).await?;
            match rules {
                DialRules::Servers => {}
                DialRules::Issuers => egress.check_issuer_addresses(&uri, &found)?,
                DialRules::Pages => egress.check_page_addresses(&uri, &found)?,
            }
            Ok(found)
        });
        found.await.map_err(|_| lost())?.map_err(|error: EgressError| refusal(&error))
    }

    /// Connects to the first address that answers, in the given order. Each gets an equal share of the time left.
    async fn first_that_answers(&self, addresses: &[SocketAddr]) -> io::Result<(TcpStream, SocketAddr)> {
        let mut last = io::Error::from(io::ErrorKind::AddrNotAvailable);
        for (tried, address) in addresses.iter().enumerate() {
            let now = Instant::now();
            let left = addresses.len().saturating_sub(tried).max(1);
            let share = self.deadline.saturating_duration_since(now) / u32::try_from(left).unwrap_or(1);
            match timeout_at(now + share, TcpStream::connect(address)).await {
                Ok(Ok(tcp)) => return Ok((tcp, *address)),
                Ok(Err(error)) => last = error,
                Err(_) => last = io::ErrorKind::TimedOut.into(),
            }
        }
        Err(last)
    }
}

impl Service<Uri> for Tcp {
    type Response = TokioIo<Metered>;
    type Error = UpstreamError;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Self::Error>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, uri: Uri) -> Self::Future {
        let tcp = self.clone();
        Box::pin(async move { tcp.connect(&uri).await })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_connection_whose_other_side_vanished_is_found_out() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let uri: Uri = format!("http://{}/", listener.local_addr().unwrap()).parse().unwrap();
        let egress = Egress::new(vec!["127.0.0.0/8".parse().unwrap()], vec![]);
        let dialer = Dialer::new(Arc::new(egress), None);
        let deadline = Instant::now() + Duration::from_secs(5);
        let tcp = Tcp { dialer, deadline, meter: Meter::default() }.connect(&uri).await.unwrap().into_inner();
        let socket = SockRef::from(tcp.tcp());
        assert!(socket.keepalive().unwrap());
        assert_eq!(socket.tcp_keepalive_time().unwrap(), KEEP_ALIVE_AFTER);
        assert_eq!(socket.tcp_keepalive_interval().unwrap(), KEEP_ALIVE_EVERY);
        assert_eq!(socket.tcp_keepalive_retries().unwrap(), KEEP_ALIVE_PROBES);
    }
}
