//! What callers see on `/mcp/direct`: which tools, and the finished lists of them.

use super::View;
use super::offers::OffersView;
use crate::domain::fingerprint::{Fingerprint, Fingerprinting};
use crate::domain::offer::OfferKind;
use crate::domain::publish::{Part, Reader};
use crate::domain::settings::ToolNames;
use crate::gateway::catalog::snapshot::Catalog;
use crate::gateway::catalog::tool::Tool;

/// Most tools on one page. Everything on one page: several clients never ask for the second.
const PAGE_TOOLS_MAX: usize = 2000;
/// Most bytes of definitions on one page.
const PAGE_BYTES_MAX: usize = 8 * 1024 * 1024;

/// What one kind of caller sees.
#[derive(Debug)]
pub struct DirectView {
    /// Positions in [`Catalog::listed`], in their order.
    tools: Vec<u32>,
    /// Equal prints are equal lists, on every replica.
    pub print: Fingerprint,
    /// The same of prompts.
    pub prompts_print: Fingerprint,
    /// The same of resources and their templates.
    pub resources_print: Fingerprint,
    /// Prompts, resources and templates.
    pub offers: OffersView,
}

/// Part of a view's tools.
#[derive(Debug)]
pub struct DirectPage<'a> {
    /// Those that are listed.
    pub tools: Vec<ListedTool<'a>>,
    /// Bytes of their definitions.
    pub bytes: usize,
    /// The canonical name after which the next page begins, and where in the view that is.
    pub next: Option<(&'a str, usize)>,
}

/// A tool as a page has it.
#[derive(Debug)]
pub struct ListedTool<'a> {
    /// The tool.
    pub tool: &'a Tool,
    /// Its name in the spelling that was asked for.
    pub name: &'a str,
    /// What of its definition is written.
    pub part: &'a Part,
}

impl DirectView {
    pub(in crate::gateway) fn make(catalogue: &Catalog, view: &View) -> DirectView {
        let mut print = Fingerprinting::default();
        let mut tools = Vec::new();
        for (position, tool) in (0..).zip(catalogue.listed()) {
            if view.tier(position).is_some() && tool.shape.published().is_listed() {
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
