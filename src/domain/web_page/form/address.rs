//! Target, method and encoding of a submission.

use url::Url;

use super::super::dom::WebDom;

/// Target of a submission as the page names it, and as it is resolved.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FormAction {
    /// Text of the attribute; empty where it is absent.
    pub text: String,
    /// URL of the target; `None` for text that is no URL.
    pub url: Option<Url>,
}

impl FormAction {
    /// Resolves the text of `action` or `formaction`. Empty text is the page's own URL, without regard to
    /// `<base>`.
    pub(super) fn read(text: Option<&str>, page: &Url, base: &Url) -> FormAction {
        let text = text.unwrap_or_default();
        let url = if text.is_empty() { Some(page.clone()) } else { base.join(text).ok() };
        FormAction { text: text.to_owned(), url }
    }
}

/// Method of a submission.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FormMethod {
    /// GET; the default.
    Get,
    /// POST.
    Post,
    /// Closes a dialog and sends nothing.
    Dialog,
}

impl FormMethod {
    /// Parses `method`; anything unknown is GET.
    pub(super) fn parse(text: Option<&str>) -> FormMethod {
        match text.map(str::to_ascii_lowercase).as_deref() {
            Some("post") => FormMethod::Post,
            Some("dialog") => FormMethod::Dialog,
            _ => FormMethod::Get,
        }
    }

    /// Returns the method in capitals; `DIALOG` is none of HTTP.
    pub fn as_str(self) -> &'static str {
        match self {
            FormMethod::Get => "GET",
            FormMethod::Post => "POST",
            FormMethod::Dialog => "DIALOG",
        }
    }
}

/// Encoding of the entries of a POST.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FormEncoding {
    /// `application/x-www-form-urlencoded`; the default.
    UrlEncoded,
    /// `multipart/form-data`.
    Multipart,
    /// `text/plain`.
    TextPlain,
}

impl FormEncoding {
    /// Parses `enctype`; anything unknown is the default.
    pub(super) fn parse(text: Option<&str>) -> FormEncoding {
        match text.map(str::to_ascii_lowercase).as_deref() {
            Some("multipart/form-data") => FormEncoding::Multipart,
            Some("text/plain") => FormEncoding::TextPlain,
            _ => FormEncoding::UrlEncoded,
        }
    }
}

/// Returns the URL that relative ones of a page start from.
pub(super) fn base_of(dom: &WebDom, page: &Url) -> Url {
    let mut bases = dom.descendants(dom.root()).filter(|node| dom.is(*node, "base"));
    let href = bases.find_map(|node| dom.attribute(node, "href"));
    let base = href.and_then(|href| page.join(href).ok());
    // as the standard: a base that holds its own content is none
    base.filter(|base| !matches!(base.scheme(), "data" | "javascript")).unwrap_or_else(|| page.clone())
}
