//! Programs that nobody calls, and listings of those that run.

use serde_json::{Value, json};

use super::{SOON, add, commands, gone, log, pid, runs, stage, text};
use crate::support::{Api, Gateway, Mcp, Stage, eventually, settle};

#[tokio::test]
async fn a_program_that_nobody_calls_is_ended_and_stays_connected() {
    let (_stage, tenant, client) =
        stage(&[("MCPPROXY__LIMITS__STDIO_IDLE_S", "1"), ("MCPPROXY__LIMITS__RELIST_INTERVAL_S", "1")]).await;
    let first = pid(&client).await;
    // a call under way keeps it
    assert_eq!(text(&client, "slow", json!({})).await, "slow");
    assert!(runs(first));
    gone(&[first]).await;
    // listings do not start it: it sleeps through several
    let listed = async |api: &Api| api.get("/api/v1/servers/up").await.expect(200)["last_ok_at"].clone();
    let before = listed(&tenant.platform).await;
    eventually("signs of life", SOON, || async { (listed(&tenant.platform).await != before).then_some(()) })
        .await;
    let starts = |lines: Vec<String>| lines.iter().filter(|line| line.starts_with("started")).count();
    assert_eq!(starts(log(&tenant.platform).await), 1);
    assert_eq!(tenant.platform.get("/api/v1/servers/up").await.expect(200)["connection"], "connected");
    assert_ne!(pid(&client).await, first);
    settle(2, SOON, || async { starts(log(&tenant.platform).await) }).await;
}

#[tokio::test]
async fn a_listing_is_not_cut_short_for_want_of_calls() {
    let commands = commands(&[("prog", "lists-1.2", &["*"])]);
    let (idle, often) =
        (("MCPPROXY__LIMITS__STDIO_IDLE_S", "2"), ("MCPPROXY__LIMITS__RELIST_INTERVAL_S", "1"));
    let stage = Stage::with(&[("MCPPROXY__STDIO__COMMANDS", &commands), idle, often]).await;
    let tenant = stage.tenant("acme").await;
    add(&tenant.platform, "up", "prog").await;
    let ends =
        |lines: &[String]| lines.iter().filter(|line| line.starts_with("ended: nobody called it")).count();
    // between two listings it ends, since listings keep no program awake
    let lines = eventually("its end", SOON, || async {
        let lines = log(&tenant.platform).await;
        (ends(&lines) > 0).then_some(lines)
    })
    .await;
    assert!(!lines.iter().any(|line| line.contains("could not be listed")), "{lines:?}");
    assert_eq!(tenant.platform.get("/api/v1/servers/up").await.expect(200)["connection"], "connected");
}

/// Programs may take a while to end, and listings go on meanwhile.
#[tokio::test]
async fn a_listing_does_not_start_a_program_that_is_ending() {
    let commands = commands(&[("prog", "lingers-2.5", &["*"])]);
    let (idle, often) =
        (("MCPPROXY__LIMITS__STDIO_IDLE_S", "1"), ("MCPPROXY__LIMITS__RELIST_INTERVAL_S", "1"));
    let stage = Stage::with(&[("MCPPROXY__STDIO__COMMANDS", &commands), idle, often]).await;
    let tenant = stage.tenant("acme").await;
    add(&tenant.platform, "up", "prog").await;
    let begin = async |what: &str| log(&tenant.platform).await.iter().filter(|l| l.starts_with(what)).count();
    settle(1, SOON, || begin("ended: nobody called it")).await;
    // a listing that waited for its end would have it started now, and be the next sign of life
    let server = async || tenant.platform.get("/api/v1/servers/up").await.expect(200);
    let before = server().await["last_ok_at"].clone();
    eventually("a sign of life", SOON, || async { (server().await["last_ok_at"] != before).then_some(()) })
        .await;
    assert_eq!((begin("started").await, server().await["connection"].as_str()), (1, Some("connected")));
}

#[tokio::test]
async fn a_program_may_take_longer_to_start_than_it_may_be_idle() {
    let commands = commands(&[("prog", "starts-1.5", &["*"])]);
    let settings = [("MCPPROXY__STDIO__COMMANDS", &*commands), ("MCPPROXY__LIMITS__STDIO_IDLE_S", "1")];
    let stage = Stage::with(&settings).await;
    let tenant = stage.tenant("acme").await;
    let added = add(&tenant.platform, "up", "prog").await;
    assert_eq!((&added["connection"], &added["last_error"]), (&json!("connected"), &Value::Null), "{added}");
    let starts =
        async || log(&tenant.platform).await.iter().filter(|line| line.starts_with("started")).count();
    settle(1, SOON, starts).await;
}

