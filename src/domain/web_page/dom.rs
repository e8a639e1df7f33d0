//! Documents of web pages: a bounded arena that the HTML parser fills as a browser without scripting does.
//!
//! Contents of `<template>` elements are kept apart: no function here leads to them from the document.

mod arena;
mod attributes;
mod builder;
mod feed;
#[cfg(test)]
mod fuzz;
mod selector;
#[cfg(test)]
mod tests;

use std::cell::Cell;
use std::collections::HashMap;
use std::collections::hash_map::Entry;

pub use arena::DomNodeId;
use arena::{DomArena, DomContent};
pub use feed::{ATTRIBUTES_MAX, CONTROLS_MAX, DEPTH_MAX, DomFault, NODES_MAX, TAG_ATTRIBUTES_MAX};
pub use selector::{DomSelector, DomSelectorFault};

/// Most steps of all walks through a page: each node and attribute that is looked at costs one, and texts by their length.
const WALK_STEPS_MAX: usize = 6_000_000;
/// Bytes of a text or of an attribute's value that cost a step.
const STEP_BYTES: usize = 4;

/// Document of a web page.
///
/// Walks through it have a bound in all, whoever begins them: a page may make each of its controls look at all of its nodes.
/// Behind the bound every walk ends at once and finds nothing, so whoever is done asks [`WebDom::is_spent`].
#[derive(Debug)]
pub struct WebDom {
    arena: DomArena,
    ids: HashMap<Box<str>, DomNodeId>,
    /// Steps that are left.
    steps: Cell<usize>,
}

impl WebDom {
    /// Parses the text of a page, with scripting off.
    ///
    /// # Errors
    /// The bound that the page exceeds.
    pub fn parse(text: &str) -> Result<WebDom, DomFault> {
        let arena = feed::parse(text)?;
        let mut dom = WebDom { arena, ids: HashMap::new(), steps: Cell::new(WALK_STEPS_MAX) };
        let mut ids = HashMap::new();
        for node in dom.descendants(dom.root()) {
            let Some(id) = dom.attribute(node, "id").filter(|id| !id.is_empty()) else { continue };
            if let Entry::Vacant(free) = ids.entry(id.into()) {
                free.insert(node);
            }
        }
        dom.ids = ids;
        Ok(dom)
    }

    /// Returns whether walks through the page took more steps than a page may: what they found is not whole.
    pub fn is_spent(&self) -> bool {
        self.steps.get() == 0
    }

    /// Takes steps off those that are left; `None` if there are too few.
    fn spend(&self, steps: usize) -> Option<()> {
        let left = self.steps.get().checked_sub(steps).filter(|left| *left > 0);
        self.steps.set(left.unwrap_or_default());
        left.map(drop)
    }

