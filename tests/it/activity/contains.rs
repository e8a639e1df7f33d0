//! Search for a text in arguments and results: no index holds them, so it is bounded in time.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::support::upstream::Tool;
use crate::support::{Mcp, Stage, Upstream, cli};

#[tokio::test]
async fn texts_are_found_in_arguments_and_results() {
    let stage = Stage::start().await;
    let tenant = stage.tenant("acme").await;
    let result = r#"{"content":[{"type":"text","text":"Ticket PAY-17 was closed"}]}"#;
    let upstream = Upstream::handshake(vec![Tool::reads("look").returns(result), Tool::new("plain")]).await;
    tenant.add("up", &upstream).await;
    let (agent, other) = (tenant.agent().await, tenant.agent().await);
    let client = Mcp::bare(&agent);
    client.run("read", "up:look", &json!({})).await.ok();
    for text in ["PAY-17", "pay-18", "100%"] {
        client.run("write", "up:plain", &json!({"text": text})).await.ok();
    }
    tenant.records(&format!("key={}", agent.id), 4).await;
    for (query, count) in [
        ("contains=PAY-17", 2),
        ("contains=pay-1", 3),
        ("contains=pay-1&not_read=true", 2),
        ("contains=Ticket", 1),
        ("contains=100%25", 1),
        // no patterns
        ("contains=PAY%25", 0),
        ("contains=pay_17", 0),
    ] {
        let found = tenant.platform.get(&format!("/api/v1/activity?{query}")).await.expect(200);
        let items = found["items"].as_array().unwrap();
        assert_eq!(items.len(), count, "{query}: {found}");
        assert!(found["next_cursor"].is_null() && found["searched_to"].is_string(), "{query}: {found}");
        let times: Vec<&str> = items.iter().map(|item| item["started_at"].as_str().unwrap()).collect();
        assert!(times.is_sorted_by(|newer, older| newer >= older), "{query}: {times:?}");
    }
    // page by page, each record once
    let (mut seen, mut cursor) = (Vec::new(), String::new());
    loop {
        let page = tenant.platform.get(&format!("/api/v1/activity?contains=pay-1&limit=1{cursor}")).await;
        let page = page.expect(200);
        seen.extend(page["items"].as_array().unwrap().iter().map(|item| item["id"].clone()));
        let Some(next) = page["next_cursor"].as_str() else { break };
        cursor = format!("&cursor={next}");
    }
    let whole = tenant.platform.items("/api/v1/activity?contains=pay-1").await;
    assert_eq!(seen, whole.iter().map(|item| item["id"].clone()).collect::<Vec<_>>());
    // an agent searches its own records
    assert_eq!(agent.items("/api/v1/activity?contains=pay-1").await.len(), 3);
    assert_eq!(other.items("/api/v1/activity?contains=pay-1").await, [Value::Null; 0]);
    let shown = cli(&agent, &["activity", "list", "--contains", "pay-17"]).await.ok();
    assert_eq!(shown.rows().len(), 2, "{shown:?}");
    let long = "x".repeat(201);
    for (path, query) in
        [("", format!("contains={long}")), ("", "contains=".to_owned()), ("/export", "contains=x".to_owned())]
    {
        let refused = agent.get(&format!("/api/v1/activity{path}?{query}")).await;
        assert_eq!(refused.expect(400)["error"]["field"], "contains", "{refused:?}");
    }
}

/// Records whose texts take long to search, and one among the oldest that is found in the end.
#[tokio::test(flavor = "multi_thread")]
async fn a_long_search_says_how_far_it_came() {
    const RECORDS: i64 = 20_000;
    let stage = Stage::start().await;
    let tenant = stage.tenant("acme").await;
    let auditor = tenant.auditor().await;
    let needle = format!("y{}", "x".repeat(150));
    let fill = "insert into activity (tenant_id, started_at, id, replica_id, type, source, status, response)
         select tenant_id, at, (lpad(to_hex((extract(epoch from at) * 1000)::bigint), 12, '0') || left(md5(n::text), 20))::uuid,
             gen_random_uuid(), 'tool_call', 'mcp', 'success',
             case when n = $1 then $2 else '' end || repeat('x', 4000)
         from (select t.tenant_id, n, date_trunc('milliseconds', now()) - make_interval(secs => n / 1000.0) as at
             from tenants t, generate_series(1, $1) n where t.name = 'acme') filled";
    let mut connection = stage.database.connect().await;
    sqlx::query(fill).bind(RECORDS).bind(&needle).execute(&mut connection).await.unwrap();
    let path = format!("/api/v1/activity?contains={needle}");
    let (mut pages, mut cursor, mut found) = (0, String::new(), Vec::new());
    let mut reached = String::from("9");
    loop {
        let began = Instant::now();
        let page = auditor.get(&format!("{path}{cursor}")).await.expect(200);
        assert!(began.elapsed() < Duration::from_secs(5), "{:?}", began.elapsed());
        pages += 1;
        let to = page["searched_to"].as_str().unwrap().to_owned();
        assert!(to < reached, "{to} after {reached}");
        reached = to;
        found.extend(page["items"].as_array().unwrap().clone());
        let Some(next) = page["next_cursor"].as_str() else { break };
        cursor = format!("&cursor={next}");
    }
    assert!(pages > 1 && found.len() == 1, "{pages} pages, {}", found.len());
}
