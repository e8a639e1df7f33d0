//! The page of permission requests: those that wait for a person, one that is named, and what people had remembered.

mod card;
mod decided;
mod grants;
mod line;

pub(super) use self::card::{state_of, verdict};

use std::sync::Arc;

use askama::Template;
use axum::extract::Path;
use axum::response::Response;
use http::StatusCode;
use url::form_urlencoded::Serializer;
use uuid::Uuid;

use self::card::{RequestCard, TurnEnd, too_late};
use self::decided::DecidedNotice;
use self::grants::GrantLine;
use self::line::RequestLine;
use super::act::{VisitorAct, perform};
use super::done::{DONE, notice, with_notice};
use super::filter_field::{self, FilterField};
use super::moment::Moment;
use super::nav::{Nav, Section};
use super::page_visit::PageVisit;
use crate::domain::consent::{
    ConsentDecision, ConsentState, DecidedVia, FENCE, GrantEffect, without_asking_again,
};
use crate::domain::risk::RiskLevel;
use crate::domain::tenant::Action;
use crate::faces::query::consent::filter;
use crate::faces::query::params::{ParamNames, Params, one_of};
use crate::gateway::{ConsentView, DecideRequest, GatewayError, LET_THROUGH_MAX};
use crate::store::{ConsentFilter, ConsentOrder};

/// Parameters of the page.
const PARAMS: ParamNames = &["request", "state", "tool", "owner", "risk", "decided", "cursor", "limit", DONE];
/// Parameters that filter requests beyond their state.
const FILTERS: [&str; 3] = ["tool", "owner", "risk"];
/// Memory of a request on a page, in bytes: as loaded, and as text.
const REQUEST_MEMORY_BYTES: usize = 28 * 1024;

/// Word of `state` for requests in any state.
const ANY: &str = "any";
/// Word of `state` for those that the visitor decided.
const DECIDED_BY_ME: &str = "decided_by_me";

/// State to choose.
struct StateOption {
    word: &'static str,
    label: String,
    /// Meaning of the word.
    about: &'static str,
    is_chosen: bool,
}

