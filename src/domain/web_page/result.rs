//! Results of submissions: what a site's reply shows, told honestly.
//!
//! A status alone never counts as success. Where a reply shows nothing of its meaning, or the opposite of what else it shows, its
//! class is `unknown`. Texts are those that a person would see; they are a site's, so they are marked as untrusted.

mod evidence;
mod mask;
mod render;
#[cfg(test)]
mod tests;
mod visible;

use serde_json::Value;
use url::Url;

use super::dom::WebDom;
use crate::domain::server_url::masked;
use crate::domain::text_enum::text_enum;
use evidence::Evidence;
use mask::SecretMask;

/// Most errors of fields that a result names.
pub const RESULT_ERRORS_MAX: usize = 50;
/// Longest visible text of a result, in bytes.
pub const RESULT_TEXT_BYTES_MAX: usize = 64 * 1024;

text_enum! {
    /// Meaning of a site's reply.
    pub enum ResultClass {
        /// The site says, or shows, that it took what was sent.
        Accepted = "accepted",
        /// A value is refused, by the form before anything was sent or by the site.
        ValidationError = "validation_error",
        /// The site wants a login first.
        LoginRequired = "login_required",
        /// The site wants a proof that a person is there.
        Challenge = "challenge",
        /// The page has no content without its scripts.
        JsRequired = "js_required",
        /// The site failed or refused.
        SiteError = "site_error",
        /// The reply shows nothing of its meaning.
        Unknown = "unknown",
    }
}

impl ResultClass {
    /// Returns whether a result of this class is an error of the tool.
    pub fn is_error(self) -> bool {
        !matches!(self, ResultClass::Accepted | ResultClass::Unknown)
    }
}

/// Error of a field, or of the whole form.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FieldError {
    /// Name of the field; `None` for the form.
    pub field: Option<String>,
    /// Text of the error.
    pub message: String,
}

/// Form that was submitted, as far as its result depends on it.
#[derive(Clone, Debug)]
pub struct SubmittedForm<'a> {
    /// URL of the page that the form was on.
    pub page: &'a Url,
    /// True for a POST.
    pub is_post: bool,
    /// Names of the fields of the form.
    pub fields: Vec<&'a str>,
    /// Texts that the caller sent.
    pub values: Vec<&'a str>,
    /// True if the form has a password.
    pub has_password: bool,
}

/// Reply of a site to a submission, after all redirects.
#[derive(Clone, Debug)]
pub struct SiteReply<'a> {
    /// HTTP status.
    pub status: u16,
    /// URL of the reply.
    pub url: &'a Url,
    /// True if the submission was answered with a redirect.
    pub was_redirected: bool,
    /// True if a header says that the reply is a challenge.
    pub is_challenge: bool,
    /// Page of the reply; `None` if it is no page.
    pub dom: Option<&'a WebDom>,
}

/// Result of a call.
#[derive(Clone, Debug, PartialEq)]
pub struct PageResult {
    /// Meaning of the reply.
    pub class: ResultClass,
    /// HTTP status; `None` if nothing was sent.
    pub status: Option<u16>,
    /// URL of the reply; of the form's page if nothing was sent.
    pub url: String,
    /// Title of the page.
    pub title: Option<String>,
    /// Visible text of the page.
    pub text: String,
    /// True if the text was cut.
    pub was_cut: bool,
    /// Data of the page (JSON-LD).
    pub data: Vec<Value>,
    /// Errors of fields.
    pub errors: Vec<FieldError>,
}

impl PageResult {
    /// Returns the result of a call whose values the form itself refuses: nothing was sent.
    pub fn refused(page: &Url, mut errors: Vec<FieldError>) -> PageResult {
        errors.truncate(RESULT_ERRORS_MAX);
        PageResult {
            class: ResultClass::ValidationError,
            status: None,
            url: masked(page.as_str()).into_owned(),
            title: None,
            text: String::new(),
            was_cut: false,
            data: Vec::new(),
            errors,
        }
    }

    /// Reads the reply of a site.
    pub fn read(reply: &SiteReply<'_>, form: &SubmittedForm<'_>) -> PageResult {
        let seen = reply.dom.map(|dom| {
            let visible = visible::read(dom);
            (dom, Evidence::gather(dom, reply, form, &visible), visible)
        });
        // of a page that is too dear nothing is known
        let Some((_, evidence, visible)) = seen.filter(|(dom, ..)| !dom.is_spent()) else {
            return PageResult {
                class: without_page(reply),
                status: Some(reply.status),
                url: shown_url(reply.url, form.page),
                title: None,
                text: String::new(),
                was_cut: false,
                data: Vec::new(),
                errors: Vec::new(),
            };
        };
        PageResult {
            class: evidence.class(reply, form),
            status: Some(reply.status),
            url: shown_url(reply.url, form.page),
            title: visible.title,
            text: visible.text,
            was_cut: visible.was_cut,
            data: evidence.data,
            errors: evidence.errors,
        }
    }

    /// Masks secrets of the form, which a site may repeat, and drops the query of the URL, which may be all secrets.
    pub fn mask(&mut self, secrets: &[&str]) {
        if secrets.is_empty() {
            return;
        }
        let end = self.url.find(['?', '#']).unwrap_or(self.url.len());
        self.url.truncate(end);
        for mask in secrets.iter().filter_map(|secret| SecretMask::of(secret)) {
            let of_errors = self.errors.iter_mut().flat_map(|error| {
                let FieldError { field, message } = error;
                field.iter_mut().chain([message])
            });
            of_errors
                .chain(&mut self.title)
                .chain([&mut self.text, &mut self.url])
                .for_each(|text| mask.apply(text));
            self.data.iter_mut().for_each(|data| mask.apply_to_json(data));
        }
    }
}

/// Returns the URL of a reply. The query of the form's page may be a credential; that of the form itself is the caller's.
fn shown_url(url: &Url, page: &Url) -> String {
    match url.query().is_some() && url.query() == page.query() {
        true => masked(url.as_str()).into_owned(),
        false => url.to_string(),
    }
}

fn without_page(reply: &SiteReply<'_>) -> ResultClass {
    match reply.status {
        _ if reply.is_challenge => ResultClass::Challenge,
        401 | 407 => ResultClass::LoginRequired,
        422 => ResultClass::ValidationError,
        400.. => ResultClass::SiteError,
        _ => ResultClass::Unknown,
    }
}
