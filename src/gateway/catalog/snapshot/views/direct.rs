//! Views of `/mcp/direct`: its tools and their pages.

use super::View;
use super::offers::OffersView;
use crate::domain::fingerprint::{Fingerprint, Fingerprinting};
use crate::domain::offer::OfferKind;
use crate::domain::publish::{Part, Reader};
use crate::domain::settings::ToolNames;
use crate::gateway::catalog::snapshot::Catalog;
use crate::gateway::catalog::tool::Tool;

/// Most tools on one page: as many as possible, because several clients never request a second page.
const PAGE_TOOLS_MAX: usize = 2000;
/// Most bytes of definitions on one page.
const PAGE_BYTES_MAX: usize = 8 * 1024 * 1024;

/// Tools and offers on `/mcp/direct` for callers with equal settings.
#[derive(Debug)]
pub struct DirectView {
    /// Positions of the tools in [`Catalog::listed`], in that order.
    tools: Vec<u32>,
    /// Fingerprint of the tool list: equal fingerprints are equal lists, on every replica.
    pub print: Fingerprint,
    /// Fingerprint of the prompt list.
    pub prompts_print: Fingerprint,
    /// Fingerprint of the lists of resources and templates.
    pub resources_print: Fingerprint,
    /// Prompts, resources and templates.
    pub offers: OffersView,
}

/// Page of a view's tools.
#[derive(Debug)]
pub struct DirectPage<'a> {
    /// Tools on the page.
    pub tools: Vec<ListedTool<'a>>,
    /// Total size of their definitions, in bytes.
    pub bytes: usize,
    /// Canonical name after which the next page begins, and its position in the view; `None` on the last page.
    pub next: Option<(&'a str, usize)>,
}

/// A tool on a page.
#[derive(Debug)]
pub struct ListedTool<'a> {
    /// The tool.
    pub tool: &'a Tool,
    /// Name of the tool in the requested spelling.
    pub name: &'a str,
    /// Form of the definition that is listed.
    pub part: &'a Part,
}

impl DirectView {
    pub(in crate::gateway) fn make(catalogue: &Catalog, view: &View) -> DirectView {
        let mut print = Fingerprinting::default();
        let mut tools = Vec::new();
        for (position, tool) in (0..).zip(catalogue.listed()) {
            let is_listed = tool.server.is_on_direct() && tool.shape.published().is_listed();
            if view.tier(position).is_some() && is_listed {
                tools.push(position);
                print.field(&tool.canonical);
                print.print(tool.shape.print());
                print.optional(tool.safe_name.as_deref());
            }
        }
        let offers = OffersView::make(catalogue.offers(), view.key());
        DirectView {
            tools,
            print: print.finish(),
            prompts_print: offers.print(OfferKind::Prompt),
            resources_print: offers.resources_print(),
            offers,
        }
    }

    /// Returns the position where the page after this canonical name begins: added and removed tools do not shift it.
    pub fn position_after(&self, catalogue: &Catalog, name: &str) -> usize {
        self.tools.partition_point(|position| {
            catalogue.listed().get(*position as usize).is_some_and(|tool| &*tool.canonical <= name)
        })
    }

    /// Returns the page that begins at this position. Tools without a safe name are left out of lists in that spelling.
    pub fn page<'a>(
        &self,
        catalogue: &'a Catalog,
        from: usize,
        names: ToolNames,
        reader: Reader,
    ) -> DirectPage<'a> {
        let mut page = DirectPage { tools: Vec::new(), bytes: 0, next: None };
        let mut after_last = from;
        for (at, position) in self.tools.iter().enumerate().skip(from) {
            let Some(tool) = catalogue.listed().get(*position as usize) else { continue };
            let name = match names {
                ToolNames::Colon => Some(&*tool.canonical),
                ToolNames::Safe => tool.safe_name.as_deref(),
            };
            let (Some(name), Some(part)) = (name, tool.shape.published().part(reader)) else { continue };
            if let Some(last) = page.tools.last()
                && (page.bytes + part.bytes() > PAGE_BYTES_MAX || page.tools.len() == PAGE_TOOLS_MAX)
            {
                page.next = Some((&last.tool.canonical, after_last));
                break;
            }
            page.bytes += part.bytes();
            page.tools.push(ListedTool { tool, name, part });
            after_last = at + 1;
        }
        page
    }
}
