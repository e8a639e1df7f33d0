//! Names of the deployment's own database: resolved periodically, and refused even while that fails.

use std::net::IpAddr;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tokio::time::timeout;

use super::{ADDRESSES_MAX, Resolve};

/// Time for which an address counts as the database's after a look-up last returned it. A failover may lead
/// back to it.
const KEPT: Duration = Duration::from_secs(3600);
/// Longest time of one look-up.
const LOOKUP_MAX: Duration = Duration::from_secs(5);

/// Address of the deployment itself that has a name: host and port of its database.
#[derive(Debug)]
pub(super) struct OwnHost {
    host: String,
    port: u16,
    seen: Mutex<Seen>,
}

#[derive(Debug, Default)]
struct Seen {
    /// Addresses, and when a look-up last named each; kept for as long as look-ups fail.
    addresses: Vec<(IpAddr, Instant)>,
    /// True if the last look-up failed, so that a failure is logged once.
    has_failed: bool,
}

impl OwnHost {
    pub(super) fn new(host: &str, port: u16) -> OwnHost {
        OwnHost { host: same_name(host), port, seen: Mutex::default() }
    }

    /// Returns whether `host` and `port` name this host, whatever its address is.
    pub(super) fn is_named(&self, host: &str, port: u16) -> bool {
        self.port == port && self.host == same_name(host)
    }

    /// Returns whether an address is known to be of this host.
    pub(super) fn has(&self, ip: IpAddr, port: u16) -> bool {
        self.port == port && self.seen.lock().addresses.iter().any(|(known, _)| known.to_canonical() == ip)
    }

    /// Resolves the name. A failure keeps the known addresses.
    pub(super) async fn look_up(&self, dns: &dyn Resolve, now: Instant) {
        let found = timeout(LOOKUP_MAX, dns.resolve(&self.host)).await;
        let found = found.ok().and_then(Result::ok).filter(|found| !found.is_empty());
        let mut seen = self.seen.lock();
        let had_failed = std::mem::replace(&mut seen.has_failed, found.is_none());
        let Some(found) = found else {
            if !had_failed {
                tracing::warn!(
                    host = self.host,
                    known = seen.addresses.len(),
                    "the database's host name does not resolve; upstream servers stay barred from its known addresses \
                     and from its name"
                );
            }
            return;
        };
        seen.addresses.retain(|(ip, at)| !found.contains(ip) && now.saturating_duration_since(*at) <= KEPT);
        seen.addresses.extend(found.into_iter().take(ADDRESSES_MAX).map(|ip| (ip, now)));
        // the oldest go first
        let excess = seen.addresses.len().saturating_sub(ADDRESSES_MAX);
        seen.addresses.drain(..excess);
    }
}