#[derive(Template)]
#[template(path = "permissions.html", config = "src/faces/console/askama.toml")]
struct PermissionsPage {
    nav: Nav,
    csrf: String,
    /// True if the page shows the one request that its address names.
    is_one: bool,
    /// True if the visitor's role decides requests.
    decides: bool,
    /// True if the visitor sees the requests of the own key alone.
    is_own: bool,
    /// True if the page shows requests that wait.
    is_inbox: bool,
    states: Vec<StateOption>,
    /// Fields of the filters beyond the state.
    fields: Vec<FilterField>,
    /// Names and values of those that are set: a decision leads back to the same ones.
    kept: Vec<(&'static str, String)>,
    /// True if one of these filters is set.
    is_filtered: bool,
    /// Notice about the request that the visitor has just decided; `None` without one.
    decided: Option<DecidedNotice>,
    /// Notice of another act that the visitor has just done; `None` without one.
    done: Option<String>,
    /// Requests that a person may decide about, and the one that is named.
    cards: Vec<RequestCard>,
    /// Requests of a list that is not of those which wait.
    lines: Vec<RequestLine>,
    /// True if the page is not the first one.
    is_further: bool,
    /// Link to the next page; `None` if there is none.
    next: Option<String>,
    grants: Vec<GrantLine>,
    /// Sentence on what a remembered decision does to the one call that the page shows; `None` without such a decision, and where the card
    /// says it.
    beside_grant: Option<String>,
    has_more_grants: bool,
}

/// Returns the link to a permission request.
pub(super) fn href_of(id: Uuid) -> String {
    format!("{}?request={id}", Section::Permissions.href())
}

/// Returns what a person decided about a request, and the way, or else what its state means; `None` for a request that the visitor may
/// not see or that cannot be read now.
pub(super) async fn outcome_of(visit: &PageVisit, id: Uuid) -> Option<String> {
    let view = visit.gateway().consent.get(visit.caller(), id).await.ok()?;
    let meaning = || view.meaning(|at| Moment::new(at, visit.now()).exact());
    Some(verdict(&view).unwrap_or_else(|| format!("{}: {}", state_of(&view), meaning())))
}

/// Shows the page.
pub(super) async fn list(visit: PageVisit) -> Response {
    let page = match requests(&visit).await {
        Err(error @ GatewayError::NotFound("permission request")) => {
            let text = "There is no such permission request for you: the link may be wrong, the request may be deleted by now, or it is \
                        one that others may see.";
            return visit.failed_with(Section::Permissions, &error, text);
        }
        page => page,
    };
    visit.answer_read(("consent.list", None), Section::Permissions, page)
}

async fn requests(visit: &PageVisit) -> Result<Response, GatewayError> {
    visit.caller().authorise(Action::SeeOwnConsent)?;
    visit.needs_tenant()?;
    let given = visit.given(PARAMS)?;
    let params = Params::of(&given, PARAMS)?;
    let page = params.page()?;
    let named = params.text("request").map(|id| Uuid::try_parse(id).ok());
    let decides = visit.caller().role.may(Action::DecideConsent);
    let words: Vec<&'static str> = state_words(decides).collect();
    let chosen = params.one_of("state", &words)?.unwrap_or(ConsentState::Pending.as_str());
    let state = ConsentState::ALL.into_iter().find(|state| state.as_str() == chosen);
    visit.expect(page.limit * REQUEST_MEMORY_BYTES).await?;
    let consent = &visit.gateway().consent;
    let (views, next) = match named {
        Some(id) => {
            let id = id.ok_or(GatewayError::NotFound("permission request"))?;
            (vec![consent.get(visit.caller(), id).await?], None)
        }
        None => {
            let last = page.after(None, |key| Uuid::try_parse(key).ok().map(Some))?;
            let is_own = chosen == DECIDED_BY_ME;
            let filter = ConsentFilter {
                state,
                decided_by: is_own.then_some(visit.caller().key),
                behind: last,
                order: match state {
                    // of those that wait, the oldest comes first
                    Some(ConsentState::Pending) => ConsentOrder::Oldest,
                    _ if is_own => ConsentOrder::LastDecided,
                    _ => ConsentOrder::Newest,
                },
                ..filter(&params)?
            };
            let mut views = consent.list(visit.caller(), filter, page.fetch()).await?;
            let (shown, next) = page.split(&views, |view| view.row.id.to_string());
            let shown = shown.len();
            views.truncate(shown);
            (views, next.map(|cursor| link(&given, &cursor)))
        }
    };
    let one = views.first().filter(|_| named.is_some());
    let (grants, has_more_grants) = grants::load(visit, one).await?;
    let keys = views.iter().map(|view| view.row.principal).chain(grants.iter().map(|grant| grant.principal));
    let names = consent.names_of_keys(visit.caller(), keys.collect()).await?;
    let grants: Vec<GrantLine> =
        grants.iter().map(|grant| grants::line(visit, grant, names.get(&grant.principal))).collect();
    let allowed = one.and_then(|view| Some((view, grants.iter().find(|grant| grant.allows(view))?)));
    let is_inbox = state == Some(ConsentState::Pending);
    let are_cards = is_inbox || named.is_some();
    // a fence refuses what a remembered decision lets through as well
    let is_fenced = |view: &ConsentView| {
        let ended = view.row.ended_at.filter(|_| view.row.state == ConsentState::Cancelled);
        ended.is_some_and(|at| at + FENCE > visit.now())
    };
    let allowed = allowed.filter(|(view, _)| !is_fenced(view));
    let beside_grant = allowed.map(|(view, grant)| beside_grant(visit, view, grant));
    let offers_end = |view: &&ConsentView| {
        let is_open =
            view.row.state == ConsentState::Pending && view.options.contains(&ConsentDecision::CancelTurn);
        are_cards && decides && is_open
    };
    let with_end: Vec<&ConsentView> = views.iter().filter(offers_end).collect();
    let in_turns = consent.count_in_turns(visit.caller(), &with_end).await?;
    let cooled = match one.filter(|view| is_denied(view) && visit.caller().role.may(Action::SeeConsent)) {
        Some(view) => consent.cooldown(visit.caller(), view).await?,
        None => None,
    };
    let remembered = one.and_then(|view| remembered_by(visit, view, (&grants, has_more_grants)));
    let refused = remembered.or_else(|| cooled.map(|until| decided::cooldown(visit, until)));
    let may_be_of_turn = |view: &&ConsentView| {
        [ConsentState::Cancelled, ConsentState::Unknown].iter().any(|state| view.row.state == *state)
    };
    let ender = match one.filter(may_be_of_turn) {
        Some(view) => consent.ended_by(visit.caller(), view).await?.map(|ender| TurnEnd {
            href: href_of(ender.id),
            was_under_way: view.row.state == ConsentState::Unknown,
            owner: ender.owner,
            at: ender.at.map(|at| Moment::new(at, visit.now())),
            comment: ender.comment,
        }),
        None => None,
    };
    let failed = match one.filter(|view| view.row.state == ConsentState::Failed) {
        Some(view) => {
            consent.status_of_call(visit.caller(), view).await.ok().flatten().and_then(card::failed)
        }
        None => None,
    };
    let let_through = match one.filter(|view| is_remembered(view)) {
        Some(view) => let_through(visit, view).await,
        None => None,
    };
    let card = |view: &ConsentView| {
        let in_turn = in_turns.get(&view.row.id).copied().unwrap_or_default();
        let card = RequestCard::of(visit, view, names.get(&view.row.principal), in_turn);
        let beside = beside_grant.clone().filter(|_| is_denied(view));
        let said = beside.or_else(|| refused.clone()).or_else(|| failed.clone());
        RequestCard {
            runs_by_grant: card.is_pending && grants.iter().any(|grant| grant.allows(view)),
            ended_by: ender.clone(),
            let_through: let_through.clone(),
            meaning: said.unwrap_or_else(|| meaning_of(view, &card, beside_grant.is_some())),
            ..card
        }
    };
    let line = |view: &ConsentView| RequestLine::of(visit, view, names.get(&view.row.principal));
    let nav = visit.nav(Section::Permissions);
    let kept: Vec<(&str, String)> =
        given.iter().filter(|(name, _)| FILTERS.contains(name)).cloned().collect();
    let option = |word: &&'static str| StateOption {
        word,
        label: word.replace('_', " "),
        about: about_word(word),
        is_chosen: *word == chosen,
    };
    let page = PermissionsPage {
        csrf: nav.csrf.clone(),
        nav,
        is_one: named.is_some(),
        decides,
        is_own: !visit.caller().role.may(Action::SeeConsent),
        is_inbox,
        states: words.iter().map(option).collect(),
        fields: vec![
            filter_field::tool(&given),
            filter_field::name(&given, "owner", "Owner of the key"),
            filter_field::choice(&given, "risk", "Risk", &RiskLevel::WORDS),
        ],
        is_filtered: !kept.is_empty(),
        kept,
        decided: DecidedNotice::of(visit, params.text("decided")).await,
        done: notice(visit, &params),
        lines: views.iter().filter(|_| !are_cards).map(line).collect(),
        cards: views.iter().filter(|_| are_cards).map(card).collect(),
        is_further: given.iter().any(|(name, _)| *name == "cursor"),
        next,
        grants,
        beside_grant: beside_grant.filter(|_| !one.is_some_and(is_denied)),
        has_more_grants: has_more_grants && one.is_none(),
    };
    visit.show(StatusCode::OK, &page).await
}

