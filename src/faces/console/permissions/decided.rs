//! Notice above the requests that wait: what the visitor has just decided.

use chrono::{DateTime, TimeDelta, Utc};
use url::form_urlencoded::Serializer;
use uuid::Uuid;

use super::card::{did, hindrance, meaning};
use super::grants;
use super::line::arguments;
use crate::domain::consent::{COOLDOWN_DENIALS, ConsentDecision, ConsentState, GrantEffect};
use crate::faces::console::moment::Moment;
use crate::faces::console::nav::Section;
use crate::faces::console::page_visit::PageVisit;
use crate::faces::console::text::short_told;
use crate::gateway::ConsentView;

/// Time after the decision for which its notice is shown.
pub(super) const SHOWN_FOR: TimeDelta = TimeDelta::minutes(2);
/// Longest action in the notice, in characters: on a phone what is decided next has to stay in sight.
const NOTICE_CHARS_MAX: usize = 50;
/// Most remembered decisions that are looked at.
const GRANTS_MAX: i64 = 100;

/// Notice of a decision.
pub(super) struct DecidedNotice {
    /// Verdict in words.
    pub(super) did: String,
    /// Class by which the verdict stands out.
    pub(super) tone: &'static str,
    /// Action of the call, in words.
    pub(super) told: String,
    /// Beginning of the arguments; `None` where the action says what they are.
    pub(super) arguments: Option<String>,
    /// Canonical name of the tool.
    pub(super) tool: String,
    /// Owner of the key that asked.
    pub(super) owner: String,
    /// Name of that key; `None` without one.
    pub(super) key_name: Option<String>,
    /// Consequence for the call.
    pub(super) meaning: String,
    /// Link to the remembered decision on the page; `None` without one.
    pub(super) grant: Option<String>,
    /// Link to the request.
    pub(super) href: String,
    /// Time of the decision.
    pub(super) at: Moment,
    /// Seconds until the notice goes away, at least 1.
    pub(super) left_s: i64,
}

/// Returns the link to the requests that wait, with a notice of the decision about one, and the filters of the page that was decided on.
pub(super) fn href_after(visit: &PageVisit, id: Uuid) -> String {
    let mut query = Serializer::new(format!("{}?decided={id}", Section::Permissions.href()));
    let kept = super::FILTERS.map(|name| (name, visit.field(name))).into_iter();
    query.extend_pairs(kept.filter(|(_, value)| !value.is_empty()));
    query.finish()
}

impl DecidedNotice {
    /// Creates the notice about the request that an address names. `None` without a name, and for a request that the visitor did not
    /// decide in the last minutes.
    pub(super) async fn of(visit: &PageVisit, id: Option<&str>) -> Option<DecidedNotice> {
        let id = Uuid::try_parse(id?).ok()?;
        let consent = &visit.gateway().consent;
        let view = consent.get(visit.caller(), id).await.ok()?;
        let row = &view.row;
        let visitor = visit.caller().key.map(|key| key.0).unwrap_or_default();
        let at = row.decided_at.filter(|_| row.decided_by == Some(visitor))?;
        let left = SHOWN_FOR - (visit.now() - at);
        if left <= TimeDelta::zero() || left > SHOWN_FOR + SHOWN_FOR {
            return None;
        }
        let decision = row.decision.as_ref()?.known()?;
        let (did, tone) = did(decision, view.risk);
        let (meaning, grant) = match decision.remembers() {
            Some(effect) => remembered(visit, &view, effect).await,
            None if decision == ConsentDecision::CancelTurn => (ended(visit, &view).await, None),
            None => (once(visit, &view).await, None),
        };
        let names = consent.names_of_keys(visit.caller(), vec![row.principal]).await.unwrap_or_default();
        Some(DecidedNotice {
            did,
            tone,
            told: short_told(&view.told_shortly(visit.language()), NOTICE_CHARS_MAX),
            arguments: arguments(&view),
            tool: format!("{}:{}", row.server, row.tool),
            owner: row.owner.clone(),
            key_name: names.get(&row.principal).cloned(),
            meaning,
            grant,
            href: super::href_of(id),
            at: Moment::new(at, visit.now()),
            left_s: left.num_seconds().max(1),
        })
    }
}

