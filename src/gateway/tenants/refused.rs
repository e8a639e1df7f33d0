//! People who are refused though their tokens are good: each minute has one record of each, in the log of the tenant.

use std::collections::HashMap;
use std::net::IpAddr;

use chrono::{DateTime, Utc};
use parking_lot::Mutex;

use crate::domain::id::{IdentityId, TenantId};
use crate::gateway::clock;
use crate::gateway::tenants::Tenants;

/// People who are counted individually between two writes; further ones are counted by tenant and issuer.
const PEOPLE_MAX: usize = 10_000;
/// Most addresses that are named of one person between two writes.
const ADDRESSES_MAX: usize = 10;

/// Person whose token is good, and who may not come in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RefusedPerson {
    /// Tenant and id of the person there; `None` if the person belongs to no tenant.
    pub(in crate::gateway) of: Option<(TenantId, IdentityId)>,
    /// Name of the issuer.
    pub(in crate::gateway) issuer: String,
    /// Name of the person, for display.
    pub(in crate::gateway) owner: String,
}

/// Reason why a person is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(in crate::gateway) enum PersonRefusal {
    Blocked,
    NoRule,
}

/// Key by which refused requests are counted.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(in crate::gateway) struct RefusedKey {
    /// Tenant whose log has the record; the platform's for a person without a tenant.
    pub(in crate::gateway) tenant: TenantId,
    /// Id of the person; `None` without a tenant, and for people beyond the bound.
    pub(in crate::gateway) identity: Option<IdentityId>,
    /// Name of the issuer.
    pub(in crate::gateway) issuer: String,
    pub(in crate::gateway) refusal: PersonRefusal,
}

/// Refused requests since the last record.
#[derive(Debug)]
pub(in crate::gateway) struct RefusedRequests {
    /// Name of the person; `None` if the requests may be of several.
    pub(in crate::gateway) owner: Option<String>,
    pub(in crate::gateway) first: DateTime<Utc>,
    pub(in crate::gateway) count: u64,
    /// Addresses in the order of their first request, at most [`ADDRESSES_MAX`].
    pub(in crate::gateway) addresses: Vec<IpAddr>,
}

/// Counters of refused people's requests. They are counted, not recorded one by one, because programs repeat them.
#[derive(Debug, Default)]
pub(in crate::gateway) struct RefusedPeople(Mutex<HashMap<RefusedKey, RefusedRequests>>);

impl RefusedPeople {
    fn count(
        &self,
        person: &RefusedPerson,
        refusal: PersonRefusal,
        address: Option<IpAddr>,
        now: DateTime<Utc>,
    ) {
        let (tenant, identity) = person.of.unzip();
        let tenant = tenant.unwrap_or(TenantId::PLATFORM);
        let mut key = RefusedKey { tenant, identity, issuer: person.issuer.clone(), refusal };
        let mut refused = self.0.lock();
        if refused.len() >= PEOPLE_MAX && !refused.contains_key(&key) {
            key.identity = None;
        }
        let owner = key.identity.map(|_| person.owner.clone());
        let new = || RefusedRequests { owner, first: now, count: 0, addresses: Vec::new() };
        let requests = refused.entry(key).or_insert_with(new);
        requests.count += 1;
        if let Some(address) = address
            && requests.addresses.len() < ADDRESSES_MAX
            && !requests.addresses.contains(&address)
        {
            requests.addresses.push(address);
        }
    }

    /// Takes the counters since the last call.
    pub(in crate::gateway) fn take(&self) -> HashMap<RefusedKey, RefusedRequests> {
        std::mem::take(&mut *self.0.lock())
    }
}

impl Tenants {
    /// Counts a request of a person who is refused, recorded once per person and minute.
    pub(in crate::gateway::tenants) fn count_refused(
        &self,
        person: &RefusedPerson,
        refusal: PersonRefusal,
        address: Option<IpAddr>,
    ) {
        self.uses.strangers.one();
        self.refused.count(person, refusal, address, clock::now());
    }
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;

    #[test]
    fn refused_people_are_bounded_and_apart() {
        let refused = RefusedPeople::default();
        let person = |n: usize| RefusedPerson {
            of: Some((TenantId(Uuid::from_u128(1)), IdentityId(Uuid::from_u128(n as u128)))),
            issuer: "corp".to_owned(),
            owner: format!("person {n}"),
        };
        let address = |n: u8| Some(IpAddr::from([192, 0, 2, n]));
        for n in 0..2 * PEOPLE_MAX {
            refused.count(&person(n), PersonRefusal::Blocked, address(n as u8), clock::now());
        }
        refused.count(&person(0), PersonRefusal::Blocked, address(7), clock::now());
        refused.count(&person(0), PersonRefusal::NoRule, None, clock::now());
        let taken = refused.take();
        assert_eq!(taken.len(), PEOPLE_MAX + 2);
        let of = |identity: Option<u128>, refusal: PersonRefusal| {
            let same = |key: &RefusedKey| key.identity == identity.map(|n| IdentityId(Uuid::from_u128(n)));
            taken.iter().find(|(key, _)| same(key) && key.refusal == refusal).unwrap().1
        };
        let first = of(Some(0), PersonRefusal::Blocked);
        assert_eq!((first.count, first.addresses.len(), first.owner.as_deref()), (2, 2, Some("person 0")));
        let others = of(None, PersonRefusal::Blocked);
        assert_eq!((others.count, others.addresses.len()), (PEOPLE_MAX as u64, ADDRESSES_MAX));
        assert_eq!(others.owner, None);
    }
}
