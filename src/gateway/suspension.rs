//! Suspended tenants: they keep everything and are served nothing, until the platform resumes them.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use chrono::{DateTime, Utc};

use super::Gateway;
use super::access::Caller;
use super::error::GatewayError;
use crate::domain::activity::{Kind as RecordKind, Record, Source, Status};
use crate::domain::id::{KeyId, TenantId};
use crate::store::{Kind, Suspend, Tenant};

/// The answer to everything that a suspended tenant's keys ask.
pub(super) const SUSPENDED: &str = "this tenant is suspended; ask the platform operator";
/// Keys whose refused requests are counted apart between two writes.
const KEYS_MAX: usize = 100_000;

/// Refused requests of one key since the last record of them.
#[derive(Debug)]
struct Refused {
    tenant: TenantId,
    owner: String,
    first: DateTime<Utc>,
    count: u64,
}

/// What suspended tenants' keys went on to ask: counted, since programs ask again and again.
#[derive(Debug, Default)]
pub(super) struct Suspensions(Mutex<HashMap<KeyId, Refused>>);

impl Suspensions {
    /// Counts a request for the record of this key's minute.
    pub(super) fn count(&self, caller: &Caller, now: DateTime<Utc>) {
        let Some(key) = caller.key else { return };
        let mut refused = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if refused.len() >= KEYS_MAX && !refused.contains_key(&key) {
            return;
        }
        let new =
            || Refused { tenant: caller.tenant_id(), owner: caller.owner.clone(), first: now, count: 0 };
        refused.entry(key).or_insert_with(new).count += 1;
    }

    fn take(&self) -> HashMap<KeyId, Refused> {
        std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Gateway {
    /// Suspends a tenant, or resumes it: within a second on every replica.
    pub async fn suspend_tenant(
        &self,
        caller: &Caller,
        name: &str,
        suspend: Suspend,
    ) -> Result<Tenant, GatewayError> {
        let tenant = self.get_tenant(caller, name).await?.tenant_id();
        let changed = self.store.suspend_tenant(tenant, suspend).await;
        changed.map_err(|error| GatewayError::from_store(error, "tenant"))?;
        self.refresh(tenant, Kind::Access).await;
        self.get_tenant(caller, name).await
    }

    /// The sentence for whoever has a key of a suspended tenant.
    pub fn suspended_text() -> &'static str {
        SUSPENDED
    }

    /// Writes what was refused since the last time, one record per key.
    pub(super) fn record_suspended(&self) {
        for (key, Refused { tenant, owner, first, count }) in self.suspensions.take() {
            let mut record = Record::start(tenant, RecordKind::AuthFailure, Source::System, first);
            record.key = Some(key);
            record.owner = Some(owner);
            record.status = Status::Blocked;
            record.error_code = Some("forbidden".to_owned());
            let message = format!("{count} requests within a minute were refused: the tenant is suspended");
            record.error_message = Some(message);
            record.arguments = Some(format!(r#"{{"count":{count}}}"#));
            self.write(record);
        }
    }
}
