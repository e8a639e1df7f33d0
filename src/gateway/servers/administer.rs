//! Administration of upstream servers.

use serde_json::{Map, Value};
use uuid::Uuid;

use super::Servers;
use super::duties::{forbid_own, own_approval};
use super::freshness::as_of;
use super::place::{check_keeping, foreign_fields};
use super::requests::{ServerChange, ServerRequest};
use crate::domain::id::{ServerId, ServerName, TenantId};
use crate::domain::relay::Relay;
use crate::domain::server_kind::ServerKind;
use crate::domain::tenant::{Action, Role};
use crate::gateway::clock;
use crate::gateway::error::GatewayError;
use crate::gateway::tenants::Caller;
use crate::store::{
    HeadersPatch, NAME_TAKEN, NewServer, OfferFilter, OfferView, RevisionKind, Right, Server, ServerPatch,
    StoreError, StoredOverride, StoredTool,
};

/// A server as shown to administrators.
pub type ServerView = Server;
/// A tool as shown to administrators.
pub type ToolView = StoredTool;
/// An override as shown to administrators.
pub type OverrideView = StoredOverride;

/// Limits that a server may set for itself, with their largest values.
pub const OWN_LIMITS: [(&str, u64); 5] = [
    ("concurrency", 1000),
    ("queue", 10_000),
    ("queue_wait_s", 3600),
    ("call_timeout_s", 3600),
    ("response_bytes_max", 256 << 20),
];
/// Longest unknown limit name that an error repeats, in characters.
const LIMIT_SHOWN_CHARS_MAX: usize = 64;

/// Reads the name of a new server.
fn new_name(name: &str) -> Result<ServerName, GatewayError> {
    ServerName::parse(name).ok_or_else(|| {
        GatewayError::invalid(
            "name",
            "name must be 1 to 32 of a-z, 0-9 and single hyphens, and start and end with a letter or digit",
        )
    })
}

impl Servers {
    /// Adds a server and lists it at once. A server added by an operator starts quarantined; one added by an admin does not,
    /// unless requested.
    ///
    /// # Errors
    /// [`GatewayError::Forbidden`] for the role, [`GatewayError::Invalid`] for a field or without a tenant,
    /// [`GatewayError::Conflict`] for a taken name, [`GatewayError::Limit`] for a used-up quota, or
    /// [`GatewayError::Unavailable`].
    pub async fn create_server(
        &self,
        caller: &Caller,
        request: ServerRequest,
    ) -> Result<ServerView, GatewayError> {
        caller.authorise(Action::ChangeServers)?;
        let tenant = caller.tenant()?.id;
        let name = new_name(&request.name)?;
        if let Some(fault) = foreign_fields(&request).into_iter().next() {
            return Err(fault);
        }
        let place = self.new_place(caller, &request)?;
        let limits = request.limits.unwrap_or_default();
        check_limits(&limits)?;
        let relay = request.relay.as_ref().map(read_relay).transpose()?;
        if request.auto_approve == Some(true) && caller.role == Role::Operator {
            return Err(own_approval(name.as_str()));
        }
        let id = ServerId(Uuid::now_v7());
        let url = place.url.as_deref().unwrap_or_default();
        let headers = match (&request.headers, &request.field_secrets) {
            (_, Some(secrets)) => self.seal_fields(tenant, id, url, secrets).await?,
            (Some(headers), None) => self.seal_headers(tenant, id, url, headers).await?,
            (None, None) => HeadersPatch::Clear,
        };
        let new = NewServer {
            id,
            name: name.as_str().to_owned(),
            kind: place.kind,
            url: place.url,
            command: place.command,
            pages: place.pages,
            enabled: request.enabled.unwrap_or(true),
            quarantined: caller.role == Role::Operator || request.quarantined == Some(true),
            auto_approve: request.auto_approve.unwrap_or(false),
            limits,
            relay,
            headers: headers.into_headers(),
            added_by: caller.person.clone(),
            quotas: self.options.quotas,
        };
        let server = self
            .store
            .create_server(tenant, &new)
            .await
            .map_err(|e| GatewayError::from_store(e, "server"))?;
        self.tenants.refresh(tenant, RevisionKind::Catalogue).await;
        self.list_if_enabled(tenant, &server).await;
        self.get_server(caller, &server.name).await
    }

