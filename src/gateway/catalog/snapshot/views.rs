//! Views of a catalogue, each for all callers with equal settings and shared by both endpoints. Making a view costs tools ×
//! patterns, so it runs off the threads that serve requests, one at a time per catalogue.

pub(in crate::gateway::catalog) mod direct;
pub(in crate::gateway::catalog) mod offers;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use parking_lot::Mutex;
use tokio::sync::Semaphore;

use self::direct::DirectView;
use super::Catalog;
use crate::domain::annotations::{Tier, Unannotated};
use crate::domain::glob::Globs;
use crate::domain::operation::OperationType;
use crate::domain::search::{Index, SearchScope};
use crate::domain::settings::Effective;
use crate::gateway::catalog::offers::Offer;
use crate::gateway::catalog::tool::Tool;

/// Most views kept per catalogue; above it the least recently used one is evicted.
const VIEWS_MAX: usize = 512;
/// Most entries (tools, prompts, resources) in all views of one catalogue together, at five bytes each.
const VIEWED_TOOLS_MAX: usize = 2_000_000;

/// Prepared bodies that an endpoint may keep beside a view.
pub const BODIES: usize = 8;

/// Settings that decide what a caller sees; callers with equal settings share a view.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(in crate::gateway) struct ViewKey {
    unannotated: Unannotated,
    max_operation: OperationType,
    allowed_tools: Globs,
}

impl ViewKey {
    pub(in crate::gateway) fn of(settings: &Effective) -> ViewKey {
        ViewKey {
            unannotated: settings.unannotated_tools,
            max_operation: settings.max_operation,
            allowed_tools: settings.allowed_tools.clone(),
        }
    }

    /// Returns whether a prompt, resource or template is in the scope. Reads must be within the ceiling, and
    /// `allowed_tools` must allow its `server:name` or `server:URI`.
    pub(in crate::gateway) fn sees_offer(&self, canonical: &str) -> bool {
        Offer::TIER.operation() <= self.max_operation && self.allows(canonical)
    }

    fn allows(&self, canonical: &str) -> bool {
        self.allowed_tools.allows(canonical)
    }

    /// Returns the tier of a tool that is in the scope; `None` for others. A tool with an unapproved
    /// definition is in the scope if the ceiling allows its tier before or after the change. A key that saw
    /// the tool thus gets the reason for its absence (check 8); no list has it.
    fn tier(&self, tool: &Tool) -> Option<Tier> {
        let (tier, before) = (tool.tier(self.unannotated), tool.tier_before(self.unannotated));
        let is_in_reach = |tier: Tier| tier.operation() <= self.max_operation;
        let is_seen = is_in_reach(tier) || before.is_some_and(is_in_reach);
        (is_seen && self.allows(&tool.canonical)).then_some(tier)
    }
}

/// Numbers of the tools that a view shows. The tiers count tools with annotations only.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ToolCounts {
    /// Number of all tools.
    pub total: usize,
    /// Number of tools of tier read.
    pub read: usize,
    /// Number of tools of tier write.
    pub write: usize,
    /// Number of tools of tier destructive.
    pub destructive: usize,
    /// Number of tools that do not say whether they only read, whatever these callers make of it.
    pub unannotated: usize,
}

impl ToolCounts {
    fn of<'a>(tools: impl Iterator<Item = &'a Arc<Tool>>) -> ToolCounts {
        let mut counts = ToolCounts::default();
        for tool in tools {
            counts.total += 1;
            *match tool.tier(Unannotated::Trust) {
                Tier::Read => &mut counts.read,
                Tier::Write => &mut counts.write,
                Tier::Destructive => &mut counts.destructive,
                Tier::Unknown => &mut counts.unannotated,
            } += 1;
        }
        counts
    }
}

/// Visible part of a catalogue for callers with equal settings.
#[derive(Debug)]
pub struct View {
    key: ViewKey,
    /// Tier of each listed tool; `None` where these callers do not see it.
    tiers: Vec<Option<Tier>>,
    /// Names of the servers with at least one visible tool.
    pub servers: Vec<String>,
    /// Visible servers that are not connected, whose tools are therefore missing from every list.
    pub(in crate::gateway) away: Vec<Away>,
    /// Numbers of the visible tools.
    pub(in crate::gateway) counts: ToolCounts,
    bodies: [OnceLock<Bytes>; BODIES],
    direct: OnceLock<Arc<DirectView>>,
    search: OnceLock<SearchScope>,
}

/// A server that is not connected.
#[derive(Debug)]
pub(in crate::gateway) struct Away {
    /// Name of the server.
    pub(in crate::gateway) server: String,
    /// Distinct tiers of its visible tools.
    pub(in crate::gateway) tiers: Vec<Tier>,
}

impl View {
    fn make(catalogue: &Catalog, key: &ViewKey) -> View {
        let tiers: Vec<Option<Tier>> = catalogue.listed().iter().map(|tool| key.tier(tool)).collect();
        // named whether connected or not: a list must not reveal which servers are connected (behaviour, section 5)
        let seen = catalogue.listed().iter().zip(&tiers).filter(|(_, tier)| tier.is_some());
        let counts = ToolCounts::of(seen.clone().map(|(tool, _)| tool));
        let mut servers: BTreeSet<&str> = seen.map(|(tool, _)| tool.server.name.as_str()).collect();
        let mut away_of: BTreeMap<&str, Vec<Tier>> = BTreeMap::new();
        for tool in catalogue.released().filter(|tool| !tool.server.connected) {
            let Some(tier) = key.tier(tool) else { continue };
            servers.insert(&tool.server.name);
            let tiers = away_of.entry(&tool.server.name).or_default();
            if !tiers.contains(&tier) {
                tiers.push(tier);
            }
        }
        let away = |(server, tiers): (&str, _)| Away { server: server.to_owned(), tiers };
        View {
            key: key.clone(),
            servers: servers.into_iter().map(str::to_owned).collect(),
            away: away_of.into_iter().map(away).collect(),
            counts,
            tiers,
            bodies: Default::default(),
            direct: OnceLock::new(),
            search: OnceLock::new(),
        }
    }

