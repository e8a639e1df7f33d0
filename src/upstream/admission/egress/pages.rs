//! Rules for the addresses of web pages, besides those of every address.

use std::net::{IpAddr, SocketAddr};

use http::Uri;

use super::{Egress, EgressError, host_of, port_of, shown};

impl Egress {
    /// Checks the URL of a web page that is about to be stored, as [`Egress::check_url`] does. Pages are at https on port
    /// 443; http and other ports are for hosts whose addresses `allow` names.
    ///
    /// # Errors
    /// [`EgressError::Page`] if only another port or scheme is wrong, and the errors of [`Egress::check_url`].
    pub fn check_page_url(&self, url: &str) -> Result<(), EgressError> {
        let uri = self.check_url(url)?;
        let host = host_of(&uri)?;
        let may_be_named = match host.parse::<IpAddr>() {
            Ok(ip) => self.names(ip),
            // what a name resolves to is checked when connecting
            Err(_) => !self.allow.load().is_empty(),
        };
        if is_usual_page(&uri) || may_be_named { Ok(()) } else { Err(EgressError::Page(shown(host))) }
    }

    /// Checks the addresses of a web page's host, which [`Egress::addresses`] returned.
    ///
    /// # Errors
    /// [`EgressError::Page`] for http or another port than 443, unless `allow` names every address.
    pub fn check_page_addresses(&self, uri: &Uri, found: &[SocketAddr]) -> Result<(), EgressError> {
        if is_usual_page(uri) || found.iter().all(|address| self.names(address.ip())) {
            return Ok(());
        }
        Err(EgressError::Page(shown(host_of(uri)?)))
    }

    pub(super) fn names(&self, ip: IpAddr) -> bool {
        self.allow.load().iter().any(|net| net.contains(&ip.to_canonical()))
    }
}

/// Returns whether a web page is where any may be: at https on port 443.
fn is_usual_page(uri: &Uri) -> bool {
    uri.scheme_str() == Some("https") && port_of(uri) == 443
}

#[cfg(test)]
mod tests {
    use super::super::tests::guard;
    use super::*;

    #[tokio::test]
    async fn pages_are_at_https_unless_their_addresses_are_named() {
        let open = guard(&[], &[], &[&["8.8.8.8"]]);
        let named = guard(&["127.0.0.0/8"], &[], &[&["127.0.0.1"], &["8.8.8.8"], &["127.0.0.1", "8.8.8.8"]]);
        for (guard, url, fine) in [
            (&open, "https://a.example/", true),
            (&open, "https://a.example:443/x", true),
            (&open, "http://a.example/", false),
            (&open, "https://a.example:8443/", false),
            (&open, "http://8.8.8.8/", false),
            (&named, "http://127.0.0.1:81/", true),
            (&named, "http://8.8.8.8/", false),
            (&named, "http://a.example/", true),
        ] {
            assert_eq!(guard.check_page_url(url).is_ok(), fine, "{url}");
        }
        assert!(matches!(open.check_page_url("http://127.0.0.1/"), Err(EgressError::Address { .. })));
        let uri: Uri = "http://a.example/".parse().unwrap();
        for fine in [true, false, false] {
            let found = named.addresses(&uri).await.unwrap();
            assert_eq!(named.check_page_addresses(&uri, &found).is_ok(), fine, "{found:?}");
        }
    }
}
