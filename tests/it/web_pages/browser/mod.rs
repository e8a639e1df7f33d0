//! Filling and validation of forms beside those of a real browser, Chromium: the house sends what the browser sends, byte for byte,
//! and refuses what the browser refuses.

mod particulars;
mod values;

use std::fs;
use std::path::Path;
use std::time::Duration;

use mcpproxy::domain::web_page::charset::decode_page;
use mcpproxy::domain::web_page::dom::WebDom;
use mcpproxy::domain::web_page::fill::{FillRequest, ValidityCode};
use mcpproxy::domain::web_page::form::WebForms;
use serde_json::{Value, json};
use url::Url;

use super::form_site::{FormSite, Reply, SeenRequest};
use crate::support::{Browser, eventually};

const SOON: Duration = Duration::from_secs(20);
const PAGE: &str = "/dir/page?x=1";
const UTF_8: &str = "text/html; charset=utf-8";
/// Function that sets up what a person does in the page.
const PERSON: &str = include_str!("person.js");

/// Values for the controls of a form, by name.
type Values = Vec<(String, Vec<String>)>;

/// Form of a page with what is entered into it.
struct FormCase<'a> {
    html: &'a str,
    content_type: &'a str,
    /// Place of the form on its page.
    form: usize,
    values: Values,
    /// Place of the button among those that are not disabled; `None` for the first.
    pressed: Option<usize>,
}

/// Result of filling a form in.
#[derive(Debug, PartialEq)]
enum Filling {
    /// Line, content type and body of the request, without the random part of a boundary.
    Sent(String, String, Vec<u8>),
    /// Faults as `field:code`, in the order of the controls.
    Invalid(Vec<String>),
    /// A control does not take its value.
    Untaken,
    /// Form without a target at its own site: neither is asked to send it.
    Elsewhere,
    /// A pattern that the house leaves to the site.
    Unchecked,
}

/// Returns a request without the boundary that its sender chose.
fn sent(line: String, content_type: &str, body: &[u8]) -> Filling {
    let Some((kind, boundary)) = content_type.split_once("; boundary=") else {
        return Filling::Sent(line, content_type.to_owned(), body.to_vec());
    };
    // each byte as one character, so that none is lost
    let text: String = body.iter().copied().map(char::from).collect();
    Filling::Sent(line, kind.to_owned(), text.replace(boundary, "B").chars().map(|c| c as u8).collect())
}

/// Fills a form in as the gateway does.
fn by_the_house(case: &FormCase<'_>, url: &Url) -> Filling {
    let page = decode_page(case.html.as_bytes(), Some(case.content_type));
    let forms = WebForms::read(&WebDom::parse(&page.text).unwrap(), url).forms;
    let form = &forms[case.form];
    let submitter = case.pressed.and_then(|at| form.submitters().nth(at));
    let request = FillRequest { form, values: &case.values, submitter, encoding: page.encoding };
    match request.fill() {
        Ok(filled) if filled.request.url.origin() != url.origin() => Filling::Elsewhere,
        Ok(filled) if !filled.unchecked.is_empty() => Filling::Unchecked,
        Ok(filled) => {
            let request = filled.request;
            let target = &request.url[url::Position::BeforePath..url::Position::AfterQuery];
            let line = format!("{} {target}", request.method.as_str());
            sent(line, request.content_type.as_deref().unwrap_or_default(), &request.body)
        }
        Err(problems) => {
            let is = |code| problems.iter().any(|problem| problem.code == code);
            let untaken = [
                ValidityCode::UnknownField,
                ValidityCode::NotEditable,
                ValidityCode::TooManyValues,
                ValidityCode::NotAnOption,
                ValidityCode::BadInput,
                // a browser takes no more characters than these
                ValidityCode::TooLong,
            ];
            if is(ValidityCode::NoButton) {
                Filling::Invalid(Vec::new())
            } else if is(ValidityCode::NoTarget) {
                Filling::Elsewhere
            } else if untaken.into_iter().any(is) {
                Filling::Untaken
            } else {
                let fault = |problem: &mcpproxy::domain::web_page::fill::FieldProblem| {
                    format!("{}:{}", problem.field, problem.code.as_str())
                };
                Filling::Invalid(problems.iter().map(fault).collect())
            }
        }
    }
}

