//! Pages, without loss or repeats, while records arrive.

use std::collections::HashSet;

use serde_json::{Value, json};

use crate::support::{Mcp, Stage, Upstream, upstream};

#[tokio::test]
async fn every_record_is_on_exactly_one_page() {
    const COUNT: usize = 60;
    let stage = Stage::start().await;
    let tenant = stage.tenant("acme").await;
    let upstream = Upstream::handshake(upstream::zoo()).await;
    tenant.add("zoo", &upstream).await;
    let agent = tenant.agent().await;
    let run = async |count: usize| {
        let calls = (0..count).map(|n| {
            let (client, variant) = (Mcp::bare(&agent), if n % 2 == 0 { "read" } else { "write" });
            let name = if n % 2 == 0 { "zoo:reader" } else { "zoo:writer" };
            tokio::spawn(async move { client.run(variant, name, &json!({})).await.ok() })
        });
        for call in calls.collect::<Vec<_>>() {
            call.await.unwrap();
        }
    };
    run(COUNT).await;
    let expected: HashSet<String> = ids(&tenant.records("type=tool_call", COUNT).await);
    for limit in [1, 7, 59, 60, 61, 100] {
        let mut seen = Vec::new();
        let mut cursor = String::new();
        let mut pages = 0;
        loop {
            // what arrives meanwhile is newer than every cursor
            if pages == 1 && limit == 7 {
                run(5).await;
            }
            let path = format!("/api/v1/activity?type=tool_call&limit={limit}{cursor}");
            let page = tenant.platform.get(&path).await.expect(200);
            let items = page["items"].as_array().unwrap().clone();
            assert!(items.len() <= limit, "{}", items.len());
            pages += 1;
            seen.extend(items);
            match page["next_cursor"].as_str() {
                Some(next) => cursor = format!("&cursor={next}"),
                None => break,
            }
        }
        let unique = ids(&seen);
        assert_eq!(unique.len(), seen.len(), "limit {limit}: a record came twice");
        assert!(unique.is_superset(&expected), "limit {limit}: a record was lost");
        if limit > 7 {
            tenant.records("type=tool_call", COUNT + 5).await;
        }
    }
}

fn ids(records: &[Value]) -> HashSet<String> {
    records.iter().map(|record| record["id"].as_str().unwrap().to_owned()).collect()
}
