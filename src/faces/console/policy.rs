//! The page of the tenant's policy: its rules, a form that changes them, what they would have asked, and why they decide as they do.

mod draft;
mod explanation;
mod key_choice;
mod key_rules;
mod replay;

use std::collections::HashMap;
use std::sync::Arc;

use askama::Template;
use axum::extract::Path;
use axum::response::{IntoResponse, Redirect, Response};
use http::StatusCode;
use uuid::Uuid;

use self::draft::{EXAMPLES, Editor, PolicyDraft};
use self::explanation::{ExplainForm, Explanation};
use self::key_choice::KeyChoice;
use self::key_rules::KeyRules;
use self::replay::CheckedDraft;
use super::act::{VisitorAct, perform};
use super::done::{DONE, notice, with_notice};
use super::moment::Moment;
use super::nav::{Nav, Section};
use super::page_visit::{PageVisit, status_of};
use super::text::{LongText, indented, short};
use crate::domain::policy::{PolicyMode, RuleSet, SELECTORS};
use crate::domain::settings;
use crate::domain::tenant::Action;
use crate::faces::query::cursor::{DEFINITIONS_BYTES_MAX, DEFINITIONS_MEMORY_BYTES};
use crate::faces::query::params::{ParamNames, Params};
use crate::gateway::{GatewayError, PolicyView};
use crate::store::{PolicyVersion, PrincipalName};

/// Parameters of the page.
const PARAMS: ParamNames = &["version", DONE];
/// Memory of the page, in bytes: its versions, and the rules in force as loaded and as text.
const PAGE_MEMORY_BYTES: usize = DEFINITIONS_MEMORY_BYTES + 1024 * 1024;
/// Most versions that are listed.
const VERSIONS_MAX: usize = 20;

/// Beginning of the sentence about rules that the mode `observe` leaves without effect.
const OBSERVES: &str =
    "In mode observe rules ask about and deny nothing, unless they have \"enforced\": true;";
/// Setting that the mode is.
const MODE: &str = "policy_mode";
/// Longest name or owner of a key in the list, in characters.
const NAME_CHARS_MAX: usize = 60;

/// Version in the list.
struct VersionLine {
    version: i64,
    href: String,
    mode: String,
    rules: usize,
    /// Owner and name of the key that made it; an id if it is gone.
    by: String,
    /// Id of that key or person; empty for the platform operator.
    by_id: String,
    created: Moment,
    /// True if it is in force.
    is_there: bool,
}

#[derive(Template)]
#[template(path = "policy.html", config = "src/faces/console/askama.toml")]
struct PolicyPage {
    nav: Nav,
    csrf: String,
    /// Reason why something was not done; `None` if it was.
    failure: Option<String>,
    /// Notice of what the visitor has just done; `None` without one.
    done: Option<String>,
    version: i64,
    mode: &'static str,
    /// Meaning of the setting that the mode is.
    mode_about: &'static str,
    /// Modes, each with its meaning.
    modes: Vec<(&'static str, &'static str)>,
    warnings: Vec<String>,
    /// Rules in force; `None` where the form has them.
    rules: Option<LongText>,
    /// Form for other rules; `None` for roles that change none.
    editor: Option<Editor>,
    checked: Option<CheckedDraft>,
    explain: ExplainForm,
    /// Keys that have rules of their own.
    key_rules: KeyRules,
    /// Keys whose call can be explained.
    keys: KeyChoice,
    explanation: Option<Explanation>,
    /// True if the form has rules that are not saved.
    is_unsaved: bool,
    /// Names of selectors, joined.
    selectors: String,
    /// Rules to begin with: what each does, and its text.
    examples: &'static [(&'static str, &'static str)],
    versions: Vec<VersionLine>,
    has_more_versions: bool,
}

impl PolicyPage {
    /// Returns whether the page has a form for other rules. Its fields go with those of a call that is explained, so that what is typed stays.
    fn has_form(&self) -> bool {
        self.editor.as_ref().is_some_and(|editor| !editor.is_too_long())
    }
}

/// Parts of the page that answer a form.
#[derive(Default)]
struct Answers {
    failure: Option<String>,
    /// Rules that the visitor wrote; `None` before.
    draft: Option<PolicyDraft>,
    checked: Option<CheckedDraft>,
    explain: ExplainForm,
    explanation: Option<Explanation>,
}

/// Shows the page.
pub(super) async fn show(visit: PageVisit) -> Response {
    let page = page(&visit, StatusCode::OK, Answers::default()).await;
    visit.answer_read(("policy.get", None), Section::Policy, page)
}

