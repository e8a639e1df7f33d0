//! Entries that a form sends though no argument of a call sets them: values of the page, the pressed button, and the query of the
//! target. The code that fills a form in lists them, so that people approve what is sent.

use std::collections::{BTreeSet, HashMap};

use sha2::{Digest as _, Sha256};
use url::Url;

use super::facts::{AlsoSent, AlsoSentWhy, PageButton};
use super::field::{FormField, is_generated, is_token_name};
use super::fill::{ControlEntry, is_editable, of_button, of_page, target_of};
use super::form::{ControlKind, FormMethod, WebControl, WebForm};
use super::tool::{shown_place, submitters};
use super::wording::site_text;

/// Name under which a field is listed that the page's policy hides from agents.
const HIDDEN_BY_POLICY: &str = "(hidden by the page's policy)";
/// Fewest digits of a number that looks like a time, and changes by itself.
const TIME_DIGITS_MIN: usize = 10;

/// Form with what the server knows of it.
#[derive(Clone, Copy, Debug)]
pub(super) struct PageForm<'a> {
    /// Form.
    pub(super) form: &'a WebForm,
    /// Fields of the form.
    pub(super) fields: &'a [FormField],
    /// Names of the controls for which the server has a secret.
    pub(super) secrets: &'a [String],
    /// URL of the page, whose query is the operator's own.
    pub(super) page: &'a Url,
    /// True if the cookies of a caller's earlier calls are sent, too.
    pub(super) keeps_cookies: bool,
}

/// Value that a field has on its page.
#[derive(Clone, Debug)]
pub(super) struct PageValue {
    /// Reason why the value is sent by a call that does not set the field.
    pub(super) why: AlsoSentWhy,
    /// Value; `None` if it changes by itself, or must not be quoted.
    pub(super) value: Option<String>,
}

impl PageValue {
    /// Returns the value of two controls of the same name. One that is empty adds nothing.
    fn with(self, other: PageValue) -> PageValue {
        match (self.why, other.why) {
            (AlsoSentWhy::Empty, _) => other,
            (_, AlsoSentWhy::Empty) => self,
            _ => PageValue {
                why: other.why,
                value: self.value.zip(other.value).map(|(one, another)| format!("{one}, {another}")),
            },
        }
    }
}

impl PageForm<'_> {
    fn fields_by_name(&self) -> HashMap<&str, &FormField> {
        self.fields.iter().map(|field| (field.name.as_str(), field)).collect()
    }

    /// Returns what is sent as the page has it, or as the server's secrets have it, by calls that set the controls in `set` and no
    /// others.
    pub(super) fn also_sends(
        &self,
        set: &BTreeSet<&str>,
        is_shown: impl Fn(&FormField) -> bool,
    ) -> Vec<AlsoSent> {
        let fields = self.fields_by_name();
        let mut rows = Vec::new();
        for sent in of_page(self.form) {
            let Some(control) = self.form.controls.get(sent.control) else { continue };
            let Some(field) = fields.get(control.name.as_str()) else { continue };
            let is_free = !sent.is_direction && is_editable(control);
            // the call, or a secret, takes its place; a twin of the same name stays
            if is_free && (field.is_secret || set.contains(field.name.as_str())) {
                continue;
            }
            rows.push(match is_shown(field) {
                true => row(&sent, control, &field.parameter),
                false => AlsoSent::named(HIDDEN_BY_POLICY, why(&sent, control)),
            });
        }
        let given = self.fields.iter().filter(|field| field.is_secret && self.secrets.contains(&field.name));
        rows.extend(given.map(|field| match is_shown(field) {
            true => AlsoSent {
                label: label(field.label.as_deref()),
                ..AlsoSent::named(&safe(&field.name, &field.parameter), AlsoSentWhy::Secret)
            },
            false => AlsoSent::named(HIDDEN_BY_POLICY, AlsoSentWhy::Secret),
        }));
        rows.extend(self.keeps_cookies.then(|| AlsoSent::named("Cookie", AlsoSentWhy::Cookies)));
        rows
    }

    /// Returns the buttons with what each of them sends, and where; a form without buttons is sent by one without a name.
    pub(super) fn buttons(&self) -> Vec<PageButton> {
        let choices = submitters(self.form);
        if choices.is_empty() {
            return vec![self.button(String::new(), None)];
        }
        choices.into_iter().map(|one| self.button(one.choice, Some(one.control))).collect()
    }

    fn button(&self, choice: String, at: Option<usize>) -> PageButton {
        let control = at.and_then(|at| self.form.controls.get(at));
        let (method, url) = target_of(self.form, control);
        let mut sends = Vec::new();
        if let (Some(at), Some(control)) = (at, control) {
            sends.extend(of_button(self.form, at).iter().map(|sent| row(sent, control, "button")));
        }
        for (name, value) in self.address(method, url) {
            let value = (!self.is_own(&name, &value)).then_some(value).filter(|value| !changes(value));
            let value = value.and_then(|value| quotable(&value));
            sends.push(AlsoSent {
                value,
                ..AlsoSent::named(&safe(&name, "(a name that is not quoted)"), AlsoSentWhy::Address)
            });
        }
        PageButton {
            choice,
            method: method.as_str().to_owned(),
            action: url.map_or_else(String::new, shown_place),
            sends,
        }
    }

    /// Returns the pairs in the query of a POST's target. A GET replaces the query.
    fn address(&self, method: FormMethod, url: Option<&Url>) -> Vec<(String, String)> {
        let url = url.filter(|_| method == FormMethod::Post);
        url.map_or_else(Vec::new, |url| url.query_pairs().into_owned().collect())
    }

    /// Returns whether the operator's own URL of the page has the pair, which may hold a secret.
    fn is_own(&self, name: &str, value: &str) -> bool {
        self.page.query_pairs().any(|(own_name, own_value)| own_name == name && own_value == value)
    }

    /// Returns the digest of the values that are sent as the page has them, without those that change by themselves.
    pub(super) fn values(&self) -> String {
        let fields = self.fields_by_name();
        let mut digest = Sha256::new();
        let mut put = |name: &str, value: &str| {
            for part in [name, value] {
                // lengths keep parts apart
                digest.update((part.len() as u64).to_be_bytes());
                digest.update(part.as_bytes());
            }
        };
        let is_replaced = |control: &WebControl| {
            is_editable(control) && fields.get(control.name.as_str()).is_some_and(|field| field.is_secret)
        };
        let of_buttons = submitters(self.form).into_iter().flat_map(|one| of_button(self.form, one.control));
        for sent in of_page(self.form).into_iter().chain(of_buttons) {
            let Some(control) = self.form.controls.get(sent.control) else { continue };
            if !sent.is_direction && !is_replaced(control) && is_fixed(control, &sent.entry.value) {
                put(&sent.entry.name, &sent.entry.value);
            }
        }
        let presses = std::iter::once(None).chain(self.form.submitters().map(Some));
        for (method, url) in presses.map(|button| target_of(self.form, button)) {
            for (name, value) in self.address(method, url) {
                if !self.is_own(&name, &value) && !changes(&value) {
                    put(&name, &value);
                }
            }
        }
        digest.finalize().iter().map(|byte| format!("{byte:02x}")).collect()
    }
}

