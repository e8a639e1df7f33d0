//! Guard of all fetches of web pages. Each hop is a connection of its own, whose addresses pass the egress guard; sizes, times
//! and types are bounded, and the gateway says who it is.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use bytes::Bytes;
use cookie_store::RawCookie;
use http::header::{
    ACCEPT, ACCEPT_ENCODING, CONTENT_TYPE, COOKIE, HOST, HeaderMap, HeaderName, HeaderValue, LOCATION,
    SET_COOKIE, USER_AGENT,
};
use http::{Method, StatusCode, Uri};
use hyper::body::Incoming;
use tokio::time::timeout;
use url::Url;
use uuid::Uuid;

use super::body::PageDecoder;
use super::cookies::{SiteCookies, own_cookie};
use super::robots::RobotsBook;
use crate::upstream::error::{FailureKind, UpstreamError};
use crate::upstream::http::connect::Dialer;
use crate::upstream::http::post::Http;
use crate::upstream::http::wires::{Lease, Timeouts, Wires};
use crate::upstream::protocol::exchange::UpstreamWork;

/// Most redirects that one fetch follows.
pub(super) const HOPS_MAX: usize = 5;
/// Longest time of one fetch, unless a test has less.
const FETCH_MAX: Duration = Duration::from_secs(10);
/// Longest time to open a connection, name look-up and TLS included.
const CONNECT_MAX: Duration = Duration::from_secs(5);
/// Largest page, in bytes after decompression.
const HTML_BYTES_MAX: usize = 2 * 1024 * 1024;
/// Largest schema or policy, in bytes after decompression.
const JSON_BYTES_MAX: usize = 64 * 1024;
/// Largest `robots.txt`, in bytes (RFC 9309 wants 500 KiB to be read).
const ROBOTS_BYTES_MAX: usize = 512 * 1024;
/// Longest URL that is fetched, in bytes.
const URL_BYTES_MAX: usize = 2048;
/// Largest `Set-Cookie` header that is read, in bytes.
const COOKIE_BYTES_MAX: usize = 4096;

/// Name under which pages are fetched.
const PAGE_USER_AGENT: &str =
    concat!("mcpproxy/", env!("CARGO_PKG_VERSION"), " (+MCP gateway; robots.txt token: mcpproxy)");

/// Type of a document that is fetched, which decides about its bounds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::upstream) enum PageKind {
    /// Web page.
    Html,
    /// Schema or policy, which must stay at its own site.
    Json,
    /// Rules for programs.
    Robots,
}

impl PageKind {
    fn bytes_max(self) -> usize {
        match self {
            PageKind::Html => HTML_BYTES_MAX,
            PageKind::Json => JSON_BYTES_MAX,
            PageKind::Robots => ROBOTS_BYTES_MAX,
        }
    }

    /// Returns the value of `Accept`.
    fn accept(self) -> &'static str {
        match self {
            PageKind::Html => "text/html,application/xhtml+xml;q=0.9",
            PageKind::Json => "application/json",
            PageKind::Robots => "text/plain,*/*;q=0.1",
        }
    }

    /// Checks the content type of an answer.
    fn check(self, headers: &HeaderMap) -> Result<(), UpstreamError> {
        let value = headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
        let essence = value.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
        let (is_fine, wanted) = match self {
            PageKind::Html => (matches!(&*essence, "text/html" | "application/xhtml+xml"), "a web page"),
            PageKind::Json => {
                let is_json = essence.starts_with("application/") && essence.ends_with("+json");
                (is_json || essence == "application/json", "JSON")
            }
            PageKind::Robots => (true, ""),
        };
        if is_fine {
            Ok(())
        } else {
            Err(UpstreamError::invalid(format!("its content type is not that of {wanted}")))
        }
    }
}

/// Request to a site; redirects are up to who sends it.
pub(in crate::upstream) struct PageHop<'a> {
    pub(in crate::upstream) method: Method,
    pub(in crate::upstream) url: &'a Url,
    /// Headers besides those of every request.
    pub(in crate::upstream) headers: Vec<(HeaderName, HeaderValue)>,
    pub(in crate::upstream) body: Bytes,
    pub(in crate::upstream) kind: PageKind,
    /// Set while the site may have seen the request.
    pub(in crate::upstream) dispatched: &'a AtomicBool,
}

/// Head of a site's answer, and its body to be read.
pub(in crate::upstream) struct HopAnswer {
    pub(in crate::upstream) status: StatusCode,
    pub(in crate::upstream) headers: HeaderMap,
    lease: Lease,
    body: Incoming,
    kind: PageKind,
}

/// Document that was fetched.
#[derive(Debug)]
pub(in crate::upstream) struct FetchedDocument {
    /// URL after all redirects.
    pub(in crate::upstream) url: Url,
    pub(in crate::upstream) status: StatusCode,
    pub(in crate::upstream) headers: HeaderMap,
    pub(in crate::upstream) body: Bytes,
}

