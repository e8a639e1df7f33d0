//! Inspection of a page that belongs to no server.

use std::sync::Arc;

use url::Url;
use uuid::Uuid;

use super::guard::PageGuard;
use super::reading;
use crate::domain::web_page::settings::PageSettings;
use crate::upstream::admission::egress::Egress;
use crate::upstream::error::{FailureKind, UpstreamError};
use crate::upstream::http::connect::Dialer;

/// Inspector of pages, without a gateway.
pub struct PageInspector {
    egress: Arc<Egress>,
    guard: PageGuard,
}

impl PageInspector {
    /// Creates an inspector. Without `tls` (see [`crate::upstream::native_tls`]), pages at https cannot be fetched.
    pub fn new(egress: Arc<Egress>, tls: Option<Arc<rustls::ClientConfig>>) -> PageInspector {
        let dialer = Dialer::new(Arc::clone(&egress), tls);
        PageInspector { guard: PageGuard::new(&dialer, Uuid::nil()), egress }
    }

    /// Fetches a page and returns the report on it, a JSON text. A page that cannot be fetched has a report that says why.
    ///
    /// # Errors
    /// [`FailureKind::EgressRefused`] for a URL that no server could have.
    pub async fn fetch(&self, url: &str, settings: &PageSettings) -> Result<String, UpstreamError> {
        let page = String::from(parsed(url)?);
        let checked = self.egress.check_page_url(&page);
        checked.map_err(|error| UpstreamError::unsent(FailureKind::EgressRefused, error.to_string()))?;
        Ok(reading::inspect(&self.guard, settings, &page).await)
    }

    /// Reads HTML that counts as fetched from `base`, and returns the report on it, a JSON text. Nothing is fetched.
    ///
    /// # Errors
    /// [`FailureKind::EgressRefused`] if `base` is no URL.
    pub fn read(html: &[u8], base: &str, settings: &PageSettings) -> Result<String, UpstreamError> {
        Ok(reading::inspect_text(html, &parsed(base)?, settings))
    }
}

fn parsed(url: &str) -> Result<Url, UpstreamError> {
    let refused = || {
        UpstreamError::unsent(
            FailureKind::EgressRefused,
            "it is not a URL of a page, such as https://host/search",
        )
    };
    Url::parse(url).ok().filter(|url| matches!(url.scheme(), "http" | "https")).ok_or_else(refused)
}
