//! Permission request on the page: all that a person needs to decide.

use crate::domain::activity::Status;
use crate::domain::consent::{
    ADD_APPROVER, COOLDOWN, COOLDOWN_DENIALS, ConsentDecision, ConsentState, FENCE, LapseReason, grant_life,
};
use crate::domain::person::OnePerson;
use crate::domain::policy::{Assurance, PolicyLayer, PolicyMode};
use crate::domain::reason::{ARGUMENTS_BYTES_MAX, ActionKey};
use crate::domain::risk::RiskLevel;
use crate::domain::tenant::Action;
use crate::faces::console::moment::Moment;
use crate::faces::console::nav::Section;
use crate::faces::console::page_visit::PageVisit;
use crate::faces::console::text::{LongText, readable, short_told};
use crate::gateway::{ConsentView, RequestedTool, TurnReach};
use crate::store::Stored;

/// Longest time after which a card is shown anew, in seconds, and the same while little time is left.
const AGAIN_S_MAX: i64 = 30;
const AGAIN_LAST_S: i64 = 5;
/// Time before the end of a request that is little, in seconds.
const LAST_S: i64 = 60;
/// Longest action at the head of a card, in characters: the arguments stand below it.
const HEADING_CHARS_MAX: usize = 200;
/// Longest arguments that are in sight at once on a phone, in characters, of which others than ASCII count as two.
const IN_SIGHT_CHARS_MAX: usize = 240;
/// Longest action in a notice or a list, in characters.
pub(super) const TOLD_CHARS_MAX: usize = 80;

/// Button of a decision.
pub(super) struct DecisionButton {
    /// Decision on the wire.
    pub(super) word: &'static str,
    /// Text of the button.
    pub(super) label: String,
    /// True if the button must not stand out.
    pub(super) is_plain: bool,
    /// Consequence of the decision; `None` where the label says it.
    pub(super) says: Option<String>,
}

/// Request whose decision ended the turn of another one, as it is shown.
#[derive(Clone)]
pub(super) struct TurnEnd {
    /// Link to that request.
    pub(super) href: String,
    /// True if the call was let through before.
    pub(super) was_under_way: bool,
    /// Person who decided; `None` if that is not known.
    pub(super) owner: Option<String>,
    /// Time at which the turn was ended; `None` if that is not known.
    pub(super) at: Option<Moment>,
    /// Comment on the decision; `None` without one.
    pub(super) comment: Option<String>,
}