/// Normalises a host name: case and a final dot make no difference.
fn same_name(host: &str) -> String {
    host.strip_suffix('.').unwrap_or(host).to_ascii_lowercase()
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;
    use std::io;
    use std::sync::Arc;

    use http::Uri;

    use super::super::{Egress, EgressError, Resolving};
    use super::*;

    /// Resolver that answers as the test sets it at the time; a name without an entry fails.
    #[derive(Default)]
    struct Names(Mutex<HashMap<&'static str, Vec<&'static str>>>);

    impl Names {
        fn say(&self, host: &'static str, addresses: &[&'static str]) {
            self.0.lock().insert(host, addresses.to_vec());
        }

        fn fail(&self, host: &str) {
            self.0.lock().remove(host);
        }
    }

    impl Resolve for Names {
        fn resolve<'a>(&'a self, host: &'a str) -> Resolving<'a> {
            let found = self.0.lock().get(same_name(host).as_str()).cloned();
            let found = found.map(|found| found.iter().map(|ip| ip.parse().unwrap()).collect());
            Box::pin(async move { found.ok_or_else(|| io::ErrorKind::NotFound.into()) })
        }
    }

    fn guard(allow: &[&str]) -> (Arc<Names>, Egress) {
        let names = Arc::new(Names::default());
        let allow = allow.iter().map(|net| net.parse().unwrap()).collect();
        let dns: Arc<dyn Resolve> = Arc::clone(&names) as Arc<dyn Resolve>;
        (names, Egress::with_dns(allow, Vec::new(), dns).with_own_hosts([("db.internal".to_owned(), 5432)]))
    }

    async fn is_open(guard: &Egress, url: &str) -> bool {
        let uri: Uri = url.parse().unwrap();
        match guard.addresses(&uri).await {
            Ok(_) => true,
            Err(EgressError::Address { rule, .. }) => {
                assert_eq!(rule, "part of this deployment", "{url}");
                false
            }
            Err(other) => panic!("{url}: {other}"),
        }
    }

    #[tokio::test]
    async fn the_database_is_barred_wherever_it_moves() {
        let (names, guard) = guard(&["10.0.0.0/8"]);
        let start = Instant::now();
        names.say("db.internal", &["10.0.0.5"]);
        names.say("evil.example", &["10.0.0.6"]);
        guard.look_up_own_at(start).await;
        assert!(is_open(&guard, "http://evil.example:5432/").await);
        assert!(!is_open(&guard, "http://10.0.0.5:5432/").await);
        // a failover: the new address counts, and the old one still does
        names.say("db.internal", &["10.0.0.6"]);
        guard.look_up_own_at(start + Duration::from_secs(10)).await;
        assert!(!is_open(&guard, "http://evil.example:5432/").await);
        assert!(!is_open(&guard, "http://[::ffff:10.0.0.5]:5432/").await);
        assert!(is_open(&guard, "http://evil.example:80/").await, "another port is another door");
        // an address that no look-up returned for an hour is no longer refused
        guard.look_up_own_at(start + KEPT + Duration::from_secs(11)).await;
        assert!(is_open(&guard, "http://10.0.0.5:5432/").await);
        assert!(!is_open(&guard, "http://10.0.0.6:5432/").await);
    }

    #[tokio::test]
    async fn a_failed_look_up_takes_no_rule_away() {
        let (names, guard) = guard(&["10.0.0.0/8"]);
        let start = Instant::now();
        names.say("db.internal", &["10.0.0.5"]);
        guard.look_up_own_at(start).await;
        names.fail("db.internal");
        for hours in 1_u32..4 {
            guard.look_up_own_at(start + hours * KEPT).await;
            assert!(!is_open(&guard, "http://10.0.0.5:5432/").await, "{hours} h");
        }
        // an answer without addresses is a failure too
        names.say("db.internal", &[]);
        guard.look_up_own_at(start + 5 * KEPT).await;
        assert!(!is_open(&guard, "http://10.0.0.5:5432/").await);
    }

    #[tokio::test]
    async fn the_name_is_barred_also_when_it_never_resolved() {
        let (names, guard) = guard(&["10.0.0.0/8"]);
        guard.look_up_own_at(Instant::now()).await;
        names.say("db.internal", &["10.0.0.5"]);
        for url in ["http://db.internal:5432/", "http://DB.Internal:5432/", "http://db.internal.:5432/x?y"] {
            assert!(!is_open(&guard, url).await, "{url}");
        }
        assert!(is_open(&guard, "http://db.internal/").await, "another port is another door");
    }

    #[tokio::test]
    async fn an_exact_entry_opens_the_database_and_no_other_does() {
        let (names, guard) = guard(&["10.0.0.0/8", "10.0.0.5/32"]);
        names.say("db.internal", &["10.0.0.5"]);
        guard.look_up_own_at(Instant::now()).await;
        assert!(is_open(&guard, "http://db.internal:5432/").await);
        names.say("db.internal", &["10.0.0.5", "10.0.0.7"]);
        assert!(!is_open(&guard, "http://db.internal:5432/").await);
    }
}
