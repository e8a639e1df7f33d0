//! Corpus of hostile and honest pages (`tests/web_pages`): what becomes of each, and that nothing of it leaks.
//!
//! A page may begin with comments: `sources: …` for the settings, `policy: …` for the header `WAM-Policy`.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use rustix::time::{ClockId, clock_gettime};
use serde_json::Value;

use super::super::*;
use super::{every_source, read_with, read_within};
use crate::domain::web_page::charset::decode_page;
use crate::domain::web_page::definition::{form_facts, server_tools};
use crate::domain::web_page::facts::{PageFacts, PageToolKind};
use crate::domain::web_page::settings::Disclosure;

/// Most processor time of one page, in milliseconds.
const CPU_MS_MAX: i64 = 500;
/// Factor for pages that are made to be expensive, in a build without optimisation.
const UNOPTIMISED: i64 = if cfg!(debug_assertions) { 10 } else { 1 };
/// Most memory of one page, in KiB.
const MEMORY_KIB_MAX: u64 = 32 * 1024;

fn cpu_ms() -> i64 {
    let now = clock_gettime(ClockId::ThreadCPUTime);
    now.tv_sec * 1000 + now.tv_nsec / 1_000_000
}

/// Returns the memory of this process and its peak since the last [`forget_peak`], in KiB.
#[cfg(target_os = "linux")]
fn memory_kib() -> (u64, u64) {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let of = |name: &str| {
        let line = status.lines().find(|line| line.starts_with(name)).unwrap();
        line.split_ascii_whitespace().nth(1).unwrap().parse().unwrap()
    };
    (of("VmRSS:"), of("VmHWM:"))
}

/// Sets the peak of this process's memory to what it has now.
#[cfg(target_os = "linux")]
fn forget_peak() {
    fs::write("/proc/self/clear_refs", "5").unwrap();
}

fn directive<'a>(html: &'a str, name: &str) -> Option<&'a str> {
    let (_, rest) = html.split_once(&format!("<!-- {name}: "))?;
    rest.split_once(" -->").map(|(value, _)| value)
}

/// Returns the pages with their readings, by name.
fn corpus() -> Vec<(String, PageReading)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/web_pages");
    let mut files: Vec<_> = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    let read = |path: &std::path::PathBuf| {
        let html = fs::read_to_string(path).unwrap();
        let mut settings = every_source();
        if let Some(sources) = directive(&html, "sources") {
            settings.sources = sources.split(' ').filter_map(PageSource::parse).collect();
        }
        let began = cpu_ms();
        let reading = read_with(&html, &settings, directive(&html, "policy"), &[]);
        assert!(cpu_ms() - began < CPU_MS_MAX, "{}", path.display());
        (path.file_stem().unwrap().to_string_lossy().into_owned(), reading)
    };
    files.iter().map(read).collect()
}

#[test]
fn every_page_becomes_what_it_should() {
    let pages = corpus();
    assert!(pages.len() >= 60);
    let mut shown = String::new();
    for (name, reading) in &pages {
        writeln!(shown, "{name}").unwrap();
        if let Some(why) = reading.report.policy_closed {
            writeln!(shown, "  policy: {}", why.as_str()).unwrap();
        }
        for (row, form) in reading.report.forms.iter().zip(&reading.forms.forms) {
            let tool = reading.tools.iter().find(|tool| tool.form + 1 == form.position);
            let hint = match tool {
                Some(tool) if tool.is_read_only => " read-only",
                Some(tool) if tool.is_destructive => " destructive",
                _ => "",
            };
            let source = row.source.map_or("steps", PageSource::as_str);
            let name = row.tool.as_deref().unwrap_or("-");
            let score = row.score.unwrap_or_default();
            match row.hidden_because {
                Some(why) => writeln!(shown, "  {} hidden: {}", row.selector, why.as_str()).unwrap(),
                None => writeln!(
                    shown,
                    "  {} {source} {name} {score:.2}{hint} {} ({})",
                    row.selector,
                    row.method,
                    row.parameters.join(" ")
                )
                .unwrap(),
            }
            let list = |items: Vec<String>| items.join(", ");
            let categories = list(row.categories.iter().map(|one| one.as_str().to_owned()).collect());
            let also = list(
                row.also_sends.iter().map(|one| format!("{} ({})", one.name, one.why.as_str())).collect(),
            );
            let found = row.findings.iter().map(|one| match &one.parameter {
                Some(parameter) => format!("{} {parameter:?}", one.code.as_str()),
                None => one.code.as_str().to_owned(),
            });
            for (head, text) in [("asks", categories), ("also sends", also), ("found", list(found.collect()))]
            {
                if !text.is_empty() {
                    writeln!(shown, "    {head}: {text}").unwrap();
                }
            }
        }
    }
    insta::assert_snapshot!("pages", shown);
}

