//! Submission of a form: one request, and the redirects that its answer asks for. Nothing is ever sent twice.

use bytes::Bytes;
use http::header::{CONTENT_TYPE, HeaderName, HeaderValue, ORIGIN, REFERER};
use http::{HeaderMap, Method, StatusCode};
use url::Url;

use super::cookies::SiteCookies;
use super::guard::{HOPS_MAX, HopAnswer, PageGuard, PageHop, PageKind};
use crate::upstream::error::{FailureKind, UpstreamError};
use crate::upstream::protocol::sent::Sent;

/// Request of a submission.
pub(super) struct SubmitRequest {
    pub(super) method: Method,
    pub(super) url: Url,
    /// Type of the body; `None` for a GET.
    pub(super) content_type: Option<String>,
    pub(super) body: Bytes,
}

/// Last answer to a submission.
pub(super) struct Landed {
    pub(super) status: StatusCode,
    pub(super) url: Url,
    pub(super) was_redirected: bool,
    pub(super) headers: HeaderMap,
    /// Page of the answer; `None` if it is no page.
    pub(super) page: Option<Bytes>,
    /// Sentence that says what was not read of the answer: a redirect that was not followed, or its page; `None` for a whole answer.
    pub(super) stopped: Option<String>,
}

/// Sends a form and follows the redirects of its answer, each through the guard.
///
/// # Errors
/// As the guard. After the first request was answered, a redirect that leads nowhere or a page that cannot be read is no error: the
/// form was taken.
pub(super) async fn submit(
    guard: &PageGuard,
    request: SubmitRequest,
    page: &Url,
    cookies: &mut SiteCookies,
    sent: &Sent,
) -> Result<Landed, UpstreamError> {
    let SubmitRequest { mut method, mut url, mut content_type, mut body } = request;
    let mut answered: Option<(StatusCode, Url, HeaderMap)> = None;
    let mut from = page.clone();
    cookies.begin();
    for hop in 0..=HOPS_MAX {
        let headers = headers(&method, &from, &url, content_type.as_deref())?;
        let kind = PageKind::Html;
        let ask = PageHop {
            method: method.clone(),
            url: &url,
            headers,
            body: body.clone(),
            kind,
            dispatched: &sent.dispatched,
        };
        let answer = match (guard.hop(ask, cookies).await, answered.take()) {
            (Ok(answer), _) => answer,
            // the form itself was answered: what it asks for next is another thing
            (Err(error), Some(before)) if !error.dispatched => {
                return Ok(stopped(before, &error.to_string()));
            }
            (Err(error), Some(_)) => return Err(UpstreamError { dispatched: true, ..error }),
            (Err(error), None) => return Err(error),
        };
        let (status, answer_headers) = (answer.status, answer.headers.clone());
        let at = (status, url.clone(), answer_headers);
        let next = match answer.redirect(&url) {
            Ok(None) => return Ok(landed(answer, url, hop > 0).await),
            Ok(Some(next)) => next,
            Err(error) => return Ok(stopped(at, &error.detail)),
        };
        match (status.as_u16(), &method) {
            (307 | 308, &Method::POST) if next.origin() != url.origin() => {
                return Ok(stopped(at, "it would send the form to another site"));
            }
            (307 | 308, _) => {}
            _ => (method, body, content_type) = (Method::GET, Bytes::new(), None),
        }
        from = std::mem::replace(&mut url, next);
        answered = Some(at);
    }
    match answered {
        Some(at) => Ok(stopped(at, &format!("more than {HOPS_MAX} redirects"))),
        None => Err(UpstreamError::unsent(FailureKind::Unsendable, "nothing was sent")),
    }
}

fn stopped((status, url, headers): (StatusCode, Url, HeaderMap), why: &str) -> Landed {
    let stopped = Some(format!("The site answered with a redirect that was not followed: {why}"));
    Landed { status, url, was_redirected: true, headers, page: None, stopped }
}

async fn landed(answer: HopAnswer, url: Url, was_redirected: bool) -> Landed {
    let (status, headers) = (answer.status, answer.headers.clone());
    // another type is no page, and needs not be read
    let read = match answer.is_page() {
        true => answer.read().await.map(Some),
        false => Ok(None),
    };
    // the form was taken, whatever its answer says: an error would invite to send it again
    let (page, stopped) = match read {
        Ok(page) => (page, None),
        Err(error) => (None, Some(format!("The page of the site's answer could not be read: {error}"))),
    };
    Landed { status, url, was_redirected, headers, page, stopped }
}

/// Returns the headers by which sites tell their own forms from those of others, as browsers send them.
fn headers(
    method: &Method,
    from: &Url,
    to: &Url,
    content_type: Option<&str>,
) -> Result<Vec<(HeaderName, HeaderValue)>, UpstreamError> {
    let value = |text: &str| {
        HeaderValue::from_str(text)
            .map_err(|_| UpstreamError::unsent(FailureKind::Unsendable, "a header cannot be sent"))
    };
    let mut referer = from.clone();
    referer.set_fragment(None);
    // to others only the site, as the default of browsers
    let is_own = from.origin() == to.origin();
    let origin = from.origin().ascii_serialization();
    let referer = if is_own { referer.to_string() } else { format!("{origin}/") };
    let mut headers = vec![(REFERER, value(&referer)?)];
    if method == Method::POST {
        headers.push((ORIGIN, value(&origin)?));
    }
    if let Some(content_type) = content_type {
        headers.push((CONTENT_TYPE, value(content_type)?));
    }
    Ok(headers)
}
