//! Forms of a page with their controls, as a browser sees them before a person changes anything.

mod address;
mod control;
mod kind;
mod label;
mod options;
#[cfg(test)]
mod tests;
mod texts;

use std::collections::HashMap;

pub use address::{FormAction, FormEncoding, FormMethod};
pub use control::{ButtonOverrides, WebControl, WritingDirection};
pub use kind::{ControlKind, ControlOption};
pub use label::visible_text;
use url::Url;

use super::dom::{DomNodeId, WebDom};

/// Forms of a page.
#[derive(Clone, Debug)]
pub struct WebForms {
    /// URL that relative ones of the page start from: of `<base href>`, or else of the page.
    pub base: Url,
    /// Forms in tree order.
    pub forms: Vec<WebForm>,
    /// Controls that belong to no form, in tree order.
    pub orphans: Vec<DomNodeId>,
}

/// Form of a page.
#[derive(Clone, Debug)]
pub struct WebForm {
    /// Element of the form.
    pub node: DomNodeId,
    /// Number among the forms of the page, from 1.
    pub position: usize,
    /// Id, where an element of the page is found by it and this is the first.
    pub id: Option<String>,
    /// Method of the submission, without overrides of a submitter.
    pub method: FormMethod,
    /// Target of the submission.
    pub action: FormAction,
    /// Encoding of the submission.
    pub encoding: FormEncoding,
    /// Value of `accept-charset`.
    pub accept_charset: Option<String>,
    /// True with `novalidate`: browsers submit whatever the values are.
    pub skips_validation: bool,
    /// Controls whose form owner this is, in tree order; buttons as well.
    pub controls: Vec<WebControl>,
}

impl WebForms {
    /// Reads the forms of a page that was fetched from `url`, which is the URL after redirects.
    pub fn read(dom: &WebDom, url: &Url) -> WebForms {
        let base = address::base_of(dom, url);
        let mut forms = Vec::new();
        let mut places = HashMap::new();
        for node in dom.descendants(dom.root()).filter(|node| dom.is(*node, "form")) {
            places.insert(node, forms.len());
            forms.push(WebForm::without_controls(dom, node, forms.len() + 1, url, &base));
        }
        let labels = label::FormLabels::of(dom);
        let texts = texts::NearTexts::of(dom);
        let mut orphans = Vec::new();
        for node in dom.descendants(dom.root()) {
            let Some(kind) = ControlKind::of(dom, node) else { continue };
            let place = form_owner(dom, node).and_then(|form| places.get(&form));
            match place.and_then(|place| forms.get_mut(*place)) {
                Some(form) => {
                    let mut control = WebControl::read(dom, node, kind, &labels, (url, &base));
                    control.texts = texts.of_control(node, kind);
                    form.controls.push(control);
                }
                None => orphans.push(node),
            }
        }
        for form in &mut forms {
            control::settle_radio_groups(&mut form.controls);
        }
        WebForms { base, forms, orphans }
    }
}

/// Returns the form owner of a control.
fn form_owner(dom: &WebDom, node: DomNodeId) -> Option<DomNodeId> {
    match dom.attribute(node, "form") {
        Some(id) => dom.by_id(id).filter(|form| dom.is(*form, "form")),
        None => dom.parser_form(node).or_else(|| dom.ancestors(node).find(|above| dom.is(*above, "form"))),
    }
}

impl WebForm {
    fn without_controls(dom: &WebDom, node: DomNodeId, position: usize, page: &Url, base: &Url) -> WebForm {
        let attribute = |name| dom.attribute(node, name);
        WebForm {
            node,
            position,
            id: attribute("id").filter(|id| dom.by_id(id) == Some(node)).map(str::to_owned),
            method: FormMethod::parse(attribute("method")),
            action: FormAction::read(attribute("action"), page, base),
            encoding: FormEncoding::parse(attribute("enctype")),
            accept_charset: attribute("accept-charset").map(str::to_owned),
            skips_validation: dom.has(node, "novalidate"),
            controls: Vec::new(),
        }
    }

    /// Returns `#id`, or `form[N]` with the form's number where it has no id of its own.
    pub fn selector(&self) -> String {
        match &self.id {
            Some(id) => format!("#{id}"),
            None => format!("form[{}]", self.position),
        }
    }

    /// Returns the controls of a name, in tree order.
    pub fn named<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a WebControl> {
        self.controls.iter().filter(move |control| control.name == name)
    }

    /// Returns the buttons that submit the form, in tree order, without disabled ones.
    pub fn submitters(&self) -> impl Iterator<Item = &WebControl> {
        self.controls.iter().filter(|control| control.kind.is_submitter() && !control.is_disabled)
    }

    /// Returns the submit button that a person presses if nothing else is said: the first that is not disabled.
    pub fn default_submitter(&self) -> Option<&WebControl> {
        self.submitters().next()
    }

    /// Returns whether the form has submit buttons and all of them are disabled: then no person can send it.
    pub fn is_closed(&self) -> bool {
        let has_buttons = self.controls.iter().any(|control| control.kind.is_submitter());
        has_buttons && self.default_submitter().is_none()
    }
}
