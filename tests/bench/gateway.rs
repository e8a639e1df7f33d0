//! The gateway, run as users run it, and the tenants that the benchmark sets up on it.

use std::collections::VecDeque;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{ChildStderr, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use http::Method;
use serde_json::{Value, json};

use crate::load::{self, Door};
use crate::process::Process;

/// How long a start may take: the first makes a database cluster.
const START_WAIT_MAX: Duration = Duration::from_secs(60);
/// How often a starting gateway is asked.
const ASK_EVERY: Duration = Duration::from_millis(1);
/// Streams that the one key of all clients may have open.
const STREAMS_MAX: &str = "2000";
/// Lines of the log that are kept for an error's text.
const LOG_LINES_MAX: usize = 40;

/// A running gateway.
pub struct Gateway {
    process: Process,
    /// `127.0.0.1:PORT`
    pub at: std::net::SocketAddr,
    /// When it was started.
    started: Instant,
    log: Arc<Mutex<VecDeque<String>>>,
}

impl Gateway {
    /// Starts one with these settings on top of the usual ones; returns when it listens.
    ///
    /// # Errors
    /// If it does not, with the end of its log.
    pub fn start(settings: &[(&str, String)]) -> Result<Gateway> {
        Gateway::start_under(&[], settings)
    }

    /// The same, run by a program with these arguments; by none if there are none.
    fn start_under(runner: &[String], settings: &[(&str, String)]) -> Result<Gateway> {
        let started = Instant::now();
        let program = env!("CARGO_BIN_EXE_mcpproxy");
        let mut command = match runner.split_first() {
            Some((runner, arguments)) => {
                let mut command = Command::new(runner);
                command.args(arguments).arg(program);
                command
            }
            None => Command::new(program),
        };
        command.arg("serve").env_clear().stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
        // settings of whoever runs the benchmark reach the gateway: to see what a bound costs
        let ours = |name: &str| ["PATH", "HOME"].contains(&name) || name.starts_with("MCPPROXY__");
        command.envs(std::env::vars_os().filter(|(name, _)| name.to_str().is_some_and(ours)));
        command
            .env("MCPPROXY__SERVER__LISTEN", "127.0.0.1:0")
            .env("MCPPROXY__SERVER__ADMIN_LISTEN", "")
            .env("MCPPROXY__EGRESS__ALLOW", "127.0.0.0/8")
            .env("MCPPROXY__LIMITS__STREAMS_PER_KEY_MAX", STREAMS_MAX)
            .env("MCPPROXY__DIRECT__ENABLED", "true")
            .envs(settings.iter().map(|(name, value)| (name, value)));
        let mut process = Process::start(&mut command)?;
        let lines = process.child().stderr.take().context("the gateway has no log")?;
        let log = Arc::new(Mutex::new(VecDeque::new()));
        let (found, address) = channel();
        let kept = Arc::clone(&log);
        std::thread::spawn(move || read_log(lines, &found, &kept));
        match listening(&address) {
            Ok(at) => Ok(Gateway { process, at, started, log }),
            Err(error) => Err(error.context(ending(&log))),
        }
    }

    /// On a private database in this folder.
    ///
    /// # Errors
    /// As [`Gateway::start`].
    pub fn start_private(data_dir: &Path) -> Result<Gateway> {
        Gateway::start(&[("MCPPROXY__DATA_DIR", data_dir.display().to_string())])
    }

    /// As another replica on the database of a private one.
    ///
    /// # Errors
    /// As [`Gateway::start`], or if the folder has no secrets.
    pub fn start_on(database_url: &str, data_dir: &Path) -> Result<Gateway> {
        Gateway::start_on_with(database_url, data_dir, &[])
    }

    /// The same with these settings on top.
    ///
    /// # Errors
    /// As [`Gateway::start_on`].
    pub fn start_on_with(
        database_url: &str,
        data_dir: &Path,
        settings: &[(&str, String)],
    ) -> Result<Gateway> {
        let mut all = replica(database_url, data_dir)?;
        all.extend_from_slice(settings);
        Gateway::start(&all)
    }

    /// As [`Gateway::start_on`], run by a program with these arguments and this variable.
    ///
    /// # Errors
    /// As [`Gateway::start_on`].
    pub fn start_replica_under(
        (runner, (name, value)): (&[String], (&'static str, &str)),
        database_url: &str,
        data_dir: &Path,
    ) -> Result<Gateway> {
        let mut settings = replica(database_url, data_dir)?;
        settings.push((name, value.to_owned()));
        Gateway::start_under(runner, &settings)
    }

    /// Its process id.
    pub fn pid(&self) -> u32 {
        self.process.pid()
    }

    /// The end of its log, for an error.
    pub fn log(&self) -> String {
        ending(&self.log)
    }

    /// The door of `/mcp` for a key.
    pub fn door(&self, key: &str) -> Door {
        Door { at: self.at, key: Some(key.to_owned()) }
    }

    /// Time from its start until a client has had a tool list; waits for that.
    ///
    /// # Errors
    /// If none comes in time.
    pub async fn first_list(&self, key: &str) -> Result<Duration> {
        loop {
            match load::list_once(&self.door(key)).await {
                Ok(()) => return Ok(self.started.elapsed()),
                Err(error) if self.started.elapsed() > START_WAIT_MAX => {
                    return Err(error.context("no list after the start"));
                }
                Err(_) => tokio::time::sleep(ASK_EVERY).await,
            }
        }
    }
}

/// The settings of another replica on the database of a private one.
fn replica(database_url: &str, data_dir: &Path) -> Result<Vec<(&'static str, String)>> {
    Ok(vec![
        ("MCPPROXY__DATABASE__URL", database_url.to_owned()),
        ("MCPPROXY__AUTH__BOOTSTRAP_KEY", secret(data_dir, "bootstrap_key")?),
        ("MCPPROXY__SESSIONS__KEY", secret(data_dir, "sessions_key")?),
        ("MCPPROXY__SECRETS__MASTER_KEY", secret(data_dir, "master_key")?),
    ])
}

/// A secret that the gateway made for itself.
fn secret(data_dir: &Path, name: &str) -> Result<String> {
    let path = data_dir.join("secrets").join(name);
    let text = std::fs::read_to_string(&path).with_context(|| path.display().to_string())?;
    Ok(text.trim().to_owned())
}

fn read_log(lines: ChildStderr, found: &Sender<std::net::SocketAddr>, kept: &Mutex<VecDeque<String>>) {
    for line in BufReader::new(lines).lines().map_while(Result::ok) {
        let address = line.split_once("listening on http://").map(|(_, rest)| rest);
        let address = address.and_then(|rest| rest.split_whitespace().next()?.parse().ok());
        if let Some(address) = address {
            let _only_the_first_is_waited_for = found.send(address);
        }
        let mut kept = kept.lock().unwrap_or_else(PoisonError::into_inner);
        if kept.len() == LOG_LINES_MAX {
            kept.pop_front();
        }
        kept.push_back(line);
    }
}

fn listening(address: &Receiver<std::net::SocketAddr>) -> Result<std::net::SocketAddr> {
    match address.recv_timeout(START_WAIT_MAX) {
        Ok(at) => Ok(at),
        Err(RecvTimeoutError::Disconnected) => bail!("the gateway ended at its start"),
        Err(RecvTimeoutError::Timeout) => bail!("the gateway does not listen"),
    }
}

fn ending(log: &Mutex<VecDeque<String>>) -> String {
    let lines = log.lock().unwrap_or_else(PoisonError::into_inner);
    let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
    format!("the end of the gateway's log:\n{}", lines.join("\n"))
}

/// The platform operator's REST client.
pub struct Api<'a> {
    http: &'a reqwest::Client,
    base: String,
    key: String,
}

impl<'a> Api<'a> {
    /// With the bootstrap key that the gateway generated.
    ///
    /// # Errors
    /// If there is none in the folder.
    pub fn new(http: &'a reqwest::Client, gateway: &Gateway, data_dir: &Path) -> Result<Api<'a>> {
        let base = format!("http://{}/api/v1", gateway.at);
        Ok(Api { http, base, key: secret(data_dir, "bootstrap_key")? })
    }

    /// Makes a tenant with one server; gives an agent's key to it.
    ///
    /// # Errors
    /// If the gateway refuses, or cannot list the server's tools.
    pub async fn tenant(&self, name: &str, server: &str, url: &str) -> Result<String> {
        self.post(None, "/tenants", &json!({ "name": name })).await?;
        let made = self
            .post(Some(name), "/keys", &json!({"role": "agent", "settings": {"direct_endpoint": true}}))
            .await?;
        let key = made.get("key").and_then(Value::as_str).context("no key in the answer")?;
        self.server(name, server, url, &json!({})).await?;
        Ok(key.to_owned())
    }

    /// Adds a server with these limits to a tenant.
    ///
    /// # Errors
    /// If the gateway refuses, or cannot list the server's tools.
    pub async fn server(&self, tenant: &str, name: &str, url: &str, limits: &Value) -> Result<()> {
        let server =
            json!({"name": name, "kind": "http", "url": url, "auto_approve": true, "limits": limits});
        let added = self.post(Some(tenant), "/servers", &server).await?;
        ensure!(added.get("last_error") == Some(&Value::Null), "the server was not listed: {added}");
        Ok(())
    }

    /// A tenant's id.
    ///
    /// # Errors
    /// If there is no such tenant.
    pub async fn tenant_id(&self, name: &str) -> Result<uuid::Uuid> {
        let tenant = self.get(name, &format!("/tenants/{name}")).await?;
        tenant.get("id").and_then(Value::as_str).and_then(|id| id.parse().ok()).context("no id in the answer")
    }

    /// Reads, as an administrator of a tenant.
    ///
    /// # Errors
    /// If the gateway refuses.
    pub async fn get(&self, tenant: &str, path: &str) -> Result<Value> {
        let text = self.open(tenant, path).await?.text().await?;
        serde_json::from_str(&text).with_context(|| format!("GET {path}: {text}"))
    }

    /// The same, of which the body can be read as it comes.
    ///
    /// # Errors
    /// If the gateway refuses.
    pub async fn open(&self, tenant: &str, path: &str) -> Result<reqwest::Response> {
        let request = self.http.get(format!("{}{path}", self.base)).header("X-API-Key", &self.key);
        let answer = request.header("X-Tenant", tenant).send().await?;
        ensure!(answer.status().is_success(), "GET {path}: {}", answer.status());
        Ok(answer)
    }

    /// Does something to a tenant.
    ///
    /// # Errors
    /// If the gateway refuses.
    pub async fn act(&self, tenant: &str, path: &str) -> Result<()> {
        self.post(Some(tenant), path, &json!({})).await.map(drop)
    }

    /// Puts a document of a tenant in place.
    ///
    /// # Errors
    /// If the gateway refuses.
    pub async fn put(&self, tenant: &str, path: &str, body: &Value) -> Result<()> {
        self.send(Method::PUT, Some(tenant), path, body).await.map(drop)
    }

    /// Posts to the platform, or to a tenant.
    ///
    /// # Errors
    /// If the gateway refuses.
    pub async fn post(&self, tenant: Option<&str>, path: &str, body: &Value) -> Result<Value> {
        self.send(Method::POST, tenant, path, body).await
    }

    async fn send(&self, method: Method, tenant: Option<&str>, path: &str, body: &Value) -> Result<Value> {
        let url = format!("{}{path}", self.base);
        let mut request = self.http.request(method.clone(), url).header("X-API-Key", &self.key);
        if let Some(tenant) = tenant {
            request = request.header("X-Tenant", tenant);
        }
        let answer = request.json(body).send().await?;
        let (status, text) = (answer.status(), answer.text().await?);
        ensure!(status.is_success(), "{method} {path}: {status}: {text}");
        serde_json::from_str(&text).with_context(|| format!("{method} {path}: {text}"))
    }
}
