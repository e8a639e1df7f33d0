//! Checks of rules against the calls of the last week.

use reqwest::Method;
use serde_json::{Value, json};

use super::markup::{assert_harmless, attributes};
use crate::support::{Mcp, Stage, Tenant, Tool, Upstream, Visitor, upstream};

/// Numbers of calls that would have run, been asked about and been denied, and those of which nothing is known.
fn counts(page: &str) -> [i64; 4] {
    ["good\">run", "open\">asked", "bad\">denied", "held\">unknown"].map(|end| {
        let found = page.split(&format!(" <span class=\"tone {end}</span></li>")).next().unwrap();
        found.rsplit("<li>").next().unwrap().parse().unwrap_or_else(|_| panic!("{end}: {page}"))
    })
}

/// Numbers of calls that would have run only because their mode observes, with their outcome.
fn observed(page: &str) -> Vec<String> {
    let items = page.split("<li>").skip(1).filter_map(|item| item.split_once(" <span class=\"tone "));
    let items =
        items.filter_map(|(number, rest)| Some((number, rest.split_once('>')?.1.split_once("</span>")?.0)));
    items
        .filter(|(_, name)| name.starts_with("run, "))
        .map(|(number, name)| format!("{number} {name}"))
        .collect()
}

/// The rows of the list: tool, outcome, rule and number, without their elements.
fn rows(page: &str) -> Vec<String> {
    let Some((_, table)) = page.split_once("Calls that would not simply have run") else { return Vec::new() };
    let body = table.split("</tbody>").next().unwrap();
    let plain = |row: &str| {
        let texts = row.split("</td>").map(|cell| cell.rsplit('>').find(|text| !text.is_empty()));
        texts.map(|text| text.unwrap_or_default().split('<').next().unwrap().to_owned()).collect::<Vec<_>>()
    };
    body.split("<tr><td>").skip(1).map(|row| plain(row).join(" ").trim().to_owned()).collect()
}

async fn check(visitor: &Visitor, mode: &str, rules: &Value) -> String {
    let rules = rules.to_string();
    let page =
        visitor.post("/console/policy/check", &[("version", "0"), ("mode", mode), ("rules", &rules)]).await;
    page.expect(200);
    assert_harmless(&page.text);
    page.text
}

async fn scene(stage: &Stage, name: &str) -> (Tenant, Upstream) {
    let tenant = stage.tenant(name).await;
    let upstream = Upstream::handshake([upstream::zoo(), vec![Tool::reads("other")]].concat()).await;
    tenant.add("zoo", &upstream).await;
    (tenant, upstream)
}