/// Permission request as it is shown.
pub(super) struct RequestCard {
    /// Id of the request.
    pub(super) id: String,
    /// Link to the request alone.
    pub(super) href: String,
    /// Link to the records about the request; `None` if the visitor may see none.
    pub(super) records: Option<String>,
    /// Action of the call, in words.
    pub(super) told: String,
    /// Words of the gateway before a command or statement, and what the caller wrote; `None` for other actions.
    pub(super) written: Option<(String, String)>,
    /// Language of `told` and `details`, as a tag.
    pub(super) language: &'static str,
    /// Canonical name of the tool.
    pub(super) tool: String,
    /// Operation type of the call.
    pub(super) operation: String,
    /// Owner of the key that calls.
    pub(super) owner: String,
    /// Name of that key, or its id without a name; `None` for the bootstrap key.
    pub(super) key: Option<String>,
    /// Id of that key; empty for the bootstrap key.
    pub(super) key_id: String,
    /// Level of risk, as a word and a class.
    pub(super) risk: &'static str,
    /// Risk with its reasons, the words of the agent, and those of the tool's author.
    pub(super) details: Vec<String>,
    /// Places in the arguments that raise the risk, as lines.
    pub(super) places: Vec<String>,
    /// Masked arguments.
    pub(super) arguments: LongText,
    /// True if the arguments are longer than what is shown.
    pub(super) was_cut: bool,
    /// True if a part of the arguments is masked.
    pub(super) is_masked: bool,
    /// Length of what is masked in the arguments, in bytes, at most; 0 where it is not known.
    pub(super) masked_bytes: usize,
    /// Length of arguments that are cut, in bytes; `None` for others, and where it is not known.
    pub(super) whole_bytes: Option<usize>,
    /// True if the arguments go on beyond what is in sight on a phone.
    pub(super) is_long: bool,
    /// True if little time is left, in which the agent has to repeat an allowed call as well.
    pub(super) is_late: bool,
    /// Rule that asks, or that none does and the mode of now.
    pub(super) asked_by: String,
    /// Request whose decision ended the turn of this one; `None` for others.
    pub(super) ended_by: Option<TurnEnd>,
    /// Sentence on the calls that the decision, which was remembered, has let run; `None` without such a decision, and where they are not counted.
    pub(super) let_through: Option<String>,
    /// Persons who may allow the call.
    pub(super) assurance: &'static str,
    /// Sentence whether the visitor is one of them; empty for a request that does not wait.
    pub(super) you: &'static str,
    /// Time of the ask.
    pub(super) created: Moment,
    /// End of the time for an answer.
    pub(super) expires: Moment,
    /// Seconds after which the card is to be shown anew: at that end, and now and then before.
    pub(super) again_s: i64,
    /// State of the request.
    pub(super) state: String,
    /// True if the request waits for a person.
    pub(super) is_pending: bool,
    /// True if a remembered decision allows the tool all the same.
    pub(super) runs_by_grant: bool,
    /// Reason why no answer lets the call run; `None` without one, and for a request that is over.
    pub(super) stale: Option<&'static str>,
    /// Consequence of the state.
    pub(super) meaning: String,
    /// Person who decided, and the way; `None` without a decision.
    pub(super) decided_by: Option<String>,
    /// Time of the decision; `None` without one.
    pub(super) decided: Option<Moment>,
    /// Comment on the decision; `None` without one.
    pub(super) comment: Option<String>,
    /// Reason why the visitor may not allow the call; `None` if allowed, and for roles that decide nothing.
    pub(super) may_not: Option<String>,
    /// Buttons of the usual decisions: the one that refuses comes first, so that no key pressed in the comment allows
    /// a call.
    pub(super) buttons: Vec<DecisionButton>,
    /// Buttons of the other decisions on offer.
    pub(super) others: Vec<DecisionButton>,
    /// Reason why no decision about the request is remembered; `None` without one.
    pub(super) only_once: Option<&'static str>,
}

