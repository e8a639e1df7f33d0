//! Pages that are open while something happens: in a real browser, at one replica, while it happens at another.

use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::BoxStream;
use reqwest::Method;
use serde_json::{Value, json};
use sqlx::Executor;
use sse_stream::SseStream;

use super::permissions::{asked, asking, decision_of};
use crate::support::{ADMIN, Browser, Gateway, SESSION, Stage, Visitor, settle, upstream};

/// A change is on the page within this: hints are a second apart, and updates two.
const SOON: Duration = Duration::from_secs(10);
/// The overview is asked for every 15 s.
const OVERVIEW: Duration = Duration::from_secs(30);
/// Streams end within this after their session.
const ENDED: Duration = Duration::from_secs(10);

/// A browser whose pages run their script, logged in as this visitor.
pub(super) async fn browser(visitor: &Visitor) -> Browser {
    let mut browser = Browser::start().await;
    browser.allow_scripts().await;
    browser.set_cookie(&visitor.base, SESSION, &visitor.cookie(SESSION).unwrap()).await;
    browser
}

/// Waits until a script of the test has this value in the page.
pub(super) async fn shows(browser: &mut Browser, script: &str, expected: Value) {
    shows_within(SOON, browser, script, expected).await;
}

pub(super) async fn shows_within(bound: Duration, browser: &mut Browser, script: &str, expected: Value) {
    let deadline = std::time::Instant::now() + bound;
    loop {
        let found = browser.evaluate(script).await;
        if found == expected {
            return;
        }
        assert!(std::time::Instant::now() < deadline, "{script} is {found} instead of {expected}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// Waits until a page hears of news.
async fn listening(gateway: &Gateway) {
    let open = async || gateway.scrape().await.sum("mcpproxy_streams", &[("kind", "console")]);
    settle(1.0, SOON, open).await;
}

fn key(name: &str) -> String {
    format!(
        "document.activeElement.dispatchEvent(new KeyboardEvent('keydown', {{key: '{name}', bubbles: true}}))"
    )
}

/// Hints that a visitor gets.
struct Hints(BoxStream<'static, (String, String)>);

impl Hints {
    async fn open(visitor: &Visitor) -> Hints {
        let response = visitor.request(Method::GET, "/console/events").send().await.unwrap();
        assert_eq!(response.status(), 200);
        assert_eq!(response.headers()["content-type"], "text/event-stream");
        let events = SseStream::from_bytes_stream(response.bytes_stream().boxed());
        let named = events.filter_map(async |event| {
            let event = event.ok()?;
            Some((event.event?, event.data.unwrap_or_default()))
        });
        Hints(named.boxed())
    }

    /// The next hint, as `name data`; `None` when the stream has ended.
    async fn next(&mut self) -> Option<String> {
        let next = tokio::time::timeout(SOON, self.0.next()).await.expect("a hint in time");
        next.map(|(name, data)| format!("{name} {data}"))
    }

    /// Reads hints up to this one.
    async fn until(&mut self, wanted: &str) {
        while self.next().await.expect("a hint") != wanted {}
    }
}

#[tokio::test]
async fn records_of_another_replica_appear_and_nothing_else_moves() {
    let stage = Stage::with(&[ADMIN]).await;
    let other = Gateway::start(&stage.database, &[]).await;
    let (tenant, _upstream) = asking(&stage, json!([]), upstream::zoo()).await;
    let agent = tenant.agent().await;
    asked(&agent, &json!({"n": 1})).await;
    tenant.records("type=tool_call", 1).await;
    let visitor = Visitor::with_key(&stage.gateway, &tenant.admin().await).await;
    let mut browser = browser(&visitor).await;
    browser.open(&format!("{}/console/activity?type=tool_call", visitor.base)).await;
    listening(&stage.gateway).await;
    let rows = "document.querySelectorAll('[data-live] tbody tr').length";
    shows(&mut browser, rows, json!(1)).await;
    shows(&mut browser, "document.title", json!("(1) Activity · mcpproxy")).await;
    browser
        .evaluate(
            "window.first = document.querySelector('[data-live] tbody tr'); first.querySelector('a').focus()",
        )
        .await;
    asked(&other.ask_as(&agent), &json!({"n": 2})).await;
    shows(&mut browser, rows, json!(2)).await;
    shows(&mut browser, "document.title", json!("(2) Activity · mcpproxy")).await;
    shows(&mut browser, "document.querySelector('nav .count').textContent", json!("2 waiting")).await;
    shows(
        &mut browser,
        "document.querySelector('[role=status]').textContent",
        json!("2 permission requests wait."),
    )
    .await;
    let stays = "first === document.querySelectorAll('[data-live] tbody tr')[1] && first.contains(document.activeElement)";
    assert_eq!(browser.evaluate(stays).await, json!(true), "the row and the focus stay");
    // records that the filter leaves out are none of this page
    visitor
        .post(&decision_of(&asked(&agent, &json!({"n": 2})).await), &[("decision", "reject_once")])
        .await
        .expect(303);
    shows(&mut browser, "document.title", json!("(1) Activity · mcpproxy")).await;
    shows(&mut browser, rows, json!(3)).await;
    assert_eq!(browser.audit().await, Vec::<String>::new());
    browser.close().await;
}

#[tokio::test]
async fn requests_of_another_replica_appear_while_somebody_types() {
    let stage = Stage::with(&[ADMIN]).await;
    let other = Gateway::start(&stage.database, &[]).await;
    let (tenant, _upstream) = asking(&stage, json!([]), upstream::zoo()).await;
    let agent = tenant.agent().await;
    let first = asked(&agent, &json!({"n": 1})).await;
    let visitor = Visitor::with_key(&stage.gateway, &tenant.approver().await).await;
    let mut browser = browser(&visitor).await;
    browser.open(&format!("{}/console/permissions", visitor.base)).await;
    listening(&stage.gateway).await;
    let cards = "[...document.querySelectorAll('article.card')].map(card => card.id.slice(5)).join()";
    shows(&mut browser, cards, json!(first)).await;
    browser.evaluate("document.querySelector('[name=comment]').focus()").await;
    browser.enter("not today, j").await;
    browser.evaluate("document.querySelector('article form details').open = true").await;
    let second = asked(&other.ask_as(&agent), &json!({"n": 2})).await;
    shows(&mut browser, cards, json!(format!("{first},{second}"))).await;
    let typed =
        "document.activeElement.value + document.activeElement.closest('form').querySelector('details').open";
    assert_eq!(browser.evaluate(typed).await, json!("not today, jtrue"));
    // letters go into the text
    browser.evaluate(&key("k")).await;
    assert_eq!(browser.evaluate("document.activeElement.name").await, json!("comment"));
    // from anywhere else they lead to requests, and on to their buttons
    browser.evaluate("document.activeElement.blur()").await;
    for (pressed, at) in [
        ("j", format!("card-{first}")),
        ("j", format!("card-{second}")),
        ("j", format!("card-{second}")),
        ("k", format!("card-{first}")),
        ("a", "allow_once".to_owned()),
        ("d", "reject_once".to_owned()),
    ] {
        browser.evaluate(&key(pressed)).await;
        let focus = browser.evaluate("document.activeElement.id || document.activeElement.value").await;
        assert_eq!(focus, json!(at), "{pressed}");
    }
    // somebody else decides: what nobody is at goes
    browser.evaluate("document.querySelector('article.card').focus()").await;
    other
        .ask_as(&tenant.approver().await)
        .post(&format!("/api/v1/consent/{second}/decision"), &json!({"decision": "reject_once"}))
        .await
        .expect(200);
    shows(&mut browser, cards, json!(first)).await;
    shows(&mut browser, "document.title", json!("(1) Permissions · mcpproxy")).await;
    browser.close().await;
}

#[tokio::test]
async fn a_list_that_has_just_moved_sends_no_decision() {
    let stage = Stage::with(&[ADMIN]).await;
    let (tenant, upstream) = asking(&stage, json!([]), upstream::zoo()).await;
    let agent = tenant.agent().await;
    let first = asked(&agent, &json!({"n": 1})).await;
    let approver = tenant.approver().await;
    let visitor = Visitor::with_key(&stage.gateway, &approver).await;
    let mut browser = browser(&visitor).await;
    browser.open(&format!("{}/console/permissions", visitor.base)).await;
    listening(&stage.gateway).await;
    // a click at the very moment at which a request appears
    let click = "new MutationObserver((_, watch) => {
        if (document.querySelectorAll('article.card').length < 2) return;
        watch.disconnect();
        const button = document.querySelector('button[value=allow_once]');
        window.opacity = getComputedStyle(button).opacity;
        button.click();
        window.clicked = true;
    }).observe(document.querySelector('[data-live]'), {childList: true})";
    browser.evaluate(click).await;
    let second = asked(&agent, &json!({"n": 2})).await;
    shows(&mut browser, "window.clicked === true", json!(true)).await;
    // the button was pale, and is not for long
    assert_eq!(browser.evaluate("window.opacity").await, json!("0.5"));
    let opacity = "getComputedStyle(document.querySelector('button[value=allow_once]')).opacity";
    shows(&mut browser, opacity, json!("1")).await;
    // at the button, wherever the page is scrolled to
    let said = "document.querySelector('form .failure.over')?.textContent.startsWith('The list has just moved') ?? false";
    shows(&mut browser, said, json!(true)).await;
    for id in [&first, &second] {
        assert_eq!(approver.get(&format!("/api/v1/consent/{id}")).await.expect(200)["state"], "pending");
    }
    assert_eq!(upstream.counts().calls, 0);
    browser.close().await;
}

#[tokio::test]
async fn a_page_whose_session_ends_says_so_and_asks_no_more() {
    let stage = Stage::with(&[ADMIN]).await;
    let tenant = stage.tenant("acme").await;
    let visitor = Visitor::with_key(&stage.gateway, &tenant.admin().await).await;
    let mut browser = browser(&visitor).await;
    browser.open(&format!("{}/console/keys", visitor.base)).await;
    listening(&stage.gateway).await;
    visitor.post("/console/logout", &[]).await.expect(303);
    let said = "document.querySelector('[role=status]').textContent";
    shows(&mut browser, said, json!("Logged out: log in again.")).await;
    let open = async || stage.gateway.scrape().await.sum("mcpproxy_streams", &[("kind", "console")]);
    settle(0.0, SOON, open).await;
    browser.follow("document.querySelector('main p.live a').click()").await;
    assert_eq!(browser.evaluate("location.pathname").await, json!("/console/login"));
    browser.close().await;
}

#[tokio::test]
async fn a_paused_or_hidden_page_stays_as_it_is() {
    let stage = Stage::with(&[ADMIN]).await;
    let (tenant, _upstream) = asking(&stage, json!([]), upstream::zoo()).await;
    let agent = tenant.agent().await;
    let visitor = Visitor::with_key(&stage.gateway, &tenant.admin().await).await;
    let mut browser = browser(&visitor).await;
    browser.open(&format!("{}/console/permissions", visitor.base)).await;
    listening(&stage.gateway).await;
    browser.evaluate("document.querySelector('main p.live button').click()").await;
    asked(&agent, &json!({"n": 1})).await;
    // the hint has come, and only the number changes
    shows(&mut browser, "document.title", json!("(1) Permissions · mcpproxy")).await;
    let link = "document.querySelector('nav a[aria-current]').textContent";
    assert_eq!(browser.evaluate(link).await, json!("Permissions 1 waiting"));
    let cards = "document.querySelectorAll('article.card').length";
    // by now it would have been asked for again
    browser.evaluate("window.told = performance.now()").await;
    shows(&mut browser, "performance.now() > told + 4000", json!(true)).await;
    assert_eq!(browser.evaluate(cards).await, json!(0));
    browser.evaluate("document.querySelector('main p.live button').click()").await;
    shows(&mut browser, cards, json!(1)).await;
    let hide = |is_hidden: bool| {
        format!(
            "Object.defineProperty(document, 'hidden', {{value: {is_hidden}, configurable: true}});
            document.dispatchEvent(new Event('visibilitychange'))"
        )
    };
    browser.evaluate(&hide(true)).await;
    let open = async || stage.gateway.scrape().await.sum("mcpproxy_streams", &[("kind", "console")]);
    settle(0.0, SOON, open).await;
    // the number in its title is looked at now and then: here every tenth of a second, and not every 30 s
    let often = "(() => { const real = setTimeout; window.setTimeout = (act, ms) => real(act, ms === 30000 ? 100 : ms); return true; })()";
    assert_eq!(browser.evaluate(often).await, json!(true));
    browser.evaluate(&hide(true)).await;
    asked(&agent, &json!({"n": 2})).await;
    shows(&mut browser, "document.title", json!("(2) Permissions · mcpproxy")).await;
    assert_eq!(browser.evaluate(cards).await, json!(1), "the page itself stays as it is");
    browser.evaluate(&hide(false)).await;
    shows(&mut browser, cards, json!(2)).await;
    browser.close().await;
}

#[tokio::test]
async fn the_overview_is_made_anew_from_time_to_time() {
    let stage = Stage::start().await;
    let other = Gateway::start(&stage.database, &[]).await;
    let (tenant, _upstream) = asking(&stage, json!([]), upstream::zoo()).await;
    let agent = tenant.agent().await;
    asked(&agent, &json!({"n": 1})).await;
    tenant.records("type=tool_call", 1).await;
    let visitor = Visitor::with_key(&stage.gateway, &tenant.admin().await).await;
    let mut browser = browser(&visitor).await;
    browser.open(&format!("{}/console", visitor.base)).await;
    browser.evaluate("document.querySelector('[data-live] details').open = true").await;
    asked(&other.ask_as(&agent), &json!({"n": 2})).await;
    let numbers =
        "[...document.querySelectorAll('.legend li')].map(item => parseInt(item.textContent)).join()";
    let is_open = "document.querySelector('[data-live] details').open";
    assert_eq!(browser.evaluate(numbers).await, json!("0,0,1,0"));
    shows_within(OVERVIEW, &mut browser, numbers, json!("0,0,2,0")).await;
    assert_eq!(browser.evaluate(is_open).await, json!(true));
    browser.close().await;
}

#[tokio::test]
async fn hints_are_of_what_a_visitor_may_see() {
    let stage = Stage::start().await;
    let (tenant, _upstream) = asking(&stage, json!([]), upstream::zoo()).await;
    let (ada, bob) = (tenant.agent().await, tenant.agent().await);
    let own = asked(&bob, &json!({})).await;
    tenant.records(&format!("type=tool_call&key={}", bob.id), 1).await;
    let [bobs, admins, approvers] = [&bob, &tenant.admin().await, &tenant.approver().await];
    let (bobs, admins, approvers) = (
        Visitor::with_key(&stage.gateway, bobs).await,
        Visitor::with_key(&stage.gateway, admins).await,
        Visitor::with_key(&stage.gateway, approvers).await,
    );
    let mut of_bob = Hints::open(&bobs).await;
    of_bob.until("permissions 1").await;
    of_bob.until("activity 1").await;
    let (mut of_admin, mut of_approver) = (Hints::open(&admins).await, Hints::open(&approvers).await);
    of_admin.until("permissions 1").await;
    asked(&ada, &json!({})).await;
    of_admin.until("permissions 2").await;
    of_admin.until("activity 1").await;
    approvers.post(&decision_of(&own), &[("decision", "reject_once")]).await.expect(303);
    // neither the call nor the request of another key is one for bob
    assert_eq!(of_bob.next().await.unwrap(), "permissions 0");
    // approvers see no records
    for _ in 0..3 {
        let hint = of_approver.next().await.unwrap();
        assert!(hint.starts_with("permissions "), "{hint}");
        if hint == "permissions 1" {
            break;
        }
    }
    // another tenant's visitor is told nothing of all that
    let stranger = Visitor::with_key(&stage.gateway, &stage.tenant("other").await.admin().await).await;
    Hints::open(&stranger).await.until("permissions 0").await;
}

#[tokio::test]
async fn a_stream_ends_with_its_session_and_does_not_lengthen_it() {
    let stage = Stage::start().await;
    let other = Gateway::start(&stage.database, &[]).await;
    let tenant = stage.tenant("acme").await;
    for is_idle in [true, false] {
        let admin = tenant.admin().await;
        let visitor = Visitor::with_key(&stage.gateway, &admin).await;
        let there = visitor.at(&other);
        let mut hints = Hints::open(&there).await;
        hints.until("activity 1").await;
        if is_idle {
            let idle = "update web_sessions set seen_at = now() - interval '9 hours'";
            stage.database.connect().await.execute(idle).await.unwrap();
        } else {
            visitor.post("/console/logout", &[]).await.expect(303);
        }
        let ended = async { while hints.next().await.is_some() {} };
        tokio::time::timeout(ENDED, ended).await.expect("the end of the stream");
        let after = there.get("/console/events").await;
        assert!(after.status == 303 && after.header("location").starts_with("/console/login"), "{after:?}");
    }
    // a key that is revoked ends it as well
    let admin = tenant.admin().await;
    let there = Visitor::with_key(&stage.gateway, &admin).await.at(&other);
    let mut hints = Hints::open(&there).await;
    tenant.platform.delete(&format!("/api/v1/keys/{}", admin.id)).await.expect(204);
    let ended = async { while hints.next().await.is_some() {} };
    tokio::time::timeout(ENDED, ended).await.expect("the end of the stream");
    // what a page asks by itself is no use of the session
    stage.database.connect().await.execute("delete from web_sessions").await.unwrap();
    let visitor = Visitor::with_key(&stage.gateway, &tenant.admin().await).await;
    stage
        .database
        .connect()
        .await
        .execute("update web_sessions set seen_at = now() - interval '7 hours'")
        .await
        .unwrap();
    let old = "select count(*) from web_sessions where seen_at < now() - interval '6 hours'";
    let by_itself = visitor.request(Method::GET, "/console").header("X-Console-Refresh", "1");
    visitor.send(by_itself).await.expect(200);
    drop(Hints::open(&visitor).await);
    assert_eq!(stage.database.count(old).await, 1);
    visitor.get("/console").await.expect(200);
    assert_eq!(stage.database.count(old).await, 0);
}

#[tokio::test]
async fn pages_hold_as_many_streams_as_a_key_may() {
    let stage = Stage::with(&[("MCPPROXY__LIMITS__STREAMS_PER_KEY_MAX", "2")]).await;
    let visitor = Visitor::with_key(&stage.gateway, &stage.tenant("acme").await.admin().await).await;
    let open = [Hints::open(&visitor).await, Hints::open(&visitor).await];
    let refused = visitor.get("/console/events").await;
    assert!(refused.status == 503 && !refused.header("retry-after").is_empty(), "{refused:?}");
    visitor.get("/console").await.expect(200);
    drop(open);
    settle(200, SOON, || async {
        let response = visitor.request(Method::GET, "/console/events").send().await.unwrap();
        response.status().as_u16()
    })
    .await;
    Visitor::of(&stage.gateway).get("/console/events").await.expect(303);
}
