//! Credentials while replicas of the release before are still there, and after going back to it.

use serde_json::json;
use sqlx::{AssertSqlSafe, PgConnection};

use crate::support::{Gateway, Mcp, Stage, Tool, Upstream};

async fn run(connection: &mut PgConnection, statement: &str) {
    let done = sqlx::query(AssertSqlSafe(statement.to_owned())).execute(connection).await.unwrap();
    assert!(done.rows_affected() > 0, "{statement}");
}

/// The release before writes neither the place of a credential nor whose server it is.
#[tokio::test]
async fn what_the_release_before_writes_opens_and_what_it_moves_does_not() {
    let mut stage = Stage::start().await;
    let tenant = stage.tenant("acme").await;
    let upstream = Upstream::handshake(vec![Tool::writes("t")]).await;
    for name in ["given", "moved"] {
        tenant.add_with(name, &upstream, json!({"headers": {"X-Key": format!("of-{name}")}})).await;
    }
    let agent = tenant.agent().await;
    let mut owner = stage.database.connect().await;
    // headers set by a replica of the release before: it deletes the row and inserts one without a place
    run(
        &mut owner,
        "with gone as (delete from server_secrets s using servers v
             where v.tenant_id = s.tenant_id and v.server_id = s.server_id and v.name = 'given' returning s.*)
         insert into server_secrets (tenant_id, secret_id, server_id, key_id, sealed)
         select tenant_id, gen_random_uuid(), server_id, key_id, sealed from gone",
    )
    .await;
    // and a move to another path of the same origin, which it takes for no move
    run(
        &mut owner,
        "update servers set url = replace(url, '/mcp', '/other'), version = version + 1 where name = 'moved'",
    )
    .await;
    stage.gateway.kill();
    stage.gateway = Gateway::start(&stage.database, &[]).await;
    let client = Mcp::bare(&stage.gateway.ask_as(&agent));
    client.run("write", "given:t", &json!({})).await.ok();
    assert_eq!(upstream.sent("x-key").last().unwrap(), "of-given");
    client.run("write", "moved:t", &json!({})).await.refused("server_unavailable");
    let (paths, keys) = (upstream.sent(":path"), upstream.sent("x-key"));
    let sent = paths.iter().zip(&keys).filter(|(path, _)| *path == "/other");
    assert_eq!(sent.filter(|(_, key)| !key.is_empty()).count(), 0, "{paths:?} {keys:?}");
    let api = stage.gateway.ask_as(&tenant.platform);
    let shown = api.post("/api/v1/servers/moved/refresh", &json!({})).await.expect(200);
    assert!(shown["last_error"].as_str().unwrap().contains("set its headers again"), "{shown}");
    // given again, it works again
    let again = json!({"headers": {"X-Key": "again"}});
    api.patch("/api/v1/servers/moved", &again).await.expect(200);
    client.run("write", "moved:t", &json!({})).await.ok();
    assert_eq!(upstream.sent("x-key").last().unwrap(), "again");
}

/// A row whose place is another than its server's, however that came about, opens for nobody.
#[tokio::test]
async fn the_place_in_the_row_is_compared() {
    let mut stage = Stage::start().await;
    let tenant = stage.tenant("acme").await;
    let upstream = Upstream::handshake(vec![Tool::writes("t")]).await;
    tenant.add_with("up", &upstream, json!({"headers": {"X-Key": "one"}})).await;
    let agent = tenant.agent().await;
    let mut owner = stage.database.connect().await;
    run(&mut owner, "update server_secrets set place = replace(place, '/mcp', '/other')").await;
    let before = upstream.sent("x-key").len();
    stage.gateway.kill();
    stage.gateway = Gateway::start(&stage.database, &[]).await;
    let client = Mcp::bare(&stage.gateway.ask_as(&agent));
    client.run("write", "up:t", &json!({})).await.refused("server_unavailable");
    assert_eq!(upstream.sent("x-key").len(), before, "something was sent");
}

/// The release before moves a server and knows nothing of `relay`.
#[tokio::test]
async fn what_it_moves_may_ask_no_more_than_a_server_that_was_moved() {
    let stage = Stage::start().await;
    let tenant = stage.tenant("acme").await;
    let upstream = Upstream::handshake(vec![Tool::writes("t")]).await;
    let given = json!({"elicitation": false, "sampling": true, "roots": true, "logging": true});
    tenant.add_with("up", &upstream, json!({"relay": given})).await;
    let path = "/api/v1/servers/up";
    let relay = async || tenant.platform.get(path).await.expect(200)["relay"].clone();
    assert_eq!(relay().await, given);
    // another query is the same place
    let other_query = json!({"url": format!("{}?a=b", upstream.url)});
    assert_eq!(tenant.platform.patch(path, &other_query).await.expect(200)["relay"], given);
    let mut owner = stage.database.connect().await;
    let moved =
        "update servers set url = replace(url, '/mcp', '/other'), version = version + 1 where name = 'up'";
    run(&mut owner, moved).await;
    let nothing = json!({"elicitation": false, "sampling": false, "roots": false, "logging": false});
    assert_eq!(relay().await, nothing);
    // a change of something else gives nothing back
    tenant.platform.patch(path, &json!({"limits": {"queue": 5}})).await.expect(200);
    let other_query = json!({"url": format!("{}?c=d", upstream.url.replace("/mcp", "/other"))});
    assert_eq!(tenant.platform.patch(path, &other_query).await.expect(200)["relay"], nothing);
    assert_eq!(tenant.platform.patch(path, &json!({"relay": given})).await.expect(200)["relay"], given);
}
