//! Settings that change while the gateway runs: programs, allowed networks and the filter of the log.

use std::fs;
use std::time::Duration;

use serde_json::{Value, json};

use crate::support::{
    Api, Database, Gateway, Line, Mcp, Stage, Tenant, Tool, Upstream, Way, cli, eventually, settle,
};

/// Within this the other replica has read its file, and a program has ended.
const SOON: Duration = Duration::from_secs(10);
const PROGRAM: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/stdio/program.py");
/// Networks of the test servers.
const HERE: &str = "[egress]\nallow = [\"127.0.0.0/8\"]\n";

/// A gateway with a settings file.
struct Filed {
    stage: Stage,
    file: tempfile::NamedTempFile,
}

impl Filed {
    async fn start(text: &str) -> Filed {
        let file = tempfile::NamedTempFile::new().unwrap();
        fs::write(&file, text).unwrap();
        let database = Database::migrated().await;
        let gateway = Gateway::start_with_file(&database, file.path(), &[]).await;
        Filed { stage: Stage { gateway, database }, file }
    }

    /// A second replica with the same file.
    async fn other(&self, settings: &[(&str, &str)]) -> Gateway {
        Gateway::start_with_file(&self.stage.database, self.file.path(), settings).await
    }

    fn write(&self, text: &str) {
        fs::write(&self.file, text).unwrap();
    }

    /// Writes the file and has it read.
    async fn reload(&self, text: &str) -> Value {
        self.write(text);
        self.stage.platform().post("/api/v1/reload", &json!({})).await.expect(200)
    }
}

/// `stdio.commands` with these programs: the name, and the argument by which a program is told from that of before.
fn programs(entries: &[(&str, &str)]) -> String {
    let entry = |(name, argument): &(&str, &str)| {
        format!(
            "[stdio.commands.{name}]\nargv = [\"python3\", \"{PROGRAM}\", \"{argument}\"]\ntenants = [\"*\"]\n"
        )
    };
    entries.iter().map(entry).collect()
}

/// Counts the log lines by which a replica says that it read its file again.
fn reads(gateway: &Gateway) -> usize {
    gateway.log().matches("the settings were read again").count()
}

async fn add(tenant: &Tenant, name: &str) -> crate::support::Answer {
    let body = json!({"name": name, "kind": "stdio", "command": name});
    tenant.platform.post("/api/v1/servers", &body).await
}

/// The process of a program, as it answers itself; 0 if it does not.
async fn pid(api: &Api, server: &str) -> u32 {
    let called = Mcp::bare(api).run("read", &format!("{server}:pid"), &json!({})).await;
    match called.code().as_str() {
        "ok" => called.ok()["content"][0]["text"].as_str().unwrap().parse().unwrap(),
        _ => 0,
    }
}

/// Waits until none of these processes runs.
async fn gone(pids: &[u32]) {
    let runs = |pid: &u32| {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat"));
        stat.is_ok_and(|stat| !stat.rsplit(')').next().unwrap().trim_start().starts_with('Z'))
    };
    settle(vec![], SOON, || async { pids.iter().filter(|pid| runs(pid)).copied().collect::<Vec<_>>() }).await;
}

/// A program that another replica runs as well, once it is another than these.
async fn other_than(api: &Api, server: &str, before: &[u32]) -> u32 {
    eventually("another program", SOON, || async {
        let pid = pid(api, server).await;
        (pid != 0 && !before.contains(&pid)).then_some(pid)
    })
    .await
}

#[tokio::test]
async fn programs_come_change_and_go_on_every_replica() {
    let filed = Filed::start("").await;
    let other = filed.other(&[]).await;
    let tenant = filed.stage.tenant("acme").await;
    let refused = add(&tenant, "prog").await.refused(400, "invalid_request");
    assert!(refused.contains("no command for this tenant"), "{refused}");

    let read = filed.reload(&programs(&[("prog", "none"), ("still", "none")])).await;
    assert_eq!((&read["changed"], &read["needs_restart"]), (&json!(["stdio.commands"]), &json!([])));
    for name in ["prog", "still"] {
        assert_eq!(add(&tenant, name).await.expect(201)["connection"], "connected");
    }
    let agent = tenant.agent().await;
    let there = other.ask_as(&agent);
    let (here_before, still) = (pid(&agent, "prog").await, pid(&agent, "still").await);
    let there_before = other_than(&there, "prog", &[here_before]).await;

    filed.reload(&programs(&[("prog", "other"), ("still", "none")])).await;
    let here_now = pid(&agent, "prog").await;
    assert!(here_now != 0 && here_now != here_before);
    let there_now = other_than(&there, "prog", &[there_before]).await;
    gone(&[here_before, there_before]).await;
    assert_eq!(pid(&agent, "still").await, still, "what did not change goes on");

    filed.reload(&programs(&[("still", "none")])).await;
    let refused = Mcp::bare(&agent).run("read", "prog:pid", &json!({})).await.refused("server_unavailable");
    assert!(refused["message"].as_str().unwrap().contains("no command of this name"), "{refused}");
    gone(&[here_now, there_now]).await;
    assert_eq!(pid(&agent, "still").await, still);
}