/// Returns the consequence of a request's state, beside what its page says elsewhere: why its call does not run now, or that a remembered
/// decision lets it run.
fn meaning_of(view: &ConsentView, card: &RequestCard, has_grant: bool) -> String {
    match (card.stale.is_some() || has_grant, view.row.state.known()) {
        (true, Some(ConsentState::Granted)) => "a person allowed the call, and it has not run yet".to_owned(),
        _ if has_grant => without_asking_again(&card.meaning).to_owned(),
        _ => card.meaning.clone(),
    }
}

/// Returns whether the decision about a request was remembered, and lets calls run.
fn is_remembered(view: &ConsentView) -> bool {
    let decision = view.row.decision.as_ref().and_then(|decision| decision.known());
    decision.and_then(ConsentDecision::remembers) == Some(GrantEffect::Allow)
}

/// Returns a sentence on the calls that the decision about a request has let run; `None` for a visitor who sees the own requests alone, and if
/// they cannot be counted now.
async fn let_through(visit: &PageVisit, view: &ConsentView) -> Option<String> {
    match visit.gateway().consent.count_let_through(visit.caller(), view).await.ok()? {
        0 => Some("no other call ran because of it, by the log".to_owned()),
        1 => Some("1 other call ran because of it".to_owned()),
        LET_THROUGH_MAX => Some(format!("{LET_THROUGH_MAX} other calls, or more, ran because of it")),
        number => Some(format!("{number} other calls ran because of it")),
    }
}

fn is_denied(view: &ConsentView) -> bool {
    view.row.state == ConsentState::Denied
}

