//! `mcpproxy connect`: clients of this machine are set up for the gateway.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::support::{Api, Mcp, Run, Stage, cli, cli_with};

/// Clients with a file of their own, that file, and the member that holds the servers.
const FILES: [(&str, &str, &str); 5] = [
    ("claude-code", ".claude.json", "mcpServers"),
    ("cursor", ".cursor/mcp.json", "mcpServers"),
    ("vscode", ".config/Code/User/mcp.json", "servers"),
    ("gemini", ".gemini/settings.json", "mcpServers"),
    ("windsurf", ".codeium/windsurf/mcp_config.json", "mcpServers"),
];

/// A home folder, and whoever connects clients there.
struct Home(TempDir);

impl Home {
    fn new() -> Home {
        Home(tempfile::tempdir().unwrap())
    }

    fn path(&self, file: &str) -> PathBuf {
        self.0.path().join(file)
    }

    async fn connect(&self, caller: &Api, args: &[&str]) -> Run {
        self.connect_with(&[("USER", "ana")], caller, args).await
    }

    async fn connect_with(&self, env: &[(&str, &str)], caller: &Api, args: &[&str]) -> Run {
        let (url, key) = (caller.base_url(), caller.key.clone().unwrap());
        let home = self.0.path().to_str().unwrap();
        let own = [("MCPPROXY_URL", &*url), ("MCPPROXY_API_KEY", &*key), ("HOME", home)];
        cli_with(&[&own[..], env].concat(), &[&["connect"], args].concat()).await
    }

    fn json(&self, file: &str) -> Value {
        serde_json::from_str(&fs::read_to_string(self.path(file)).unwrap()).unwrap()
    }
}

/// Returns the only key in a text.
fn key_in(text: &str) -> String {
    let found: Vec<&str> = text.split(|c: char| !c.is_ascii_alphanumeric() && !"_-".contains(c)).collect();
    let keys: Vec<&&str> = found.iter().filter(|word| word.starts_with("mcpk_")).collect();
    assert!(keys.len() == 1, "{text}");
    (*keys[0]).to_owned()
}

/// Returns the copies of old files in a folder.
fn copies(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    entries.filter(|path| path.extension().is_some_and(|end| end == "bak")).collect()
}

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().permissions().mode() & 0o777
}

#[tokio::test]
async fn every_client_gets_a_key_that_works() {
    let stage = Stage::start().await;
    let tenant = stage.tenant("acme").await;
    let (admin, home) = (tenant.admin().await, Home::new());
    let url = format!("{}/mcp", admin.base_url());
    for (client, file, section) in FILES {
        let run = home.connect(&admin, &[client]).await.ok();
        assert!(run.out.contains("tools/list answers with") && run.out.contains("retrieve_tools"), "{run:?}");
        assert!(!run.out.contains("mcpk_") && !run.err.contains("mcpk_"), "{run:?}");
        let server = home.json(file)[section]["mcpproxy"].clone();
        assert!(server.to_string().contains(&url), "{client}: {server}");
        let key = stage.gateway.anonymous().with_key(&key_in(&server.to_string()));
        let status = key.get("/api/v1/status").await.expect(200);
        assert_eq!(
            (&status["role"], &status["owner"], &status["settings"]["unannotated_tools"]),
            (&json!("agent"), &json!("ana"), &json!("distrust"))
        );
        assert_eq!(mode(&home.path(file)), 0o600);
    }
    home.connect(&admin, &["codex", "--name", "team"]).await.ok();
    let config = fs::read_to_string(home.path(".codex/config.toml")).unwrap();
    assert!(config.contains(&format!("[mcp_servers.team]\nurl = \"{url}\"")), "{config}");
    let names: Vec<String> =
        cli(&admin, &["key", "list"]).await.ok().rows().into_iter().map(|row| row[2].clone()).collect();
    assert!(
        names.contains(&"mcpproxy-vscode".to_owned()) && names.contains(&"team-codex".to_owned()),
        "{names:?}"
    );
    home.connect(&admin, &["codex", "--name", "a b"]).await.failed(2, "--name must be");
}

