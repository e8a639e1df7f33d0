//! Sections of the console in a real browser, which runs no script: every width, theme and role, hostile texts, and a decision.

use std::path::Path;

use serde_json::json;

use super::markup::HOSTILE;
use super::permissions::{asked, asking, decision_of};
use crate::support::{Browser, Mcp, SESSION, Stage, Tenant, Tool, Upstream, Visitor, upstream};

/// Facts about a page: whether it is wider than the window, what would run, and fields without a label, beside the window, or
/// higher than their lines.
const FACTS: &str = "JSON.stringify({
    wide: document.documentElement.scrollWidth > innerWidth,
    main: document.querySelector('main').scrollWidth > document.querySelector('main').clientWidth,
    active: document.querySelectorAll('script:not([src*=static]), img, svg:not(.chart), iframe, object, embed, [onerror], [onload]').length,
    nameless: [...document.querySelectorAll('input:not([type=hidden]), select, textarea')].filter(f => !f.labels.length).length,
    aside: [...document.querySelectorAll('input:not([type=hidden]), select, textarea')].filter(f => f.getBoundingClientRect().right > innerWidth).length,
    tall: [...document.querySelectorAll('textarea')].filter(f => f.offsetHeight > (Number(f.rows) + 2) * 24).length,
    styled: getComputedStyle(document.querySelector('nav')).display,
})";

/// Window of a phone: width and height in CSS pixels.
const PHONE: (u32, f64) = (390, 844.0);
/// Places on the first card: the end of the buttons that decide, and the beginning and height of its arguments.
const CARD: &str = "JSON.stringify({
    buttons: Math.max(...['reject_once', 'allow_once'].map(value =>
        document.querySelector(`article.card button[value=${value}]`).getBoundingClientRect().bottom)),
    arguments: document.querySelector('article.card pre').getBoundingClientRect().top,
    shown: document.querySelector('article.card pre').getBoundingClientRect().height,
})";

/// A tenant whose every call asks, with a server of hostile tools.
async fn hostile(stage: &Stage) -> (Tenant, Upstream) {
    let tenant = stage.tenant("acme").await;
    let tool = |text: &&str| {
        let definition = json!({"name": text, "description": format!("{text} {}", "x".repeat(500)),
            "inputSchema": {"type": "object", "properties": {"x": {"type": "string", "description": text},
                "long": {}, "pick": {"enum": [text, 1]}}}});
        Tool::raw(text, &definition.to_string())
    };
    let upstream = Upstream::handshake(HOSTILE.iter().map(tool).collect()).await;
    let prompt =
        |text: &&str| json!({"name": text, "description": format!("{text} {}", "x".repeat(500))}).to_string();
    let prompts = Some(HOSTILE.iter().map(prompt).collect());
    upstream.set_offers(upstream::Offers { prompts, ..upstream::Offers::default() });
    tenant.add("up", &upstream).await;
    let version = tenant.platform.get("/api/v1/policy").await.expect(200)["version"].clone();
    let rule = json!({"id": "r".repeat(64), "effect": "deny", "match": {"tool": format!("none:{}", HOSTILE[2])},
        "message": HOSTILE[1]});
    let body = json!({"version": version, "mode": "always_ask", "rules": [rule]});
    tenant.platform.ask(reqwest::Method::PUT, "/api/v1/policy", Some(&body)).await.expect(200);
    (tenant, upstream)
}

async fn logged_in(visitor: &Visitor) -> Browser {
    let mut browser = Browser::start().await;
    browser.set_cookie(&visitor.base, SESSION, &visitor.cookie(SESSION).unwrap()).await;
    browser
}

/// Folder of the pictures of this run.
const PICTURES: &str = concat!(env!("CARGO_TARGET_TMPDIR"), "/console");

/// Checks the page that is open: it fits the window, runs nothing, and every field has a label.
async fn assert_sound(browser: &mut Browser, of: &str) {
    let facts = browser.evaluate(FACTS).await;
    let facts: serde_json::Value = serde_json::from_str(facts.as_str().unwrap()).unwrap();
    let expected = json!({"wide": false, "main": false, "active": 0, "nameless": 0, "aside": 0, "tall": 0, "styled": "flex"});
    assert_eq!(facts, expected, "{of}");
}

