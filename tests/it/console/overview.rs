//! The first page: calls of the last hour, and what is for a person to do.

use std::time::Duration;

use serde_json::json;

use super::markup::{HOSTILE, assert_harmless, attributes, escaped};
use crate::support::upstream::Say;
use crate::support::{Gateway, Mcp, Stage, Tool, Upstream, Visitor, settle, upstream};

const SOON: Duration = Duration::from_secs(10);

/// The numbers of the legend, in its order: succeeded, cancelled or under way, refused, failed.
fn legend(page: &str) -> Vec<i64> {
    let items = page.split("class=\"legend\"").nth(1).unwrap_or_default().split("</ul>").next().unwrap();
    let numbers = items.split("<li").skip(1).filter_map(|item| item.split('>').nth(1));
    numbers.map(|item| item.split(' ').next().unwrap().parse().unwrap()).collect()
}

/// The sums of the columns of the table of minutes, in the order of the legend.
fn columns(page: &str) -> Vec<i64> {
    let rows = page.split("<tr><th scope=\"row\">").skip(1);
    let cells = rows.map(|row| row.split("</tr>").next().unwrap().split("<td>").skip(1));
    cells.fold(vec![0; 4], |sums, cells| {
        let numbers = cells.map(|cell| cell.split('<').next().unwrap().parse::<i64>().unwrap());
        sums.into_iter().zip(numbers).map(|(sum, number)| sum + number).collect()
    })
}

#[tokio::test]
async fn calls_of_the_hour_are_counted_by_outcome() {
    let stage = Stage::start().await;
    let tenant = stage.tenant("acme").await;
    let failing =
        Tool::reads("failing").says(Say::Result(json!({"content": [], "isError": true}).to_string()));
    let upstream = Upstream::handshake([upstream::zoo(), vec![failing]].concat()).await;
    tenant.add("zoo", &upstream).await;
    let (ada, bob) = (tenant.agent().await, tenant.agent().await);
    let admin = tenant.admin().await;
    let visitor = Visitor::with_key(&stage.gateway, &admin).await;
    // another tenant, as the calls of an hour are kept for some seconds
    let idle = stage.tenant("idle").await;
    idle.add("zoo", &upstream).await;
    let watcher = Visitor::with_key(&stage.gateway, &idle.auditor().await).await;
    let known = async || !watcher.get("/console").await.text.contains("not known yet");
    settle(true, SOON, known).await;
    let empty = watcher.get("/console").await;
    empty.expect(200);
    for shown in
        ["No tool was called in the last hour.", "every enabled server is connected", "no tool to review"]
    {
        assert!(empty.text.contains(shown), "{shown}: {}", empty.text);
    }
    let client = Mcp::session(&ada).await;
    for _ in 0..3 {
        client.run("read", "zoo:reader", &json!({})).await.ok();
    }
    client.run("read", "zoo:wiper", &json!({})).await.refused("server_mismatch");
    client.run("read", "zoo:failing", &json!({})).await;
    Mcp::session(&bob).await.run("write", "zoo:writer", &json!({})).await.ok();
    tenant.records("type=tool_call", 6).await;
    let page = visitor.get("/console").await.text;
    assert_eq!(legend(&page), [4, 0, 1, 1], "{page}");
    assert_eq!(columns(&page), [4, 0, 1, 1], "{page}");
    assert_harmless(&page);
    assert!(page.contains("role=\"img\" aria-label=\"Calls of each minute"), "{page}");
    let links = attributes(&page, "href");
    let reader = links.iter().position(|link| link == "/console/activity?server=zoo&tool=reader");
    let wiper = links.iter().position(|link| link == "/console/activity?server=zoo&tool=wiper");
    assert!(reader.is_some() && reader < wiper, "the most called tool comes first: {links:?}");
    let slowest = page.split("<h3>Slowest tools</h3>").nth(1).unwrap();
    assert!(
        slowest.contains("zoo:reader") && !slowest.contains("zoo:wiper"),
        "refused calls took no time: {slowest}"
    );
    // an agent sees the calls of its own key
    let own = Visitor::with_key(&stage.gateway, &bob).await.get("/console").await.text;
    assert_eq!(legend(&own), [1, 0, 0, 0], "{own}");
    assert!(
        own.contains("Calls of your key in the last hour") && !own.contains("Servers in trouble"),
        "{own}"
    );
    // an approver sees no calls, and another tenant none of these
    let approver =
        Visitor::with_key(&stage.gateway, &tenant.approver().await).await.get("/console").await.text;
    assert!(
        approver.contains("What waits for a person") && !approver.contains("the last hour"),
        "{approver}"
    );
    // and what was counted once is shown to all for some seconds
    client.run("read", "zoo:reader", &json!({})).await.ok();
    tenant.records("type=tool_call", 7).await;
    let auditor = Visitor::with_key(&stage.gateway, &tenant.auditor().await).await;
    assert_eq!(legend(&auditor.get("/console").await.text), [4, 0, 1, 1]);
    let other = stage.tenant("other").await.admin().await;
    let stranger = Visitor::with_key(&stage.gateway, &other).await.get("/console").await.text;
    assert!(stranger.contains("No tool was called") && !stranger.contains("zoo"), "{stranger}");
    // the platform operator is in no tenant
    let platform = Visitor::with_key(&stage.gateway, &stage.platform()).await.get("/console").await;
    platform.expect(200);
    assert!(!platform.text.contains("<h1>Overview"), "{platform:?}");
}

