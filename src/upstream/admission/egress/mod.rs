//! Egress guard: decides which addresses may be connected to. Every upstream address passes it after DNS, on every
//! connect.

mod issuers;
mod own;
mod pages;
mod ranges;

use std::fmt;
use std::future::Future;
use std::io;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use arc_swap::ArcSwap;
use http::Uri;
use ipnet::IpNet;
use rustix::io::Errno;
use tokio_util::sync::CancellationToken;

use self::own::OwnHost;

/// Longest URL that is stored, in bytes.
pub const URL_BYTES_MAX: usize = 2048;
/// Most addresses one name may resolve to; a name with more is refused.
pub const ADDRESSES_MAX: usize = 64;
/// Interval between look-ups of the deployment's own names.
const OWN_LOOKUP_INTERVAL: Duration = Duration::from_secs(10);
/// Longest host that is repeated in an error text, in bytes (the longest legal DNS name).
const HOST_BYTES_MAX: usize = 253;

/// Rule that refuses addresses of the deployment itself.
const OWN: &str = "part of this deployment";

/// Reason why a URL or an address is refused. The text names the host and the rule, never a credential.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EgressError {
    /// The URL cannot be stored, for this reason.
    #[error("the URL is refused: {0}")]
    Url(&'static str),
    /// The host is, or resolves to, an address that a rule refuses.
    #[error("{host} is refused: its address is {rule}; an entry in egress.allow can permit it")]
    Address {
        /// The host as the URL names it.
        host: String,
        /// The rule that refused it.
        rule: &'static str,
    },
    /// The host resolves to more than 64 addresses.
    #[error("{0} is refused: it has too many addresses")]
    TooMany(String),
    /// The host does not resolve.
    #[error("{0} does not resolve")]
    Unknown(String),
    /// The URL is of an identity provider, with http, which only hosts in `egress.allow` may have.
    #[error(
        "{0} is refused: identity providers are reached by https; an entry in egress.allow that names its addresses can \
         permit http"
    )]
    Issuer(String),
    /// The URL is of a web page, with a scheme or port that only hosts in `egress.allow` may have.
    #[error(
        "{0} is refused: web pages are fetched by https on port 443 only; an entry in egress.allow that names its \
         addresses can permit http and other ports"
    )]
    Page(String),
}

/// An address of the deployment itself: refused even inside an allowed range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Deny {
    /// Every port of an address.
    Address(IpAddr),
    /// Single port of an address. An unspecified address (`0.0.0.0`, `[::]`) means every address that this machine
    /// has at the time of the check.
    Socket(SocketAddr),
}

impl Deny {
    fn matches(self, ip: IpAddr, port: u16) -> bool {
        match self {
            Self::Address(denied) => denied.to_canonical() == ip,
            Self::Socket(denied) if denied.port() != port => false,
            Self::Socket(denied) if denied.ip().is_unspecified() => {
                ip.is_unspecified() || is_own(&UdpSocket::bind((ip, 0)))
            }
            Self::Socket(denied) => denied.ip().to_canonical() == ip,
        }
    }
}

/// Returns whether this machine has an address, given the result of binding to it. Only an error of the system that
/// denies it counts as no: after any other error, such as no free descriptor, the address stays refused.
fn is_own<T>(bound: &io::Result<T>) -> bool {
    // an address of a family that is switched off here cannot be had either
    let foreign = |error: &io::Error| {
        error.kind() == io::ErrorKind::AddrNotAvailable
            || Errno::from_io_error(error) == Some(Errno::AFNOSUPPORT)
    };
    !bound.as_ref().is_err_and(foreign)
}

/// Future of the addresses of a name.
pub type Resolving<'a> = Pin<Box<dyn Future<Output = io::Result<Vec<IpAddr>>> + Send + 'a>>;

/// Resolver of host names to addresses.
pub trait Resolve: Send + Sync {
    /// Returns all addresses of `host`, which is not an IP literal. The future fails if there are none.
    fn resolve<'a>(&'a self, host: &'a str) -> Resolving<'a>;
}

