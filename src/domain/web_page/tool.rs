//! Tools of forms, before they have names that are unique on their server.

use std::collections::BTreeSet;

use sha2::{Digest as _, Sha256};
use url::{Url, form_urlencoded};

use super::checks::{FormFinding, FormParameter, PageScore};
use super::facts::{AlsoSent, PageButton};
use super::field::{FormField, unique};
use super::form::{FormMethod, WebControl, WebForm};
use super::sensitive::SensitiveCategory;
use super::settings::PageSource;
use super::wording::{site_name, site_text};

/// Longest path that is shown, in bytes.
const SHOWN_PATH_BYTES_MAX: usize = 300;

/// Control that a single step may change, by a selector of the gateway's own making.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct StepTarget {
    /// Selector, unique on the page.
    pub selector: String,
    /// Name of the control.
    pub control: String,
    /// Name of the field in a draft, unique in the form.
    pub parameter: String,
    /// Label that a person sees, fit for a quotation; `None` without one.
    pub label: Option<String>,
}

/// Single steps that a page's policy permits on a form. No description changes them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PermittedSteps {
    /// Controls whose values may be set.
    pub data: Vec<StepTarget>,
    /// Controls that may be ticked or chosen from.
    pub interaction: Vec<StepTarget>,
    /// True if the form may be submitted.
    pub may_invoke: bool,
    /// Fields that are sent besides those that may be set.
    pub also_sends: Vec<AlsoSent>,
}

impl PermittedSteps {
    /// Returns whether the steps lead nowhere: a draft that may not be submitted is of no use.
    pub fn is_empty(&self) -> bool {
        !self.may_invoke
    }

    /// Returns the controls that may be changed, of either kind.
    pub fn targets(&self) -> impl Iterator<Item = &StepTarget> {
        self.data.iter().chain(&self.interaction)
    }
}

/// Button that submits a form.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FormSubmitter {
    /// Word by which a call chooses it.
    pub choice: String,
    /// Place among [`WebForm::controls`].
    pub control: usize,
}

/// Tool of a form.
#[derive(Clone, Debug)]
pub struct FormTool {
    /// Name, made of plain characters; not yet unique on the server.
    pub name: String,
    /// Source of the description; `None` if the form has single steps only.
    pub source: Option<PageSource>,
    /// `#id` of the form, or `form[N]`.
    pub selector: String,
    /// Place among [`super::form::WebForms::forms`].
    pub form: usize,
    /// URL that the form is sent to.
    pub action: Url,
    /// Method; POST if any of its buttons posts.
    pub method: FormMethod,
    /// Functions of the form (`wam-intent-function`), or what its markup says it is.
    pub functions: Vec<String>,
    /// Stages of a workflow (`wam-intent-workflow`).
    pub stages: Vec<String>,
    /// Instruction of the site for single steps, fit for a quotation.
    pub instruction: Option<String>,
    /// Description by the site, fit for a quotation; `None` where it is not quoted.
    pub site_says: Option<String>,
    /// Parameters.
    pub parameters: Vec<FormParameter>,
    /// Buttons to choose from; a single one is no choice.
    pub submitters: Vec<FormSubmitter>,
    /// Names of controls for secrets that only an administrator can set.
    pub secrets: Vec<String>,
    /// Names of the controls among `secrets` for which the server has a secret.
    pub secrets_set: Vec<String>,
    /// Names among `secrets` for which the server has none.
    pub needs: Vec<String>,
    /// Fields that are sent besides the parameters.
    pub also_sends: Vec<AlsoSent>,
    /// Buttons with what each of them sends, in the order of `submitters`; one without a name for a form without buttons.
    pub buttons: Vec<PageButton>,
    /// Digest of the values that are sent as the page has them, in hexadecimal.
    pub values: String,
    /// Sensitive categories.
    pub categories: Vec<SensitiveCategory>,
    /// Findings.
    pub findings: Vec<FormFinding>,
    /// Agreement of description and form.
    pub score: PageScore,
    /// True if a person has to be asked, for a category or a grave finding.
    pub asks: bool,
    /// Single steps that the page's policy permits.
    pub steps: PermittedSteps,
    /// Digest of the form's structure, in hexadecimal. Values are no part of it.
    pub fingerprint: String,
    /// True if the tool only reads, as far as the gateway can tell.
    pub is_read_only: bool,
    /// True if the tool may destroy, buy or bind.
    pub is_destructive: bool,
}

