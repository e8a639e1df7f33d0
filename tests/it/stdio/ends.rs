//! How programs end: switched off, crashed, with the gateway; and what becomes of calls.

use serde_json::json;

use super::{SOON, commands, gone, log, pid, runs, stage, text};
use crate::support::{Stage, eventually, settle};

fn kill(pid: u32, signal: &str) {
    let done = std::process::Command::new("sh").args(["-c", &format!("kill -{signal} {pid}")]).status();
    assert!(done.unwrap().success());
}

async fn grandchild(client: &crate::support::Mcp) -> [u32; 2] {
    let own = pid(client).await;
    let other = text(client, "spawn", json!({})).await.parse().unwrap();
    assert!(runs(own) && runs(other));
    [own, other]
}

#[tokio::test]
async fn the_whole_group_ends_when_a_server_is_switched_off_or_removed() {
    let (stage, tenant, client) = stage(&[]).await;
    let both = grandchild(&client).await;
    tenant.platform.post("/api/v1/servers/up/disable", &json!({})).await.expect(200);
    gone(&both).await;
    tenant.platform.post("/api/v1/servers/up/enable", &json!({})).await.expect(200);

    let both = grandchild(&client).await;
    tenant.platform.post("/api/v1/servers/up/restart", &json!({})).await.expect(200);
    gone(&both).await;

    let both = grandchild(&client).await;
    tenant.platform.delete("/api/v1/servers/up").await.expect(204);
    gone(&both).await;
    drop(stage);
}

#[tokio::test]
async fn a_restart_ends_what_it_found_and_not_what_comes_after() {
    let commands = commands(&[("prog", "lingers-0.3", &["*"])]);
    let stage = Stage::with(&[("MCPPROXY__STDIO__COMMANDS", &commands)]).await;
    let tenant = stage.tenant("acme").await;
    super::add(&tenant.platform, "up", "prog").await;
    let client = crate::support::Mcp::session(&tenant.agent().await).await;
    for _ in 0..6 {
        pid(&client).await;
        // calls wait for the next program while the last one ends
        let calls = (0..8).map(|_| async {
            for _ in 0..3 {
                client.run("read", "up:pid", &json!({})).await;
            }
        });
        let restarted = async { tenant.platform.post("/api/v1/servers/up/restart", &json!({})).await };
        let (answer, _) = tokio::join!(restarted, futures_util::future::join_all(calls));
        assert_eq!(answer.expect(200)["connection"], "connected");
    }
    let ended = |lines: Vec<String>| lines.iter().filter(|line| *line == "ended by the gateway").count();
    settle(6, SOON, || async { ended(log(&tenant.platform).await) }).await;
}

#[tokio::test]
async fn the_whole_group_ends_with_the_gateway() {
    let (mut stage, _tenant, client) = stage(&[]).await;
    let both = grandchild(&client).await;
    stage.gateway.terminate();
    assert!(stage.gateway.ended().await.success());
    assert!(!both.into_iter().any(runs), "it waits for its programs");
}

#[tokio::test]
async fn a_replica_that_leaves_says_nothing_about_its_servers() {
    let commands = commands(&[("prog", "none", &["*"]), ("lingers", "lingers-60", &["*"])]);
    let often = ("MCPPROXY__LIMITS__RELIST_INTERVAL_S", "1");
    let mut stage = Stage::with(&[("MCPPROXY__STDIO__COMMANDS", &commands), often]).await;
    let tenant = stage.tenant("acme").await;
    // while one takes its time to end, the others are listed
    for (name, command) in [("up", "lingers"), ("second", "prog"), ("third", "prog"), ("fourth", "prog")] {
        super::add(&tenant.platform, name, command).await;
    }
    stage.gateway.terminate();
    assert!(stage.gateway.ended().await.success());
    let mut connection = stage.database.connect().await;
    let told: Vec<(String, Option<String>)> = sqlx::query_as("select connection, last_error from servers")
        .fetch_all(&mut connection)
        .await
        .unwrap();
    assert_eq!(told, vec![("connected".to_owned(), None); 4]);
}

#[tokio::test]
async fn whoever_only_lists_ends_programs_of_what_is_switched_off_alone() {
    let (mut stage, tenant, _client) = stage(&[]).await;
    super::add(&tenant.platform, "second", "prog").await;
    stage.gateway.terminate();
    assert!(stage.gateway.ended().await.success());
    let events = async |name: &str, event: &str| -> i64 {
        let count = "select count(*) from server_logs join servers using (server_id) where name = $1 and line like $2 || '%'";
        let mut connection = stage.database.connect().await;
        sqlx::query_scalar(count).bind(name).bind(event).fetch_one(&mut connection).await.unwrap()
    };
    let commands = commands(&[("prog", "none", &["*"])]);
    let settings = [("MCPPROXY__STDIO__COMMANDS", &*commands), ("MCPPROXY__LIMITS__RELIST_INTERVAL_S", "1")];
    let _lists = crate::support::Gateway::start(&stage.database, &settings).await;
    for name in ["up", "second"] {
        settle(2, SOON * 3, || events(name, "started")).await;
    }
    let ended = events("up", "ended").await;
    let other = crate::support::Gateway::start(&stage.database, &[]).await;
    let there = other.ask_as(&tenant.platform);
    let before = events("second", "ended by the gateway").await;
    there.post("/api/v1/servers/second/disable", &json!({})).await.expect(200);
    settle(before + 1, SOON, || events("second", "ended by the gateway")).await;
    assert_eq!([events("up", "ended").await, events("up", "started").await], [ended, 2]);
}

