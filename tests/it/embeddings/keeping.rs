//! Vectors are made once, by one replica, and kept per tenant for as long as their definitions.

use super::{SOON, helped, stage};
use crate::support::{Gateway, Tool, Upstream, settle};

const ROWS: &str = "select count(*) from tool_embeddings";

#[tokio::test]
async fn each_tenants_definitions_are_sent_once() {
    let (embedder, mut stage, tenant, upstream) = stage().await;
    let mut settings = embedder.settings().to_vec();
    settings.push(("MCPPROXY__LIMITS__RETENTION_INTERVAL_S", "1"));
    let other = Gateway::start(&stage.database, &settings).await;
    let second = stage.tenant("umbrella").await;
    second.add("theirs", &upstream).await;
    let (agent, hers) = (tenant.agent().await, second.agent().await);
    for agent in [&agent, &hers] {
        helped(agent, "qqxy").await;
        helped(&other.ask_as(agent), "qqxy").await;
    }
    assert_eq!(stage.database.count(ROWS).await, 4, "rows of their own");
    let sent = || {
        let of = |text| embedder.texts().get(text).copied();
        (
            of("widget one. The tool widget_one of the test server"),
            of("widget two. The tool widget_two of the test server"),
        )
    };
    assert_eq!(sent(), (Some(2), Some(2)), "once for each tenant");

    // a replica that starts has them, and makes none anew
    stage.gateway.kill();
    // its leases are free at once, not in 10 s
    sqlx::raw_sql("update replicas set stopped_at = now()")
        .execute(&mut stage.database.connect().await)
        .await
        .unwrap();
    stage.gateway = Gateway::start(&stage.database, &settings).await;
    helped(&stage.gateway.ask_as(&agent), "qqxy").await;
    assert_eq!(sent(), (Some(2), Some(2)));

    // nothing stays of what is gone, and nothing of it is sent again
    let before = embedder.requests().len();
    let platform = stage.gateway.ask_as(&tenant.platform);
    platform.delete("/api/v1/servers/up").await.expect(204);
    settle(2, SOON, || stage.database.count(ROWS)).await;
    stage.gateway.platform().delete("/api/v1/tenants/umbrella").await.expect(204);
    settle(0, SOON, || stage.database.count(ROWS)).await;
    assert_eq!(embedder.requests().len(), before);
    let log = stage.gateway.log();
    assert!(!log.contains("got no vectors"), "{log}");
}

#[tokio::test]
async fn nothing_stays_without_the_service() {
    let (_embedder, mut stage, tenant, _upstream) = stage().await;
    let agent = tenant.agent().await;
    helped(&agent, "qqxy").await;
    let more = Upstream::handshake(vec![Tool::new("widget_three")]).await;
    tenant.add("more", &more).await;
    settle(3, SOON, || stage.database.count(ROWS)).await;
    stage.gateway.kill();
    sqlx::raw_sql("update replicas set stopped_at = now()")
        .execute(&mut stage.database.connect().await)
        .await
        .unwrap();
    let often =
        [("MCPPROXY__LIMITS__RETENTION_INTERVAL_S", "1"), ("MCPPROXY__EGRESS__ALLOW", "127.0.0.1/32")];
    stage.gateway = Gateway::start(&stage.database, &often).await;
    let platform = stage.gateway.ask_as(&tenant.platform);
    platform.delete("/api/v1/servers/up").await.expect(204);
    settle(1, SOON, || stage.database.count(ROWS)).await;
    // the others are for a way back, for a day
    sqlx::raw_sql(
        "update replicas set heartbeat_at = now() - interval '25 hours' where stopped_at is not null",
    )
    .execute(&mut stage.database.connect().await)
    .await
    .unwrap();
    settle(0, SOON, || stage.database.count(ROWS)).await;
}
