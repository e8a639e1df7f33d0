//! Grants on the page: what people had remembered, and who may end it.

use chrono::{DateTime, Utc};
use uuid::Uuid;

use crate::domain::consent::GrantEffect;
use crate::domain::policy::Remembered;
use crate::domain::tenant::Action;
use crate::faces::console::moment::Moment;
use crate::faces::console::page_visit::PageVisit;
use crate::gateway::{Caller, ConsentView, GatewayError};
use crate::store::ConsentGrant;

/// Most grants that are shown.
const GRANTS_MAX: usize = 100;

/// Grant in the list.
pub(super) struct GrantLine {
    /// Id of the grant.
    pub(super) id: Uuid,
    /// Effect on calls.
    pub(super) effect: String,
    /// Canonical name of the tool.
    pub(super) tool: String,
    /// Operation type of the calls.
    pub(super) operation: String,
    /// Owner of the key whose calls it is about.
    pub(super) owner: String,
    /// Name of that key; `None` without one.
    pub(super) key_name: Option<String>,
    /// Highest risk of calls that it lets run; `None` for one that refuses calls.
    pub(super) up_to: Option<&'static str>,
    /// Person who decided, and the way.
    pub(super) by: String,
    /// Link to the request that was answered.
    pub(super) request: String,
    /// Time of the decision.
    pub(super) created: Moment,
    /// End of the grant.
    pub(super) expires: Moment,
    /// True if the visitor may end it.
    pub(super) may_revoke: bool,
    grant: ConsentGrant,
}

impl GrantLine {
    /// Returns whether the decision was the answer to a request.
    pub(super) fn is_of(&self, request: Uuid) -> bool {
        self.grant.request_id == request
    }

    /// Returns whether the decision was remembered after a time.
    pub(super) fn is_later_than(&self, at: DateTime<Utc>) -> bool {
        self.created.at() > at
    }

    /// Returns the end of the grant.
    pub(super) fn ends_at(&self) -> DateTime<Utc> {
        self.expires.at()
    }

    /// Returns whether a grant lets the very call of a request run: one about its key, tool, operation and definition, up to its risk and by
    /// an answer that is good enough.
    pub(super) fn allows(&self, view: &ConsentView) -> bool {
        let (grant, row) = (&self.grant, &view.row);
        let of_call = (&*row.server, &*row.tool, row.operation_type.as_str(), &*row.pin, row.principal);
        let of_grant =
            (&*grant.server, &*grant.tool, grant.operation_type.as_str(), &*grant.pin, grant.principal);
        let answer = grant.remembered().answers(view.risk);
        of_grant == of_call && answer.is_some_and(|assurance| assurance >= view.assurance)
    }
}

/// Loads the grants that a visitor may see: all, or those about the tool and the key of one request. Returns them with whether there are
/// more, which were not looked at.
///
/// # Errors
/// Error of the use case.
pub(super) async fn load(
    visit: &PageVisit,
    of: Option<&ConsentView>,
) -> Result<(Vec<ConsentGrant>, bool), GatewayError> {
    let fetched = i64::try_from(GRANTS_MAX).unwrap_or(0) + 1;
    let mut rows = visit.gateway().consent.list_grants(visit.caller(), Uuid::max(), fetched).await?;
    let has_more = rows.len() > GRANTS_MAX;
    rows.truncate(GRANTS_MAX);
    rows.retain(|grant| {
        of.is_none_or(|view| {
            let row = &view.row;
            (&grant.server, &grant.tool, grant.principal) == (&row.server, &row.tool, row.principal)
        })
    });
    Ok((rows, has_more))
}

/// Returns the line of a grant. `key_name` is the name of the key whose calls it is about, if it has one.
pub(super) fn line(visit: &PageVisit, grant: &ConsentGrant, key_name: Option<&String>) -> GrantLine {
    GrantLine {
        id: grant.id,
        effect: match grant.effect.known() {
            Some(GrantEffect::Allow) => "allowed".to_owned(),
            Some(GrantEffect::Reject) => "denied".to_owned(),
            None => grant.effect.as_str().to_owned(),
        },
        tool: format!("{}:{}", grant.server, grant.tool),
        operation: grant.operation_type.as_str().to_owned(),
        owner: grant.owner.clone(),
        key_name: key_name.cloned(),
        up_to: match grant.remembered() {
            Remembered::Allow { risk, .. } => Some(risk.as_str()),
            Remembered::Reject => None,
        },
        by: format!("{}, over {}", grant.granted_owner, grant.granted_via),
        request: super::href_of(grant.request_id),
        created: Moment::new(grant.created_at, visit.now()),
        expires: Moment::new(grant.expires_at, visit.now()),
        may_revoke: may_revoke(visit.caller(), grant),
        grant: grant.clone(),
    }
}

/// Returns whether a caller may end a grant: who gave it, and administrators; refusals only with the right to decide.
/// The use case checks it again.
fn may_revoke(caller: &Caller, grant: &ConsentGrant) -> bool {
    let is_giver = grant.granted_by == caller.key.map(|key| key.0).unwrap_or_default();
    let is_allowed = caller.role.may(Action::DecideConsent) || grant.effect == GrantEffect::Allow;
    is_allowed && (caller.role.may(Action::ManageKeys) || is_giver)
}
