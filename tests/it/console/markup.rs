//! Pages as texts: what they consist of, and what harms them.

use crate::support::Answer;

/// Texts that do harm where a page takes them for more than texts.
pub const HOSTILE: [&str; 11] = [
    "<script>alert(1)</script>",
    "\"><img src=x onerror=alert(1)>",
    "'><svg/onload=alert(1)>",
    "</pre></td></table><iframe src=//evil.example>",
    "<!--",
    "{{ 7 * 7 }}{% if true %}",
    "&lt;script&gt;",
    "javascript:alert(1)",
    "safe\u{202e}eliF eteleD\u{2066}\u{200b}\u{e0041}\u{e0042}",
    "..",
    ".",
];

/// Elements that the pages are made of.
const ELEMENTS: &str = "!doctype a article body br button code dd details div dl dt figcaption figure form h1 h2 h3 \
    head header hr html input label li link main meta nav ol option p pre rect section select span \
    strong summary svg table tbody td textarea th thead time title tr ul";

/// Returns whether a character is unseen, or changes the order of others.
fn is_hidden(c: char) -> bool {
    let ranges = [
        '\u{200b}'..='\u{200f}',
        '\u{202a}'..='\u{202e}',
        '\u{2066}'..='\u{2069}',
        '\u{e0000}'..='\u{e0fff}',
    ];
    ranges.iter().any(|range| range.contains(&c))
}

/// A text as pages have it.
pub fn escaped(text: &str) -> String {
    let mut out = String::new();
    for c in text.chars() {
        match c {
            c if is_hidden(c) => out.push_str(&format!("&#60;U+{:04X}&#62;", u32::from(c))),
            '<' | '>' | '"' | '\'' | '&' => out.push_str(&format!("&#{};", u32::from(c))),
            c => out.push(c),
        }
    }
    out
}

/// A page without the element of the console's own script, of which it has at most one.
fn without_script(page: &str) -> String {
    let start = "<script src=\"/console/static/console.js?v=";
    let Some((before, rest)) = page.split_once(start) else { return page.to_owned() };
    let (version, after) = rest.split_once("\" defer></script>").expect("the end of the script's element");
    assert!(version.bytes().all(|byte| byte.is_ascii_hexdigit()), "{version}");
    format!("{before}{after}")
}

/// Checks that a page consists of elements of the console alone, none of which runs anything.
#[track_caller]
pub fn assert_harmless(page: &str) {
    assert_harmless_but(page, &[]);
}

/// Checks the same of a page that may have links with these beginnings as well.
#[track_caller]
pub fn assert_harmless_but(page: &str, allowed: &[&str]) {
    let page = &without_script(page);
    // values of fields come back as they were, and are in tags
    let texts = page.split('<').map(|part| part.split_once('>').map_or(part, |(_, text)| text));
    texts.for_each(|text| assert!(!text.contains(is_hidden), "{page:?}"));
    assert!(!page.contains("&#60;time"), "a time is text: {page}");
    for tag in page.split('<').skip(1) {
        let tag = tag.split('>').next().unwrap().trim_start_matches('/');
        let name: String = tag.chars().take_while(|c| c.is_alphanumeric() || *c == '!').collect();
        assert!(ELEMENTS.split(' ').any(|known| known == name), "<{tag}> in {page}");
        // every value of an attribute is quoted, and what stands between the quotes is none
        let names: String = tag.split('"').step_by(2).collect();
        assert!(!names.contains(" on") && !names.contains("style"), "<{tag}> in {page}");
        for address in ["href=\"", "action=\"", "src=\""] {
            for value in tag.split(address).skip(1) {
                let is_allowed = allowed.iter().any(|start| value.starts_with(start));
                assert!(
                    is_allowed || value.starts_with("/console") || value.starts_with('#'),
                    "<{tag}> in {page}"
                );
            }
        }
    }
}

/// The values of an attribute, in the order of a page, as a browser reads them.
pub fn attributes(page: &str, name: &str) -> Vec<String> {
    let start = format!(" {name}=\"");
    let values = page.split(&start).skip(1).filter_map(|rest| rest.split('"').next());
    let plain = |value: &str| {
        let value = [("&#60;", "<"), ("&#62;", ">"), ("&#34;", "\""), ("&#39;", "'")]
            .iter()
            .fold(value.to_owned(), |value, (escaped, plain)| value.replace(escaped, plain));
        value.replace("&#38;", "&")
    };
    values.map(plain).collect()
}

/// The value of the first hidden field with a name, on a part of a page.
pub fn hidden(page: &str, name: &str) -> String {
    let field = page.split(&format!("type=\"hidden\" name=\"{name}\"")).nth(1).expect("a field");
    attributes(field, "value").remove(0)
}

/// The place of the form on a page whose action ends so; `None` if there is none.
pub fn form_to(page: &str, end: &str) -> Option<String> {
    let actions = attributes(page, "action").into_iter();
    // a fragment is for the browser alone
    let mut paths = actions.map(|action| action.split('#').next().unwrap_or_default().to_owned());
    paths.find(|path| path.ends_with(end))
}

/// The status of the answer to an act, and where it leads, without the notice of the act.
pub fn led_to(answer: &Answer) -> (u16, &str) {
    let place = answer.header("location").split("done=").next().unwrap_or_default();
    (answer.status, place.trim_end_matches(['?', '&']))
}

/// The notice on a page; empty without one.
pub fn notice_on(page: &str) -> &str {
    let after = page.split_once("<p class=\"notice\" role=\"status\">").map_or("", |(_, after)| after);
    after.split("</p>").next().unwrap_or_default()
}
