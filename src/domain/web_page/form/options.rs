//! Options of a `<select>`.

use super::super::dom::{DomNodeId, WebDom};
use super::kind::{ControlKind, ControlOption};
use super::label::collapsed;

/// Reads the options of a select, with those selected that a browser would select.
pub(super) fn read(dom: &WebDom, select: DomNodeId, kind: ControlKind) -> Vec<ControlOption> {
    let mut options = Vec::new();
    let mut below = dom.descendants(select);
    while let Some(node) = below.next() {
        match dom.name(node) {
            Some("select" | "datalist") => below.skip_inside(),
            Some("option") => options.push(read_option(dom, select, node)),
            _ => {}
        }
    }
    if kind == ControlKind::SelectOne {
        select_one(dom, select, &mut options);
    }
    options
}

/// Selects the last of those that the markup selects, or else the first that can be chosen where one line is
/// shown.
fn select_one(dom: &WebDom, select: DomNodeId, options: &mut [ControlOption]) {
    let last = options.iter().rposition(|option| option.is_selected);
    let first = || options.iter().position(|option| !option.is_disabled);
    let chosen = match last {
        None if is_one_line(dom, select) => first(),
        last => last,
    };
    for (at, option) in options.iter_mut().enumerate() {
        option.is_selected = chosen == Some(at);
    }
}

fn is_one_line(dom: &WebDom, select: DomNodeId) -> bool {
    let size = dom.attribute(select, "size").and_then(|size| size.trim().parse::<u32>().ok());
    size.unwrap_or_default() <= 1
}

/// Returns whether the first option of a select of one is "the placeholder label option".
pub(super) fn has_placeholder(dom: &WebDom, select: DomNodeId) -> bool {
    let first = dom.descendants(select).find(|node| dom.is(*node, "option"));
    let is_empty = |node| read_option(dom, select, node).value.is_empty();
    is_one_line(dom, select) && first.is_some_and(|node| dom.parent(node) == Some(select) && is_empty(node))
}

fn read_option(dom: &WebDom, select: DomNodeId, node: DomNodeId) -> ControlOption {
    let mut text = String::new();
    let mut below = dom.descendants(node);
    while let Some(inner) = below.next() {
        if dom.is(inner, "script") {
            below.skip_inside();
        } else if let Some(own) = dom.own_text(inner) {
            text.push_str(own);
        }
    }
    let text = collapsed(&text);
    let groups = dom.ancestors(node).take_while(|above| *above != select);
    let is_disabled =
        groups.filter(|above| dom.is(*above, "optgroup")).any(|group| dom.has(group, "disabled"));
    let label = dom.attribute(node, "label").filter(|label| !label.is_empty());
    ControlOption {
        value: dom.attribute(node, "value").unwrap_or(&text).to_owned(),
        label: label.unwrap_or(&text).to_owned(),
        is_selected: dom.has(node, "selected"),
        is_disabled: is_disabled || dom.has(node, "disabled"),
    }
}
