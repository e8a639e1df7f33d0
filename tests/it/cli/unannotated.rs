//! Tools that say nothing about themselves: who is told how many there are, and what that means for a key.

use serde_json::json;

use crate::support::upstream::zoo;
use crate::support::{Stage, Upstream, cli};

/// Tools of the zoo, by what they say about themselves.
const ZOO: &str = "6 tools: 1 read, 2 write, 1 destructive, 2 unannotated";

#[tokio::test]
async fn a_server_that_cannot_be_listed_is_added_with_a_failure() {
    let stage = Stage::start().await;
    let admin = stage.tenant("acme").await.admin().await;
    let nobody = "http://127.0.0.1:1/mcp";
    let failed = cli(&admin, &["upstream", "add", "up", nobody]).await;
    assert_eq!(failed.code, 1, "{failed:?}");
    assert!(failed.err.contains("up is added, but could not be listed: "), "{failed:?}");
    assert!(failed.out.contains("name:") && !failed.err.contains("tools"), "{failed:?}");
    let meant = cli(&admin, &["upstream", "add", "later", nobody, "--no-check"]).await.ok();
    assert!(meant.err.contains("warning: later could not be listed"), "{meant:?}");
    cli(&admin, &["upstream", "add", "off", nobody, "--disabled"]).await.ok();
}

#[tokio::test]
async fn a_key_is_told_what_silence_means_for_it() {
    let stage = Stage::start().await;
    let tenant = stage.tenant("acme").await;
    let upstream = Upstream::handshake(zoo()).await;
    let admin = tenant.admin().await;
    let added = cli(&admin, &["upstream", "add", "up", &upstream.url, "-o", "json"]).await.ok();
    assert!(added.err.contains(ZOO), "{added:?}");
    let open = "2 tools do not say whether they only read: this key";
    assert!(added.err.contains(open) && added.json()["name"] == "up", "{added:?}");

    let trusting = tenant.agent().await;
    let distrusting = tenant.agent_with(json!({"unannotated_tools": "distrust"})).await;
    let reading = tenant.agent_with(json!({"max_operation": "read"})).await;
    let counts = |total, read, write, destructive, unannotated| {
        json!({"total": total, "read": read, "write": write, "destructive": destructive,
            "unannotated": unannotated})
    };
    for (key, want) in [
        (&trusting, counts(6, 1, 2, 1, 2)),
        (&distrusting, counts(6, 1, 2, 1, 2)),
        (&reading, counts(1, 1, 0, 0, 0)),
    ] {
        assert_eq!(key.get("/api/v1/status").await.expect(200)["tools"], want);
    }
    for without in [tenant.auditor().await, stage.platform()] {
        assert_eq!(without.get("/api/v1/status").await.expect(200)["tools"], json!(null));
    }
    let refused = "2 tools do not say whether they only read: unannotated_tools is distrust, so call_tool_read is refused";
    let advice = format!("mcpproxy key settings {} --set unannotated_tools=distrust", trusting.id);
    let said = cli(&trusting, &["status"]).await.ok().out;
    assert!(
        said.contains("\ntools of this key:\n") && said.contains(open) && said.contains(&advice),
        "{said}"
    );
    assert!(cli(&distrusting, &["status"]).await.ok().out.contains(refused));
    assert!(!cli(&reading, &["status"]).await.ok().out.contains("do not say"));

    let doctor = cli(&trusting, &["doctor"]).await.ok().out;
    let line = |start: &str| doctor.lines().any(|line| line.starts_with(start));
    assert!(line(&format!("ok    tools    {ZOO}")) && line(&format!("WARN  tools    {open}")), "{doctor}");
    let doctor = cli(&distrusting, &["doctor"]).await.ok().out;
    assert!(doctor.contains(&format!("ok    tools    {refused}")), "{doctor}");
    // who has no tools is told of those whose calls the log holds
    let doctor = cli(&tenant.auditor().await, &["doctor"]).await.ok().out;
    assert!(doctor.contains(&format!("server   'up' is connected, {ZOO}")), "{doctor}");
    assert!(
        doctor.contains("WARN  tools    2 tools do not say whether they only read: a key with the tenant's")
    );
}
