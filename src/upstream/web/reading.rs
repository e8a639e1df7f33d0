//! Listing of web pages: fetches each page and the schemas that it names, reads the tools, and writes the report.

use std::borrow::Cow;

use bytes::Bytes;
use chrono::{DateTime, SecondsFormat, Utc};
use futures_util::future::join_all;
use http::{HeaderMap, StatusCode};
use serde::Serialize;
use url::Url;

use super::cookies::SiteCookies;
use super::guard::{FetchedDocument, PageGuard};
use super::robots::RobotsBook;
use crate::domain::server_url::masked;
use crate::domain::web_page::charset::decode_page;
use crate::domain::web_page::definition::{WebTool, server_tools};
use crate::domain::web_page::file::{PAGE_FILES_MAX, PageFile};
use crate::domain::web_page::gates::PolicyHeaders;
use crate::domain::web_page::inspect;
use crate::domain::web_page::reading::{PageInput, PageReading, PageRules, read_page};
use crate::domain::web_page::report::PageReport;
use crate::domain::web_page::settings::PageSettings;
use crate::upstream::error::{FailureKind, UpstreamError};
use crate::upstream::target::PageServer;

/// Most pages of one server that are fetched at the same time.
const PAGES_AT_ONCE: usize = 5;
/// Most rounds of files: a policy may name schemas.
const ROUNDS_MAX: usize = 3;
/// Largest report of a server, in bytes; in a longer one, pages have no forms.
const REPORT_BYTES_MAX: usize = 512 * 1024;

/// Result of a listing.
pub(super) struct PagesFound {
    /// Result of `tools/list`, a JSON text. A page that cannot be read makes the whole listing fail.
    pub(super) tools: Result<Vec<u8>, UpstreamError>,
    /// Report on all pages, a JSON text.
    pub(super) report: String,
}

/// Page that was fetched and read, or could not be.
struct PageRead {
    /// URL after all redirects; of a page that could not be fetched, as it was asked for.
    url: String,
    at: DateTime<Utc>,
    status: Option<u16>,
    reading: Result<PageReading, UpstreamError>,
}

/// Fetches and reads one page, and returns the report on it, a JSON text.
pub(super) async fn inspect(guard: &PageGuard, settings: &PageSettings, page: &str) -> String {
    let rules = PageRules { settings, field_secrets: &[] };
    report(&[read_one(guard, page, &rules, &RobotsBook::default()).await])
}

/// Reads a page that was not fetched, and returns the report on it, a JSON text. Files that the page names count as missing.
pub(super) fn inspect_text(html: &[u8], url: &Url, settings: &PageSettings) -> String {
    let rules = PageRules { settings, field_secrets: &[] };
    let document = FetchedDocument {
        url: url.clone(),
        status: StatusCode::OK,
        headers: HeaderMap::new(),
        body: Bytes::copy_from_slice(html),
    };
    let mut files: Vec<(Url, Option<Bytes>)> = Vec::new();
    let mut reading = read_with(&document, url.as_str(), &rules, &files);
    for _ in 0..ROUNDS_MAX {
        let wanted = reading.as_ref().map_or(&[][..], |reading| &reading.wanted);
        if wanted.is_empty() {
            break;
        }
        files.extend(wanted.iter().map(|url| (url.clone(), None)));
        reading = read_with(&document, url.as_str(), &rules, &files);
    }
    let (url, status) = (url.as_str().to_owned(), Some(document.status.as_u16()));
    report(&[PageRead { url, at: Utc::now(), status, reading }])
}

/// Lists the tools of all pages.
pub(super) async fn list(guard: &PageGuard, server: &PageServer) -> PagesFound {
    let names: Vec<String> = server.secrets.iter().map(|(name, _)| name.clone()).collect();
    let rules = PageRules { settings: &server.settings, field_secrets: &names };
    let robots = RobotsBook::default();
    let mut read = Vec::with_capacity(server.settings.pages.len());
    for some in server.settings.pages.chunks(PAGES_AT_ONCE) {
        let some = some.iter().map(|page| read_one(guard, page, &rules, &robots));
        read.extend(join_all(some).await);
    }
    let report = report(&read);
    let failed = read.iter().find_map(|page| Some((page, page.reading.as_ref().err()?)));
    let tools = match failed {
        Some((page, error)) => Err(about(&page.url, error)),
        None => {
            let mut readings: Vec<PageReading> =
                read.into_iter().filter_map(|page| page.reading.ok()).collect();
            // definitions are shown to whoever may call the tools
            for (reading, shown) in readings.iter_mut().zip(server.settings.shown_pages()) {
                reading.page = shown;
            }
            Ok(guard.in_turn(|| listing(&server_tools(&readings, server.settings.disclosure))).await)
        }
    };
    PagesFound { tools, report }
}

/// Fetches the first page, to find out whether its site answers.
///
/// # Errors
/// Any [`FailureKind`].
pub(super) async fn probe(guard: &PageGuard, server: &PageServer) -> Result<(), UpstreamError> {
    let Some(url) = server.settings.pages.first().and_then(|page| Url::parse(page).ok()) else {
        return Err(UpstreamError::unsent(FailureKind::EgressRefused, "a page has no usable URL"));
    };
    guard.page(&url, &RobotsBook::default(), &mut SiteCookies::default()).await.map(drop)
}