/// Pages of a tenant: a name for the picture, and the path.
fn pages((record, request): (&str, &str), tool: &str, key: &str) -> Vec<(&'static str, String)> {
    vec![
        ("overview", "/console".to_owned()),
        ("activity", "/console/activity".to_owned()),
        ("record", format!("/console/activity/{record}")),
        ("permissions", "/console/permissions".to_owned()),
        ("request", format!("/console/permissions?request={request}")),
        ("policy", "/console/policy".to_owned()),
        ("servers", "/console/servers".to_owned()),
        ("server", "/console/servers/up".to_owned()),
        ("tool", format!("/console/servers/up?tool={tool}")),
        ("offers", "/console/servers/up/offers".to_owned()),
        ("offer", format!("/console/servers/up/offers?kind=prompt&offer={tool}")),
        ("server settings", "/console/servers/up/settings".to_owned()),
        ("server log", "/console/servers/up/logs".to_owned()),
        ("server removal", "/console/servers/up/remove".to_owned()),
        ("tools to try", "/console/try".to_owned()),
        ("try", format!("/console/try?tool=up%3A{tool}")),
        ("people", "/console/people".to_owned()),
        ("rules", "/console/people/rules".to_owned()),
        ("settings", "/console/settings".to_owned()),
        ("keys", "/console/keys".to_owned()),
        ("key", format!("/console/keys/{key}")),
        ("key settings", format!("/console/keys/{key}/settings")),
        ("missing", "/console/servers/none".to_owned()),
    ]
}

/// A tenant as in `hostile`, where every tool was called by an agent, and waits. Returns the pages to look at.
async fn looked_at(stage: &Stage) -> (Tenant, Upstream, Vec<(&'static str, String)>) {
    let (tenant, upstream) = hostile(stage).await;
    let agent = tenant.key(&json!({"role": "agent", "owner": "o".repeat(100), "name": HOSTILE[0]})).await;
    for text in HOSTILE {
        let call = json!({"name": format!("up:{text}"), "args": {"x": text, "long": "y".repeat(900)}});
        Mcp::bare(&agent).call("call_tool_write", &call).await.refused("consent_pending");
    }
    let record = tenant.records("type=tool_call", HOSTILE.len()).await.remove(0);
    let tool: String = url::form_urlencoded::byte_serialize(HOSTILE[3].as_bytes()).collect();
    let (id, request) = (record["id"].as_str().unwrap(), record["consent_id"].as_str().unwrap());
    let pages = pages((id, request), &tool, &agent.id);
    (tenant, upstream, pages)
}

#[tokio::test]
async fn pages_hold_in_both_themes_at_every_width_and_run_nothing() {
    let stage = Stage::start().await;
    let (tenant, _upstream, pages) = looked_at(&stage).await;
    let visitor = Visitor::with_key(&stage.gateway, &tenant.admin().await).await;
    let mut browser = logged_in(&visitor).await;
    for scheme in ["light", "dark"] {
        browser.set_scheme(scheme).await;
        for width in [360, 768, 1280] {
            browser.resize(width).await;
            for (name, path) in &pages {
                browser.open(&format!("{}{path}", visitor.base)).await;
                let of = format!("{name}-{width}-{scheme}");
                assert_sound(&mut browser, &of).await;
                browser.picture(&Path::new(PICTURES).join(format!("{of}.png"))).await;
            }
        }
    }
    browser.close().await;
}

/// Places of the navigation: heights in lines, whether the open section and the number of requests are in sight (at 5 places), and the sections that stay out of sight with the focus.
/// Browsers take a link for seen of which they show a part.
const NAVIGATION: &str = "(() => {
    const seen = (link) => {
        const at = link.getBoundingClientRect();
        const places = [1, 8, at.width / 2, at.width - 8, at.width - 1].map(x => at.left + x);
        return places.filter(x => link.contains(document.elementFromPoint(x, at.y + at.height / 2))).length;
    };
    const lines = (name) => Math.floor(document.querySelector(name).getBoundingClientRect().height / 30);
    const counts = [...document.querySelectorAll('nav .count')].map(seen);
    const current = seen(document.querySelector('nav [aria-current]')) === 5;
    const hidden = [...document.querySelectorAll('nav a')].filter(link => { link.focus(); return seen(link) < 2; });
    document.activeElement.blur();
    return JSON.stringify({current, counts, nav: lines('nav'), header: lines('header'), hidden: hidden.map(link => link.textContent)});
})()";

