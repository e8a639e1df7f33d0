//! Controls of a form.

use std::sync::Arc;

use std::collections::HashSet;

use url::Url;

use super::super::dom::{DomNodeId, WebDom};
use super::address::{FormAction, FormEncoding, FormMethod};
use super::kind::{ControlKind, ControlOption};
use super::label::FormLabels;
use super::options;

/// Most tokens of `autocomplete` that are read; HTML has at most five.
const TOKENS_MAX: usize = 16;

/// Attributes of a submitter that take the place of the form's.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ButtonOverrides {
    /// Target, of `formaction`.
    pub action: Option<FormAction>,
    /// Method, of `formmethod`.
    pub method: Option<FormMethod>,
    /// Encoding, of `formenctype`.
    pub encoding: Option<FormEncoding>,
    /// True with `formnovalidate`.
    pub skips_validation: bool,
}

/// Writing direction of a control.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WritingDirection {
    /// Left to right.
    LeftToRight,
    /// Right to left.
    RightToLeft,
    /// As the value begins.
    Auto,
}

impl WritingDirection {
    fn of(dom: &WebDom, node: DomNodeId) -> WritingDirection {
        let with_self = std::iter::once(node).chain(dom.ancestors(node));
        let known =
            with_self.filter_map(|node| match dom.attribute(node, "dir")?.to_ascii_lowercase().as_str() {
                "ltr" => Some(WritingDirection::LeftToRight),
                "rtl" => Some(WritingDirection::RightToLeft),
                "auto" => Some(WritingDirection::Auto),
                _ => None,
            });
        known.into_iter().next().unwrap_or(WritingDirection::LeftToRight)
    }
}

/// Control of a form.
#[derive(Clone, Debug)]
pub struct WebControl {
    /// Element of the control.
    pub node: DomNodeId,
    /// Kind.
    pub kind: ControlKind,
    /// Name in the submission; empty where it has none, and then it is not sent.
    pub name: String,
    /// Id of the element; empty ids are none.
    pub id: Option<String>,
    /// Text of its label; of a button, its own text.
    pub label: Option<String>,
    /// Legend of the nearest `<fieldset>`.
    pub group_label: Option<String>,
    /// Value before anything is changed; of checkboxes and radio buttons, what is sent if checked. Selects
    /// have options.
    pub value: String,
    /// True if checked before anything is changed.
    pub is_checked: bool,
    /// Options of a `<select>`.
    pub options: Vec<ControlOption>,
    /// True if the first option of a required select of one line stands for no choice.
    pub has_placeholder_option: bool,
    /// True with `required`.
    pub is_required: bool,
    /// True if disabled by itself or by a `<fieldset>`; such a control is not sent.
    pub is_disabled: bool,
    /// True with `readonly`.
    pub is_read_only: bool,
    /// True with `multiple`.
    pub is_multiple: bool,
    /// True if the markup hides it: type `hidden`, the attribute `hidden`, or an inline style, of it or an
    /// ancestor.
    pub is_hidden: bool,
    /// True inside of a `<datalist>`: never sent.
    pub is_in_datalist: bool,
    /// Text of `min`.
    pub min: Option<String>,
    /// Text of `max`.
    pub max: Option<String>,
    /// Text of `step`.
    pub step: Option<String>,
    /// Text of `pattern`.
    pub pattern: Option<String>,
    /// Shortest value, in UTF-16 code units.
    pub min_length: Option<u32>,
    /// Longest value, in UTF-16 code units.
    pub max_length: Option<u32>,
    /// Texts at the control by which a person may know it: all its labels, descriptions, titles, or the text before it.
    pub texts: Vec<Arc<str>>,
    /// Text of `placeholder`.
    pub placeholder: Option<String>,
    /// Tokens of `autocomplete`, in lower case.
    pub autocomplete: Vec<String>,
    /// Name of the entry with the writing direction, of `dirname`.
    pub direction_name: Option<String>,
    /// Writing direction, for `dirname`.
    pub direction: WritingDirection,
    /// Attributes of a submitter that take the place of the form's.
    pub overrides: ButtonOverrides,
}