#[tokio::test]
async fn what_was_there_stays_and_a_second_run_changes_nothing() {
    let stage = Stage::start().await;
    let tenant = stage.tenant("acme").await;
    let (admin, home) = (tenant.admin().await, Home::new());
    let file = home.path(".cursor/mcp.json");
    fs::create_dir_all(file.parent().unwrap()).unwrap();
    let old = "{\n  // mine\n  \"mcpServers\": {\"mcpproxy\": {\"command\": \"npx\", \"disabled\": false}, \"other\": {\"url\": \"x\"}},\n}\n";
    let real = home.path("dotfiles.json");
    fs::write(&real, old).unwrap();
    std::os::unix::fs::symlink(&real, &file).unwrap();

    let run = home.connect(&admin, &["cursor"]).await.ok();
    let new = fs::read_to_string(&file).unwrap();
    for stays in ["// mine", "\"disabled\": false", "\"other\": {\"url\": \"x\"}"] {
        assert!(new.contains(stays), "{stays}: {new}");
    }
    assert!(!new.contains("npx") && fs::symlink_metadata(&file).unwrap().is_symlink(), "{new}");
    let copy = copies(home.0.path()).remove(0);
    assert_eq!((fs::read_to_string(&copy).unwrap().as_str(), mode(&copy)), (old, 0o600));
    assert!(run.out.contains(copy.file_name().unwrap().to_str().unwrap()), "{run:?}");

    let keys = cli(&admin, &["key", "list"]).await.ok().rows().len();
    let again = home.connect(&admin, &["cursor"]).await.ok();
    assert!(again.out.contains("nothing to change") && again.out.contains("tools/list answers"), "{again:?}");
    assert_eq!(fs::read_to_string(&file).unwrap(), new);
    assert_eq!(cli(&admin, &["key", "list"]).await.ok().rows().len(), keys);

    // a revoked key does not work: the client gets another one
    let old_key = key_in(&new);
    let mine = stage.gateway.anonymous().with_key(&old_key).get("/api/v1/status").await.expect(200);
    cli(&admin, &["key", "revoke", mine["key_id"].as_str().unwrap()]).await.ok();
    home.connect(&admin, &["cursor"]).await.ok();
    assert_ne!(key_in(&fs::read_to_string(&file).unwrap()), old_key);
    assert_eq!(copies(home.0.path()).len(), 2);
}

#[tokio::test]
async fn an_agent_connects_with_its_own_key() {
    let stage = Stage::start().await;
    let tenant = stage.tenant("acme").await;
    let (agent, home) = (tenant.agent().await, Home::new());
    let run = home.connect(&agent, &["windsurf"]).await.ok();
    let file = home.path(".codeium/windsurf/mcp_config.json");
    assert_eq!(key_in(&fs::read_to_string(&file).unwrap()), agent.key.clone().unwrap());
    assert!(
        run.out.contains("key: the one of this command") && copies(file.parent().unwrap()).is_empty(),
        "{run:?}"
    );
    // the list is the one that the client will have
    let operator = tenant.operator().await;
    let run = Home::new().connect(&operator, &["windsurf"]).await.ok();
    let listed = Mcp::bare(&operator).request("tools/list", "{}").await.json()["result"]["tools"].clone();
    let names: Vec<&str> =
        listed.as_array().unwrap().iter().map(|tool| tool["name"].as_str().unwrap()).collect();
    let says = format!("checked: tools/list answers with {} ({})\n", names.len(), names.join(", "));
    assert!(names.len() > 5 && run.out.contains(&says), "{says}: {run:?}");
    // the key of somebody else is replaced, though it works
    let other = tenant.agent().await;
    home.connect(&other, &["windsurf"]).await.ok();
    assert_eq!(key_in(&fs::read_to_string(&file).unwrap()), other.key.clone().unwrap());
    home.connect(&tenant.auditor().await, &["windsurf"])
        .await
        .failed(5, "a key of role auditor has no tools");
    home.connect(&stage.platform(), &["cursor"]).await.failed(2, "--tenant NAME");
}

