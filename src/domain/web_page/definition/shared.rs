//! Tools that serve several forms, of which a call names one: those for single steps, and the one that stands for all forms.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value, json};
use sha2::{Digest as _, Sha256};

use super::super::facts::{PageFacts, PageTarget, PageToolKind};
use super::super::form::FormMethod;
use super::super::tool::{FormTool, StepTarget};
use super::super::wording::quoted;
use super::{LISTED_MAX, NamedForm, WebTool, annotations, closed, definition, sentence};
use crate::domain::brief::listed;

/// Most elements that a tool for single steps lists.
const TARGETS_MAX: usize = 500;
/// Longest value of a step, in characters.
const VALUE_CHARS_MAX: u64 = 65_536;

/// Returns the tool that sets elements of one kind; `None` if the pages permit none.
pub(super) fn setter(forms: &[NamedForm<'_>], kind: PageToolKind) -> Option<WebTool> {
    let of_form = |form: &NamedForm<'_>| -> Vec<PageTarget> {
        let place = form.address(&form.tool.selector, forms);
        let target = |target: &StepTarget| PageTarget {
            address: form.address(&target.selector, forms),
            form: place.clone(),
            parameter: target.parameter.clone(),
        };
        targets(form.tool, kind).iter().map(target).collect()
    };
    let all: Vec<PageTarget> = forms.iter().flat_map(of_form).take(TARGETS_MAX).collect();
    if all.is_empty() {
        return None;
    }
    let addresses: Vec<&str> = all.iter().map(|target| target.address.as_str()).collect();
    let mut properties = Map::new();
    properties.insert("selector".to_owned(), json!({"type": "string", "enum": addresses}));
    let (about, value) = match kind {
        PageToolKind::SetData => (
            "Sets the value of one field in a draft of a form. Nothing is sent to the site.",
            json!({"type": "string", "maxLength": VALUE_CHARS_MAX}),
        ),
        _ => (
            "Ticks or chooses in one field of a draft of a form. Nothing is sent to the site.",
            json!({"type": ["boolean", "string", "array"], "items": {"type": "string"}}),
        ),
    };
    properties.insert("value".to_owned(), value);
    let mut schema = closed(properties);
    schema.insert("required".to_owned(), json!(["selector", "value"]));
    let used: Vec<&NamedForm<'_>> =
        forms.iter().filter(|form| !targets(form.tool, kind).is_empty()).collect();
    let mut text = with_instructions(about, &used);
    hosts(&mut text, &used);
    // a draft stays here: no site sees it before it is submitted
    let annotations = json!({
        "readOnlyHint": false,
        "destructiveHint": false,
        "idempotentHint": true,
        "openWorldHint": false
    });
    let mut facts = PageFacts { targets: all, ..together(kind, &used) };
    facts.forms = used
        .iter()
        .map(|form| (form.address(&form.tool.selector, forms), form.facts(PageToolKind::Invoke)))
        .collect();
    shared(&text, schema, annotations, &used, facts)
}

fn targets(tool: &FormTool, kind: PageToolKind) -> &[StepTarget] {
    match kind {
        _ if tool.steps.is_empty() => &[],
        PageToolKind::SetData => &tool.steps.data,
        _ => &tool.steps.interaction,
    }
}