impl WebControl {
    /// Reads a control from its element.
    pub(super) fn read(
        dom: &WebDom,
        node: DomNodeId,
        kind: ControlKind,
        labels: &FormLabels,
        urls: (&Url, &Url),
    ) -> WebControl {
        let attribute = |name| dom.attribute(node, name);
        let owned = |name| attribute(name).map(str::to_owned);
        let number = |name| attribute(name).and_then(non_negative);
        let (page, base) = urls;
        let overrides = ButtonOverrides {
            action: attribute("formaction").map(|text| FormAction::read(Some(text), page, base)),
            method: attribute("formmethod").map(|text| FormMethod::parse(Some(text))),
            encoding: attribute("formenctype").map(|text| FormEncoding::parse(Some(text))),
            skips_validation: dom.has(node, "formnovalidate"),
        };
        let autocomplete = attribute("autocomplete").unwrap_or_default().to_ascii_lowercase();
        WebControl {
            node,
            kind,
            name: owned("name").unwrap_or_default(),
            id: owned("id").filter(|id| !id.is_empty()),
            label: labels.label_of(dom, node, kind),
            group_label: labels.group_of(dom, node),
            value: initial_value(dom, node, kind),
            is_checked: kind.is_checkable() && dom.has(node, "checked"),
            options: if kind.is_select() { options::read(dom, node, kind) } else { Vec::new() },
            has_placeholder_option: kind == ControlKind::SelectOne && options::has_placeholder(dom, node),
            is_required: dom.has(node, "required"),
            is_disabled: is_disabled(dom, node),
            is_read_only: dom.has(node, "readonly"),
            is_multiple: dom.has(node, "multiple"),
            is_hidden: kind == ControlKind::Hidden || is_hidden(dom, node),
            is_in_datalist: dom.ancestors(node).any(|above| dom.is(above, "datalist")),
            min: owned("min"),
            max: owned("max"),
            step: owned("step"),
            pattern: owned("pattern"),
            min_length: number("minlength"),
            max_length: number("maxlength"),
            texts: Vec::new(),
            placeholder: owned("placeholder"),
            autocomplete: autocomplete.split_ascii_whitespace().take(TOKENS_MAX).map(str::to_owned).collect(),
            direction_name: owned("dirname").filter(|name| !name.is_empty()),
            direction: WritingDirection::of(dom, node),
            overrides: if kind.is_submitter() { overrides } else { ButtonOverrides::default() },
        }
    }

    /// Returns whether a browser would send the control if nobody changed anything and no button was pressed.
    pub fn is_submitted_by_default(&self) -> bool {
        if self.is_disabled || self.is_in_datalist || self.name.is_empty() {
            return false;
        }
        match self.kind {
            kind if kind.is_button() => false,
            kind if kind.is_checkable() => self.is_checked,
            kind if kind.is_select() => {
                self.options.iter().any(|option| option.is_selected && !option.is_disabled)
            }
            _ => true,
        }
    }
}

/// Parses a non-negative integer as attributes hold it.
fn non_negative(text: &str) -> Option<u32> {
    let text = text.trim_start_matches(['\t', '\n', '\u{c}', '\r', ' ']);
    let text = text.strip_prefix('+').unwrap_or(text);
    let digits = text.find(|c: char| !c.is_ascii_digit()).map_or(Some(text), |end| text.get(..end))?;
    digits.parse().ok()
}

fn initial_value(dom: &WebDom, node: DomNodeId, kind: ControlKind) -> String {
    match kind {
        ControlKind::TextArea => dom.children(node).filter_map(|child| dom.own_text(child)).collect(),
        // how Chromium in English calls a button without a value, and what it sends for it
        ControlKind::Submit => dom.attribute(node, "value").unwrap_or("Submit").to_owned(),
        ControlKind::Checkbox | ControlKind::Radio => dom.attribute(node, "value").unwrap_or("on").to_owned(),
        ControlKind::File | ControlKind::SelectOne | ControlKind::SelectMany => String::new(),
        _ => dom.attribute(node, "value").unwrap_or_default().to_owned(),
    }
}

/// Returns whether a control is disabled: by itself, or by a `<fieldset>` outside of whose first legend it
/// is.
fn is_disabled(dom: &WebDom, node: DomNodeId) -> bool {
    let mut below = node;
    dom.has(node, "disabled")
        || dom.ancestors(node).any(|above| {
            let child = std::mem::replace(&mut below, above);
            dom.is(above, "fieldset") && dom.has(above, "disabled") && {
                let legend = dom.children(above).find(|child| dom.is(*child, "legend"));
                legend != Some(child)
            }
        })
}

fn is_hidden(dom: &WebDom, node: DomNodeId) -> bool {
    std::iter::once(node).chain(dom.ancestors(node)).any(|node| {
        let style = dom.attribute(node, "style").unwrap_or_default();
        let style: String =
            style.chars().filter(|c| !c.is_whitespace()).collect::<String>().to_ascii_lowercase();
        dom.has(node, "hidden") || style.contains("display:none") || style.contains("visibility:hidden")
    })
}

/// Leaves one radio button of each group checked: the last one that the markup checks.
pub(super) fn settle_radio_groups(controls: &mut [WebControl]) {
    let mut checked = HashSet::new();
    for control in controls.iter_mut().rev() {
        let is_grouped = control.kind == ControlKind::Radio && control.is_checked && !control.name.is_empty();
        if is_grouped && !checked.insert(control.name.clone()) {
            control.is_checked = false;
        }
    }
}
