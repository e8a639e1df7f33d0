//! A tenant's catalogue: servers and tools at one revision, with everything a call or a search needs made
//! once. Lists and searches read this snapshot, never the database.

mod entries;

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use serde_json::{Map, Value};
use tokio::sync::OnceCell;

use super::credentials::{Opened, Opener};
use super::fanout::ServerStates;
use super::offers::Offers;
use super::views::Views;
use crate::domain::annotations::{Annotations, Tier, Unannotated};
use crate::domain::fingerprint::Fingerprint;
use crate::domain::id::{ServerId, TenantId};
use crate::domain::json;
use crate::domain::publish::Published;
use crate::domain::seal::Keyring;
use crate::domain::search::{Document, Index, Parameter};
use crate::domain::tool::{Definition, PinState};
use crate::store::{CatalogueRows, Server, StoredTool};
use crate::upstream::{Commands, Era, Limits, ParamHeader, Program, Target, param_header_rules};

/// A server at one revision.
#[derive(Debug)]
pub struct ServerEntry {
    /// Its id.
    pub id: ServerId,
    /// Its name.
    pub name: String,
    /// Switched on.
    pub enabled: bool,
    /// Nothing of it is shown to agents.
    pub quarantined: bool,
    /// It has been listed since somebody released it first.
    pub baselined: bool,
    /// Listed or pinged successfully a short while ago, as the database says.
    pub connected: bool,
    /// How to reach it.
    pub target: Target,
}

impl ServerEntry {
    /// Whether anything of it may be listed at all.
    pub(super) fn is_exposed(&self) -> bool {
        self.enabled && !self.quarantined && self.connected
    }
}

/// What is made of a definition once, and shared by every snapshot that has the same text.
#[derive(Debug)]
pub struct Shape {
    pin: Arc<str>,
    /// The definition, byte for byte, with what a person says of it. Its pin stands for its meaning alone: white space and order may change under it.
    pub definition: Box<str>,
    print: Fingerprint,
    /// The hints that decide.
    pub annotations: Annotations,
    /// The start of a `retrieve_tools` entry, up to and with `annotations`, without the closing brace.
    pub entry: Box<str>,
    /// The same of a compact one.
    pub compact: Box<str>,
    /// Whether clients may hold results against an output schema.
    pub has_output_schema: bool,
    /// Which arguments a modern upstream wants repeated in headers.
    pub param_headers: Vec<ParamHeader>,
    published: OnceLock<Published>,
    title: Option<String>,
    description: String,
    parameters: Vec<(String, String)>,
}

impl Shape {
    /// Digest of the definition this was made of.
    pub(super) fn pin(&self) -> &Arc<str> {
        &self.pin
    }

    /// Input schema of the definition, where it is an object.
    pub(super) fn input_schema(&self) -> Option<&str> {
        let schema = json::find_members(&self.definition, ["inputSchema"]).ok().and_then(|[schema]| schema);
        schema.filter(|schema| schema.starts_with('{'))
    }

    /// How `/mcp/direct` lists it, made when the first list there is.
    pub fn published(&self) -> &Published {
        self.published.get_or_init(|| Published::of(&self.definition))
    }

    /// Of the definition, byte for byte.
    pub(super) fn print(&self) -> Fingerprint {
        self.print
    }
}

/// A tool at one revision.
#[derive(Debug)]
pub struct Tool {
    /// `server:tool`
    pub canonical: Box<str>,
    /// Its own name.
    pub name: Box<str>,
    /// The other spelling of the canonical name, `server__tool`; `None` for one that could not be given any.
    pub safe_name: Option<Box<str>>,
    /// Its server.
    pub server: Arc<ServerEntry>,
    /// Against its approved pin.
    pub state: PinState,
    /// What its definition says.
    pub shape: Arc<Shape>,
    /// The hints of the definition that was approved, where it is another one.
    approved: Option<Annotations>,
}

impl Tool {
    /// Its tier for a key.
    pub fn tier(&self, unannotated: Unannotated) -> Tier {
        self.shape.annotations.tier(unannotated)
    }

    /// That of the definition that was approved, where it is another one.
    pub(super) fn tier_before(&self, unannotated: Unannotated) -> Option<Tier> {
        self.approved.map(|approved| approved.tier(unannotated))
    }
}

/// The snapshot.
#[derive(Debug)]
pub struct Catalog {
    /// Its revision; equal revisions are equal catalogues on every replica.
    pub rev: i64,
    servers: Vec<Arc<ServerEntry>>,
    tools: HashMap<Box<str>, Arc<Tool>>,
    /// The same by safe name.
    by_safe_name: HashMap<Box<str>, Arc<Tool>>,
    /// Tools that may be listed, by canonical name: positions are the index's documents.
    listed: Vec<Arc<Tool>>,
    /// Over `listed`; made after the snapshot is in place, because no list and no call needs it.
    index: OnceCell<Index>,
    offers: Offers,
    /// Servers of the snapshot before that are no more or have another credential, and programs that are switched
    /// off: what was connected is dropped.
    pub(super) gone: Vec<ServerId>,
    pub(super) views: Views,
    /// What state the servers are in, for whoever follows that; made when it is first asked for.
    pub(super) states: OnceLock<Arc<ServerStates>>,
}

