//! Pages whose elements refer to each other, or repeat long texts: each is refused within the bound of all walks.

use super::*;
use crate::domain::web_page::result::{PageResult, SiteReply, SubmittedForm};

/// Returns what is read of a page, with every source and without a policy by header.
fn reading(html: &str) -> Result<PageReading, DomFault> {
    let url: Url = "https://a.example/".parse().unwrap();
    let input =
        PageInput { page: "https://a.example/", url: &url, headers: PolicyHeaders::default(), files: &[] };
    read_page(html, &input, &PageRules { settings: &every_source(), field_secrets: &[] })
}

/// Returns the result of a call whose reply is a page, as answer to a form with the field `q`.
fn result(html: &str) -> PageResult {
    let (url, dom) = ("https://a.example/".parse().unwrap(), WebDom::parse(html).unwrap());
    let reply =
        SiteReply { status: 200, url: &url, was_redirected: false, is_challenge: false, dom: Some(&dom) };
    let form = SubmittedForm {
        page: &url,
        is_post: true,
        fields: vec!["q"],
        values: vec!["x"],
        has_password: false,
    };
    PageResult::read(&reply, &form)
}

#[test]
fn pages_that_are_too_dear_to_read_are_refused() {
    let elements = |count: usize| "<hr>".repeat(count);
    let policy = |requires: &str| {
        let rule = json!({"trigger": "x", "requires": requires});
        let text = json!({"constraints": {"dependencies": [rule]}}).to_string();
        format!("<meta name=wam-policy content='{text}'>").repeat(8)
    };
    let inputs = |attributes: &str, count: usize| format!("<input name=x {attributes}>").repeat(count);
    for (what, html) in [
        (
            "a selector with many classes of an element with many",
            format!(
                "{}<body class='{}z'>{}",
                policy(&format!("body{}.y *", ".z".repeat(200))),
                "a ".repeat(400_000),
                elements(80_000)
            ),
        ),
        (
            "styles above every control",
            format!("<form style='{}'>{}", "a".repeat(1_500_000), inputs("", 1900)),
        ),
        (
            "directions above every control",
            format!("<form dir='{}'>{}", "a".repeat(1_500_000), inputs("", 1900)),
        ),
        (
            "labels of everything",
            format!(
                "<div id=b>{}</div><form>{}",
                elements(90_000),
                inputs("aria-labelledby='b b b b b b b b'", 1900)
            ),
        ),
        (
            "a legend of everything",
            format!("<form><fieldset><legend>{}</legend>{}", elements(90_000), inputs("", 1900)),
        ),
    ] {
        assert!(html.len() <= 2 * 1024 * 1024, "{what}: {}", html.len());
        assert_eq!(reading(&html).map(|_| ()), Err(DomFault::Walks), "{what}");
    }
}

#[test]
fn nothing_is_known_of_a_reply_that_is_too_dear_to_read() {
    for (what, html) in [
        (
            "errors that a control refers to, again and again",
            format!(
                "<form><input name=q aria-describedby='{}'></form><div id=e class=error>{}</div>",
                "e ".repeat(500_000),
                "<hr>".repeat(90_000)
            ),
        ),
        (
            "styles above every error",
            format!("<body style='{}'>{}", "a".repeat(1_500_000), "<hr class=error>".repeat(25_000)),
        ),
        (
            "everything beside every control",
            format!("<form><div>{}{}", "<input name=q>".repeat(1900), "<hr class=error>".repeat(60_000)),
        ),
    ] {
        let result = result(&html);
        assert_eq!((result.class.as_str(), &*result.text, result.errors.len()), ("unknown", "", 0), "{what}");
    }
}

#[test]
fn labels_take_no_more_memory_than_their_bound() {
    let long = "word ".repeat(300_000);
    let page = format!("<form><fieldset><legend>{long}</legend><label>{long}<input name=q></label>");
    let forms = WebForms::read(&WebDom::parse(&page).unwrap(), &"https://a.example/".parse().unwrap());
    let control = &forms.forms[0].controls[0];
    for text in [&control.label, &control.group_label].map(|text| text.as_ref().unwrap()) {
        assert!(
            (900..=1000).contains(&text.len()) && text.capacity() <= 1024,
            "{} of {}",
            text.len(),
            text.capacity()
        );
    }
    let spaces = format!("<form><label><span>{}</span>Card number<input name=q>", " ".repeat(5000));
    let forms = WebForms::read(&WebDom::parse(&spaces).unwrap(), &"https://a.example/".parse().unwrap());
    assert_eq!(forms.forms[0].controls[0].label.as_deref(), Some("Card number"));
}
