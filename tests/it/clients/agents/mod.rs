//! Claude Code and Codex, driven by a scripted model on loopback: neither of them hangs on a permission request. They are too
//! large for the tests of every build, so `make agents-test` installs and runs them, and Gemini CLI with them.

mod connect;
mod login;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Output, Stdio};
use std::time::Duration;

use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};
use tokio::time::timeout;

use super::consent::Scene;
use super::servers::ROOT;
use crate::support::{Api, node, settle};

/// Longest wait for a step of an agent, its start and its end among them; the machine may be busy.
const STEP_WAIT_MAX: Duration = Duration::from_secs(60);
/// The model's last words, which each agent prints.
const LAST_WORDS: &str = "The scripted model has ended its turn.";
/// Argument of the call, which the tool repeats.
const MARK: &str = "from-the-agent";
/// Text that an agent reads of a call that waits for a person.
const WAITS: &str = "Waiting for approval";

/// An agent with a model of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Agent {
    ClaudeCode,
    Codex,
    Gemini,
}

impl Agent {
    /// Agents whose calls wait for a person.
    const ASKING: [Agent; 2] = [Agent::ClaudeCode, Agent::Codex];

    /// The program itself: the one that npm puts on the PATH starts it, and would leave it behind when killed.
    fn program(self) -> Command {
        let path = match self {
            Agent::ClaudeCode => "@anthropic-ai/claude-code-linux-x64/claude",
            Agent::Codex => "@openai/codex-linux-x64/vendor/x86_64-unknown-linux-musl/bin/codex",
            Agent::Gemini => "@google/gemini-cli/bundle/gemini.js",
        };
        let path: PathBuf = Path::new(ROOT).join("tests/clients/agents/node_modules").join(path);
        assert!(path.exists(), "{self:?}: `make agents-test` installs it on Linux (x64)");
        match self {
            Agent::Gemini => {
                let mut command = Command::new(node());
                command.arg(path);
                command
            }
            _ => Command::new(path),
        }
    }

    /// Command of the program with its files in this folder, whose model and proxy are at this URL.
    fn command(self, home: &Path, model: &str) -> Command {
        let mut command = self.program();
        command.env_clear().env("PATH", std::env::var_os("PATH").unwrap_or_default());
        command.env("HOME", home).env("TMPDIR", home).current_dir(home).kill_on_drop(true);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        // nothing beyond loopback
        command.envs(["HTTP_PROXY", "HTTPS_PROXY", "https_proxy"].map(|name| (name, model)));
        command.envs([("NO_PROXY", "127.0.0.1"), ("no_proxy", "127.0.0.1")]);
        match self {
            Agent::ClaudeCode => {
                command.envs([("ANTHROPIC_BASE_URL", model), ("ANTHROPIC_API_KEY", "scripted")]);
                command.envs(
                    ["CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC", "DISABLE_AUTOUPDATER", "DISABLE_TELEMETRY"]
                        .map(|name| (name, "1")),
                );
                // else the model would have to search for the tools of the gateway first
                command.env("ENABLE_TOOL_SEARCH", "false");
            }
            Agent::Codex => {
                command.env("SCRIPTED_MODEL_KEY", "scripted");
            }
            Agent::Gemini => {
                command.envs([("GOOGLE_GEMINI_BASE_URL", model), ("GEMINI_API_KEY", "scripted")]);
            }
        }
        command
    }

