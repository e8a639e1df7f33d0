//! What callers see on `/mcp/direct`: which tools, and the finished lists of them.

mod lists;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use super::catalog::{Catalog, Tool};
use super::views;
use crate::domain::annotations::Unannotated;
use crate::domain::fingerprint::{Fingerprint, Fingerprinting};
use crate::domain::intent::OperationType;
use crate::domain::publish::Reader;
use crate::domain::settings::{Effective, ToolNames};

pub use lists::ListKey;
pub(super) use lists::Lists;

/// Most views kept per catalogue; above it the one that was not asked for the longest is made anew.
const VIEWS_MAX: usize = 512;
/// Most tools on one page. Everything on one page: several clients never ask for the second.
const PAGE_TOOLS_MAX: usize = 2000;
/// Most bytes of definitions on one page.
const PAGE_BYTES_MAX: usize = 8 * 1024 * 1024;

/// What decides about what is seen; callers that are alike in it share a view.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct ViewKey {
    unannotated: Unannotated,
    max_operation: OperationType,
    allowed_tools: Vec<Vec<String>>,
}

impl ViewKey {
    fn of(settings: &Effective) -> ViewKey {
        ViewKey {
            unannotated: settings.unannotated_tools,
            max_operation: settings.max_operation,
            allowed_tools: settings.allowed_tools.clone(),
        }
    }
}

/// What one kind of caller sees.
#[derive(Debug)]
pub struct DirectView {
    /// Positions in [`Catalog::listed`], in their order.
    tools: Vec<u32>,
    /// Equal prints are equal lists, on every replica.
    pub print: Fingerprint,
}

/// Part of a view's tools.
#[derive(Debug)]
pub struct DirectPage<'a> {
    /// Those that are listed, with the name of each in the spelling that was asked for.
    pub tools: Vec<(&'a Tool, &'a str)>,
    /// The canonical name after which the next page begins.
    pub next: Option<&'a str>,
}

impl DirectView {
    fn make(catalogue: &Catalog, settings: &Effective) -> DirectView {
        let mut print = Fingerprinting::default();
        let mut tools = Vec::new();
        for (position, tool) in (0..).zip(catalogue.listed()) {
            let tier = tool.tier(settings.unannotated_tools);
            let is_seen = views::sees(settings, &tool.canonical, tier).is_some();
            if is_seen && tool.shape.published.is_some() {
                tools.push(position);
                print.field(&tool.canonical);
                print.field(tool.shape.pin());
                print.optional(tool.shape.said());
                print.optional(tool.safe_name.as_deref());
            }
        }
        DirectView { tools, print: print.finish() }
    }

    /// Where the page after this canonical name begins: names that come and go do not shift it.
    pub fn position_after(&self, catalogue: &Catalog, name: &str) -> usize {
        self.tools.partition_point(|position| {
            catalogue.listed().get(*position as usize).is_some_and(|tool| &*tool.canonical <= name)
        })
    }

    /// The page that begins at this position. Tools without a safe name are in no list of such names.
    pub fn page<'a>(
        &self,
        catalogue: &'a Catalog,
        from: usize,
        names: ToolNames,
        reader: Reader,
    ) -> DirectPage<'a> {
        let mut page = DirectPage { tools: Vec::new(), next: None };
        let mut bytes = 0;
        for position in self.tools.get(from..).unwrap_or_default() {
            let Some(tool) = catalogue.listed().get(*position as usize) else { continue };
            let name = match names {
                ToolNames::Colon => Some(&*tool.canonical),
                ToolNames::Safe => tool.safe_name.as_deref(),
            };
            let (Some(name), Some(published)) = (name, &tool.shape.published) else { continue };
            bytes += published.part(reader).bytes();
            if let Some((last, _)) = page.tools.last()
                && (bytes > PAGE_BYTES_MAX || page.tools.len() == PAGE_TOOLS_MAX)
            {
                page.next = Some(&last.canonical);
                break;
            }
            page.tools.push((tool.as_ref(), name));
        }
        page
    }
}

/// The views of one catalogue.
#[derive(Debug, Default)]
pub(super) struct DirectViews(Mutex<Known>);

#[derive(Debug, Default)]
struct Known {
    views: HashMap<ViewKey, Slot>,
    uses: u64,
}

/// A view that is there, or that the first who asks for it makes while the others wait for it alone.
#[derive(Debug, Default)]
struct Slot {
    view: Arc<OnceLock<Arc<DirectView>>>,
    used: u64,
}

impl DirectViews {
    fn slot(&self, key: ViewKey) -> Arc<OnceLock<Arc<DirectView>>> {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if known.views.len() >= VIEWS_MAX && !known.views.contains_key(&key) {
            let oldest = known.views.iter().min_by_key(|(_, slot)| slot.used).map(|(key, _)| key.clone());
            oldest.and_then(|oldest| known.views.remove(&oldest));
        }
        known.uses += 1;
        let uses = known.uses;
        let slot = known.views.entry(key).or_default();
        slot.used = uses;
        Arc::clone(&slot.view)
    }
}

impl Catalog {
    /// What a caller with these settings sees on `/mcp/direct`.
    pub fn direct_view(&self, settings: &Effective) -> Arc<DirectView> {
        let slot = self.direct_views.slot(ViewKey::of(settings));
        Arc::clone(slot.get_or_init(|| Arc::new(DirectView::make(self, settings))))
    }
}