/// The resolver of the operating system.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemDns;

impl Resolve for SystemDns {
    fn resolve<'a>(&'a self, host: &'a str) -> Resolving<'a> {
        Box::pin(async move {
            let found = tokio::net::lookup_host((host, 0)).await?;
            Ok(found.map(|address| address.ip()).collect())
        })
    }
}

/// Guard that decides which addresses this deployment connects to.
pub struct Egress {
    allow: ArcSwap<Vec<IpNet>>,
    /// Number of changes of `allow`.
    changes: AtomicU64,
    deny: Vec<Deny>,
    own: Vec<OwnHost>,
    dns: Arc<dyn Resolve>,
}

impl fmt::Debug for Egress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Egress")
            .field("allow", &self.allow.load())
            .field("deny", &self.deny)
            .finish_non_exhaustive()
    }
}

impl Egress {
    /// Creates a guard that opens the special ranges in `allow` and never connects to `deny`. An exact
    /// address in `allow` (`/32` or `/128`) overrides `deny`. Names are resolved by the operating system.
    pub fn new(allow: Vec<IpNet>, deny: Vec<Deny>) -> Self {
        Self::with_dns(allow, deny, Arc::new(SystemDns))
    }

    /// Creates a guard as [`Egress::new`] does, with another resolver.
    pub fn with_dns(allow: Vec<IpNet>, deny: Vec<Deny>, dns: Arc<dyn Resolve>) -> Self {
        Self { allow: ArcSwap::from_pointee(allow), changes: AtomicU64::new(0), deny, own: Vec::new(), dns }
    }

    /// Replaces the networks in which addresses are allowed although they are not public. Connections that are open to
    /// other addresses end at their next byte.
    pub fn allow_only(&self, allow: Vec<IpNet>) {
        if **self.allow.load() != allow {
            self.allow.store(Arc::new(allow));
            self.changes.fetch_add(1, Ordering::Release);
        }
    }

    /// Returns the number of changes of the allowed networks so far.
    pub(in crate::upstream) fn changes(&self) -> u64 {
        self.changes.load(Ordering::Acquire)
    }

    /// Returns whether a connection to this address may go on.
    pub(in crate::upstream) fn allows(&self, address: SocketAddr) -> bool {
        self.refused_by(address).is_none()
    }

    /// Bars hosts of the deployment itself, each with its port. A name is barred at once, its addresses once
    /// [`Egress::look_up_own`] has found them. `allow` opens exact addresses of these hosts, as it does with
    /// `deny`.
    pub fn with_own_hosts(mut self, hosts: impl IntoIterator<Item = (String, u16)>) -> Self {
        for (host, port) in hosts {
            match host.parse::<IpAddr>() {
                Ok(ip) => self.deny.push(Deny::Socket(SocketAddr::new(ip, port))),
                Err(_) => self.own.push(OwnHost::new(&host, port)),
            }
        }
        self
    }

    /// Resolves the deployment's own hosts. A failed look-up keeps the addresses found before.
    pub async fn look_up_own(&self) {
        self.look_up_own_at(Instant::now()).await;
    }

    /// Resolves the deployment's own hosts every 10 s until `stop`: a failover changes their addresses.
    pub async fn keep_own_known(self: Arc<Self>, stop: CancellationToken) {
        while stop.run_until_cancelled(tokio::time::sleep(OWN_LOOKUP_INTERVAL)).await.is_some() {
            self.look_up_own().await;
        }
    }

    async fn look_up_own_at(&self, now: Instant) {
        for own in &self.own {
            own.look_up(&*self.dns, now).await;
        }
    }

    /// Checks a URL that is about to be stored, and returns it parsed.
    ///
    /// Names are checked when connecting, since what they resolve to changes; IP literals are checked here.
    ///
    /// # Errors
    /// [`EgressError::Url`] if the URL is malformed or unsupported; [`EgressError::Address`] if its IP literal is
    /// refused.
    pub fn check_url(&self, url: &str) -> Result<Uri, EgressError> {
        let uri = parse_url(url)?;
        let host = host_of(&uri)?;
        if let Ok(ip) = host.parse::<IpAddr>() {
            self.check(host, SocketAddr::new(ip, port_of(&uri)))?;
        }
        Ok(uri)
    }

