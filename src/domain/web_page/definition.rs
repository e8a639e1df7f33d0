//! Definitions of a server's tools, as `tools/list` gives them: of all its pages together, with names that are unique.

mod shared;

use std::collections::BTreeSet;

use serde_json::{Map, Value, json};

use self::shared::{invoker, page_invoke, setter};
use super::besides::page_values;
use super::checks::FormParameter;
use super::facts::{PAGE_FACTS, PageFacts, PageField, PageToolKind};
use super::field::unique;
use super::form::FormMethod;
use super::reading::PageReading;
use super::settings::Disclosure;
use super::tool::{FormTool, StepTarget};
use super::wording::{is_unseen, parameter_name, quoted, site_text};
use crate::domain::brief::listed;

/// Most names in one sentence of a description.
const LISTED_MAX: usize = 30;

/// Tool of a server of web pages.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WebTool {
    /// Name, unique on the server.
    pub name: String,
    /// Definition, a JSON object.
    pub definition: String,
    /// Place of the page among the readings, and of the tool in it; `None` for tools that serve several forms.
    pub of: Option<(usize, usize)>,
}

/// Form with the name of its tool.
struct NamedForm<'a> {
    name: String,
    page: &'a PageReading,
    tool: &'a FormTool,
    of: (usize, usize),
}

/// Returns the tools of a server from the readings of all its pages.
pub fn server_tools(pages: &[PageReading], disclosure: Disclosure) -> Vec<WebTool> {
    if disclosure == Disclosure::Ignore {
        return Vec::new();
    }
    // names of the gateway's own tools stay its own
    let mut taken: BTreeSet<String> = PageToolKind::WORDS.map(str::to_owned).into();
    taken.insert("inspect_provenance".to_owned());
    let mut forms = Vec::new();
    for (at, page) in pages.iter().enumerate() {
        for (place, tool) in page.tools.iter().enumerate() {
            let name = unique(tool.name.clone(), &taken);
            taken.insert(name.clone());
            forms.push(NamedForm { name, page, tool, of: (at, place) });
        }
    }
    let composite: Vec<&NamedForm<'_>> = forms.iter().filter(|form| form.tool.source.is_some()).collect();
    let mut tools: Vec<WebTool> = Vec::new();
    if disclosure == Disclosure::Summarize {
        tools.extend(page_invoke(&composite));
        return tools;
    }
    tools.extend(composite.iter().map(|form| form.definition()));
    tools.extend(setter(&forms, PageToolKind::SetData));
    tools.extend(setter(&forms, PageToolKind::SetInteraction));
    tools.extend(invoker(&forms));
    tools
}

/// Returns the facts of a whole form, or with [`PageToolKind::Invoke`] of its single steps, which no description changes. A call
/// sends the form only if these are still the approved ones.
pub fn form_facts(page: &PageReading, tool: &FormTool, kind: PageToolKind) -> PageFacts {
    let values = page.forms.forms.get(tool.form).map(page_values).unwrap_or_default();
    let field = |parameter: &str, control: &str, label: &Option<String>, is_required| {
        let of_page = values.get(control);
        PageField {
            parameter: parameter.to_owned(),
            name: shown_control(control, parameter),
            label: label.clone().unwrap_or_else(|| parameter.to_owned()),
            is_secret: false,
            is_required,
            unset: of_page.map(|own| own.why),
            value: of_page.and_then(|own| own.value.clone()),
        }
    };
    let of_step = |own: &StepTarget| field(&own.parameter, &own.control, &own.label, false);
    let of_tool = |own: &FormParameter| field(&own.name, &own.control, &own.label, own.is_required);
    let (fields, also_sends, button) = match kind {
        PageToolKind::Invoke => {
            (tool.steps.targets().map(of_step).collect(), tool.steps.also_sends.clone(), None)
        }
        _ => {
            (tool.parameters.iter().map(of_tool).collect(), tool.also_sends.clone(), tool.button_parameter())
        }
    };
    PageFacts {
        page: page.page.clone(),
        selector: tool.selector.clone(),
        action: super::tool::shown_place(&tool.action),
        method: tool.method.as_str().to_owned(),
        fingerprint: tool.fingerprint.clone(),
        categories: tool.categories.iter().map(|category| category.as_str().to_owned()).collect(),
        fields,
        needs: tool.needs.clone(),
        also_sends,
        button,
        buttons: tool.buttons.clone(),
        values: tool.values.clone(),
        asks: tool.asks,
        functions: tool.functions.clone(),
        stages: tool.stages.clone(),
        ..PageFacts::about_none(kind)
    }
}

