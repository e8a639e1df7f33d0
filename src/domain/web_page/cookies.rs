//! Cookies that a caller keeps at a server from one call to the next, as they are stored.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use percent_encoding::percent_decode_str;
use serde::{Deserialize, Serialize};
use zeroize::Zeroizing;

use super::field::is_generated;

/// Lifetime of kept cookies after the last call that changed one of them, in seconds: 7 days. A site may end each of them earlier.
pub const COOKIES_KEPT_S: u32 = 7 * 24 * 60 * 60;
/// Most cookies that are kept of one caller at one server.
pub const COOKIES_MAX: usize = 50;
/// Most bytes of all kept cookies of one caller at one server: hosts, paths, names and values.
pub const COOKIES_BYTES_MAX: usize = 64 * 1024;
/// Shortest value of a cookie with `HttpOnly` that counts as a credential, in bytes.
const CREDENTIAL_BYTES_MIN: usize = 16;

/// Host, path and name of a cookie, which tell it from all others.
pub type CookieKey = (String, String, String);

/// Value of the attribute `SameSite`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum SameSite {
    /// Sent within its site alone.
    Strict,
    /// Sent to its site by links of others.
    Lax,
    /// Sent to its site by all.
    None,
}

impl SameSite {
    /// Returns the value, as in a `Set-Cookie` header.
    pub fn as_str(self) -> &'static str {
        match self {
            SameSite::Strict => "Strict",
            SameSite::Lax => "Lax",
            SameSite::None => "None",
        }
    }
}

/// Cookie as it is kept. Fields instead of a header: a path of a URL may have a `;`, which would begin an attribute there.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeptCookie {
    /// Host that set the cookie.
    pub host: String,
    /// True if the cookie is for the host alone, false if also for those below.
    pub host_only: bool,
    /// Path for which the cookie is.
    pub path: String,
    /// Name of the cookie.
    pub name: String,
    /// Value of the cookie.
    pub value: String,
    /// End of the cookie, in seconds since 1970; `None` if the site names none.
    pub expires: Option<i64>,
    /// True if the cookie is sent over TLS alone.
    pub secure: bool,
    /// True if scripts may not read the cookie.
    pub http_only: bool,
    /// `SameSite` of the cookie; `None` without the attribute.
    pub same_site: Option<SameSite>,
}

impl KeptCookie {
    /// Returns the key of the cookie.
    pub fn key(&self) -> CookieKey {
        (self.host.clone(), self.path.clone(), self.name.clone())
    }

    fn bytes(&self) -> usize {
        self.host.len() + self.path.len() + self.name.len() + self.value.len()
    }

    /// Returns the forms in which a site may repeat the value, if it looks like a credential: one that looks generated, as names of
    /// sessions do, or that no script may read. They are shown to nobody. Short words would be masked everywhere.
    pub fn credentials(&self) -> Vec<Zeroizing<String>> {
        let value = self.value.as_str();
        let plain = value.strip_prefix('"').and_then(|rest| rest.strip_suffix('"')).unwrap_or(value);
        let decoded = percent_decode_str(plain).decode_utf8().unwrap_or_default();
        let forms = BTreeSet::from([value, plain, &*decoded]);
        let is_hidden = self.http_only && plain.len() >= CREDENTIAL_BYTES_MIN;
        if !is_hidden && !forms.iter().any(|form| is_generated(form)) {
            return Vec::new();
        }
        forms.into_iter().filter(|form| !form.is_empty()).map(|form| form.to_owned().into()).collect()
    }
}

/// Cookies of one caller at one server.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct CookieJar {
    /// Cookies, the one that was set longest ago first; each once.
    cookies: Vec<KeptCookie>,
}

// values may be credentials
impl fmt::Debug for CookieJar {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CookieJar").field("cookies", &self.cookies.len()).finish_non_exhaustive()
    }
}

