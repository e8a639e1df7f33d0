//! `mcpproxy key`: API keys and their settings.

use chrono::{DateTime, Utc};
use clap::{Args, Subcommand};
use http::Method;
use serde_json::{Map, Value, json};
use uuid::Uuid;

use super::client::{ApiClient, ApiQuery};
use super::connection::ApiConnection;
use super::failure::Failure;
use super::output::{self, Column, Output, text};
use super::{input, show};
use crate::domain::near;
use crate::domain::tenant::Role;

/// `mcpproxy key`
#[derive(Args)]
pub struct KeyCommand {
    #[command(subcommand)]
    command: Command,
    #[command(flatten)]
    connection: ApiConnection,
}

#[derive(Subcommand)]
enum Command {
    /// Create a key; its secret is printed only this once
    Add(Add),
    /// List keys
    List {
        #[command(flatten)]
        output: Output,
    },
    /// Show a key
    Show {
        /// ID of the key; or its name, if it is that of one key only
        #[arg(value_name = "ID|NAME")]
        key: String,
        #[command(flatten)]
        output: Output,
    },
    /// Replace a key by a new one with the same rights; its secret is printed only this once
    Rotate {
        /// ID of the key; or its name, if it is that of one key only among those that work and are not replaced
        #[arg(value_name = "ID|NAME")]
        key: String,
        /// Time for which the old key still works: 1s to 30d, such as 90m or 24h
        #[arg(long, value_name = "TIME", default_value = "24h")]
        overlap: String,
        #[command(flatten)]
        output: Output,
    },
    /// Revoke a key: it stops working everywhere within a second
    Revoke {
        /// ID of the key; or its name, if it is that of one key only among those that work
        #[arg(value_name = "ID|NAME")]
        key: String,
        /// Revoke without asking at a terminal
        #[arg(long)]
        yes: bool,
    },
    /// Show or change the settings of a key or of the tenant
    Settings(Settings),
}

#[derive(Args)]
struct Add {
    /// Role: agent (for IDEs), operator, approver, auditor or admin
    #[arg(long)]
    role: String,
    /// Name of the key
    #[arg(long)]
    name: Option<String>,
    /// Owner of the key: the person or robot that holds it [default: the name of the key]
    #[arg(long)]
    owner: Option<String>,
    /// Identity of the person who holds the key: keys with the same one are one person
    #[arg(long, value_name = "UUID")]
    identity_id: Option<Uuid>,
    /// Expiry time, for example 2027-01-31T00:00:00Z
    #[arg(long, value_name = "TIME")]
    expires_at: Option<String>,
    /// Setting of the key, for example max_operation=read; may be repeated
    #[arg(long = "set", value_name = "NAME=VALUE")]
    settings: Vec<String>,
    #[command(flatten)]
    output: Output,
}

#[derive(Args)]
struct Settings {
    /// ID of the key, or its name, if it is that of one key only among those that work; without, the settings of the tenant
    #[arg(value_name = "ID|NAME")]
    key: Option<String>,
    /// Setting to change, for example rate_limit=600; null inherits again; may be repeated
    #[arg(long = "set", value_name = "NAME=VALUE")]
    set: Vec<String>,
    /// Version that was shown: fail if somebody else has changed the settings since
    #[arg(long, value_name = "NUMBER")]
    version: Option<i64>,
    #[command(flatten)]
    output: Output,
}

/// Most ids of keys with one name that an error lists.
const IDS_SHOWN_MAX: usize = 10;

const COLUMNS: [Column; 7] = [
    ("ID", |key| text(key, "id")),
    ("ROLE", |key| text(key, "role")),
    ("NAME", |key| text(key, "name")),
    ("OWNER", |key| text(key, "owner")),
    ("STATE", state),
    ("PREFIX", |key| text(key, "prefix")),
    ("LAST USED", |key| text(key, "last_used_at")),
];

/// Columns of a list in which a key has been rotated.
const ROTATIONS: [Column; 2] =
    [("REPLACES", |key| text(key, "predecessor_id")), ("REPLACED BY", |key| text(key, "successor_id"))];