impl RequestCard {
    /// Creates the card of a request for a visitor. `key_name` is the name of the key that asks, if it has one; `in_turn` is
    /// what would end with its turn.
    pub(super) fn of(
        visit: &PageVisit,
        view: &ConsentView,
        key_name: Option<&String>,
        in_turn: TurnReach,
    ) -> RequestCard {
        let (row, caller, language) = (&view.row, visit.caller(), visit.language());
        let expires = Moment::new(row.expires_at, visit.now());
        let is_pending = row.state == ConsentState::Pending;
        let decides = is_pending && caller.role.may(Action::DecideConsent);
        let may_not = view.may_decide(caller, ConsentDecision::AllowOnce).err().filter(|_| decides);
        let you = match (is_pending, decides, may_not.is_some()) {
            (false, ..) => "",
            (true, false, _) => "Your role does not decide.",
            (true, true, true) => "You may not: see above.",
            (true, true, false) => match view.same_person(caller) {
                None => "You may.",
                Some(OnePerson::Made) => {
                    "You may: your key made the key that asks, so both count as one person, and what asks lets that person answer."
                }
                Some(OnePerson::MadeBy) => {
                    "You may: the key that asks made yours, so both count as one person, and what asks lets that person answer."
                }
                Some(_) => {
                    "You may: it is the call of a key of your own, and what asks lets its person answer."
                }
            },
        };
        let key_id = view.key().map(|key| key.to_string());
        let told = short_told(&view.told_shortly(language), HEADING_CHARS_MAX);
        let offers = |decision: &ConsentDecision| {
            decides && view.options.contains(decision) && view.may_decide(caller, *decision).is_ok()
        };
        let buttons = |decisions: &[ConsentDecision]| {
            decisions
                .iter()
                .filter(|decision| offers(decision))
                .map(|decision| button(decision, view, in_turn))
                .collect()
        };
        let sees_records = caller.role.may(Action::ReadOwnActivity);
        RequestCard {
            id: row.id.to_string(),
            href: super::href_of(row.id),
            records: sees_records
                .then(|| format!("{}?consent_id={}#records", Section::Activity.href(), row.id)),
            written: written(view, &told),
            told,
            language: language.as_str(),
            tool: format!("{}:{}", row.server, row.tool),
            operation: row.operation_type.as_str().to_owned(),
            owner: row.owner.clone(),
            key: key_id.clone().map(|id| key_name.cloned().unwrap_or(id)),
            key_id: key_id.unwrap_or_default(),
            risk: view.risk.as_str(),
            details: view.details(language),
            places: view.places(language),
            arguments: LongText::of(&readable(&row.arguments)),
            was_cut: row.was_cut,
            is_masked: view.is_masked(),
            masked_bytes: view.masked_bytes(),
            whole_bytes: whole_bytes(view),
            is_long: is_long(view) && is_pending,
            is_late: is_pending && (row.expires_at - visit.now()).num_seconds() < LAST_S,
            asked_by: asked_by(visit, view),
            ended_by: None,
            let_through: None,
            assurance: match view.assurance {
                Assurance::Client => "an approver or admin, or the person at the agent's own client",
                Assurance::Approver => "somebody else than who asks, with role approver or admin",
            },
            you,
            created: Moment::new(row.created_at, visit.now()),
            expires,
            again_s: again_s((row.expires_at - visit.now()).num_seconds()),
            state: state_of(view),
            is_pending,
            runs_by_grant: false,
            stale: hindrance(visit, view),
            meaning: meaning(visit, view),
            decided_by: decided(view),
            decided: row.decided_at.map(|at| Moment::new(at, visit.now())),
            comment: row.comment.clone(),
            may_not: may_not.map(|why| why.text().replace(&format!(": {ADD_APPROVER}"), " at Keys")),
            buttons: buttons(&[ConsentDecision::RejectOnce, ConsentDecision::AllowOnce]),
            only_once: match (row.was_cut, view.risk) {
                (true, _) => Some("Decisions about arguments that are not shown whole are not remembered."),
                (false, RiskLevel::Critical) => {
                    Some("Decisions about calls of critical risk are not remembered.")
                }
                (false, _) => None,
            },
            others: buttons(&[
                ConsentDecision::RejectAlways,
                ConsentDecision::CancelTurn,
                ConsentDecision::AllowAlways,
            ]),
        }
    }
}

impl RequestCard {
    /// Returns whether a text of the card has a mark for a character.
    pub(super) fn has_marks(&self) -> bool {
        let texts = [&self.told, &self.arguments.text].into_iter().chain(&self.places);
        texts.into_iter().any(|text| text.contains("<U+"))
    }
}

/// Returns the rule that asks, or the mode of now where none does, with what it asks about.
fn asked_by(visit: &PageVisit, view: &ConsentView) -> String {
    if let Some(rule) = &view.row.rule {
        return format!("rule {rule}");
    }
    let mode = visit.gateway().calls.mode_of(visit.caller(), view);
    match (mode, view.risk) {
        (Some(PolicyMode::ByRisk), RiskLevel::Moderate) => {
            "no rule. The mode by_risk asks about a tool of moderate risk that reaches systems outside its server, writes files or gets data \
             declared private; some forms of web pages are always asked about"
                .to_owned()
        }
        (Some(PolicyMode::ByRisk), RiskLevel::High | RiskLevel::Critical) => {
            "no rule: the mode by_risk asks about every call of this risk".to_owned()
        }
        (Some(PolicyMode::AlwaysAsk), _) => "no rule: the mode always_ask asks about every call".to_owned(),
        (Some(mode), _) => format!(
            "no rule: a form of a web page, about which persons are always asked, or the mode of that time; the mode is {} now",
            mode.as_str()
        ),
        (None, _) => "no rule: the mode of the policy, or what is always asked about".to_owned(),
    }
}