#[tokio::test]
async fn what_is_for_a_person_to_do_is_named() {
    let stage = Stage::start().await;
    let tenant = stage.tenant("acme").await;
    let visitor = Visitor::with_key(&stage.gateway, &tenant.auditor().await).await;
    let upstream = Upstream::handshake(vec![Tool::reads("t")]).await;
    tenant.add("up", &upstream).await;
    tenant.add("shut", &upstream).await;
    tenant.platform.post("/api/v1/servers/shut/quarantine", &json!({})).await.expect(200);
    upstream.set_tools(vec![Tool::writes("t")]);
    tenant.platform.post("/api/v1/servers/up/refresh", &json!({})).await.expect(200);
    let gone = json!({"name": "gone", "kind": "http", "url": "http://127.0.0.1:9/mcp"});
    tenant.platform.post("/api/v1/servers", &gone).await.expect(201);
    let shown = async || {
        let page = visitor.get("/console").await.text;
        [
            "1 tool to review",
            "1 server in quarantine",
            "/console/servers/gone\">gone</a> <span class=\"tone bad\">not connected",
        ]
        .map(|part| page.contains(part))
    };
    settle([true; 3], SOON, shown).await;
    let page = visitor.get("/console").await.text;
    let (waits, trouble) = page.split_once("Servers in trouble").unwrap();
    for link in [
        "up?state=waiting#tools\">1 tool to review",
        "up?state=waiting#tools\">up<",
        "shut\">1 server in quarantine",
    ] {
        assert!(waits.contains(&format!("<a href=\"/console/servers/{link}")), "{link}: {waits}");
    }
    let error = tenant.platform.get("/api/v1/servers/gone").await.expect(200)["last_error"].clone();
    let reason = format!("not connected</span> {}", escaped(error.as_str().unwrap()));
    assert!(trouble.contains(&reason), "{reason}: {trouble}");
    assert!(
        !trouble.contains("/console/servers/up\""),
        "a server that is connected is in no trouble: {page}"
    );
}

#[tokio::test]
async fn hostile_names_stay_names_in_the_overview() {
    let stage = Stage::start().await;
    let tenant = stage.tenant("acme").await;
    let tool = |text: &&str| {
        let definition =
            json!({"name": text, "inputSchema": {"type": "object"}, "annotations": {"readOnlyHint": true}});
        Tool::raw(text, &definition.to_string())
    };
    let upstream = Upstream::handshake(HOSTILE.iter().map(tool).collect()).await;
    tenant.add("up", &upstream).await;
    let agent = tenant.agent().await;
    let visitor = Visitor::with_key(&stage.gateway, &tenant.admin().await).await;
    for text in HOSTILE {
        let call = json!({"name": format!("up:{text}"), "args": {}});
        Mcp::bare(&agent).call("call_tool_read", &call).await;
    }
    tenant.records("type=tool_call", HOSTILE.len()).await;
    let page = visitor.get("/console").await.text;
    assert_harmless(&page);
    let shown = HOSTILE.iter().filter(|text| page.contains(&format!(">up:{}<", escaped(text)))).count();
    assert!(shown >= 5, "{shown}: {page}");
}

#[tokio::test]
async fn what_is_not_counted_is_not_said_to_be_nothing() {
    let stage = Stage::start().await;
    let tenant = stage.tenant("acme").await;
    let upstream = Upstream::handshake(upstream::zoo()).await;
    tenant.add("zoo", &upstream).await;
    let version = tenant.platform.get("/api/v1/policy").await.expect(200)["version"].clone();
    let body = json!({"version": version, "mode": "always_ask", "rules": []});
    tenant.platform.ask(reqwest::Method::PUT, "/api/v1/policy", Some(&body)).await.expect(200);
    let (ada, bob) = (tenant.agent().await, tenant.agent().await);
    Mcp::bare(&ada).run("write", "zoo:writer", &json!({})).await.refused("consent_pending");
    // an agent's own request, and nobody else's
    let [ada, bob, auditor] = [
        Visitor::with_key(&stage.gateway, &ada).await,
        Visitor::with_key(&stage.gateway, &bob).await,
        Visitor::with_key(&stage.gateway, &tenant.auditor().await).await,
    ];
    let (waits, nothing) = ("1 permission request<", "Nothing: no permission request");
    let page = ada.get("/console").await.text;
    assert!(page.contains(waits) && !page.contains(nothing), "{page}");
    let page = bob.get("/console").await.text;
    assert!(!page.contains(waits) && page.contains(nothing), "{page}");
    // a replica that could not count yet
    let renamed = |from: &'static str, to: &'static str| {
        let statement = format!("alter table {from} rename to {to}");
        async {
            sqlx::raw_sql(sqlx::AssertSqlSafe(statement)).execute(&mut stage.database.connect().await).await
        }
    };
    renamed("consent_requests", "away").await.unwrap();
    let next = Gateway::start(&stage.database, &[]).await;
    for visitor in [&ada, &bob, &auditor] {
        let page = visitor.at(&next).get("/console").await.text;
        assert!(page.contains("Permission requests: not known yet") && !page.contains("Nothing"), "{page}");
    }
    renamed("away", "consent_requests").await.unwrap();
    let counted = async || auditor.at(&next).get("/console").await.text.contains(waits);
    settle(true, SOON, counted).await;
}