/// Returns the consequence of the decision about a request that was remembered, and refuses calls: until when, or that it is over. `None` for
/// other requests, and where it is not among the grants that were looked at, of which `has_more` says whether they are all.
fn remembered_by(
    visit: &PageVisit,
    view: &ConsentView,
    (grants, has_more): (&[GrantLine], bool),
) -> Option<String> {
    let decision = view.row.decision.as_ref()?.known()?;
    if decision != ConsentDecision::RejectAlways || !is_denied(view) {
        return None;
    }
    let operation = view.row.operation_type.as_str();
    match grants.iter().find(|grant| grant.is_of(view.row.id)) {
        Some(grant) => Some(format!(
            "calls of this tool by this key as {operation} are refused until {}",
            grant.expires.exact()
        )),
        None if has_more => None,
        None => Some(format!(
            "what was remembered is over, or was revoked; {}",
            view.meaning(|at| Moment::new(at, visit.now()).exact())
        )),
    }
}

/// Returns what a decision that allows the tool does to the call of a request.
fn beside_grant(visit: &PageVisit, view: &ConsentView, grant: &GrantLine) -> String {
    let exact = |at| Moment::new(at, visit.now()).exact();
    let row = &view.row;
    let until = grant.expires.exact();
    match row.state.known() {
        Some(ConsentState::Pending) => format!(
            "A remembered decision lets this call run if the agent repeats it. Deny refuses this very call as long as that \
             decision holds; {}.",
            match grant.may_revoke {
                true => "revoke it below to be asked about others",
                false => "an admin, or who gave it, may revoke it",
            }
        ),
        Some(ConsentState::Denied)
            if row.decided_at.is_some_and(|at| grant.is_later_than(at)) && row.expires_at > visit.now() => format!(
            "the same call is refused until {}; after that a later decision, which allows this tool until {until}, lets it run",
            exact(row.expires_at)
        ),
        Some(ConsentState::Denied) if row.decided_at.is_none_or(|at| !grant.is_later_than(at)) => format!(
            "the same call is refused until {}: a remembered decision allows this tool until {until}, so other calls run, and \
             this one stays refused as long as that decision holds",
            exact(row.expires_at.max(grant.ends_at()))
        ),
        _ => "A remembered decision allows this tool: the same call runs without asking as long as that decision holds."
            .to_owned(),
    }
}

/// Returns the words that `state` may have.
fn state_words(decides: bool) -> impl Iterator<Item = &'static str> {
    let further = [Some(ANY), decides.then_some(DECIDED_BY_ME)];
    ConsentState::ALL.map(ConsentState::as_str).into_iter().chain(further.into_iter().flatten())
}

/// Returns what a word that `state` may have means.
fn about_word(word: &str) -> &'static str {
    match ConsentState::parse(word) {
        Some(state) => about(state),
        None if word == DECIDED_BY_ME => "Those that you decided, the last decision first.",
        None => "Those in any state.",
    }
}

/// Returns what a state means, as a sentence.
pub(super) fn about(state: ConsentState) -> &'static str {
    match state {
        ConsentState::Pending => "A person is asked.",
        ConsentState::Granted => "A person allowed the call, and it has not run yet.",
        ConsentState::Denied => "A person refused the call.",
        ConsentState::TimedOut => "Nobody answered in time.",
        ConsentState::Cancelled => "The agent's turn was ended.",
        ConsentState::Lapsed => {
            "The request let nothing run: an allowed call was not repeated in time, the tool or a key changed, what was remembered was revoked, or a \
             remembered decision made an answer needless."
        }
        ConsentState::Undeliverable => "Nobody could be asked.",
        ConsentState::Consumed => "The permission is used up: the call is under way.",
        ConsentState::Succeeded => "The call ran.",
        ConsentState::Failed => "The call failed, or was not sent.",
        ConsentState::Unknown => "The call may have run: its answer was lost.",
    }
}

