//! Request of a submission.

use url::Url;

use super::super::charset::PageEncoding;
use super::super::form::{FormEncoding, FormMethod, WebControl, WebForm};
use super::entries::FormEntry;
use super::{FieldProblem, ValidityCode, encode};

/// Longest body, and longest query, of a submission in bytes.
pub const BODY_BYTES_MAX: usize = 1024 * 1024;

/// Request that submits a form.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PageSubmission {
    /// GET or POST.
    pub method: FormMethod,
    /// URL, with the entries as its query for GET. A fragment is not sent.
    pub url: Url,
    /// Type of the body; `None` for GET.
    pub content_type: Option<String>,
    /// Body; empty for GET.
    pub body: Vec<u8>,
}

/// Returns the encoding of a submission: the first known one of `accept-charset`, or else the page's.
pub(super) fn encoding_of(form: &WebForm, page: PageEncoding) -> PageEncoding {
    let labels = form.accept_charset.as_deref().unwrap_or_default();
    let named = labels.split([',', ' ', '\t', '\n', '\u{c}', '\r']).find_map(PageEncoding::labelled);
    named.unwrap_or(page).of_submission()
}

/// Returns how and where a form is sent when a button of it is pressed, or none; the target is `None` where it is no URL.
pub(in crate::domain::web_page) fn target_of<'a>(
    form: &'a WebForm,
    submitter: Option<&'a WebControl>,
) -> (FormMethod, Option<&'a Url>) {
    let overrides = submitter.map(|own| &own.overrides);
    let action = overrides.and_then(|own| own.action.as_ref()).unwrap_or(&form.action);
    (overrides.and_then(|own| own.method).unwrap_or(form.method), action.url.as_ref())
}

/// Builds the request of a submission.
pub(super) fn build(
    form: &WebForm,
    submitter: Option<&WebControl>,
    entries: &[FormEntry],
    encoding: PageEncoding,
) -> Result<PageSubmission, FieldProblem> {
    let (method, action) = target_of(form, submitter);
    let form_encoding = submitter.and_then(|own| own.overrides.encoding).unwrap_or(form.encoding);
    let no_target = |message: &str| FieldProblem::new("", ValidityCode::NoTarget, message);
    let url = action.cloned().filter(|url| matches!(url.scheme(), "http" | "https"));
    let mut url = url.ok_or_else(|| no_target("The form's action is no address of a web server."))?;
    let (content_type, body) = match (method, form_encoding) {
        (FormMethod::Dialog, _) => return Err(no_target("The form closes a dialog and sends nothing.")),
        (FormMethod::Get, _) => {
            url.set_query(Some(&encode::url_encoded(entries, encoding)));
            (None, Vec::new())
        }
        (FormMethod::Post, FormEncoding::UrlEncoded) => {
            let body = encode::url_encoded(entries, encoding).into_bytes();
            (Some("application/x-www-form-urlencoded".to_owned()), body)
        }
        (FormMethod::Post, FormEncoding::TextPlain) => {
            (Some("text/plain".to_owned()), encode::plain(entries, encoding))
        }
        (FormMethod::Post, FormEncoding::Multipart) => {
            let (boundary, body) = encode::multipart(entries, encoding);
            (Some(format!("multipart/form-data; boundary={boundary}")), body)
        }
    };
    if body.len().max(url.query().unwrap_or_default().len()) > BODY_BYTES_MAX {
        let message = format!("The submission is longer than {BODY_BYTES_MAX} bytes.");
        return Err(FieldProblem::new("", ValidityCode::TooLarge, message));
    }
    Ok(PageSubmission { method, url, content_type, body })
}
