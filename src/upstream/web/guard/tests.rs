//! The guard against sites that do not behave.

use std::collections::HashMap;
use std::io::Write;
use std::sync::Arc;

use flate2::Compression;
use flate2::write::GzEncoder;
use parking_lot::Mutex;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use super::*;
use crate::domain::web_page::cookies::COOKIES_MAX;
use crate::upstream::admission::egress::Egress;

/// Answers of a site by path, as whole HTTP messages; a path that is not there is answered 404.
type Answers = HashMap<&'static str, Vec<u8>>;

/// Site on loopback, and the heads of the requests that it has seen.
struct Site {
    url: Url,
    seen: Arc<Mutex<Vec<String>>>,
}

impl Site {
    async fn start(answers: Answers) -> Site {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = Url::parse(&format!("http://{}/", listener.local_addr().unwrap())).unwrap();
        let seen = Arc::<Mutex<Vec<String>>>::default();
        let heads = Arc::clone(&seen);
        let answers = Arc::new(answers);
        tokio::spawn(async move {
            while let Ok((tcp, _)) = listener.accept().await {
                tokio::spawn(serve(tcp, Arc::clone(&answers), Arc::clone(&heads)));
            }
        });
        Site { url, seen }
    }

    fn at(&self, path: &str) -> Url {
        self.url.join(path).unwrap()
    }

    /// Returns the paths of all requests, in order.
    fn paths(&self) -> Vec<String> {
        let seen = self.seen.lock();
        seen.iter().filter_map(|head| head.split(' ').nth(1)).map(str::to_owned).collect()
    }
}

async fn serve(mut tcp: TcpStream, answers: Arc<Answers>, heads: Arc<Mutex<Vec<String>>>) {
    let mut head = Vec::new();
    while !head.windows(4).any(|end| end == b"\r\n\r\n") {
        if matches!(tcp.read_buf(&mut head).await, Ok(0) | Err(_)) {
            return;
        }
    }
    let head = String::from_utf8(head).unwrap();
    let path = head.split(' ').nth(1).unwrap_or_default().to_owned();
    heads.lock().push(head);
    let unknown = || answer("404 Not Found", "", b"");
    let whole = answers.get(&*path).cloned().unwrap_or_else(unknown);
    drop(tcp.write_all(&whole).await);
    if whole.ends_with(b"~") {
        // a body that does not end
        std::future::pending::<()>().await;
    }
}

fn answer(status: &str, headers: &str, body: &[u8]) -> Vec<u8> {
    let head = format!("HTTP/1.1 {status}\r\n{headers}content-length: {}\r\n\r\n", body.len());
    [head.as_bytes(), body].concat()
}

fn html(body: &[u8]) -> Vec<u8> {
    answer("200 OK", "content-type: text/html; charset=utf-8\r\n", body)
}

fn to(place: &str) -> Vec<u8> {
    answer("302 Found", &format!("location: {place}\r\n"), b"")
}

fn guard(allow: &[&str]) -> PageGuard {
    let allow = allow.iter().map(|net| net.parse().unwrap()).collect();
    PageGuard::new(&Dialer::new(Arc::new(Egress::new(allow, vec![])), None), Uuid::nil())
}

async fn page(url: &Url) -> Result<FetchedDocument, UpstreamError> {
    guard(&["127.0.0.1/32"]).page(url, &RobotsBook::default(), &mut SiteCookies::default()).await
}

async fn fault(url: &Url) -> (FailureKind, String) {
    let error = page(url).await.unwrap_err();
    (error.kind, error.detail.into_owned())
}

#[tokio::test]
async fn a_page_is_fetched_under_a_true_name() {
    let site = Site::start(HashMap::from([("/a?b=c", html(b"<p>x</p>"))])).await;
    let fetched = page(&site.at("/a?b=c#d")).await.unwrap();
    assert_eq!(&fetched.body[..], b"<p>x</p>");
    assert_eq!(site.paths(), ["/robots.txt", "/a?b=c"]);
    let head = site.seen.lock()[1].to_lowercase();
    for line in ["user-agent: mcpproxy/", "accept-encoding: gzip\r\n", "accept: text/html"] {
        assert!(head.contains(line), "{head}");
    }
    assert!(!head.contains("authorization") && !head.contains("cookie"), "{head}");
}