#[tokio::test]
async fn print_writes_nothing() {
    let stage = Stage::start().await;
    let tenant = stage.tenant("acme").await;
    let (agent, home) = (tenant.agent().await, Home::new());
    for (client, _, section) in FILES {
        let run = home.connect(&agent, &[client, "--print"]).await.ok();
        let (config, link) = run.out.split_once("\n\n").unwrap_or((&run.out, ""));
        let tree: Value = serde_json::from_str(config).unwrap();
        assert!(tree[section]["mcpproxy"].is_object() && run.err.contains("tools/list answers"), "{run:?}");
        assert_eq!(link.is_empty(), !["cursor", "vscode"].contains(&client), "{run:?}");
    }
    assert_eq!(fs::read_dir(home.0.path()).unwrap().count(), 0);
    // an admin's makes a key each time, and says so
    let admin = tenant.admin().await;
    let count = async || cli(&admin, &["key", "list"]).await.ok().rows().len();
    let before = count().await;
    let run = home.connect(&admin, &["cursor", "--print"]).await.ok();
    assert_eq!(count().await, before + 1);
    assert!(run.err.contains("key: new, ") && run.err.contains("mcpproxy key revoke "), "{run:?}");
    assert!(run.err.contains("Each run with --print makes a key: --key KEY"), "{run:?}");
    assert!(!run.err.contains("Other keys"), "{run:?}");
    let again = home.connect(&admin, &["cursor", "--print"]).await.ok();
    assert!(again.err.contains("Other keys that work have the name mcpproxy-cursor: 1."), "{again:?}");
    assert!(!home.connect(&agent, &["cursor", "--print"]).await.ok().err.contains("Each run"));
    // the key is in a file, not on the command line of the inspector
    let inspector = home.connect(&agent, &["inspector"]).await.ok();
    let file = home.path(".config/mcpproxy/inspector.json");
    let command = format!(
        "npx -y @modelcontextprotocol/inspector@2.12.0 --cli --config '{}' --server mcpproxy --method tools/list",
        file.display()
    );
    assert!(inspector.out.contains(&command) && !inspector.out.contains("mcpk_"), "{inspector:?}");
    assert_eq!(key_in(&fs::read_to_string(&file).unwrap()), agent.key.clone().unwrap());
    assert_eq!(mode(&file), 0o600);
}

#[tokio::test]
async fn a_key_that_is_given_for_the_client_is_taken() {
    let stage = Stage::start().await;
    let tenant = stage.tenant("acme").await;
    let (admin, agent, home) = (tenant.admin().await, tenant.agent().await, Home::new());
    let key = agent.key.clone().unwrap();
    let keys = cli(&admin, &["key", "list"]).await.ok().rows().len();
    let printed = home.connect(&admin, &["gemini", "--print", "--key", &key]).await.ok();
    assert!(printed.err.contains("key: the one of this command"), "{printed:?}");
    assert_eq!(key_in(&printed.out), key);
    let given = [("MCPPROXY_CLIENT_KEY", &*key)];
    let written = home.connect_with(&given, &admin, &["gemini"]).await.ok();
    assert!(!written.out.contains("mcpk_") && written.out.contains("retrieve_tools"), "{written:?}");
    assert_eq!(key_in(&fs::read_to_string(home.path(".gemini/settings.json")).unwrap()), key);
    assert_eq!(cli(&admin, &["key", "list"]).await.ok().rows().len(), keys);
    // the file has a key that works, and it is another one than the key that is given
    let other = tenant.agent().await.key.unwrap();
    home.connect(&admin, &["gemini", "--key", &other]).await.ok();
    assert_eq!(key_in(&fs::read_to_string(home.path(".gemini/settings.json")).unwrap()), other);
    let own = admin.key.clone().unwrap();
    let refused = home.connect(&admin, &["cursor", "--key", &own]).await;
    refused.failed(2, "is of role admin: give one of role agent or operator");
    home.connect(&admin, &["cursor", "--key", "mcpk_wrong"]).await.failed(5, "the key for the client (--key");
    assert!(!home.path(".cursor").exists());
}