/// Returns the words of the gateway before the command or statement of an action, and what the caller wrote; `None` for other actions, and where words
/// of the gateway follow.
fn written(view: &ConsentView, told: &str) -> Option<(String, String)> {
    let key = ActionKey::parse(&view.row.action)?;
    let is_written = matches!(key, ActionKey::Execute | ActionKey::Sql) && !view.row.is_irreversible;
    let (before, written) = told.split_once(": ").filter(|_| is_written)?;
    Some((before.to_owned(), written.to_owned()))
}

/// Returns the length of arguments of which only the beginning is shown, in bytes; `None` for others, and in rows of an older release.
fn whole_bytes(view: &ConsentView) -> Option<usize> {
    let bytes = usize::try_from(view.row.arguments_bytes?).ok()?;
    (view.row.was_cut && bytes > ARGUMENTS_BYTES_MAX).then_some(bytes)
}

/// Returns whether the arguments of a request go on beyond what is in sight on a phone.
fn is_long(view: &ConsentView) -> bool {
    let width = |c: char| if c.is_ascii() { 1 } else { 2 };
    readable(&view.row.arguments).chars().map(width).sum::<usize>() > IN_SIGHT_CHARS_MAX
}

/// Returns the seconds after which a card is to be shown anew, `left_s` before the end of its time.
fn again_s(left_s: i64) -> i64 {
    let most = if left_s < LAST_S { AGAIN_LAST_S } else { AGAIN_S_MAX };
    (left_s + 1).clamp(1, most)
}

/// Returns the reason why the call of an open request does not run now, whatever the answer; `None` if it may.
pub(super) fn hindrance(visit: &PageVisit, view: &ConsentView) -> Option<&'static str> {
    let is_open = [ConsentState::Pending, ConsentState::Granted].iter().any(|state| view.row.state == *state);
    let refused = || match visit.gateway().calls.refused_now(visit.caller(), view)? {
        PolicyLayer::Remembered => Some(
            "A remembered decision denies this tool to this key: as long as it holds, this call does not run, whoever allows it. An admin, or \
             who gave it, may revoke it.",
        ),
        _ => Some(
            "The policy refuses such calls by now: as long as that is so, this call does not run, whoever allows it.",
        ),
    };
    let beyond = || {
        visit.gateway().calls.is_beyond_key(visit.caller(), view).then_some(
            "The settings of the key that asks, max_operation or allowed_tools, do not let it make this call: as long as that is so, it does not \
             run, whoever allows it.",
        )
    };
    is_open.then(|| stale(view.tool_now(visit.caller())).or_else(beyond).or_else(refused)).flatten()
}

/// Returns the reason why a call of a tool does not run now, whatever the answer; `None` if it may.
fn stale(tool: RequestedTool) -> Option<&'static str> {
    match tool {
        RequestedTool::Same => None,
        RequestedTool::Changed => Some(
            "The definition of the tool has changed since the call asked: as long as that is so, this call does not run, whoever allows it.",
        ),
        RequestedTool::Gone => Some(
            "The tool is gone, or its server was removed: as long as that is so, this call does not run, whoever allows it.",
        ),
        RequestedTool::Blocked => {
            Some("The tool is blocked: as long as that is so, this call does not run, whoever allows it.")
        }
        RequestedTool::Disabled => Some(
            "The server of the tool is disabled: as long as that is so, this call does not run, whoever allows it.",
        ),
        RequestedTool::Quarantined => Some(
            "The server of the tool is in quarantine: as long as that is so, this call does not run, whoever allows it.",
        ),
    }
}

/// Returns whether a call that failed was sent, by the status of its record; `None` if that does not say it.
pub(super) fn failed(status: Status) -> Option<String> {
    let says = match status {
        Status::UpstreamError => {
            "the call was sent, and the tool reported an error: it may have done a part of its work"
        }
        Status::Error => "the call failed on its way to the server or back: it may have run",
        Status::Blocked | Status::Rejected => "the call was not sent",
        Status::Success | Status::Cancelled | Status::Unknown | Status::Pending | Status::Waiting => {
            return None;
        }
    };
    Some(says.to_owned())
}