impl Catalog {
    /// Nothing, at revision 0.
    pub(super) fn empty() -> Catalog {
        Catalog {
            rev: 0,
            servers: Vec::new(),
            tools: HashMap::new(),
            by_safe_name: HashMap::new(),
            listed: Vec::new(),
            index: OnceCell::new(),
            offers: Offers::default(),
            gone: Vec::new(),
            views: Views::default(),
            states: OnceLock::new(),
        }
    }

    /// Makes the snapshot of what was loaded; shapes of unchanged definitions are taken over from `old`.
    pub(super) fn build(
        tenant: TenantId,
        rows: &CatalogueRows,
        old: &Catalog,
        limits: &Limits,
        keyring: &Keyring,
        commands: &Commands,
    ) -> Catalog {
        let opener = Opener::new(keyring, tenant, &rows.secrets);
        let entry =
            |row| Arc::new(server_entry(row, target(tenant, row, opener.open(row), limits, commands)));
        let servers: Vec<Arc<ServerEntry>> = rows.servers.iter().map(entry).collect();
        let by_id: HashMap<ServerId, &Arc<ServerEntry>> = servers.iter().map(|s| (s.id, s)).collect();
        let mut tools = HashMap::with_capacity(rows.tools.len());
        for row in &rows.tools {
            let Some(server) = by_id.get(&row.server) else { continue };
            let canonical: Box<str> = format!("{}:{}", server.name, row.name).into();
            let definition = as_said(row, &row.definition, &row.pin);
            let is_same = |tool: &&Arc<Tool>| {
                let shape = &tool.shape;
                tool.server.id == row.server && *shape.pin == *row.pin && *shape.definition == *definition
            };
            let known = old.tools.get(&canonical).filter(is_same).map(|tool| Arc::clone(&tool.shape));
            let shape = known.or_else(|| shape(&server.name, row, &definition).map(Arc::new));
            let Some(shape) = shape else { continue };
            let tool = Tool {
                canonical: canonical.clone(),
                name: row.name.as_str().into(),
                safe_name: row.safe_name.as_deref().map(Into::into),
                server: Arc::clone(server),
                state: row.state,
                shape,
                approved: approved(row),
            };
            tools.insert(canonical, Arc::new(tool));
        }
        let mut listed: Vec<Arc<Tool>> = tools
            .values()
            .filter(|tool| tool.server.is_exposed() && tool.state == PinState::Approved)
            .cloned()
            .collect();
        listed.sort_by(|a, b| a.canonical.cmp(&b.canonical));
        let is_gone = |old: &&Arc<ServerEntry>| {
            by_id.get(&old.id).is_none_or(|new| {
                let is_off = new.target.program.is_some() && !new.enabled;
                is_off || new.target.credential != old.target.credential
            })
        };
        let gone = old.servers.iter().filter(is_gone).map(|server| server.id).collect();
        Catalog {
            rev: rows.rev,
            gone,
            index: OnceCell::new(),
            offers: Offers::build(&rows.offers, &by_id, &old.offers),
            servers,
            by_safe_name: by_safe_name(&tools),
            tools,
            listed,
            views: Views::default(),
            states: OnceLock::new(),
        }
    }

    /// A tool by canonical name, in whatever state.
    pub fn tool(&self, canonical: &str) -> Option<&Arc<Tool>> {
        self.tools.get(canonical)
    }

    /// A tool by either spelling of its name. There is a `:` in every canonical name and in no safe one.
    pub fn by_either_name(&self, name: &str) -> Option<&Arc<Tool>> {
        self.tools.get(name).or_else(|| self.by_safe_name.get(name))
    }

    /// Tools that may be listed, by canonical name.
    pub fn listed(&self) -> &[Arc<Tool>] {
        &self.listed
    }

    /// Approved tools of enabled, released servers, connected or not; in no order.
    pub(super) fn released(&self) -> impl Iterator<Item = &Arc<Tool>> {
        self.tools.values().filter(|tool| {
            tool.server.enabled && !tool.server.quarantined && tool.state == PinState::Approved
        })
    }

    /// Tools in every state; in no order.
    pub(super) fn all_tools(&self) -> impl Iterator<Item = &Arc<Tool>> {
        self.tools.values()
    }

    /// Servers by name.
    pub fn servers(&self) -> &[Arc<ServerEntry>] {
        &self.servers
    }

    /// Prompts, resources and templates.
    pub(super) fn offers(&self) -> &Offers {
        &self.offers
    }