    /// Returns the faults of a server's name, kind, address, program and headers, each looked at by itself, where [`Servers::create_server`] ends
    /// at the first. None for a caller whose role adds no servers.
    pub async fn faults_of_new(&self, caller: &Caller, request: &ServerRequest) -> Vec<GatewayError> {
        if caller.authorise(Action::ChangeServers).is_err() {
            return Vec::new();
        }
        let name = match new_name(&request.name) {
            Err(error) => Some(error),
            Ok(name) => {
                let found = self.get_server(caller, name.as_str()).await;
                found.is_ok().then(|| GatewayError::Conflict(NAME_TAKEN.to_owned()))
            }
        };
        let place = self.new_place(caller, request).err();
        name.into_iter().chain(foreign_fields(request)).chain(place).collect()
    }

    /// Returns one server by name.
    ///
    /// # Errors
    /// [`GatewayError::Forbidden`] for the role, [`GatewayError::NotFound`], [`GatewayError::Invalid`] without a tenant, or
    /// [`GatewayError::Unavailable`].
    pub async fn get_server(&self, caller: &Caller, name: &str) -> Result<ServerView, GatewayError> {
        caller.authorise(Action::SeeServers)?;
        let tenant = caller.tenant()?.id;
        let found = self.store.get_server(tenant, name).await;
        found.map(|server| self.as_of_now(server)).map_err(|e| GatewayError::from_store(e, "server"))
    }

    /// Returns a page of servers in name order, after the name `after`.
    ///
    /// # Errors
    /// [`GatewayError::Forbidden`] for the role, [`GatewayError::Invalid`] without a tenant, or
    /// [`GatewayError::Unavailable`].
    pub async fn list_servers(
        &self,
        caller: &Caller,
        after: &str,
        limit: i64,
    ) -> Result<Vec<ServerView>, GatewayError> {
        caller.authorise(Action::SeeServers)?;
        let tenant = caller.tenant()?.id;
        let found = self.store.list_servers(tenant, after, limit).await;
        let found = found.map_err(|e| GatewayError::from_store(e, "server"))?;
        Ok(found.into_iter().map(|server| self.as_of_now(server)).collect())
    }

    fn as_of_now(&self, server: Server) -> ServerView {
        let options = &self.options;
        as_of(server, clock::now(), (options.connected_for, options.pages_connected_for))
    }