impl FormTool {
    /// Returns the name of the parameter that chooses the button; `None` where there is no choice.
    pub fn button_parameter(&self) -> Option<String> {
        let taken: BTreeSet<String> =
            self.parameters.iter().map(|parameter| parameter.name.clone()).collect();
        (self.submitters.len() > 1).then(|| unique("submit_with".to_owned(), &taken))
    }

    /// Returns whether a search or navigation is all that the form says it does.
    pub(super) fn is_lookup(functions: &[String]) -> bool {
        !functions.is_empty()
            && functions.iter().all(|function| matches!(function.as_str(), "search" | "navigation"))
    }
}

/// Returns the buttons of a form with words to choose them by.
pub(super) fn submitters(form: &WebForm) -> Vec<FormSubmitter> {
    let mut taken = BTreeSet::new();
    let of_form = form.controls.iter().enumerate();
    let buttons = of_form.filter(|(_, control)| control.kind.is_submitter() && !control.is_disabled);
    let named = buttons.map(|(at, control)| {
        let wished = site_name(button_text(control)).or_else(|| site_name(&control.value));
        let choice = unique(wished.unwrap_or_else(|| "button".to_owned()), &taken);
        taken.insert(choice.clone());
        FormSubmitter { choice, control: at }
    });
    named.collect()
}

/// Returns the text of a button, as a person reads it.
pub(super) fn button_text(control: &WebControl) -> &str {
    control.label.as_deref().unwrap_or(&control.value)
}

/// Returns where a form is sent, as definitions and people see it: without query and fragment, and with a digest in the place of a
/// path whose words must not be quoted. Two places are never shown alike.
pub fn shown_place(url: &Url) -> String {
    let path = url.path().replace(['&', '='], " ");
    // a path is read as its words: escapes and separators hide none
    let words = form_urlencoded::parse(path.as_bytes()).map(|(words, _)| words.into_owned());
    let words =
        words.collect::<String>().replace(['/', '-', '_', '.', '~', '+', ',', ';', ':', '!', '@', '*'], " ");
    if path.len() <= SHOWN_PATH_BYTES_MAX && site_text(&words).is_ok() {
        return place(url).to_owned();
    }
    let digest: String = Sha256::digest(url.path()).iter().map(|byte| format!("{byte:02x}")).collect();
    format!("{}/(path not quoted, SHA-256 {digest})", &url[..url::Position::BeforePath])
}

/// Returns a URL without its query and fragment, in which sites keep what changes.
fn place(url: &Url) -> &str {
    &url[..url::Position::AfterPath]
}

/// Returns the digest of a form's structure: what it has and where it goes. Values of texts and hidden fields, labels, and
/// the ends of spans of time are no part of it, nor is the query of the target; what is ticked or selected is.
pub(super) fn fingerprint(
    form: &WebForm,
    action: &Url,
    fields: &[FormField],
    steps: &PermittedSteps,
) -> String {
    let mut digest = Sha256::new();
    let mut put = |part: &str| {
        // lengths keep parts apart
        digest.update((part.len() as u64).to_be_bytes());
        digest.update(part.as_bytes());
    };
    for part in [&form.selector(), form.method.as_str(), &format!("{:?}", form.encoding), place(action)] {
        put(part);
    }
    for field in fields {
        put(&field.name);
        put(&format!(
            "{:?} {:?} {} {} {} {}",
            field.kind,
            field.form,
            field.is_required,
            field.is_fixed,
            // a box that is ticked later on would be sent without anybody having been told
            field.is_preset,
            field.controls.len()
        ));
        put(&serde_json::Value::Object(field.spec(form).schema()).to_string());
        for (value, _) in &field.options {
            put(value);
        }
    }
    for control in form.submitters() {
        put(&control.name);
        put(if control.name.is_empty() { "" } else { &control.value });
        let over = &control.overrides;
        let action = over.action.as_ref().and_then(|action| action.url.as_ref());
        let action = action.map(place).unwrap_or_default();
        put(&format!("{action} {:?} {:?}", over.method, over.encoding));
    }
    for target in steps.targets() {
        put(&target.selector);
    }
    put(if steps.may_invoke { "invoke" } else { "" });
    digest.finalize().iter().map(|byte| format!("{byte:02x}")).collect()
}