    /// Takes the steps off that reading a text costs, and returns the text.
    fn paid<'a>(&self, text: &'a str) -> Option<&'a str> {
        self.spend(text.len() / STEP_BYTES)?;
        Some(text)
    }

    /// Returns the node of the document itself.
    pub fn root(&self) -> DomNodeId {
        DomNodeId::ROOT
    }

    /// Returns the parent of a node; `None` for the document.
    pub fn parent(&self, node: DomNodeId) -> Option<DomNodeId> {
        self.spend(1)?;
        self.arena.get(node)?.parent
    }

    /// Returns the ancestors of a node, the nearest first.
    pub fn ancestors(&self, node: DomNodeId) -> impl Iterator<Item = DomNodeId> {
        std::iter::successors(self.parent(node), |node| self.parent(*node))
    }

    /// Returns the children of a node in order.
    pub fn children(&self, node: DomNodeId) -> impl Iterator<Item = DomNodeId> {
        let first = self.arena.get(node).and_then(|node| node.first);
        std::iter::successors(first, |node| {
            self.spend(1)?;
            self.arena.get(*node)?.next
        })
    }

    /// Returns the siblings before a node, the nearest first.
    pub fn siblings_before(&self, node: DomNodeId) -> impl Iterator<Item = DomNodeId> {
        let previous = |node| self.arena.get(node)?.previous;
        std::iter::successors(previous(node), move |node| previous(*node))
    }

    /// Returns the descendants of a node in tree order, without the node itself.
    pub fn descendants(&self, node: DomNodeId) -> Descendants<'_> {
        Descendants { dom: self, root: node, at: node }
    }

    /// Returns the tag name of an HTML element in lower case; `None` for SVG, MathML, texts and others.
    pub fn name(&self, node: DomNodeId) -> Option<&str> {
        match &self.arena.get(node)?.content {
            DomContent::Element(element) if element.is_html => self.arena.name(element.name),
            _ => None,
        }
    }

    /// Returns whether a node is an HTML element of a name.
    pub fn is(&self, node: DomNodeId, name: &str) -> bool {
        self.name(node) == Some(name)
    }

    /// Returns whether a node is an element of any namespace.
    pub fn is_element(&self, node: DomNodeId) -> bool {
        self.arena.get(node).is_some_and(|node| matches!(node.content, DomContent::Element(_)))
    }

    /// Returns the value of an attribute of an element; its name is in lower case.
    pub fn attribute(&self, node: DomNodeId, name: &str) -> Option<&str> {
        let (_, value) = self.attributes(node).find(|(own, _)| *own == name)?;
        self.paid(value)
    }

    /// Returns whether an element has an attribute, whatever its value.
    pub fn has(&self, node: DomNodeId, name: &str) -> bool {
        self.attribute(node, name).is_some()
    }

    /// Returns the attributes of an element: names in lower case, and values.
    pub fn attributes(&self, node: DomNodeId) -> impl Iterator<Item = (&str, &str)> {
        let attributes = match self.arena.get(node).map(|node| &node.content) {
            Some(DomContent::Element(element)) => &*element.attributes,
            _ => &[],
        };
        attributes.iter().map_while(|(name, value)| {
            self.spend(1)?;
            Some((self.arena.name(*name)?, &**value))
        })
    }

    /// Returns the text of a text node.
    pub fn own_text(&self, node: DomNodeId) -> Option<&str> {
        match &self.arena.get(node)?.content {
            DomContent::Text(text) => self.paid(text),
            _ => None,
        }
    }

    /// Returns the texts of a node and its descendants, joined, of scripts and styles as well.
    pub fn text(&self, node: DomNodeId) -> String {
        let own = self.own_text(node).into_iter();
        own.chain(self.descendants(node).filter_map(|node| self.own_text(node))).collect()
    }

    /// Returns the first element with an id, in tree order.
    pub fn by_id(&self, id: &str) -> Option<DomNodeId> {
        self.ids.get(id).copied()
    }

    /// Returns the first element that a selector matches, in tree order.
    pub fn find(&self, selector: &DomSelector) -> Option<DomNodeId> {
        self.descendants(self.root()).find(|node| selector.matches(self, *node))
    }

    /// Returns the form that the parser associated with a control, which need not be an ancestor.
    pub(super) fn parser_form(&self, node: DomNodeId) -> Option<DomNodeId> {
        match &self.arena.get(node)?.content {
            DomContent::Element(element) => element.form,
            _ => None,
        }
    }
}

/// Iterator over the descendants of a node in tree order.
#[derive(Clone, Debug)]
pub struct Descendants<'a> {
    dom: &'a WebDom,
    root: DomNodeId,
    at: DomNodeId,
}

impl Descendants<'_> {
    /// Goes on behind the descendants of the node returned last.
    pub fn skip_inside(&mut self) {
        let arena = &self.dom.arena;
        let mut deepest = self.at;
        while let Some(last) = self.dom.spend(1).and_then(|()| arena.get(deepest)?.last) {
            deepest = last;
        }
        self.at = deepest;
    }
}

impl Iterator for Descendants<'_> {
    type Item = DomNodeId;

    fn next(&mut self) -> Option<DomNodeId> {
        self.dom.spend(1)?;
        let arena = &self.dom.arena;
        let mut node = arena.get(self.at)?;
        if let Some(first) = node.first {
            self.at = first;
            return Some(first);
        }
        let mut id = self.at;
        while id != self.root {
            if let Some(next) = node.next {
                self.at = next;
                return Some(next);
            }
            id = node.parent?;
            node = arena.get(id)?;
        }
        None
    }
}
