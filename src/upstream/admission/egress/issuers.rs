//! Rules for the addresses of identity providers, besides those of every address.

use std::net::{IpAddr, SocketAddr};

use http::Uri;

use super::{Egress, EgressError, host_of, shown};

impl Egress {
    /// Checks the URL of an identity provider, or of its keys, that is about to be stored, as [`Egress::check_url`] does.
    ///
    /// # Errors
    /// [`EgressError::Issuer`] for http, unless `allow` may name the address, and the errors of [`Egress::check_url`].
    pub fn check_issuer_url(&self, url: &str) -> Result<(), EgressError> {
        let uri = self.check_url(url)?;
        let host = host_of(&uri)?;
        let may_be_named = match host.parse::<IpAddr>() {
            Ok(ip) => self.names(ip),
            // addresses of a name are checked when connecting
            Err(_) => !self.allow.load().is_empty(),
        };
        if is_https(&uri) || may_be_named { Ok(()) } else { Err(EgressError::Issuer(shown(host))) }
    }

    /// Checks the addresses of an identity provider's host, which [`Egress::addresses`] returned.
    ///
    /// # Errors
    /// [`EgressError::Issuer`] for http, unless `allow` names every address.
    pub fn check_issuer_addresses(&self, uri: &Uri, found: &[SocketAddr]) -> Result<(), EgressError> {
        if is_https(uri) || found.iter().all(|address| self.names(address.ip())) {
            return Ok(());
        }
        Err(EgressError::Issuer(shown(host_of(uri)?)))
    }
}

fn is_https(uri: &Uri) -> bool {
    uri.scheme_str() == Some("https")
}

#[cfg(test)]
mod tests {
    use super::super::tests::guard;
    use super::*;

    #[tokio::test]
    async fn providers_are_at_https_unless_their_addresses_are_named() {
        let open = guard(&[], &[], &[]);
        let named = guard(&["127.0.0.0/8"], &[], &[&["127.0.0.1"], &["8.8.8.8"], &["127.0.0.1", "8.8.8.8"]]);
        for (guard, url, fine) in [
            (&open, "https://idp.example/", true),
            (&open, "https://idp.example:8443/", true),
            (&open, "http://idp.example/", false),
            (&named, "http://127.0.0.1:81/", true),
            (&named, "http://8.8.8.8/", false),
            (&named, "http://idp.example/", true),
        ] {
            assert_eq!(guard.check_issuer_url(url).is_ok(), fine, "{url}");
        }
        assert!(matches!(open.check_issuer_url("https://127.0.0.1/"), Err(EgressError::Address { .. })));
        let uri: Uri = "http://idp.example/".parse().unwrap();
        for fine in [true, false, false] {
            let found = named.addresses(&uri).await.unwrap();
            assert_eq!(named.check_issuer_addresses(&uri, &found).is_ok(), fine, "{found:?}");
        }
    }
}
