//! Texts of a page that a person without a screen reader's help would see.

use super::super::dom::{DomNodeId, WebDom};
use super::super::wording;
use super::RESULT_TEXT_BYTES_MAX;

/// Longest title, in bytes.
const TITLE_BYTES_MAX: usize = 300;

/// Elements whose contents are not shown as text.
const UNSHOWN: [&str; 16] = [
    "head", "script", "style", "noscript", "template", "select", "datalist", "textarea", "object", "iframe",
    "audio", "video", "canvas", "svg", "math", "title",
];
/// Elements that begin and end a line.
const BLOCKS: [&str; 38] = [
    "address",
    "article",
    "aside",
    "blockquote",
    "br",
    "button",
    "caption",
    "dd",
    "details",
    "dialog",
    "div",
    "dl",
    "dt",
    "fieldset",
    "figcaption",
    "figure",
    "footer",
    "form",
    "h1",
    "h2",
    "h3",
    "h4",
    "h5",
    "h6",
    "header",
    "hr",
    "legend",
    "li",
    "main",
    "nav",
    "ol",
    "p",
    "pre",
    "section",
    "summary",
    "table",
    "tr",
    "ul",
];

/// Visible parts of a page.
#[derive(Debug)]
pub(super) struct VisibleText {
    pub(super) title: Option<String>,
    pub(super) text: String,
    pub(super) was_cut: bool,
}

/// Reads the visible text of a page, one line for each block.
pub(super) fn read(dom: &WebDom) -> VisibleText {
    let title = dom.descendants(dom.root()).find(|node| dom.is(*node, "title"));
    let title = title.map(|node| line(&dom.text(node), TITLE_BYTES_MAX)).filter(|title| !title.is_empty());
    let (text, was_cut) = text_of(dom, dom.root(), RESULT_TEXT_BYTES_MAX);
    VisibleText { title, text, was_cut }
}

/// Returns the visible text of a part of a page, and whether it was cut.
pub(super) fn text_of(dom: &WebDom, root: DomNodeId, bytes_max: usize) -> (String, bool) {
    let mut out =
        Lines { out: String::new(), begins_line: true, needs_space: false, bytes_max, was_cut: false };
    // the elements above the next node, and whether each is a block, whose end begins a line
    let mut above: Vec<(DomNodeId, bool)> = Vec::new();
    let mut nodes = dom.descendants(root);
    while let Some(node) = nodes.next() {
        let parent = dom.parent(node);
        while let Some((_, is_block)) = above.pop_if(|(last, _)| Some(*last) != parent) {
            if is_block {
                out.end_line();
            }
        }
        if let Some(text) = dom.own_text(node) {
            // of details that are closed, the summary alone shows
            if parent.is_none_or(|up| !is_closed_details(dom, up)) {
                out.push(text);
            }
            if out.was_cut {
                break;
            }
        } else if is_hidden(dom, node) {
            nodes.skip_inside();
        } else {
            let name = dom.name(node).unwrap_or_default();
            let is_block = BLOCKS.contains(&name);
            if is_block {
                out.end_line();
            } else if matches!(name, "td" | "th") {
                out.needs_space = true;
            }
            above.push((node, is_block));
        }
    }
    let text = out.out.trim_end().to_owned();
    (text, out.was_cut)
}

/// Returns whether a person sees nothing of an element, by its markup alone.
pub(super) fn is_hidden(dom: &WebDom, node: DomNodeId) -> bool {
    if !dom.is_element(node) {
        return false;
    }
    let Some(name) = dom.name(node) else { return true };
    let attribute = |name| dom.attribute(node, name);
    let style = attribute("style").unwrap_or_default().to_ascii_lowercase().replace(char::is_whitespace, "");
    let is_closed = match name {
        "dialog" => !dom.has(node, "open"),
        // of details that are closed, the summary shows
        _ => name != "summary" && dom.parent(node).is_some_and(|up| is_closed_details(dom, up)),
    };
    UNSHOWN.contains(&name)
        || is_closed
        || dom.has(node, "hidden")
        || attribute("aria-hidden").is_some_and(|value| value.trim().eq_ignore_ascii_case("true"))
        || ["display:none", "visibility:hidden", "opacity:0;", "font-size:0"]
            .iter()
            .any(|hides| style.contains(hides))
        || style.ends_with("opacity:0")
}

fn is_closed_details(dom: &WebDom, node: DomNodeId) -> bool {
    dom.is(node, "details") && !dom.has(node, "open")
}

/// Returns whether an element and all above it can be seen.
pub(super) fn is_shown(dom: &WebDom, node: DomNodeId) -> bool {
    !is_hidden(dom, node) && dom.ancestors(node).all(|above| !is_hidden(dom, above))
}

/// Returns a text in one line.
pub(super) fn line(text: &str, bytes_max: usize) -> String {
    let mut out =
        Lines { out: String::new(), begins_line: true, needs_space: false, bytes_max, was_cut: false };
    out.push(text);
    out.out
}

/// Lines of text with single spaces.
struct Lines {
    out: String,
    begins_line: bool,
    needs_space: bool,
    bytes_max: usize,
    was_cut: bool,
}

impl Lines {
    fn push(&mut self, text: &str) {
        for c in text.chars() {
            if c.is_whitespace() {
                self.needs_space = true;
                continue;
            }
            if c.is_control() || wording::is_unseen(c) {
                continue;
            }
            if self.out.len() + 1 + c.len_utf8() > self.bytes_max {
                self.was_cut = true;
                return;
            }
            if std::mem::take(&mut self.needs_space) && !self.begins_line {
                self.out.push(' ');
            }
            self.begins_line = false;
            self.out.push(c);
        }
    }

    fn end_line(&mut self) {
        self.needs_space = false;
        if !std::mem::replace(&mut self.begins_line, true) && self.out.len() < self.bytes_max {
            self.out.push('\n');
        }
    }
}
