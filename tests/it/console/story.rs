//! A whole story in two real browsers, each at a replica of its own: a server is added, released and found, the call of an agent
//! waits, and somebody elsewhere allows it.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::live::{shows, shows_within};
use super::trial::set_policy;
use crate::clients::stacks::{HANDSHAKE_STACKS, asking};
use crate::support::{Api, Browser, Gateway, Mcp, Stage, Tool, Upstream};

/// A replica shows what another one has changed within this; the overview is asked for every 15 s.
const ELSEWHERE: Duration = Duration::from_secs(30);

/// A browser with its script, on the page of this path, where somebody has logged in by hand.
async fn logged_in(gateway: &Gateway, path: &str, who: &Api) -> Browser {
    let mut browser = Browser::start().await;
    browser.allow_scripts().await;
    log_in(&mut browser, gateway, path, who).await;
    browser
}

async fn log_in(browser: &mut Browser, gateway: &Gateway, path: &str, who: &Api) {
    browser.open(&format!("{}{path}", gateway.url)).await;
    browser.fill("#api_key", who.key.as_deref().unwrap()).await;
    browser.follow_key("Enter").await;
    assert_eq!(browser.evaluate("location.pathname + location.search").await, json!(path));
}

/// Clicks on the first link or button whose text begins so. It leads to another page.
async fn click(browser: &mut Browser, text: &str) {
    let found = format!(
        "[...document.querySelectorAll('a, button')].find(found => found.innerText.startsWith({text:?}))"
    );
    assert_eq!(browser.evaluate(&format!("!!{found}")).await, json!(true), "{text}: {}", read(browser).await);
    browser.follow(&format!("{found}.click()")).await;
}

/// Text of the page as somebody reads it.
async fn read(browser: &mut Browser) -> String {
    browser.evaluate("document.body.innerText").await.as_str().unwrap().to_owned()
}

#[track_caller]
fn assert_says(page: &str, texts: &[&str]) {
    for text in texts {
        assert!(page.contains(text), "{text}: {page}");
    }
}