impl CookieJar {
    /// Creates a jar of cookies, the oldest first. Where they are too many or too large, the oldest ones of the host with the most
    /// are left out.
    pub fn of(mut cookies: Vec<KeptCookie>) -> CookieJar {
        loop {
            let bytes = cookies.iter().map(KeptCookie::bytes).sum::<usize>();
            let surplus = if cookies.len() > COOKIES_MAX {
                surplus(cookies.iter().map(|cookie| (cookie.host.as_str(), 1)))
            } else if bytes > COOKIES_BYTES_MAX {
                surplus(cookies.iter().map(|cookie| (cookie.host.as_str(), cookie.bytes())))
            } else {
                None
            };
            let Some(surplus) = surplus else { return CookieJar { cookies } };
            cookies.remove(surplus);
        }
    }

    /// Reads a stored jar; `None` if this release cannot read it.
    pub fn read(text: &[u8]) -> Option<CookieJar> {
        serde_json::from_slice(text).ok().map(CookieJar::of)
    }

    /// Writes the jar, to be sealed.
    pub fn to_text(&self) -> Zeroizing<Vec<u8>> {
        Zeroizing::new(serde_json::to_vec(&self.cookies).unwrap_or_default())
    }

    /// Returns the cookies, the oldest first.
    pub fn cookies(&self) -> &[KeptCookie] {
        &self.cookies
    }

    /// Returns the jar with the changes of a call, and without cookies that have ended `now`, in seconds since 1970. All else stays,
    /// so that calls at the same time lose nothing of one another.
    #[must_use]
    pub fn with_changes(&self, changes: &CookieChanges, now: i64) -> CookieJar {
        let mut gone: BTreeSet<CookieKey> = changes.removed.iter().cloned().collect();
        gone.extend(changes.set.iter().map(KeptCookie::key));
        let stays = |cookie: &&KeptCookie| {
            cookie.expires.is_none_or(|end| end > now) && !gone.contains(&cookie.key())
        };
        CookieJar::of(self.cookies.iter().filter(stays).chain(&changes.set).cloned().collect())
    }
}

/// Returns which of these cookies makes room, each with its host and weight, the oldest first: the oldest one of the host that has
/// the most. So a site drives out no cookies of another that has less.
pub fn surplus<'a>(cookies: impl Iterator<Item = (&'a str, usize)> + Clone) -> Option<usize> {
    let mut weights: BTreeMap<&str, usize> = BTreeMap::new();
    for (host, weight) in cookies.clone() {
        *weights.entry(host).or_default() += weight;
    }
    let most = weights.values().max()?;
    cookies.into_iter().position(|(host, _)| weights.get(host) == Some(most))
}

/// Changes that the answers of sites in one call make to the cookies of its caller. A cookie that only ended is none of them.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct CookieChanges {
    /// Cookies that were set to something new, the oldest first.
    pub set: Vec<KeptCookie>,
    /// Cookies that a site removed.
    pub removed: Vec<CookieKey>,
}

impl CookieChanges {
    /// Returns whether nothing is changed.
    pub fn is_empty(&self) -> bool {
        self.set.is_empty() && self.removed.is_empty()
    }
}

// values may be credentials
impl fmt::Debug for CookieChanges {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (set, removed) = (self.set.len(), self.removed.len());
        f.debug_struct("CookieChanges").field("set", &set).field("removed", &removed).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cookie(name: &str, value: &str) -> KeptCookie {
        KeptCookie {
            host: "shop.example".to_owned(),
            host_only: true,
            path: "/".to_owned(),
            name: name.to_owned(),
            value: value.to_owned(),
            expires: None,
            secure: false,
            http_only: false,
            same_site: None,
        }
    }

    fn cookies(cookies: &[(&str, &str)]) -> Vec<KeptCookie> {
        cookies.iter().map(|(name, value)| cookie(name, value)).collect()
    }

    fn jar(of: &[(&str, &str)]) -> CookieJar {
        CookieJar::of(cookies(of))
    }

    fn names(jar: &CookieJar) -> Vec<&str> {
        jar.cookies().iter().map(|cookie| cookie.name.as_str()).collect()
    }

