//! Records of refusals that are too frequent for records of their own: one count per key and minute.

use std::net::IpAddr;

use super::Log;
use crate::domain::activity::{Record, RecordKind, Source, Status};
use crate::domain::id::TenantId;
use crate::domain::refusal::Code;
use crate::gateway::clock;
use crate::gateway::tenants::{
    AuthFailures, PersonRefusal, RefusedKey, RefusedRequests, Sheds, SuspendedRequests,
};

impl Log {
    /// Writes the records of all counted refusals since the last call.
    pub(in crate::gateway) fn record_counted(&self) {
        for (key, failures) in self.tenants.uses.take_failures() {
            self.record_auth_failures(&key, &failures);
        }
        self.record_sheds();
        self.record_suspended();
        self.record_refused_people();
        self.record_repeated_reads();
    }

    /// Records the number of requests with one invalid key, and where they came from.
    fn record_auth_failures(&self, key: &str, failures: &AuthFailures) {
        let AuthFailures { count, addresses } = failures;
        let mut record =
            Record::start(TenantId::PLATFORM, RecordKind::AuthFailure, Source::System, clock::now());
        record.status = Status::Blocked;
        record.error_code = Some("unauthenticated".to_owned());
        record.error_message = Some(format!("{count} requests without a valid key within a minute"));
        record.client_address = addresses.first().copied();
        let addresses = quoted(addresses);
        record.arguments = Some(format!(r#"{{"key":"{key}","count":{count},"addresses":[{addresses}]}}"#));
        self.write(record);
    }

    /// Records the requests of people whose tokens are good, and who may not come in.
    fn record_refused_people(&self) {
        for (of, requests) in self.tenants.refused.take() {
            let RefusedKey { tenant, identity, issuer, refusal } = of;
            let RefusedRequests { owner, first, count, addresses } = requests;
            let why = match refusal {
                PersonRefusal::Blocked => "the account is blocked",
                PersonRefusal::NoRule if tenant == TenantId::PLATFORM => "the account belongs to no tenant",
                PersonRefusal::NoRule => "no rule gives the account a role",
            };
            let mut record = Record::start(tenant, RecordKind::AuthFailure, Source::System, first);
            record.identity = identity;
            record.owner = owner;
            record.status = Status::Blocked;
            record.error_code = Some("forbidden".to_owned());
            record.error_message = Some(format!("{count} requests within a minute were refused: {why}"));
            record.client_address = addresses.first().copied();
            let addresses = quoted(&addresses);
            let arguments = format!(r#"{{"issuer":"{issuer}","count":{count},"addresses":[{addresses}]}}"#);
            record.arguments = Some(arguments);
            self.write(record);
        }
    }

    /// Writes the attempts refused since the last call: for each key one record of those over its rate limit, and one of
    /// those that were forbidden.
    fn record_sheds(&self) {
        for (key, sheds) in self.tenants.limits.take_sheds() {
            let Sheds { tenant, key_name, owner, first, calls, searches, reads, lists, forbidden, .. } =
                sheds;
            let record = |status: Status, code: &str| Record {
                key: Some(key),
                key_name: key_name.clone(),
                owner: Some(owner.clone()),
                status,
                error_code: Some(code.to_owned()),
                ..Record::start(tenant, RecordKind::System, Source::System, first)
            };
            let count = calls + searches + reads + lists;
            if count > 0 {
                let mut record = record(Status::Rejected, Code::RateLimited.as_str());
                record.error_message =
                    Some(format!("{count} attempts over the rate limit were refused within a minute"));
                record.arguments = Some(format!(
                    r#"{{"count":{count},"calls":{calls},"searches":{searches},"reads":{reads},"lists":{lists}}}"#
                ));
                self.write(record);
            }
            if forbidden > 0 {
                let mut record = record(Status::Blocked, "forbidden");
                record.error_message =
                    Some(format!("{forbidden} more attempts were forbidden within a minute"));
                record.arguments = Some(format!(r#"{{"count":{forbidden}}}"#));
                self.write(record);
            }
        }
    }

    /// Writes the requests of suspended tenants since the last call, one record per key.
    fn record_suspended(&self) {
        for (key, requests) in self.tenants.suspensions.take() {
            let SuspendedRequests { tenant, key_name, owner, first, count } = requests;
            let mut record = Record::start(tenant, RecordKind::AuthFailure, Source::System, first);
            record.key = Some(key);
            record.key_name = key_name;
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

/// Returns addresses as the elements of a JSON list.
fn quoted(addresses: &[IpAddr]) -> String {
    addresses.iter().map(|address| format!("\"{address}\"")).collect::<Vec<_>>().join(",")
}
