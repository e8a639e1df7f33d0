//! Texts at a control by which a person may know it, besides its label. They decide what a form asks for, and are never shown.

use std::cell::RefCell;
use std::collections::HashMap;
use std::sync::Arc;

use super::super::dom::{DomNodeId, WebDom};
use super::super::wording::is_unseen;
use super::kind::ControlKind;

/// Most texts of one control.
const TEXTS_MAX: usize = 16;
/// Longest text, in bytes; longer ones are cut.
const TEXT_BYTES_MAX: usize = 500;
/// Most nodes of an element that are read for its text.
const NODES_MAX: usize = 100;
/// Most elements around a control that are searched for a text before it: an inline element, a cell and its row.
const ABOVE_MAX: usize = 3;
/// Most siblings before an element that are read.
const BEFORE_MAX: usize = 5;

/// Texts of a page's elements, each read once.
pub(super) struct NearTexts<'a> {
    dom: &'a WebDom,
    labels: HashMap<DomNodeId, Vec<DomNodeId>>,
    read: RefCell<HashMap<DomNodeId, Arc<str>>>,
}

impl<'a> NearTexts<'a> {
    /// Finds the labels of a page.
    pub(super) fn of(dom: &'a WebDom) -> NearTexts<'a> {
        let mut labels: HashMap<DomNodeId, Vec<DomNodeId>> = HashMap::new();
        for label in dom.descendants(dom.root()).filter(|node| dom.is(*node, "label")) {
            let control = match dom.attribute(label, "for") {
                Some(id) => dom.by_id(id),
                None => dom.descendants(label).take(NODES_MAX).find(|node| is_control(dom, *node)),
            };
            let Some(control) = control else { continue };
            let own = labels.entry(control).or_default();
            if own.len() < TEXTS_MAX {
                own.push(label);
            }
        }
        NearTexts { dom, labels, read: RefCell::default() }
    }

    /// Returns the texts at a control: of all its labels, of the elements that it names, of its attributes, and its own. Without
    /// any of them, the text before it stands for a label.
    pub(super) fn of_control(&self, node: DomNodeId, kind: ControlKind) -> Vec<Arc<str>> {
        if kind == ControlKind::Hidden {
            return Vec::new();
        }
        let dom = self.dom;
        let labels = self.labels.get(&node).into_iter().flatten().copied();
        let named =
            ["aria-labelledby", "aria-describedby"].into_iter().filter_map(|name| dom.attribute(node, name));
        let named = named.flat_map(str::split_ascii_whitespace).filter_map(|id| dom.by_id(id));
        let mut texts: Vec<Arc<str>> =
            labels.chain(named).take(TEXTS_MAX).map(|element| self.text(element)).collect();
        let names = ["aria-label", "title", "alt", "aria-description", "placeholder"];
        let attributes = names.into_iter().filter_map(|name| dom.attribute(node, name));
        texts.extend(attributes.map(|text| Arc::from(looked_at(text.chars()).trim())));
        if dom.is(node, "button") {
            texts.push(self.text(node));
            let images =
                dom.descendants(node).take(NODES_MAX).filter_map(|inner| dom.attribute(inner, "alt"));
            texts.extend(images.take(TEXTS_MAX).map(|text| Arc::from(looked_at(text.chars()).trim())));
        }
        texts.retain(|text| !text.is_empty());
        if texts.is_empty() {
            texts.extend(self.before(node));
        }
        texts
    }

    /// Returns the text before a control in its line, cell or row; `None` if there is none, or another control stands between.
    fn before(&self, node: DomNodeId) -> Option<Arc<str>> {
        let dom = self.dom;
        let mut at = node;
        for _ in 0..ABOVE_MAX {
            for sibling in dom.siblings_before(at).take(BEFORE_MAX) {
                let mut inside = std::iter::once(sibling).chain(dom.descendants(sibling)).take(NODES_MAX);
                if inside.any(|inner| is_control(dom, inner) || dom.is(inner, "label")) {
                    return None;
                }
                let text = self.text(sibling);
                if !text.is_empty() {
                    return Some(text);
                }
            }
            at = dom.parent(at).filter(|above| !dom.is(*above, "form"))?;
        }
        None
    }

    /// Returns the text of a node.
    fn text(&self, node: DomNodeId) -> Arc<str> {
        if let Some(text) = self.read.borrow().get(&node) {
            return Arc::clone(text);
        }
        let mut out = String::new();
        let mut inside = 0;
        let mut below = self.dom.descendants(node);
        let mut next = Some(node);
        while let Some(inner) = next.filter(|_| inside < NODES_MAX && out.len() <= TEXT_BYTES_MAX) {
            inside += 1;
            match self.dom.name(inner) {
                Some("script" | "style" | "select" | "textarea" | "datalist") if inner != node => {
                    below.skip_inside();
                }
                Some("br" | "p" | "div" | "li" | "td" | "th" | "tr") => out.push(' '),
                _ => {}
            }
            if let Some(own) = self.dom.own_text(inner) {
                out.push_str(&looked_at(own.chars()));
            }
            next = below.next();
        }
        let text: Arc<str> = Arc::from(looked_at(out.chars()).trim());
        self.read.borrow_mut().insert(node, Arc::clone(&text));
        text
    }
}

fn is_control(dom: &WebDom, node: DomNodeId) -> bool {
    matches!(
        dom.name(node),
        Some("input" | "button" | "select" | "textarea" | "meter" | "output" | "progress")
    )
}

/// Returns the beginning of a text as it is seen, with runs of white space as one space.
fn looked_at(text: impl Iterator<Item = char>) -> String {
    let mut out = String::new();
    for c in text.filter(|c| !is_unseen(*c)) {
        if out.len() >= TEXT_BYTES_MAX {
            break;
        }
        match c.is_whitespace() {
            true if out.ends_with(' ') => {}
            true => out.push(' '),
            false => out.push(c),
        }
    }
    out
}
