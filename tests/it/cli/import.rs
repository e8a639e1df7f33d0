//! `mcpproxy import`: servers of an MCP client's file.

use std::fs;

use serde_json::json;
use tempfile::TempDir;

use crate::support::{Api, Run, Stage, Tool, Upstream, cli, cli_reading, cli_with};

const TOKEN: &str = "s3cret-token";

/// A file of a client, and whoever imports it.
struct Desk {
    folder: TempDir,
    admin: Api,
}

impl Desk {
    /// Imports a text with the credential in the environment.
    async fn import(&self, text: &str, more: &[&str]) -> Run {
        self.import_with(&[("UP_TOKEN", TOKEN)], text, more).await
    }

    async fn import_with(&self, env: &[(&str, &str)], text: &str, more: &[&str]) -> Run {
        let file = self.folder.path().join("servers");
        fs::write(&file, text).unwrap();
        let (url, key) = (self.admin.base_url(), self.admin.key.clone().unwrap());
        let own = [("MCPPROXY_URL", &*url), ("MCPPROXY_API_KEY", &*key)];
        let args = [&["import", file.to_str().unwrap()], more].concat();
        let run = cli_with(&[&own[..], env].concat(), &args).await;
        assert!(!format!("{run:?}").contains("s3cret"), "{run:?}");
        run
    }

    async fn servers(&self) -> Vec<String> {
        let rows = cli(&self.admin, &["upstream", "list"]).await.ok().rows();
        rows.into_iter().map(|row| row[0].clone()).collect()
    }
}

async fn desk(stage: &Stage) -> Desk {
    Desk { folder: tempfile::tempdir().unwrap(), admin: stage.tenant("acme").await.admin().await }
}

#[tokio::test]
async fn http_servers_are_added_and_programs_are_printed() {
    let stage = Stage::start().await;
    let upstream = Upstream::handshake(vec![Tool::reads("look")]).await;
    let desk = desk(&stage).await;
    let text = format!(
        r#"{{
          // servers of a team
          "inputs": [{{"id": "up-token", "type": "promptString", "password": true}}],
          "servers": {{
            "Notes App": {{"type": "http", "url": "{0}?key=s3cret-query", "headers": {{"X-Up-Key": "${{input:up-token}}"}}}},
            "off": {{"url": "{0}", "disabled": true}},
            "old": {{"type": "sse", "url": "{0}"}},
            "files": {{"command": "npx", "args": ["-y", "files", "--token", "s3cret-word"], "env": {{"API_KEY": "s3cret-env"}}}},
          }},
        }}"#,
        upstream.url
    );
    let missing = desk.import_with(&[], &text, &[]).await;
    missing.failed(2, "Notes App.headers.X-Up-Key: the environment variable UP_TOKEN is not set");
    let rehearsed = desk.import(&text, &["--dry-run"]).await.ok();
    assert_eq!(desk.servers().await, Vec::<String>::new());

    let done = desk.import(&text, &[]).await.ok();
    assert_eq!(done.out, rehearsed.out);
    insta::assert_snapshot!(done.out.replace(&upstream.url, "[up]"), @r#"
    + notes-app (Notes App in the file): [up]?[redacted], headers X-Up-Key (from UP_TOKEN)
    > files: a program, see below
    + off: [up], disabled
    - old: not imported: speaks HTTP+SSE of 2024-11-05, which the gateway does not: give its address of streamable HTTP, which often ends with /mcp
    2 to add, 1 to offer as a program, 1 not imported

    The gateway runs only programs that its operator names. For the gateway's file:

    # the gateway takes values as they are: put the real ones in place of [redacted] and ${…}
    [stdio.commands.files]
    argv = ["npx", "-y", "files", "--token", "[redacted]"]
    env = { API_KEY = "[redacted]" }
    tenants = ["acme"]

    Then, as the platform (the gateway runs with --config), and in the tenant:

    mcpproxy reload
    mcpproxy upstream add files --command files
    "#);
    assert_eq!(desk.servers().await, ["notes-app", "off"]);
    assert!(upstream.sent("x-up-key").contains(&TOKEN.to_owned()));
    let notes = desk.admin.get("/api/v1/servers/notes-app").await.expect(200);
    assert_eq!((&notes["connection"], &notes["headers"]), (&json!("connected"), &json!(["X-Up-Key"])));
    let off = desk.admin.get("/api/v1/servers/off").await.expect(200);
    assert_eq!(off["enabled"], false);

    let again = desk.import(&text, &[]).await.ok();
    assert!(
        again.out.contains("nothing to change, 1 to offer as a program, 2 unchanged, 1 not imported"),
        "{again:?}"
    );
    let version = &desk.admin.get("/api/v1/servers/notes-app").await.expect(200)["version"];
    assert_eq!(version, &notes["version"]);
}