async fn page(visit: &PageVisit, status: StatusCode, answers: Answers) -> Result<Response, GatewayError> {
    let caller = visit.caller();
    caller.authorise(Action::SeePolicies)?;
    visit.needs_tenant()?;
    let given = visit.given(PARAMS)?;
    let params = Params::of(&given, PARAMS)?;
    let wanted = params.count("version", 0, u32::MAX as usize)?;
    let wanted = i64::try_from(wanted).ok().filter(|wanted| *wanted > 0);
    visit.expect(PAGE_MEMORY_BYTES).await?;
    let tenants = &visit.gateway().tenants;
    let PolicyView { version, mode, rules, warnings } = tenants.read_policy(caller, None).await?;
    let list =
        async |before, limit| tenants.list_policies(caller, None, before, limit, DEFINITIONS_BYTES_MAX).await;
    let earlier = match wanted {
        Some(wanted) => {
            let found = list(wanted + 1, 1).await?.into_iter().find(|row| row.version == wanted);
            Some(found.ok_or(GatewayError::NotFound("version"))?)
        }
        None => None,
    };
    let mut versions = list(i64::MAX, VERSIONS_MAX as i64 + 1).await?;
    let has_more_versions = versions.len() > VERSIONS_MAX;
    versions.truncate(VERSIONS_MAX);
    let makers = tenants.policy_makers(caller, &versions).await?;
    let is_conflict = status == StatusCode::CONFLICT;
    let changes = caller.role.may(Action::ManageKeys);
    let is_unsaved = answers.draft.as_ref().is_some_and(|draft| draft.differs_from(&rules, mode));
    let editor =
        changes.then(|| Editor::of((version, mode, &rules), answers.draft, earlier.as_ref(), is_conflict));
    let shown = match earlier.filter(|_| !changes) {
        Some(earlier) => Some(earlier.rules),
        None => {
            (!changes || is_conflict || editor.as_ref().is_some_and(Editor::is_too_long)).then_some(rules)
        }
    };
    let versions: Vec<VersionLine> = versions.iter().map(|row| line(visit, row, &makers, version)).collect();
    let failure = if is_conflict { Some(changed_meanwhile(versions.first())) } else { answers.failure };
    let nav = visit.nav(Section::Policy);
    let page = PolicyPage {
        csrf: nav.csrf.clone(),
        nav,
        failure,
        done: notice(visit, &params),
        version,
        mode: mode.as_str(),
        mode_about: settings::about(MODE).unwrap_or_default(),
        modes: PolicyMode::WORDS
            .map(|word| (word, settings::about_word(MODE, word).unwrap_or_default()))
            .into(),
        warnings,
        rules: shown.map(|rules| LongText::of(&indented(&rules))),
        editor,
        checked: answers.checked,
        keys: KeyChoice::load(visit, &answers.explain.key).await?,
        key_rules: KeyRules::load(visit)?,
        explain: answers.explain,
        explanation: answers.explanation,
        is_unsaved,
        selectors: SELECTORS.join(", "),
        examples: &EXAMPLES,
        versions,
        has_more_versions,
    };
    visit.show(status, &page).await
}

fn line(
    visit: &PageVisit,
    row: &PolicyVersion,
    makers: &HashMap<Uuid, PrincipalName>,
    there: i64,
) -> VersionLine {
    let maker = row.created_by.map(|id| (id, makers.get(&id)));
    let rules = serde_json::from_str::<Vec<serde::de::IgnoredAny>>(&row.rules);
    VersionLine {
        version: row.version,
        href: format!("{}?version={}", Section::Policy.href(), row.version),
        mode: row.mode.clone().unwrap_or_else(|| "not set".to_owned()),
        rules: rules.map_or(0, |rules| rules.len()),
        by: match &maker {
            None => "the platform operator".to_owned(),
            Some((id, None)) => format!("key {id}"),
            Some((_, Some(PrincipalName { owner, key_name: None }))) => short(owner, NAME_CHARS_MAX),
            Some((_, Some(PrincipalName { owner, key_name: Some(name) }))) => {
                format!("{} (key {})", short(owner, NAME_CHARS_MAX), short(name, NAME_CHARS_MAX))
            }
        },
        by_id: maker.map(|(id, _)| id.to_string()).unwrap_or_default(),
        created: Moment::new(row.created_at, visit.now()),
        is_there: row.version == there,
    }
}