/// Guard that fetches pages for one tenant.
pub(in crate::upstream) struct PageGuard {
    dialer: Dialer,
    /// Longest time of one fetch, with all redirects.
    fetch_max: Duration,
}

impl PageGuard {
    /// Creates the guard for a tenant.
    pub(in crate::upstream) fn new(dialer: &Dialer, tenant: Uuid) -> PageGuard {
        PageGuard { dialer: dialer.for_pages_of(tenant), fetch_max: FETCH_MAX }
    }

    /// Fetches a page that its site allows programs to fetch, with cookies that live as long as the fetch.
    ///
    /// # Errors
    /// Any [`FailureKind`]; [`FailureKind::Invalid`] for a status that is no success, another type than a page's, a page that
    /// `robots.txt` forbids, and too many redirects.
    pub(in crate::upstream) async fn page(
        &self,
        url: &Url,
        robots: &RobotsBook,
        cookies: &mut SiteCookies,
    ) -> Result<FetchedDocument, UpstreamError> {
        let fetched = self.fetch(url, PageKind::Html, Some(robots), cookies).await?;
        is_success(fetched)
    }

    /// Fetches a schema or policy, which must not lead to another site.
    ///
    /// # Errors
    /// As [`PageGuard::page`].
    pub(in crate::upstream) async fn json(
        &self,
        url: &Url,
        robots: &RobotsBook,
    ) -> Result<FetchedDocument, UpstreamError> {
        let fetched = self.fetch(url, PageKind::Json, Some(robots), &mut SiteCookies::default()).await?;
        is_success(fetched)
    }

    /// Fetches a `robots.txt`. Returns its status and its text.
    fn robots(&self, url: Url) -> UpstreamWork<'_, Result<(StatusCode, Bytes), UpstreamError>> {
        Box::pin(async move {
            let fetched = self.fetch(&url, PageKind::Robots, None, &mut SiteCookies::default()).await?;
            Ok((fetched.status, fetched.body))
        })
    }

    async fn fetch(
        &self,
        url: &Url,
        kind: PageKind,
        robots: Option<&RobotsBook>,
        cookies: &mut SiteCookies,
    ) -> Result<FetchedDocument, UpstreamError> {
        let dispatched = AtomicBool::new(false);
        let followed = self.follow(url, kind, robots, cookies, &dispatched);
        timeout(self.fetch_max, followed).await.unwrap_or_else(|_| Err(UpstreamError::timeout(true)))
    }

    async fn follow(
        &self,
        url: &Url,
        kind: PageKind,
        robots: Option<&RobotsBook>,
        cookies: &mut SiteCookies,
        dispatched: &AtomicBool,
    ) -> Result<FetchedDocument, UpstreamError> {
        let mut at = url.clone();
        cookies.begin();
        for _ in 0..=HOPS_MAX {
            if let Some(robots) = robots {
                robots.check(&at, |file| self.robots(file)).await?;
            }
            let hop = PageHop {
                method: Method::GET,
                url: &at,
                headers: Vec::new(),
                body: Bytes::new(),
                kind,
                dispatched,
            };
            let answer = self.hop(hop, cookies).await?;
            let Some(next) = answer.redirect(&at)? else {
                if answer.status.is_success() {
                    kind.check(&answer.headers)?;
                }
                let (status, headers) = (answer.status, answer.headers.clone());
                let body = if status.is_success() { answer.read().await? } else { Bytes::new() };
                return Ok(FetchedDocument { url: at, status, headers, body });
            };
            if kind == PageKind::Json && next.origin() != at.origin() {
                return Err(UpstreamError::invalid("it leads to another site"));
            }
            at = next;
        }
        Err(UpstreamError::invalid(format!("more than {HOPS_MAX} redirects")))
    }

    /// Sends one request, on a connection of its own, and reads the head of the answer. Keeps the cookies that it sets. The
    /// caller bounds the time. The request is never sent twice.
    ///
    /// # Errors
    /// Any [`FailureKind`] of a connection.
    pub(in crate::upstream) async fn hop(
        &self,
        hop: PageHop<'_>,
        cookies: &mut SiteCookies,
    ) -> Result<HopAnswer, UpstreamError> {
        let refused = |why| UpstreamError::unsent(FailureKind::EgressRefused, why);
        if hop.url.as_str().len() > URL_BYTES_MAX {
            return Err(refused("the URL is too long"));
        }
        let mut bare = hop.url.clone();
        bare.set_fragment(None);
        let uri = self.dialer.check_url(bare.as_str())?;
        let target: Uri = uri
            .path_and_query()
            .map_or("/", |path| path.as_str())
            .parse()
            .map_err(|_| refused("the path is refused"))?;
        cookies.enter(hop.url);
        let headers = request_headers(&uri, &hop, cookies)?;
        let timeouts = Timeouts { connect: CONNECT_MAX, idle: Duration::ZERO };
        let http =
            Http { wires: Arc::new(Wires::new(self.dialer.clone(), uri, 1, timeouts)), target, login: None };
        let (lease, response) = http.exchange(hop.method, headers, hop.body, hop.dispatched).await?;
        let (head, body) = response.into_parts();
        keep_cookies(&head.headers, hop.url, cookies);
        Ok(HopAnswer { status: head.status, headers: head.headers, lease, body, kind: hop.kind })
    }

    /// Runs long work, one piece of the tenant at a time.
    pub(in crate::upstream) async fn in_turn<T: Send>(&self, work: impl FnOnce() -> T + Send) -> T {
        self.dialer.share.in_turn(work).await
    }
}

