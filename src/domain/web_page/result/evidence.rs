//! Marks of a reply, from which its class follows.

use serde_json::Value;

use super::super::dom::{DomNodeId, WebDom};
use super::super::form::{ControlKind, WebForm, WebForms};
use super::visible::{self, VisibleText};
use super::{FieldError, RESULT_ERRORS_MAX, ResultClass, SiteReply, SubmittedForm};

/// Longest text of an error, in bytes.
const MESSAGE_BYTES_MAX: usize = 300;
/// Most blocks of JSON-LD that are read.
const DATA_MAX: usize = 8;
/// Longest block of JSON-LD, in bytes.
const DATA_BYTES_MAX: usize = 32 * 1024;
/// Longest visible text of a page that has no content of its own, in bytes.
const SHELL_BYTES_MAX: usize = 200;
/// Longest visible text of a page that is nothing but a challenge, in bytes.
const CHALLENGE_BYTES_MAX: usize = 600;
/// Most texts of a caller that are looked for in a page.
const REPEATED_MAX: usize = 64;
/// Shortest text of a caller that counts as repeated by a page, in bytes.
const REPEATED_BYTES_MIN: usize = 2;

/// Classes of elements that say what went wrong.
const ERROR_CLASSES: [&str; 16] = [
    "error",
    "errors",
    "errorlist",
    "errornote",
    "invalid-feedback",
    "alert-danger",
    "alert-error",
    "field-error",
    "form-error",
    "error-message",
    "errormessage",
    "help-block-error",
    "field-validation-error",
    "validation-summary-errors",
    "flash-error",
    "woocommerce-error",
];
/// Classes of elements that say what was done.
const SUCCESS_CLASSES: [&str; 9] = [
    "success",
    "alert-success",
    "flash-success",
    "success-message",
    "message-success",
    "notice-success",
    "is-success",
    "confirmation",
    "woocommerce-message",
];
/// Classes of elements in which others want a proof that a person is there.
const CHALLENGE_CLASSES: [&str; 5] =
    ["g-recaptcha", "h-captcha", "cf-turnstile", "cf-challenge", "frc-captcha"];
/// Parts of the addresses of scripts that do nothing else.
const CHALLENGE_SCRIPTS: [&str; 4] =
    ["/cdn-cgi/challenge-platform/", "captcha-delivery.com", "hcaptcha.com/1/api.js", "/recaptcha/api.js"];
/// Segments of paths at which sites ask for a login.
const LOGIN_SEGMENTS: [&str; 16] = [
    "login",
    "log-in",
    "signin",
    "sign-in",
    "sign_in",
    "logon",
    "auth",
    "authenticate",
    "sso",
    "anmelden",
    "anmeldung",
    "connexion",
    "se-connecter",
    "iniciar-sesion",
    "acceso",
    "accedi",
];
/// Types of JSON-LD that say that something was ordered or booked.
const DONE_TYPES: [&str; 4] = ["Order", "Invoice", "Ticket", "SearchResultsPage"];

/// Marks of a reply.
#[derive(Debug)]
pub(super) struct Evidence {
    pub(super) data: Vec<Value>,
    pub(super) errors: Vec<FieldError>,
    has_success: bool,
    has_form_again: bool,
    has_login: bool,
    is_challenge: bool,
    is_shell: bool,
    /// True if the page repeats all texts of the caller.
    repeats_values: bool,
}

impl Evidence {
    /// Gathers the marks of a page.
    pub(super) fn gather(
        dom: &WebDom,
        reply: &SiteReply<'_>,
        form: &SubmittedForm<'_>,
        visible: &VisibleText,
    ) -> Evidence {
        let forms = WebForms::read(dom, reply.url).forms;
        let again = forms.iter().find(|other| is_same(other, form));
        let text = visible.text.to_lowercase();
        let repeats = |value: &&&str| text.contains(&value.trim().to_lowercase());
        let long = form.values.iter().filter(|value| value.trim().len() >= REPEATED_BYTES_MIN);
        let mut long = long.take(REPEATED_MAX).peekable();
        Evidence {
            data: data(dom),
            errors: errors(dom, again),
            has_success: has_success(dom),
            has_form_again: again.is_some(),
            has_login: has_login(&forms, reply, form),
            is_challenge: is_challenge(dom, reply, visible),
            is_shell: is_shell(dom, &forms, visible),
            repeats_values: long.peek().is_some() && long.all(|value| repeats(&value)),
        }
    }

