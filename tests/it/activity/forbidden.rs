//! Acts that a key may not do: the first ten of a minute leave a record each, the others a count.

use serde_json::{Value, json};

use crate::support::{Api, Gateway, Stage, Tool, Upstream};

/// Stops the gateway, which writes what was only counted, and returns all records of a key: acts by status, and counts of
/// what was forbidden.
async fn stopped(mut stage: Stage, keys: &[&Api]) -> Vec<(Vec<Value>, Vec<Value>, Vec<String>)> {
    stage.gateway.terminate();
    assert!(stage.gateway.ended().await.success());
    let next = Gateway::start(&stage.database, &[]).await;
    let platform = next.platform().as_tenant("acme");
    let mut found = Vec::new();
    for key in keys {
        let log = platform.items(&format!("/api/v1/activity?key={}", key.id)).await;
        let of = |kind: &str, status: &str| {
            let of = log.iter().filter(|record| record["type"] == kind && record["status"] == status);
            of.cloned().collect::<Vec<_>>()
        };
        let (done, refused, counts) =
            (of("admin", "success"), of("admin", "blocked"), of("system", "blocked"));
        assert!(counts.iter().all(|record| record["error_code"] == "forbidden"), "{counts:?}");
        let counts: Vec<String> =
            counts.iter().map(|record| record["arguments"].as_str().unwrap().to_owned()).collect();
        assert_eq!(done.len() + refused.len() + counts.len(), log.len(), "{log:?}");
        found.push((done, refused, counts));
    }
    let mut connection = stage.database.connect().await;
    let open = sqlx::query_scalar::<_, i64>("select count(*) from activity_open");
    assert_eq!(open.fetch_one(&mut connection).await.unwrap(), 0);
    found
}

#[tokio::test]
async fn ten_of_a_keys_minute_are_recorded_and_the_others_counted() {
    let stage = Stage::start().await;
    let tenant = stage.tenant("acme").await;
    let (agent, colleague) = (tenant.agent().await, tenant.agent().await);
    for at in 0..20 {
        agent.post("/api/v1/servers/x/enable", &json!({"sent": at})).await.refused(403, "forbidden");
        agent.patch("/api/v1/settings?x=1", &json!({})).await.refused(403, "forbidden");
    }
    // reads that differ are no way around it
    for at in 0..5 {
        agent.get(&format!("/api/v1/servers/server-{at}")).await.refused(403, "forbidden");
    }
    // nobody else's evidence is used up
    colleague.delete("/api/v1/servers/x").await.refused(403, "forbidden");
    let found = stopped(stage, &[&agent, &colleague]).await;
    let (done, refused, counts) = &found[0];
    assert_eq!((done.len(), refused.len(), counts.as_slice()), (0, 10, &[r#"{"count":35}"#.to_owned()][..]));
    assert!(refused.iter().all(|record| record["error_code"] == "forbidden"), "{refused:?}");
    let first = refused.last().unwrap();
    assert_eq!((&first["tool"], &first["server"]), (&json!("servers.enable"), &json!("x")), "{first}");
    assert!(first["arguments"].as_str().unwrap().contains("sent"), "{first}");
    assert_eq!((found[1].1.len(), found[1].2.len()), (1, 0));
}

/// An act that the role allows is on record before it is done. It is counted all the same if it turns out to be forbidden.
#[tokio::test]
async fn also_where_the_role_may_but_not_with_its_own_server() {
    let stage = Stage::start().await;
    let tenant = stage.tenant("acme").await;
    let operator = tenant.operator().await;
    let upstream = Upstream::handshake(vec![Tool::reads("look")]).await;
    let body = json!({"name": "up", "kind": "http", "url": upstream.url});
    operator.post("/api/v1/servers", &body).await.expect(201);
    for _ in 0..14 {
        operator.post("/api/v1/servers/up/unquarantine", &json!({})).await.refused(403, "forbidden");
        // nothing that is permitted is only counted
        operator.post("/api/v1/servers/up/disable", &json!({})).await.expect(200);
    }
    let found = stopped(stage, &[&operator]).await;
    let (done, refused, counts) = &found[0];
    assert_eq!((done.len(), refused.len(), counts.as_slice()), (15, 10, &[r#"{"count":4}"#.to_owned()][..]));
}

/// The platform's key is not counted: what it may not do is on record each time.
#[tokio::test]
async fn the_platforms_are_all_recorded() {
    let stage = Stage::start().await;
    let tenant = stage.tenant("acme").await;
    stage.platform().post("/api/v1/tenants/acme/suspend", &json!({})).await.expect(200);
    for _ in 0..12 {
        tenant.platform.post("/api/v1/servers/x/enable", &json!({})).await.refused(403, "forbidden");
    }
    tenant.records("type=admin&status=blocked&tool=servers.enable", 12).await;
}