    /// Name as a client of MCP.
    fn client(self) -> &'static str {
        match self {
            Agent::ClaudeCode => "claude-code",
            Agent::Codex => "codex-mcp-client",
            Agent::Gemini => "gemini-cli-mcp-client",
        }
    }

    /// Command of one turn without a terminal, which keeps its files in this folder.
    fn turn(self, home: &Path, model: &str, gateway: &str, key: &Api) -> Command {
        let mut command = self.command(home, model);
        command.env("MCPPROXY_API_KEY", key.key.as_deref().unwrap());
        match self {
            Agent::ClaudeCode => {
                let server = json!({"type": "http", "url": format!("{gateway}/mcp"),
                    "headers": {"X-API-Key": "${MCPPROXY_API_KEY}"}});
                let servers = json!({"mcpServers": {"mcpproxy": server}});
                fs::write(home.join("mcp.json"), servers.to_string()).unwrap();
                command.args(["--print", "Use the tool.", "--mcp-config", "mcp.json", "--strict-mcp-config"]);
                command.args(["--allowedTools", "mcp__mcpproxy"]);
            }
            Agent::Codex => {
                let settings = codex_settings(model);
                let config = format!(
                    r#"{settings}
[mcp_servers.mcpproxy]
url = "{gateway}/mcp"
env_http_headers = {{ "X-API-Key" = "MCPPROXY_API_KEY" }}
required = true
default_tools_approval_mode = "approve"
"#
                );
                fs::write(home.join("config.toml"), config).unwrap();
                command.env("CODEX_HOME", home);
                command.args(["exec", "--skip-git-repo-check", "Use the tool."]);
            }
            Agent::Gemini => unreachable!("no test has it ask"),
        }
        command
    }
}

/// Settings of Codex with the model at this URL.
fn codex_settings(model: &str) -> String {
    format!(
        r#"
model = "scripted"
model_provider = "scripted"
approval_policy = "never"
sandbox_mode = "read-only"
check_for_update_on_startup = false
[analytics]
enabled = false
[features]
plugins = false
apps = false
[model_providers.scripted]
name = "scripted"
base_url = "{model}/v1"
wire_api = "responses"
env_key = "SCRIPTED_MODEL_KEY"
"#
    )
}

/// `tests/clients/scripted_model.mjs`; killed when dropped.
struct Model {
    url: String,
    answers: ChildStdin,
    events: Lines<BufReader<ChildStdout>>,
    _child: Child,
}

impl Model {
    /// A model that calls the tool that writes so often, and then ends its turn.
    async fn start(calls: usize) -> Model {
        let arguments = json!({"name": "zoo:writer", "args": {"mark": MARK}}).to_string();
        let mut child = Command::new(node())
            .args(["scripted_model.mjs", "call_tool_write", &arguments, &calls.to_string()])
            .current_dir(Path::new(ROOT).join("tests/clients"))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        let mut events = BufReader::new(child.stdout.take().unwrap()).lines();
        let line = timeout(STEP_WAIT_MAX, events.next_line()).await.unwrap().unwrap().unwrap();
        let url = line.strip_prefix("listening ").unwrap().to_owned();
        Model { url, answers: child.stdin.take().unwrap(), events, _child: child }
    }
}

/// A turn of an agent; killed when dropped.
struct Turn {
    agent: Agent,
    model: Model,
    child: Child,
    _home: tempfile::TempDir,
}

impl Turn {
    async fn begin(agent: Agent, scene: &Scene, key: &Api, calls: usize) -> Turn {
        let (model, home) = (Model::start(calls).await, tempfile::tempdir().unwrap());
        let command = agent.turn(home.path(), &model.url, &scene.balancer.url, key);
        Turn::of(agent, command, model, home)
    }

    fn of(agent: Agent, mut command: Command, model: Model, home: tempfile::TempDir) -> Turn {
        Turn { agent, model, child: command.spawn().unwrap(), _home: home }
    }

    /// The next question to the model, which must be this one: the results of the call before it.
    async fn asked(&mut self, number: usize) -> String {
        let line = timeout(STEP_WAIT_MAX, self.model.events.next_line()).await;
        let line = line.unwrap_or_else(|_| panic!("{:?}: no question {number}", self.agent));
        let event: Value = serde_json::from_str(&line.unwrap().unwrap()).unwrap();
        assert_eq!(event["asked"]["number"], number, "{:?}: {event}", self.agent);
        event["asked"]["results"].to_string()
    }

    /// Lets the model answer.
    async fn go_on(&mut self) {
        self.model.answers.write_all(b"\n").await.unwrap();
    }