/// Returns the consequence of a request's state for a visitor.
pub(super) fn meaning(visit: &PageVisit, view: &ConsentView) -> String {
    let exact = |at| Moment::new(at, visit.now()).exact();
    match (view.row.state.known(), visit.caller().role.may(Action::ReadOwnActivity)) {
        (Some(ConsentState::Failed), true) => {
            "the call failed, or was not sent: its records say why; the same call asks again".to_owned()
        }
        (Some(ConsentState::Failed), false) => {
            "the call failed, or was not sent: an auditor, operator or admin sees why; the same call asks again".to_owned()
        }
        (Some(ConsentState::Cancelled), _)
            if view.row.ended_at.is_some_and(|at| at + FENCE <= visit.now()) =>
        {
            "its turn was ended; the same call asks again, unless a remembered decision covers it".to_owned()
        }
        (Some(ConsentState::Denied), _) if view.row.expires_at <= visit.now() => {
            format!("the same call was refused until {}, and asks again", exact(view.row.expires_at))
        }
        (Some(ConsentState::Granted), _) => format!(
            "{}; until then a rule that denies the call, or revoking the key that asks, still stops it",
            view.meaning(exact)
        ),
        (Some(ConsentState::Denied), _) => format!(
            "{}; a tool that is denied {COOLDOWN_DENIALS} times within {minutes} minutes is refused to its key for {minutes} minutes",
            view.meaning(exact),
            minutes = COOLDOWN.num_minutes(),
        ),
        _ => view.meaning(exact),
    }
}

/// Returns what to tell a visitor whose decision came too late.
pub(super) fn too_late(visit: &PageVisit, view: &ConsentView) -> String {
    let exact = |at| Moment::new(at, visit.now()).exact();
    let visitor = visit.caller().key.map(|key| key.0).unwrap_or_default();
    let was = match (decided(view), view.row.decided_at) {
        (Some(decided), Some(at)) if view.row.decided_by == Some(visitor) => {
            format!("You had decided this before: {decided}, at {}.", exact(at))
        }
        (Some(decided), Some(at)) => format!("Somebody was faster: {decided}, at {}.", exact(at)),
        _ => "This request does not wait any more.".to_owned(),
    };
    let told = short_told(&view.told_shortly(visit.language()), TOLD_CHARS_MAX);
    let about = format!("{told} ({}:{}), asked by {}", view.row.server, view.row.tool, view.row.owner);
    format!("{about}. {was} Your decision changed nothing: {}.", view.meaning(exact))
}

/// Returns the state of a request in words.
pub(in crate::faces::console) fn state_of(view: &ConsentView) -> String {
    view.row.state.as_str().replace('_', " ")
}

/// Returns what was decided, by whom and by which way; `None` without a decision.
pub(super) fn decided(view: &ConsentView) -> Option<String> {
    let by = decided_by(view)?;
    Some(match view.row.decision.as_ref().and_then(|decision| decision.known()) {
        Some(decision)
            if view.row.state == ConsentState::Cancelled && decision != ConsentDecision::CancelTurn =>
        {
            format!("{}: {by} (ended with its turn before it ran)", did(decision, view.risk).0)
        }
        Some(decision) => format!("{}: {by}", did(decision, view.risk).0),
        // ended along with the one that was decided
        None if view.row.state == ConsentState::Cancelled => format!("Ended with its turn: {by}"),
        None => by,
    })
}

/// Returns how a request ended that nobody decided, for a list; `None` where its state says it.
pub(super) fn ended_otherwise(view: &ConsentView) -> Option<&'static str> {
    let lapse = view.row.lapse_reason.as_ref().and_then(Stored::known);
    (lapse == Some(LapseReason::AllowedByGrant)).then_some("A remembered decision let the call run")
}

/// Returns a decision about a call of this risk in words, with the class by which it stands out.
pub(super) fn did(decision: ConsentDecision, risk: RiskLevel) -> (String, &'static str) {
    match decision {
        ConsentDecision::AllowOnce => ("Allowed once".to_owned(), "good"),
        ConsentDecision::AllowAlways => (format!("Tool allowed for {}", life(risk)), "good"),
        ConsentDecision::RejectOnce => ("Denied".to_owned(), "held"),
        ConsentDecision::RejectAlways => (format!("Tool denied for {}", life(risk)), "held"),
        ConsentDecision::CancelTurn => ("Denied, and the agent's turn stopped".to_owned(), "held"),
    }
}

