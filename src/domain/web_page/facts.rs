//! Facts about a form that a tool's definition carries in `_meta`, so that a call can be weighed, asked about and run.
//!
//! The gateway alone writes them, when it lists the pages of a server. A definition of any other server that claims such facts has
//! none.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::form::FormMethod;
use crate::domain::json;
use crate::domain::text_enum::text_enum;

/// Member of `_meta` with the facts.
pub const PAGE_FACTS: &str = "mcpproxy/page";

text_enum! {
    /// Task of a tool of a page.
    pub enum PageToolKind {
        /// Fills in the form and submits it.
        Form = "form",
        /// Sets values of a draft.
        SetData = "set_data",
        /// Checks or selects in a draft.
        SetInteraction = "set_interaction",
        /// Submits a draft.
        Invoke = "invoke",
        /// Stands for all forms of the server.
        PageInvoke = "page_invoke",
        /// Shows what the caller's own calls did.
        InspectProvenance = "inspect_provenance",
    }
}

text_enum! {
    /// Reason why a field is sent though no parameter sets it.
    pub enum AlsoSentWhy {
        /// The field is hidden.
        Hidden = "hidden",
        /// The field is ticked or selected on the page.
        Preset = "preset",
        /// The field has a value on the page.
        Default = "default",
        /// The field is sent, and has no value on the page.
        Empty = "empty",
        /// The entry is the pressed button's own.
        Button = "button",
        /// The pair stands in the query of the address that a form is posted to.
        Address = "address",
        /// The entry tells the writing direction of a text.
        Direction = "direction",
        /// The field gets a secret of the server's settings.
        Secret = "secret",
        /// The cookies are those of earlier calls.
        Cookies = "cookies",
    }
}

/// Field of a form that a parameter sets.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PageField {
    /// Name of the parameter.
    pub parameter: String,
    /// Name of the control, as it is sent.
    pub name: String,
    /// Label that a person sees; the name without one.
    pub label: String,
    /// True if no part of the value may be shown.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_secret: bool,
    /// True if a call needs it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_required: bool,
    /// Reason why the field is sent by a call that does not set it; `None` if it is not sent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unset: Option<AlsoSentWhy>,
    /// Value with which the field is sent by a call that does not set it; `None` if it is not sent, or the value is not shown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub value: Option<String>,
}

/// Field of a form that is sent as the page has it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AlsoSent {
    /// Name of the control, as it is sent.
    pub name: String,
    /// Label that a person sees; `None` without one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub label: Option<String>,
    /// Value, fit for a quotation; `None` if it is empty, changes with each fetch of the page, or is not quoted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub value: Option<String>,
    /// Reason why it is sent.
    pub why: AlsoSentWhy,
}

impl AlsoSent {
    /// Creates a row without a label and a value.
    pub fn named(name: &str, why: AlsoSentWhy) -> AlsoSent {
        AlsoSent { name: name.to_owned(), label: None, value: None, why }
    }
}

/// Button of a form, with what pressing it does.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PageButton {
    /// Word by which a call chooses the button; empty where the form has none.
    pub choice: String,
    /// `GET` or `POST`.
    pub method: String,
    /// URL that the form is sent to, without its query.
    pub action: String,
    /// Entries that the button adds, and pairs in the query of a POST's target.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub sends: Vec<AlsoSent>,
}

/// Element that a tool for single steps may change.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PageTarget {
    /// Address of the element, as a call names it.
    pub address: String,
    /// Address of its form, a key of [`PageFacts::forms`].
    pub form: String,
    /// Name of the field, as [`PageField::parameter`] has it.
    pub parameter: String,
}

