//! Decisions about tools (approvals, blocks, overrides), and records of changes to trusted tools.

use super::Servers;
use super::administer::{ServerView, ToolView};
use super::duties::forbid_own;
use crate::domain::activity::{Record, RecordKind, Source, Status};
use crate::domain::drift::Drift;
use crate::domain::id::TenantId;
use crate::domain::overrides::{Hints, Override, TITLE_CHARS_MAX};
use crate::domain::pin::Pin;
use crate::domain::redact;
use crate::domain::tenant::Action;
use crate::gateway::clock;
use crate::gateway::error::GatewayError;
use crate::gateway::tenants::Caller;
use crate::store::{NewOverride, RevisionKind, Server, StoreError};

/// Most tools of one listing whose changes are recorded individually.
const DRIFTS_RECORDED_MAX: usize = 20;
/// Longest tool name in such a record, in bytes.
const NAME_BYTES_MAX: usize = 200;

/// Request to override a tool's annotations.
#[derive(Clone, Debug)]
pub struct OverrideRequest {
    /// Pin of the definition that was reviewed.
    pub pin: String,
    /// Annotations that replace the server's.
    pub hints: Hints,
    /// Expected version of the present override, 0 for none; `None` skips the check.
    pub version: Option<i64>,
}

impl Servers {
    /// Returns one tool of a server, in any state.
    ///
    /// # Errors
    /// [`GatewayError::Forbidden`] for the role, [`GatewayError::NotFound`], [`GatewayError::Invalid`] without a tenant, or
    /// [`GatewayError::Unavailable`].
    pub async fn get_tool(&self, caller: &Caller, name: &str, tool: &str) -> Result<ToolView, GatewayError> {
        let server = self.get_server(caller, name).await?;
        let found = self.store.get_tool(caller.tenant()?.id, server.id(), tool).await;
        found.map_err(|e| GatewayError::from_store(e, "tool"))
    }

    /// Approves a tool's definition by the pin that was reviewed.
    ///
    /// # Errors
    /// [`GatewayError::Conflict`] if the definition has changed, [`GatewayError::Forbidden`] for the role or by separation
    /// of duties, [`GatewayError::Invalid`] for a malformed pin or without a tenant, [`GatewayError::NotFound`], or
    /// [`GatewayError::Unavailable`].
    pub async fn approve_tool(
        &self,
        caller: &Caller,
        name: &str,
        tool: &str,
        pin: &str,
    ) -> Result<ToolView, GatewayError> {
        let server = self.trusted_by(caller, name).await?;
        let pin = read_pin(pin)?;
        let tenant = caller.tenant()?.id;
        let done = self.store.approve_tool(tenant, server.id(), tool, pin.as_str(), caller.key).await;
        self.decided(caller, name, tool, done).await
    }

    /// Blocks a tool until a person lifts the block.
    ///
    /// # Errors
    /// [`GatewayError::Forbidden`] for the role, [`GatewayError::NotFound`], [`GatewayError::Invalid`] without a tenant, or
    /// [`GatewayError::Unavailable`].
    pub async fn block_tool(
        &self,
        caller: &Caller,
        name: &str,
        tool: &str,
    ) -> Result<ToolView, GatewayError> {
        caller.authorise(Action::ChangeServers)?;
        let server = self.get_server(caller, name).await?;
        let tenant = caller.tenant()?.id;
        let done = self.store.block_tool(tenant, server.id(), tool, caller.key).await;
        self.decided(caller, name, tool, done).await
    }

    /// Lifts a block; the tool returns to the state that its pins give.
    ///
    /// # Errors
    /// [`GatewayError::Forbidden`] for the role or by separation of duties, [`GatewayError::NotFound`],
    /// [`GatewayError::Invalid`] without a tenant, or [`GatewayError::Unavailable`].
    pub async fn unblock_tool(
        &self,
        caller: &Caller,
        name: &str,
        tool: &str,
    ) -> Result<ToolView, GatewayError> {
        let server = self.trusted_by(caller, name).await?;
        let done = self.store.unblock_tool(caller.tenant()?.id, server.id(), tool).await;
        self.decided(caller, name, tool, done).await
    }

