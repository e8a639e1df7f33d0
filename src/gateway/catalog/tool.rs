//! Servers and tools at one revision of the catalogue, made of database rows.

mod entries;

use std::borrow::Cow;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use chrono::{DateTime, TimeDelta, Utc};
use serde_json::{Map, Value};

use crate::domain::annotations::{Annotations, Tier, Unannotated, open_world};
use crate::domain::fingerprint::Fingerprint;
use crate::domain::id::{KeyId, ServerId, TenantId};
use crate::domain::identity::CallerToken;
use crate::domain::json;
use crate::domain::publish::Published;
use crate::domain::search::{Document, Parameter};
use crate::domain::server::ConnectionState;
use crate::domain::server_kind::ServerKind;
use crate::domain::server_login::{LoginKind, LoginState};
use crate::domain::tool::{Definition, PinState};
use crate::domain::web_page::facts::PageFacts;
use crate::gateway::credentials::Opened;
use crate::store::{Server, ServerOauth, Stored, StoredTool};
use crate::upstream::{
    Commands, HttpServer, Limits, LoginHolder, PageServer, ParamHeader, Program, Target, TargetLogin,
    Upstream, param_header_rules,
};

/// Time for which a changed definition adds to the risk of calls.
const CHANGED_FOR: TimeDelta = TimeDelta::hours(24);

/// A server at one revision.
#[derive(Debug)]
pub struct ServerEntry {
    /// Id of the server.
    pub id: ServerId,
    /// Name of the server, unique in its tenant.
    pub name: String,
    /// True if the server is switched on.
    pub enabled: bool,
    /// True if agents see none of its tools and offers.
    pub quarantined: bool,
    /// True if the server was listed since its first release from quarantine.
    pub baselined: bool,
    /// True if the server was listed or pinged successfully a short while ago, according to the database.
    pub connected: bool,
    /// State of the gateway's login at the server, according to the database; `None` without a login.
    pub login: Option<LoginState>,
    /// Address, credential and limits for reaching the server.
    pub target: Target,
}

impl ServerEntry {
    /// Returns the server as a principal reaches it that came with this token.
    pub(in crate::gateway) fn target_of(
        &self,
        (principal, token): (Option<KeyId>, Option<&Arc<CallerToken>>),
    ) -> Cow<'_, Target> {
        self.target.for_principal(principal.map(|principal| principal.0), token)
    }

    /// Returns whether each caller has a login of its own at the server.
    pub(in crate::gateway) fn has_own_logins(&self) -> bool {
        self.target.upstream.login().is_some_and(|login| !login.is_common())
    }

    /// Returns whether any tool of the server may be listed.
    pub(in crate::gateway) fn is_exposed(&self) -> bool {
        self.enabled && !self.quarantined && self.connected
    }

    /// Returns whether its tools may be on `/mcp/direct`: those that the author of a page describes only where the server says
    /// so.
    pub(in crate::gateway) fn is_on_direct(&self) -> bool {
        self.target.upstream.pages().is_none_or(|pages| pages.settings.direct)
    }
}

/// Result of parsing a definition, shared by every snapshot with the same text.
#[derive(Debug)]
pub struct Shape {
    pin: Arc<str>,
    /// The definition, byte for byte, with an administrator's override applied. The pin covers its meaning only: white space
    /// and member order may change under one pin.
    pub definition: Box<str>,
    print: Fingerprint,
    /// Annotations, which determine the tier.
    pub annotations: Annotations,
    /// `openWorldHint`: whether the tool reaches outside; `None` if its server does not say.
    pub(in crate::gateway) open_world: Option<bool>,
    /// Start of a `retrieve_tools` entry, up to and including `annotations`, without the closing brace.
    pub entry: Box<str>,
    /// Start of a compact `retrieve_tools` entry, likewise.
    pub compact: Box<str>,
    /// True if clients may check results against an output schema.
    pub has_output_schema: bool,
    /// Arguments that a modern upstream wants repeated in headers.
    pub param_headers: Vec<ParamHeader>,
    /// Facts about the form that the tool submits; `None` for tools of servers without pages.
    pub(in crate::gateway) page: Option<Arc<PageFacts>>,
    pub(super) published: OnceLock<Published>,
    title: Option<String>,
    description: String,
    parameters: Vec<(String, String)>,
}