/// Returns the link to the next page of the same requests.
fn link(given: &[(&'static str, String)], cursor: &str) -> String {
    let mut query = Serializer::new(String::new());
    query.extend_pairs(given.iter().filter(|(name, _)| *name != "cursor"));
    query.append_pair("cursor", cursor);
    format!("{}?{}", Section::Permissions.href(), query.finish())
}

/// Decides a permission request, and leads to those that wait, with a notice of what was decided; or to what somebody else decided before.
pub(super) async fn decide(Path(id): Path<String>, visit: PageVisit) -> Response {
    let decided = decision(&visit, &id).await;
    if let Err(error @ GatewayError::Conflict(_)) = &decided
        && let Some(view) = asked(&visit, Uuid::try_parse(&id).ok()).await
    {
        if is_own_decision(&visit, &view) {
            // a button that was pressed twice
            return visit.answer_act(Section::Permissions, &decided::href_after(&visit, view.row.id), Ok(()));
        }
        let link = (&*href_of(view.row.id), "See this request");
        return visit.failed_at(Section::Permissions, error, &too_late(&visit, &view), link);
    }
    let to = decided.as_ref().map(|view| decided::href_after(&visit, view.row.id)).unwrap_or_default();
    visit.answer_act(Section::Permissions, &to, decided.map(drop))
}

/// Returns whether a request has the decision of this form already, by the visitor, a moment ago.
fn is_own_decision(visit: &PageVisit, view: &ConsentView) -> bool {
    let visitor = visit.caller().key.map(|key| key.0).unwrap_or_default();
    let there = view.row.decision.as_ref().map(|decision| decision.as_str());
    let is_recent = view.row.decided_at.is_some_and(|at| visit.now() - at < decided::SHOWN_FOR);
    is_recent && view.row.decided_by == Some(visitor) && there == Some(visit.field("decision").trim())
}

async fn decision(visit: &PageVisit, id: &str) -> Result<ConsentView, GatewayError> {
    let id = Uuid::try_parse(id).ok();
    let asked = asked(visit, id).await;
    let [word, comment] = ["decision", "comment"].map(|name| visit.field(name).trim().to_owned());
    let act = VisitorAct {
        server: asked.as_ref().map(|view| view.row.server.clone()),
        tool: asked.map(|view| view.row.tool),
        consent_id: id,
        fields: vec![("decision", word.clone()), ("comment", comment.clone())],
        ..VisitorAct::new("consent.decide", Action::DecideConsent)
    };
    let (gateway, attempt) = (Arc::clone(visit.gateway()), visit.attempt().clone());
    let work = async move {
        let id = id.ok_or(GatewayError::NotFound("permission request"))?;
        let request = DecideRequest {
            decision: one_of("decision", &word, &ConsentDecision::ALL)?,
            comment: Some(comment).filter(|comment| !comment.is_empty()),
            expires_in_s: None,
            via: DecidedVia::Console,
        };
        gateway.consent.decide(&attempt, id, request).await
    };
    perform(visit, act, work).await
}

/// Returns the permission request that an act concerns, for its record; `None` if the visitor sees none.
async fn asked(visit: &PageVisit, id: Option<Uuid>) -> Option<ConsentView> {
    visit.gateway().consent.get(visit.caller(), id?).await.ok()
}

/// Revokes a grant, and leads to the page with a notice.
pub(super) async fn revoke(Path(id): Path<String>, visit: PageVisit) -> Response {
    let id = Uuid::try_parse(&id).ok();
    let consent_id = match id {
        Some(id) => visit.gateway().consent.request_of_grant(visit.caller(), id).await,
        None => None,
    };
    let asked = asked(&visit, consent_id).await;
    let about = asked
        .as_ref()
        .map(|view| format!(" about {}:{}, of {}", view.row.server, view.row.tool, view.row.owner));
    let revoked = revocation(&visit, id, asked).await;
    let notice = format!("Revoked: the remembered decision{}.", about.unwrap_or_default());
    let to = with_notice(&visit, Section::Permissions.href(), &notice);
    visit.answer_act(Section::Permissions, &to, revoked)
}

/// Revokes a grant, which is about the request `asked` if the visitor sees one.
async fn revocation(
    visit: &PageVisit,
    id: Option<Uuid>,
    asked: Option<ConsentView>,
) -> Result<(), GatewayError> {
    let act = VisitorAct {
        server: asked.as_ref().map(|view| view.row.server.clone()),
        consent_id: asked.as_ref().map(|view| view.row.id),
        tool: asked.map(|view| view.row.tool),
        ..VisitorAct::new("consent.revoke", Action::SeeOwnConsent)
    };
    let (gateway, attempt) = (Arc::clone(visit.gateway()), visit.attempt().clone());
    let work = async move {
        let id = id.ok_or(GatewayError::NotFound("grant"))?;
        gateway.consent.revoke_grant(&attempt, id).await
    };
    perform(visit, act, work).await
}
