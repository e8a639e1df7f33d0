//! The page on which a person tries a tool: a form made from its input schema, what would become of the call, and what came of it.
//! Calls pass the same pipeline as those of agents.

mod asked;
mod fields;
mod forecast;
mod outcome;
mod run;

pub(super) use self::forecast::why;
pub(super) use self::run::on_tools;

use std::sync::Arc;

use askama::Template;
use axum::response::Response;
use bytes::Bytes;
use http::StatusCode;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use url::form_urlencoded::Serializer;

use self::asked::AskedShown;
use self::fields::ArgumentForm;
use self::forecast::Forecast;
use self::outcome::OutcomeShown;
use super::nav::{Nav, Section, href_of_tool};
use super::page_visit::PageVisit;
use super::text::{LongText, short};
use crate::domain::annotations::Tier;
use crate::domain::json;
use crate::domain::operation::Variant;
use crate::domain::risk::Sensitivity;
use crate::domain::tenant::Action;
use crate::domain::tool::Definition;
use crate::faces::query::cursor::{DEFINITIONS_MEMORY_BYTES, encode};
use crate::faces::query::params::{ParamNames, Params};
use crate::gateway::{GatewayError, Tool, ToolRequest};

/// Parameters of the page.
const PARAMS: ParamNames = &["tool", "asked", "contains", "cursor", "limit"];
/// Name of the page in the activity log, where its role is refused.
const WHAT: &str = "tools.try";
/// Memory of the list, in bytes: as loaded, and as text.
const LIST_MEMORY_BYTES: usize = 256 * 1024;
/// Longest name in the list, in characters.
const NAME_CHARS_MAX: usize = 300;
/// Longest description in the list, in characters.
const DESCRIPTION_CHARS_MAX: usize = 160;

/// Tool in the list.
struct TrialLine {
    name: String,
    href: String,
    /// First line of the description, in the server's words; empty without one.
    description: String,
}

#[derive(Template)]
#[template(path = "trials.html", config = "src/faces/console/askama.toml")]
struct TrialsPage {
    nav: Nav,
    contains: String,
    tools: Vec<TrialLine>,
    /// Link to the next page; `None` if there is none.
    next: Option<String>,
}

/// Word to choose.
struct WordOption {
    word: &'static str,
    is_chosen: bool,
}

#[derive(Template)]
#[template(path = "trial.html", config = "src/faces/console/askama.toml")]
struct TrialPage {
    nav: Nav,
    csrf: String,
    /// Path of the page, without what a form has sent; with the permission request of the call that it sent.
    place: String,
    name: String,
    /// Name as a field of a form has it.
    field: String,
    title: Option<String>,
    /// Page of the tool, with its definition; `None` for visitors who may not see it.
    page: Option<String>,
    description: LongText,
    tier: &'static str,
    variants: Vec<WordOption>,
    sensitivities: Vec<WordOption>,
    reason: String,
    form: ArgumentForm,
    /// All arguments as JSON, which count in place of the fields; empty for none.
    json: String,
    /// True if that JSON was not understood.
    is_json_faulty: bool,
    /// Reason why the form was not understood; `None` if it was.
    failure: Option<String>,
    forecast: Option<Forecast>,
    /// Permission request of the call, which goes before `outcome`; `None` if it asked nobody.
    asked: Option<AskedShown>,
    outcome: Option<OutcomeShown>,
    /// True if the page follows a request without the form that made it.
    is_bare: bool,
}

/// Call as a form asks for it.
struct AskedCall {
    tool: String,
    variant: Variant,
    sensitivity: Option<&'static str>,
    reason: String,
    json: String,
}

impl AskedCall {
    /// Returns the request, with these arguments: a JSON object.
    fn request(&self, arguments: String) -> ToolRequest {
        let text = |text: &str| {
            let mut out = String::new();
            json::escape_into(&mut out, text);
            Bytes::from(out)
        };
        ToolRequest {
            name: Some(text(&self.tool)),
            args: Some(Bytes::from(arguments)),
            intent_operation_type: Some(text(self.variant.operation().as_str())),
            intent_data_sensitivity: self.sensitivity.map(text),
            intent_reason: (!self.reason.is_empty()).then(|| text(&self.reason)),
            ..ToolRequest::default()
        }
    }
}

/// Returns the link to a try of a tool.
pub(super) fn href_of(tool: &str) -> String {
    let mut query = Serializer::new(String::new());
    query.append_pair("tool", tool);
    format!("{}?{}", Section::Try.href(), query.finish())
}

/// Shows the page of the tool that the address names, or the tools to choose from.
pub(super) async fn show(visit: PageVisit) -> Response {
    let page = match page(&visit).await {
        Err(GatewayError::NotFound("tool")) => uncallable(&visit).await,
        page => page,
    };
    visit.answer_read((WHAT, None), Section::Try, page)
}

async fn page(visit: &PageVisit) -> Result<Response, GatewayError> {
    visit.caller().authorise(Action::UseTools)?;
    visit.needs_tenant()?;
    let params = Params::of(&visit.given(PARAMS)?, PARAMS)?;
    let Some(name) = params.text("tool") else { return list(visit, &params).await };
    visit.expect(DEFINITIONS_MEMORY_BYTES).await?;
    let (tool, tier) = find(visit, name)?;
    let asked = AskedCall {
        tool: name.to_owned(),
        variant: tier.call_with(),
        sensitivity: None,
        reason: String::new(),
        json: String::new(),
    };
    let mut page = described(visit, (&tool, tier), &asked);
    match params.text("asked") {
        // a page that follows a request does not count against the rate of the key
        Some(id) => {
            page.follow(AskedShown::named(visit, name, id).await?);
            page.is_bare = true;
        }
        None => {
            let forecast = forecast::bare(visit, asked.variant, asked.request("{}".to_owned())).await;
            page.forecast = Some(forecast);
        }
    }
    visit.show(StatusCode::OK, &page).await
}