/// A server as somebody would add it: what it deletes is gone.
async fn github() -> Upstream {
    Upstream::handshake(vec![Tool::reads("list_repos"), Tool::destroys("delete_repo")]).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_to_a_server_that_was_just_added_waits_and_is_allowed_in_another_browser() {
    let stage = Stage::start().await;
    let other = Gateway::start(&stage.database, &[]).await;
    let tenant = stage.tenant("acme").await;
    let rules = json!([{"id": "deletes", "effect": "ask", "match": {"tier": "destructive"}}]);
    set_policy(&tenant, "by_risk", rules).await;
    let person = async |role: &str, owner: &str| tenant.key(&json!({"role": role, "owner": owner})).await;
    let (olga, ana, eva) =
        (person("operator", "olga").await, person("admin", "ana").await, person("approver", "eva").await);
    let robot = person("agent", "robot").await;
    let upstream = github().await;

    // an operator adds a server; its page says what it offers, and that nobody can use it yet
    let mut left = logged_in(&stage.gateway, "/console/servers", &olga).await;
    left.fill("#s-name", "github").await;
    left.fill("#s-url", &upstream.url).await;
    click(&mut left, "Add it").await;
    assert_eq!(left.evaluate("location.pathname").await, json!("/console/servers/github"));
    assert_says(&read(&mut left).await, &["in quarantine", "connected", "delete_repo"]);
    let args = json!({"owner": "acme", "repo": "website-2019"});
    Mcp::bare(&robot).run("destructive", "github:delete_repo", &args).await.refused("server_quarantined");

    // an admin finds it among what waits, and releases it
    let mut right = logged_in(&other, "/console", &ana).await;
    let waits = "document.querySelector('main').innerText.includes('1 server in quarantine')";
    shows_within(ELSEWHERE, &mut right, waits, json!(true)).await;
    click(&mut right, "1 server in quarantine").await;
    click(&mut right, "Release from quarantine").await;
    assert_says(&read(&mut right).await, &["Read them first", "Keep it in quarantine"]);
    click(&mut right, "Release github from quarantine").await;
    assert_says(&read(&mut right).await, &["enabled", "connected"]);
    click(&mut right, "Log out").await;

    // the operator finds the tool, and reads what would become of a call
    click(&mut left, "Try").await;
    left.fill("#t-contains", "DELETE").await;
    let since = Instant::now();
    loop {
        click(&mut left, "Show").await;
        let found = read(&mut left).await;
        assert!(!found.contains("list_repos") && since.elapsed() < ELSEWHERE, "{found}");
        if found.contains("github:delete_repo") {
            break;
        }
    }
    click(&mut left, "github:delete_repo").await;
    assert_says(&read(&mut left).await, &["Tier: destructive", "This call would ask"]);

    // an approver waits at another replica for what an agent's call may need
    log_in(&mut right, &other, "/console/permissions", &eva).await;
    assert_says(&read(&mut right).await, &["Nothing waits for a person."]);
    right.evaluate("window.isTheSame = true").await;
    let call = json!({"name": "call_tool_destructive", "arguments": {"name": "github:delete_repo", "args": args,
        "intent_reason": "the new site is online"}});
    let (endpoint, steps) = (format!("{}/mcp", stage.gateway.url), json!([{ "call": call }]));
    // the client shows the question as well, to somebody who is not there
    let nobody = json!("never");
    let agent = asking(&HANDSHAKE_STACKS[1], Some(&nobody), &endpoint, &robot, &steps);
    let approver = async {
        shows(&mut right, "document.title", json!("(1) Permissions · mcpproxy")).await;
        shows(&mut right, "document.querySelectorAll('article.card').length", json!(1)).await;
        assert_eq!(right.evaluate("window.isTheSame").await, json!(true), "it came by itself");
        let card = read(&mut right).await;
        assert_says(
            &card,
            &[
                "Delete the repository acme/website-2019",
                "robot",
                "github:delete_repo",
                "deletes",
                "the new site is online",
            ],
        );
        // a list that has just moved sends nothing
        right.evaluate("window.seenAt = performance.now()").await;
        shows(&mut right, "performance.now() - seenAt > 1000", json!(true)).await;
        right.press("j").await;
        right.press("a").await;
        assert_eq!(upstream.counts().calls, 0);
        right.follow_key("Enter").await;
        read(&mut right).await
    };
    let (report, decided) = tokio::join!(agent, approver);
    assert_says(&decided, &["Allowed once", "website-2019", "(robot"]);
    let (result, asked) = (&report["steps"][0]["ok"], &report["asked"]);
    assert_eq!(asked.as_array().map(Vec::len), Some(1), "{report}");
    let echoed = result["content"][0]["text"].as_str().unwrap_or_else(|| panic!("{report}"));
    assert!(result["isError"] != true && echoed.contains("website-2019"), "{report}");
    assert_eq!(upstream.counts().calls, 1);

    // and the record says who did what
    click(&mut left, "Activity").await;
    let row = |tool: &str, who: &str| {
        format!(
            "[...document.querySelectorAll('tbody tr')].find(row => row.cells[2]?.innerText.split(' ')[0] === '{tool}' &&
                row.innerText.includes('success') && row.innerText.includes('{who}'))"
        )
    };
    let call = row("delete_repo", "robot");
    for row in [&row("servers.create", "olga"), &row("servers.unquarantine", "ana"), &call] {
        shows(&mut left, &format!("!!{row}"), json!(true)).await;
    }
    left.follow(&format!("{call}.querySelector('a').click()")).await;
    let record = read(&mut left).await;
    assert_says(
        &record,
        &[
            "github:delete_repo",
            "robot",
            "website-2019",
            "the new site is online",
            "Allowed by eva, over console",
        ],
    );
    let step = left.evaluate(&format!("{}.innerText", row("consent.decide", "eva"))).await;
    assert_ne!(step, Value::Null, "{record}");
    left.close().await;
    right.close().await;
}
