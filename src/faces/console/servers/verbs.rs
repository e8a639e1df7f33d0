//! Names of the acts on servers and tools in paths.

use crate::domain::offer::OfferKind;
use crate::domain::tenant::Action;
use crate::faces::console::act::VisitorAct;

/// Act on a server, by the last part of its path.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum ServerVerb {
    /// Switches the server on.
    Enable,
    /// Switches the server off.
    Disable,
    /// Hides the server from agents.
    Quarantine,
    /// Releases the server from quarantine.
    Unquarantine,
    /// Lists the server.
    Refresh,
    /// Lists the server over new connections.
    Restart,
    /// Changes the settings of the server.
    Update,
    /// Removes the server.
    Remove,
    /// Removes the login at the server.
    RemoveOauth,
    /// Forgets one login at the server.
    Disconnect,
}

/// Act on a tool, by the last part of its path.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum ToolVerb {
    /// Approves the definition of the tool.
    Approve,
    /// Blocks the tool.
    Block,
    /// Lifts the block of the tool.
    Unblock,
    /// Overrides annotations of the tool.
    Override,
    /// Removes the override of the tool.
    ClearOverride,
}

/// Act on a prompt, resource or template, by the last part of its path.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum OfferVerb {
    /// Approves the definition.
    Approve,
    /// Blocks the offer.
    Block,
    /// Lifts the block of the offer.
    Unblock,
}

impl ServerVerb {
    /// Reads the last part of a path; `None` for one that names no act on a server.
    pub(super) fn parse(word: &str) -> Option<ServerVerb> {
        match word {
            "enable" => Some(ServerVerb::Enable),
            "disable" => Some(ServerVerb::Disable),
            "quarantine" => Some(ServerVerb::Quarantine),
            "unquarantine" => Some(ServerVerb::Unquarantine),
            "refresh" => Some(ServerVerb::Refresh),
            "restart" => Some(ServerVerb::Restart),
            "update" => Some(ServerVerb::Update),
            "remove" => Some(ServerVerb::Remove),
            "remove_oauth" => Some(ServerVerb::RemoveOauth),
            "disconnect" => Some(ServerVerb::Disconnect),
            _ => None,
        }
    }

    /// Returns the act, with its name in the activity log and the action that it needs.
    pub(super) fn act(self) -> VisitorAct {
        let (what, needs) = match self {
            ServerVerb::Enable => ("servers.enable", Action::ChangeServers),
            ServerVerb::Disable => ("servers.disable", Action::ChangeServers),
            ServerVerb::Quarantine => ("servers.quarantine", Action::ChangeServers),
            ServerVerb::Unquarantine => ("servers.unquarantine", Action::Approve),
            ServerVerb::Refresh => ("servers.refresh", Action::ChangeServers),
            ServerVerb::Restart => ("servers.restart", Action::ChangeServers),
            ServerVerb::Update => ("servers.update", Action::ChangeServers),
            ServerVerb::Remove => ("servers.remove", Action::ChangeServers),
            ServerVerb::RemoveOauth => ("servers.remove_oauth", Action::ChangeServers),
            ServerVerb::Disconnect => ("servers.disconnect", Action::ChangeServers),
        };
        VisitorAct::new(what, needs)
    }
}

impl ToolVerb {
    /// Reads the last part of a path; `None` for one that names no act on a tool.
    pub(super) fn parse(word: &str) -> Option<ToolVerb> {
        match word {
            "approve" => Some(ToolVerb::Approve),
            "block" => Some(ToolVerb::Block),
            "unblock" => Some(ToolVerb::Unblock),
            "override" => Some(ToolVerb::Override),
            "clear_override" => Some(ToolVerb::ClearOverride),
            _ => None,
        }
    }

    /// Returns the act, with its name in the activity log and the action that it needs.
    pub(super) fn act(self) -> VisitorAct {
        let (what, needs) = match self {
            ToolVerb::Approve => ("tools.approve", Action::Approve),
            ToolVerb::Block => ("tools.block", Action::ChangeServers),
            ToolVerb::Unblock => ("tools.unblock", Action::Approve),
            ToolVerb::Override => ("tools.override", Action::Approve),
            ToolVerb::ClearOverride => ("tools.clear_override", Action::Approve),
        };
        VisitorAct::new(what, needs)
    }
}

impl OfferVerb {
    /// Reads the last part of a path; `None` for one that names no act on an offer.
    pub(super) fn parse(word: &str) -> Option<OfferVerb> {
        match word {
            "approve" => Some(OfferVerb::Approve),
            "block" => Some(OfferVerb::Block),
            "unblock" => Some(OfferVerb::Unblock),
            _ => None,
        }
    }

    /// Returns the act on an offer of a kind, with its name in the activity log and the action that it needs.
    pub(super) fn act(self, kind: OfferKind) -> VisitorAct {
        let is_prompt = kind == OfferKind::Prompt;
        let (what, needs) = match self {
            OfferVerb::Approve if is_prompt => ("prompts.approve", Action::Approve),
            OfferVerb::Approve => ("resources.approve", Action::Approve),
            OfferVerb::Block if is_prompt => ("prompts.block", Action::ChangeServers),
            OfferVerb::Block => ("resources.block", Action::ChangeServers),
            OfferVerb::Unblock if is_prompt => ("prompts.unblock", Action::Approve),
            OfferVerb::Unblock => ("resources.unblock", Action::Approve),
        };
        VisitorAct::new(what, needs)
    }
}