#[tokio::test]
async fn a_server_that_differs_is_shown_and_left() {
    let stage = Stage::start().await;
    let upstream = Upstream::handshake(vec![Tool::reads("look")]).await;
    let desk = desk(&stage).await;
    let codex = |url: &str, more: &str| format!("[mcp_servers.notes]\nurl = \"{url}\"\n{more}");
    desk.import(&codex(&upstream.url, ""), &[]).await.ok();
    let before = desk.admin.get("/api/v1/servers/notes").await.expect(200);

    let elsewhere = format!("{}/elsewhere", upstream.url);
    let moved = desk.import(&codex(&elsewhere, "bearer_token_env_var = \"UP_TOKEN\""), &[]).await.ok();
    for says in [
        format!(
            "! notes: left as it is: url {} → {elsewhere}; mcpproxy upstream update notes --address URL",
            upstream.url
        ),
        "headers none → authorization; mcpproxy upstream update notes --header NAME=-".to_owned(),
        "nothing to change, 1 left as it is".to_owned(),
    ] {
        assert!(moved.out.contains(&says), "{says}: {moved:?}");
    }
    // another query is a difference that is not shown
    let queried = format!("{}?key=s3cret", upstream.url);
    let other = desk.import(&codex(&queried, ""), &[]).await.ok();
    assert!(other.out.contains(&format!("→ {}?[redacted]", upstream.url)), "{other:?}");
    let program = desk.import("[mcp_servers.notes]\ncommand = \"npx\"", &[]).await.ok();
    assert!(program.out.contains("! notes: left as it is: is a server of another kind"), "{program:?}");
    assert_eq!(desk.admin.get("/api/v1/servers/notes").await.expect(200), before);
}

/// Many addresses of MCP servers hold a key in their path.
#[tokio::test]
async fn a_value_of_the_environment_is_never_printed() {
    let stage = Stage::start().await;
    let upstream = Upstream::handshake(vec![Tool::reads("look")]).await;
    let desk = desk(&stage).await;
    let text = |url: &str| json!({"mcpServers": {"notes": {"url": url}}}).to_string();
    let done = desk.import(&text(&format!("{}/${{UP_TOKEN}}/mcp", upstream.url)), &[]).await.ok();
    let line = format!("+ notes: {}/${{UP_TOKEN}}/mcp (from UP_TOKEN)\n", upstream.url);
    assert!(done.out.starts_with(&line), "{done:?}");
    let is = &desk.admin.get("/api/v1/servers/notes").await.expect(200)["url"];
    assert_eq!(is, &json!(format!("{}/{TOKEN}/mcp", upstream.url)));
    let moved = desk.import(&text(&format!("{}/${{UP_TOKEN}}/other", upstream.url)), &[]).await.ok();
    let line = format!("url another → {}/${{UP_TOKEN}}/other; mcpproxy upstream update", upstream.url);
    assert!(moved.out.contains(&line), "{moved:?}");
    let refused = text("ftp://${UP_TOKEN}/x").replace("notes", "wrong");
    let refused = desk.import(&refused, &[]).await;
    assert!(
        refused.code == 2 && refused.err.starts_with("mcpproxy: wrong: the URL is refused"),
        "{refused:?}"
    );

    let own = "{\"mcpServers\": {\"own\": {\"url\": \"https://a.example\", \"headers\": {\"X\": \"${MCPPROXY_API_KEY}\"}}}}";
    let run = desk.import(own, &[]).await;
    run.failed(2, "own.headers.X: the environment variable MCPPROXY_API_KEY is the gateway's own");
    assert_eq!(desk.servers().await, ["notes"]);
}

#[tokio::test]
async fn one_that_is_refused_keeps_no_other_away() {
    let stage = Stage::start().await;
    let upstream = Upstream::handshake(vec![Tool::reads("look")]).await;
    let desk = desk(&stage).await;
    let text = json!({"mcpServers": {"a": {"url": "ftp://s3cret@a.example"}, "b": {"url": upstream.url}}})
        .to_string();
    let run = desk.import(&text, &[]).await;
    assert!(
        run.code == 2 && run.err.contains("mcpproxy: a: ") && run.err.contains("1 servers could not"),
        "{run:?}"
    );
    assert_eq!(desk.servers().await, ["b"]);
    desk.import("{}", &[]).await.failed(2, "has no servers");
}

#[tokio::test]
async fn what_is_left_behind_is_said() {
    let stage = Stage::start().await;
    let upstream = Upstream::handshake(vec![Tool::reads("look")]).await;
    let desk = desk(&stage).await;
    let claude = json!({
        "mcpServers": {"No\u{1b}tes\nx": {"url": upstream.url, "disabledTools": ["wipe"], "oauth": {}}},
        "projects": {"/srv/a": {"mcpServers": {"own": {"url": "https://own.example"}}}, "/srv/b": {"mcpServers": {}}},
    });
    let run = desk.import(&claude.to_string(), &[]).await.ok();
    let line = r"+ no-tes-x (No\u{1b}tes\nx in the file): [up] (not taken: disabledTools, oauth)";
    assert_eq!(run.out.lines().next().map(|line| line.replace(&upstream.url, "[up]")).as_deref(), Some(line));
    for says in [
        "warning: disabledTools keeps tools of no-tes-x from the client, and the gateway offers them all: mcpproxy tools block \
         no-tes-x:TOOL blocks one",
        "not imported: servers of the project /srv/a, which are only in this file",
        "1 added: mcpproxy upstream list shows them",
    ] {
        assert!(run.err.contains(says), "{says}: {run:?}");
    }
    assert!(!run.err.contains("/srv/b"), "{run:?}");
    assert_eq!(desk.servers().await, ["no-tes-x"]);
    // a second run warns as well, and adds nothing
    let again = desk.import(&claude.to_string(), &[]).await.ok();
    assert!(again.err.contains("warning: disabledTools") && !again.err.contains("added:"), "{again:?}");
    let text = format!("{{\"servers\": {{\"piped\": {{\"url\": \"{}\"}}}}}}", upstream.url);
    cli_reading(&desk.admin, &["import", "-"], &text).await.ok();
    assert_eq!(desk.servers().await, ["no-tes-x", "piped"]);
}