#[tokio::test]
async fn redirects_are_followed_and_each_is_checked() {
    let private = "http://10.1.2.3/x";
    let metadata = "http://169.254.169.254/latest/meta-data";
    let site = Site::start(HashMap::from([
        ("/one", to("/two")),
        ("/two", to("three")),
        ("/three", html(b"there")),
        ("/loop", to("/loop")),
        ("/private", to(private)),
        ("/metadata", to(metadata)),
        ("/ipv6", to("http://[::ffff:10.1.2.3]/")),
        ("/number", to("http://167838211/")),
        ("/script", to("javascript:alert(1)")),
        ("/file", to("file:///etc/passwd")),
        ("/user", to("http://user:pw@127.0.0.1/")),
        ("/nowhere", answer("302 Found", "", b"")),
    ]))
    .await;
    let there = page(&site.at("/one")).await.unwrap();
    assert_eq!((there.url.path(), &there.body[..]), ("/three", b"there".as_slice()));
    for path in ["/private", "/metadata", "/ipv6", "/number"] {
        let (kind, detail) = fault(&site.at(path)).await;
        assert_eq!(kind, FailureKind::EgressRefused, "{path}: {detail}");
    }
    for path in ["/loop", "/script", "/file", "/user", "/nowhere"] {
        let (kind, detail) = fault(&site.at(path)).await;
        assert_eq!(kind, FailureKind::Invalid, "{path}: {detail}");
    }
    let loops = site.paths().iter().filter(|path| *path == "/loop").count();
    assert_eq!(loops, HOPS_MAX + 1);
}

#[tokio::test]
async fn http_and_other_ports_are_for_named_addresses() {
    let site = Site::start(HashMap::from([("/", html(b""))])).await;
    for allow in [&[][..], &["10.0.0.0/8"]] {
        let refused = guard(allow).page(&site.url, &RobotsBook::default(), &mut SiteCookies::default()).await;
        assert_eq!(refused.unwrap_err().kind, FailureKind::EgressRefused);
    }
    assert!(site.paths().is_empty());
    let mut port = site.url.clone();
    port.set_host(Some("localhost")).unwrap();
    assert!(
        page(&port).await.is_err_and(|error| error.kind != FailureKind::Invalid) || !site.paths().is_empty()
    );
}

#[tokio::test]
async fn bodies_are_bounded_after_decompression() {
    let mut bomb = GzEncoder::new(Vec::new(), Compression::best());
    bomb.write_all(&vec![b' '; 64 * HTML_BYTES_MAX]).unwrap();
    let bomb = bomb.finish().unwrap();
    let mut small = GzEncoder::new(Vec::new(), Compression::best());
    small.write_all(b"<p>small</p>").unwrap();
    let zipped = "content-type: text/html\r\ncontent-encoding: gzip\r\n";
    let site = Site::start(HashMap::from([
        ("/bomb", answer("200 OK", zipped, &bomb)),
        ("/small", answer("200 OK", zipped, &small.finish().unwrap())),
        ("/large", html(&vec![b'a'; HTML_BYTES_MAX + 1])),
        ("/most", html(&vec![b'a'; HTML_BYTES_MAX])),
        ("/cut", b"HTTP/1.1 200 OK\r\ncontent-type: text/html\r\ncontent-length: 9\r\n\r\n<p>".to_vec()),
    ]))
    .await;
    for path in ["/bomb", "/large"] {
        assert_eq!(fault(&site.at(path)).await.0, FailureKind::TooLarge, "{path}");
    }
    assert_eq!(&page(&site.at("/small")).await.unwrap().body[..], b"<p>small</p>");
    assert_eq!(page(&site.at("/most")).await.unwrap().body.len(), HTML_BYTES_MAX);
    assert_eq!(fault(&site.at("/cut")).await.0, FailureKind::Lost);
}