    /// Overrides annotations of a tool. Making a tool look harmless amounts to approving it, so this needs the right to
    /// approve.
    ///
    /// # Errors
    /// [`GatewayError::Forbidden`] for the role or by separation of duties, [`GatewayError::Invalid`] for a field or without
    /// a tenant, [`GatewayError::Conflict`] for a changed definition or version, [`GatewayError::NotFound`], or
    /// [`GatewayError::Unavailable`].
    pub async fn override_tool(
        &self,
        caller: &Caller,
        name: &str,
        tool: &str,
        request: OverrideRequest,
    ) -> Result<ToolView, GatewayError> {
        let server = self.trusted_by(caller, name).await?;
        let OverrideRequest { pin, hints, version } = request;
        let pin = read_pin(&pin)?;
        if hints.is_empty() {
            let known = Hints::NAMES.join(", ");
            let message = format!("annotations must say something anew; known: {known}");
            return Err(GatewayError::invalid("annotations", message));
        }
        if hints.title.as_ref().is_some_and(|title| title.chars().count() > TITLE_CHARS_MAX) {
            let message = format!("annotations.title must be no longer than {TITLE_CHARS_MAX} characters");
            return Err(GatewayError::invalid("annotations.title", message));
        }
        let said = Override { hints, pin: pin.as_str().to_owned() };
        let new = NewOverride { said, version, by: caller.key };
        let done = self.store.override_tool(caller.tenant()?.id, server.id(), tool, &new).await;
        self.decided(caller, name, tool, done).await
    }

    /// Removes a tool's override: the server's own annotations count again.
    ///
    /// # Errors
    /// [`GatewayError::Forbidden`] for the role or by separation of duties, [`GatewayError::NotFound`],
    /// [`GatewayError::Invalid`] without a tenant, or [`GatewayError::Unavailable`].
    pub async fn clear_override(
        &self,
        caller: &Caller,
        name: &str,
        tool: &str,
    ) -> Result<ToolView, GatewayError> {
        let server = self.trusted_by(caller, name).await?;
        let done = self.store.clear_override(caller.tenant()?.id, server.id(), tool).await;
        self.decided(caller, name, tool, done).await
    }

    /// Returns the server, if this caller may approve its tools and offers.
    pub(super) async fn trusted_by(&self, caller: &Caller, name: &str) -> Result<ServerView, GatewayError> {
        caller.authorise(Action::Approve)?;
        let server = self.get_server(caller, name).await?;
        forbid_own(caller, &server)?;
        Ok(server)
    }

    /// Applies a decision to this replica's snapshot, and returns the tool as it is now.
    async fn decided(
        &self,
        caller: &Caller,
        name: &str,
        tool: &str,
        done: Result<(), StoreError>,
    ) -> Result<ToolView, GatewayError> {
        done.map_err(|e| GatewayError::from_store(e, "tool"))?;
        self.tenants.refresh(caller.tenant()?.id, RevisionKind::Catalogue).await;
        self.get_tool(caller, name, tool).await
    }

    /// Records changes of trusted tools, whether or not they were approved automatically.
    pub(super) fn tell_drifts(&self, tenant: TenantId, server: &Server, drifted: &[(String, Drift)]) {
        for (tool, drift) in drifted.iter().take(DRIFTS_RECORDED_MAX) {
            let tool = redact::preview(tool, NAME_BYTES_MAX).text;
            let text = format!("the tool {tool} changed: {}", drift.sentence());
            self.tell_drift(tenant, server, Some(tool), &text);
        }
        let more = drifted.len().saturating_sub(DRIFTS_RECORDED_MAX);
        if more > 0 {
            self.tell_drift(tenant, server, None, &format!("{more} more tools changed alike"));
        }
    }

    fn tell_drift(&self, tenant: TenantId, server: &Server, tool: Option<String>, text: &str) {
        self.log_server(tenant, server.id(), text);
        self.log.write(Record {
            server: Some(server.name.clone()),
            tool,
            status: Status::Success,
            warning: Some(text.to_owned()),
            ..Record::start(tenant, RecordKind::System, Source::System, clock::now())
        });
    }
}

pub(super) fn read_pin(pin: &str) -> Result<Pin, GatewayError> {
    Pin::parse(pin)
        .map_err(|_| GatewayError::invalid("pin", "pin must be the pin of the definition to approve, such as v1:…; `mcpproxy tools diff SERVER:TOOL` shows it"))
}
