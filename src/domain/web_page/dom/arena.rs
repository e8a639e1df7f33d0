//! DomArena of nodes, linked by numbers.

use std::collections::HashMap;
use std::num::NonZeroU32;

/// Number of a node in its document.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DomNodeId(NonZeroU32);

impl DomNodeId {
    /// DomNode of the document.
    pub(super) const ROOT: DomNodeId = DomNodeId(NonZeroU32::MIN);

    fn index(self) -> usize {
        self.0.get() as usize - 1
    }
}

/// Number of a name of elements or attributes in its document.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct NameId(u32);

/// DomContent of a node.
#[derive(Debug)]
pub(super) enum DomContent {
    /// Document, contents of a template, comment or processing instruction.
    Other,
    /// Text.
    Text(String),
    /// Element.
    Element(Box<Element>),
}

/// Element with its attributes.
#[derive(Debug)]
pub(super) struct Element {
    /// Local name.
    pub(super) name: NameId,
    /// True if the element is of HTML, not of SVG or MathML.
    pub(super) is_html: bool,
    /// Names and values of the attributes.
    pub(super) attributes: Vec<(NameId, Box<str>)>,
    /// Contents of a template.
    pub(super) contents: Option<DomNodeId>,
    /// Form that the parser associated.
    pub(super) form: Option<DomNodeId>,
}

/// DomNode with its links.
#[derive(Debug)]
pub(super) struct DomNode {
    pub(super) parent: Option<DomNodeId>,
    pub(super) first: Option<DomNodeId>,
    pub(super) last: Option<DomNodeId>,
    pub(super) previous: Option<DomNodeId>,
    pub(super) next: Option<DomNodeId>,
    pub(super) content: DomContent,
}

/// Nodes of a document and the names in it.
#[derive(Debug)]
pub(super) struct DomArena {
    nodes: Vec<DomNode>,
    names: Vec<Box<str>>,
    numbers: HashMap<Box<str>, NameId>,
}

impl DomArena {
    /// Creates an arena with the node of a document.
    pub(super) fn new() -> DomArena {
        let mut arena = DomArena { nodes: Vec::new(), names: Vec::new(), numbers: HashMap::new() };
        arena.add(DomContent::Other);
        arena
    }

    /// Returns the number of nodes.
    pub(super) fn len(&self) -> usize {
        self.nodes.len()
    }

    /// Returns a node.
    pub(super) fn get(&self, id: DomNodeId) -> Option<&DomNode> {
        self.nodes.get(id.index())
    }

    fn get_mut(&mut self, id: DomNodeId) -> Option<&mut DomNode> {
        self.nodes.get_mut(id.index())
    }

    /// Returns a name.
    pub(super) fn name(&self, id: NameId) -> Option<&str> {
        self.names.get(id.0 as usize).map(|name| &**name)
    }

    /// Returns the number of a name.
    pub(super) fn number(&mut self, name: &str) -> NameId {
        if let Some(number) = self.numbers.get(name) {
            return *number;
        }
        let number = NameId(self.names.len() as u32);
        self.names.push(name.into());
        self.numbers.insert(name.into(), number);
        number
    }

    /// Adds a node without a parent.
    pub(super) fn add(&mut self, content: DomContent) -> DomNodeId {
        self.nodes.push(DomNode {
            parent: None,
            first: None,
            last: None,
            previous: None,
            next: None,
            content,
        });
        // a page has far fewer nodes than numbers: the feed stops it before
        DomNodeId(NonZeroU32::new(self.nodes.len() as u32).unwrap_or(NonZeroU32::MIN))
    }

    /// Returns an element.
    pub(super) fn element_mut(&mut self, id: DomNodeId) -> Option<&mut Element> {
        match &mut self.get_mut(id)?.content {
            DomContent::Element(element) => Some(element),
            _ => None,
        }
    }

    /// Returns the contents of a template.
    pub(super) fn contents(&self, id: DomNodeId) -> Option<DomNodeId> {
        match &self.get(id)?.content {
            DomContent::Element(element) => element.contents,
            _ => None,
        }
    }

    /// Appends text to a text node; false for any other node.
    pub(super) fn extend(&mut self, id: Option<DomNodeId>, more: &str) -> bool {
        match id.and_then(|id| self.get_mut(id)).map(|node| &mut node.content) {
            Some(DomContent::Text(text)) => {
                text.push_str(more);
                true
            }
            _ => false,
        }
    }

    /// Removes a node from its parent.
    pub(super) fn detach(&mut self, id: DomNodeId) {
        let Some(node) = self.get_mut(id) else { return };
        let parent = node.parent.take();
        let (previous, next) = (node.previous.take(), node.next.take());
        if let Some(previous) = previous.and_then(|id| self.get_mut(id)) {
            previous.next = next;
        }
        if let Some(next) = next.and_then(|id| self.get_mut(id)) {
            next.previous = previous;
        }
        if let Some(parent) = parent.and_then(|id| self.get_mut(id)) {
            if previous.is_none() {
                parent.first = next;
            }
            if next.is_none() {
                parent.last = previous;
            }
        }
    }

    /// Puts a node behind the last child of a parent.
    pub(super) fn append(&mut self, parent: DomNodeId, id: DomNodeId) {
        self.detach(id);
        let Some(above) = self.get_mut(parent) else { return };
        let last = above.last.replace(id);
        if last.is_none() {
            above.first = Some(id);
        }
        if let Some(last) = last.and_then(|id| self.get_mut(id)) {
            last.next = Some(id);
        }
        if let Some(node) = self.get_mut(id) {
            (node.parent, node.previous) = (Some(parent), last);
        }
    }

    /// Puts a node before a sibling; does nothing where the sibling has no parent.
    pub(super) fn insert_before(&mut self, sibling: DomNodeId, id: DomNodeId) {
        self.detach(id);
        let Some(next) = self.get_mut(sibling) else { return };
        let Some(parent) = next.parent else { return };
        let previous = next.previous.replace(id);
        match previous.and_then(|id| self.get_mut(id)) {
            Some(previous) => previous.next = Some(id),
            None => {
                if let Some(parent) = self.get_mut(parent) {
                    parent.first = Some(id);
                }
            }
        }
        if let Some(node) = self.get_mut(id) {
            (node.parent, node.previous, node.next) = (Some(parent), previous, Some(sibling));
        }
    }
}