/// Returns the tool that submits drafts; `None` if the pages permit none.
pub(super) fn invoker(forms: &[NamedForm<'_>]) -> Option<WebTool> {
    let used: Vec<&NamedForm<'_>> = forms.iter().filter(|form| form.tool.steps.may_invoke).collect();
    if used.is_empty() {
        return None;
    }
    let of_forms: BTreeMap<String, PageFacts> = used
        .iter()
        .map(|form| (form.address(&form.tool.selector, forms), form.facts(PageToolKind::Invoke)))
        .collect();
    let selectors: Vec<String> = used.iter().map(|form| form.address(&form.tool.selector, forms)).collect();
    let words = |of: fn(&FormTool) -> &Vec<String>| -> Vec<&str> {
        let all: BTreeSet<&str> = used.iter().flat_map(|form| of(form.tool)).map(String::as_str).collect();
        all.into_iter().collect()
    };
    let mut properties = Map::new();
    properties.insert("selector".to_owned(), json!({"type": "string", "enum": selectors}));
    for (name, choices) in [("action", words(|tool| &tool.functions)), ("stage", words(|tool| &tool.stages))]
    {
        if !choices.is_empty() {
            properties.insert(name.to_owned(), json!({"type": "string", "enum": choices}));
        }
    }
    let mut schema = closed(properties);
    schema.insert("required".to_owned(), json!(["selector"]));
    let mut text = with_instructions("Submits the draft of a form to its site.", &used);
    hosts(&mut text, &used);
    let tools: Vec<&FormTool> = used.iter().map(|form| form.tool).collect();
    let facts = PageFacts { forms: of_forms, ..together(PageToolKind::Invoke, &used) };
    shared(&text, schema, annotations(&tools), &used, facts)
}

/// Returns the tool that stands for all forms; `None` without any.
pub(super) fn page_invoke(forms: &[&NamedForm<'_>]) -> Option<WebTool> {
    let names: Vec<&str> = forms.iter().map(|form| form.name.as_str()).collect();
    let mut properties = Map::new();
    properties.insert("form".to_owned(), json!({"type": "string", "enum": names}));
    properties.insert("values".to_owned(), json!({"type": "object"}));
    let mut schema = closed(properties);
    schema.insert("required".to_owned(), json!(["form"]));
    let mut text = "Fills in and submits a form of a web page, with its fields in `values`.".to_owned();
    hosts(&mut text, forms);
    for form in forms.iter().take(LISTED_MAX) {
        let mut fields: Vec<&str> =
            form.tool.parameters.iter().map(|parameter| parameter.name.as_str()).collect();
        let button = form.tool.button_parameter();
        fields.extend(button.as_deref());
        let functions = form.tool.functions.join(", ");
        text.push_str(&format!(
            " {} ({functions}): {}.",
            form.name,
            listed(fields.iter().copied(), LISTED_MAX)
        ));
    }
    let tools: Vec<&FormTool> = forms.iter().map(|form| form.tool).collect();
    let of_forms = forms.iter().map(|form| (form.name.clone(), form.facts(PageToolKind::Form))).collect();
    let facts = PageFacts { forms: of_forms, ..together(PageToolKind::PageInvoke, forms) };
    shared(&text, schema, annotations(&tools), forms, facts)
}

impl NamedForm<'_> {
    /// Returns the address of an element: its selector, behind the number of its page where there are several.
    fn address(&self, selector: &str, all: &[NamedForm<'_>]) -> String {
        let is_alone = all.iter().all(|form| form.of.0 == self.of.0);
        if is_alone { selector.to_owned() } else { format!("page {} {selector}", self.of.0 + 1) }
    }
}

/// Returns what holds for several forms together: the gravest of each.
fn together(kind: PageToolKind, forms: &[&NamedForm<'_>]) -> PageFacts {
    let mut facts = PageFacts::about_none(kind);
    let mut digest = Sha256::new();
    let mut categories = BTreeSet::new();
    for form in forms {
        digest.update(form.tool.fingerprint.as_bytes());
        categories.extend(form.tool.categories.iter().map(|category| category.as_str().to_owned()));
        if form.tool.method == FormMethod::Post {
            facts.method = FormMethod::Post.as_str().to_owned();
        }
    }
    facts.fingerprint = digest.finalize().iter().map(|byte| format!("{byte:02x}")).collect();
    facts.categories = categories.into_iter().collect();
    facts.asks = forms.iter().any(|form| form.tool.asks);
    facts
}

fn shared(
    text: &str,
    schema: Map<String, Value>,
    annotations: Value,
    forms: &[&NamedForm<'_>],
    facts: PageFacts,
) -> Option<WebTool> {
    if forms.is_empty() {
        return None;
    }
    let name = facts.kind.as_str().to_owned();
    let more = json!({"trust": "site"});
    let facts = serde_json::to_value(facts).unwrap_or_default();
    let definition = definition(&name, text, schema, annotations, facts, more);
    Some(WebTool { name, definition, of: None })
}

fn hosts(text: &mut String, forms: &[&NamedForm<'_>]) {
    let hosts: BTreeSet<&str> = forms.iter().map(|form| form.host()).collect();
    sentence(text, "Sites", &hosts.into_iter().collect::<Vec<_>>());
}

fn with_instructions(about: &str, forms: &[&NamedForm<'_>]) -> String {
    let mut text = about.to_owned();
    for (selector, says) in forms
        .iter()
        .filter_map(|form| Some((&form.tool.selector, form.tool.instruction.as_ref()?)))
        .take(LISTED_MAX)
    {
        text.push_str(&format!(" The site says of {selector}: {}", quoted(says)));
    }
    text
}