#[tokio::test]
async fn a_new_key_is_owned_by_whoever_runs_the_command() {
    let stage = Stage::start().await;
    let tenant = stage.tenant("acme").await;
    let (ana, nobody) = (tenant.key(&json!({"role": "admin", "owner": "ana"})).await, tenant.admin().await);
    let platform = tenant.platform.clone();
    for (env, caller, owner, is_given) in [
        (&[("USER", "bob"), ("LOGNAME", "eva")][..], &ana, "bob", true),
        (&[("LOGNAME", "eva")], &ana, "eva", true),
        (&[("USER", "")], &ana, "ana", true),
        // the owner of this key is only its role, and the platform is no person
        (&[], &nobody, "mcpproxy-cursor", false),
        (&[("MCPPROXY_TENANT", "acme")], &platform, "mcpproxy-cursor", false),
    ] {
        let home = Home::new();
        home.connect_with(env, caller, &["cursor"]).await.ok();
        let key = key_in(&fs::read_to_string(home.path(".cursor/mcp.json")).unwrap());
        let status = stage.gateway.anonymous().with_key(&key).get("/api/v1/status").await.expect(200);
        assert_eq!(status["owner"], owner, "{env:?}");
        let made = tenant.platform.get(&format!("/api/v1/keys/{}", status["key_id"].as_str().unwrap())).await;
        assert_eq!(made.expect(200)["owner_given"], is_given, "{env:?}");
    }
}

/// A key that works today may be the wrong one all the same.
#[tokio::test]
async fn a_key_of_a_file_is_taken_only_if_it_is_for_the_client() {
    let stage = Stage::start().await;
    let (tenant, other) = (stage.tenant("acme").await, stage.tenant("other").await);
    let (admin, home) = (tenant.admin().await, Home::new());
    let file = home.path(".cursor/mcp.json");
    fs::create_dir_all(file.parent().unwrap()).unwrap();
    let soon = chrono::Utc::now() + chrono::TimeDelta::hours(2);
    let ending = admin
        .post("/api/v1/keys", &json!({"role": "agent", "name": "soon", "expires_at": soon.to_rfc3339()}))
        .await
        .expect(201)["key"]
        .as_str()
        .unwrap()
        .to_owned();
    let url = format!("{}/mcp", admin.base_url());
    let stranger = other.agent().await.key.unwrap();
    for (key, why) in [
        (admin.key.clone().unwrap(), "it is of role admin"),
        (stranger, "it is of the tenant other, not acme"),
        (ending, "it ends at "),
        ("mcpk_wrong".to_owned(), "it is unknown"),
    ] {
        let old = json!({"mcpServers": {"mcpproxy": {"url": url, "headers": {"X-API-Key": key}}}});
        fs::write(&file, old.to_string()).unwrap();
        let run = home.connect(&admin, &["cursor"]).await.ok();
        assert!(run.err.contains(&format!("the key in the file is not used: {why}")), "{why}: {run:?}");
        assert_ne!(key_in(&fs::read_to_string(&file).unwrap()), key, "{why}");
    }
    // an entry that is switched off is not one that works, whatever its key
    let mut off = home.json(".cursor/mcp.json");
    off["mcpServers"]["mcpproxy"]["disabled"] = json!(true);
    fs::write(&file, off.to_string()).unwrap();
    let run = home.connect(&admin, &["cursor"]).await.ok();
    assert!(run.out.contains("removed from the old entry: disabled\n"), "{run:?}");
    assert_eq!(home.json(".cursor/mcp.json")["mcpServers"]["mcpproxy"]["disabled"], Value::Null);
}

#[tokio::test]
async fn a_file_that_cannot_be_written_costs_no_key() {
    let stage = Stage::start().await;
    let tenant = stage.tenant("acme").await;
    let (admin, home) = (tenant.admin().await, Home::new());
    let keys = cli(&admin, &["key", "list"]).await.ok().rows().len();
    fs::create_dir_all(home.path(".cursor")).unwrap();
    std::os::unix::fs::symlink(home.path("nothing"), home.path(".cursor/mcp.json")).unwrap();
    let linked = home.connect(&admin, &["cursor"]).await;
    linked.failed(2, &format!("is a link to {}, which is not there", home.path("nothing").display()));
    assert!(!home.path("nothing").exists());
    // a folder that cannot be made is found after the key was
    std::os::unix::fs::symlink(home.path("nothing"), home.path(".gemini")).unwrap();
    home.connect(&admin, &["gemini"]).await.failed(1, "the new key is revoked again");
    let rows = cli(&admin, &["key", "list"]).await.ok().rows();
    let live = rows.iter().filter(|row| !row.iter().any(|cell| cell == "revoked")).count();
    assert_eq!(live, keys, "{rows:?}");
}