#[tokio::test]
async fn a_slow_body_ends_with_its_time() {
    let slow = b"HTTP/1.1 200 OK\r\ncontent-type: text/html\r\ncontent-length: 99\r\n\r\n<p>~".to_vec();
    let site = Site::start(HashMap::from([("/slow", slow)])).await;
    let guard = PageGuard { fetch_max: Duration::from_millis(300), ..guard(&["127.0.0.1/32"]) };
    let fetched = guard.page(&site.at("/slow"), &RobotsBook::default(), &mut SiteCookies::default()).await;
    assert_eq!(fetched.unwrap_err().kind, FailureKind::Timeout);
    assert_eq!(FETCH_MAX, Duration::from_secs(10));
}

#[tokio::test]
async fn other_types_and_statuses_are_refused() {
    let site = Site::start(HashMap::from([
        ("/pdf", answer("200 OK", "content-type: application/pdf\r\n", b"x")),
        ("/none", answer("200 OK", "", b"x")),
        ("/gone", answer("410 Gone", "content-type: text/html\r\n", b"x")),
        ("/br", answer("200 OK", "content-type: text/html\r\ncontent-encoding: br\r\n", b"x")),
        ("/xhtml", answer("200 OK", "content-type: Application/XHTML+xml\r\n", b"x")),
        ("/schema", answer("200 OK", "content-type: application/schema+json\r\n", b"{}")),
        ("/long", answer("200 OK", "content-type: application/json\r\n", &vec![b' '; JSON_BYTES_MAX + 1])),
        ("/away", to("http://127.0.0.2/")),
    ]))
    .await;
    for (path, says) in [("/pdf", "content type"), ("/none", "content type"), ("/gone", "410"), ("/br", "br")]
    {
        let (kind, detail) = fault(&site.at(path)).await;
        assert!(kind == FailureKind::Invalid && detail.contains(says), "{path}: {kind:?} {detail}");
    }
    assert!(page(&site.at("/xhtml")).await.is_ok());
    let guard = guard(&["127.0.0.0/8"]);
    let robots = RobotsBook::default();
    assert_eq!(&guard.json(&site.at("/schema"), &robots).await.unwrap().body[..], b"{}");
    for (path, kind) in
        [("/long", FailureKind::TooLarge), ("/xhtml", FailureKind::Invalid), ("/away", FailureKind::Invalid)]
    {
        assert_eq!(guard.json(&site.at(path), &robots).await.unwrap_err().kind, kind, "{path}");
    }
}

#[tokio::test]
async fn robots_are_asked_once_and_obeyed() {
    let rules = b"User-agent: *\nDisallow: /\n\nUser-agent: mcpproxy\nDisallow: /private\n";
    let site = Site::start(HashMap::from([
        ("/robots.txt", answer("200 OK", "content-type: text/plain\r\n", rules)),
        ("/open", html(b"")),
        ("/private", html(b"")),
        ("/there", to("/private")),
    ]))
    .await;
    let (guard, robots) = (guard(&["127.0.0.1/32"]), RobotsBook::default());
    let mut cookies = SiteCookies::default();
    assert!(guard.page(&site.at("/open"), &robots, &mut cookies).await.is_ok());
    for path in ["/private", "/there"] {
        let refused = guard.page(&site.at(path), &robots, &mut cookies).await.unwrap_err();
        assert!(refused.detail.contains("robots.txt"), "{path}: {refused}");
    }
    assert_eq!(site.paths(), ["/robots.txt", "/open", "/there"]);

    let failing = Site::start(HashMap::from([
        ("/robots.txt", answer("503 Service Unavailable", "", b"")),
        ("/open", html(b"")),
    ]))
    .await;
    assert!(fault(&failing.at("/open")).await.1.contains("robots.txt"));
    assert_eq!(failing.paths(), ["/robots.txt"]);
}