impl KeyCommand {
    pub(super) async fn run(self) -> Result<(), Failure> {
        let client = self.connection.client()?;
        match self.command {
            Command::Add(add) => add.run(&client).await,
            Command::List { output } => {
                let keys = client.list(&["keys"], &ApiQuery::default(), usize::MAX).await?;
                let is_rotated = |key: &Value| ROTATIONS.iter().any(|(_, cell)| !cell(key).is_empty());
                let is_any = keys.iter().any(|key| is_rotated(&output::parsed(key)));
                let rotations = if is_any { &ROTATIONS[..] } else { &[] };
                output.items(&keys, &[&COLUMNS[..], rotations].concat())
            }
            Command::Show { key, output } => {
                let id = id_of(&client, &key, NamedKeys::All).await?;
                let answer = client.get(&["keys", &id], &ApiQuery::default()).await?;
                output.thing(&answer.text, show::fields)
            }
            Command::Rotate { key, overlap, output } => rotate(&client, &key, &overlap, output).await,
            Command::Revoke { key, yes } => {
                let id = id_of(&client, &key, NamedKeys::Working).await?;
                let named = if id == key { id.clone() } else { format!("{key} ({id})") };
                input::confirm_if_somebody_is_here(yes, &format!("revoke the key {named} for good"))?;
                client.act(Method::DELETE, &["keys", &id]).await?;
                output::note(&format!("key {named} is revoked"));
                Ok(())
            }
            Command::Settings(settings) => settings.run(&client).await,
        }
    }
}

impl Add {
    async fn run(self, client: &ApiClient) -> Result<(), Failure> {
        let mut body = Map::new();
        let is_agent = self.role == Role::Agent.as_str();
        let is_owned = self.owner.is_some() || self.identity_id.is_some();
        body.insert("role".to_owned(), self.role.into());
        for (name, value) in [
            ("name", self.name),
            ("owner", self.owner),
            ("identity_id", self.identity_id.map(|id| id.to_string())),
            ("expires_at", self.expires_at),
        ] {
            if let Some(value) = value {
                body.insert(name.to_owned(), value.into());
            }
        }
        if !self.settings.is_empty() {
            body.insert("settings".to_owned(), Value::Object(input::settings(&self.settings)?));
        }
        let answer = client.send(Method::POST, &["keys"], Value::Object(body).to_string()).await?;
        self.output.thing(&answer.text, show::fields)?;
        output::note("The secret in `key` is not shown again.");
        if !is_owned {
            output::note(
                "Nobody is named as its owner, so it counts as a person of its own. --owner NAME says who holds a key.",
            );
        }
        if is_agent {
            output::note(
                "With it in MCPPROXY_API_KEY, mcpproxy connect claude-code sets up a client (or codex, cursor, vscode, gemini, \
                 windsurf, inspector).",
            );
        }
        Ok(())
    }
}

async fn rotate(client: &ApiClient, key: &str, overlap: &str, output: Output) -> Result<(), Failure> {
    let seconds = input::span(overlap).map(|span| span.num_seconds()).filter(|seconds| *seconds > 0);
    let seconds = seconds.ok_or_else(|| {
        Failure::Usage(format!(
            "--overlap {overlap}: it needs a time such as 90m, 24h or 7d; mcpproxy key revoke ends a key at once"
        ))
    })?;
    let id = id_of(client, key, NamedKeys::Unreplaced).await?;
    let body = json!({"overlap_s": seconds}).to_string();
    let answer = client.send(Method::POST, &["keys", &id, "rotate"], body).await?;
    output.thing(&answer.text, show::fields)?;
    for line in rotation_notes(&answer.json()?) {
        output::note(&line);
    }
    Ok(())
}

/// Keys that a name may stand for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum NamedKeys {
    All,
    Working,
    /// Keys that work and have no successor that works.
    Unreplaced,
}

