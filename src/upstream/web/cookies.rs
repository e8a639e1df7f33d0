//! Cookies of a call: those that its caller keeps, and those that sites set meanwhile.

use std::collections::{BTreeMap, BTreeSet};

use chrono::DateTime;
use cookie_store::{Cookie, CookieDomain, CookieExpiration, CookieStore, RawCookie};
use url::Url;

use crate::domain::web_page::cookies::{
    COOKIES_MAX, CookieChanges, CookieJar, CookieKey, KeptCookie, SameSite, surplus,
};

/// Cookies that the requests of a call send, and what the answers change about them.
#[derive(Debug, Default)]
pub(in crate::upstream) struct SiteCookies {
    store: CookieStore,
    /// Keys of the store, the one that was set longest ago first.
    order: Vec<CookieKey>,
    /// Keys that an answer of this call has set or removed.
    touched: BTreeSet<CookieKey>,
    /// Keys that an answer of this chain of redirects has set or removed.
    of_chain: BTreeSet<CookieKey>,
    /// Address of the first request of a chain; `None` before it.
    begun: Option<Url>,
    /// True once a redirect has led to another site.
    has_left: bool,
}

impl SiteCookies {
    /// Opens kept cookies. One that has ended, or would not be the one that was stored, is left out.
    pub(super) fn opened(jar: &CookieJar) -> SiteCookies {
        let mut opened = SiteCookies::default();
        for kept in jar.cookies() {
            let inserted = reopened(kept).map(|(cookie, site)| opened.store.insert(cookie, &site));
            match inserted {
                Some(Ok(_)) => opened.order.push(kept.key()),
                _ => tracing::debug!("a kept cookie has ended or is not valid"),
            }
        }
        opened
    }

    /// Begins a chain of redirects, whose first request decides about its site.
    pub(super) fn begin(&mut self) {
        (self.begun, self.has_left) = (None, false);
        self.of_chain.clear();
    }

    /// Notes a request before it is sent.
    pub(super) fn enter(&mut self, url: &Url) {
        let begun = self.begun.get_or_insert_with(|| url.clone());
        self.has_left |= !is_same_site(begun, url);
    }

    /// Returns the pairs of names and values that a request sends. Another site must not make use of what a caller keeps: once a
    /// redirect has left the site of its chain, only cookies of this chain are sent.
    pub(super) fn sent(&self, url: &Url) -> Vec<String> {
        let is_sent = |cookie: &&Cookie<'static>| !self.has_left || self.of_chain.contains(&key(cookie));
        let matching = self.store.matches(url).into_iter().filter(is_sent);
        matching.map(|cookie| format!("{}={}", cookie.name(), cookie.value())).collect()
    }

    /// Sets or removes a cookie, as an answer says. One that was not sent since the chain has left its site stays as it is: the
    /// answer is to a stranger. In a full jar, the oldest one of the host with the most makes room.
    pub(super) fn set(&mut self, raw: &RawCookie<'static>, url: &Url) {
        let Ok(cookie) = Cookie::try_from_raw_cookie(raw, url) else { return };
        let key = key(&cookie);
        if self.has_left && self.order.contains(&key) && !self.of_chain.contains(&key) {
            return;
        }
        if cookie.is_expired() {
            self.store.remove(&key.0, &key.1, &key.2);
            self.order.retain(|own| *own != key);
        } else if self.store.insert(cookie, url).is_ok() {
            self.order.retain(|own| *own != key);
            self.order.push(key.clone());
        } else {
            return;
        }
        self.of_chain.insert(key.clone());
        self.touched.insert(key);
        while self.order.len() > COOKIES_MAX
            && let Some(at) = surplus(self.order.iter().map(|(host, ..)| (host.as_str(), 1)))
        {
            let (host, path, name) = self.order.remove(at);
            self.store.remove(&host, &path, &name);
        }
    }

    /// Returns what the answers have changed about kept cookies. One that only ended is no change.
    pub(super) fn changes(&self, before: &CookieJar) -> CookieChanges {
        let held: BTreeMap<CookieKey, &KeptCookie> =
            before.cookies().iter().map(|cookie| (cookie.key(), cookie)).collect();
        let now = |(host, path, name): &CookieKey| {
            let cookie = self.store.get_any(host, path, name).filter(|cookie| !cookie.is_expired());
            cookie.map(kept)
        };
        let set = self.order.iter().filter(|key| self.touched.contains(*key)).filter_map(now);
        let is_gone = |key: &&CookieKey| held.contains_key(*key) && now(key).is_none();
        CookieChanges {
            set: set.filter(|cookie| held.get(&cookie.key()) != Some(&cookie)).collect(),
            removed: self.touched.iter().filter(is_gone).cloned().collect(),
        }
    }
}