    /// Returns the class of the reply.
    pub(super) fn class(&self, reply: &SiteReply<'_>, form: &SubmittedForm<'_>) -> ResultClass {
        let is_refused = !self.errors.is_empty() && self.has_form_again;
        match reply.status {
            _ if self.is_challenge => ResultClass::Challenge,
            401 | 407 => ResultClass::LoginRequired,
            403 if self.has_login => ResultClass::LoginRequired,
            422 => ResultClass::ValidationError,
            400 | 409 if is_refused => ResultClass::ValidationError,
            400.. => ResultClass::SiteError,
            _ if self.has_login => ResultClass::LoginRequired,
            // a page with the texts of both ends says nothing: which one shows is up to its scripts
            _ if !self.errors.is_empty() && self.has_success => ResultClass::Unknown,
            _ if is_refused => ResultClass::ValidationError,
            _ if !self.errors.is_empty() => ResultClass::Unknown,
            _ if self.is_shell => ResultClass::JsRequired,
            _ if self.has_success || self.says_done() => ResultClass::Accepted,
            // sent away from the form, to a page without it
            _ if form.is_post && reply.was_redirected && !self.has_form_again => ResultClass::Accepted,
            _ if !form.is_post && self.repeats_values => ResultClass::Accepted,
            _ => ResultClass::Unknown,
        }
    }

    fn says_done(&self) -> bool {
        self.data.iter().any(|data| {
            let text = |name: &str| data.get(name).and_then(Value::as_str).unwrap_or_default();
            let status = text("actionStatus");
            let kind = text("@type");
            status.ends_with("CompletedActionStatus")
                || DONE_TYPES.contains(&kind)
                || (kind.ends_with("Reservation") && text("reservationStatus").ends_with("Confirmed"))
        })
    }
}

/// Returns whether a form of the reply is the one that was submitted: it has at least half of its fields.
fn is_same(other: &WebForm, form: &SubmittedForm<'_>) -> bool {
    let there = form.fields.iter().filter(|name| other.controls.iter().any(|control| control.name == **name));
    !form.fields.is_empty() && there.count() * 2 >= form.fields.len()
}

fn classes(dom: &WebDom, node: DomNodeId) -> impl Iterator<Item = &str> {
    dom.attribute(node, "class").unwrap_or_default().split_ascii_whitespace()
}

fn has_class(dom: &WebDom, node: DomNodeId, of: &[&str]) -> bool {
    classes(dom, node).any(|class| of.iter().any(|known| class.eq_ignore_ascii_case(known)))
}

fn is_role(dom: &WebDom, node: DomNodeId, role: &str) -> bool {
    dom.attribute(node, "role").is_some_and(|own| own.trim().eq_ignore_ascii_case(role))
}

/// Returns the visible text of an element that can be seen; `None` without any.
fn said(dom: &WebDom, node: DomNodeId) -> Option<String> {
    if !visible::is_shown(dom, node) {
        return None;
    }
    let (text, _) = visible::text_of(dom, node, MESSAGE_BYTES_MAX);
    let text = text.replace('\n', " ");
    (!text.is_empty()).then_some(text)
}

fn has_success(dom: &WebDom) -> bool {
    let mut nodes = dom
        .descendants(dom.root())
        .filter(|node| is_role(dom, *node, "status") || has_class(dom, *node, &SUCCESS_CLASSES));
    nodes.any(|node| said(dom, node).is_some())
}

/// Returns the errors that a page shows: those of the controls of the form first.
fn errors(dom: &WebDom, form: Option<&WebForm>) -> Vec<FieldError> {
    let mut errors: Vec<FieldError> = Vec::new();
    let mut told: Vec<DomNodeId> = Vec::new();
    for control in form.iter().flat_map(|form| &form.controls) {
        let is_invalid =
            dom.attribute(control.node, "aria-invalid").is_some_and(|value| value.trim() == "true");
        let Some(node) = message_of(dom, control.node, is_invalid) else {
            if is_invalid && !control.name.is_empty() {
                errors
                    .push(FieldError { field: Some(control.name.clone()), message: "is invalid".to_owned() });
            }
            continue;
        };
        if told.contains(&node) || errors.len() >= RESULT_ERRORS_MAX {
            continue;
        }
        if let Some(message) = said(dom, node) {
            told.push(node);
            errors.push(FieldError {
                field: Some(control.name.clone()).filter(|name| !name.is_empty()),
                message,
            });
        }
    }
    let mut nodes = dom.descendants(dom.root());
    while let Some(node) = nodes.next() {
        if errors.len() >= RESULT_ERRORS_MAX {
            break;
        }
        let is_error = is_role(dom, node, "alert") || has_class(dom, node, &ERROR_CLASSES);
        if !is_error || has_controls(dom, node) || has_class(dom, node, &SUCCESS_CLASSES) {
            continue;
        }
        nodes.skip_inside();
        if told.contains(&node) || dom.ancestors(node).any(|above| told.contains(&above)) {
            continue;
        }
        if let Some(message) = said(dom, node) {
            errors.push(FieldError { field: None, message });
        }
    }
    errors
}