#[tokio::test]
async fn past_calls_are_decided_by_other_rules_and_nothing_is_saved() {
    let stage = Stage::start().await;
    let (tenant, upstream) = scene(&stage, "acme").await;
    let (ada, bob) = (tenant.agent().await, tenant.agent().await);
    let client = Mcp::bare(&ada);
    for n in 0..3 {
        client.run("read", "zoo:reader", &json!({"n": n})).await.ok();
    }
    client.run("write", "zoo:writer", &json!({"n": 5})).await.ok();
    client.run("destructive", "zoo:wiper", &json!({})).await.ok();
    Mcp::bare(&bob).run("read", "zoo:other", &json!({})).await.ok();
    // refused before any policy is asked
    client.run("read", "zoo:wiper", &json!({})).await.refused("server_mismatch");
    tenant.records("type=tool_call", 7).await;
    let visitor = Visitor::with_key(&stage.gateway, &tenant.auditor().await).await;
    let ran = upstream.counts().calls;

    let none = check(&visitor, "always_allow", &json!([])).await;
    assert_eq!((counts(&none), rows(&none).len()), ([6, 0, 0, 0], 0), "{none}");
    assert!(none.contains("The 0 rules can be read."), "{none}");
    let rules = json!([
        {"id": "no-other", "effect": "deny", "match": {"tool": "zoo:other"}},
        {"id": "many", "effect": "ask", "match": {"tool": "zoo:writer"}, "when": "args.n > 2"},
        {"id": "wipes", "effect": "ask", "match": {"tier": "destructive"}},
        {"id": "gone", "effect": "deny", "match": {"tool": "zoo:rader"}},
    ]);
    let page = check(&visitor, "always_allow", &rules).await;
    assert_eq!(counts(&page), [3, 1, 1, 1], "{page}");
    let mut found = rows(&page);
    found.sort();
    assert_eq!(
        found,
        ["zoo:other denied no-other 1", "zoo:wiper asked wipes 1", "zoo:writer unknown many 1"]
    );
    assert!(page.contains("did you mean &#39;zoo:reader&#39;?"), "warnings of the rules: {page}");
    assert!(attributes(&page, "href").contains(&"/console/activity?tool=zoo%3Awiper".to_owned()), "{page}");
    // in mode observe they run, but for what enforced rules say
    for mode in ["observe", ""] {
        let page = check(&visitor, mode, &rules).await;
        assert_eq!(counts(&page), [3, 0, 0, 1], "{page}");
        assert_eq!(observed(&page), ["1 run, and would be asked", "1 run, and would be denied"], "{page}");
        assert!(page.contains("the mode of their key is observe"), "{page}");
    }
    // no rule decides, and the mode stands for the risk
    let by_risk = rows(&check(&visitor, "observe", &json!([])).await);
    assert!(
        by_risk.contains(&"zoo:wiper run, and would be asked risk, as in by_risk 1".to_owned()),
        "{by_risk:?}"
    );
    let enforced =
        json!([{"id": "no-other", "effect": "deny", "match": {"tool": "zoo:other"}, "enforced": true}]);
    let page = check(&visitor, "observe", &enforced).await;
    assert_eq!(counts(&page)[2], 1, "{page}");
    let asking = check(&visitor, "always_ask", &json!([])).await;
    let lines = rows(&asking);
    assert!(!lines.is_empty() && lines.iter().all(|row| row.contains("asked mode always_ask ")), "{asking}");
    assert!(observed(&asking).is_empty() && !asking.contains("is observe"), "{asking}");
    // the mode of the form holds for keys without one of their own
    assert_eq!(counts(&check(&visitor, "deny_unless_allowed", &json!([])).await), [0, 0, 6, 0]);
    let path = format!("/api/v1/keys/{}/settings", bob.id);
    tenant
        .platform
        .ask(Method::PATCH, &path, Some(&json!({"policy_mode": "always_allow"})))
        .await
        .expect(200);
    assert_eq!(counts(&check(&visitor, "always_ask", &json!([])).await), [1, 5, 0, 0]);
    // a mode of its own holds for a key, whatever the tenant observes
    assert_eq!(counts(&check(&visitor, "observe", &rules).await)[2], 1);
    // and rules of the key count with those of the form
    let own = json!({"version": 0, "rules": [{"id": "own", "effect": "deny"}]});
    tenant
        .platform
        .ask(Method::PUT, &format!("/api/v1/keys/{}/policy", bob.id), Some(&own))
        .await
        .expect(200);
    let page = check(&visitor, "always_ask", &json!([])).await;
    assert_eq!(counts(&page), [0, 5, 1, 0]);
    assert!(rows(&page).contains(&"zoo:other denied own, of a key&#39;s own rules 1".to_owned()), "{page}");

    let policy = tenant.platform.get("/api/v1/policy").await.expect(200);
    assert_eq!((&policy["version"], &policy["mode"]), (&json!(0), &json!("observe")), "nothing was saved");
    assert_eq!(upstream.counts().calls, ran, "and nothing was run");
    // calls of another tenant are its own
    let (other, _zoo) = scene(&stage, "other").await;
    let stranger = Visitor::with_key(&stage.gateway, &other.admin().await).await;
    assert_eq!(counts(&check(&stranger, "always_ask", &json!([])).await), [0; 4]);
}

#[tokio::test]
async fn times_of_rules_count() {
    let stage = Stage::start().await;
    let (tenant, _upstream) = scene(&stage, "acme").await;
    let agent = tenant.agent().await;
    for _ in 0..2 {
        Mcp::bare(&agent).run("read", "zoo:reader", &json!({})).await.ok();
    }
    tenant.records("type=tool_call", 2).await;
    let visitor = Visitor::with_key(&stage.gateway, &tenant.auditor().await).await;
    // hours around the calls, and those twelve hours from them
    let record = tenant.records("type=tool_call", 2).await.remove(0);
    let at = chrono::DateTime::parse_from_rfc3339(record["started_at"].as_str().unwrap()).unwrap().to_utc();
    let window = |hours: i64| {
        let hour = |at: chrono::DateTime<chrono::Utc>| at.format("%H:00").to_string();
        let start = at + chrono::TimeDelta::hours(hours);
        let time = json!({"from": hour(start - chrono::TimeDelta::hours(1)), "to": hour(start + chrono::TimeDelta::hours(2))});
        json!([{"id": "t", "effect": "deny", "match": {"time": time}}])
    };
    assert_eq!(counts(&check(&visitor, "always_allow", &window(0)).await), [0, 0, 2, 0]);
    assert_eq!(counts(&check(&visitor, "always_allow", &window(12)).await), [2, 0, 0, 0]);
    let on = |days: i64| {
        let day = (at + chrono::TimeDelta::days(days)).format("%a").to_string().to_lowercase();
        json!([{"id": "t", "effect": "deny", "match": {"time": {"days": [day]}}}])
    };
    assert_eq!(counts(&check(&visitor, "always_allow", &on(0)).await), [0, 0, 2, 0]);
    assert_eq!(counts(&check(&visitor, "always_allow", &on(-1)).await), [2, 0, 0, 0]);
    // rules of a key with times cannot be told without them
    let body = json!({"version": 0, "rules": window(0)});
    tenant
        .platform
        .ask(Method::PUT, &format!("/api/v1/keys/{}/policy", agent.id), Some(&body))
        .await
        .expect(200);
    assert_eq!(counts(&check(&visitor, "always_allow", &json!([])).await), [0, 0, 0, 2]);
}
