//! Exchange of servers whose tools are forms of web pages. Each listing fetches the pages anew; nothing is kept but the report.

use std::sync::Arc;

use bytes::Bytes;
use parking_lot::Mutex;
use tokio::time::Instant;
use uuid::Uuid;

use super::execute::execute;
use super::guard::PageGuard;
use super::reading::{self, PagesFound};
use crate::domain::era::Era;
use crate::domain::measure::{Measures, Transport};
use crate::upstream::error::{FailureKind, UpstreamError};
use crate::upstream::http::connect::Dialer;
use crate::upstream::protocol::ask::Ask;
use crate::upstream::protocol::exchange::{Exchanged, UpstreamExchange, UpstreamWork};
use crate::upstream::protocol::jsonrpc::Answer;
use crate::upstream::protocol::offers::{DeclaredOffer, DeclaredOffers};
use crate::upstream::protocol::sent::Sent;
use crate::upstream::target::PageServer;

/// Way to the pages of one server.
pub(in crate::upstream) struct PageLink {
    guard: PageGuard,
    server: PageServer,
    measures: Arc<Measures>,
    /// Report of the last listing, a JSON text; `None` before the first.
    report: Mutex<Option<Arc<str>>>,
}

impl PageLink {
    pub(in crate::upstream) fn new(dialer: &Dialer, tenant: Uuid, server: &PageServer) -> PageLink {
        PageLink {
            guard: PageGuard::new(dialer, tenant),
            server: server.clone(),
            measures: Arc::clone(&dialer.measures),
            report: Mutex::default(),
        }
    }

    async fn answer(&self, ask: &Ask<'_>, sent: &Sent) -> Result<Answer, UpstreamError> {
        match ask.method {
            "tools/list" => {
                let PagesFound { tools, report } = reading::list(&self.guard, &self.server).await;
                *self.report.lock() = Some(report.into());
                let tools = tools?;
                if tools.len() > ask.bytes_max {
                    return Err(UpstreamError::sent(FailureKind::TooLarge, ""));
                }
                Ok(Answer::Result(Bytes::from(tools)))
            }
            "ping" | "server/discover" => {
                reading::probe(&self.guard, &self.server).await?;
                Ok(Answer::Result(Bytes::from_static(b"{}")))
            }
            "tools/call" => execute(&self.guard, &self.server, ask, sent).await.map(Answer::Result),
            _ => Err(UpstreamError::unsent(FailureKind::Unsendable, "web pages offer nothing of this kind")),
        }
    }

    fn declared() -> DeclaredOffers {
        DeclaredOffers { tools: DeclaredOffer::Listed, ..DeclaredOffers::default() }
    }
}

impl UpstreamExchange for PageLink {
    fn exchange<'a>(
        &'a self,
        ask: &'a Ask<'_>,
        sent: &'a Sent,
    ) -> UpstreamWork<'a, Result<Exchanged, UpstreamError>> {
        Box::pin(async move { self.answer(ask, sent).await.map(Exchanged::Answer) })
    }

    fn measures(&self) -> &Measures {
        &self.measures
    }

    fn transport(&self) -> Transport {
        Transport::Tcp
    }

    /// Returns the modern era: each fetch stands alone.
    fn era(&self) -> Option<Era> {
        Some(Era::Modern)
    }

    fn found_era(&self) -> UpstreamWork<'_, Result<Era, UpstreamError>> {
        Box::pin(async { Ok(Era::Modern) })
    }

    fn last_offers(&self) -> Option<DeclaredOffers> {
        Some(PageLink::declared())
    }

    fn known_offers(&self) -> Option<DeclaredOffers> {
        self.last_offers()
    }

    fn known_offers_since(&self, _: Instant) -> Option<DeclaredOffers> {
        self.last_offers()
    }

    fn offers_since(&self, _: Instant) -> UpstreamWork<'_, Result<DeclaredOffers, UpstreamError>> {
        self.offers()
    }

    fn offers(&self) -> UpstreamWork<'_, Result<DeclaredOffers, UpstreamError>> {
        Box::pin(async { Ok(PageLink::declared()) })
    }

    fn page_report(&self) -> Option<Arc<str>> {
        self.report.lock().clone()
    }
}