/// Returns whether an element holds controls: a class of errors then marks the whole field, and is no text.
fn has_controls(dom: &WebDom, node: DomNodeId) -> bool {
    dom.descendants(node).any(|node| matches!(dom.name(node), Some("input" | "select" | "textarea")))
}

/// Returns the element with the error of a control.
fn message_of(dom: &WebDom, control: DomNodeId, is_invalid: bool) -> Option<DomNodeId> {
    let named = |attribute: &str| {
        let ids = dom.attribute(control, attribute).unwrap_or_default();
        ids.split_ascii_whitespace().filter_map(|id| dom.by_id(id)).collect::<Vec<_>>()
    };
    let is_error = |node: &DomNodeId| has_class(dom, *node, &ERROR_CLASSES) || is_role(dom, *node, "alert");
    let by_id = named("aria-errormessage").into_iter().filter(|_| is_invalid);
    let described = named("aria-describedby").into_iter().filter(is_error);
    // beside the control, in the element that holds this field alone
    let beside =
        dom.parent(control).filter(|parent| !dom.is(*parent, "form")).into_iter().flat_map(|parent| {
            let inside = dom.descendants(parent).filter(is_error);
            inside.filter(move |_| is_alone(dom, parent)).collect::<Vec<_>>()
        });
    by_id.chain(described).chain(beside).find(|node| !has_controls(dom, *node) && said(dom, *node).is_some())
}

/// Returns whether an element holds the controls of one field only.
fn is_alone(dom: &WebDom, node: DomNodeId) -> bool {
    let controls = dom.descendants(node).filter(|node| {
        let is_control = matches!(dom.name(*node), Some("input" | "select" | "textarea"));
        is_control && dom.attribute(*node, "type").is_none_or(|kind| !kind.eq_ignore_ascii_case("hidden"))
    });
    controls.take(2).count() == 1
}

fn has_login(forms: &[WebForm], reply: &SiteReply<'_>, form: &SubmittedForm<'_>) -> bool {
    let has_password =
        |form: &WebForm| form.controls.iter().any(|control| control.kind == ControlKind::Password);
    if form.has_password || !forms.iter().any(has_password) {
        return false;
    }
    let mut segments = reply.url.path_segments().into_iter().flatten();
    let is_login = segments.any(|segment| {
        let name = segment.split('.').next().unwrap_or_default().to_ascii_lowercase();
        LOGIN_SEGMENTS.contains(&name.as_str())
    });
    // a login beside the form, as many sites have it on each page, asks for nothing
    is_login || (reply.was_redirected && forms.iter().all(has_password)) || reply.status == 403
}

fn is_challenge(dom: &WebDom, reply: &SiteReply<'_>, visible: &VisibleText) -> bool {
    if reply.is_challenge {
        return true;
    }
    let is_likely = matches!(reply.status, 403 | 429 | 503) || visible.text.len() <= CHALLENGE_BYTES_MAX;
    is_likely
        && dom.descendants(dom.root()).any(|node| {
            let source = dom.attribute(node, "src").unwrap_or_default();
            has_class(dom, node, &CHALLENGE_CLASSES)
                || (dom.is(node, "script") && CHALLENGE_SCRIPTS.iter().any(|part| source.contains(part)))
                || dom.attribute(node, "id").is_some_and(|id| id == "challenge-form")
        })
}

/// Returns whether a page has no content without its scripts.
fn is_shell(dom: &WebDom, forms: &[WebForm], visible: &VisibleText) -> bool {
    let mut scripts =
        dom.descendants(dom.root()).filter(|node| dom.is(*node, "script") && dom.has(*node, "src"));
    visible.text.len() <= SHELL_BYTES_MAX
        && forms.is_empty()
        && scripts.next().is_some()
        && (visible.text.is_empty() || dom.descendants(dom.root()).any(|node| is_root(dom, node)))
}

/// Returns whether an element is one that scripts fill, and is empty.
fn is_root(dom: &WebDom, node: DomNodeId) -> bool {
    let is_named =
        dom.attribute(node, "id").is_some_and(|id| matches!(id, "root" | "app" | "__next" | "__nuxt"));
    (is_named && dom.text(node).trim().is_empty())
        || (dom.is(node, "noscript") && dom.text(node).to_lowercase().contains("javascript"))
}

/// Returns the data of a page, as far as it can be read.
fn data(dom: &WebDom) -> Vec<Value> {
    let blocks = dom.descendants(dom.root()).filter(|node| {
        dom.is(*node, "script")
            && dom
                .attribute(*node, "type")
                .is_some_and(|kind| kind.trim().eq_ignore_ascii_case("application/ld+json"))
    });
    let texts = blocks.take(DATA_MAX).map(|node| dom.text(node)).filter(|text| text.len() <= DATA_BYTES_MAX);
    texts.filter_map(|text| serde_json::from_str(&text).ok()).collect()
}