/// Fills a form in as a person at a browser does.
async fn by_a_person(case: &FormCase<'_>, browser: &mut Browser, site: &FormSite) -> Filling {
    site.put("GET /dir/page", Reply::typed(case.content_type, case.html));
    browser.open(&site.at(PAGE)).await;
    site.take();
    let values: serde_json::Map<String, Value> =
        case.values.iter().map(|(name, values)| (name.clone(), json!(values))).collect();
    let setup = format!("{PERSON}({}, {})", case.form, json!(case.pressed));
    let typed = browser.evaluate(&format!("{setup}; person.enter({})", json!(values))).await;
    let Some(typed) = typed.as_array() else { return Filling::Untaken };
    for (at, text) in typed.iter().enumerate() {
        browser.evaluate(&format!("person.focus({at})")).await;
        browser.enter(text.as_str().unwrap()).await;
    }
    let did = browser.evaluate("person.finish()").await;
    if did["taken"] == false {
        return Filling::Untaken;
    }
    if did["sent"] == false {
        let faults = did["invalid"].as_array().unwrap();
        return Filling::Invalid(faults.iter().map(|fault| fault.as_str().unwrap().to_owned()).collect());
    }
    let request = eventually("the browser's request", SOON, || async { submission(site) }).await;
    if request.line.starts_with("POST") {
        assert_eq!(request.header("origin"), site.at(""));
    }
    assert_eq!(request.header("referer"), site.at(PAGE));
    let content_type = request.header("content-type").to_owned();
    sent(request.line, &content_type, &request.body)
}

fn submission(site: &FormSite) -> Option<SeenRequest> {
    site.take().into_iter().find(|request| request.line != "GET /favicon.ico")
}

/// Number of cases in which both sent the same, and in which both refused the same.
#[derive(Debug, Default)]
struct Agreed {
    sent: usize,
    refused: usize,
}

/// Fills all forms in both ways.
///
/// # Panics
/// With all differences.
async fn compare(cases: &[FormCase<'_>]) -> Agreed {
    let site = FormSite::start(&[("*", Reply::bare(204))]).await;
    let url: Url = site.at(PAGE).parse().unwrap();
    let mut browser = Browser::start().await;
    let mut agreed = Agreed::default();
    let mut differences = Vec::new();
    for case in cases {
        let ours = by_the_house(case, &url);
        if matches!(ours, Filling::Elsewhere | Filling::Unchecked) {
            continue;
        }
        let theirs = by_a_person(case, &mut browser, &site).await;
        if ours != theirs {
            let about = (case.html, case.form, &case.values, case.pressed);
            differences.push(format!("{about:?}\n  ours {}\n  theirs {}", shown(&ours), shown(&theirs)));
        } else if matches!(ours, Filling::Sent(..)) {
            agreed.sent += 1;
        } else {
            agreed.refused += 1;
        }
    }
    browser.close().await;
    assert!(differences.is_empty(), "{} differences\n{}", differences.len(), differences.join("\n"));
    agreed
}

fn shown(filling: &Filling) -> String {
    match filling {
        Filling::Sent(line, content_type, body) => {
            format!("{line} {content_type} {}", String::from_utf8_lossy(body))
        }
        other => format!("{other:?}"),
    }
}

#[tokio::test]
async fn pages_of_the_corpus_are_sent_and_refused_as_chromium_does() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/web_pages");
    let mut files: Vec<_> = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    let pages: Vec<String> = files.iter().map(|path| fs::read_to_string(path).unwrap()).collect();
    let cases: Vec<FormCase<'_>> = pages.iter().flat_map(|html| values::cases(html)).collect();
    let agreed = compare(&cases).await;
    assert!(agreed.sent > 250 && agreed.refused > 10, "{agreed:?} of {}", cases.len());
}

#[tokio::test]
async fn particulars_of_forms_are_those_of_chromium() {
    let cases = particulars::cases();
    let agreed = compare(&cases).await;
    assert_eq!(agreed.sent + agreed.refused, cases.len(), "{agreed:?}");
}