/// Changes, checks or explains the policy, and shows what came of it.
pub(super) async fn on_policy(Path(verb): Path<String>, visit: PageVisit) -> Response {
    match verb.as_str() {
        "update" => update(&visit).await,
        "check" => {
            let page = check(&visit).await;
            visit.answer_read(("policy.explain", None), Section::Policy, page)
        }
        "explain" => {
            let page = explain(&visit).await;
            visit.answer_read(("policy.explain", None), Section::Policy, page)
        }
        _ => visit.failed(Section::Policy, &GatewayError::NotFound("page")),
    }
}

async fn update(visit: &PageVisit) -> Response {
    let draft = PolicyDraft::of(visit);
    let act = VisitorAct::new("policy.update", Action::ManageKeys);
    // as REST records it, where the form can be read
    let act = match draft.sent() {
        Some(sent) => VisitorAct { sent: Some(sent), ..act },
        None => VisitorAct { fields: draft.fields(), ..act },
    };
    let (gateway, caller, sent) = (Arc::clone(visit.gateway()), Arc::clone(visit.caller()), draft.clone());
    let work = async move { gateway.tenants.put_policy(&caller, None, sent.document()?).await };
    let error = match perform(visit, act, work).await {
        Ok(saved) => {
            let to = with_notice(visit, Section::Policy.href(), &saved_text(&saved));
            return Redirect::to(&to).into_response();
        }
        Err(error @ (GatewayError::Invalid { .. } | GatewayError::Conflict(_) | GatewayError::Limit(_))) => {
            error
        }
        Err(error) => return visit.failed(Section::Policy, &error),
    };
    let (failure, explain) = (Some(error.to_string()), ExplainForm::of(visit));
    let answers = Answers { failure, draft: Some(draft), explain, ..Answers::default() };
    let page = page(visit, status_of(&error).0, answers).await;
    page.unwrap_or_else(|error| visit.failed(Section::Policy, &error))
}

/// Returns what is said of a policy that was saved.
fn saved_text(saved: &PolicyView) -> String {
    let text = format!("Saved: version {} is in force.", saved.version);
    let has_unenforced = || RuleSet::parse(&saved.rules).is_ok_and(|rules| rules.has_unenforced());
    match saved.mode == PolicyMode::Observe && has_unenforced() {
        true => format!("{text} {OBSERVES} the log says what they would have done."),
        false => text,
    }
}

/// Returns what is said of a change that was not made, since the policy is another one by now: the newest of these versions.
fn changed_meanwhile(newest: Option<&VersionLine>) -> String {
    let newest =
        newest.map(|line| format!(" (version {} by {}, {})", line.version, line.by, line.created.exact()));
    format!(
        "The policy was changed meanwhile{}, so nothing was saved. Your rules are in the form, those in force below it: save again \
         to replace them.",
        newest.unwrap_or_default()
    )
}

/// Checks rules that are not saved, and says what they would have asked in the last week.
async fn check(visit: &PageVisit) -> Result<Response, GatewayError> {
    visit.caller().authorise(Action::SeePolicies)?;
    visit.needs_tenant()?;
    let draft = PolicyDraft::of(visit);
    let (status, failure, checked) = match draft.document() {
        Ok(document) => (StatusCode::OK, None, Some(CheckedDraft::of(visit, &document).await?)),
        Err(error) => (StatusCode::BAD_REQUEST, Some(error.to_string()), None),
    };
    let explain = ExplainForm::of(visit);
    page(visit, status, Answers { failure, draft: Some(draft), checked, explain, ..Answers::default() }).await
}

/// Explains what the policies say of a call that is not made.
async fn explain(visit: &PageVisit) -> Result<Response, GatewayError> {
    visit.caller().authorise(Action::SeePolicies)?;
    visit.needs_tenant()?;
    let mut explain = ExplainForm::of(visit);
    let explained = match explain.request() {
        Ok(request) => visit.gateway().calls.explain(visit.caller(), &request).await,
        Err(error) => Err(error),
    };
    let (status, explanation) = match explained {
        Ok(explained) => (StatusCode::OK, Some(Explanation::of(&explained))),
        Err(error @ GatewayError::Forbidden(_)) => return Err(error),
        Err(error) => {
            explain.fail(&error);
            // no such tool
            let is_refused = matches!(error, GatewayError::Refused(_));
            (if is_refused { StatusCode::NOT_FOUND } else { status_of(&error).0 }, None)
        }
    };
    let draft = (!visit.field("version").is_empty()).then(|| PolicyDraft::of(visit));
    page(visit, status, Answers { draft, explain, explanation, ..Answers::default() }).await
}
