//! `mcpproxy policy`: rules that allow calls, ask a person first, or deny them.

mod file;

use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};
use http::Method;
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};

use super::client::{ApiClient, ApiQuery};
use super::connection::ApiConnection;
use super::failure::Failure;
use super::output::{self, Column, Format, Output, text};
use super::{input, key};
use crate::domain::operation::Variant;
use crate::domain::policy::{Entrance, PolicyMode, Ruling};

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
    /// Show the rules in force, or those of a version, as a file that `policy apply` takes
    Show(ShowPolicy),
    /// List the versions of the rules, newest first; -o yaml shows the rules
    History {
        /// ID of the key whose rules are listed; without, the tenant's
        #[arg(long, value_name = "ID")]
        key: Option<String>,
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
struct ShowPolicy {
    /// ID of the key whose rules are shown; without, the tenant's
    #[arg(long, value_name = "ID")]
    key: Option<String>,
    /// Version to show [default: the one in force]
    #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(u32).range(1..))]
    version: Option<u32>,
    #[command(flatten)]
    output: Output,
}

#[derive(Args)]
struct ApplyPolicy {
    /// File with rules and optionally a mode, also what `policy show` and `history` print; - for standard input
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
            Command::Show(show) => show.run(&client()?).await,
            Command::History { key, limit, output } => {
                let versions = versions(&client()?, key.as_deref(), None, limit as usize).await?;
                output.items(&versions, &COLUMNS)
            }
        }
    }
}

/// Returns the route of a key's policy, or of the tenant's.
fn route(key: Option<&str>) -> Result<Vec<&str>, Failure> {
    match key {
        Some(id) => {
            key::check_id(id)?;
            Ok(vec!["keys", id, "policy"])
        }
        None => Ok(vec!["policy"]),
    }
}

/// Fetches versions of a policy, the newest first, or the one with this number.
async fn versions(
    client: &ApiClient,
    key: Option<&str>,
    version: Option<i64>,
    limit: usize,
) -> Result<Vec<Box<RawValue>>, Failure> {
    if let Some(id) = key {
        key::check_id(id)?;
    }
    let mut query = ApiQuery::default();
    query.add("key", key.map(str::to_owned));
    query.add("version", version.map(|version| version.to_string()));
    client.list(&["policy", "versions"], &query, limit).await
}

/// Prints what the gateway warns of to standard error.
fn warn(policy: &Value) {
    for warning in policy.get("warnings").and_then(Value::as_array).into_iter().flatten() {
        let warning = warning.as_str().unwrap_or_default();
        output::note(&format!("warning: {}", output::one_line(warning)));
    }
}

fn rules(count: usize) -> String {
    format!("{count} rule{}", if count == 1 { "" } else { "s" })
}

/// Formats a policy in force in one line.
fn summary(policy: &Value) -> String {
    format!("version {}, mode {}, {}", text(policy, "version"), text(policy, "mode"), rules(count(policy)))
}

fn check(file: &Path) -> Result<(), Failure> {
    let (_, document) = file::read(file)?;
    let mode = document.mode.map_or_else(String::new, |mode| format!(", mode {}", PolicyMode::as_str(mode)));
    output::line(&format!("{}: {}{mode}", file::name(file), rules(document.rules.len())))
}

impl ShowPolicy {
    async fn run(self, client: &ApiClient) -> Result<(), Failure> {
        let key = self.key.as_deref();
        let of = key.map_or_else(|| "the tenant".to_owned(), |id| format!("key {id}"));
        let none = Value::Null;
        if let Some(version) = self.version {
            let found = versions(client, key, Some(version.into()), 1).await?;
            let Some(found) = found.first() else {
                let flag = key.map_or_else(String::new, |id| format!(" --key {id}"));
                return Err(Failure::Refused(format!(
                    "version {version} of the policy of {of} is not there: mcpproxy policy history{flag} lists them"
                )));
            };
            return self.output.thing(found.get(), |_| {
                let policy = output::parsed(found);
                let mode = policy.get("mode").and_then(Value::as_str);
                let mut comments =
                    vec![format!("Policy of {of}, version {version} of {}", text(&policy, "created_at"))];
                if mode.is_none() {
                    comments.push("The mode was left alone.".to_owned());
                }
                file::write(&comments, mode, policy.get("rules").unwrap_or(&none))
            });
        }
        let answer = client.get(&route(key)?, &ApiQuery::default()).await?;
        let policy = answer.json()?;
        warn(&policy);
        let version = policy.get("version").and_then(Value::as_i64).unwrap_or_default();
        let mode = policy.get("mode").and_then(Value::as_str);
        let sets_mode = self.output.format == Format::Table && version > 0 && {
            let found = versions(client, key, Some(version), 1).await?;
            found.first().is_some_and(|found| output::parsed(found).get("mode").is_some_and(Value::is_string))
        };
        self.output.thing(&answer.text, |_| {
            let mut comments = vec![match version {
                0 => format!("Policy of {of}: there is no version yet"),
                version => format!("Policy of {of}, version {version}, in force"),
            }];
            if !sets_mode {
                comments
                    .push(format!("mode: {} holds, and was not set with these rules", text(&policy, "mode")));
            }
            file::write(&comments, mode.filter(|_| sets_mode), policy.get("rules").unwrap_or(&none))
        })
    }
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
    let consequence = match Ruling::parse(&text(&found, "ruling")) {
        Some(Ruling::WouldAsk) => {
            "\nThe mode is observe: the call runs. In mode by_risk a person would be asked first."
        }
        Some(Ruling::WouldDeny) => {
            "\nThe mode is observe: the call runs. In mode by_risk it would be refused."
        }
        Some(Ruling::Delegated) => {
            "\nThe call runs: the client asks its user by itself, as host_prompts says."
        }
        Some(Ruling::Allowed | Ruling::Asked | Ruling::Denied) | None => "",
    };
    let asks = found.get("ask").filter(|ask| ask.is_object()).map_or_else(String::new, terms_of_ask);
    format!("{}{consequence}{asks}\n\n{table}", output::safe(&head))
}

