//! Servers whose tools are forms of web pages.

use std::fmt;
use std::sync::Arc;

use url::Url;
use zeroize::Zeroizing;

use super::Described;
use super::http::Credential;
use crate::domain::span::Span;
use crate::domain::web_page::settings::PageSettings;

/// Pages of a server, and how their forms become tools.
#[derive(Clone)]
pub struct PageServer {
    /// Settings of the pages.
    pub settings: Arc<PageSettings>,
    /// Identity of the secrets for fields.
    pub credential: Credential,
    /// Secrets by the name of their field; empty if there are none or they could not be opened.
    pub secrets: Vec<(String, Zeroizing<String>)>,
}

impl fmt::Debug for PageServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PageServer").field("settings", &self.settings).finish_non_exhaustive()
    }
}

impl PageServer {
    /// Returns the hosts of the pages, without ports.
    pub fn hosts(&self) -> impl Iterator<Item = String> {
        let urls = self.settings.pages.iter().filter_map(|page| Url::parse(page).ok());
        urls.filter_map(|url| url.host_str().map(str::to_owned))
    }
}

impl Described for PageServer {
    fn credential(&self) -> Credential {
        self.credential
    }

    fn secrets(&self) -> Vec<&str> {
        self.secrets.iter().map(|(_, secret)| secret.as_str()).collect()
    }

    fn binding(&self) -> String {
        format!("pages {}", self.settings.pages.join(" "))
    }

    fn tell(&self, span: &mut Span) {
        span.set("network.transport", "tcp");
        span.set("network.protocol.name", "http");
        if let Some(host) = self.hosts().next() {
            span.set("server.address", host);
        }
    }

    fn pages(&self) -> Option<&PageServer> {
        Some(self)
    }
}