impl HopAnswer {
    /// Returns where a redirect leads; `None` if the answer is none.
    ///
    /// # Errors
    /// [`FailureKind::Invalid`] for a target that is no URL of a page.
    pub(in crate::upstream) fn redirect(&self, at: &Url) -> Result<Option<Url>, UpstreamError> {
        if !matches!(self.status.as_u16(), 301 | 302 | 303 | 307 | 308) {
            return Ok(None);
        }
        let target = self.headers.get(LOCATION).and_then(|value| std::str::from_utf8(value.as_bytes()).ok());
        let wrong = || UpstreamError::invalid("a redirect without a usable target");
        let next = target.and_then(|target| at.join(target).ok()).ok_or_else(wrong)?;
        let is_page = matches!(next.scheme(), "http" | "https") && next.has_host();
        if !is_page || !next.username().is_empty() || next.password().is_some() {
            return Err(wrong());
        }
        Ok(Some(next))
    }

    /// Returns whether the answer is a page.
    pub(super) fn is_page(&self) -> bool {
        self.kind.check(&self.headers).is_ok()
    }

    /// Reads the body, decompressed, within the bound of its kind.
    ///
    /// # Errors
    /// [`FailureKind::TooLarge`], [`FailureKind::Lost`], [`FailureKind::Crowded`], or [`FailureKind::Invalid`] for what cannot
    /// be decompressed.
    pub(in crate::upstream) async fn read(mut self) -> Result<Bytes, UpstreamError> {
        let mut decoder = PageDecoder::new(&self.headers, self.kind.bytes_max())?;
        let mut memory = self.lease.memory(None);
        while let Some(piece) = self.lease.next(&mut self.body).await {
            let read = decoder.push(&piece?)?;
            let crowded = |_| UpstreamError::sent(FailureKind::Crowded, "");
            memory.grow(read).await.map_err(crowded)?;
        }
        Ok(memory.keep(Bytes::from(decoder.finish()?)))
    }
}

fn is_success(fetched: FetchedDocument) -> Result<FetchedDocument, UpstreamError> {
    if fetched.status.is_success() {
        return Ok(fetched);
    }
    Err(UpstreamError::invalid(format!("HTTP status {}", fetched.status.as_u16())))
}

fn request_headers(uri: &Uri, hop: &PageHop<'_>, cookies: &SiteCookies) -> Result<HeaderMap, UpstreamError> {
    let value = |text: &str| {
        HeaderValue::from_str(text)
            .map_err(|_| UpstreamError::unsent(FailureKind::Unsendable, "a header cannot be sent"))
    };
    let mut headers = HeaderMap::new();
    headers.insert(HOST, value(uri.authority().map_or("", |authority| authority.as_str()))?);
    headers.insert(USER_AGENT, HeaderValue::from_static(PAGE_USER_AGENT));
    headers.insert(ACCEPT, HeaderValue::from_static(hop.kind.accept()));
    headers.insert(ACCEPT_ENCODING, HeaderValue::from_static("gzip"));
    let sent = cookies.sent(hop.url);
    if !sent.is_empty() {
        headers.insert(COOKIE, value(&sent.join("; "))?);
    }
    for (name, value) in &hop.headers {
        headers.insert(name, value.clone());
    }
    Ok(headers)
}

fn keep_cookies(headers: &HeaderMap, url: &Url, cookies: &mut SiteCookies) {
    for header in headers.get_all(SET_COOKIE) {
        let text = header.to_str().ok().filter(|text| text.len() <= COOKIE_BYTES_MAX);
        let Some(cookie) = text.and_then(|text| RawCookie::parse(text.to_owned()).ok()) else { continue };
        let Some(cookie) = own_cookie(cookie, url) else { continue };
        cookies.set(&cookie, url);
    }
}

#[cfg(test)]
mod tests;
