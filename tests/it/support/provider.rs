//! Identity providers that others wrote, as processes.

use std::path::PathBuf;
use std::process::Stdio;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::process::{Child, ChildStdin, Command};
use url::form_urlencoded;

use super::gateway::local_http;
use super::real::{node, tools};
use super::visitor::Visitor;
use super::wait::eventually;

const INSTALL: &str = "run tests/it/setup.sh first";
/// Longest wait for a start, and for a command to be carried out; the machine may be busy.
const WAIT_MAX: Duration = Duration::from_secs(30);
/// Client of `oidc_provider.mjs` that gets tokens of its own, and its secret.
const ROBOT: (&str, &str) = ("robot", "secret-of-the-robot");

/// A running provider; ends with its standard input.
pub struct Provider {
    /// Issuer URL.
    pub url: String,
    told: Arc<Mutex<Vec<Value>>>,
    commands: tokio::sync::Mutex<ChildStdin>,
    http: reqwest::Client,
    _child: Child,
}

impl Provider {
    /// `tests/clients/oidc_provider.mjs`, whose tokens live so many seconds.
    pub async fn oidc_provider(token_s: u32) -> Provider {
        Provider::start(node(), "oidc_provider.mjs", token_s, &[]).await
    }

    /// `tests/clients/oidc_provider.mjs` without metadata documents: those of most clients are beyond this machine.
    pub async fn of_registered_clients() -> Provider {
        Provider::of_registered_clients_for(600).await
    }

    /// `tests/clients/oidc_provider.mjs` without metadata documents, whose tokens live so many seconds.
    pub async fn of_registered_clients_for(token_s: u32) -> Provider {
        Provider::start(node(), "oidc_provider.mjs", token_s, &["--no-documents"]).await
    }

    /// `tests/clients/authlib_provider.py`, whose tokens live so many seconds.
    pub async fn authlib(token_s: u32) -> Provider {
        Provider::start(tools().join("authlib/bin/python"), "authlib_provider.py", token_s, &[]).await
    }

    async fn start(program: PathBuf, script: &str, token_s: u32, more: &[&str]) -> Provider {
        let mut child = Command::new(&program)
            .args([script, &token_s.to_string()])
            .args(more)
            .current_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/clients"))
            .env("PYTHONDONTWRITEBYTECODE", "1")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .kill_on_drop(true)
            .spawn()
            .unwrap_or_else(|error| panic!("{}: {error}; {INSTALL}", program.display()));
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let line = tokio::time::timeout(WAIT_MAX, lines.next_line()).await.unwrap().unwrap();
        let line = line.unwrap_or_else(|| panic!("{script} ended without listening; {INSTALL}"));
        let url = line.strip_prefix("listening ").unwrap().trim().to_owned();
        let told = Arc::new(Mutex::new(Vec::new()));
        let kept = Arc::clone(&told);
        tokio::spawn(async move {
            while let Ok(Some(line)) = lines.next_line().await {
                // its library warns between the lines
                kept.lock().unwrap().extend(serde_json::from_str::<Value>(&line));
            }
        });
        let http = local_http().build().unwrap();
        let commands = tokio::sync::Mutex::new(child.stdin.take().unwrap());
        Provider { url, told, commands, http, _child: child }
    }

    /// Has it carry out a command of `oidc_provider.mjs`.
    pub async fn tell(&self, command: &str) {
        let count = || self.told.lock().unwrap().iter().filter(|event| event["done"] == command).count();
        let before = count();
        self.commands.lock().await.write_all(format!("{command}\n").as_bytes()).await.unwrap();
        eventually(command, WAIT_MAX, || std::future::ready((count() > before).then_some(()))).await;
    }

    /// Answers that it gave at a path, in order: `{method, path, status, params, agent}`.
    pub fn answered(&self, path: &str) -> Vec<Value> {
        self.told.lock().unwrap().iter().filter(|event| event["path"] == path).cloned().collect()
    }

    /// Registers a client with a secret (RFC 7591). Returns its id and the secret.
    pub async fn register(&self, redirect_uri: &str) -> (String, String) {
        let client = json!({
            "redirect_uris": [redirect_uri], "grant_types": ["authorization_code"], "response_types": ["code"],
            "token_endpoint_auth_method": "client_secret_basic",
        });
        let request = self.http.post(format!("{}/reg", self.url)).header("content-type", "application/json");
        let answer: Value = request.body(client.to_string()).send().await.unwrap().json().await.unwrap();
        let text = |name: &str| answer[name].as_str().unwrap_or_else(|| panic!("{answer}")).to_owned();
        (text("client_id"), text("client_secret"))
    }

    /// A token that the person of the provider gets for a resource, with a client for that alone.
    pub async fn person(&self, resource: &str) -> String {
        let redirect_uri = "http://127.0.0.1:9/done";
        let (client_id, secret) = self.register(redirect_uri).await;
        let verifier = "a-verifier-of-a-test-that-is-at-least-43-characters-long";
        let digest = ring::digest::digest(&ring::digest::SHA256, verifier.as_bytes());
        let asked = [
            ("client_id", &*client_id),
            ("response_type", "code"),
            ("redirect_uri", redirect_uri),
            ("scope", "mcp:read mcp:write"),
            ("resource", resource),
            ("code_challenge", &URL_SAFE_NO_PAD.encode(digest)),
            ("code_challenge_method", "S256"),
        ];
        let url = url::Url::parse_with_params(&format!("{}/auth", self.url), asked).unwrap();
        let back = Visitor::nowhere("http://127.0.0.1:9").through_provider(url.as_str()).await;
        let back = url::Url::parse(&format!("http://127.0.0.1:9{back}")).unwrap();
        let code = back.query_pairs().find(|(name, _)| name == "code").unwrap_or_else(|| panic!("{back}")).1;
        let form = [
            ("grant_type", "authorization_code"),
            ("code", &code),
            ("redirect_uri", redirect_uri),
            ("code_verifier", verifier),
            ("resource", resource),
        ];
        self.token((&client_id, &secret), &form).await
    }

    /// Asks the token endpoint as this client. Returns the access token.
    async fn token(&self, (id, secret): (&str, &str), form: &[(&str, &str)]) -> String {
        let body = form_urlencoded::Serializer::new(String::new()).extend_pairs(form).finish();
        let request = self.http.post(format!("{}/token", self.url)).basic_auth(id, Some(secret));
        let request = request.header("content-type", "application/x-www-form-urlencoded").body(body);
        let answer: Value = request.send().await.unwrap().json().await.unwrap();
        answer["access_token"].as_str().unwrap_or_else(|| panic!("{answer}")).to_owned()
    }

    /// True if the provider answers.
    pub async fn is_up(&self) -> bool {
        self.http.get(format!("{}/jwks", self.url)).send().await.is_ok()
    }

    /// A token that the robot gets for a resource with its own secret (RFC 6749 section 4.4, RFC 8707).
    pub async fn robot(&self, resource: &str) -> String {
        let form = [("grant_type", "client_credentials"), ("scope", "mcp:write"), ("resource", resource)];
        self.token(ROBOT, &form).await
    }
}
