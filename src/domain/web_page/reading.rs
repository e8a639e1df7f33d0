//! Reading of one page: which of its forms become tools, and what is to be said of each.

#[cfg(test)]
mod fuzz;
#[cfg(test)]
mod tests;

use url::Url;

use super::besides::PageForm;
use super::checks::{CheckedForm, FindingCode, PageScore};
use super::dom::{DomFault, DomNodeId, WebDom};
use super::facts::AlsoSent;
use super::field::FormField;
use super::file::PageFile;
use super::form::{FormMethod, WebControl, WebForm, WebForms, visible_text};
use super::gates::{EffectivePolicy, PageGates, PolicyHeaders, WamGate};
use super::report::{FormReport, HiddenBecause, PageReport};
use super::schema_source::{self, AuthoredTool};
use super::sensitive::{SensitiveCategory, Sensitivities};
use super::settings::{PageCookies, PageMethod, PageSettings, PageSource};
use super::tool::{self, FormTool, PermittedSteps, StepTarget};
use super::wording::{parameter_name, shown, site_name, site_text};
use crate::domain::server_url::masked;

/// Most forms of a page that are read.
const FORMS_MAX: usize = 50;
/// Most headings and links of a form whose texts are searched for sensitive terms.
const TEXTS_MAX: usize = 100;

/// Page as it was fetched.
#[derive(Clone, Copy, Debug)]
pub struct PageInput<'a> {
    /// URL of the page, as the server's settings name it.
    pub page: &'a str,
    /// URL of the page after redirects.
    pub url: &'a Url,
    /// Headers with the page's policy.
    pub headers: PolicyHeaders<'a>,
    /// Files that a first reading wanted.
    pub files: &'a [PageFile<'a>],
}

/// Rules of the server.
#[derive(Clone, Copy, Debug)]
pub struct PageRules<'a> {
    /// Settings of the server.
    pub settings: &'a PageSettings,
    /// Names of the controls for which the server has a secret.
    pub field_secrets: &'a [String],
}

/// Reading of a page.
#[derive(Debug)]
pub struct PageReading {
    /// URL of the page, as the server's settings name it.
    pub page: String,
    /// URL of the page after redirects.
    pub url: Url,
    /// Forms of the page.
    pub forms: WebForms,
    /// Tools, at most one for each form, in the order of the page.
    pub tools: Vec<FormTool>,
    /// Report.
    pub report: PageReport,
    /// Files of the page's origin that are to be fetched before the reading counts.
    pub wanted: Vec<Url>,
}

/// Reads a page from its decoded text.
///
/// # Errors
/// The bound that the page exceeds.
pub fn read_page(text: &str, input: &PageInput<'_>, rules: &PageRules<'_>) -> Result<PageReading, DomFault> {
    let dom = WebDom::parse(text)?;
    let mut wanted = Vec::new();
    let gates = PageGates::read(&dom, input.url, input.headers, input.files, &mut wanted);
    let forms = WebForms::read(&dom, input.url);
    let mut report =
        PageReport { policy_closed: gates.closed(), orphans: forms.orphans.len(), ..PageReport::default() };
    let mut tools = Vec::new();
    for (place, form) in forms.forms.iter().enumerate().take(FORMS_MAX) {
        let mut reader = FormReader {
            dom: &dom,
            gates: &gates,
            policy: gates.of(form.node),
            form,
            place,
            input,
            rules,
            checked: CheckedForm::default(),
        };
        let read = reader.read(&mut wanted);
        report.forms.push(reader.row(&read));
        tools.extend(read.ok());
    }
    if dom.is_spent() {
        return Err(DomFault::Walks);
    }
    Ok(PageReading { page: input.page.to_owned(), url: input.url.clone(), forms, tools, report, wanted })
}

/// Reader of one form.
struct FormReader<'a> {
    dom: &'a WebDom,
    gates: &'a PageGates<'a>,
    policy: EffectivePolicy,
    form: &'a WebForm,
    place: usize,
    input: &'a PageInput<'a>,
    rules: &'a PageRules<'a>,
    checked: CheckedForm,
}

/// Description of a form with its source.
struct Described {
    source: Option<PageSource>,
    authored: Option<AuthoredTool>,
}