    /// Changes a server. A new address (other than its query) or command clears pins, and credentials unless they are kept
    /// or given again. It also quarantines the server, unless an admin asks outside MCP. An agent's change that would set
    /// the server's baseline quarantines it too, without clearing anything.
    ///
    /// # Errors
    /// [`GatewayError::Forbidden`] for the role or by separation of duties, [`GatewayError::NotFound`],
    /// [`GatewayError::Invalid`] for a field or without a tenant, [`GatewayError::Conflict`] for a changed version, or
    /// [`GatewayError::Unavailable`].
    pub async fn update_server(
        &self,
        caller: &Caller,
        name: &str,
        change: ServerChange,
    ) -> Result<ServerView, GatewayError> {
        caller.authorise(Action::ChangeServers)?;
        check_keeping(caller, &change)?;
        let server = self.get_server(caller, name).await?;
        let mut patch = ServerPatch {
            enabled: change.enabled,
            auto_approve: change.auto_approve,
            version: change.version,
            by: Some(caller.person.clone()),
            waits_without_baseline: change.over_mcp && change.reaches_it_anew(),
            ..ServerPatch::default()
        };
        self.move_to(caller, &server, (change.url, change.command), &mut patch)?;
        self.change_pages(&server, &change.pages, change.field_secrets.as_ref(), &mut patch)?;
        // a key in an IDE is used by an agent, whatever its role
        let is_trusted = caller.role != Role::Operator && !change.over_mcp;
        patch.quarantined = (patch.place_changed && !is_trusted).then_some(true);
        if change.auto_approve == Some(true) {
            caller.authorise(Action::Approve)?;
            forbid_own(caller, &server)?;
            if patch.place_changed && caller.role == Role::Operator {
                return Err(own_approval(name));
            }
            // the adder was checked in this version
            patch.version = patch.version.or(Some(server.version));
        } else if patch.place_changed {
            // trust in a server's definitions does not extend to another address
            patch.auto_approve = Some(false);
        }
        if let Some(limits) = change.limits {
            check_limits(&limits)?;
            patch.limits = Some(limits);
        }
        patch.relay = match &change.relay {
            Some(relay) => Some(read_relay(relay)?),
            // trust in a server does not extend to another address
            None => patch.place_changed.then(|| server.relay().of_moved()),
        };
        if let Some(headers) = change.headers {
            if server.kind != ServerKind::Http && !headers.is_empty() {
                let message = format!("a server of kind {} has no headers", server.kind.as_str());
                return Err(GatewayError::invalid("headers", message));
            }
            let is_there = |name: &String| name.eq_ignore_ascii_case("authorization");
            if server.oauth.is_some() && !patch.place_changed && headers.names().iter().any(is_there) {
                let message = "the token of the server's login is sent in Authorization; remove the login first (DELETE \
                               /servers/NAME/oauth)";
                return Err(GatewayError::invalid("headers.Authorization", message));
            }
            let url = patch.url.as_deref().or(server.url.as_deref()).unwrap_or_default();
            let tenant = caller.tenant()?.id;
            patch.headers = Some(self.seal_headers(tenant, server.id(), url, &headers).await?);
            // the headers are sealed for the address that was read
            patch.version = patch.version.or(Some(server.version));
        } else if let Some(secrets) = change.field_secrets {
            let url = patch.url.as_deref().or(server.url.as_deref()).unwrap_or_default();
            let tenant = caller.tenant()?.id;
            patch.headers = Some(self.seal_fields(tenant, server.id(), url, &secrets).await?);
            patch.version = patch.version.or(Some(server.version));
        } else if let Some(url) =
            patch.url.as_deref().filter(|_| change.keep_credentials && patch.place_changed)
        {
            patch.headers = Some(self.seal_again(caller.tenant()?.id, &server, url).await?);
        }
        self.change(caller, &server, &patch).await
    }

    /// Quarantines a server, which hides it from agents.
    ///
    /// # Errors
    /// [`GatewayError::Forbidden`] for the role, [`GatewayError::NotFound`], [`GatewayError::Invalid`] without a tenant, or
    /// [`GatewayError::Unavailable`].
    pub async fn quarantine(&self, caller: &Caller, name: &str) -> Result<ServerView, GatewayError> {
        caller.authorise(Action::ChangeServers)?;
        let server = self.get_server(caller, name).await?;
        self.change(caller, &server, &ServerPatch { quarantined: Some(true), ..ServerPatch::default() }).await
    }

    /// Releases a server from quarantine. Operators cannot release a server that the same person added or moved.
    ///
    /// # Errors
    /// [`GatewayError::Forbidden`] for the role or by separation of duties, [`GatewayError::NotFound`],
    /// [`GatewayError::Conflict`] if the server has changed, [`GatewayError::Invalid`] without a tenant, or
    /// [`GatewayError::Unavailable`].
    pub async fn release(&self, caller: &Caller, name: &str) -> Result<ServerView, GatewayError> {
        caller.authorise(Action::Approve)?;
        let server = self.get_server(caller, name).await?;
        forbid_own(caller, &server)?;
        // adder and address were checked in this version: a server that was moved meanwhile is not released
        let patch =
            ServerPatch { quarantined: Some(false), version: Some(server.version), ..ServerPatch::default() };
        self.change(caller, &server, &patch).await
    }