    /// Returns the tier of a listed tool by its position; `None` if these callers do not see it.
    pub fn tier(&self, position: u32) -> Option<Tier> {
        self.tiers.get(position as usize).copied().flatten()
    }

    /// Returns the scope of this view in `index`, which is the index of its catalogue.
    pub(in crate::gateway) fn search_scope(&self, index: &Index) -> &SearchScope {
        self.search.get_or_init(|| index.scope(|position| self.tier(position).is_some()))
    }

    /// Returns a body that an endpoint prepares once per view. Slots from [`BODIES`] on are not kept.
    pub fn body(&self, slot: usize, make: impl FnOnce() -> Bytes) -> Bytes {
        match self.bodies.get(slot) {
            Some(cell) => cell.get_or_init(make).clone(),
            None => make(),
        }
    }

    /// Returns the settings that the view was made for.
    pub(in crate::gateway) fn key(&self) -> &ViewKey {
        &self.key
    }

    fn direct(&self, catalogue: &Catalog) -> Arc<DirectView> {
        Arc::clone(self.direct.get_or_init(|| Arc::new(DirectView::make(catalogue, self))))
    }
}

/// Returns a tool's tier if a key sees the tool. Lists, search and calls all decide by this function.
pub(in crate::gateway) fn sees(settings: &Effective, tool: &Tool) -> Option<Tier> {
    ViewKey::of(settings).tier(tool)
}

/// The views of one catalogue.
#[derive(Debug)]
pub(in crate::gateway) struct Views {
    known: Mutex<Known>,
    /// Permit for making a view on request, one at a time: other requests wait without a thread.
    turn: Arc<Semaphore>,
}

impl Default for Views {
    fn default() -> Views {
        Views { known: Mutex::default(), turn: Arc::new(Semaphore::new(1)) }
    }
}

#[derive(Debug, Default)]
struct Known {
    views: HashMap<ViewKey, (Arc<View>, u64)>,
    uses: u64,
}

impl Known {
    fn get(&mut self, key: &ViewKey) -> Option<Arc<View>> {
        self.uses += 1;
        let (view, used) = self.views.get_mut(key)?;
        *used = self.uses;
        Some(Arc::clone(view))
    }

    fn remove_oldest(&mut self) {
        let oldest = self.views.iter().min_by_key(|(_, (_, used))| *used).map(|(key, _)| key.clone());
        oldest.and_then(|oldest| self.views.remove(&oldest));
    }
}

impl Views {}

impl Catalog {
    /// Returns the view for these settings, and makes it on this thread if it does not exist: only for blocking threads.
    pub fn view(&self, settings: &Effective) -> Arc<View> {
        let key = ViewKey::of(settings);
        if let Some(view) = self.views.known.lock().get(&key) {
            return view;
        }
        let made = Arc::new(View::make(self, &key));
        let views_max =
            (VIEWED_TOOLS_MAX / (self.listed().len() + self.offers().len()).max(1)).clamp(1, VIEWS_MAX);
        let mut known = self.views.known.lock();
        // another thread may have made the same view meanwhile
        if let Some(view) = known.get(&key) {
            return view;
        }
        while known.views.len() >= views_max {
            known.remove_oldest();
        }
        let used = known.uses;
        known.views.insert(key, (Arc::clone(&made), used));
        made
    }

    /// Returns the view of `/mcp/direct` for these settings, like [`Catalog::view`].
    pub fn direct_view(&self, settings: &Effective) -> Arc<DirectView> {
        self.view(settings).direct(self)
    }

    /// Returns the view for these settings, made on a blocking thread if it does not exist.
    pub async fn view_soon(self: &Arc<Self>, settings: &Effective) -> Arc<View> {
        let known = |catalogue: &Catalog| catalogue.views.known.lock().get(&ViewKey::of(settings));
        self.soon(settings, known, Catalog::view).await
    }

    /// Returns the view of `/mcp/direct` for these settings, made on a blocking thread if it does not exist.
    pub async fn direct_view_soon(self: &Arc<Self>, settings: &Effective) -> Arc<DirectView> {
        let known = |catalogue: &Catalog| {
            let view = catalogue.views.known.lock().get(&ViewKey::of(settings))?;
            view.direct.get().map(Arc::clone)
        };
        self.soon(settings, known, Catalog::direct_view).await
    }

    /// Returns the permit for long work on this catalogue's views, of which one runs at a time.
    pub fn turn(&self) -> Arc<Semaphore> {
        Arc::clone(&self.views.turn)
    }

    async fn soon<T: Send + 'static>(
        self: &Arc<Self>,
        settings: &Effective,
        known: impl Fn(&Catalog) -> Option<T>,
        make: fn(&Catalog, &Effective) -> T,
    ) -> T {
        if let Some(known) = known(self) {
            return known;
        }
        let turn = Arc::clone(&self.views.turn).acquire_owned().await;
        if let Some(known) = known(self) {
            return known;
        }
        let (catalogue, owned) = (Arc::clone(self), settings.clone());
        // the permit stays with the work, also when nobody waits for that any more
        let made = tokio::task::spawn_blocking(move || {
            let _turn = turn;
            make(&catalogue, &owned)
        });
        match made.await {
            Ok(made) => made,
            // a panic in the blocking thread may break this request only
            Err(_) => make(self, settings),
        }
    }
}

#[cfg(test)]
mod tests;
