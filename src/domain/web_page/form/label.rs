//! Texts by which people know a control.

use std::collections::HashMap;

use super::super::dom::{DomNodeId, WebDom};
use super::kind::ControlKind;

/// Longest label, in bytes; longer ones are cut.
const LABEL_BYTES_MAX: usize = 1000;
/// Most elements that `aria-labelledby` names.
const NAMED_MAX: usize = 8;

/// Labels of a page.
pub(super) struct FormLabels {
    /// First label of each control.
    of_controls: HashMap<DomNodeId, DomNodeId>,
}

impl FormLabels {
    /// Finds the labels of a page.
    pub(super) fn of(dom: &WebDom) -> FormLabels {
        let mut of_controls = HashMap::new();
        for label in dom.descendants(dom.root()).filter(|node| dom.is(*node, "label")) {
            let control = match dom.attribute(label, "for") {
                Some(id) => dom.by_id(id),
                None => dom.descendants(label).find(|node| is_labelable(dom, *node)),
            };
            if let Some(control) = control {
                of_controls.entry(control).or_insert(label);
            }
        }
        FormLabels { of_controls }
    }

    /// Returns the label of a control: of `<label>`, or else the attributes that assistive technology reads.
    pub(super) fn label_of(&self, dom: &WebDom, node: DomNodeId, kind: ControlKind) -> Option<String> {
        let attribute = |name| dom.attribute(node, name).map(collapsed);
        let named = || {
            let ids = dom.attribute(node, "aria-labelledby")?.split_ascii_whitespace().take(NAMED_MAX);
            let texts: Vec<String> =
                ids.filter_map(|id| dom.by_id(id)).map(|node| visible_text(dom, node)).collect();
            Some(texts.join(" "))
        };
        let own = || match kind {
            ControlKind::SubmitButton | ControlKind::OtherButton if dom.is(node, "button") => {
                Some(visible_text(dom, node))
            }
            ControlKind::Image => attribute("alt"),
            kind if kind.is_button() => attribute("value"),
            _ => None,
        };
        let label = self.of_controls.get(&node).map(|label| visible_text(dom, *label));
        let is_text = |text: &String| !text.is_empty();
        label
            .filter(is_text)
            .or_else(|| named().filter(is_text))
            .or_else(|| attribute("aria-label").filter(is_text))
            .or_else(|| own().filter(is_text))
            .or_else(|| attribute("title").filter(is_text))
            .or_else(|| attribute("placeholder").filter(is_text))
            .map(cut)
    }

    /// Returns the legend of the nearest fieldset around a control.
    pub(super) fn group_of(&self, dom: &WebDom, node: DomNodeId) -> Option<String> {
        let fieldset = dom.ancestors(node).find(|above| dom.is(*above, "fieldset"))?;
        let legend = dom.children(fieldset).find(|child| dom.is(*child, "legend"))?;
        Some(cut(visible_text(dom, legend))).filter(|text| !text.is_empty())
    }
}

fn is_labelable(dom: &WebDom, node: DomNodeId) -> bool {
    match dom.name(node) {
        Some("input") => dom.attribute(node, "type").is_none_or(|kind| !kind.eq_ignore_ascii_case("hidden")),
        Some("button" | "meter" | "output" | "progress" | "select" | "textarea") => true,
        _ => false,
    }
}

/// Returns the text inside of a node without scripts, styles and what controls hold; runs of white space are
/// one space.
pub fn visible_text(dom: &WebDom, node: DomNodeId) -> String {
    let mut text = Collapsed::default();
    let mut below = dom.descendants(node);
    while let Some(inner) = below.next().filter(|_| !text.is_full()) {
        match dom.name(inner) {
            Some("script" | "style" | "select" | "textarea" | "button" | "datalist" | "noscript") => {
                below.skip_inside();
            }
            Some("br" | "p" | "div" | "li" | "td" | "th" | "tr") => text.push(" "),
            _ => {}
        }
        text.push(dom.own_text(inner).unwrap_or_default());
    }
    text.text
}

/// Returns a text without white space around it, with runs of it as one space, cut at [`LABEL_BYTES_MAX`].
pub(super) fn collapsed(text: &str) -> String {
    let mut out = Collapsed::default();
    out.push(text);
    out.text
}

/// Text with runs of white space as one space, which is cut while it grows: a page may be one long text.
#[derive(Default)]
struct Collapsed {
    text: String,
    /// True if white space was read since the last word.
    is_apart: bool,
}

impl Collapsed {
    fn is_full(&self) -> bool {
        self.text.len() >= LABEL_BYTES_MAX
    }

    fn push(&mut self, more: &str) {
        for (number, word) in more.split(['\t', '\n', '\u{c}', '\r', ' ']).enumerate() {
            self.is_apart |= number > 0;
            if word.is_empty() {
                continue;
            }
            if self.is_full() {
                return;
            }
            if std::mem::take(&mut self.is_apart) && !self.text.is_empty() {
                self.text.push(' ');
            }
            let room = LABEL_BYTES_MAX.saturating_sub(self.text.len());
            self.text.push_str(word.get(..word.floor_char_boundary(room)).unwrap_or_default());
        }
    }
}

fn cut(mut text: String) -> String {
    text.truncate(text.floor_char_boundary(LABEL_BYTES_MAX));
    text.shrink_to_fit();
    text
}
