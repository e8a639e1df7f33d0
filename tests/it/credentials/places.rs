//! A sealed row opens where it was made: moved by hand to another server or tenant, it is worth nothing.

use serde_json::{Value, json};
use sqlx::{AssertSqlSafe, PgConnection};

use crate::support::{Gateway, Mcp, Stage, Tenant, Tool, Upstream};

async fn run(connection: &mut PgConnection, statement: String) {
    let done = sqlx::query(AssertSqlSafe(statement.clone())).execute(connection).await.unwrap();
    assert!(done.rows_affected() > 0, "{statement}");
}

/// Its id.
async fn add(tenant: &Tenant, name: &str, upstream: &Upstream, value: &str) -> String {
    let made = tenant.add_with(name, upstream, json!({"headers": {"X-Key": value}})).await;
    made["id"].as_str().unwrap().to_owned()
}

#[tokio::test]
async fn a_moved_row_does_not_open_and_hurts_nobody_else() {
    let mut stage = Stage::start().await;
    let (ours, theirs) = (stage.tenant("ours").await, stage.tenant("theirs").await);
    let upstream = Upstream::handshake(vec![Tool::writes("t")]).await;
    let mine = add(&ours, "mine", &upstream, "of-mine").await;
    let victim = add(&ours, "victim", &upstream, "of-victim").await;
    let well = add(&ours, "well", &upstream, "of-well").await;
    let foreign = add(&theirs, "foreign", &upstream, "of-foreign").await;
    let (our_agent, their_agent) = (ours.agent().await, theirs.agent().await);
    let mut owner = stage.database.connect().await;
    // the victim's row to my server, in the same tenant; and to another tenant's, with the data key that opens it
    run(&mut owner, format!("delete from server_secrets where server_id in ('{mine}', '{foreign}')")).await;
    let copy = format!(
        "insert into server_secrets (tenant_id, secret_id, server_id, key_id, sealed)
         select s.tenant_id, gen_random_uuid(), s.server_id, v.key_id, v.sealed from servers s, server_secrets v
         where v.server_id = '{victim}' and s.server_id in ('{mine}', '{foreign}')"
    );
    run(&mut owner, copy).await;
    let copy = format!(
        "insert into data_keys (tenant_id, key_id, master_id, wrapped)
         select s.tenant_id, k.key_id, k.master_id, k.wrapped from servers s, data_keys k
         join server_secrets v using (tenant_id, key_id)
         where v.server_id = '{victim}' and s.server_id = '{foreign}'"
    );
    run(&mut owner, copy).await;
    stage.gateway.kill();
    stage.gateway = Gateway::start(&stage.database, &[]).await;
    let before = upstream.sent("x-key").len();
    for (tenant, agent, server) in [(&ours, &our_agent, "mine"), (&theirs, &their_agent, "foreign")] {
        let agent = stage.gateway.ask_as(agent);
        let outcome = Mcp::bare(&agent).run("write", &format!("{server}:t"), &json!({})).await;
        assert_eq!(outcome.code(), "server_unavailable", "{outcome:?}");
        let api = stage.gateway.ask_as(&tenant.platform);
        let shown = api.post(&format!("/api/v1/servers/{server}/refresh"), &json!({})).await.expect(200);
        let why = shown["last_error"].as_str().unwrap();
        assert!(why.contains("cannot be opened") && why.contains("secrets.master_key"), "{why}");
        assert_eq!(shown["connection"], "disconnected");
    }
    assert_eq!(upstream.sent("x-key").len(), before, "something was sent");
    let agent = stage.gateway.ask_as(&our_agent);
    Mcp::bare(&agent).run("write", "well:t", &json!({})).await.ok();
    assert_eq!(upstream.sent("x-key").last().unwrap(), "of-well", "{well}");
    // given again, it works again
    let api = stage.gateway.ask_as(&theirs.platform);
    let given = json!({"headers": {"X-Key": "anew"}});
    let repaired = api.patch("/api/v1/servers/foreign", &given).await.expect(200);
    assert_eq!(repaired["last_error"], Value::Null, "{repaired}");
    let agent = stage.gateway.ask_as(&their_agent);
    Mcp::bare(&agent).run("write", "foreign:t", &json!({})).await.ok();
    assert_eq!(upstream.sent("x-key").last().unwrap(), "anew");
}