impl Shape {
    /// Returns the digest of the definition.
    pub(in crate::gateway) fn pin(&self) -> &Arc<str> {
        &self.pin
    }

    /// Returns the input schema of the definition; `None` if it is not an object.
    pub(in crate::gateway) fn input_schema(&self) -> Option<&str> {
        let schema = json::find_members(&self.definition, ["inputSchema"]).ok().and_then(|[schema]| schema);
        schema.filter(|schema| schema.starts_with('{'))
    }

    /// Returns the form for lists of `/mcp/direct`, made when first requested.
    pub fn published(&self) -> &Published {
        self.published.get_or_init(|| Published::of(&self.definition))
    }

    /// Returns the description; empty if there is none.
    pub fn description(&self) -> &str {
        &self.description
    }

    /// Returns the fingerprint of the definition, byte for byte.
    pub(in crate::gateway) fn print(&self) -> Fingerprint {
        self.print
    }
}

/// A tool at one revision.
#[derive(Debug)]
pub struct Tool {
    /// `server:tool`
    pub canonical: Box<str>,
    /// Server's own name of the tool.
    pub name: Box<str>,
    /// Second spelling of the canonical name, `server__tool`; `None` if the tool could not get one.
    pub safe_name: Option<Box<str>>,
    /// Server of the tool.
    pub server: Arc<ServerEntry>,
    /// State of the definition against the approved pin.
    pub state: PinState,
    /// Parsed definition.
    pub shape: Arc<Shape>,
    /// Time of the last change of the definition; `None` if it is the first that was seen.
    changed_at: Option<DateTime<Utc>>,
    /// Annotations of the approved definition, if the current one differs; otherwise `None`.
    approved: Option<Annotations>,
}

impl Tool {
    /// Returns the tool of a row; `None` if its definition cannot be read. The shape of an unchanged definition is taken
    /// from `old`.
    pub(super) fn of(
        row: &StoredTool,
        server: &Arc<ServerEntry>,
        canonical: Box<str>,
        old: Option<&Arc<Tool>>,
    ) -> Option<Tool> {
        let definition = as_said(row, &row.definition, &row.pin);
        let is_overridden = matches!(definition, Cow::Owned(_));
        let is_same = |tool: &&Arc<Tool>| {
            let shape = &tool.shape;
            tool.server.id == row.server
                && *shape.pin == *row.pin
                && *shape.definition == *definition
                && shape.annotations.by_admin == is_overridden
        };
        let known = old.filter(is_same).map(|tool| Arc::clone(&tool.shape));
        let shape = known.or_else(|| shape(server, row, (&definition, is_overridden)).map(Arc::new))?;
        Some(Tool {
            canonical,
            name: row.name.as_str().into(),
            safe_name: row.safe_name.as_deref().map(Into::into),
            server: Arc::clone(server),
            state: row.state,
            shape,
            changed_at: row.changed_at,
            approved: approved(row),
        })
    }

    /// Returns whether the definition was changed within the last 24 hours.
    pub(in crate::gateway) fn is_changed(&self, now: DateTime<Utc>) -> bool {
        self.changed_at.is_some_and(|at| at > now - CHANGED_FOR)
    }

    /// Returns the tier for keys with this setting.
    pub fn tier(&self, unannotated: Unannotated) -> Tier {
        self.shape.annotations.tier(unannotated)
    }

    /// Returns the tier of the approved definition; `None` if the current definition is the approved one.
    pub(in crate::gateway) fn tier_before(&self, unannotated: Unannotated) -> Option<Tier> {
        self.approved.map(|approved| approved.tier(unannotated))
    }
}

/// Returns the address, credential and limits for reaching a server.
pub(in crate::gateway) fn target(
    tenant: TenantId,
    row: &Server,
    opened: Opened,
    limits: &Limits,
    commands: &Commands,
) -> Target {
    let upstream = match (&row.kind, &row.url, &row.command) {
        (ServerKind::Http, Some(url), _) => Upstream::Http(HttpServer {
            url: url.clone(),
            credential: opened.credential,
            headers: opened.headers,
            login: row.oauth.as_ref().map(|oauth| login_of(oauth)),
            caller_token: None,
        }),
        (ServerKind::Stdio, _, Some(name)) => {
            Upstream::Program(Program::find(commands, name, &row.tenant_name))
        }
        (ServerKind::WebPage, _, _) => row.pages().map_or(Upstream::Unknown, |settings| {
            Upstream::Pages(PageServer {
                settings: Arc::new(settings),
                credential: opened.credential,
                secrets: opened.fields,
            })
        }),
        // a row of a newer release
        (ServerKind::Http | ServerKind::Stdio | ServerKind::Unknown(_), _, _) => Upstream::Unknown,
    };
    Target {
        tenant: tenant.0,
        server: row.server_id,
        version: row.version,
        upstream,
        era: row.era.as_ref().and_then(Stored::known),
        limits: own_limits(&row.limits.0, limits),
        relay: row.relay(),
    }
}