    /// Returns the addresses to connect to for `uri`: all that its host has.
    ///
    ///
    /// # Errors
    /// Any [`EgressError`]; one refused address refuses the host.
    pub async fn addresses(&self, uri: &Uri) -> Result<Vec<SocketAddr>, EgressError> {
        let host = host_of(uri)?;
        let port = port_of(uri);
        let found = match host.parse::<IpAddr>() {
            Ok(ip) => vec![ip],
            Err(_) => self.dns.resolve(host).await.map_err(|_| EgressError::Unknown(shown(host)))?,
        };
        if found.is_empty() {
            return Err(EgressError::Unknown(shown(host)));
        }
        if found.len() > ADDRESSES_MAX {
            return Err(EgressError::TooMany(shown(host)));
        }
        if self.own.iter().any(|own| own.is_named(host, port))
            && !found.iter().all(|ip| self.allows_exactly(ip.to_canonical()))
        {
            return Err(EgressError::Address { host: shown(host), rule: OWN });
        }
        let found: Vec<_> = found.into_iter().map(|ip| SocketAddr::new(ip, port)).collect();
        for address in &found {
            self.check(host, *address)?;
        }
        Ok(found)
    }

    /// Checks one address of `host`.
    fn check(&self, host: &str, address: SocketAddr) -> Result<(), EgressError> {
        match self.refused_by(address) {
            None => Ok(()),
            Some(rule) => Err(EgressError::Address { host: shown(host), rule }),
        }
    }

    /// Returns the rule that refuses an address; `None` if the address is allowed.
    fn refused_by(&self, address: SocketAddr) -> Option<&'static str> {
        let ip = address.ip().to_canonical();
        if let Some(rule) = self.refused_as_written(ip, address.port()) {
            return Some(rule);
        }
        let IpAddr::V6(v6) = ip else { return None };
        let inner = IpAddr::V4(ranges::embedded(v6)?);
        if self.allows_exactly(ip) {
            return None;
        }
        self.refused_as_written(inner, address.port())
    }

    fn refused_as_written(&self, ip: IpAddr, port: u16) -> Option<&'static str> {
        let is_own = self.deny.iter().any(|deny| deny.matches(ip, port))
            || self.own.iter().any(|own| own.has(ip, port));
        if is_own && !self.allows_exactly(ip) {
            return Some(OWN);
        }
        if self.allow.load().iter().any(|net| net.contains(&ip)) {
            return None;
        }
        ranges::special(ip)
    }

    fn allows_exactly(&self, ip: IpAddr) -> bool {
        self.allow.load().iter().any(|net| net.prefix_len() == net.max_prefix_len() && net.addr() == ip)
    }
}

fn parse_url(url: &str) -> Result<Uri, EgressError> {
    if url.len() > URL_BYTES_MAX {
        return Err(EgressError::Url("it is too long"));
    }
    // `Uri` drops fragments silently; a fragment in an endpoint is a mistake to report.
    if url.contains('#') {
        return Err(EgressError::Url("it has a fragment"));
    }
    let uri: Uri = url.parse().map_err(|_| EgressError::Url("it is not a URL such as https://host/path"))?;
    if !matches!(uri.scheme_str(), Some("http" | "https")) {
        return Err(EgressError::Url("only http and https are supported"));
    }
    if uri.authority().is_none_or(|authority| authority.as_str().contains('@')) {
        return Err(EgressError::Url(
            "it names a user or password; leave them out: servers have headers for credentials",
        ));
    }
    let authority = uri.authority().map_or("", |authority| authority.as_str());
    let has_port = authority.rsplit_once(':').is_some_and(|(_, port)| !port.contains(']'));
    if has_port && uri.port_u16().is_none_or(|port| port == 0) {
        return Err(EgressError::Url("its port is not a port"));
    }
    host_of(&uri)?;
    Ok(uri)
}