/// Facts about the form of a tool.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PageFacts {
    /// Task of the tool.
    pub kind: PageToolKind,
    /// URL of the page without its query, as [`super::settings::PageSettings::shown_pages`] has it.
    pub page: String,
    /// `#id` of the form, or `form[N]`.
    pub selector: String,
    /// URL that the form is sent to.
    pub action: String,
    /// `GET` or `POST`.
    pub method: String,
    /// Fingerprint of the form's structure.
    pub fingerprint: String,
    /// Sensitive categories of the form.
    #[serde(default)]
    pub categories: Vec<String>,
    /// Fields that parameters set.
    #[serde(default)]
    pub fields: Vec<PageField>,
    /// Names of fields that take a secret and have none in the server's settings. A call that would send the form is refused.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub needs: Vec<String>,
    /// Fields that are sent besides.
    #[serde(default)]
    pub also_sends: Vec<AlsoSent>,
    /// Name of the parameter that chooses the button; `None` where there is no choice.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub button: Option<String>,
    /// Buttons; the first is pressed where a call chooses none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub buttons: Vec<PageButton>,
    /// Digest of the values that are sent as the page has them, without those that change with each fetch; in hexadecimal.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub values: String,
    /// True if a person has to be asked about each call: for a category, or because description and form contradict each other.
    #[serde(default)]
    pub asks: bool,
    /// Functions of the form.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub functions: Vec<String>,
    /// Stages of the form's workflow.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub stages: Vec<String>,
    /// Forms that a tool serves of which a call names one; empty for tools of one form.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub forms: BTreeMap<String, PageFacts>,
    /// Elements that a tool for single steps may change.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub targets: Vec<PageTarget>,
}

impl PageToolKind {
    /// Returns whether a call of such a tool sends a form.
    pub fn sends(self) -> bool {
        matches!(self, PageToolKind::Form | PageToolKind::Invoke | PageToolKind::PageInvoke)
    }
}

impl PageFacts {
    /// Returns the facts of a tool that is about no form.
    pub fn about_none(kind: PageToolKind) -> PageFacts {
        PageFacts {
            kind,
            page: String::new(),
            selector: String::new(),
            action: String::new(),
            method: FormMethod::Get.as_str().to_owned(),
            fingerprint: String::new(),
            categories: Vec::new(),
            fields: Vec::new(),
            needs: Vec::new(),
            also_sends: Vec::new(),
            button: None,
            buttons: Vec::new(),
            values: String::new(),
            asks: false,
            functions: Vec::new(),
            stages: Vec::new(),
            forms: BTreeMap::new(),
            targets: Vec::new(),
        }
    }

    /// Reads the facts of a definition; `None` if it has none that this release can read.
    pub fn read(definition: &str) -> Option<PageFacts> {
        let [meta] = json::find_members(definition, ["_meta"]).ok()?;
        let [facts] = json::find_members(meta?, [PAGE_FACTS]).ok()?;
        serde_json::from_str(facts?).ok()
    }

    /// Returns whether the form is sent by POST.
    pub fn is_post(&self) -> bool {
        self.method.eq_ignore_ascii_case("POST")
    }

    /// Returns whether a call of the tool sends a form. The gateway itself answers all others.
    pub fn sends(&self) -> bool {
        self.kind.sends()
    }

    /// Returns whether a person is asked about each call where the server wants that: a form is posted.
    pub fn asks_for_permission(&self) -> bool {
        self.is_post() && self.sends()
    }

    /// Returns whether the form is of a sensitive category, and a call sends it.
    pub fn is_sensitive(&self) -> bool {
        self.sends() && !self.categories.is_empty()
    }

    /// Returns the button that a call presses: the one that it chooses, or the first. `None` for a choice that there is not.
    pub fn pressed(&self, choice: Option<&str>) -> Option<&PageButton> {
        match choice {
            Some(choice) => self.buttons.iter().find(|button| button.choice == choice),
            None => self.buttons.first(),
        }
    }

    /// Returns the field that a parameter sets.
    pub fn field(&self, parameter: &str) -> Option<&PageField> {
        self.fields.iter().find(|field| field.parameter == parameter)
    }
}