#[tokio::test]
async fn a_file_that_cannot_be_changed_costs_no_key() {
    let stage = Stage::start().await;
    let tenant = stage.tenant("acme").await;
    let (admin, home) = (tenant.admin().await, Home::new());
    fs::create_dir_all(home.path(".gemini")).unwrap();
    fs::write(home.path(".gemini/settings.json"), "{\"s3cret\": ").unwrap();
    let keys = cli(&admin, &["key", "list"]).await.ok().rows().len();
    let run = home.connect(&admin, &["gemini"]).await;
    run.failed(2, "settings.json: cannot be read as JSON");
    assert!(!run.err.contains("s3cret"), "{run:?}");
    assert_eq!(cli(&admin, &["key", "list"]).await.ok().rows().len(), keys);
    assert_eq!(fs::read_to_string(home.path(".gemini/settings.json")).unwrap(), "{\"s3cret\": ");
}

#[tokio::test]
async fn a_new_agents_key_comes_with_the_next_step() {
    let stage = Stage::start().await;
    let admin = stage.tenant("acme").await.admin().await;
    let hint = "mcpproxy connect claude-code";
    let made = cli(&admin, &["key", "add", "--role", "agent"]).await.ok().err;
    assert!(made.contains(hint) && made.contains("Nobody is named as its owner"), "{made}");
    let owned = cli(&admin, &["key", "add", "--role", "agent", "--owner", "ana"]).await.ok().err;
    assert!(owned.contains(hint) && !owned.contains("Nobody is named"), "{owned}");
    assert!(!cli(&admin, &["key", "add", "--role", "auditor"]).await.ok().err.contains(hint));
}

#[tokio::test]
async fn a_key_that_was_rotated_leads_to_its_successor() {
    let stage = Stage::start().await;
    let tenant = stage.tenant("acme").await;
    let (admin, home) = (tenant.admin().await, Home::new());
    home.connect(&admin, &["cursor"]).await.ok();
    let file = home.path(".cursor/mcp.json");
    let written = fs::read_to_string(&file).unwrap();
    let count = async || cli(&admin, &["key", "list"]).await.ok().rows().len();
    let rotate = async |overlap: &str| {
        let overlap = format!("--overlap={overlap}");
        let made =
            cli(&admin, &["key", "rotate", "mcpproxy-cursor", &overlap, "-o", "json"]).await.ok().json();
        (made["id"].as_str().unwrap().to_owned(), made["key"].as_str().unwrap().to_owned())
    };
    // the key works for long enough, and the note says what comes then
    let (second, secret) = rotate("7d").await;
    let run = home.connect(&admin, &["cursor"]).await.ok();
    assert!(run.out.contains("nothing to change"), "{run:?}");
    assert!(run.err.contains(&format!("its successor is mcpproxy-cursor ({second})")), "{run:?}");
    // it ends, and so does its successor
    let (third, last) = rotate("1h").await;
    fs::write(&file, written.replace(&key_in(&written), &secret)).unwrap();
    let before = count().await;
    let says = format!("the key in the file was rotated; its successor is mcpproxy-cursor ({third})");
    for revoked in [false, true] {
        if revoked {
            cli(&admin, &["key", "revoke", &second]).await.ok();
        }
        let run = home.connect(&admin, &["cursor"]).await;
        run.failed(3, &says);
        assert!(run.err.contains("MCPPROXY_CLIENT_KEY or --key") && run.err.contains("--new-key"), "{run:?}");
    }
    assert_eq!(count().await, before);
    home.connect_with(&[("MCPPROXY_CLIENT_KEY", &last)], &admin, &["cursor"]).await.ok();
    assert_eq!(key_in(&fs::read_to_string(&file).unwrap()), last);
    assert!(home.connect(&admin, &["cursor"]).await.ok().out.contains("nothing to change"));
    assert_eq!(count().await, before);
    // another key is made where that is asked for
    home.connect(&admin, &["cursor", "--new-key"]).await.ok();
    let new = key_in(&fs::read_to_string(&file).unwrap());
    assert!(new != last && count().await == before + 1);
    home.connect(&admin, &["cursor", "--new-key", "--key", &last]).await.failed(2, "--new-key");
    let agent = tenant.agent().await;
    home.connect(&agent, &["cursor", "--new-key"]).await.failed(5, "a key of role agent makes no keys");
}
