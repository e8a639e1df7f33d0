//! Execution of a page's tool: fetches the page anew, compares its form with the approved one, fills it in, has the ledger written,
//! and only then sends it, once.

use std::collections::BTreeMap;

use bytes::Bytes;
use http::Method;
use http::header::CONTENT_TYPE;
use serde_json::value::RawValue;
use sha2::{Digest, Sha256};
use tokio::sync::oneshot;
use url::Url;
use zeroize::Zeroizing;

use super::cookies::SiteCookies;
use super::guard::{FetchedDocument, PageGuard};
use super::reading;
use super::robots::RobotsBook;
use super::submit::{Landed, SubmitRequest, submit};
use crate::domain::provenance::{LedgerLayer, LedgerPage, LedgerStep};
use crate::domain::web_page::charset::decode_page;
use crate::domain::web_page::cookies::KeptCookie;
use crate::domain::web_page::definition::form_facts;
use crate::domain::web_page::dom::WebDom;
use crate::domain::web_page::facts::{PageFacts, PageToolKind};
use crate::domain::web_page::fill::{FieldProblem, FillLayer, FillRequest, FillStep};
use crate::domain::web_page::form::{ControlKind, FormMethod, WebControl};
use crate::domain::web_page::plan::{FormPlan, control_values};
use crate::domain::web_page::reading::{PageReading, PageRules};
use crate::domain::web_page::result::{FieldError, PageResult, SiteReply, SubmittedForm};
use crate::domain::web_page::tool::{FormTool, shown_place};
use crate::upstream::error::{FailureKind, UpstreamError};
use crate::upstream::protocol::ask::Ask;
use crate::upstream::protocol::events::{CallCookies, LedgerAsk, LedgerReply, PageCall};
use crate::upstream::protocol::sent::Sent;
use crate::upstream::target::PageServer;

/// Runs a call. The result says honestly what the site's reply shows.
///
/// # Errors
/// [`FailureKind::Changed`] if the form is not the approved one, [`FailureKind::Unrecorded`] without a ledger,
/// [`FailureKind::DraftGone`] without the draft; all before anything was sent. Otherwise as the guard.
pub(super) async fn execute(
    guard: &PageGuard,
    server: &PageServer,
    ask: &Ask<'_>,
    sent: &Sent,
) -> Result<Bytes, UpstreamError> {
    let Some(call) = ask.page else {
        return Err(UpstreamError::unsent(FailureKind::Unsendable, "the call says nothing of its form"));
    };
    let kept = call.cookies.as_deref();
    let mut cookies = kept.map_or_else(SiteCookies::default, |kept| SiteCookies::opened(kept.before()));
    let fetched = fetch(guard, server, &call.facts, &mut cookies).await;
    note(kept, &cookies);
    // nothing of the fetch is the call itself: all its failures mean that nothing was sent
    let fetched = fetched.map_err(UpstreamError::before_dispatch)?;
    let filling = filled(guard, server, &call.facts, (&fetched, &call.values)).await;
    let mut form = match filling.map_err(UpstreamError::before_dispatch)? {
        Filling::Ready(form) => *form,
        Filling::Refused(errors) => return Ok(PageResult::refused(&fetched.url, errors).render().into()),
    };
    record(call, &fetched, form.steps).await?;
    let landed = submit(guard, form.request, &fetched.url, &mut cookies, sent).await;
    note(kept, &cookies);
    let landed = landed?;
    form.about.hide_cookies(kept);
    Ok(guard.in_turn(|| result(&landed, &fetched.url, &form.about)).await.render().into())
}

/// Notes the cookies of a caller that keeps them.
fn note(kept: Option<&CallCookies>, cookies: &SiteCookies) {
    if let Some(kept) = kept {
        kept.note(cookies.changes(kept.before()));
    }
}

fn changed(why: impl Into<String>) -> UpstreamError {
    UpstreamError::unsent(FailureKind::Changed, why.into())
}