#[tokio::test]
async fn the_whole_group_ends_with_a_gateway_that_is_killed() {
    let (mut stage, _tenant, client) = stage(&[]).await;
    let both = grandchild(&client).await;
    stage.gateway.kill();
    gone(&both).await;
}

#[tokio::test]
async fn a_program_that_is_killed_takes_its_calls_with_it_and_comes_again() {
    let (_stage, _tenant, client) = stage(&[]).await;
    let first = pid(&client).await;
    let params = r#"{"name":"call_tool_read","arguments":{"name":"up:slow"},"_meta":{"progressToken":"p"}}"#;
    let running = client.begin("77", "tools/call", params).await;
    kill(first, "KILL");
    let rest = running.text().await.unwrap();
    assert!(rest.contains("upstream_lost") && rest.contains("may have run"), "{rest}");

    // left alone for a second, then started again
    let refused = client.run("read", "up:pid", &json!({})).await;
    let said = refused.refused("server_unavailable");
    assert!(said["message"].as_str().unwrap().contains("signal 9"), "{said}");
    let second = eventually("another program", SOON, || async {
        let outcome = client.run("read", "up:pid", &json!({})).await;
        (outcome.code() == "ok").then(|| outcome.ok()["content"][0]["text"].as_str().unwrap().to_owned())
    })
    .await;
    assert_ne!(second, first.to_string());
}

#[tokio::test]
async fn a_program_that_does_not_come_up_is_asked_to_end_before_it_is_made_to() {
    let files = tempfile::tempdir().unwrap();
    let said = files.path().join("asked");
    let commands = commands(&[("prog", &format!("silent-{}", said.display()), &["*"])]);
    let soon = ("MCPPROXY__LIMITS__STDIO_START_TIMEOUT_S", "1");
    let stage = Stage::with(&[("MCPPROXY__STDIO__COMMANDS", &commands), soon]).await;
    let tenant = stage.tenant("acme").await;
    let added = super::add(&tenant.platform, "up", "prog").await;
    assert!(added["last_error"].as_str().unwrap().contains("did not answer within 1 s"), "{added}");
    assert!(said.exists(), "it was killed");
}

#[tokio::test]
async fn an_era_that_a_program_spoke_once_is_given_up_when_it_does_not_start() {
    let commands = commands(&[("prog", "old", &["*"])]);
    let settings = [("MCPPROXY__STDIO__COMMANDS", &*commands), ("MCPPROXY__LIMITS__RELIST_INTERVAL_S", "1")];
    let mut stage = Stage::with(&settings).await;
    let tenant = stage.tenant("acme").await;
    super::add(&tenant.platform, "up", "prog").await;
    stage.gateway.terminate();
    assert!(stage.gateway.ended().await.success());
    let mut connection = stage.database.connect().await;
    sqlx::query("update servers set era = 'modern'").execute(&mut connection).await.unwrap();
    let again = crate::support::Gateway::start(&stage.database, &settings).await;
    let platform = again.ask_as(&tenant.platform);
    settle(json!(["connected", "handshake"]), SOON, || async {
        let server = platform.get("/api/v1/servers/up").await.expect(200);
        json!([server["connection"], server["era"]])
    })
    .await;
}

#[tokio::test]
async fn a_program_that_crashes_again_and_again_is_left_alone_for_longer_each_time() {
    let commands = commands(&[("dies", "dies", &["*"]), ("prog", "none", &["*"])]);
    let often = ("MCPPROXY__LIMITS__RELIST_INTERVAL_S", "1");
    let stage = Stage::with(&[("MCPPROXY__STDIO__COMMANDS", &commands), often]).await;
    let tenant = stage.tenant("acme").await;
    let added = super::add(&tenant.platform, "up", "dies").await;
    let error = added["last_error"].as_str().unwrap();
    assert!(error.contains("exit status 3"), "{added}");
    super::add(&tenant.platform, "good", "prog").await;
    let pauses = async || -> Vec<String> {
        let lines = log(&tenant.platform).await;
        lines.iter().filter_map(|line| Some(line.split_once("again for ")?.1.to_owned())).collect()
    };
    // listings try again, and wait as long as it is left alone
    settle(vec!["1 s".to_owned(), "2 s".to_owned()], SOON, || async {
        let mut pauses = pauses().await;
        pauses.truncate(2);
        pauses
    })
    .await;
    let good = tenant.platform.get("/api/v1/servers/good").await.expect(200);
    assert_eq!(good["connection"], "connected", "{good}");
}