/// Returns the login that requests of nobody in particular go with, such as listings.
fn login_of(oauth: &ServerOauth) -> TargetLogin {
    let kind = LoginKind::parse(&oauth.kind);
    let holder = match (kind, oauth.listing_principal) {
        (Some(LoginKind::AuthorizationCode), Some(principal)) => LoginHolder::Principal(principal),
        (Some(LoginKind::AuthorizationCode), None) => LoginHolder::Caller,
        // for kinds of a newer release, whoever asks for a token says so
        (Some(LoginKind::ClientCredentials | LoginKind::TokenExchange) | None, _) => LoginHolder::Tenant,
    };
    let exchanges = kind == Some(LoginKind::TokenExchange);
    TargetLogin { client: oauth.client_generation, holder, exchanges, epoch: oauth.epoch }
}

pub(super) fn server_entry(row: &Server, target: Target) -> ServerEntry {
    ServerEntry {
        id: row.id(),
        name: row.name.clone(),
        enabled: row.enabled,
        quarantined: row.quarantined,
        baselined: row.baselined,
        connected: row.connection == ConnectionState::Connected,
        login: row.oauth.as_ref().and_then(|oauth| LoginState::parse(&oauth.state)),
        target,
    }
}

/// Returns a server's own limits, which may tighten the deployment's defaults but never widen them: otherwise one tenant
/// could take the memory of all.
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

/// Returns a tool's definition with an administrator's override applied, if that is for this definition.
fn as_said<'a>(row: &StoredTool, definition: &'a str, pin: &str) -> Cow<'a, str> {
    let said = row.overridden.as_ref().and_then(|overridden| overridden.said.over(definition, pin));
    said.map_or(Cow::Borrowed(definition), Cow::Owned)
}

/// Returns the annotations of the approved definition; `None` if the current definition is the approved one.
fn approved(row: &StoredTool) -> Option<Annotations> {
    let pin = row.approved_pin.as_deref().filter(|pin| *pin != row.pin)?;
    let definition = as_said(row, row.approved_definition.as_deref()?, pin);
    Some(Definition::read(&definition).ok()?.annotations)
}

/// Parses a row's definition; `None` if it cannot be read. `text` is the definition with overrides applied, if there are
/// any.
fn shape(server: &ServerEntry, row: &StoredTool, (text, is_overridden): (&str, bool)) -> Option<Shape> {
    let has_pages = server.target.upstream.pages().is_some();
    let server = server.name.as_str();
    let definition = match Definition::read(text) {
        Ok(definition) => definition,
        Err(error) => {
            tracing::warn!(%error, server, tool = row.name, "a stored definition is not readable");
            return None;
        }
    };
    let output_schema = json::find_members(text, ["outputSchema"]);
    Some(Shape {
        page: has_pages.then(|| PageFacts::read(text)).flatten().map(Arc::new),
        published: OnceLock::new(),
        has_output_schema: output_schema.is_ok_and(|[schema]| schema.is_some()),
        pin: row.pin.as_str().into(),
        definition: text.into(),
        print: Fingerprint::of(text),
        annotations: Annotations { by_admin: is_overridden, ..definition.annotations },
        open_world: open_world(definition.annotations_raw),
        entry: entries::full(server, &row.name, &definition).into(),
        compact: entries::compact(server, &row.name, &definition).into(),
        param_headers: definition.input_schema.map(param_header_rules).unwrap_or_default(),
        title: definition.title,
        description: definition.description,
        parameters: definition.parameters,
    })
}

/// Returns the searchable texts of a tool.
pub(super) fn document(tool: &Tool) -> Document<'_> {
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