/// Fetches the page of the form anew.
async fn fetch(
    guard: &PageGuard,
    server: &PageServer,
    facts: &PageFacts,
    cookies: &mut SiteCookies,
) -> Result<FetchedDocument, UpstreamError> {
    let page = server.settings.page_shown_as(&facts.page).and_then(|page| Url::parse(page).ok());
    let url = page.ok_or_else(|| changed("its page is no page of the server any more"))?;
    guard.page(&url, &RobotsBook::default(), cookies).await
}

/// Reads the page, with the files that it names, and fills its form in.
async fn filled(
    guard: &PageGuard,
    server: &PageServer,
    facts: &PageFacts,
    (fetched, arguments): (&FetchedDocument, &[u8]),
) -> Result<Filling, UpstreamError> {
    let names: Vec<String> = server.secrets.iter().map(|(name, _)| name.clone()).collect();
    let rules = PageRules { settings: &server.settings, field_secrets: &names };
    let reading = reading::read_document(guard, fetched, &facts.page, &rules, &RobotsBook::default()).await?;
    guard.in_turn(|| fill(server, facts, (fetched, &reading), arguments)).await
}

/// Finds the approved form in the page and fills it in.
fn fill(
    server: &PageServer,
    facts: &PageFacts,
    (fetched, reading): (&FetchedDocument, &PageReading),
    arguments: &[u8],
) -> Result<Filling, UpstreamError> {
    let tool = reading.tools.iter().find(|tool| tool.selector == facts.selector);
    let tool = tool.ok_or_else(|| changed("it is not there, or is no tool any more"))?;
    if form_facts(reading, tool, facts.kind) != *facts {
        return Err(changed("it has other fields or values, or another target"));
    }
    let form = reading.forms.forms.get(tool.form).ok_or_else(|| changed("it is not there"))?;
    let given = Given::read(server, (tool, facts), arguments)?;
    let submitter = given.submitter.and_then(|at| form.controls.get(at));
    let content_type = fetched.headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok());
    let encoding = decode_page(&fetched.body, content_type).encoding;
    let request = FillRequest { form, values: &given.values, submitter, encoding };
    let filled = match request.fill() {
        Ok(filled) => filled,
        Err(problems) => {
            let error = |problem: FieldProblem| FieldError {
                field: Some(problem.field).filter(|field| !field.is_empty()),
                message: problem.message,
            };
            return Ok(Filling::Refused(problems.into_iter().map(error).collect()));
        }
    };
    if let Some(name) = filled.left.first() {
        let message = "The field has more controls than values; give a value for each.".to_owned();
        return Ok(Filling::Refused(vec![FieldError { field: Some(name.clone()), message }]));
    }
    // the last word before anything is sent: the request is the one that the plan said
    let plan = FormPlan::of(facts, std::str::from_utf8(arguments).unwrap_or_default());
    let request = &filled.request;
    if request.method.as_str() != plan.method || shown_place(&request.url) != plan.action {
        return Err(changed("it would be sent to another target"));
    }
    // secrets belong to the origin of the settings' page, wherever redirects and the form lead
    let is_own = |url: &Url| Url::parse(&facts.page).is_ok_and(|page| page.origin() == url.origin());
    let stays = is_own(&fetched.url) && is_own(&filled.request.url);
    if !given.secrets.is_empty() && !stays {
        return Err(changed("its secrets belong to another site"));
    }
    if filled.request.method == FormMethod::Get && !given.secrets.is_empty() {
        return Ok(Filling::Refused(given.secrets.iter().map(|name| secret_in_url(name)).collect()));
    }
    let request = SubmitRequest {
        method: if filled.request.method == FormMethod::Post { Method::POST } else { Method::GET },
        url: filled.request.url,
        content_type: filled.request.content_type,
        body: filled.request.body.into(),
    };
    let mut steps: Vec<LedgerStep> = filled.steps.iter().filter_map(|step| given.step(step)).collect();
    steps.push(submission(facts, &request, !given.secrets.is_empty()));
    let is_password = |control: &WebControl| control.kind == ControlKind::Password;
    let about = AboutForm {
        is_post: request.method == Method::POST,
        fields: form
            .controls
            .iter()
            .map(|control| control.name.clone())
            .filter(|name| !name.is_empty())
            .collect(),
        values: given.texts,
        secrets: server
            .secrets
            .iter()
            .filter(|(name, _)| given.secrets.contains(name))
            .map(|(_, secret)| secret.clone())
            .collect(),
        has_password: form.controls.iter().any(is_password),
    };
    Ok(Filling::Ready(Box::new(FilledForm { request, steps, about })))
}