impl FormReader<'_> {
    fn read(&mut self, wanted: &mut Vec<Url>) -> Result<FormTool, HiddenBecause> {
        if !self.policy.is_visible {
            return Err(HiddenBecause::PolicyHidden);
        }
        let fields = FormField::all(self.form);
        let action = self.target()?;
        let method = self.method()?;
        if method == FormMethod::Get && fields.iter().any(|field| field.is_secret) {
            return Err(HiddenBecause::SecretInUrl);
        }
        let functions = self.functions();
        let steps = self.steps(&fields);
        let described = self.described(&fields, &steps, wanted)?;
        let is_strict = self.is_strict(described.source);
        let mut checked = std::mem::take(&mut self.checked);
        let policy = |field: &FormField| self.policy_of(field);
        let may_set = |field: &FormField| {
            let own = policy(field);
            let gate = if field.is_interaction() { own.interaction } else { own.data };
            own.is_visible && permits(gate, is_strict)
        };
        let shows_text = |field: &FormField| policy(field).shows_text;
        checked.check(self.form, &fields, described.authored.as_ref(), may_set, shows_text);
        let set = checked.parameters.iter().map(|parameter| parameter.control.as_str()).collect();
        let of_page = self.of_page(&fields);
        let also_sends = of_page.also_sends(&set, |field| self.policy_of(field).is_visible);
        let categories = self.categories(&fields, described.authored.as_ref(), method);
        if self.dom.has(self.form.node, "onsubmit") {
            checked.add(FindingCode::NeedsScript, None, 0, "The form has a script for its submission.");
        }
        let (name, site_says) = self.words(described.authored.as_ref(), &mut checked);
        let score = checked.score();
        let secrets = fields.iter().filter(|field| field.is_secret).map(|field| &field.name);
        let (secrets_set, needs): (Vec<&String>, Vec<&String>) =
            secrets.clone().partition(|name| self.rules.field_secrets.contains(name));
        let is_read_only = method == FormMethod::Get
            && FormTool::is_lookup(&functions)
            && categories.is_empty()
            && self.rules.settings.cookies == PageCookies::Ephemeral
            && !fields.iter().any(|field| self.rules.field_secrets.contains(&field.name))
            && score >= PageScore::READ_ONLY_MIN;
        let binds = |category: &SensitiveCategory| {
            use SensitiveCategory::{Irreversible, Legal, Transaction};
            matches!(category, Transaction | Legal | Irreversible)
        };
        let is_known =
            functions.iter().any(|function| matches!(function.as_str(), "search" | "navigation" | "login"));
        let instruction = ["wam-intent-instruction", "wam-intent-description"]
            .into_iter()
            .find_map(|name| self.dom.attribute(self.form.node, name))
            .filter(|_| self.policy.shows_text)
            .and_then(|text| checked.quotable(text, "instruction", None));
        Ok(FormTool {
            name,
            source: described.source,
            selector: self.selector(),
            form: self.place,
            fingerprint: tool::fingerprint(self.form, &action, &fields, &steps),
            action,
            method,
            stages: self.tokens("wam-intent-workflow"),
            instruction,
            site_says: site_says.filter(|_| score >= PageScore::QUOTED_MIN),
            submitters: tool::submitters(self.form),
            secrets: secrets.map(|name| shown_name(name)).collect(),
            secrets_set: secrets_set.into_iter().cloned().collect(),
            needs: needs.into_iter().map(|name| shown_name(name)).collect(),
            also_sends,
            buttons: of_page.buttons(),
            values: of_page.values(),
            is_destructive: categories.iter().any(binds) || (method == FormMethod::Post && !is_known),
            asks: checked.asks || !categories.is_empty(),
            categories,
            functions,
            score,
            steps,
            is_read_only,
            findings: std::mem::take(&mut checked.findings),
            parameters: std::mem::take(&mut checked.parameters),
        })
    }

    fn of_page<'b>(&'b self, fields: &'b [FormField]) -> PageForm<'b> {
        let PageRules { settings, field_secrets: secrets } = *self.rules;
        let keeps_cookies = settings.cookies == PageCookies::Kept;
        PageForm { form: self.form, fields, secrets, page: self.input.url, keeps_cookies }
    }

    fn row(&mut self, read: &Result<FormTool, HiddenBecause>) -> FormReport {
        let of = |tool: fn(&FormTool) -> Vec<String>| read.as_ref().map(tool).unwrap_or_default();
        let findings = std::mem::take(&mut self.checked.findings);
        let tool = read.as_ref().ok();
        let action = tool.map(|tool| &tool.action).or(self.form.action.url.as_ref());
        FormReport {
            selector: self.selector(),
            tool: tool.filter(|tool| tool.source.is_some()).map(|tool| tool.name.clone()),
            score: tool.map(|tool| tool.score.as_f64()),
            source: tool.and_then(|tool| tool.source),
            action: shown(&masked(action.map_or(self.form.action.text.as_str(), Url::as_str))),
            method: tool.map_or(self.form.method, |tool| tool.method).as_str().to_owned(),
            parameters: of(|tool| tool.parameters.iter().map(|parameter| parameter.name.clone()).collect()),
            findings: tool.map_or(findings, |tool| tool.findings.clone()),
            also_sends: tool.map_or_else(Vec::new, |tool| tool.also_sends.clone() as Vec<AlsoSent>),
            categories: tool.map_or_else(Vec::new, |tool| tool.categories.clone()),
            hidden_because: read.as_ref().err().copied(),
        }
    }

    /// Returns the selector of the form, without words that must not be quoted.
    fn selector(&self) -> String {
        match &self.form.id {
            Some(id) if parameter_name(id).as_ref() == Some(id) => self.form.selector(),
            _ => format!("form[{}]", self.form.position),
        }
    }

    fn attribute(&self, name: &str) -> Option<&str> {
        self.dom.attribute(self.form.node, name)
    }

    /// Returns the words of an attribute that are plain.
    fn tokens(&self, name: &str) -> Vec<String> {
        let words = self.attribute(name).unwrap_or_default().split_ascii_whitespace();
        words.take(8).filter_map(site_name).collect()
    }

    /// Returns the functions of a form: its author's, or of a form that calls itself a search in HTML's own words.
    fn functions(&self) -> Vec<String> {
        let written = self.tokens("wam-intent-function");
        let is_search = self.attribute("role").is_some_and(|role| role.trim().eq_ignore_ascii_case("search"))
            || self.dom.ancestors(self.form.node).any(|above| self.dom.is(above, "search"))
            || self.form.controls.iter().any(|control| control.kind == super::form::ControlKind::Search);
        if written.is_empty() && is_search { vec!["search".to_owned()] } else { written }
    }

    /// Returns the URL that the form is sent to if nobody chooses a button. Every button has to lead to the page's own origin.
    fn target(&mut self) -> Result<Url, HiddenBecause> {
        let page = self.input.url.origin();
        let buttons = self.form.submitters().filter_map(|button| button.overrides.action.as_ref());
        let mut all = std::iter::once(&self.form.action).chain(buttons);
        let foreign = all.find(|action| action.url.as_ref().is_none_or(|url| url.origin() != page));
        let of_button = self.form.default_submitter().and_then(|button| button.overrides.action.as_ref());
        match (foreign, &of_button.unwrap_or(&self.form.action).url) {
            (None, Some(url)) => Ok(url.clone()),
            (foreign, _) => {
                let written = foreign.map_or_else(String::new, |action| shown(&action.text));
                let detail = format!("The form is sent to {}.", super::wording::quoted(&written));
                self.checked.add(FindingCode::OffOriginAction, None, 0, detail);
                Err(HiddenBecause::OffOrigin)
            }
        }
    }

    fn method(&self) -> Result<FormMethod, HiddenBecause> {
        let default = self.form.default_submitter().and_then(|button| button.overrides.method);
        let of_buttons =
            self.form.submitters().map(|button| button.overrides.method.unwrap_or(self.form.method));
        let mut methods: Vec<FormMethod> = of_buttons.collect();
        if methods.is_empty() {
            methods.push(default.unwrap_or(self.form.method));
        }
        let is_permitted = |method: &FormMethod| match method {
            FormMethod::Get => self.rules.settings.methods.contains(&PageMethod::Get),
            FormMethod::Post => self.rules.settings.methods.contains(&PageMethod::Post),
            FormMethod::Dialog => false,
        };
        match methods.iter().all(is_permitted) {
            true if methods.contains(&FormMethod::Post) => Ok(FormMethod::Post),
            true => Ok(FormMethod::Get),
            false => Err(HiddenBecause::Method),
        }
    }

    /// Returns the policy of a field: the strictest of its controls.
    fn policy_of(&self, field: &FormField) -> EffectivePolicy {
        let controls = field.controls.iter().filter_map(|at| self.form.controls.get(*at));
        let all = controls.map(|control| self.gates.of(control.node));
        let strictest = all.reduce(|one, other| EffectivePolicy {
            is_visible: one.is_visible && other.is_visible,
            shows_text: one.shows_text && other.shows_text,
            data: one.data.max(other.data),
            interaction: one.interaction.max(other.interaction),
        });
        let policy = strictest.unwrap_or(self.policy);
        // a control may stand outside of its form
        EffectivePolicy { shows_text: policy.shows_text && self.policy.shows_text, ..policy }
    }

    /// Returns whether a source needs gates that the page opens, and not only leaves alone.
    fn is_strict(&self, source: Option<PageSource>) -> bool {
        !matches!(source, Some(PageSource::Webmcp | PageSource::Forms))
            && self.rules.settings.require_wam_policy
    }

    /// Returns the steps that the page's policy permits by itself, whatever anybody says of the form.
    fn steps(&self, fields: &[FormField]) -> PermittedSteps {
        let mut steps = PermittedSteps::default();
        if !self.rules.settings.sources.contains(&PageSource::Wam) {
            return steps;
        }
        for field in fields.iter().filter(|field| field.is_settable()) {
            let policy = self.policy_of(field);
            let selector = format!("{} [name=\"{}\"]", self.selector(), field.parameter);
            let label = field.label.as_deref().filter(|_| policy.shows_text);
            let target = StepTarget {
                selector,
                control: field.name.clone(),
                parameter: field.parameter.clone(),
                label: label.and_then(|label| site_text(label).ok().flatten()),
            };
            match (policy.is_visible, field.is_interaction()) {
                (true, false) if policy.data == WamGate::Open => steps.data.push(target),
                (true, true) if policy.interaction == WamGate::Open => steps.interaction.push(target),
                _ => {}
            }
        }
        steps.may_invoke = self.policy.interaction == WamGate::Open && self.has_intent();
        let set = steps.targets().map(|target| target.control.as_str()).collect();
        let of_page = self.of_page(fields);
        steps.also_sends = of_page.also_sends(&set, |field| self.policy_of(field).is_visible);
        steps
    }

    fn has_intent(&self) -> bool {
        let is_there = |name| self.attribute(name).is_some_and(|value| !value.trim().is_empty());
        is_there("wam-intent-function") || is_there("wam-intent-workflow")
    }

    /// Returns the description of the form by the first source that the settings accept and the page permits.
    fn described(
        &mut self,
        fields: &[FormField],
        steps: &PermittedSteps,
        wanted: &mut Vec<Url>,
    ) -> Result<Described, HiddenBecause> {
        let accepts = |source| self.rules.settings.sources.contains(&source);
        let mut may_be = false;
        if accepts(PageSource::Wam) {
            let (dom, node) = (self.dom, self.form.node);
            let schema =
                schema_source::wam_schema(dom, node, self.input.url, self.gates, self.input.files, wanted);
            may_be |= schema.is_some();
            match schema {
                Some(Ok(tool)) if self.has_intent() && self.may_submit(PageSource::Wam) => {
                    return Ok(Described { source: Some(PageSource::Wam), authored: Some(tool) });
                }
                Some(Err(why)) => {
                    let detail = format!("The schema is not used: {}.", why.as_str());
                    self.checked.add(FindingCode::SchemaUnusable, None, 0, detail);
                }
                _ => {}
            }
        }
        if accepts(PageSource::Webmcp)
            && let Some(mut tool) = schema_source::webmcp_tool(self.dom, self.form.node)
        {
            may_be = true;
            if self.may_submit(PageSource::Webmcp) {
                // the attributes stand at the controls, so that each control is described by being there
                tool.parameters =
                    fields.iter().map(|field| (field.name.clone(), self.webmcp_spec(field))).collect();
                return Ok(Described { source: Some(PageSource::Webmcp), authored: Some(tool) });
            }
        }
        if accepts(PageSource::Forms) {
            may_be = true;
            if self.may_submit(PageSource::Forms) {
                return Ok(Described { source: Some(PageSource::Forms), authored: None });
            }
        }
        match steps.is_empty() {
            false => Ok(Described { source: None, authored: None }),
            true if may_be || steps.targets().next().is_some() => Err(HiddenBecause::NotPermitted),
            true => Err(HiddenBecause::NoSource),
        }
    }

    fn webmcp_spec(&self, field: &FormField) -> super::spec::ParameterSpec {
        let controls = field.controls.iter().filter_map(|at| self.form.controls.get(*at));
        let description = controls
            .map(|control: &WebControl| control.node)
            .find_map(|node: DomNodeId| schema_source::webmcp_parameter(self.dom, node));
        super::spec::ParameterSpec { description, ..Default::default() }
    }

    fn may_submit(&self, source: PageSource) -> bool {
        permits(self.policy.interaction, self.is_strict(Some(source)))
    }

    fn categories(
        &self,
        fields: &[FormField],
        authored: Option<&AuthoredTool>,
        method: FormMethod,
    ) -> Vec<SensitiveCategory> {
        let mut found = Sensitivities::default();
        for field in fields {
            found.add_all(&field.categories);
        }
        found.add_functions(self.attribute("wam-intent-function").unwrap_or_default());
        for name in ["aria-label", "title", "name", "id", "wam-intent-description", "wam-intent-instruction"]
        {
            found.add_deed(self.attribute(name).unwrap_or_default());
        }
        let buttons = self.form.submitters().filter_map(|button| button.overrides.action.as_ref());
        for action in buttons.chain([&self.form.action]) {
            found.add_deed(action.url.as_ref().map_or("", Url::path));
        }
        for button in self.form.submitters() {
            let own = [button_words(button), button.name.as_str(), button.value.as_str()];
            for text in own.into_iter().chain(button.texts.iter().map(|text| &**text)) {
                match method {
                    FormMethod::Post => found.add_posting_button(text),
                    _ => found.add_deed(text),
                }
            }
            found.add_functions(self.dom.attribute(button.node, "wam-intent-function").unwrap_or_default());
        }
        if let Some(tool) = authored {
            found.add_deed(tool.name.as_deref().unwrap_or_default());
            found.add_deed(tool.description.as_deref().unwrap_or_default());
        }
        let inside = self.dom.descendants(self.form.node);
        let texts = inside.filter_map(|node| Some((node, self.dom.name(node)?))).take(5000);
        let is_read = |name: &str| {
            matches!(
                name,
                "legend" | "h1" | "h2" | "h3" | "h4" | "a" | "p" | "small" | "span" | "div" | "label"
            )
        };
        for (node, name) in texts.filter(|(_, name)| is_read(name)).take(TEXTS_MAX) {
            let text = visible_text(self.dom, node);
            match name {
                "legend" | "h1" | "h2" | "h3" | "h4" => found.add_deed(&text),
                _ => found.add_text(&text),
            }
        }
        found.into_categories()
    }

    /// Returns the tool's name, and what the site says of it.
    fn words(&self, authored: Option<&AuthoredTool>, checked: &mut CheckedForm) -> (String, Option<String>) {
        let written = authored.and_then(|tool| tool.name.as_deref());
        let name = written.and_then(site_name);
        if let Some(written) = written.filter(|_| name.is_none()) {
            let detail = format!("The name is not used: {}.", super::wording::quoted(&shown(written)));
            checked.add(FindingCode::SuspiciousText, None, 0, detail);
        }
        let description = authored.and_then(|tool| tool.description.as_deref());
        let description = description.filter(|_| self.policy.shows_text);
        let site_says = description.and_then(|text| checked.quotable(text, "description", None));
        let own = || {
            let button = self.form.default_submitter().map(button_words).filter(|_| self.policy.shows_text);
            let of_form = ["id", "name", "aria-label"].into_iter().filter_map(|name| self.attribute(name));
            of_form.chain(button).find_map(site_name)
        };
        let name = name.or_else(own).unwrap_or_else(|| format!("form_{}", self.form.position));
        match checked.score() < PageScore::QUOTED_MIN {
            true => (format!("unverified_{name}"), site_says),
            false => (name, site_says),
        }
    }
}

fn button_words(button: &WebControl) -> &str {
    tool::button_text(button)
}

/// Returns a name where it may be quoted.
fn shown_name(name: &str) -> String {
    site_text(name).ok().flatten().unwrap_or_else(|| "secret".to_owned())
}

/// True if a gate is open, or left alone where the source does not need it.
fn permits(gate: WamGate, is_strict: bool) -> bool {
    gate == WamGate::Open || (gate == WamGate::Unstated && !is_strict)
}