#[tokio::test]
async fn a_changed_definition_is_noticed_wherever_the_program_runs() {
    let files = tempfile::tempdir().unwrap();
    let description = files.path().join("description");
    std::fs::write(&description, "as approved").unwrap();
    let commands = commands(&[("prog", &format!("described-{}", description.display()), &["*"])]);
    let idle = ("MCPPROXY__LIMITS__STDIO_IDLE_S", "1");
    let settings = [("MCPPROXY__STDIO__COMMANDS", &*commands), ("MCPPROXY__LIMITS__RELIST_INTERVAL_S", "1")];
    // this one lists, and nobody calls its program
    let stage = Stage::with(&[settings[0], settings[1], idle]).await;
    let tenant = stage.tenant("acme").await;
    let added = add(&tenant.platform, "up", "prog").await;
    assert_eq!(added["last_error"], Value::Null, "{added}");
    eventually("its end", SOON, || async {
        log(&tenant.platform)
            .await
            .iter()
            .any(|line| line.starts_with("ended: nobody called it"))
            .then_some(())
    })
    .await;

    let other = Gateway::start(&stage.database, &settings).await;
    let there = Mcp::bare(&other.ask_as(&tenant.agent().await));
    let shown = async || {
        let tool =
            tenant.platform.get("/api/v1/servers/up/tools?limit=1").await.expect(200)["items"][0].clone();
        (tool["state"].clone(), tool["definition"].to_string())
    };
    assert_eq!(shown().await.0, "approved");
    pid(&there).await;
    for text in ["changed once", "changed twice"] {
        std::fs::write(&description, text).unwrap();
        eventually(text, SOON, || async {
            let (state, definition) = shown().await;
            (state == "changed" && definition.contains(text)).then_some(())
        })
        .await;
    }
    there.run("read", "up:pid", &json!({})).await.refused("tool_changed");
    let starts =
        async || log(&tenant.platform).await.iter().filter(|line| line.starts_with("started")).count();
    settle(2, SOON, starts).await;
}

/// A listing of a program that took long must not stand in the place of what another replica has found meanwhile.
#[tokio::test]
async fn a_late_listing_of_a_program_is_made_again() {
    let files = tempfile::tempdir().unwrap();
    let path = |end: &str| files.path().join(format!("description{end}"));
    std::fs::write(path(""), "as approved").unwrap();
    let commands = commands(&[("prog", &format!("described-{}", path("").display()), &["*"])]);
    let settings =
        [("MCPPROXY__STDIO__COMMANDS", &*commands), ("MCPPROXY__LIMITS__RELIST_INTERVAL_S", "3600")];
    let stage = Stage::with(&settings).await;
    let tenant = stage.tenant("acme").await;
    add(&tenant.platform, "up", "prog").await;
    let agent = tenant.agent().await;
    let first = pid(&Mcp::bare(&agent)).await;
    let other = Gateway::start(&stage.database, &settings).await;
    std::fs::write(path(".hold"), first.to_string()).unwrap();
    let second = pid(&Mcp::bare(&other.ask_as(&agent))).await.to_string();
    settle(true, SOON, || async { path(".held").exists() }).await;
    // it was asked before this
    std::fs::write(path(""), "changed").unwrap();
    tenant.platform.post("/api/v1/servers/up/refresh", &json!({})).await.expect(200);
    let shown = async || {
        let tool =
            tenant.platform.get("/api/v1/servers/up/tools?limit=1").await.expect(200)["items"][0].clone();
        (tool["state"].clone(), tool["definition"]["description"].clone())
    };
    let changed = (json!("changed"), json!("changed"));
    assert_eq!(shown().await, changed);
    std::fs::remove_file(path(".held")).unwrap();
    settle(2, SOON, || async {
        let lists = std::fs::read_to_string(path(".lists")).unwrap();
        lists.lines().filter(|pid| *pid == second).count()
    })
    .await;
    assert_eq!(shown().await, changed);
}
