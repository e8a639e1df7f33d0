//! Views: what callers with the same settings see of a catalogue, made once and shared by both endpoints.
//!
//! Making one takes tools × patterns: never on a thread that serves requests, and one at a time per catalogue.

pub(in crate::gateway::catalog) mod direct;
pub(in crate::gateway::catalog) mod offers;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use bytes::Bytes;
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

/// Most views kept per catalogue; above it the one that was not asked for the longest is made anew.
const VIEWS_MAX: usize = 512;
/// Most tools, prompts and resources that the views of one catalogue are about, all together: five bytes each.
const VIEWED_TOOLS_MAX: usize = 2_000_000;

/// Prepared bodies that a face may keep beside a view.
pub const BODIES: usize = 8;

/// Settings that decide what a caller sees; callers with equal ones share a view.
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
    /// the tool is told what became of it (check 8); no list has it.
    fn tier(&self, tool: &Tool) -> Option<Tier> {
        let (tier, before) = (tool.tier(self.unannotated), tool.tier_before(self.unannotated));
        let is_in_reach = |tier: Tier| tier.operation() <= self.max_operation;
        let is_seen = is_in_reach(tier) || before.is_some_and(is_in_reach);
        (is_seen && self.allows(&tool.canonical)).then_some(tier)
    }
}

/// What one kind of caller sees.
#[derive(Debug)]
pub struct View {
    key: ViewKey,
    /// The tier of each listed tool, `None` where this caller does not see it.
    tiers: Vec<Option<Tier>>,
    /// Names of the servers with at least one visible tool.
    pub servers: Vec<String>,
    /// Those of them that are not connected, whose tools are therefore missing from every list.
    pub(in crate::gateway) away: Vec<Away>,
    bodies: [OnceLock<Bytes>; BODIES],
    direct: OnceLock<Arc<DirectView>>,
    search: OnceLock<SearchScope>,
}

/// A server that is not connected.
#[derive(Debug)]
pub(in crate::gateway) struct Away {
    /// Its name.
    pub(in crate::gateway) server: String,
    /// Tiers of its tools that this caller would see.
    pub(in crate::gateway) tiers: Vec<Tier>,
}

impl View {
    fn make(catalogue: &Catalog, key: &ViewKey) -> View {
        let tiers: Vec<Option<Tier>> = catalogue.listed().iter().map(|tool| key.tier(tool)).collect();
        // named whether connected or not: a list must not say who is (behaviour, section 5)
        let seen = catalogue.listed().iter().zip(&tiers).filter(|(_, tier)| tier.is_some());
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
            tiers,
            bodies: Default::default(),
            direct: OnceLock::new(),
            search: OnceLock::new(),
        }
    }

    /// The tier of a listed tool by position, when this caller sees it.
    pub fn tier(&self, position: u32) -> Option<Tier> {
        self.tiers.get(position as usize).copied().flatten()
    }

    /// Returns the scope of this view in `index`, which is the index of its catalogue.
    pub(in crate::gateway) fn search_scope(&self, index: &Index) -> &SearchScope {
        self.search.get_or_init(|| index.scope(|position| self.tier(position).is_some()))
    }

    /// A body that a face prepares once per view.
    pub fn body(&self, slot: usize, make: impl FnOnce() -> Bytes) -> Bytes {
        match self.bodies.get(slot) {
            Some(cell) => cell.get_or_init(make).clone(),
            None => make(),
        }
    }

    /// What decided about it.
    pub(in crate::gateway) fn key(&self) -> &ViewKey {
        &self.key
    }

    fn direct(&self, catalogue: &Catalog) -> Arc<DirectView> {
        Arc::clone(self.direct.get_or_init(|| Arc::new(DirectView::make(catalogue, self))))
    }
}

/// The one function that decides whether a key sees a tool: lists, search and calls all ask it.
pub(in crate::gateway) fn sees(settings: &Effective, tool: &Tool) -> Option<Tier> {
    ViewKey::of(settings).tier(tool)
}

/// The views of one catalogue.
#[derive(Debug)]
pub(in crate::gateway) struct Views {
    known: Mutex<Known>,
    /// Held by whoever makes one because a request asks for it: the others wait without a thread.
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

impl Views {
    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Catalog {
    /// What a caller with these settings sees, made now when nobody has asked for it yet: for threads that may take
    /// their time.
    pub fn view(&self, settings: &Effective) -> Arc<View> {
        let key = ViewKey::of(settings);
        if let Some(view) = self.views.known().get(&key) {
            return view;
        }
        let made = Arc::new(View::make(self, &key));
        let views_max =
            (VIEWED_TOOLS_MAX / (self.listed().len() + self.offers().len()).max(1)).clamp(1, VIEWS_MAX);
        let mut known = self.views.known();
        // whoever asked at the same time made the same
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

    /// The same of `/mcp/direct`.
    pub fn direct_view(&self, settings: &Effective) -> Arc<DirectView> {
        self.view(settings).direct(self)
    }

    /// What a caller with these settings sees.
    pub async fn view_soon(self: &Arc<Self>, settings: &Effective) -> Arc<View> {
        let known = |catalogue: &Catalog| catalogue.views.known().get(&ViewKey::of(settings));
        self.soon(settings, known, Catalog::view).await
    }

    /// The same of `/mcp/direct`.
    pub async fn direct_view_soon(self: &Arc<Self>, settings: &Effective) -> Arc<DirectView> {
        let known = |catalogue: &Catalog| {
            let view = catalogue.views.known().get(&ViewKey::of(settings))?;
            view.direct.get().map(Arc::clone)
        };
        self.soon(settings, known, Catalog::direct_view).await
    }

    /// For work on what callers see that takes a while.
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
        // the turn ends with the work, also when nobody waits for that any more
        let made = tokio::task::spawn_blocking(move || {
            let _turn = turn;
            make(&catalogue, &owned)
        });
        match made.await {
            Ok(made) => made,
            // what broke there is to break this request alone
            Err(_) => make(self, settings),
        }
    }
}

#[cfg(test)]
mod tests;