#[tokio::test]
async fn sections_are_one_line_on_a_phone() {
    let stage = Stage::start().await;
    let (tenant, _upstream, _pages) = looked_at(&stage).await;
    let mut browser = Browser::start().await;
    for (role, owner) in [("admin", "o".repeat(100)), ("auditor", "ada".to_owned())] {
        let key = tenant.key(&json!({"role": role, "owner": owner})).await;
        let visitor = Visitor::with_key(&stage.gateway, &key).await;
        browser.set_cookie(&visitor.base, SESSION, &visitor.cookie(SESSION).unwrap()).await;
        let last = if role == "admin" { "settings" } else { "policy" };
        for (width, scheme) in [(360, "light"), (PHONE.0, "light"), (PHONE.0, "dark")] {
            browser.set_scheme(scheme).await;
            browser.resize(width).await;
            for section in ["activity", "permissions", last] {
                browser.open(&format!("{}/console/{section}", visitor.base)).await;
                let of = format!("navigation-{role}-{section}-{width}-{scheme}");
                browser.picture(&Path::new(PICTURES).join(format!("{of}.png"))).await;
                let facts = browser.evaluate(NAVIGATION).await;
                let facts: serde_json::Value = serde_json::from_str(facts.as_str().unwrap()).unwrap();
                let expected = json!({"current": true, "counts": [5], "nav": 1, "header": 2, "hidden": []});
                assert_eq!(facts, expected, "{of}");
                assert_sound(&mut browser, &of).await;
                assert_eq!(browser.audit().await, Vec::<String>::new(), "{of}");
            }
        }
    }
    browser.close().await;
}

#[tokio::test]
async fn the_keyboard_skips_the_navigation() {
    let stage = Stage::start().await;
    let tenant = stage.tenant("acme").await;
    let visitor = Visitor::with_key(&stage.gateway, &tenant.admin().await).await;
    let mut browser = logged_in(&visitor).await;
    browser.open(&format!("{}/console/activity", visitor.base)).await;
    browser.press("Tab").await;
    let focused = "(() => { const link = document.activeElement, at = link.getBoundingClientRect();
        return [link.textContent, at.width > 50 && at.top >= 0 && at.left >= 0]; })()";
    assert_eq!(browser.evaluate(focused).await, json!(["Skip to content", true]));
    browser.evaluate("document.activeElement.click()").await;
    browser.press("Tab").await;
    let inside = "document.querySelector('main').contains(document.activeElement)";
    assert_eq!(browser.evaluate(inside).await, json!(true));
    browser.close().await;
}

#[tokio::test]
async fn a_changed_definition_is_whole_on_a_phone() {
    let stage = Stage::start().await;
    let tenant = stage.tenant("acme").await;
    let titled = |title: &str| vec![Tool::annotated("t", &json!({"title": title.repeat(20)}).to_string())];
    let upstream = Upstream::handshake(titled("before ")).await;
    tenant.add("up", &upstream).await;
    upstream.set_tools(titled("after "));
    tenant.platform.post("/api/v1/servers/up/refresh", &json!({})).await.expect(200);
    let visitor = Visitor::with_key(&stage.gateway, &tenant.admin().await).await;
    let mut browser = logged_in(&visitor).await;
    browser.resize(PHONE.0).await;
    browser.open(&format!("{}/console/servers/up?tool=t", visitor.base)).await;
    assert_sound(&mut browser, "changed tool").await;
    let cells = "JSON.stringify([...document.querySelectorAll('.changes td')].map(cell => {
        const place = cell.getBoundingClientRect();
        return place.left >= 0 && place.right <= innerWidth && place.height > 0
            && cell.innerText.includes(cell.dataset.is === 'Now' ? 'after' : 'before');
    }))";
    assert_eq!(browser.evaluate(cells).await, "[true,true]");
    browser.close().await;
}

