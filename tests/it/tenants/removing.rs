//! What a tenant does away with takes up nothing: who adds and removes for ever needs no more room than others.

use std::time::Duration;

use serde_json::{Value, json};
use sqlx::AssertSqlSafe;

use crate::support::{Stage, settle};

const OFTEN: [(&str, &str); 1] = [("MCPPROXY__LIMITS__RETENTION_INTERVAL_S", "1")];
/// A few passes.
const DELETED: Duration = Duration::from_secs(15);

async fn run(stage: &Stage, statement: &str) {
    let statement = AssertSqlSafe(statement.to_owned());
    sqlx::raw_sql(statement).execute(&mut stage.database.connect().await).await.unwrap();
}

#[tokio::test]
async fn revoked_keys_are_kept_for_a_while_and_what_they_said_is_not() {
    let stage = Stage::with(&OFTEN).await;
    let tenant = stage.tenant("acme").await;
    let keeps = tenant.agent_with(json!({"max_operation": "read"})).await;
    let mut revoked = Vec::new();
    for _ in 0..3 {
        let agent = tenant.agent_with(json!({"max_operation": "read"})).await;
        tenant.platform.delete(&format!("/api/v1/keys/{}", agent.id)).await.expect(204);
        agent.get("/api/v1/status").await.refused(401, "unauthenticated");
        revoked.push(agent.id);
    }
    assert_eq!(stage.database.count("select count(*) from settings").await, 1);
    // as many as robots leave behind that make a key for each of their runs, and some that are old
    run(
        &stage,
        "insert into api_keys (tenant_id, key_id, role, name, owner, prefix, hash, revoked_at, rev)
         select tenant_id, gen_random_uuid(), 'agent', 'run', 'robot', 'mcpk_', sha256(n::text::bytea),
             now() - n * interval '1 min', 1
         from tenants, generate_series(1, 3500) n where name = 'acme';
         update api_keys set revoked_at = now() - interval '31 days'
         where name = 'run' and revoked_at > now() - interval '10 min';
         insert into settings (tenant_id, scope_id, value, rev)
         select tenant_id, key_id, '{}', 1 from api_keys where name = 'run'",
    )
    .await;
    settle(1000, DELETED, || {
        stage.database.count("select count(*) from api_keys where revoked_at is not null")
    })
    .await;
    let old = "select count(*) from api_keys where revoked_at < now() - interval '1 day'";
    assert_eq!(stage.database.count(old).await, 0);
    let unsaid = "select count(*) from settings s where scope_id in (select key_id from api_keys)";
    assert_eq!(
        stage.database.count("select count(*) from settings").await,
        stage.database.count(unsaid).await
    );
    let shown = tenant.platform.items("/api/v1/keys").await;
    let ids: Vec<&str> = shown.iter().filter_map(|key| key["id"].as_str()).collect();
    assert!(revoked.iter().all(|id| ids.contains(&id.as_str())), "the newest are not there");
    keeps.get("/api/v1/status").await.expect(200);
    let own = tenant.platform.get(&format!("/api/v1/keys/{}/settings", keeps.id)).await.expect(200);
    assert_eq!(own["max_operation"], json!({"value": "read", "origin": "key"}));
    let used = &tenant.platform.without_tenant().get("/api/v1/tenants/acme").await.expect(200)["quotas"];
    assert_eq!(used["keys"]["used"], Value::from(1));
    // the owner deletes what was revoked, and nothing that is live
    run(&stage, "set role mcpproxy_owner; delete from settings; delete from api_keys").await;
    assert_eq!(stage.database.count("select count(*) from api_keys").await, 1);
    assert_eq!(stage.database.count("select count(*) from settings").await, 1);
}