/// Returns whether a redirect from the first address of a chain to `url` stays on the site: the same host, with or without `www.`,
/// at the same port, or from http to https at their own ports.
fn is_same_site(begun: &Url, url: &Url) -> bool {
    let host = |url: &Url| url.host_str().map(|host| host.trim_start_matches("www.").to_owned());
    let is_same_way = begun.scheme() == url.scheme() && begun.port() == url.port();
    let is_upgrade =
        (begun.scheme(), url.scheme()) == ("http", "https") && begun.port().is_none() && url.port().is_none();
    host(begun) == host(url) && (is_same_way || is_upgrade)
}

fn key(cookie: &Cookie<'_>) -> CookieKey {
    (String::from(&cookie.domain), String::from(&cookie.path), cookie.name().to_owned())
}

fn is_host_only(cookie: &Cookie<'_>) -> bool {
    matches!(cookie.domain, CookieDomain::HostOnly(_))
}

fn kept(cookie: &Cookie<'_>) -> KeptCookie {
    let (host, path, name) = key(cookie);
    let same_site = cookie.same_site().map(|value| match value {
        value if value.is_strict() => SameSite::Strict,
        value if value.is_lax() => SameSite::Lax,
        _ => SameSite::None,
    });
    KeptCookie {
        host,
        host_only: is_host_only(cookie),
        path,
        name,
        value: cookie.value().to_owned(),
        // a time, since a duration would begin again with each call
        expires: match &cookie.expires {
            CookieExpiration::AtUtc(end) => Some(end.unix_timestamp()),
            CookieExpiration::SessionEnd => None,
        },
        secure: cookie.secure().unwrap_or(false),
        http_only: cookie.http_only().unwrap_or(false),
        same_site,
    }
}

/// Returns a kept cookie with the site that it is of; `None` if it would not be the one that was stored.
fn reopened(kept: &KeptCookie) -> Option<(Cookie<'static>, Url)> {
    // the host alone counts here: neither scheme nor port are part of a cookie
    let site = Url::parse(&format!("https://{}/", kept.host)).ok()?;
    // texts of sites are set as members: in a header, a `;` in one of them would begin an attribute
    let mut raw = RawCookie::parse(attributes(kept)?).ok()?;
    raw.set_name(kept.name.clone());
    raw.set_value(kept.value.clone());
    raw.set_path(kept.path.clone());
    if !kept.host_only {
        raw.set_domain(kept.host.clone());
    }
    let cookie = Cookie::try_from_raw_cookie(&own_cookie(raw, &site)?, &site).ok()?;
    let is_same = key(&cookie) == kept.key() && is_host_only(&cookie) == kept.host_only;
    is_same.then_some((cookie, site))
}

/// Returns a header with the attributes of a cookie that are no texts of its site; `None` for an end that is no time.
fn attributes(kept: &KeptCookie) -> Option<String> {
    let mut header = "name=value".to_owned();
    if let Some(end) = kept.expires {
        let end = DateTime::from_timestamp(end, 0)?.format("%a, %d %b %Y %H:%M:%S GMT");
        header.push_str(&format!("; Expires={end}"));
    }
    if let Some(same_site) = kept.same_site {
        header.push_str(&format!("; SameSite={}", same_site.as_str()));
    }
    for (is_set, flag) in [(kept.secure, "; Secure"), (kept.http_only, "; HttpOnly")] {
        header.push_str(if is_set { flag } else { "" });
    }
    Some(header)
}