impl NamedForm<'_> {
    /// Returns the host of the page, or words for it: a redirect may lead to a host whose name is written for the model.
    fn host(&self) -> &str {
        let host = self.page.url.host_str().unwrap_or_default();
        match site_text(&host.replace(['.', '-'], " ")) {
            Ok(Some(_)) => host,
            _ => "a site whose name is not quoted",
        }
    }

    fn facts(&self, kind: PageToolKind) -> PageFacts {
        form_facts(self.page, self.tool, kind)
    }

    fn definition(&self) -> WebTool {
        let tool = self.tool;
        let mut properties = Map::new();
        for parameter in &tool.parameters {
            properties.insert(parameter.name.clone(), Value::Object(parameter.spec.schema()));
        }
        if let Some(button) = tool.button_parameter() {
            let choices: Vec<&str> = tool.submitters.iter().map(|one| one.choice.as_str()).collect();
            let about = "Button that submits the form; the first one if absent.";
            properties.insert(button, json!({"type": "string", "enum": choices, "description": about}));
        }
        let required = tool.parameters.iter().filter(|parameter| parameter.is_required);
        let required: Vec<&str> = required.map(|parameter| parameter.name.as_str()).collect();
        let mut schema = closed(properties);
        if !required.is_empty() {
            schema.insert("required".to_owned(), required.into());
        }
        let facts = serde_json::to_value(self.facts(PageToolKind::Form)).unwrap_or_default();
        let findings: BTreeSet<&str> = tool.findings.iter().map(|finding| finding.code.as_str()).collect();
        let more = json!({
            "trust": "site",
            "score": tool.score.as_f64(),
            "source": tool.source.map(|source| source.as_str()),
            "findings": findings,
            "secrets": tool.secrets,
        });
        let annotations = annotations(&[tool]);
        let definition = definition(&self.name, &self.describe(), schema, annotations, facts, more);
        WebTool { name: self.name.clone(), definition, of: Some(self.of) }
    }

    fn describe(&self) -> String {
        let tool = self.tool;
        let host = self.host();
        let mut text = match (&tool.site_says, tool.name.starts_with("unverified_")) {
            (_, true) => format!(
                "Form on {host}. Unverified: its author's description contradicts the form, and is left out."
            ),
            _ => format!("Form on {host}, written by the site, not verified."),
        };
        let names: Vec<&str> = tool.parameters.iter().map(|parameter| parameter.name.as_str()).collect();
        sentence(&mut text, "Sends", &names);
        let also: Vec<&str> = tool.also_sends.iter().map(|also| also.name.as_str()).collect();
        sentence(&mut text, "Also sends", &also);
        let missing: Vec<&str> = tool.secrets.iter().map(String::as_str).collect();
        sentence(&mut text, "Takes from the gateway's settings, never from a call", &missing);
        let buttons: Vec<&str> = tool.submitters.iter().map(|button| button.choice.as_str()).collect();
        sentence(&mut text, "Buttons", &buttons);
        if !tool.categories.is_empty() {
            let categories: Vec<&str> = tool.categories.iter().map(|category| category.as_str()).collect();
            sentence(&mut text, "Always asks a person", &categories);
        }
        if let Some(says) = &tool.site_says {
            text.push_str(&format!(" The site says: {}", quoted(says)));
        }
        text
    }
}

/// Returns the hints of a tool that submits any of these forms. The weakest form decides.
fn annotations(tools: &[&FormTool]) -> Value {
    let mut hints = Map::new();
    hints.insert("openWorldHint".to_owned(), true.into());
    if tools.iter().all(|tool| tool.is_read_only) {
        hints.insert("readOnlyHint".to_owned(), true.into());
    }
    if tools.iter().any(|tool| tool.is_destructive) {
        hints.insert("destructiveHint".to_owned(), true.into());
    }
    if tools.iter().all(|tool| tool.method == FormMethod::Get) {
        hints.insert("idempotentHint".to_owned(), true.into());
    }
    Value::Object(hints)
}

/// Returns the name of a control where it may be quoted and all of it can be seen, else that of its parameter.
fn shown_control(control: &str, parameter: &str) -> String {
    let is_fit = parameter_name(control).is_some() && !control.chars().any(is_unseen);
    if is_fit { control.to_owned() } else { parameter.to_owned() }
}

fn closed(properties: Map<String, Value>) -> Map<String, Value> {
    Map::from_iter([
        ("type".to_owned(), "object".into()),
        ("properties".to_owned(), Value::Object(properties)),
        ("additionalProperties".to_owned(), false.into()),
    ])
}

fn definition(
    name: &str,
    text: &str,
    schema: Map<String, Value>,
    annotations: Value,
    mut facts: Value,
    more: Value,
) -> String {
    if let (Value::Object(facts), Value::Object(more)) = (&mut facts, more) {
        facts.extend(more);
    }
    let tool = Map::from_iter([
        ("name".to_owned(), name.into()),
        ("description".to_owned(), text.into()),
        ("inputSchema".to_owned(), Value::Object(schema)),
        ("annotations".to_owned(), annotations),
        ("_meta".to_owned(), Value::Object(Map::from_iter([(PAGE_FACTS.to_owned(), facts)]))),
    ]);
    Value::Object(tool).to_string()
}

/// Appends a sentence with a list, if there is anything in it.
fn sentence(text: &mut String, head: &str, names: &[&str]) {
    if !names.is_empty() {
        text.push_str(&format!(" {head}: {}.", listed(names.iter().copied(), LISTED_MAX)));
    }
}
