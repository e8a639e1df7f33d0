//! Views: what callers with the same settings see of a catalogue, made once and shared.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use bytes::Bytes;

use super::catalog::Catalog;
use crate::domain::annotations::Tier;
use crate::domain::settings::Effective;

/// Most views kept per catalogue; above it all are made anew as they are asked for.
const VIEWS_MAX: usize = 512;

/// Prepared bodies that a face may keep beside a view.
pub const BODIES: usize = 4;

/// What one kind of caller sees.
#[derive(Debug)]
pub struct View {
    /// The tier of each listed tool, `None` where this caller does not see it.
    tiers: Vec<Option<Tier>>,
    /// Names of the servers with at least one visible tool.
    pub servers: Vec<String>,
    /// Those of them that are not connected, whose tools are therefore missing from every list.
    pub(super) away: Vec<Away>,
    bodies: [OnceLock<Bytes>; BODIES],
}

/// A server that is not connected.
#[derive(Debug)]
pub(super) struct Away {
    /// Its name.
    pub(super) server: String,
    /// Tiers of its tools that this caller would see.
    pub(super) tiers: Vec<Tier>,
}

impl View {
    fn make(catalogue: &Catalog, settings: &Effective) -> View {
        let tiers: Vec<Option<Tier>> = catalogue
            .listed()
            .iter()
            .map(|tool| sees(settings, &tool.canonical, tool.tier(settings.unannotated_tools)))
            .collect();
        // named whether connected or not: a list must not say who is (behaviour, section 5)
        let mut servers: BTreeSet<&str> = BTreeSet::new();
        let mut away_of: BTreeMap<&str, Vec<Tier>> = BTreeMap::new();
        for tool in catalogue.released() {
            let tier = sees(settings, &tool.canonical, tool.tier(settings.unannotated_tools));
            let Some(tier) = tier else { continue };
            servers.insert(&tool.server.name);
            if !tool.server.connected {
                let tiers = away_of.entry(&tool.server.name).or_default();
                if !tiers.contains(&tier) {
                    tiers.push(tier);
                }
            }
        }
        let away = |(server, tiers): (&str, _)| Away { server: server.to_owned(), tiers };
        View {
            servers: servers.into_iter().map(str::to_owned).collect(),
            away: away_of.into_iter().map(away).collect(),
            tiers,
            bodies: Default::default(),
        }
    }

    /// The tier of a listed tool by position, when this caller sees it.
    pub fn tier(&self, position: u32) -> Option<Tier> {
        self.tiers.get(position as usize).copied().flatten()
    }

    /// A body that a face prepares once per view.
    pub fn body(&self, slot: usize, make: impl FnOnce() -> Bytes) -> Bytes {
        match self.bodies.get(slot) {
            Some(cell) => cell.get_or_init(make).clone(),
            None => make(),
        }
    }
}

/// The one function that decides whether a key sees a tool: lists, search and calls all ask it.
pub(super) fn sees(settings: &Effective, canonical: &str, tier: Tier) -> Option<Tier> {
    (tier.operation() <= settings.max_operation && settings.allows(canonical)).then_some(tier)
}

/// The views of one catalogue.
#[derive(Debug, Default)]
pub(super) struct Views(Mutex<HashMap<Effective, Arc<View>>>);

impl Catalog {
    /// The view of a caller with these settings.
    pub fn view(&self, settings: &Effective) -> Arc<View> {
        let mut views = self.views.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(view) = views.get(settings) {
            return Arc::clone(view);
        }
        if views.len() >= VIEWS_MAX {
            views.clear();
        }
        let view = Arc::new(View::make(self, settings));
        views.insert(settings.clone(), Arc::clone(&view));
        view
    }
}