/// Returns the id of a key: `given`, or the id of the only key among `which` that has this name.
async fn id_of(client: &ApiClient, given: &str, which: NamedKeys) -> Result<String, Failure> {
    if Uuid::try_parse(given).is_ok() {
        return Ok(given.to_owned());
    }
    let keys = client.list(&["keys"], &ApiQuery::default(), usize::MAX).await?;
    let is_meant = |key: &Value| which == NamedKeys::All || works(key);
    let keys: Vec<Value> = keys.iter().map(|key| output::parsed(key)).filter(is_meant).collect();
    let is_replaced = |key: &&Value| {
        let successor = text(key, "successor_id");
        which == NamedKeys::Unreplaced && keys.iter().any(|other| text(other, "id") == successor)
    };
    let named = keys.iter().filter(|key| text(key, "name") == given && !is_replaced(key));
    let ids: Vec<String> = named.map(|key| text(key, "id")).collect();
    match ids.as_slice() {
        [id] => Ok(id.clone()),
        [] => {
            let that_works = if which == NamedKeys::All { "" } else { " that works" };
            let names: Vec<String> = keys.iter().map(|key| text(key, "name")).collect();
            let meant =
                near::closest(given, names.iter().map(String::as_str)).map(|name| format!("'{name}'"));
            let meant = meant.map_or_else(String::new, |name| format!("; did you mean {name}?"));
            Err(Failure::Usage(format!(
                "'{given}' is no key's id, and no key{that_works} has that name: mcpproxy key list shows them{meant}"
            )))
        }
        ids => Err(Failure::Usage(format!(
            "{} keys have the name '{given}', so give the id of one: {}{}",
            ids.len(),
            ids.iter().take(IDS_SHOWN_MAX).map(String::as_str).collect::<Vec<_>>().join(", "),
            if ids.len() > IDS_SHOWN_MAX { ", …" } else { "" }
        ))),
    }
}

/// Returns what to know of a rotation: the ends of both keys, and remembered decisions that end.
fn rotation_notes(rotated: &Value) -> Vec<String> {
    let time = |place: &str| rotated.pointer(place).and_then(Value::as_str);
    let old = time("/replaces/expires_at").unwrap_or_default();
    let mut notes = vec![
        format!("The secret in `key` is not shown again. The old key works until {old}."),
        "To give it to a client: MCPPROXY_CLIENT_KEY=KEY mcpproxy connect CLIENT. Permission requests of the old key stay with it."
            .to_owned(),
    ];
    notes.extend(time("/expires_at").map(|new| format!("The new key works until {new}.")));
    if let Some(ended) = rotated["grants_ended"].as_i64().filter(|ended| *ended > 0) {
        notes.push(format!("Remembered decisions for other keys that end with the old key: {ended}."));
    }
    notes
}

impl Settings {
    async fn run(self, client: &ApiClient) -> Result<(), Failure> {
        let id = match &self.key {
            Some(key) => Some(id_of(client, key, NamedKeys::Working).await?),
            None => None,
        };
        let path: Vec<&str> = match &id {
            Some(id) => vec!["keys", id, "settings"],
            None => vec!["settings"],
        };
        let answer = if self.set.is_empty() {
            client.get(&path, &ApiQuery::default()).await?
        } else {
            let mut body = input::settings(&self.set)?;
            if let Some(version) = self.version {
                body.insert("version".to_owned(), version.into());
            }
            client.send(Method::PATCH, &path, Value::Object(body).to_string()).await?
        };
        self.output.thing(&answer.text, settings)
    }
}

/// Checks that a text is the id of a key. Names of keys need not be unique.
pub(super) fn check_id(id: &str) -> Result<(), Failure> {
    check_id_of(id, "key", "key list")
}

/// Checks that a text is an id of `what`, which `command` lists.
pub(super) fn check_id_of(id: &str, what: &str, command: &str) -> Result<(), Failure> {
    match Uuid::try_parse(id) {
        Ok(_) => Ok(()),
        Err(_) => Err(Failure::Usage(format!("'{id}' is no {what}'s id: mcpproxy {command} shows them"))),
    }
}

/// Formats settings with the origin of each.
fn settings(raw: &str) -> String {
    let all: Map<String, Value> = serde_json::from_str(raw).unwrap_or_default();
    let width = all.keys().map(String::len).max().unwrap_or_default();
    let line = |(name, setting): (&String, &Value)| match (setting.get("value"), setting.get("origin")) {
        (Some(value), Some(Value::String(origin))) => {
            output::safe(&format!("{:width$}  {value}  ({origin})\n", format!("{name}:"), width = width + 1))
        }
        _ => show::field(name, setting, width),
    };
    all.iter().map(line).collect()
}

fn has_passed(time: &str) -> bool {
    DateTime::parse_from_rfc3339(time).is_ok_and(|time| time <= Utc::now())
}

/// Returns whether a key is neither revoked nor expired.
pub(super) fn works(key: &Value) -> bool {
    text(key, "revoked_at").is_empty() && !has_passed(&text(key, "expires_at"))
}

fn state(key: &Value) -> String {
    if !text(key, "revoked_at").is_empty() {
        return "revoked".to_owned();
    }
    match text(key, "expires_at") {
        never if never.is_empty() => "valid".to_owned(),
        until if has_passed(&until) => "expired".to_owned(),
        until => format!("until {until}"),
    }
}