    /// The end of the turn, which comes by itself.
    async fn end(self) {
        let Turn { agent, child, mut model, .. } = self;
        let output = timeout(STEP_WAIT_MAX, child.wait_with_output()).await;
        let Output { status, stdout, stderr } =
            output.unwrap_or_else(|_| panic!("{agent:?} did not end")).unwrap();
        let (said, complained) = (String::from_utf8_lossy(&stdout), String::from_utf8_lossy(&stderr));
        assert!(status.success() && said.contains(LAST_WORDS), "{agent:?}: {status} {said} {complained}");
        drop(model.answers);
        let line = timeout(STEP_WAIT_MAX, model.events.next_line()).await.unwrap().unwrap();
        assert_eq!(line, None, "{agent:?}: more than the turn, or beyond loopback");
    }
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs Claude Code and Codex: make agents-test"]
async fn an_agent_that_nobody_answers_ends_its_turn() {
    let scene = Scene::start().await;
    for agent in Agent::ASKING {
        let key = scene.tenant.agent_with(json!({"in_band_answers": false})).await;
        let mut turn = Turn::begin(agent, &scene, &key, 1).await;
        assert_eq!(turn.asked(1).await, "[]", "{agent:?}");
        let results = turn.asked(2).await;
        let request = scene.request(&key).await;
        assert!(results.contains(WAITS), "{agent:?}: {results}");
        assert!(results.contains(request["id"].as_str().unwrap()), "{agent:?}: {results}");
        turn.go_on().await;
        turn.end().await;
        assert_eq!(scene.request(&key).await["state"], "pending", "{agent:?}");
    }
    assert_eq!(scene.upstream.counts().calls, 0);
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs Claude Code and Codex: make agents-test"]
async fn a_call_of_an_agent_that_a_person_allows_meanwhile_runs_once() {
    let scene = Scene::start().await;
    let approver = scene.tenant.approver().await.at(&scene.balancer.url);
    for (done, agent) in Agent::ASKING.into_iter().enumerate() {
        let key = scene.tenant.agent_with(json!({"in_band_answers": false})).await;
        let mut turn = Turn::begin(agent, &scene, &key, 2).await;
        turn.asked(1).await;
        assert!(turn.asked(2).await.contains(WAITS), "{agent:?}");
        let id = scene.request(&key).await["id"].as_str().unwrap().to_owned();
        let path = format!("/api/v1/consent/{id}/decision");
        approver.post(&path, &json!({"decision": "allow_once"})).await.expect(200);
        turn.go_on().await;
        let results = turn.asked(3).await;
        assert!(results.contains(MARK) && !results.contains(WAITS), "{agent:?}: {results}");
        turn.go_on().await;
        turn.end().await;
        assert_eq!(scene.upstream.counts().calls, done + 1, "{agent:?}");
        settle(json!("succeeded"), STEP_WAIT_MAX, async || scene.request(&key).await["state"].clone()).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs Claude Code and Codex: make agents-test"]
async fn an_agent_that_is_shown_a_form_without_a_person_ends_its_turn() {
    let scene = Scene::start().await;
    for agent in Agent::ASKING {
        let key = scene.tenant.agent().await;
        let mut turn = Turn::begin(agent, &scene, &key, 1).await;
        turn.asked(1).await;
        let results = turn.asked(2).await;
        // one closes the form by itself, the other refuses by itself
        let (state, reads, rounds) = match agent {
            Agent::ClaudeCode => ("pending", WAITS, 2),
            Agent::Codex => ("denied", "Refused by", 1),
            Agent::Gemini => unreachable!("no test has it ask"),
        };
        let request = scene.request(&key).await;
        assert_eq!(request["state"], state, "{agent:?}: {request}");
        assert!(results.contains(reads), "{agent:?}: {results}");
        assert!(results.contains(request["id"].as_str().unwrap()), "{agent:?}: {results}");
        turn.go_on().await;
        turn.end().await;
        let passed = scene.balancer.passed(key.key.as_deref().unwrap());
        let calls = passed.iter().filter(|sent| sent.rpc == "tools/call");
        assert_eq!(calls.count(), rounds, "{agent:?}: {passed:?}");
        let path = format!("/api/v1/activity?type=tool_call&key={}", key.id);
        for record in scene.tenant.platform.items(&path).await {
            assert_eq!(record["client"]["name"], agent.client(), "{record}");
            assert_eq!(record["session_id"].is_null(), agent == Agent::ClaudeCode, "{agent:?}: {record}");
        }
    }
    assert_eq!(scene.upstream.counts().calls, 0);
}