    #[test]
    fn a_jar_is_read_back_and_shows_no_value() {
        let kept = jar(&[("b", "two"), ("a", "planted")]);
        assert_eq!(CookieJar::read(&kept.to_text()).unwrap(), kept);
        assert_eq!(names(&kept), ["b", "a"]);
        let changes =
            CookieChanges { set: kept.cookies().to_vec(), removed: vec![cookie("planted", "").key()] };
        let shown = format!("{kept:?} {changes:?}");
        assert!(!shown.contains("planted"), "{shown}");
        assert!(CookieJar::read(b"{}").is_none() && CookieJar::read(b"").is_none());
    }

    #[test]
    fn calls_at_the_same_time_lose_nothing_of_one_another() {
        let other = jar(&[("a", "2"), ("b", "1"), ("c", "1"), ("x", "1")]);
        let changes =
            CookieChanges { set: cookies(&[("c", "3"), ("y", "1")]), removed: vec![cookie("b", "").key()] };
        let both = jar(&[("a", "2"), ("x", "1"), ("c", "3"), ("y", "1")]);
        assert_eq!(other.with_changes(&changes, 0), both);
        assert_eq!(both.with_changes(&CookieChanges::default(), 0), both);
    }

    #[test]
    fn an_ended_cookie_makes_room_and_a_refreshed_one_stays() {
        let ended = KeptCookie { expires: Some(10), ..cookie("ended", "1") };
        let refreshed = KeptCookie { expires: Some(99), ..cookie("refreshed", "1") };
        let changes = CookieChanges { set: cookies(&[("a", "1")]), removed: Vec::new() };
        let left = CookieJar::of(vec![ended, refreshed]).with_changes(&changes, 10);
        assert_eq!(names(&left), ["refreshed", "a"]);
    }

    #[test]
    fn the_oldest_cookies_of_the_host_with_the_most_make_room() {
        let of =
            |host: &str, name: &str, value: &str| KeptCookie { host: host.to_owned(), ..cookie(name, value) };
        let own = of("shop.example", "session", "s");
        let many = (0..COOKIES_MAX + 5).map(|at| of("ads.example", &format!("n{at:02}"), "v"));
        let kept = CookieJar::of([own].into_iter().chain(many).collect());
        assert_eq!((kept.cookies().len(), &names(&kept)[..2]), (COOKIES_MAX, ["session", "n06"].as_slice()));
        // by their bytes, one large cookie counts more than some small ones
        let large = "v".repeat(COOKIES_BYTES_MAX / 4);
        let small = (0..9).map(|at| of("shop.example", &format!("s{at}"), "v"));
        let large = ["a", "b", "c", "d", "e"].into_iter().map(|name| of("ads.example", name, &large));
        let kept = CookieJar::of(small.chain(large).collect());
        assert_eq!(names(&kept)[8..], ["s8", "c", "d", "e"]);
    }

    #[test]
    fn values_that_look_generated_or_no_script_may_read_are_credentials() {
        let forms = |name: &str, value: &str, http_only| -> Vec<String> {
            let cookie = KeptCookie { http_only, ..cookie(name, value) };
            cookie.credentials().iter().map(|form| form.to_string()).collect()
        };
        assert_eq!(forms("theme", "dark", true), [""; 0]);
        assert_eq!(forms("theme", "a-word-of-sixteen", false), [""; 0]);
        assert_eq!(forms("sid", "8f3a9c1b2d4e5f60718293a4", false), ["8f3a9c1b2d4e5f60718293a4"]);
        assert_eq!(forms("sid", "opaque-and-long-", true), ["opaque-and-long-"]);
        let spelled =
            ["\"8f3a9c1b2d4e5f60%2B718293a4\"", "8f3a9c1b2d4e5f60%2B718293a4", "8f3a9c1b2d4e5f60+718293a4"];
        assert_eq!(forms("sid", spelled[0], false), spelled);
    }
}
