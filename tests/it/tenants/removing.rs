//! What a tenant does away with takes up nothing: who adds and removes for ever needs no more room than others.

use std::time::Duration;

use serde_json::{Value, json};
use sqlx::AssertSqlSafe;

use crate::support::{Stage, Tenant, Tool, Upstream, settle};

const OFTEN: [(&str, &str); 1] = [("MCPPROXY__LIMITS__RETENTION_INTERVAL_S", "1")];
/// A few passes.
const DELETED: Duration = Duration::from_secs(15);

async fn run(stage: &Stage, statement: &str) {
    let statement = AssertSqlSafe(statement.to_owned());
    sqlx::raw_sql(statement).execute(&mut stage.database.connect().await).await.unwrap();
}

/// Robots apply a policy with each of their runs; what was replaced long ago goes, but for the newest.
#[tokio::test]
async fn replaced_policies_are_kept_for_a_while_and_the_newest_for_good() {
    let stage = Stage::with(&OFTEN).await;
    let tenant = stage.tenant("acme").await;
    run(
        &stage,
        "insert into policies (tenant_id, scope_id, version, rules, created_at, replaced_at, rev)
         select tenant_id, '00000000-0000-0000-0000-000000000000', n, '[]', now() - interval '3 days',
             case when n < 280 then now() - interval '2 days' when n < 300 then now() end, 1
         from tenants, generate_series(1, 300) n where name = 'acme'",
    )
    .await;
    // a hundred old ones, those of the last day, and the one in force
    settle(121, DELETED, || stage.database.count("select count(*) from policies")).await;
    assert_eq!(stage.database.count("select min(version) from policies").await, 180);
    assert_eq!(tenant.platform.get("/api/v1/policy").await.expect(200)["version"], 300);
    assert_eq!(tenant.platform.items("/api/v1/policy/versions").await.len(), 121);
    let agent = tenant.agent().await;
    let put = json!({"version": 0, "rules": []});
    let path = format!("/api/v1/keys/{}/policy", agent.id);
    tenant.platform.ask(reqwest::Method::PUT, &path, Some(&put)).await.expect(200);
    tenant.platform.delete(&format!("/api/v1/keys/{}", agent.id)).await.expect(204);
    run(&stage, "update api_keys set revoked_at = now() - interval '31 days' where revoked_at is not null")
        .await;
    settle(121, DELETED, || stage.database.count("select count(*) from policies")).await;
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

/// Tools with long definitions.
fn long(names: &[&str], bytes: usize) -> Vec<Tool> {
    let title = "t".repeat(bytes);
    let long =
        |name: &&str| Tool::annotated(name, &json!({"readOnlyHint": true, "title": title}).to_string());
    names.iter().map(long).collect()
}

async fn refresh(tenant: &Tenant) {
    let refreshed = tenant.platform.post("/api/v1/servers/up/refresh", &json!({})).await.expect(200);
    assert_eq!(refreshed["last_error"], Value::Null, "{refreshed}");
}

const BYTES: &str =
    "select coalesce(sum(octet_length(definition) + coalesce(octet_length(approved_definition), 0)), 0)
    from tools where removed_at is not null";

#[tokio::test]
async fn a_server_that_is_removed_takes_everything_with_it() {
    let stage = Stage::with(&OFTEN).await;
    let (tenant, neighbour) = (stage.tenant("acme").await, stage.tenant("zeta").await);
    let upstream = Upstream::handshake(long(&["a.b", "a-b", "c"], 2000)).await;
    neighbour.add("up", &upstream).await;
    let spelled = "select count(distinct safe_name) from tool_names";
    for round in 0..5 {
        tenant.add_with("up", &upstream, json!({"headers": {"X-Key": "one"}})).await;
        assert_eq!(tenant.platform.items("/api/v1/servers/up/tools").await.len(), 3);
        assert!(stage.database.count(spelled).await >= 3, "{round}");
        tenant.platform.delete("/api/v1/servers/up").await.expect(204);
        assert_eq!(stage.database.count(BYTES).await, 0, "{round}");
    }
    for count in [
        "select count(*) from servers",
        "select count(*) from tools where name = 'c'",
        "select count(*) from tool_names where tool = 'c'",
    ] {
        settle(1, DELETED, || stage.database.count(count)).await;
    }
    // the owner deletes what is of removed servers, and nothing else
    run(&stage, "set role mcpproxy_owner; delete from tool_names; delete from tools; delete from servers")
        .await;
    assert_eq!(neighbour.platform.items("/api/v1/servers/up/tools").await.len(), 3);
}

#[tokio::test]
async fn tools_that_come_and_go_leave_their_pins_and_little_else() {
    let stage = Stage::with(&[("MCPPROXY__LIMITS__RELIST_INTERVAL_S", "3600")]).await;
    let tenant = stage.tenant("acme").await;
    let upstream = Upstream::handshake(long(&["a"], 2000)).await;
    tenant.add_with("up", &upstream, json!({"auto_approve": true})).await;
    for round in 0..8 {
        upstream.set_tools(long(&[&format!("x{round}"), &format!("y{round}")], 120_000));
        refresh(&tenant).await;
    }
    // what was approved last is kept to be compared with, and less than all of it
    let bytes = stage.database.count(BYTES).await;
    assert!((900_000..1 << 20).contains(&bytes), "{bytes}");
    assert_eq!(stage.database.count("select count(*) from tools").await, 17);
    tenant.platform.patch("/api/v1/servers/up", &json!({"auto_approve": false})).await.expect(200);
    upstream.set_tools([long(&["a"], 2000), long(&["x6", "y0"], 7)].concat());
    refresh(&tenant).await;
    let tools = tenant.platform.items("/api/v1/servers/up/tools").await;
    let shown = |at: usize| {
        let tool: &Value = &tools[at];
        let was = tool["approved_definition"].to_string().len();
        (tool["name"].as_str().unwrap(), tool["state"].as_str().unwrap(), was > 100_000)
    };
    assert_eq!(
        [shown(0), shown(1), shown(2)],
        [("a", "approved", false), ("x6", "changed", true), ("y0", "changed", false)]
    );
    // what was approved counts as long as it is kept
    let used = &tenant.platform.without_tenant().get("/api/v1/tenants/acme").await.expect(200)["quotas"];
    let used = used["definition_bytes"]["used"].as_i64().unwrap();
    assert!((120_000..130_000).contains(&used), "{used}");
}
