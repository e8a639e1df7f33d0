//! Exchanges that carry requests to a server, by its kind.

use std::sync::Arc;

use super::error::{FailureKind, UpstreamError};
use super::http::connect::Dialer;
use super::http::link::HttpLink;
use super::http::rmcp::{ResourceWatcher, WatchEnd, Watcher};
use super::protocol::exchange::UpstreamExchange;
use super::protocol::offers::Announced;
use super::stdio::{Children, Keeper};
use super::target::{Target, Upstream};
use super::web::PageLink;

/// Returns the way to a server; its first request opens it. A way that the server had before goes on if the server
/// itself must not end.
pub(super) fn open(
    dialer: &Dialer,
    children: &Arc<Children>,
    target: &Target,
    before: Option<(&Upstream, &Arc<dyn UpstreamExchange>)>,
) -> Result<Arc<dyn UpstreamExchange>, UpstreamError> {
    match &target.upstream {
        Upstream::Http(server) => {
            let uri = dialer.check_url(&server.url)?;
            Ok(Arc::new(HttpLink::new(dialer, uri, server, target)?))
        }
        Upstream::Program(program) => {
            if let Some((_, kept)) = before.filter(|(upstream, _)| target.upstream.is_same(upstream)) {
                return Ok(Arc::clone(kept));
            }
            let share = dialer.for_upstream_of(target.tenant).share;
            Ok(Arc::new(Keeper::new(children, target, program, share)?))
        }
        Upstream::Pages(pages) => Ok(Arc::new(PageLink::new(dialer, target.tenant, pages))),
        Upstream::Unknown => Err(unknown()),
    }
}

/// Opens a stream, over connections of its own, on which a server announces changes of all or some of `wanted`.
pub(super) async fn watch(
    dialer: &Dialer,
    target: &Target,
    wanted: &[Announced],
) -> Result<Watcher, WatchEnd> {
    match &target.upstream {
        Upstream::Http(server) => Watcher::open(dialer, server, target, wanted).await,
        Upstream::Program(_) => Err(WatchEnd::Unsupported("it is a program, which is listed while it runs")),
        Upstream::Pages(_) => Err(WatchEnd::Unsupported("it is of web pages, which are fetched again")),
        Upstream::Unknown => Err(WatchEnd::Lost(unknown())),
    }
}

/// Opens a stream, over connections of its own, on which a server announces updates of these resources.
pub(super) async fn watch_resources(
    dialer: &Dialer,
    target: &Target,
    uris: &[String],
) -> Result<ResourceWatcher, WatchEnd> {
    match &target.upstream {
        Upstream::Http(server) => ResourceWatcher::open(dialer, server, target, uris).await,
        Upstream::Program(_) => {
            Err(WatchEnd::Unsupported("it is a program, whose resources are not watched"))
        }
        Upstream::Pages(_) => Err(WatchEnd::Unsupported("it is of web pages, which have no resources")),
        Upstream::Unknown => Err(WatchEnd::Lost(unknown())),
    }
}

fn unknown() -> UpstreamError {
    UpstreamError::unsent(FailureKind::EgressRefused, "this release does not know servers of its kind")
}