/// Returns the error of a field whose secret would be in the URL.
fn secret_in_url(name: &str) -> FieldError {
    let message = "The form is sent by GET: the secret of the field would stand in a URL, which sites log and show. It is not sent.";
    FieldError { field: Some(name.to_owned()), message: message.to_owned() }
}

/// Values for the controls of a form: those of the caller, and the secrets that an administrator set.
struct Given {
    values: Vec<(String, Vec<String>)>,
    /// Names of controls whose values are not shown.
    secrets: Vec<String>,
    /// Texts of the caller.
    texts: Vec<String>,
    /// Place of the button that the caller chose; `None` for the first.
    submitter: Option<usize>,
}

impl Given {
    fn read(
        server: &PageServer,
        (tool, facts): (&FormTool, &PageFacts),
        arguments: &[u8],
    ) -> Result<Given, UpstreamError> {
        let unread = |_| UpstreamError::unsent(FailureKind::Unsendable, "the arguments cannot be read");
        let arguments: BTreeMap<String, &RawValue> = serde_json::from_slice(arguments).map_err(unread)?;
        let button = facts.button.as_deref();
        let strange = |name: &&String| facts.field(name).is_none() && button != Some(name.as_str());
        if arguments.keys().any(|name| strange(&name)) {
            return Err(changed("it has no field for an argument of the call"));
        }
        let (mut values, mut texts, mut submitter) = (Vec::new(), Vec::new(), None);
        let controls: Vec<(&str, &str)> = match facts.kind {
            // single steps may set what no description names
            PageToolKind::Invoke => {
                tool.steps.targets().map(|target| (&*target.parameter, &*target.control)).collect()
            }
            _ => tool.parameters.iter().map(|parameter| (&*parameter.name, &*parameter.control)).collect(),
        };
        for (parameter, control) in controls {
            let Some(raw) = arguments.get(parameter) else { continue };
            let Some(value) = control_values(raw.get()) else { continue };
            texts.extend(value.iter().cloned());
            values.push((control.to_owned(), value));
        }
        if let Some(choice) = button.and_then(|button| control_values(arguments.get(button)?.get())) {
            let chosen = tool.submitters.iter().find(|one| choice == [one.choice.as_str()]);
            // the first button is no substitute for another one
            let chosen = chosen.ok_or_else(|| changed("it has no button for the call's choice"))?;
            submitter = Some(chosen.control);
        }
        let mut secrets = Vec::new();
        for (name, secret) in server.secrets.iter().filter(|(name, _)| tool.secrets_set.contains(name)) {
            secrets.push(name.clone());
            values.push((name.clone(), vec![secret.to_string()]));
        }
        Ok(Given { values, secrets, texts, submitter })
    }

    /// Returns the row of the ledger for a step; `None` for the submission, which has a row of its own.
    fn step(&self, step: &FillStep) -> Option<LedgerStep> {
        let (layer, explanation) = match step.layer {
            FillLayer::Data => (LedgerLayer::Data, "sets-the-value"),
            FillLayer::Interaction => (LedgerLayer::Interaction, "ticks-or-selects"),
            FillLayer::Invoke => return None,
        };
        Some(LedgerStep {
            layer,
            selector: step.field.clone(),
            explanation: explanation.to_owned(),
            original: Some(step.before.join(", ")),
            value: Some(step.after.join(", ")),
            sealed: None,
            is_secret: self.secrets.contains(&step.field),
        })
    }
}

