//! A tenant's catalogue: servers, tools and offers at one revision, with everything that calls and searches need. Lists and
//! searches read this snapshot, never the database.

pub(super) mod states;
pub(super) mod views;

use std::collections::HashMap;
use std::sync::{Arc, OnceLock};

use tokio::sync::OnceCell;

use self::states::ServerStates;
use self::views::Views;
use super::offers::Offers;
use super::tool::{ServerEntry, Tool, document, server_entry, target};
use crate::domain::id::{ServerId, TenantId};
use crate::domain::seal::Keyring;
use crate::domain::search::Index;
use crate::domain::tool::PinState;
use crate::gateway::credentials::Opener;
use crate::store::CatalogueRows;
use crate::upstream::{Commands, Limits, LoginHolder};

/// Snapshot of a tenant's servers, tools and offers.
#[derive(Debug)]
pub struct Catalog {
    /// Revision of the catalogue; equal revisions are equal catalogues on every replica.
    pub rev: i64,
    servers: Vec<Arc<ServerEntry>>,
    tools: HashMap<Box<str>, Arc<Tool>>,
    /// Tools by safe name.
    by_safe_name: HashMap<Box<str>, Arc<Tool>>,
    /// Tools that may be listed, sorted by canonical name. Their positions are the documents of the index.
    listed: Vec<Arc<Tool>>,
    /// Search index over `listed`; made after the snapshot is published, because no list and no call needs it.
    index: OnceCell<Index>,
    offers: Offers,
    /// True if a server may send clients log messages.
    pub(in crate::gateway) relays_logs: bool,
    /// True if a server takes tokens that are given in exchange for those of people.
    pub(in crate::gateway) exchanges: bool,
    /// Servers of the previous snapshot whose connections must be dropped: removed, with another credential, or a program
    /// that was switched off.
    pub(in crate::gateway) gone: Vec<ServerId>,
    pub(in crate::gateway) views: Views,
    /// States of the servers, counted when first requested.
    pub(in crate::gateway) states: OnceLock<Arc<ServerStates>>,
}

impl Catalog {
    /// Returns a catalogue without servers, at revision 0.
    pub(in crate::gateway) fn empty() -> Catalog {
        Catalog {
            rev: 0,
            servers: Vec::new(),
            tools: HashMap::new(),
            by_safe_name: HashMap::new(),
            listed: Vec::new(),
            index: OnceCell::new(),
            offers: Offers::default(),
            relays_logs: false,
            exchanges: false,
            gone: Vec::new(),
            views: Views::default(),
            states: OnceLock::new(),
        }
    }

    /// Builds the snapshot of the loaded rows. Shapes of unchanged definitions are taken from `old`.
    pub(in crate::gateway) fn build(
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
            let Some(tool) = Tool::of(row, server, canonical.clone(), old.tools.get(&canonical)) else {
                continue;
            };
            tools.insert(canonical, Arc::new(tool));
        }
        let mut listed: Vec<Arc<Tool>> = tools
            .values()
            .filter(|tool| tool.server.is_exposed() && tool.state == PinState::Approved)
            .cloned()
            .collect();
        listed.sort_by(|a, b| a.canonical.cmp(&b.canonical));
        // with whose login the server is listed is nothing to those who call it with their own
        let identity = |server: &ServerEntry| {
            let login = server.target.upstream.login();
            login.map(|login| (login.client, login.holder == LoginHolder::Tenant))
        };
        let is_gone = |old: &&Arc<ServerEntry>| {
            by_id.get(&old.id).is_none_or(|new| {
                let is_off = new.target.upstream.is_run_here() && !new.enabled;
                is_off
                    || new.target.upstream.credential() != old.target.upstream.credential()
                    || identity(new) != identity(old)
                    || !old.target.upstream.runs_on_as(&new.target.upstream)
            })
        };
        let gone = old.servers.iter().filter(is_gone).map(|server| server.id).collect();
        Catalog {
            rev: rows.rev,
            gone,
            index: OnceCell::new(),
            offers: Offers::build(&rows.offers, &by_id, &old.offers),
            exchanges: servers
                .iter()
                .any(|server| server.target.upstream.login().is_some_and(|login| login.exchanges)),
            relays_logs: servers.iter().any(|server| server.enabled && server.target.relay.logging),
            servers,
            by_safe_name: by_safe_name(&tools),
            tools,
            listed,
            views: Views::default(),
            states: OnceLock::new(),
        }
    }

    /// Returns a tool in any state, by canonical name.
    pub fn tool(&self, canonical: &str) -> Option<&Arc<Tool>> {
        self.tools.get(canonical)
    }

    /// Returns the canonical names of all tools, whatever their state.
    pub(in crate::gateway) fn tool_names(&self) -> impl Iterator<Item = &str> {
        self.tools.keys().map(|name| &**name)
    }

    /// Returns the canonical names of all tools that nobody has blocked.
    pub(in crate::gateway) fn unblocked_names(&self) -> impl Iterator<Item = &str> {
        self.tools.iter().filter(|(_, tool)| tool.state != PinState::Blocked).map(|(name, _)| &**name)
    }

    /// Returns a tool by either spelling of its name. Every canonical name has a `:`, and no safe name has one.
    pub fn by_either_name(&self, name: &str) -> Option<&Arc<Tool>> {
        self.tools.get(name).or_else(|| self.by_safe_name.get(name))
    }

    /// Returns the tools that may be listed, sorted by canonical name.
    pub fn listed(&self) -> &[Arc<Tool>] {
        &self.listed
    }

    /// Returns the approved tools of enabled, released servers, connected or not, in no order.
    pub(in crate::gateway) fn released(&self) -> impl Iterator<Item = &Arc<Tool>> {
        self.tools.values().filter(|tool| {
            tool.server.enabled && !tool.server.quarantined && tool.state == PinState::Approved
        })
    }

    /// Returns the tools in every state, in no order.
    pub(in crate::gateway) fn all_tools(&self) -> impl Iterator<Item = &Arc<Tool>> {
        self.tools.values()
    }

    /// Returns the servers, sorted by name.
    pub fn servers(&self) -> &[Arc<ServerEntry>] {
        &self.servers
    }

    /// Returns the prompts, resources and templates.
    pub(in crate::gateway) fn offers(&self) -> &Offers {
        &self.offers
    }

    /// Returns the search index over [`Catalog::listed`]. Callers wait without a thread until it is made.
    pub(in crate::gateway) async fn index(self: &Arc<Self>) -> &Index {
        let make = async || {
            let catalogue = Arc::clone(self);
            let made = tokio::task::spawn_blocking(move || catalogue.make_index()).await;
            // a panic in the blocking thread may break this request only
            made.unwrap_or_else(|_| self.make_index())
        };
        self.index.get_or_init(make).await
    }

    #[cfg(test)]
    pub(in crate::gateway) fn has_index(&self) -> bool {
        self.index.initialized()
    }

    fn make_index(&self) -> Index {
        Index::build(self.listed.iter().map(|tool| document(tool)))
    }
}

fn by_safe_name(tools: &HashMap<Box<str>, Arc<Tool>>) -> HashMap<Box<str>, Arc<Tool>> {
    tools.values().filter_map(|tool| Some((tool.safe_name.clone()?, Arc::clone(tool)))).collect()
}

#[cfg(test)]
pub(in crate::gateway) mod tests;
