//! Kinds of controls, and options of selects.

use super::super::dom::{DomNodeId, WebDom};

/// Kind of a control: the type of an `<input>` or the element.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ControlKind {
    /// `<input type=hidden>`.
    Hidden,
    /// `<input type=text>`, and any unknown type.
    Text,
    /// `<input type=search>`.
    Search,
    /// `<input type=tel>`.
    Tel,
    /// `<input type=url>`.
    Url,
    /// `<input type=email>`.
    Email,
    /// `<input type=password>`.
    Password,
    /// `<input type=date>`.
    Date,
    /// `<input type=month>`.
    Month,
    /// `<input type=week>`.
    Week,
    /// `<input type=time>`.
    Time,
    /// `<input type=datetime-local>`.
    DateTimeLocal,
    /// `<input type=number>`.
    Number,
    /// `<input type=range>`.
    Range,
    /// `<input type=color>`.
    Color,
    /// `<input type=checkbox>`.
    Checkbox,
    /// `<input type=radio>`.
    Radio,
    /// `<input type=file>`.
    File,
    /// `<input type=submit>`.
    Submit,
    /// `<input type=image>`, a submit button.
    Image,
    /// `<button>` that submits.
    SubmitButton,
    /// Button that submits nothing: `<input type=button>`, `<input type=reset>`, `<button type=button>`,
    /// `<button type=reset>`.
    OtherButton,
    /// `<select>` of one option.
    SelectOne,
    /// `<select multiple>`.
    SelectMany,
    /// `<textarea>`.
    TextArea,
}

impl ControlKind {
    /// Returns the kind of an element; `None` if it is no control.
    pub(super) fn of(dom: &WebDom, node: DomNodeId) -> Option<ControlKind> {
        let of_type = dom.attribute(node, "type").map(str::to_ascii_lowercase);
        Some(match dom.name(node)? {
            "input" => ControlKind::of_input(of_type.as_deref().unwrap_or_default()),
            "button" => match of_type.as_deref() {
                Some("button" | "reset") => ControlKind::OtherButton,
                _ => ControlKind::SubmitButton,
            },
            "select" if dom.has(node, "multiple") => ControlKind::SelectMany,
            "select" => ControlKind::SelectOne,
            "textarea" => ControlKind::TextArea,
            _ => return None,
        })
    }

    fn of_input(of_type: &str) -> ControlKind {
        match of_type {
            "hidden" => ControlKind::Hidden,
            "search" => ControlKind::Search,
            "tel" => ControlKind::Tel,
            "url" => ControlKind::Url,
            "email" => ControlKind::Email,
            "password" => ControlKind::Password,
            "date" => ControlKind::Date,
            "month" => ControlKind::Month,
            "week" => ControlKind::Week,
            "time" => ControlKind::Time,
            "datetime-local" => ControlKind::DateTimeLocal,
            "number" => ControlKind::Number,
            "range" => ControlKind::Range,
            "color" => ControlKind::Color,
            "checkbox" => ControlKind::Checkbox,
            "radio" => ControlKind::Radio,
            "file" => ControlKind::File,
            "submit" => ControlKind::Submit,
            "image" => ControlKind::Image,
            "reset" | "button" => ControlKind::OtherButton,
            _ => ControlKind::Text,
        }
    }

    /// Returns whether the control submits its form.
    pub fn is_submitter(self) -> bool {
        matches!(self, ControlKind::Submit | ControlKind::Image | ControlKind::SubmitButton)
    }

    /// Returns whether the control is a button of any sort.
    pub fn is_button(self) -> bool {
        self.is_submitter() || self == ControlKind::OtherButton
    }

    /// Returns whether the control is checked or not, instead of having a value of its own.
    pub fn is_checkable(self) -> bool {
        matches!(self, ControlKind::Checkbox | ControlKind::Radio)
    }

    /// Returns whether the control chooses among options.
    pub fn is_select(self) -> bool {
        matches!(self, ControlKind::SelectOne | ControlKind::SelectMany)
    }

    /// Returns whether the control holds free text that may have a pattern and a length.
    pub fn is_text(self) -> bool {
        matches!(
            self,
            ControlKind::Text
                | ControlKind::Search
                | ControlKind::Tel
                | ControlKind::Url
                | ControlKind::Email
                | ControlKind::Password
        )
    }
}

/// Option of a `<select>`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ControlOption {
    /// Value that is sent.
    pub value: String,
    /// Text that a person sees.
    pub label: String,
    /// True if the option is selected before anything is changed.
    pub is_selected: bool,
    /// True if the option cannot be chosen, by itself or by its group.
    pub is_disabled: bool,
}