    /// Removes a server, with its log.
    ///
    /// # Errors
    /// [`GatewayError::Forbidden`] for the role, [`GatewayError::NotFound`], [`GatewayError::Invalid`] without a tenant, or
    /// [`GatewayError::Unavailable`].
    pub async fn remove_server(&self, caller: &Caller, name: &str) -> Result<(), GatewayError> {
        caller.authorise(Action::ChangeServers)?;
        let tenant = caller.tenant()?.id;
        let server = self.get_server(caller, name).await?;
        let removed = self.store.remove_server(tenant, server.id()).await;
        removed.map_err(|e| GatewayError::from_store(e, "server"))?;
        self.tenants.refresh(tenant, RevisionKind::Catalogue).await;
        Ok(())
    }

    /// Lists a server now; a failure is noted in the server's `last_error`. With `reconnect`, its connections and session
    /// are dropped first.
    ///
    /// # Errors
    /// [`GatewayError::Forbidden`] for the role, [`GatewayError::NotFound`], [`GatewayError::Conflict`] for a disabled
    /// server, [`GatewayError::Invalid`] without a tenant, or [`GatewayError::Unavailable`]. A failed listing is no error.
    pub async fn refresh_server(
        &self,
        caller: &Caller,
        name: &str,
        reconnect: Reconnect,
    ) -> Result<ServerView, GatewayError> {
        caller.authorise(Action::ChangeServers)?;
        let tenant = caller.tenant()?.id;
        let mut server = is_enabled(self.get_server(caller, name).await?)?;
        if reconnect == Reconnect::Yes {
            self.upstreams.restart(tenant.0, server.server_id).await;
            // the restart may take a while, so the row is read again
            let now = self.store.served_server(tenant, server.id()).await;
            server = is_enabled(now.map_err(|e| GatewayError::from_store(e, "server"))?)?;
        }
        self.try_login_again(tenant, &server).await;
        self.upstreams.reset_breaker(tenant.0, server.server_id);
        self.list_if_enabled(tenant, &server).await;
        self.get_server(caller, name).await
    }

    /// Returns a page of a server's tools in name order, after a name; with `true`, of those that wait for a decision. `bounds` are the
    /// most tools, and the most bytes of definitions before the last one.
    ///
    /// # Errors
    /// [`GatewayError::Forbidden`] for the role, [`GatewayError::NotFound`], [`GatewayError::Invalid`] without a tenant, or
    /// [`GatewayError::Unavailable`].
    pub async fn list_server_tools(
        &self,
        caller: &Caller,
        name: &str,
        after: (&str, bool),
        bounds: (i64, i64),
    ) -> Result<Vec<ToolView>, GatewayError> {
        let server = self.get_server(caller, name).await?;
        let tenant = caller.tenant()?.id;
        let tools = self.store.list_tools(tenant, server.id(), after, bounds).await;
        tools.map_err(|e| GatewayError::from_store(e, "server"))
    }

    /// Returns a page of a server's offers that match the filter, by kind and name, within `bounds` as for tools.
    ///
    /// # Errors
    /// [`GatewayError::Forbidden`] for the role, [`GatewayError::NotFound`], [`GatewayError::Invalid`] without a tenant, or
    /// [`GatewayError::Unavailable`].
    pub async fn list_server_offers(
        &self,
        caller: &Caller,
        name: &str,
        filter: OfferFilter<'_>,
        after: (&str, &str),
        bounds: (i64, i64),
    ) -> Result<Vec<OfferView>, GatewayError> {
        let server = self.get_server(caller, name).await?;
        let tenant = caller.tenant()?.id;
        let offers = self.store.list_offers(tenant, server.id(), filter, after, bounds).await;
        offers.map_err(|e| GatewayError::from_store(e, "server"))
    }