async fn read_one(guard: &PageGuard, page: &str, rules: &PageRules<'_>, robots: &RobotsBook) -> PageRead {
    let at = Utc::now();
    let failed = |error| PageRead { url: page.to_owned(), at, status: None, reading: Err(error) };
    let Ok(url) = Url::parse(page) else {
        return failed(UpstreamError::unsent(FailureKind::EgressRefused, "it has no usable URL"));
    };
    match guard.page(&url, robots, &mut SiteCookies::default()).await {
        Ok(document) => {
            let reading = read_document(guard, &document, page, rules, robots).await;
            let status = Some(document.status.as_u16());
            PageRead { url: document.url.into(), at, status, reading }
        }
        Err(error) => failed(error),
    }
}

/// Reads a page, off the threads that serve requests, and fetches the schemas and policies that it names. A file that cannot
/// be fetched counts as missing; what that means is up to the page's policy.
pub(super) async fn read_document(
    guard: &PageGuard,
    document: &FetchedDocument,
    page: &str,
    rules: &PageRules<'_>,
    robots: &RobotsBook,
) -> Result<PageReading, UpstreamError> {
    let mut files: Vec<(Url, Option<Bytes>)> = Vec::new();
    for _ in 0..ROUNDS_MAX {
        let reading = guard.in_turn(|| read_with(document, page, rules, &files)).await?;
        if reading.wanted.is_empty() || files.len() >= PAGE_FILES_MAX {
            return Ok(reading);
        }
        for url in reading.wanted {
            let body = match url.origin() == document.url.origin() {
                true => guard.json(&url, robots).await.ok().map(|file| file.body),
                false => None,
            };
            files.push((url, body));
        }
    }
    guard.in_turn(|| read_with(document, page, rules, &files)).await
}

fn read_with(
    document: &FetchedDocument,
    page: &str,
    rules: &PageRules<'_>,
    files: &[(Url, Option<Bytes>)],
) -> Result<PageReading, UpstreamError> {
    let header = |name: &str| -> Option<String> {
        let all = document.headers.get_all(name).iter();
        let texts: Vec<Cow<'_, str>> = all.map(|value| String::from_utf8_lossy(value.as_bytes())).collect();
        (!texts.is_empty()).then(|| texts.join(", "))
    };
    let (content_type, policy, source) =
        (header("content-type"), header("wam-policy"), header("wam-policy-src"));
    let files: Vec<PageFile<'_>> =
        files.iter().map(|(url, body)| PageFile { url, body: body.as_deref() }).collect();
    let input = PageInput {
        page,
        url: &document.url,
        headers: PolicyHeaders { policy: policy.as_deref(), source: source.as_deref() },
        files: &files,
    };
    let decoded = decode_page(&document.body, content_type.as_deref());
    read_page(&decoded.text, &input, rules).map_err(|fault| UpstreamError::invalid(fault.to_string()))
}

/// Writes the result of `tools/list`.
fn listing(tools: &[WebTool]) -> Vec<u8> {
    let mut definitions: Vec<&str> = tools.iter().map(|tool| tool.definition.as_str()).collect();
    let inspect = inspect::definition().to_string();
    if !tools.is_empty() {
        definitions.push(&inspect);
    }
    format!(r#"{{"tools":[{}]}}"#, definitions.join(",")).into_bytes()
}

/// Returns an error that names its page, for the operator.
fn about(page: &str, error: &UpstreamError) -> UpstreamError {
    UpstreamError { detail: format!("{}: {}", masked(page), says(error)).into(), ..error.clone() }
}

/// Returns why a page could not be read, for the operator.
fn says(error: &UpstreamError) -> &str {
    if error.detail.is_empty() { error.kind.sentence() } else { &error.detail }
}

/// Report on the pages of a server, as REST shows it.
#[derive(Serialize)]
struct ShownReport<'a> {
    pages: Vec<ShownPage<'a>>,
}

#[derive(Serialize)]
struct ShownPage<'a> {
    url: Cow<'a, str>,
    fetched_at: String,
    /// HTTP status; `None` where the page could not be read.
    status: Option<u16>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
    #[serde(flatten)]
    report: Cow<'a, PageReport>,
}

impl ShownPage<'_> {
    /// Returns the page without its forms, for a report that is too long.
    fn without_forms(self) -> Self {
        let error = self.error.or_else(|| Some("the report on its forms is too long".to_owned()));
        ShownPage { error, report: Cow::default(), ..self }
    }
}

fn report(pages: &[PageRead]) -> String {
    let whole = ShownReport { pages: pages.iter().map(PageRead::shown).collect() };
    let text = written(&whole);
    if text.len() <= REPORT_BYTES_MAX {
        return text;
    }
    written(&ShownReport { pages: whole.pages.into_iter().map(ShownPage::without_forms).collect() })
}

fn written(report: &ShownReport<'_>) -> String {
    let text = serde_json::to_string(report).unwrap_or_else(|_| r#"{"pages":[]}"#.to_owned());
    // the database cannot store U+0000
    text.replace("\\u0000", "\\ufffd")
}

impl PageRead {
    fn shown(&self) -> ShownPage<'_> {
        let (report, error) = match &self.reading {
            Ok(reading) => (Cow::Borrowed(&reading.report), None),
            Err(error) => (Cow::default(), Some(says(error).to_owned())),
        };
        ShownPage {
            url: masked(&self.url),
            fetched_at: self.at.to_rfc3339_opts(SecondsFormat::Millis, true),
            status: self.status,
            error,
            report,
        }
    }
}