#[tokio::test]
async fn pages_can_be_used_without_eyes_or_mouse_in_every_role() {
    let stage = Stage::start().await;
    let (tenant, _upstream, pages) = looked_at(&stage).await;
    let mut browser = Browser::start().await;
    browser.resize(360).await;
    browser.open(&format!("{}/console/login", stage.gateway.url)).await;
    assert_eq!(browser.audit().await, Vec::<String>::new(), "login");
    browser.evaluate("document.querySelector('label').remove()").await;
    let found = browser.audit().await;
    assert!(found.iter().any(|found| found.starts_with("label: ")), "{found:?}");
    for (role, scheme) in [
        ("admin", "light"),
        ("admin", "dark"),
        ("agent", "light"),
        ("auditor", "dark"),
        ("approver", "light"),
    ] {
        let key = tenant.key(&json!({ "role": role })).await;
        let visitor = Visitor::with_key(&stage.gateway, &key).await;
        browser.set_cookie(&visitor.base, SESSION, &visitor.cookie(SESSION).unwrap()).await;
        browser.set_scheme(scheme).await;
        for (name, path) in &pages {
            browser.open(&format!("{}{path}", visitor.base)).await;
            let of = format!("{name} as {role}, {scheme}");
            assert_sound(&mut browser, &of).await;
            assert_eq!(browser.audit().await, Vec::<String>::new(), "{of}");
        }
        if role == "admin" {
            browser.open(&format!("{}/console/keys", visitor.base)).await;
            browser.evaluate("document.querySelector('#k-owner').value = 'ada'").await;
            browser.follow("document.querySelector('form[action^=\"/console/keys/create\"]').submit()").await;
            browser
                .evaluate("document.querySelectorAll('details').forEach(setup => setup.open = true)")
                .await;
            assert_sound(&mut browser, "new key").await;
            assert_eq!(browser.audit().await, Vec::<String>::new(), "new key");
        }
    }
    let platform = Visitor::with_key(&stage.gateway, &stage.platform()).await;
    browser.set_cookie(&platform.base, SESSION, &platform.cookie(SESSION).unwrap()).await;
    let issuer = json!({"name": "corp", "issuer": "https://127.0.0.1:1", "tenant": "acme"});
    stage.platform().post("/api/v1/issuers", &issuer).await;
    for path in ["tenants", "tenants/acme", "tenants/acme/suspend", "issuers"] {
        browser.open(&format!("{}/console/{path}", platform.base)).await;
        assert_sound(&mut browser, path).await;
        assert_eq!(browser.audit().await, Vec::<String>::new(), "{path}");
    }
    browser.close().await;
}

#[tokio::test]
async fn tables_of_a_policy_and_of_a_key_fit_a_phone() {
    let stage = Stage::start().await;
    let (tenant, _upstream) = hostile(&stage).await;
    let admin = tenant.key(&json!({"role": "admin", "owner": "o".repeat(100), "name": "laptop"})).await;
    let visitor = Visitor::with_key(&stage.gateway, &admin).await;
    let fields = [("version", "1"), ("mode", "deny_unless_allowed"), ("rules", "[]")];
    visitor.post("/console/policy/update", &fields).await.expect(303);
    let mut browser = logged_in(&visitor).await;
    browser.resize(PHONE.0).await;
    for (path, shown) in [
        ("/console/policy".to_owned(), ["Mode: ", "Rules: "]),
        (format!("/console/keys/{}", admin.id), ["Value: ", "Set for: "]),
    ] {
        browser.open(&format!("{}{path}", visitor.base)).await;
        let facts = browser
            .evaluate(
                "JSON.stringify([[...document.querySelectorAll('.scroll')].filter(s => s.scrollWidth > s.clientWidth).length,
                    [...document.querySelectorAll('[data-is]')].map(c => c.dataset.is + ': ')])",
            )
            .await;
        let (wide, heads): (usize, Vec<String>) = serde_json::from_str(facts.as_str().unwrap()).unwrap();
        assert_eq!(wide, 0, "{path}: {facts}");
        assert!(shown.iter().all(|head| heads.iter().any(|found| found == head)), "{path}: {facts}");
    }
    // the steps of an explanation
    browser.open(&format!("{}/console/policy", visitor.base)).await;
    let tool = json!(format!("up:{}", HOSTILE[1]));
    browser.evaluate(&format!("document.querySelector('#e-tool').value = {tool}")).await;
    browser.follow("document.querySelector('.filters button[formaction*=explain]').click()").await;
    let steps = "(() => { const table = document.querySelector('[aria-label=Steps]');
        return [table.scrollWidth <= table.clientWidth, table.querySelectorAll('[data-is=Layer]').length > 0,
            getComputedStyle(table.querySelector('thead')).display]; })()";
    assert_eq!(browser.evaluate(steps).await, json!([true, true, "none"]));
    browser.close().await;
}