#[tokio::test]
async fn networks_are_opened_and_closed_again() {
    let filed = Filed::start("").await;
    let other = filed.other(&[]).await;
    let tenant = filed.stage.tenant("acme").await;
    let upstream = Upstream::handshake(vec![Tool::reads("look")]).await;
    let body = json!({"name": "up", "kind": "http", "url": upstream.url});
    let refused = tenant.platform.post("/api/v1/servers", &body).await.refused(400, "invalid_request");
    assert!(refused.contains("egress.allow"), "{refused}");
    let read = filed.reload(HERE).await;
    assert_eq!(read["changed"], json!(["egress.allow"]));
    tenant.add("up", &upstream).await;
    let agent = tenant.agent().await;
    let there = other.ask_as(&agent);
    let code = async |api: &Api| Mcp::bare(api).run("read", "up:look", &json!({})).await.code();
    assert_eq!(code(&agent).await, "ok");
    settle("ok".to_owned(), SOON, || code(&there)).await;

    filed.reload("").await;
    let calls = upstream.calls().len();
    assert_ne!(code(&agent).await, "ok", "over the connection that was open");
    eventually("the other replica to refuse", SOON, || async { (code(&there).await != "ok").then_some(()) })
        .await;
    assert!(upstream.calls().len() <= calls + 1, "the other replica may have asked once more meanwhile");
}

#[tokio::test]
async fn a_file_that_cannot_be_used_changes_nothing_and_says_why() {
    let good = HERE.to_owned() + &programs(&[("prog", "none")]);
    let filed = Filed::start(&good).await;
    let tenant = filed.stage.tenant("acme").await;
    assert_eq!(add(&tenant, "prog").await.expect(201)["connection"], "connected");
    let agent = tenant.agent().await;
    let before = pid(&agent, "prog").await;
    let path = filed.file.path().display().to_string();
    for (text, says) in [
        ("[egress]\nallowed = []\n".to_owned(), vec!["egress.allowed", "did you mean egress.allow?", &path]),
        ("[egress\n".to_owned(), vec!["not valid TOML (line 1, column 8)", &path]),
        ("[egress]\nallow = [\"10.0.0.0/33\"]\n".to_owned(), vec!["egress.allow", &path]),
        (programs(&[("prog", "none")]).replace("argv", "arg"), vec!["prog", "did you mean argv?", &path]),
        (programs(&[("prog", "none")]).replace("\"*\"", "7"), vec!["prog.tenants does not fit", &path]),
        (programs(&[("prog", "none")]) + "s3cret-value = 1\n", vec!["prog has an unknown member"]),
        (
            "[telemetry]\nlog_filter = \"info,mcpproxy=loud\"\n".to_owned(),
            vec!["telemetry.log_filter", &path],
        ),
        ("[limits]\ndrain_s = 0\n".to_owned(), vec!["limits.drain_s"]),
    ] {
        filed.write(&text);
        let why = filed.stage.platform().post("/api/v1/reload", &json!({})).await.refused(409, "conflict");
        assert!(why.starts_with("Nothing has changed: "), "{why}");
        assert!(says.iter().all(|part| why.contains(part)) && !why.contains("s3cret"), "{why}");
        cli(&filed.stage.platform(), &["reload"]).await.failed(3, says[0]);
        assert_eq!(pid(&agent, "prog").await, before, "{text}");
    }
    filed.write("[egress\n");
    filed.stage.gateway.hang_up();
    eventually("the reason in the log", SOON, || async {
        filed.stage.gateway.log().contains("the settings are as before: The configuration file").then_some(())
    })
    .await;
    assert_eq!(pid(&agent, "prog").await, before);
}

#[tokio::test]
async fn a_signal_has_every_replica_read_its_file() {
    let filed = Filed::start("").await;
    let other = filed.other(&[]).await;
    filed.write("[telemetry]\nlog_filter = \"info\"\n[limits]\ndrain_s = 7\n");
    filed.stage.gateway.hang_up();
    for gateway in [&filed.stage.gateway, &other] {
        let changed = r#"changed=["telemetry.log_filter"] needs_restart=["limits.drain_s"]"#;
        settle(true, SOON, || async { gateway.log().contains(changed) }).await;
    }
    // what is below the new filter is not logged, this line included
    let read = reads(&filed.stage.gateway);
    for (filter, more) in [("error", 0), ("info", 1)] {
        filed.reload(&format!("[telemetry]\nlog_filter = \"{filter}\"\n")).await;
        settle(read + more, SOON, || async { reads(&filed.stage.gateway) }).await;
    }
}

/// A replica is ready before it listens to the others: its connection for that may come later.
#[tokio::test]
async fn a_replica_that_listens_late_reads_what_it_missed() {
    let filed = Filed::start("").await;
    let database = &filed.stage.database;
    let line = Line::to(database.port()).await;
    // the connection by which a start looks at the schema
    line.turn(Way::PassesOne).await;
    let direct = line.url(&database.url());
    let other = filed.other(&[("MCPPROXY__DATABASE__DIRECT_URL", &direct)]).await;
    filed.reload("[limits]\ndrain_s = 7\n[egress]\nallow = [\"127.0.0.0/8\"]\n").await;
    assert_eq!(reads(&other), 0, "{}", other.log());
    line.turn(Way::Open).await;
    settle(1, SOON, || async { reads(&other) }).await;
}

#[tokio::test]
async fn the_command_says_what_has_changed_and_what_has_not() {
    let filed = Filed::start("").await;
    filed.write("[limits]\ndrain_s = 7\n");
    let run = cli(&filed.stage.platform(), &["reload"]).await.ok();
    assert!(run.err.contains("only a restart takes limits.drain_s"), "{run:?}");
    filed.write(HERE);
    let run = cli(&filed.stage.platform(), &["reload", "-o", "json"]).await.ok();
    assert_eq!(run.json()["changed"], json!(["egress.allow"]));
    let stage = Stage::start().await;
    cli(&stage.platform(), &["reload"]).await.failed(3, "without --config");
    let admin = stage.tenant("acme").await.admin().await;
    cli(&admin, &["reload"]).await.failed(5, "forbidden");
}
