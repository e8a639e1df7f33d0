//! `mcpproxy connect` for the programs themselves: each reads the file that was written for it, and reaches the gateway with the
//! key in it. The home folder is one of the test.

use std::fs;
use std::path::Path;

use serde_json::{Value, json};
use tokio::time::timeout;

use super::{Agent, MARK, Model, STEP_WAIT_MAX, Scene, Turn, codex_settings};
use crate::support::{Exchange, cli_with};

const ALL: [Agent; 3] = [Agent::ClaudeCode, Agent::Codex, Agent::Gemini];
/// Address without a program: none of these commands needs a model.
const NOWHERE: &str = "http://127.0.0.1:1";

/// Writes the settings that an agent has before it is connected.
fn prepare(agent: Agent, home: &Path, model: &str) {
    let write = |file: &str, text: String| {
        let path = home.join(file);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    };
    match agent {
        Agent::ClaudeCode => {}
        Agent::Codex => {
            let own = "[mcp_servers.mcpproxy]\ndefault_tools_approval_mode = \"approve\"\n";
            write(".codex/config.toml", format!("{}{own}", codex_settings(model)));
        }
        Agent::Gemini => {
            let settings = json!({"security": {"auth": {"selectedType": "gemini-api-key"}},
                "privacy": {"usageStatisticsEnabled": false}, "general": {"enableAutoUpdate": false}});
            write(".gemini/settings.json", settings.to_string());
            // servers are off in any other folder
            let home = home.to_str().unwrap();
            write(".gemini/trustedFolders.json", json!({ home: "TRUST_FOLDER" }).to_string());
        }
    }
}

/// Connects an agent with an admin's key. Returns the key that was made for it.
async fn connect(agent: Agent, home: &Path, scene: &Scene) -> String {
    let (client, file) = match agent {
        Agent::ClaudeCode => ("claude-code", ".claude.json"),
        Agent::Codex => ("codex", ".codex/config.toml"),
        Agent::Gemini => ("gemini", ".gemini/settings.json"),
    };
    let admin = scene.tenant.admin().await.key.unwrap();
    let env = [
        ("HOME", home.to_str().unwrap()),
        ("USER", "ana"),
        ("MCPPROXY_URL", &*scene.balancer.url),
        ("MCPPROXY_API_KEY", &*admin),
    ];
    cli_with(&env, &["connect", client]).await.ok();
    let text = fs::read_to_string(home.join(file)).unwrap();
    let (_, rest) = text.split_once("mcpk_").unwrap();
    format!("mcpk_{}", rest.split('"').next().unwrap())
}

/// Returns what an agent prints.
async fn printed(agent: Agent, home: &Path, args: &[&str]) -> (String, String) {
    let output = agent.command(home, NOWHERE).args(args).output();
    let output = timeout(STEP_WAIT_MAX, output).await.unwrap().unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let (out, err) = (text(&output.stdout), text(&output.stderr));
    assert!(output.status.success(), "{agent:?}: {out} {err}");
    (out, err)
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs Claude Code, Codex and Gemini CLI: make agents-test"]
async fn every_agent_lists_the_server_that_it_was_connected_to() {
    let scene = Scene::start().await;
    let url = format!("{}/mcp", scene.balancer.url);
    for agent in ALL {
        let home = tempfile::tempdir().unwrap();
        prepare(agent, home.path(), NOWHERE);
        let key = connect(agent, home.path(), &scene).await;
        let before = scene.balancer.passed(&key).len();
        let list: &[&str] = if agent == Agent::Codex { &["mcp", "list", "--json"] } else { &["mcp", "list"] };
        let (out, err) = printed(agent, home.path(), list).await;
        let (asks, line) = match agent {
            Agent::ClaudeCode => (&["tools/list"][..], format!("mcpproxy: {url} (HTTP) - ✔ Connected")),
            Agent::Gemini => (&["initialize", "ping"][..], format!("✓ mcpproxy: {url} (http) - Connected")),
            Agent::Codex => {
                let servers: Value = serde_json::from_str(&out).unwrap();
                let (server, transport) = (&servers[0], &servers[0]["transport"]);
                assert_eq!((&server["name"], &server["enabled"]), (&json!("mcpproxy"), &json!(true)));
                assert_eq!((&transport["type"], &transport["url"]), (&json!("streamable_http"), &json!(url)));
                assert_eq!(transport["http_headers"], json!({"X-API-Key": key}));
                (&[][..], String::new())
            }
        };
        assert!(format!("{out}{err}").contains(&line), "{agent:?}: {out} {err}");
        let passed = scene.balancer.passed(&key).split_off(before);
        let has = |rpc: &&str| passed.iter().any(|sent: &Exchange| sent.rpc == **rpc && sent.status == 200);
        assert!(asks.iter().all(has), "{agent:?}: {passed:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs Claude Code, Codex and Gemini CLI: make agents-test"]
async fn the_model_of_every_connected_agent_calls_a_tool() {
    let scene = Scene::start().await;
    scene.tenant.platform.patch("/api/v1/settings", &json!({"policy_mode": "observe"})).await.expect(200);
    for (done, agent) in ALL.into_iter().enumerate() {
        let (model, home) = (Model::start(1).await, tempfile::tempdir().unwrap());
        prepare(agent, home.path(), &model.url);
        let key = connect(agent, home.path(), &scene).await;
        let mut command = agent.command(home.path(), &model.url);
        command.args(match agent {
            Agent::ClaudeCode => &["--print", "Use the tool.", "--allowedTools", "mcp__mcpproxy"][..],
            Agent::Codex => &["exec", "--skip-git-repo-check", "Use the tool."],
            // without --yolo its model is offered no tool that writes
            Agent::Gemini => &["--model", "gemini-2.5-flash", "--yolo", "--prompt", "Use the tool."],
        });
        let mut turn = Turn::of(agent, command, model, home);
        assert_eq!(turn.asked(1).await, "[]", "{agent:?}");
        let results = turn.asked(2).await;
        assert!(results.contains(MARK), "{agent:?}: {results}");
        turn.go_on().await;
        turn.end().await;
        assert_eq!(scene.upstream.counts().calls, done + 1, "{agent:?}");
        let passed = scene.balancer.passed(&key);
        for rpc in ["tools/list", "tools/call"] {
            assert!(passed.iter().any(|sent| sent.rpc == rpc && sent.status == 200), "{agent:?}: {passed:?}");
        }
    }
}