/// Returns the time for which the console has a decision about a call of this risk remembered, in words.
fn life(risk: RiskLevel) -> String {
    match grant_life(risk, None).num_hours() {
        1 => "1 hour".to_owned(),
        hours => format!("{hours} hours"),
    }
}

/// Returns the person who decided a request, and the way; `None` without a decision.
fn decided_by(view: &ConsentView) -> Option<String> {
    let owner = view.row.decided_owner.as_deref()?;
    Some(view.row.decided_via.as_deref().map_or(owner.to_owned(), |via| format!("{owner}, over {via}")))
}

/// Returns what a person decided about a request, and the way; `None` without a decision.
pub(in crate::faces::console) fn verdict(view: &ConsentView) -> Option<String> {
    let is_allowed = match view.row.decision.as_ref().and_then(|decision| decision.known()) {
        Some(decision) => decision.state() == ConsentState::Granted,
        // ended along with the one that was decided, or by a word of a later release
        None => ![ConsentState::Denied, ConsentState::Cancelled].iter().any(|state| view.row.state == *state),
    };
    let did = if is_allowed { "Allowed" } else { "Denied" };
    let decision = view.row.decision.as_ref().and_then(|decision| decision.known());
    let remembered = match decision.and_then(ConsentDecision::remembers) {
        Some(_) => ", for this tool: the decision was remembered",
        None => "",
    };
    Some(format!("{did} by {}{remembered}", decided_by(view)?))
}

/// Returns the consequence of a decision that reaches beyond the one call; `None` for others.
fn reach(decision: ConsentDecision, view: &ConsentView, in_turn: TurnReach) -> Option<String> {
    let (risk, operation) = (view.risk, view.row.operation_type.as_str());
    match decision {
        ConsentDecision::AllowOnce | ConsentDecision::RejectOnce => None,
        ConsentDecision::AllowAlways => Some(format!(
            "Later calls of this tool by this key as {operation}, and those that wait now, run without asking up to risk {}, whatever their \
             arguments. It can be revoked here.",
            risk.as_str()
        )),
        ConsentDecision::RejectAlways => Some(format!(
            "Later calls of this tool by this key as {operation} are refused without asking. It can be revoked here."
        )),
        ConsentDecision::CancelTurn => Some(format!(
            "Ends {} now. What waits of the agent's session, or of its key if it has none, is denied, permissions that were not used \
             are taken back, and calls under way are cut off: they may have run. The log has {} under way now, reads not counted. For {} s calls \
             that ask, or that a remembered decision lets through, are refused. Remembered decisions stay.",
            match in_turn.others {
                0 => "this request alone".to_owned(),
                1 => "this request and 1 other".to_owned(),
                others => format!("this request and {others} others"),
            },
            match in_turn.under_way {
                0 => "none".to_owned(),
                calls => calls.to_string(),
            },
            FENCE.num_seconds()
        )),
    }
}

fn button(decision: &ConsentDecision, view: &ConsentView, in_turn: TurnReach) -> DecisionButton {
    let hours = life(view.risk);
    let label = match decision {
        ConsentDecision::AllowOnce => "Allow once".to_owned(),
        ConsentDecision::AllowAlways => format!("Allow this tool for {hours}"),
        ConsentDecision::RejectOnce => "Deny".to_owned(),
        ConsentDecision::RejectAlways => format!("Deny this tool for {hours}"),
        ConsentDecision::CancelTurn => "Deny, and stop the agent's turn".to_owned(),
    };
    DecisionButton {
        word: decision.as_str(),
        label,
        // nothing invites to allow a call before all of it was read
        is_plain: *decision != ConsentDecision::AllowOnce
            || view.row.was_cut
            || view.is_masked()
            || is_long(view)
            || view.risk == RiskLevel::Critical,
        says: reach(*decision, view, in_turn),
    }
}