/// Returns the consequence of a decision about the call alone, beside a remembered decision that allows its tool.
async fn once(visit: &PageVisit, view: &ConsentView) -> String {
    if view.row.state != ConsentState::Denied
        && let Some(why) = hindrance(visit, view)
    {
        return why.trim_end_matches('.').to_owned();
    }
    if view.row.state == ConsentState::Denied
        && let Some(until) = visit.gateway().consent.cooldown(visit.caller(), view).await.ok().flatten()
    {
        return cooldown(visit, until);
    }
    let grants = grants::load(visit, Some(view)).await.map(|(grants, _)| grants).unwrap_or_default();
    let allows = grants.iter().map(|grant| grants::line(visit, grant, None)).find(|grant| grant.allows(view));
    // short: what is to be decided next is below
    match allows {
        Some(_) if view.row.state == ConsentState::Granted => {
            "a remembered decision allows this tool already, so the same call runs whenever the agent repeats it, as long as that decision \
             holds"
                .to_owned()
        }
        Some(grant) if view.row.state == ConsentState::Denied => super::beside_grant(visit, view, &grant),
        _ if view.row.state == ConsentState::Denied => {
            let until = Moment::new(view.row.expires_at, visit.now()).exact();
            format!("the same call is refused until {until}")
        }
        _ if view.row.state == ConsentState::Granted => {
            view.meaning(|at| Moment::new(at, visit.now()).exact())
        }
        _ => meaning(visit, view),
    }
}

/// Returns the consequence of so many denials that the tool is refused without asking.
pub(super) fn cooldown(visit: &PageVisit, until: DateTime<Utc>) -> String {
    let until = Moment::new(until, visit.now()).exact();
    format!(
        "this tool was denied {COOLDOWN_DENIALS} times or more to this key, so every call of it that would ask is refused until {until}, \
         whatever its arguments"
    )
}

/// Returns the consequence of the end of a turn, with the number of other requests that ended with it, where it can be read now.
async fn ended(visit: &PageVisit, view: &ConsentView) -> String {
    let meaning = view.meaning(|at| Moment::new(at, visit.now()).exact());
    let reach = visit.gateway().consent.count_in_turns(visit.caller(), &[view]).await;
    let left = reach.ok().and_then(|reach| reach.get(&view.row.id).map(|reach| reach.under_way));
    let cut_off = match left {
        None => String::new(),
        Some(0) => ". The log has no call of it under way, reads not counted".to_owned(),
        Some(1) => ". The log still has 1 call of it under way, reads not counted".to_owned(),
        Some(left) => format!(". The log still has {left} calls of it under way, reads not counted"),
    };
    let meaning = format!("{meaning}{cut_off}");
    match visit.gateway().consent.count_ended_with(visit.caller(), view).await {
        Err(_) => meaning,
        Ok(0) => format!("{meaning}. No other request of the turn was open"),
        Ok(1) => format!("{meaning}. 1 other request of the turn ended with it"),
        Ok(others) => format!("{meaning}. {others} other requests of the turn ended with it"),
    }
}

/// Returns the consequence of a remembered decision, with its end, and the link to it.
async fn remembered(visit: &PageVisit, view: &ConsentView, effect: GrantEffect) -> (String, Option<String>) {
    let fetched = visit.gateway().consent.list_grants(visit.caller(), Uuid::max(), GRANTS_MAX).await;
    let Ok(grants) = fetched else { return ("until when cannot be read now".to_owned(), None) };
    let Some(grant) = grants.iter().find(|grant| grant.request_id == view.row.id) else {
        return ("it is not remembered any more".to_owned(), None);
    };
    let until = Moment::new(grant.expires_at, visit.now()).exact();
    let calls = match effect {
        GrantEffect::Allow => {
            format!("up to risk {} run without asking, whatever their arguments", view.risk.as_str())
        }
        GrantEffect::Reject => "are refused without asking".to_owned(),
    };
    let operation = view.row.operation_type.as_str();
    let says = format!("until {until} calls of this tool by this key as {operation} {calls}");
    (says, Some(format!("#grant-{}", grant.id)))
}