#[tokio::test]
async fn an_approver_decides_with_a_click() {
    let stage = Stage::start().await;
    let (tenant, upstream) = hostile(&stage).await;
    let agent = tenant.agent().await;
    let call = json!({"name": format!("up:{}", HOSTILE[1]), "args": {}});
    let asked = async || Mcp::bare(&agent).call("call_tool_write", &call).await;
    let id = asked().await.refused("consent_pending")["consent_id"].clone();
    let eva = tenant.key(&json!({"role": "approver", "owner": "eva"})).await;
    let visitor = Visitor::with_key(&stage.gateway, &eva).await;
    let mut browser = logged_in(&visitor).await;
    browser.open(&format!("{}/console", visitor.base)).await;
    browser.follow("document.querySelector('nav a[href=\"/console/permissions\"]').click()").await;
    browser.follow("document.querySelector('button[value=allow_once]').click()").await;
    let place = browser.evaluate("location.pathname + location.search").await;
    assert_eq!(place, format!("/console/permissions?decided={}", id.as_str().unwrap()));
    let text = browser.evaluate("document.querySelector('main').innerText").await;
    assert!(text.as_str().unwrap().contains("Allowed once (agent"), "{text}");
    asked().await.ok();
    assert_eq!(upstream.counts().calls, 1);
    browser.close().await;
}

#[tokio::test]
async fn the_first_request_is_decided_on_a_phone_without_scrolling() {
    let stage = Stage::start().await;
    let (tenant, _upstream) = asking(&stage, json!([]), upstream::zoo()).await;
    let agent = tenant.key(&json!({"role": "agent", "owner": "robot", "name": "night run"})).await;
    let args = json!({"path": "/srv/website/index.html", "content": "y".repeat(3000)});
    let decided = asked(&agent, &json!({"path": "/srv/old"})).await;
    asked(&agent, &args).await;
    for role in ["approver", "admin"] {
        let visitor = Visitor::with_key(&stage.gateway, &tenant.key(&json!({ "role": role })).await).await;
        if role == "approver" {
            visitor.post(&decision_of(&decided), &[("decision", "reject_once")]).await.expect(303);
        }
        let mut browser = logged_in(&visitor).await;
        browser.resize(PHONE.0).await;
        for path in ["/console/permissions", &format!("/console/permissions?decided={decided}")] {
            browser.open(&format!("{}{path}", visitor.base)).await;
            browser.picture(&Path::new(PICTURES).join(format!("phone-{role}.png"))).await;
            let facts = browser.evaluate(CARD).await;
            let facts: serde_json::Value = serde_json::from_str(facts.as_str().unwrap()).unwrap();
            let of = |name: &str| facts[name].as_f64().unwrap_or_else(|| panic!("{name}: {facts}"));
            assert!(of("buttons") <= PHONE.1, "{path} as {role}: {facts}");
            assert!(of("arguments") < of("buttons") && of("shown") >= 60.0, "{path} as {role}: {facts}");
        }
        browser.close().await;
    }
}

/// The middle of the first button that allows.
const ALLOW: &str =
    "(() => { const at = document.querySelector('button[value=allow_once]').getBoundingClientRect();
    return [at.x + at.width / 2, at.y + at.height / 2]; })()";

#[tokio::test]
async fn a_tap_for_the_page_before_decides_nothing() {
    let stage = Stage::start().await;
    let (tenant, _upstream) = asking(&stage, json!([]), upstream::zoo()).await;
    let agent = tenant.agent().await;
    for n in 0..3 {
        asked(&agent, &json!({"n": n})).await;
    }
    let visitor = Visitor::with_key(&stage.gateway, &tenant.approver().await).await;
    let mut browser = logged_in(&visitor).await;
    browser.resize(PHONE.0).await;
    browser.open(&format!("{}/console/permissions", visitor.base)).await;
    let waiting = async || tenant.platform.items("/api/v1/consent?state=pending").await.len();
    let end = "document.getAnimations().forEach(moving => moving.finish())";
    let hold = "document.getAnimations().filter(moving => { moving.currentTime = 0; moving.pause(); return true; }).length";
    let place = async |browser: &mut Browser| {
        let found = browser.evaluate(ALLOW).await;
        (found[0].as_f64().unwrap(), found[1].as_f64().unwrap())
    };
    for left in [2, 1] {
        browser.evaluate(end).await;
        let at = place(&mut browser).await;
        browser.follow_click_at(at).await;
        assert_eq!(waiting().await, left);
        // the tap after it falls on a button that has just come
        let held = browser.evaluate(hold).await;
        assert!(held.as_i64().unwrap() > 0, "{held}");
        let at = place(&mut browser).await;
        let under = format!("document.elementFromPoint({}, {}).closest('button')", at.0, at.1);
        assert_eq!(browser.evaluate(&under).await, json!(null));
        browser.click_at(at).await;
        assert_eq!(browser.evaluate("location.search").await.as_str().unwrap().len(), "?decided=".len() + 36);
        assert_eq!(waiting().await, left);
    }
    browser.close().await;
}
