//! People as callers: a verified token mapped by its tenant's rules.

use std::sync::Arc;

use chrono::{DateTime, TimeDelta, Utc};
use serde_json::{Map, Value};

use super::book::KnownIssuer;
use crate::domain::id::{IdentityId, KeyId};
use crate::domain::identity::{IdentityRule, VerifiedToken, identity_id};
use crate::domain::person::Person;
use crate::domain::settings::{Defaults, Effective, Rates};
use crate::gateway::LoginOptions;
use crate::gateway::tenants::authenticate::AuthError;
use crate::gateway::tenants::live::LiveTenant;
use crate::gateway::tenants::live::access::{Access, Caller};
use crate::gateway::tenants::live::login::Login;
use crate::gateway::tenants::refused::RefusedPerson;

/// Reason why a person's token is refused, whatever the rules.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PersonBar {
    /// The person is blocked.
    Blocked,
    /// The token was issued before the person was blocked.
    BeforeBlock,
}

impl Access {
    /// Returns why a person's token of this time of issue is refused; `None` if it is not.
    pub(super) fn bar_of(&self, identity: IdentityId, issued_s: Option<i64>) -> Option<PersonBar> {
        let barred = self.barred.get(&identity)?;
        if barred.is_blocked {
            return Some(PersonBar::Blocked);
        }
        // whole seconds: a token of the second of the block may be from before it
        let is_older = |bound: i64| issued_s.is_none_or(|issued| issued <= bound);
        barred.not_before_s.is_some_and(is_older).then_some(PersonBar::BeforeBlock)
    }

    /// Maps a verified token with its claims to a caller, by the rules of the tenant.
    ///
    /// # Errors
    /// [`AuthError::Blocked`], [`AuthError::TokenExpired`] for a token from before a block, and [`AuthError::NoRule`].
    pub(super) fn person(
        &self,
        live: &Arc<LiveTenant>,
        issuer: &KnownIssuer,
        (token, claims): (&Arc<VerifiedToken>, &Map<String, Value>),
        defaults: &Defaults,
        options: &LoginOptions,
    ) -> Result<Caller, AuthError> {
        let identity = identity_id(live.id, issuer.id, &token.subject);
        let refused = || {
            let (issuer, owner) = (issuer.name.clone(), token.owner.clone());
            Box::new(RefusedPerson { of: Some((live.id, identity)), issuer, owner })
        };
        match self.bar_of(identity, token.issued_s) {
            Some(PersonBar::Blocked) => return Err(AuthError::Blocked(refused())),
            Some(PersonBar::BeforeBlock) => return Err(AuthError::TokenExpired),
            None => {}
        }
        let issuer_key = issuer.id.to_string();
        let granted = IdentityRule::first_match(&self.rules, &issuer_key, claims);
        let granted = granted.ok_or_else(|| AuthError::NoRule(refused()))?;
        let (granted, scope_ceiling) = match options.step_up {
            true => (granted.clone(), granted.scope_ceiling),
            false => (granted.within_scopes(), None),
        };
        let principal = KeyId::of_identity(identity);
        let login = Login {
            identity,
            issuer: issuer.id,
            stamp: issuer.stamp,
            access_rev: self.rev,
            token: Arc::clone(token),
            scope_ceiling,
        };
        Ok(Caller {
            tenant: Some(Arc::clone(live)),
            key: Some(principal),
            key_name: None,
            owner: token.owner.clone(),
            person: Person {
                key: Some(principal),
                root: Some(principal),
                owner: Some(token.owner.clone()),
                email: token.email.clone(),
                identity: Some(identity),
                // nobody created a person: another value would make the bootstrap key the same person
                creator: Some(principal),
                line_creators: Vec::new(),
            },
            role: granted.role,
            settings: Effective::resolve(&granted.settings, &self.tenant_settings, defaults),
            policies: self.policies.of(Some(principal)),
            grants: self.grants.of_key(Some(principal)),
            expires_at: end_of(token, options.leeway_s),
            rates: Rates::resolve(&granted.settings, &self.tenant_settings, defaults),
            bucket: live.buckets.of(principal),
            login: Some(Arc::new(login)),
            sent: None,
        })
    }
}

/// Returns the end of a token, with the tolerated difference of clocks.
fn end_of(token: &VerifiedToken, leeway_s: i64) -> Option<DateTime<Utc>> {
    let end = DateTime::from_timestamp(token.expires_s, 0)?;
    end.checked_add_signed(TimeDelta::seconds(leeway_s))
}
