//! The log of a server: on every replica, without secrets, bounded.

use serde_json::json;

use super::{SOON, log, stage, text};
use crate::support::{Gateway, Stage, cli, eventually};

#[tokio::test]
async fn another_replica_shows_it_without_secrets_and_control_characters() {
    let (stage, tenant, client) = stage(&[]).await;
    let other = Gateway::start(&stage.database, &[]).await;
    let there = other.ask_as(&tenant.platform);
    let said = "\u{1b}[31mred\u{1b}[0m key=sk_live_0123456789abcdefABCDEF \u{7}end";
    text(&client, "say", json!({ "text": said })).await;
    let lines = eventually("the line", SOON, || async {
        let lines = log(&there).await;
        lines.iter().any(|line| line.starts_with("red key=[redacted]")).then_some(lines)
    })
    .await;
    assert!(lines.iter().any(|line| line.starts_with("started, process ")), "{lines:?}");
    assert!(lines.iter().any(|line| line.contains("connected, handshake era")), "{lines:?}");

    // from the end on
    let page = there.get("/api/v1/servers/up/logs?limit=1").await.expect(200);
    assert_eq!(page["items"][0]["source"], "stderr", "{page}");
    let next = format!("/api/v1/servers/up/logs?cursor={}", page["next_cursor"].as_str().unwrap());
    assert_eq!(there.get(&next).await.expect(200)["items"], json!([]));
    text(&client, "say", json!({"text": "later"})).await;
    let items = eventually("the next line", SOON, || async {
        let items = there.get(&next).await.expect(200)["items"].clone();
        (items != json!([])).then_some(items)
    })
    .await;
    assert_eq!((&items[0]["line"], items.as_array().unwrap().len()), (&json!("later"), 1));
    there.get("/api/v1/servers/up/logs?cursor=x").await.expect(400);
    there.get("/api/v1/servers/up/logs?limit=501").await.expect(400);

    let shown = cli(&there, &["upstream", "logs", "up", "-n", "2"]).await.ok();
    assert_eq!(shown.out.lines().count(), 2, "{shown:?}");
    assert!(shown.out.lines().last().unwrap().ends_with("stderr   later"), "{shown:?}");
    let globex = stage.tenant("globex").await;
    globex.platform.get("/api/v1/servers/up/logs").await.refused(404, "not_found");
    tenant.auditor().await.get("/api/v1/servers/up/logs").await.refused(403, "forbidden");
    assert_bounded(&stage).await;
    tenant.platform.delete("/api/v1/servers/up").await.expect(204);
    eventually("no line is left", SOON, || async {
        let mut connection = stage.database.connect().await;
        let left: i64 =
            sqlx::query_scalar("select count(*) from server_logs").fetch_one(&mut connection).await.unwrap();
        (left == 0).then_some(())
    })
    .await;
}

async fn assert_bounded(stage: &Stage) {
    let mut connection = stage.database.connect().await;
    let (lines, bytes): (i64, i64) =
        sqlx::query_as("select count(*), coalesce(sum(octet_length(line)), 0) from server_logs")
            .fetch_one(&mut connection)
            .await
            .unwrap();
    assert!(lines <= 500 && bytes <= 128 * 1024, "{lines} lines, {bytes} bytes");
}

#[tokio::test]
async fn a_flood_hurts_nobody() {
    let (stage, tenant, client) = stage(&[]).await;
    // 20 MB
    assert_eq!(text(&client, "flood", json!({"lines": 20_000})).await, "flooded");
    let lines = eventually("the flood's end", SOON, || async {
        let lines = log(&tenant.platform).await;
        lines.iter().any(|line| line.contains("lines are left out here")).then_some(lines)
    });
    text(&client, "say", json!({"text": "after"})).await;
    assert!(lines.await.len() <= 500);
    assert_bounded(&stage).await;
    assert!(stage.gateway.memory_peak_mib() < 200, "{} MiB", stage.gateway.memory_peak_mib());
}
