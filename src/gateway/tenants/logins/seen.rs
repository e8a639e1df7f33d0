//! People who were seen, written in the background: a call never waits for it.

use std::collections::HashMap;

use chrono::{DateTime, TimeDelta, Utc};
use parking_lot::Mutex;

use crate::domain::id::{IdentityId, TenantId};
use crate::gateway::clock;
use crate::gateway::tenants::live::login::Login;
use crate::gateway::tenants::{Caller, Tenants};
use crate::store::{SeenIdentity, StoreError};

/// Interval at which the sight of a person is written again.
const AGAIN: TimeDelta = TimeDelta::seconds(60);
/// Most people who are remembered as written. Above it all are forgotten, and written once more.
const WRITTEN_MAX: usize = 100_000;
/// Most people who wait to be written.
const WAITING_MAX: usize = 10_000;

/// People who were seen on this replica.
#[derive(Debug, Default)]
pub(in crate::gateway) struct SeenPeople(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    /// Time of the last write of each person.
    written: HashMap<IdentityId, DateTime<Utc>>,
    waiting: HashMap<TenantId, Vec<SeenIdentity>>,
    count: usize,
}

impl SeenPeople {
    /// Notes that a person was seen, at most once a minute.
    pub(super) fn note(&self, caller: &Caller, now: DateTime<Utc>) {
        let Some(login) = &caller.login else { return };
        let mut state = self.0.lock();
        if state.written.get(&login.identity).is_some_and(|at| now - *at < AGAIN)
            || state.count >= WAITING_MAX
        {
            return;
        }
        if state.written.len() >= WRITTEN_MAX {
            state.written.clear();
        }
        state.written.insert(login.identity, now);
        state.count += 1;
        state.waiting.entry(caller.tenant_id()).or_default().push(seen(caller, login, now));
    }

    fn take(&self) -> HashMap<TenantId, Vec<SeenIdentity>> {
        let mut state = self.0.lock();
        state.count = 0;
        std::mem::take(&mut state.waiting)
    }

    /// Forgets that people were written, after a write that failed.
    fn unwrite(&self, people: &[SeenIdentity]) {
        let mut state = self.0.lock();
        for person in people {
            state.written.remove(&person.id);
        }
    }
}

fn seen(caller: &Caller, login: &Login, at: DateTime<Utc>) -> SeenIdentity {
    SeenIdentity {
        id: login.identity,
        issuer: login.issuer,
        subject: login.token.subject.clone(),
        owner: login.token.owner.clone(),
        email: login.token.email.clone(),
        role: caller.role,
        at,
    }
}

impl Tenants {
    /// Writes the caller at once, if it is a person: what the person decides counts only while the row says that nobody blocked it.
    pub(in crate::gateway) async fn keep_person(&self, caller: &Caller) -> Result<(), StoreError> {
        let Some(login) = &caller.login else { return Ok(()) };
        self.store.keep_identity(caller.tenant_id(), &seen(caller, login, clock::now())).await
    }

    /// Writes the people who were seen since the last call.
    pub(in crate::gateway) async fn note_people(&self) -> Result<(), StoreError> {
        let mut failed = Ok(());
        for (tenant, people) in self.logins.seen.take() {
            if let Err(error) = self.store.see_identities(tenant, &people).await {
                self.logins.seen.unwrite(&people);
                failed = Err(error);
            }
        }
        failed
    }
}