    /// The search index over [`Catalog::listed`]: whoever comes before it is made waits for it without a thread.
    pub(super) async fn index(self: &Arc<Self>) -> &Index {
        let make = async || {
            let catalogue = Arc::clone(self);
            let made = tokio::task::spawn_blocking(move || catalogue.make_index()).await;
            // what broke there is to break this request alone
            made.unwrap_or_else(|_| self.make_index())
        };
        self.index.get_or_init(make).await
    }

    #[cfg(test)]
    pub(super) fn has_index(&self) -> bool {
        self.index.initialized()
    }

    fn make_index(&self) -> Index {
        Index::build(self.listed.iter().map(|tool| document(tool)))
    }
}

fn by_safe_name(tools: &HashMap<Box<str>, Arc<Tool>>) -> HashMap<Box<str>, Arc<Tool>> {
    tools.values().filter_map(|tool| Some((tool.safe_name.clone()?, Arc::clone(tool)))).collect()
}

/// How to reach a server.
pub(super) fn target(
    tenant: TenantId,
    row: &Server,
    opened: Opened,
    limits: &Limits,
    commands: &Commands,
) -> Target {
    let program = row
        .command
        .as_ref()
        .map(|name| Program { name: name.clone(), command: commands.find(name, &row.tenant_name) });
    Target {
        tenant: tenant.0,
        server: row.server_id,
        version: row.version,
        url: row.url.clone().unwrap_or_default(),
        program,
        credential: opened.credential,
        headers: opened.headers,
        era: match row.era.as_deref() {
            Some("modern") => Some(Era::Modern),
            Some("handshake") => Some(Era::Handshake),
            _ => None,
        },
        limits: own_limits(&row.limits.0, limits),
    }
}

fn server_entry(row: &Server, target: Target) -> ServerEntry {
    ServerEntry {
        id: row.id(),
        name: row.name.clone(),
        enabled: row.enabled,
        quarantined: row.quarantined,
        baselined: row.baselined,
        connected: row.connection == "connected",
        target,
    }
}

/// A server's own bounds: they may tighten the deployment's, never widen them.
fn own_limits(own: &Map<String, Value>, defaults: &Limits) -> Limits {
    let number = |name: &str| own.get(name).and_then(Value::as_u64).and_then(|n| usize::try_from(n).ok());
    let seconds = |name: &str| own.get(name).and_then(Value::as_u64).map(Duration::from_secs);
    Limits {
        concurrency: number("concurrency").map_or(defaults.concurrency, |n| n.min(defaults.concurrency)),
        queue: number("queue").map_or(defaults.queue, |n| n.min(defaults.queue)),
        queue_wait: seconds("queue_wait_s").map_or(defaults.queue_wait, |s| s.min(defaults.queue_wait)),
        call_timeout: seconds("call_timeout_s")
            .map_or(defaults.call_timeout, |s| s.min(defaults.call_timeout)),
        response_bytes_max: number("response_bytes_max")
            .map_or(defaults.response_bytes_max, |n| n.min(defaults.response_bytes_max)),
        ..*defaults
    }
}

/// A definition of a tool as it counts: with what a person says in it, if that holds for it.
fn as_said<'a>(row: &StoredTool, definition: &'a str, pin: &str) -> Cow<'a, str> {
    let said = row.overridden.as_ref().and_then(|overridden| overridden.said.over(definition, pin));
    said.map_or(Cow::Borrowed(definition), Cow::Owned)
}

/// The hints that were approved, where another definition stands in the place of that one.
fn approved(row: &StoredTool) -> Option<Annotations> {
    let pin = row.approved_pin.as_deref().filter(|pin| *pin != row.pin)?;
    let definition = as_said(row, row.approved_definition.as_deref()?, pin);
    Some(Definition::read(&definition).ok()?.annotations)
}

/// Of a row's tool, with the definition as it counts.
fn shape(server: &str, row: &StoredTool, text: &str) -> Option<Shape> {
    let definition = match Definition::read(text) {
        Ok(definition) => definition,
        Err(error) => {
            tracing::warn!(%error, server, tool = row.name, "a stored definition is not readable");
            return None;
        }
    };
    let output_schema = json::find_members(text, ["outputSchema"]);
    Some(Shape {
        published: OnceLock::new(),
        has_output_schema: output_schema.is_ok_and(|[schema]| schema.is_some()),
        pin: row.pin.as_str().into(),
        definition: text.into(),
        print: Fingerprint::of(text),
        annotations: definition.annotations,
        entry: entries::full(server, &row.name, &definition).into(),
        compact: entries::compact(server, &row.name, &definition).into(),
        param_headers: definition.input_schema.map(param_header_rules).unwrap_or_default(),
        title: definition.title,
        description: definition.description,
        parameters: definition.parameters,
    })
}

fn document(tool: &Tool) -> Document<'_> {
    Document {
        server: &tool.server.name,
        name: &tool.name,
        title: tool.shape.title.as_deref(),
        description: &tool.shape.description,
        parameters: tool
            .shape
            .parameters
            .iter()
            .map(|(name, description)| Parameter { name, description })
            .collect(),
    }
}

#[cfg(test)]
pub(super) mod tests;