/// Returns the host without the brackets of an IPv6 literal.
fn host_of(uri: &Uri) -> Result<&str, EgressError> {
    let host = uri.host().unwrap_or_default();
    if host.is_empty() {
        return Err(EgressError::Url("it has no host"));
    }
    let Some(open) = host.strip_prefix('[') else { return Ok(host) };
    // Anything else in brackets (zones, future versions) would reach the resolver as a name.
    open.strip_suffix(']')
        .filter(|inner| inner.parse::<std::net::Ipv6Addr>().is_ok())
        .ok_or(EgressError::Url("its host is not an address"))
}

fn port_of(uri: &Uri) -> u16 {
    let default = if uri.scheme_str() == Some("https") { 443 } else { 80 };
    uri.port_u16().unwrap_or(default)
}

fn shown(host: &str) -> String {
    host.chars().take(HOST_BYTES_MAX).collect()
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;

    /// Resolver that returns the queued answers in order, then repeats the last.
    struct Fake(Mutex<Vec<Vec<&'static str>>>);

    impl Resolve for Fake {
        fn resolve<'a>(&'a self, _: &'a str) -> Resolving<'a> {
            let mut answers = self.0.lock().unwrap();
            let now = if answers.len() > 1 { answers.remove(0) } else { answers[0].clone() };
            Box::pin(async move { Ok(now.iter().map(|a| a.parse().unwrap()).collect()) })
        }
    }

    pub(super) fn guard(allow: &[&str], deny: &[&str], dns: &[&[&'static str]]) -> Egress {
        let deny = deny.iter().map(|d| match d.parse() {
            Ok(socket) => Deny::Socket(socket),
            Err(_) => Deny::Address(d.parse().unwrap()),
        });
        let dns = Fake(Mutex::new(dns.iter().map(|a| a.to_vec()).collect()));
        let allow = allow.iter().map(|a| a.parse().unwrap()).collect();
        Egress::with_dns(allow, deny.collect(), Arc::new(dns))
    }

    #[test]
    fn urls_are_checked_when_stored() {
        let guard = guard(&["10.1.0.0/16"], &[], &[]);
        let long = format!("https://example.com/{}", "a".repeat(URL_BYTES_MAX));
        let table = [
            ("https://example.com/mcp", true),
            ("http://example.com:8080/mcp?x=1", true),
            ("https://[2606:4700::1111]/mcp", true),
            ("https://8.8.8.8/", true),
            ("http://10.1.2.3/mcp", true),
            ("http://10.2.2.3/mcp", false),
            ("ftp://example.com/", false),
            ("file:///etc/passwd", false),
            ("example.com/mcp", false),
            ("/mcp", false),
            ("https://user:pw@example.com/", false),
            ("https://user@example.com/", false),
            ("https://example.com/#x", false),
            ("https://example.com:0/", false),
            ("https://example.com:99999/", false),
            ("https://:443/", false),
            ("https://exa mple.com/", false),
            ("http://127.0.0.1/", false),
            ("http://169.254.169.254/latest/meta-data", false),
            ("http://[::1]/", false),
            ("http://[::ffff:127.0.0.1]/", false),
            ("http://[fe80::1%25eth0]/", false),
            ("http://[64:ff9b::7f00:1]/", false),
            (long.as_str(), false),
            ("", false),
        ];
        for (url, fine) in table {
            assert_eq!(guard.check_url(url).is_ok(), fine, "{url}");
        }
    }

    #[test]
    fn listening_everywhere_denies_the_port_on_every_address_of_this_machine() {
        let guard = guard(&["127.0.0.0/8", "10.0.0.0/8", "::/0"], &["0.0.0.0:8080"], &[]);
        for (url, fine) in [
            ("http://127.0.0.1:8080/", false),
            ("http://127.8.9.1:8080/", false),
            ("http://[::ffff:127.0.0.1]:8080/", false),
            ("http://0.0.0.0:8080/", false),
            ("http://127.0.0.1:8081/", true),
            // an address of another machine
            ("http://10.255.255.253:8080/", true),
        ] {
            assert_eq!(guard.check_url(url).is_ok(), fine, "{url}");
        }
    }

    #[test]
    fn an_address_is_foreign_only_where_the_system_says_so() {
        for (errno, own) in [
            (Errno::ADDRNOTAVAIL, false),
            (Errno::AFNOSUPPORT, false),
            (Errno::MFILE, true),
            (Errno::ACCESS, true),
        ] {
            assert_eq!(is_own::<()>(&Err(errno.into())), own, "{errno}");
        }
        assert!(is_own(&Ok(())));
    }

    #[test]
    fn refusals_name_host_and_rule_but_no_credential() {
        let guard = guard(&[], &[], &[]);
        let text = guard.check_url("http://127.0.0.1:99/path?token=hunter2").unwrap_err().to_string();
        assert!(text.contains("127.0.0.1") && text.contains("loopback"), "{text}");
        assert!(!text.contains("hunter2"), "{text}");
        let text = guard.check_url("http://bob:hunter2@example.com/").unwrap_err().to_string();
        assert!(!text.contains("hunter2") && !text.contains("bob"), "{text}");
    }

    #[tokio::test]
    async fn one_refused_address_refuses_the_name() {
        let guard = guard(&[], &[], &[&["8.8.8.8", "10.0.0.1"]]);
        let refused = guard.addresses(&"http://mixed.example/".parse().unwrap()).await;
        assert_eq!(refused, Err(EgressError::Address { host: "mixed.example".to_owned(), rule: "private" }));
    }

    #[tokio::test]
    async fn every_connect_checks_what_dns_says_now() {
        let guard = guard(&[], &[], &[&["8.8.8.8"], &["169.254.169.254"]]);
        let uri: Uri = "https://rebind.example/".parse().unwrap();
        assert_eq!(guard.addresses(&uri).await, Ok(vec!["8.8.8.8:443".parse().unwrap()]));
        assert!(matches!(guard.addresses(&uri).await, Err(EgressError::Address { rule: "link-local", .. })));
    }

    #[tokio::test]
    async fn crowds_and_nothing_are_refused() {
        let crowd = vec!["8.8.8.8"; ADDRESSES_MAX + 1];
        let guard = guard(&[], &[], &[&crowd, &[]]);
        let uri: Uri = "https://crowd.example/".parse().unwrap();
        assert!(matches!(guard.addresses(&uri).await, Err(EgressError::TooMany(_))));
        assert!(matches!(guard.addresses(&uri).await, Err(EgressError::Unknown(_))));
    }

    #[test]
    fn allow_and_deny_combine() {
        let wide = guard(&["10.0.0.0/8"], &["10.0.0.5", "10.0.0.6:5432"], &[]);
        let exact = guard(&["10.0.0.0/8", "10.0.0.5/32"], &["10.0.0.5"], &[]);
        let public = guard(&[], &["8.8.8.8"], &[]);
        let table = [
            (&wide, "10.0.0.4:80", true),
            (&wide, "10.0.0.5:80", false),
            (&wide, "10.0.0.6:5432", false),
            (&wide, "10.0.0.6:80", true),
            (&wide, "[::ffff:10.0.0.4]:80", true),
            (&wide, "[::ffff:10.0.0.5]:80", false),
            (&wide, "[64:ff9b::a00:5]:80", false),
            (&wide, "[64:ff9b::808:808]:80", true),
            (&wide, "[2002:c0a8:101::1]:80", false),
            (&exact, "10.0.0.5:80", true),
            (&public, "8.8.8.8:443", false),
            (&public, "8.8.4.4:443", true),
        ];
        for (guard, address, fine) in table {
            assert_eq!(guard.refused_by(address.parse().unwrap()).is_none(), fine, "{address}");
        }
    }
}