/// Returns a cookie as it is kept: for the host that sets it and, if it names that host itself, those below. There is no list of public
/// suffixes here, so that a wider domain could be that of every site of a country. `None` for a cookie whose prefix promises more.
pub(super) fn own_cookie(mut cookie: RawCookie<'static>, url: &Url) -> Option<RawCookie<'static>> {
    let has_prefix =
        |prefix: &str| cookie.name().get(..prefix.len()).is_some_and(|own| own.eq_ignore_ascii_case(prefix));
    let is_secure = cookie.secure() == Some(true) && url.scheme() == "https";
    let is_host_only = cookie.domain().is_none() && cookie.path() == Some("/");
    if (has_prefix("__Secure-") && !is_secure) || (has_prefix("__Host-") && !(is_secure && is_host_only)) {
        return None;
    }
    let own = url.host_str().unwrap_or_default();
    let is_wider = cookie.domain().is_some_and(|domain| {
        let domain = domain.trim_start_matches('.');
        own.len() > domain.len()
            && own.to_ascii_lowercase().ends_with(&format!(".{}", domain.to_ascii_lowercase()))
    });
    if is_wider {
        cookie.unset_domain();
    }
    Some(cookie)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn url(text: &str) -> Url {
        Url::parse(text).unwrap()
    }

    fn set(cookies: &mut SiteCookies, at: &str, headers: &[&str]) {
        for header in headers {
            cookies.set(&RawCookie::parse((*header).to_owned()).unwrap(), &url(at));
        }
    }

    fn sent(cookies: &SiteCookies, to: &str) -> Vec<String> {
        let mut sent = cookies.sent(&url(to));
        sent.sort();
        sent
    }

    /// Returns the jar of a call that began without one.
    fn jar(cookies: &SiteCookies) -> CookieJar {
        CookieJar::default().with_changes(&cookies.changes(&CookieJar::default()), 0)
    }

    #[test]
    fn a_jar_has_what_a_browser_would_keep() {
        let mut cookies = SiteCookies::default();
        let headers = [
            "session=s-1; SameSite=Lax",
            "all=x; Path=/; Domain=shop.example; Secure; HttpOnly",
            "later=\"q 1\"; Max-Age=3600; Path=/",
            "ended=1; Max-Age=0",
        ];
        set(&mut cookies, "https://shop.example/account/login", &headers);
        let jar = jar(&cookies);
        let kept: Vec<_> =
            jar.cookies().iter().map(|kept| (&*kept.name, kept.host_only, kept.http_only)).collect();
        assert_eq!(kept, [("session", true, false), ("all", false, true), ("later", true, false)]);
        assert_eq!(jar.cookies()[0].same_site, Some(SameSite::Lax));
        assert!(jar.cookies()[2].expires.is_some_and(|end| end > 0) && jar.cookies()[0].expires.is_none());
        let opened = SiteCookies::opened(&CookieJar::read(&jar.to_text()).unwrap());
        let again: Vec<KeptCookie> = opened.store.iter_any().map(super::kept).collect();
        assert!(again.len() == 3 && again.iter().all(|cookie| jar.cookies().contains(cookie)));
        let own = ["all=x", "later=\"q 1\"", "session=s-1"];
        assert_eq!(sent(&opened, "https://shop.example/account/"), own);
        assert_eq!(sent(&opened, "https://shop.example/"), own[..2]);
        assert_eq!(sent(&opened, "http://shop.example/"), own[1..2]);
        assert_eq!(sent(&opened, "https://a.shop.example/"), own[..1]);
        assert_eq!(sent(&opened, "https://example/"), [""; 0]);
    }

    #[test]
    fn a_path_of_a_site_sets_no_attributes() {
        let mut cookies = SiteCookies::default();
        let at = "https://evil.co.uk/a;domain=co.uk;path=/;secure/b";
        set(&mut cookies, at, &["session=fixed"]);
        let jar = jar(&cookies);
        let opened = SiteCookies::opened(&jar);
        assert_eq!(sent(&opened, at), ["session=fixed"]);
        for other in ["https://bank.co.uk/", "https://evil.co.uk/", "https://www.evil.co.uk/"] {
            assert_eq!(sent(&opened, other), [""; 0], "{other}");
        }
        assert!(opened.changes(&jar).is_empty());
    }

    #[test]
    fn what_is_not_the_cookie_that_was_stored_is_left_out() {
        let mut cookies = SiteCookies::default();
        set(&mut cookies, "https://shop.example/", &["a=1; Path=/"]);
        let stored = jar(&cookies).cookies()[0].clone();
        let wrong = [
            KeptCookie { host: "shop.example/x".to_owned(), ..stored.clone() },
            KeptCookie { host: "co.uk@evil.example".to_owned(), host_only: false, ..stored.clone() },
            KeptCookie { path: "x".to_owned(), ..stored.clone() },
            KeptCookie { name: "__Host-a".to_owned(), ..stored.clone() },
            KeptCookie { expires: Some(1), ..stored.clone() },
            KeptCookie { expires: Some(i64::MAX), ..stored.clone() },
        ];
        for wrong in wrong {
            assert!(SiteCookies::opened(&CookieJar::of(vec![wrong])).order.is_empty());
        }
        assert_eq!(SiteCookies::opened(&CookieJar::of(vec![stored])).order.len(), 1);
    }

    #[test]
    fn only_what_an_answer_says_is_a_change() {
        let site = "https://shop.example/";
        let mut cookies = SiteCookies::default();
        set(
            &mut cookies,
            site,
            &["a=1; Path=/", "b=1; Path=/", "c=1; Path=/", "short=1; Path=/; Max-Age=3600"],
        );
        let before = jar(&cookies);
        let mut stored = before.cookies().to_vec();
        stored[3].expires = Some(1);
        let before = CookieJar::of(stored);
        let mut cookies = SiteCookies::opened(&before);
        assert!(cookies.changes(&before).is_empty(), "an end is no change");
        set(
            &mut cookies,
            site,
            &["a=1; Path=/", "b=2; Path=/", "c=; Path=/; Max-Age=0", "x=; Path=/; Max-Age=0"],
        );
        let changes = cookies.changes(&before);
        let names: Vec<&str> = changes.set.iter().map(|cookie| cookie.name.as_str()).collect();
        let removed: Vec<&str> = changes.removed.iter().map(|(.., name)| name.as_str()).collect();
        assert_eq!((names, removed), (vec!["b"], vec!["c"]));
    }

    #[test]
    fn kept_cookies_stay_behind_when_a_redirect_leaves_the_site() {
        let site = "https://shop.example/";
        let mut cookies = SiteCookies::default();
        set(&mut cookies, site, &["kept=1; Path=/; Domain=shop.example"]);
        let mut opened = SiteCookies::opened(&jar(&cookies));
        opened.begin();
        for (to, expected) in [
            (site, &["kept=1"][..]),
            ("https://shop.example/next", &["kept=1"]),
            ("https://a.shop.example/", &[]),
            (site, &[]),
        ] {
            opened.enter(&url(to));
            assert_eq!(sent(&opened, to), expected, "{to}");
        }
        set(&mut opened, site, &["new=1; Path=/"]);
        assert_eq!(sent(&opened, site), ["new=1"], "a cookie of this call is sent");
        opened.begin();
        opened.enter(&url(site));
        assert_eq!(sent(&opened, site), ["kept=1", "new=1"]);
    }

    #[test]
    fn redirects_treat_cookies_alike_whatever_their_same_site_says() {
        let site = "https://shop.example/";
        for same_site in ["", "; SameSite=None; Secure", "; SameSite=Lax", "; SameSite=Strict"] {
            let mut cookies = SiteCookies::default();
            set(&mut cookies, site, &[&format!("kept=1; Path=/{same_site}")]);
            let mut opened = SiteCookies::opened(&jar(&cookies));
            opened.begin();
            opened.enter(&url(site));
            assert_eq!(sent(&opened, site), ["kept=1"], "{same_site}");
            for to in ["https://evil.example/", site] {
                opened.enter(&url(to));
                assert_eq!(sent(&opened, to), [""; 0], "{same_site} {to}");
            }
        }
    }

    #[test]
    fn a_stranger_replaces_nothing_and_a_host_with_www_is_none() {
        let site = "https://www.shop.example/";
        let mut cookies = SiteCookies::default();
        set(&mut cookies, site, &["sid=mine; Path=/"]);
        let before = jar(&cookies);
        let mut opened = SiteCookies::opened(&before);
        opened.begin();
        for to in ["http://shop.example/", "https://shop.example/", site] {
            opened.enter(&url(to));
        }
        assert_eq!(sent(&opened, site), ["sid=mine"]);
        // a site that sets its cookie anew with each answer
        set(&mut opened, site, &["sid=mine; Path=/"]);
        opened.begin();
        for to in ["https://evil.example/", site] {
            opened.enter(&url(to));
        }
        assert_eq!(sent(&opened, site), [""; 0]);
        set(&mut opened, site, &["sid=anonymous; Path=/"]);
        set(&mut opened, site, &["sid=; Path=/; Max-Age=0"]);
        assert!(opened.changes(&before).is_empty());
    }
}
