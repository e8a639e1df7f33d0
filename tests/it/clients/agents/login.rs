//! Claude Code and Codex log in at an identity provider with their own command, and their models call a tool. `docs/identity.md`
//! has what they send.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Stdio;

use serde_json::{Value, json};
use tokio::process::Command;
use tokio::time::timeout;

use super::{Agent, MARK, Model, ROOT, STEP_WAIT_MAX, Turn, codex_settings};
use crate::logins::providers::Scene;
use crate::support::{Provider, Tool, Upstream, node};

/// Scopes of the provider's metadata.
const ALL_SCOPES: &str = "openid offline_access email mcp:read mcp:write";

/// Tells an agent of the server, without a credential.
async fn add(agent: Agent, home: &Path, model: &str, endpoint: &str) {
    match agent {
        Agent::ClaudeCode => {
            let args = ["mcp", "add", "--transport", "http", "mcpproxy", endpoint];
            let added = agent.command(home, model).args(args).output().await.unwrap();
            assert!(added.status.success(), "{added:?}");
        }
        Agent::Codex => {
            let settings = codex_settings(model);
            let config = format!(
                r#"mcp_oauth_credentials_store = "file"
{settings}
[mcp_servers.mcpproxy]
url = "{endpoint}"
required = true
default_tools_approval_mode = "approve"
"#
            );
            fs::create_dir_all(home.join(".codex")).unwrap();
            fs::write(home.join(".codex/config.toml"), config).unwrap();
        }
        Agent::Gemini => unreachable!("no test has it log in"),
    }
}

/// Runs the login of an agent at a terminal, with a browser that opens what it is told to.
async fn log_in(agent: Agent, home: &Path, model: &str) {
    let browser = home.join("browser");
    let script =
        format!("#!/bin/sh\nexec '{}' '{ROOT}/tests/clients/browser.mjs' \"$1\"\n", node().display());
    fs::write(&browser, script).unwrap();
    fs::set_permissions(&browser, fs::Permissions::from_mode(0o755)).unwrap();
    let own = agent.command(home, model);
    let mut command = Command::new("script");
    command.env_clear().current_dir(home).kill_on_drop(true).stdin(Stdio::null());
    for (name, value) in own.as_std().get_envs() {
        command.env(name, value.unwrap_or_default());
    }
    command.env("BROWSER", &browser).env("TERM", "xterm");
    let line = format!("'{}' mcp login mcpproxy", own.as_std().get_program().to_str().unwrap());
    command.args(["--quiet", "--return", "--command", &line, "/dev/null"]);
    let output = timeout(STEP_WAIT_MAX, command.output()).await.unwrap().unwrap();
    assert!(output.status.success(), "{agent:?}: {}", String::from_utf8_lossy(&output.stdout));
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs Claude Code and Codex: make agents-test"]
async fn the_model_of_an_agent_that_logged_in_calls_a_tool() {
    for agent in Agent::ASKING {
        let scene = Scene::start(Provider::of_registered_clients().await, &[]).await;
        let upstream = Upstream::handshake(vec![Tool::writes("writer")]).await;
        scene.tenant.add("zoo", &upstream).await;
        let endpoint = format!("{}/mcp", scene.balancer.url);
        let (model, home) = (Model::start(1).await, tempfile::tempdir().unwrap());
        add(agent, home.path(), &model.url, &endpoint).await;
        log_in(agent, home.path(), &model.url).await;
        let (name, scope) = match agent {
            Agent::ClaudeCode => ("Claude Code (mcpproxy)", Value::Null),
            _ => ("Codex", json!(ALL_SCOPES)),
        };
        let registered = scene.provider.answered("/reg");
        assert_eq!(registered.last().unwrap()["params"]["client_name"], name, "{registered:?}");
        let asked = scene.provider.answered("/auth");
        let params = &asked[0]["params"];
        assert_eq!((&params["scope"], &params["resource"]), (&scope, &json!(endpoint)), "{asked:?}");
        assert_eq!((asked.len(), &params["code_challenge_method"]), (1, &json!("S256")), "{asked:?}");

        let mut command = agent.command(home.path(), &model.url);
        command.args(match agent {
            Agent::ClaudeCode => &["--print", "Use the tool.", "--allowedTools", "mcp__mcpproxy"][..],
            _ => &["exec", "--skip-git-repo-check", "Use the tool."],
        });
        let mut turn = Turn::of(agent, command, model, home);
        assert_eq!(turn.asked(1).await, "[]", "{agent:?}");
        let results = turn.asked(2).await;
        assert!(results.contains(MARK), "{agent:?}: {results}");
        turn.go_on().await;
        turn.end().await;
        assert_eq!(upstream.counts().calls, 1, "{agent:?}");
        let records = scene.tenant.records("type=tool_call", 1).await;
        assert_eq!(records[0]["owner"], "ana@acme.example", "{agent:?}");
    }
}