/// Formats the terms of an ask: who may answer, and where.
fn terms_of_ask(terms: &Value) -> String {
    let channels = terms.get("channels").and_then(Value::as_array).into_iter().flatten();
    let channels: Vec<&str> = channels.filter_map(Value::as_str).collect();
    let assurance = text(terms, "assurance");
    let who = match &*assurance {
        "client" => " (also the user of the calling client may allow it)",
        "approver" => " (another person must allow it)",
        _ => "",
    };
    output::safe(&format!("\nAssurance {assurance}{who}, channels {}", channels.join(", ")))
}

/// Version that no policy has.
const NEVER: u32 = u32::MAX;

impl ApplyPolicy {
    async fn run(self, client: &ApiClient) -> Result<(), Failure> {
        let (mut body, document) = file::read(&self.file)?;
        let path = route(self.key.as_deref())?;
        let (raw, policy) = match client.get(&path, &ApiQuery::default()).await {
            // more roles may read: the refusal of the change names those that may make it
            Err(Failure::NotAuthorised(_)) => (String::new(), json!({ "version": NEVER })),
            current => {
                let current = current?;
                (current.text.clone(), current.json()?)
            }
        };
        let there = policy.get("version").cloned().unwrap_or(json!(0));
        let named = self.version.or(document.version.map(i64::from)).map(Value::from);
        let is_same = |name: &str| body.get(name).is_none_or(|wanted| policy.get(name) == Some(wanted));
        if is_same("rules") && is_same("mode") && named.as_ref().is_none_or(|named| *named == there) {
            let unchanged = |_: &str| format!("{}: in force already, nothing was changed", summary(&policy));
            return self.output.thing(&raw, unchanged);
        }
        body.insert("version".to_owned(), named.unwrap_or(there));
        let answer = client.send(Method::PUT, &path, Value::Object(body).to_string()).await?;
        let policy = answer.json()?;
        warn(&policy);
        self.output.thing(&answer.text, |_| summary(&policy))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn explanations_say_what_becomes_of_the_call() {
        let head = |effect: &str, ruling: &str| {
            let found = json!({"effect": effect, "rule": null, "ruling": ruling, "mode": "observe", "trace": [],
                "risk": {"level": "high", "reasons": ["verb"]}});
            explained(&found.to_string()).split("\n\n").next().unwrap_or_default().to_owned()
        };
        let asked = json!({"effect": "ask", "rule": "r", "ruling": "asked", "mode": "by_risk", "trace": [],
            "risk": {"level": "high", "reasons": []},
            "ask": {"assurance": "client", "channels": ["elicitation", "inbox"], "ttl_s": 600}});
        assert_eq!(
            explained(&asked.to_string()).split("\n\n").next(),
            Some(
                "ask by rule r, risk high\nAssurance client (also the user of the calling client may allow it), channels \
                 elicitation, inbox"
            )
        );
        for (effect, ruling, expected) in [
            ("ask", "asked", "ask, risk high (verb)"),
            (
                "ask",
                "would_ask",
                "ask, risk high (verb)\nThe mode is observe: the call runs. In mode by_risk a person would be asked first.",
            ),
            (
                "deny",
                "would_deny",
                "deny, risk high (verb)\nThe mode is observe: the call runs. In mode by_risk it would be refused.",
            ),
            // a gateway that does not report it
            ("deny", "", "deny, risk high (verb)"),
        ] {
            assert_eq!(head(effect, ruling), expected);
        }
    }
}