    async fn change(
        &self,
        caller: &Caller,
        server: &Server,
        patch: &ServerPatch,
    ) -> Result<ServerView, GatewayError> {
        let tenant = caller.tenant()?.id;
        let updated = self.store.update_server(tenant, server.id(), patch).await;
        let updated = updated.map_err(|e| GatewayError::from_store(e, "server"))?;
        self.tenants.refresh(tenant, RevisionKind::Catalogue).await;
        let reaches_it_anew = patch.url.is_some()
            || patch.command.is_some()
            || patch.headers.is_some()
            || patch.pages.is_some();
        let lists = patch.enabled == Some(true) || patch.quarantined == Some(false) || reaches_it_anew;
        if lists {
            self.list_if_enabled(tenant, &updated).await;
        }
        self.get_server(caller, &updated.name).await
    }

    /// Lists an enabled server at once; a failure is noted in the server's `last_error`.
    pub(super) async fn list_if_enabled(&self, tenant: TenantId, server: &Server) {
        if !server.enabled {
            return;
        }
        // boxed: the future of a listing is large, and not every change needs one
        match Box::pin(self.list_server(tenant, server, Right::Asked)).await {
            Ok(_) => {}
            Err(super::discovery::ListingError::Store(StoreError::Conflict(_))) => {
                // another request changed the server meanwhile, and lists it too
            }
            Err(error) => {
                if let super::discovery::ListingError::Here(why) = &error {
                    // this failure is noted nowhere else
                    self.log_server(
                        tenant,
                        server.id(),
                        &format!("could not be listed by this replica: {why}"),
                    );
                }
                tracing::info!(%tenant, server = server.name, %error, "a server could not be listed");
            }
        }
    }
}

/// Whether a refresh also drops the server's connections and session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reconnect {
    /// `restart`
    Yes,
    /// `refresh`
    No,
}

fn is_enabled(server: Server) -> Result<Server, GatewayError> {
    if server.enabled {
        return Ok(server);
    }
    Err(GatewayError::Conflict("the server is disabled; enable it first".to_owned()))
}

fn read_relay(members: &Map<String, Value>) -> Result<Relay, GatewayError> {
    Relay::read(members)
        .map_err(|fault| GatewayError::invalid(format!("relay.{}", fault.name), fault.message))
}

impl Servers {
    /// Returns the deployment's value of one of [`OWN_LIMITS`]; 0 for another name.
    pub fn default_limit(&self, name: &str) -> u64 {
        let limits = &self.options.upstream;
        match name {
            "concurrency" => limits.concurrency as u64,
            "queue" => limits.queue as u64,
            "queue_wait_s" => limits.queue_wait.as_secs(),
            "call_timeout_s" => limits.call_timeout.as_secs(),
            "response_bytes_max" => limits.response_bytes_max as u64,
            _ => 0,
        }
    }
}

fn check_limits(limits: &Map<String, Value>) -> Result<(), GatewayError> {
    for (name, value) in limits {
        let Some((_, max)) = OWN_LIMITS.iter().find(|(known, _)| known == name) else {
            let shown: String = name.chars().take(LIMIT_SHOWN_CHARS_MAX).collect();
            let known = OWN_LIMITS.map(|(known, _)| known).join(", ");
            let message = format!("unknown limit '{shown}'; known: {known}");
            return Err(GatewayError::invalid(format!("limits.{shown}"), message));
        };
        if !value.as_u64().is_some_and(|n| (1..=*max).contains(&n)) {
            let message = format!("limits.{name} must be a whole number from 1 to {max}");
            return Err(GatewayError::invalid(format!("limits.{name}"), message));
        }
    }
    Ok(())
}
