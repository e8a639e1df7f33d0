//! `robots.txt` of the sites whose pages one listing fetches.

use std::collections::HashMap;

use bytes::Bytes;
use http::StatusCode;
use tokio::sync::Mutex;
use url::Url;

use crate::domain::web_page::robots::RobotsRules;
use crate::upstream::error::UpstreamError;
use crate::upstream::protocol::exchange::UpstreamWork;

/// Name of the gateway in `robots.txt`.
const PROGRAM: &str = "mcpproxy";

/// Rules of the sites that were asked so far, by origin. They hold for as long as the listing takes.
#[derive(Default)]
pub(in crate::upstream) struct RobotsBook {
    rules: Mutex<HashMap<String, RobotsRules>>,
}

impl RobotsBook {
    /// Checks that a site allows programs to fetch a page. For the first page of a site `fetch` gets its rules, as status and
    /// body: no file allows all pages, a site that fails to answer allows none (RFC 9309).
    ///
    /// # Errors
    /// [`FailureKind::Invalid`](crate::upstream::FailureKind) if the site does not allow it; the error of `fetch`.
    pub(super) async fn check<'a>(
        &self,
        page: &Url,
        fetch: impl FnOnce(Url) -> UpstreamWork<'a, Result<(StatusCode, Bytes), UpstreamError>>,
    ) -> Result<(), UpstreamError> {
        let origin = page.origin().ascii_serialization();
        let mut rules = self.rules.lock().await;
        if !rules.contains_key(&origin) {
            let asked = match page.join("/robots.txt") {
                Ok(file) => read(fetch(file).await?),
                Err(_) => RobotsRules::refuse_all(),
            };
            rules.insert(origin.clone(), asked);
        }
        let path =
            page.query().map_or_else(|| page.path().to_owned(), |query| format!("{}?{query}", page.path()));
        if rules.get(&origin).is_none_or(|rules| rules.allow(&path)) {
            return Ok(());
        }
        Err(UpstreamError::invalid("robots.txt of its site does not allow programs to fetch it"))
    }
}

fn read((status, body): (StatusCode, Bytes)) -> RobotsRules {
    match status {
        status if status.is_success() => RobotsRules::read(&String::from_utf8_lossy(&body), PROGRAM),
        StatusCode::TOO_MANY_REQUESTS => RobotsRules::refuse_all(),
        status if status.is_client_error() => RobotsRules::allow_all(),
        _ => RobotsRules::refuse_all(),
    }
}