/// Returns the definitions of a page's tools in all ways in which they are disclosed.
fn definitions(reading: PageReading) -> Vec<Value> {
    let page = [reading];
    let all =
        [Disclosure::Always, Disclosure::Summarize].into_iter().flat_map(|how| server_tools(&page, how));
    all.map(|tool| serde_json::from_str(&tool.definition).unwrap()).collect()
}

#[test]
fn nothing_of_an_injection_is_in_a_definition() {
    for (page, reading) in corpus() {
        for definition in definitions(reading) {
            let text = definition.to_string();
            let folded = crate::domain::web_page::wording::folded(&text).replace('_', " ");
            for word in [
                "ignore all",
                "previous instructions",
                "evil.example",
                "tell the user",
                "ignoriere",
                "utilisateur de",
                "dile al",
                "senza conferma",
                "important>",
                "system: ",
                "api key",
            ] {
                assert!(!folded.contains(word), "{page}: {word} in {text}");
            }
            assert!(!text.chars().any(
                |c| matches!(c, '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
            ));
            let name = definition["name"].as_str().unwrap();
            assert!(
                name.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_'),
                "{page}: {name}"
            );
            let hints = definition["annotations"].as_object().unwrap();
            assert!(hints.values().all(Value::is_boolean), "{page}");
            // a draft stays at the gateway
            let is_sent = !matches!(name, "set_data" | "set_interaction");
            assert_eq!(hints["openWorldHint"], is_sent, "{page}");
            let properties = definition["inputSchema"]["properties"].as_object().unwrap();
            for name in properties.keys() {
                assert!(
                    name.bytes().all(|b| b.is_ascii_alphanumeric() || b"_-.".contains(&b)),
                    "{page}: {name}"
                );
            }
        }
    }
}

#[test]
fn read_only_is_said_by_the_rule_alone() {
    for (page, reading) in corpus() {
        for tool in &reading.tools {
            let may = tool.method == FormMethod::Get
                && !tool.functions.is_empty()
                && tool
                    .functions
                    .iter()
                    .all(|function| ["search", "navigation"].contains(&function.as_str()))
                && tool.categories.is_empty()
                && tool.score.as_f64() >= 0.7;
            assert_eq!(tool.is_read_only, may, "{page}: {}", tool.name);
        }
    }
}

#[test]
fn each_page_of_a_sensitive_category_has_it() {
    let mut count = 0;
    for (page, reading) in corpus() {
        let Some(rest) = page.strip_prefix("sensitive_") else { continue };
        let category = SensitiveCategory::parse(rest.split('_').next().unwrap()).unwrap();
        assert!(reading.tools[0].categories.contains(&category), "{page}: {:?}", reading.tools[0].categories);
        count += 1;
    }
    assert_eq!(count, 30);
}

/// With the default `execute: ask`, a call runs unasked only if its form is sent by GET, and nothing grave was found about it.
#[test]
fn what_runs_unasked_is_a_plain_get() {
    let mut asked = 0;
    for (page, reading) in corpus() {
        for tool in &reading.tools {
            let is_plain = tool.method == FormMethod::Get
                && tool.categories.is_empty()
                && !tool.is_destructive
                && !["hidden_opaque_token", "hidden_prechecked_box"].contains(&page.as_str());
            for kind in [PageToolKind::Form, PageToolKind::Invoke, PageToolKind::PageInvoke] {
                let facts = PageFacts { kind, ..form_facts(&reading, tool, PageToolKind::Form) };
                let asks = facts.asks_for_permission() || (facts.asks && facts.sends());
                assert_eq!(asks, !is_plain, "{page}: {} {kind:?}", tool.name);
                asked += usize::from(asks);
            }
        }
    }
    assert!(asked > 120, "{asked}");
}

#[test]
fn pages_of_many_charsets_have_their_categories() {
    let utf16 = |text: &str| -> Vec<u8> {
        [0xfeff].into_iter().chain(text.encode_utf16()).flat_map(u16::to_be_bytes).collect()
    };
    let form = |label: &str| {
        format!("<form id=f method=post><label>{label}<input name=a></label><button>OK</button></form>")
    };
    let german = [b"<form id=f method=post><label>Stra\xdfe<input name=a></label></form>".to_vec()].concat();
    let spanish =
        b"<meta charset=iso-8859-15><form id=f method=post><label>Contrase\xf1a<input name=a></label></form>";
    for (bytes, header, category) in [
        (german.clone(), Some("text/html; charset=iso-8859-1"), SensitiveCategory::Personal),
        (german, None, SensitiveCategory::Personal),
        (spanish.to_vec(), None, SensitiveCategory::Credentials),
        (utf16(&form("Numéro de carte")), Some("text/html; charset=utf-8"), SensitiveCategory::Payment),
        (form("Prénom").into_bytes(), None, SensitiveCategory::Personal),
        (form("Prénom").into_bytes(), Some("text/html; charset=nonsense"), SensitiveCategory::Personal),
    ] {
        let text = decode_page(&bytes, header).text;
        let reading = read_with(&text, &every_source(), None, &[]);
        assert_eq!(reading.tools[0].categories, [category], "{text}");
    }
    // bytes of one charset that are read in another one are no instruction, and no panic
    let odd =
        decode_page(b"\x2b\x41\x47\xff\xfe<form><input name=\xe9\x80>", Some("text/html; charset=utf-7"));
    assert_eq!(read_with(&odd.text, &every_source(), None, &[]).tools.len(), 1);
}

/// Page that is made to be expensive: its name, its text, and the header with its policy.
type Bomb = (&'static str, String, Option<String>);

fn bombs() -> Vec<Bomb> {
    let label = "card number of you ".repeat(50);
    let option = |at: usize| format!("<option value={at}>{label}");
    let field = |at: usize| format!("<label>{label}<input name=n{at} placeholder='{label}'></label>");
    let many = |one: &dyn Fn(usize) -> String, count: usize| (0..count).map(one).collect::<String>();
    let policy =
        serde_json::json!({"constraints": {"block-selectors": vec!["div div div p"; 24]}}).to_string();
    let deep =
        format!("{}{}", "<div>".repeat(400), many(&|at| format!("<form><input name=a{at}></form>"), 300));
    vec![
        ("controls", format!("<form>{}</form>", many(&|at| format!("<input name=n{at}>"), 1900)), None),
        ("labels", format!("<form>{}</form>", many(&field, 500)), None),
        ("options", format!("<form><select name=s>{}</select></form>", many(&option, 1000)), None),
        (
            "links",
            format!("<form><input name=q>{}</form>", many(&|_| format!("<a href=x>{label}</a>"), 1000)),
            None,
        ),
        ("same name", format!("<form>{}</form>", "<input name=q>".repeat(1900)), None),
        ("forms", many(&|at| format!("<form><input name=a{at}></form>"), 1500), None),
        ("selectors", deep, Some(policy)),
        ("nested texts", format!("<form>{}<p>{label}</form>", "<span>x".repeat(400)), None),
    ]
}

#[test]
fn bombs_cost_little() {
    for (name, html, policy) in bombs() {
        let began = cpu_ms();
        // a page that is too dear is refused, within the same time
        let reading = read_within(&html, &every_source(), policy.as_deref(), &[]);
        let tools = reading.map(|reading| server_tools(&[reading], Disclosure::Always).len());
        let took = cpu_ms() - began;
        assert_eq!(tools.is_err(), name == "same name", "{name}: {tools:?}");
        assert!(took < UNOPTIMISED * CPU_MS_MAX, "{name}: {took} ms for {tools:?} tools");
    }
}

/// Pages of the corpus and expensive ones, each alone: nextest runs a test in a process of its own.
#[cfg(target_os = "linux")]
#[test]
fn no_page_takes_much_memory() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/web_pages");
    let pages = fs::read_dir(folder).unwrap().map(|entry| fs::read_to_string(entry.unwrap().path()).unwrap());
    let corpus = pages.map(|html| ("corpus", html, None));
    for (name, html, policy) in corpus.chain(bombs()) {
        forget_peak();
        let (before, _) = memory_kib();
        let reading = read_within(&html, &every_source(), policy.as_deref(), &[]);
        drop(reading.map(|reading| server_tools(&[reading], Disclosure::Always)));
        let taken = memory_kib().1.saturating_sub(before);
        assert!(taken < MEMORY_KIB_MAX, "{name}: {taken} KiB for {} bytes", html.len());
    }
}
