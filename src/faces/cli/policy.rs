//! `mcpproxy policy`: rules that allow calls, ask a person first, or deny them.

use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};
use http::Method;
use serde_json::{Map, Value, json};

use super::client::{ApiClient, ApiQuery};
use super::connection::ApiConnection;
use super::failure::Failure;
use super::output::{self, Column, Output, text};
use super::{input, key, show};
use crate::domain::operation::Variant;
use crate::domain::policy::{Entrance, PolicyDocument, PolicyMode};
use crate::domain::yaml;

/// `mcpproxy policy`
#[derive(Args)]
pub struct PolicyCommand {
    #[command(subcommand)]
    command: Command,
    #[command(flatten)]
    connection: ApiConnection,
}

#[derive(Subcommand)]
enum Command {
    /// Check a file with rules, YAML or JSON; needs no gateway
    Check {
        /// File with rules; - for standard input
        file: PathBuf,
    },
    /// Explain what the rules say of a call, without making it
    Explain(Explain),
    /// Replace the rules of the tenant or of a key by a file
    Apply(ApplyPolicy),
    /// List the versions of the tenant's rules, newest first; -o yaml shows the rules
    History {
        /// Maximum number of versions
        #[arg(long, default_value_t = 20, value_name = "NUMBER", value_parser = clap::value_parser!(u32).range(1..))]
        limit: u32,
        #[command(flatten)]
        output: Output,
    },
}

#[derive(Args)]
struct Explain {
    /// Name of the tool
    #[arg(value_name = "SERVER:TOOL")]
    tool: String,
    /// Arguments of the call: a JSON object, @FILE, or - for standard input
    #[arg(long, value_name = "JSON")]
    args: Option<String>,
    /// Variant of the call [default: the one that the tool recommends]
    #[arg(long, value_parser = input::variant())]
    variant: Option<Variant>,
    /// ID of the key that would call
    #[arg(long, value_name = "ID")]
    key: Option<String>,
    /// Way by which the call would come in [default: mcp]
    #[arg(long, value_parser = Entrance::WORDS)]
    endpoint: Option<String>,
    #[command(flatten)]
    output: Output,
}

#[derive(Args)]
struct ApplyPolicy {
    /// File with rules and optionally a mode; - for standard input
    file: PathBuf,
    /// ID of the key that the rules are for; without, the tenant
    #[arg(long, value_name = "ID")]
    key: Option<String>,
    /// Version that was shown: fail if somebody else has changed the rules since
    #[arg(long, value_name = "NUMBER")]
    version: Option<i64>,
    #[command(flatten)]
    output: Output,
}

const COLUMNS: [Column; 5] = [
    ("VERSION", |version| text(version, "version")),
    ("MODE", |version| text(version, "mode")),
    ("RULES", |version| count(version).to_string()),
    ("CREATED", |version| text(version, "created_at")),
    ("BY", |version| text(version, "created_by")),
];

fn count(policy: &Value) -> usize {
    policy.get("rules").and_then(Value::as_array).map_or(0, Vec::len)
}

impl PolicyCommand {
    pub(super) async fn run(self) -> Result<(), Failure> {
        let client = || self.connection.client();
        match self.command {
            Command::Check { file } => check(&file),
            Command::Explain(explain) => explain.run(&client()?).await,
            Command::Apply(apply) => apply.run(&client()?).await,
            Command::History { limit, output } => {
                let versions =
                    client()?.list(&["policy", "versions"], &ApiQuery::default(), limit as usize).await?;
                output.items(&versions, &COLUMNS)
            }
        }
    }
}

/// Reads a file, and checks it as the gateway does. Returns the document as a tree, too.
fn read(file: &Path) -> Result<(Map<String, Value>, PolicyDocument), Failure> {
    let shown = file.display().to_string();
    let from = if shown == "-" { shown.clone() } else { format!("@{shown}") };
    let text = input::text("FILE", &from)?;
    let wrong = |fault: String| Failure::Usage(format!("{shown}: {fault}"));
    let tree = yaml::read(&text).map_err(wrong)?;
    let document = PolicyDocument::parse(&tree.to_string()).map_err(|fault| wrong(fault.to_string()))?;
    match tree {
        Value::Object(tree) => Ok((tree, document)),
        _ => Err(wrong("this is no policy".to_owned())),
    }
}