#[tokio::test]
async fn cookies_live_for_one_fetch() {
    let sets =
        "set-cookie: s=1; Path=/\r\nset-cookie: t=2; Path=/other\r\nset-cookie: u=3; Domain=else.example\r\n";
    let site = Site::start(HashMap::from([
        ("/set", answer("302 Found", &format!("{sets}location: /then\r\n"), b"")),
        ("/then", html(b"")),
    ]))
    .await;
    page(&site.at("/set")).await.unwrap();
    page(&site.at("/then")).await.unwrap();
    let sent: Vec<bool> = site.seen.lock().iter().map(|head| head.contains("cookie: s=1\r\n")).collect();
    assert_eq!(sent, [false, false, true, false, false], "{:?}", site.paths());
}

/// Returns the names of the cookies that are sent to a URL, in order.
fn sent(cookies: &SiteCookies, to: &str) -> Vec<String> {
    let to = Url::parse(to).unwrap();
    let name = |pair: &String| pair.split('=').next().unwrap_or_default().to_owned();
    let mut names: Vec<String> = cookies.sent(&to).iter().map(name).collect();
    names.sort();
    names
}

fn set(cookies: &mut SiteCookies, at: &str, header: &str) {
    let mut headers = HeaderMap::new();
    headers.append(SET_COOKIE, HeaderValue::from_str(header).unwrap());
    keep_cookies(&headers, &Url::parse(at).unwrap(), cookies);
}

#[test]
fn cookies_go_to_the_host_that_set_them() {
    let mut cookies = SiteCookies::default();
    for header in [
        "a=1; Domain=co.uk; Path=/",
        "b=1; Domain=.CO.uk; Path=/",
        "c=1; Domain=evil.co.uk; Path=/",
        "d=1; Path=/",
    ] {
        set(&mut cookies, "https://evil.co.uk/", header);
    }
    assert_eq!(sent(&cookies, "https://bank.co.uk/"), [""; 0]);
    assert_eq!(sent(&cookies, "https://evil.co.uk/"), ["a", "b", "c", "d"]);
    assert_eq!(sent(&cookies, "https://www.evil.co.uk/"), ["c"]);
}

#[test]
fn prefixes_of_cookies_keep_their_promise() {
    let mut cookies = SiteCookies::default();
    for (at, header) in [
        ("https://a.example/", "__Host-a=1; Secure; Path=/"),
        ("https://a.example/", "__Host-b=1; Path=/"),
        ("https://a.example/", "__Host-c=1; Secure; Path=/x"),
        ("https://a.example/", "__host-d=1; Secure; Path=/; Domain=a.example"),
        ("http://a.example/", "__Host-e=1; Secure; Path=/"),
        ("https://a.example/", "__Secure-f=1; Secure; Path=/"),
        ("https://a.example/", "__Secure-g=1; Path=/"),
    ] {
        set(&mut cookies, at, header);
    }
    assert_eq!(sent(&cookies, "https://a.example/"), ["__Host-a", "__Secure-f"]);
}

#[test]
fn the_oldest_cookie_makes_room_in_a_full_jar() {
    let mut cookies = SiteCookies::default();
    set(&mut cookies, "https://b.example/", "other=1; Path=/");
    for number in 0..COOKIES_MAX {
        set(&mut cookies, "https://a.example/", &format!("c{number}=old; Path=/"));
        set(&mut cookies, "https://a.example/", "c0=new; Path=/");
    }
    let values = cookies.sent(&Url::parse("https://a.example/").unwrap());
    assert_eq!(values.len(), COOKIES_MAX - 1);
    let has = |pair: &str| values.iter().any(|value| value == pair);
    assert!(has("c0=new") && !has("c1=old") && has("c2=old") && has("c49=old"), "{values:?}");
    assert_eq!(sent(&cookies, "https://b.example/"), ["other"]);
}
