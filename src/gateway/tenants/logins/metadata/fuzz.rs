use http::uri::Authority;

use super::is_host;
use crate::domain::fuzz::{fuzz, shape};
use crate::domain::identity::PublicUrl;

/// A client's host gets into challenge and metadata only as an issuer's own host, with a port at most.
#[test]
fn hosts_in_challenges() {
    const OWN: &str = "eu.gw.example";
    let public = PublicUrl::new("https://gw.example/base/");
    let seeds =
        [OWN, "EU.GW.EXAMPLE:8443", "gw.example", "eu.gw.example:", "[::1]:80", "eu.gw.example:1\", a=\"b"];
    fuzz(&seeds, &[":", "\"", "\\", "/", "@", "eu.gw.example", "443"], |input| {
        let host = String::from_utf8_lossy(input);
        // what the server has taken for an authority before
        let is_own = host.parse::<Authority>().is_ok() && is_host(OWN, &host);
        if is_own {
            let url = public.at_host(&host);
            let parsed = url::Url::parse(url.as_str()).expect("a URL");
            assert_eq!((parsed.scheme(), parsed.host_str()), ("https", Some(OWN)));
            assert!(parsed.path() == "/base" && parsed.username().is_empty() && !url.as_str().contains('"'));
        }
        shape((is_own, host.matches(':').count().min(3), host.len().min(32)))
    });
}