/// Returns the page about a tool that cannot be called: why, as its caller is told.
async fn uncallable(visit: &PageVisit) -> Result<Response, GatewayError> {
    let params = Params::of(&visit.given(PARAMS)?, PARAMS)?;
    let error = GatewayError::NotFound("tool");
    let Some(name) = params.text("tool") else { return Err(error) };
    let call = AskedCall {
        tool: name.to_owned(),
        variant: Variant::Read,
        sensitivity: None,
        reason: String::new(),
        json: String::new(),
    };
    let rehearsed = visit
        .gateway()
        .calls
        .rehearse_bare(visit.attempt(), call.variant, call.request("{}".to_owned()))
        .await;
    let Some(refusal) = rehearsed.refusal else { return Err(error) };
    let link = (Section::Try.href(), "The tools that you can try");
    Ok(visit.failed_at(Section::Try, &error, &refusal.message, link))
}

async fn list(visit: &PageVisit, params: &Params) -> Result<Response, GatewayError> {
    let page = params.page()?;
    let after = page.after(String::new(), |key| Some(key.to_owned()))?;
    let contains = params.text("contains").unwrap_or_default();
    visit.expect(LIST_MEMORY_BYTES).await?;
    let wanted = (contains, after.as_str());
    let tools = visit.gateway().calls.callable_tools(visit.caller(), wanted, page.limit + 1).await;
    let has_more = tools.len() > page.limit;
    let shown = tools.get(..page.limit).unwrap_or(&tools);
    let next = shown.last().filter(|_| has_more).map(|last| {
        let mut query = Serializer::new(String::new());
        if !contains.is_empty() {
            query.append_pair("contains", contains);
        }
        query.append_pair("limit", &page.limit.to_string()).append_pair("cursor", &encode(&last.canonical));
        format!("{}?{}", Section::Try.href(), query.finish())
    });
    let line = |tool: &Arc<Tool>| TrialLine {
        name: short(&tool.canonical, NAME_CHARS_MAX),
        href: href_of(&tool.canonical),
        description: first_line(tool.shape.description()),
    };
    let page = TrialsPage {
        nav: visit.nav(Section::Try),
        contains: contains.to_owned(),
        tools: shown.iter().map(line).collect(),
        next,
    };
    visit.show(StatusCode::OK, &page).await
}

/// Returns the first line of a description that says something, cut.
fn first_line(description: &str) -> String {
    let line = description.lines().map(str::trim).find(|line| !line.is_empty());
    short(line.unwrap_or_default(), DESCRIPTION_CHARS_MAX)
}

fn find(visit: &PageVisit, name: &str) -> Result<(Arc<Tool>, Tier), GatewayError> {
    visit.gateway().calls.callable_tool(visit.caller(), name).ok_or(GatewayError::NotFound("tool"))
}

/// Returns the form of a tool's arguments.
fn form_of(tool: &Tool) -> ArgumentForm {
    let definition = Definition::read(&tool.shape.definition).ok();
    definition.and_then(|definition| definition.input_schema).map(ArgumentForm::of).unwrap_or_default()
}

/// Returns the link to the page of a tool.
fn page_of(tool: &Tool) -> Option<String> {
    let (server, _) = tool.canonical.split_once(':')?;
    Some(href_of_tool(server, &tool.name))
}

fn described(visit: &PageVisit, (tool, tier): (&Tool, Tier), asked: &AskedCall) -> TrialPage {
    let definition = Definition::read(&tool.shape.definition).ok();
    let (title, description) =
        definition.map(|definition| (definition.title, definition.description)).unwrap_or_default();
    let nav = visit.nav(Section::Try);
    let option = |word: &'static str, chosen: &str| WordOption { word, is_chosen: word == chosen };
    TrialPage {
        csrf: nav.csrf.clone(),
        nav,
        place: href_of(&tool.canonical),
        name: tool.canonical.to_string(),
        field: utf8_percent_encode(&tool.canonical, NON_ALPHANUMERIC).to_string(),
        title,
        page: Section::Servers.is_open_to(visit.caller()).then(|| page_of(tool)).flatten(),
        description: LongText::of(&description),
        tier: tier.as_str(),
        variants: Variant::WORDS.map(|word| option(word, asked.variant.as_str())).into(),
        sensitivities: Sensitivity::WORDS
            .map(|word| option(word, asked.sensitivity.unwrap_or_default()))
            .into(),
        reason: asked.reason.clone(),
        form: form_of(tool),
        json: asked.json.clone(),
        is_json_faulty: false,
        failure: None,
        forecast: None,
        asked: None,
        outcome: None,
        is_bare: false,
    }
}

impl TrialPage {
    /// Follows the permission request of a call: the page shows what becomes of it.
    fn follow(&mut self, asked: AskedShown) {
        self.place.clone_from(&asked.place);
        self.asked = Some(asked);
    }
}