/// Returns the values that fields have on their page where a call can set them, by the names of their controls; without those that
/// are not sent.
pub(super) fn page_values(form: &WebForm) -> HashMap<String, PageValue> {
    let mut values: HashMap<String, PageValue> = HashMap::new();
    for sent in of_page(form) {
        let Some(control) = form.controls.get(sent.control) else { continue };
        let why = why(&sent, control);
        if sent.is_direction || !is_editable(control) {
            continue;
        }
        let value = shown_value(control, &sent.entry.value);
        let own = PageValue { why, value };
        let joined = match values.remove(&sent.entry.name) {
            Some(before) => before.with(own),
            None => own,
        };
        values.insert(sent.entry.name, joined);
    }
    values
}

fn row(sent: &ControlEntry, control: &WebControl, parameter: &str) -> AlsoSent {
    let why = why(sent, control);
    let value = (why != AlsoSentWhy::Direction).then(|| shown_value(control, &sent.entry.value)).flatten();
    // a label that nobody sees on the page would only be another name
    let label = label(control.label.as_deref()).filter(|_| !control.is_hidden && !sent.is_direction);
    AlsoSent { label, value, ..AlsoSent::named(&safe(&sent.entry.name, parameter), why) }
}

fn why(sent: &ControlEntry, control: &WebControl) -> AlsoSentWhy {
    match control.kind {
        _ if sent.is_direction => AlsoSentWhy::Direction,
        kind if kind.is_button() => AlsoSentWhy::Button,
        _ if control.is_hidden => AlsoSentWhy::Hidden,
        kind if kind.is_checkable() || kind.is_select() => AlsoSentWhy::Preset,
        _ if sent.entry.value.is_empty() => AlsoSentWhy::Empty,
        _ => AlsoSentWhy::Default,
    }
}

fn label(written: Option<&str>) -> Option<String> {
    written.and_then(quotable)
}

fn quotable(text: &str) -> Option<String> {
    site_text(text).ok().flatten()
}

/// Returns a name where it may be quoted, else another one.
fn safe(name: &str, other: &str) -> String {
    match site_text(name) {
        Ok(Some(text)) if text == name => text,
        _ => other.to_owned(),
    }
}

fn shown_value(control: &WebControl, value: &str) -> Option<String> {
    is_fixed(control, value).then(|| quotable(value)).flatten()
}

/// Returns whether a value of the page stays the same until the page's author changes it: it is no token, no time, and not
/// generated. What is chosen stays the same whatever it looks like.
fn is_fixed(control: &WebControl, value: &str) -> bool {
    use ControlKind::{Date, DateTimeLocal, Month, Time, Week};
    let is_token = control.is_hidden && is_token_name(&control.name);
    let is_moment = matches!(control.kind, Date | DateTimeLocal | Month | Time | Week);
    let is_choice = control.kind.is_checkable() || control.kind.is_select() || control.kind.is_button();
    is_choice || !(is_token || is_moment || changes(value))
}

/// Returns whether a value looks like one that changes with each fetch.
fn changes(value: &str) -> bool {
    let is_time = value.len() >= TIME_DIGITS_MIN && value.bytes().all(|byte| byte.is_ascii_digit());
    is_time || is_generated(value)
}