/// Form that is filled in, ready to be sent.
struct FilledForm {
    request: SubmitRequest,
    steps: Vec<LedgerStep>,
    about: AboutForm,
}

/// Facts of the form that its result depends on.
struct AboutForm {
    is_post: bool,
    fields: Vec<String>,
    values: Vec<String>,
    /// Secrets that are sent, and kept cookies that are credentials.
    secrets: Vec<Zeroizing<String>>,
    has_password: bool,
}

impl AboutForm {
    /// Adds the kept cookies by which the site knows the caller to what the result must not repeat.
    fn hide_cookies(&mut self, kept: Option<&CallCookies>) {
        let Some(kept) = kept else { return };
        let changes = kept.changes();
        let all = kept.before().cookies().iter().chain(&changes.set);
        self.secrets.extend(all.flat_map(KeptCookie::credentials));
    }
}

/// Result of filling a form in.
enum Filling {
    Ready(Box<FilledForm>),
    /// The form refuses the values.
    Refused(Vec<FieldError>),
}

/// Has the ledger of a call written.
///
/// # Errors
/// [`FailureKind::Unrecorded`] if nobody writes it, or the writer does not confirm it, [`FailureKind::DraftGone`] if the call sends a
/// draft that is not there any more.
async fn record(
    call: &PageCall,
    fetched: &FetchedDocument,
    steps: Vec<LedgerStep>,
) -> Result<(), UpstreamError> {
    let unrecorded = || UpstreamError::unsent(FailureKind::Unrecorded, "");
    let page = LedgerPage { url: fetched.url.to_string(), hash: Sha256::digest(&fetched.body).into() };
    let (reply, written) = oneshot::channel();
    call.ledger.send(LedgerAsk { page, steps, reply }).await.map_err(|_| unrecorded())?;
    match written.await.map_err(|_| unrecorded())? {
        LedgerReply::Committed => Ok(()),
        LedgerReply::DraftGone => Err(UpstreamError::unsent(FailureKind::DraftGone, "")),
    }
}

/// Returns the step of the submission: where the form goes, sealed with what is sent. What is sent with secrets is not part of it:
/// a caller could try secrets by sending the same to the same place.
fn submission(facts: &PageFacts, request: &SubmitRequest, has_secrets: bool) -> LedgerStep {
    let mut target = request.url.clone();
    target.set_query(None);
    target.set_fragment(None);
    let sent = Sha256::new()
        .chain_update(request.url.as_str())
        .chain_update(b"\0")
        .chain_update(&request.body)
        .finalize();
    LedgerStep {
        layer: LedgerLayer::Submit,
        selector: facts.selector.clone(),
        explanation: format!("sends-the-form-by-{}", request.method.as_str().to_ascii_lowercase()),
        original: None,
        value: Some(format!("{} {target}", request.method)),
        sealed: (!has_secrets).then(|| sent.iter().map(|byte| format!("{byte:02x}")).collect()),
        is_secret: false,
    }
}

fn result(landed: &Landed, page: &Url, about: &AboutForm) -> PageResult {
    let content_type = landed.headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok());
    let dom = landed.page.as_ref().and_then(|body| WebDom::parse(&decode_page(body, content_type).text).ok());
    let reply = SiteReply {
        status: landed.status.as_u16(),
        url: &landed.url,
        was_redirected: landed.was_redirected,
        is_challenge: landed.headers.get("cf-mitigated").is_some_and(|value| value == "challenge"),
        dom: dom.as_ref(),
    };
    let form = SubmittedForm {
        page,
        is_post: about.is_post,
        fields: about.fields.iter().map(String::as_str).collect(),
        values: about.values.iter().map(String::as_str).collect(),
        has_password: about.has_password,
    };
    let mut result = PageResult::read(&reply, &form);
    if let Some(message) = landed.stopped.clone() {
        result.errors.push(FieldError { field: None, message });
    }
    result.mask(&about.secrets.iter().map(|secret| secret.as_str()).collect::<Vec<_>>());
    result
}