fn check(file: &Path) -> Result<(), Failure> {
    let (_, document) = read(file)?;
    let rules = document.rules.len();
    let plural = if rules == 1 { "" } else { "s" };
    let mode = document.mode.map_or_else(String::new, |mode| format!(", mode {}", PolicyMode::as_str(mode)));
    output::line(&format!("{}: {rules} rule{plural}{mode}", file.display()))
}

impl Explain {
    async fn run(self, client: &ApiClient) -> Result<(), Failure> {
        let mut body = Map::from_iter([("tool".to_owned(), Value::from(self.tool))]);
        if let Some(args) = self.args {
            let args = input::object("--args", &args)?;
            body.insert("args".to_owned(), serde_json::from_str(args.get()).unwrap_or_default());
        }
        let variant = self.variant.map(|variant| variant.as_str().to_owned());
        for (name, value) in [("tool_variant", variant), ("key_id", self.key), ("endpoint", self.endpoint)] {
            if let Some(value) = value {
                body.insert(name.to_owned(), value.into());
            }
        }
        let answer =
            client.send(Method::POST, &["policy", "explain"], Value::Object(body).to_string()).await?;
        self.output.thing(&answer.text, explained)
    }
}

/// Formats an explanation for people: the decision, then its steps.
fn explained(raw: &str) -> String {
    let found: Value = serde_json::from_str(raw).unwrap_or_default();
    let rule = match &*text(&found, "rule") {
        "" => String::new(),
        rule => format!(" by rule {rule}"),
    };
    let risk = found.get("risk").cloned().unwrap_or_default();
    let reasons = risk.get("reasons").and_then(Value::as_array).into_iter().flatten();
    let reasons: Vec<&str> = reasons.filter_map(Value::as_str).collect();
    let reasons = if reasons.is_empty() { String::new() } else { format!(" ({})", reasons.join(", ")) };
    let steps = found.get("trace").and_then(Value::as_array).into_iter().flatten();
    let rows = steps.map(|step| {
        let matched = if step.get("matched") == Some(&Value::Bool(true)) {
            text(step, "effect")
        } else {
            "-".to_owned()
        };
        vec![text(step, "layer"), text(step, "rule"), matched, text(step, "why")]
    });
    let table = output::columns(&["LAYER", "RULE", "EFFECT", "WHY"], rows.collect());
    let head = format!("{}{rule}, risk {}{reasons}", text(&found, "effect"), text(&risk, "level"));
    format!("{}\n\n{table}", output::safe(&head))
}

impl ApplyPolicy {
    async fn run(self, client: &ApiClient) -> Result<(), Failure> {
        let (mut body, document) = read(&self.file)?;
        let path: Vec<&str> = match &self.key {
            Some(id) => {
                key::check_id(id)?;
                vec!["keys", id, "policy"]
            }
            None => vec!["policy"],
        };
        let named = self.version.or(document.version.map(i64::from));
        if named.is_none() {
            let current = client.get(&path, &ApiQuery::default()).await?;
            let policy = current.json()?;
            let is_same = |name: &str| body.get(name).is_none_or(|wanted| policy.get(name) == Some(wanted));
            if is_same("rules") && is_same("mode") {
                output::note("these rules are in force already: nothing was changed");
                return self.output.thing(&current.text, show::fields);
            }
            body.insert("version".to_owned(), policy.get("version").cloned().unwrap_or(json!(0)));
        } else {
            body.insert("version".to_owned(), named.into());
        }
        let answer = client.send(Method::PUT, &path, Value::Object(body).to_string()).await?;
        let policy = answer.json()?;
        for warning in policy.get("warnings").and_then(Value::as_array).into_iter().flatten() {
            output::note(warning.as_str().unwrap_or_default());
        }
        self.output.thing(&answer.text, |_| {
            format!(
                "version {}, mode {}, {} rules",
                text(&policy, "version"),
                text(&policy, "mode"),
                count(&policy)
            )
        })
    }
}
