//! Records of reads over REST: all reads of sensitive routes, and refused reads of the others.
//!
//! Programs poll. For each key, route, path, query and outcome the first read of a minute is recorded in full; further ones
//! are counted in one record per minute. A polling program therefore leaves two records a minute. Forbidden reads that differ
//! are bounded as forbidden acts are.

use std::collections::HashMap;

use chrono::{DateTime, Utc};
use parking_lot::Mutex;
use sha2::{Digest, Sha256};
use ulid::Ulid;

use super::Log;
use super::activity::Pending;
use super::attempt::Attempt;
use super::reports::{ACT_BYTES_MAX, ended};
use crate::domain::activity::{Record, RecordKind, Source, Status};
use crate::domain::annotations::Tier;
use crate::domain::id::{KeyId, TenantId};
use crate::domain::redact;
use crate::gateway::error::GatewayError;

/// Kinds of reads ([`ReadKind`]) counted within a minute. Reads beyond that are recorded one by one.
const READS_MAX: usize = 100_000;

/// Description of a read for its record.
#[derive(Clone, Copy, Debug)]
pub struct ReadAttempt<'a> {
    /// Name of the route, such as `keys.list`.
    pub what: &'static str,
    /// Name of the server that is read; `None` for other reads.
    pub server: Option<&'a str>,
    /// Path and query, as JSON.
    pub asked: &'a str,
}

/// A sensitive read under way, with capacity in the log reserved for its record.
#[derive(Debug)]
pub struct ReadUnderWay {
    pending: Pending,
    what: &'static str,
    asked: [u8; 32],
}

/// Key of the counters: reads of one tenant, API key, route, path, query and outcome are counted together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct ReadKind {
    tenant: TenantId,
    key: Option<KeyId>,
    what: &'static str,
    /// SHA-256 of path and query as they came. Texts would take more memory, and could hold secrets.
    asked: [u8; 32],
    code: Option<&'static str>,
}

/// Reads that followed the recorded one.
#[derive(Debug)]
struct ReadRepeats {
    /// Id of the recorded one.
    of: Ulid,
    server: Option<String>,
    key_name: Option<String>,
    owner: Option<String>,
    source: Source,
    status: Status,
    first: DateTime<Utc>,
    count: u64,
}

/// Counters of reads in this minute.
#[derive(Debug, Default)]
pub(super) struct ReadCounts(Mutex<HashMap<ReadKind, ReadRepeats>>);

impl ReadCounts {
    /// Decides whether a read is recorded. It is only counted if an equal one was recorded in this minute already; for the
    /// first one, `is_kept` decides.
    fn keeps(&self, same: ReadKind, record: &Record, is_kept: impl FnOnce() -> bool) -> bool {
        let mut reads = self.0.lock();
        if let Some(repeats) = reads.get_mut(&same) {
            if repeats.count == 0 {
                repeats.first = record.started_at();
            }
            repeats.count += 1;
            return false;
        }
        let is_kept = is_kept();
        if is_kept && reads.len() < READS_MAX {
            let Record { id, server, key_name, owner, source, status, .. } = record;
            let (server, first) = (server.clone(), record.started_at());
            let (key_name, owner) = (key_name.clone(), owner.clone());
            let (of, source, status) = (*id, *source, *status);
            reads.insert(same, ReadRepeats { of, server, key_name, owner, source, status, first, count: 0 });
        }
        is_kept
    }

    fn take(&self) -> HashMap<ReadKind, ReadRepeats> {
        std::mem::take(&mut *self.0.lock())
    }
}

impl Log {
    /// Begins a sensitive read and reserves capacity for its record.
    ///
    /// # Errors
    /// [`GatewayError::Unavailable`] if the log is full: the read must not be answered.
    pub async fn begin_read(
        &self,
        attempt: &Attempt,
        read: &ReadAttempt<'_>,
    ) -> Result<ReadUnderWay, GatewayError> {
        let pending = self.activity.begin_call(read_record(attempt, read)).await;
        let pending = pending.map_err(|_| GatewayError::Unavailable)?;
        Ok(ReadUnderWay { pending, what: read.what, asked: digest(read.asked) })
    }

    /// Records the outcome of a sensitive read, or counts it.
    pub fn end_read(&self, attempt: &Attempt, reading: ReadUnderWay, outcome: Result<(), &GatewayError>) {
        let ReadUnderWay { mut pending, what, asked } = reading;
        let code = ended(&mut pending.record, attempt.started, outcome);
        match self.keeps_read(attempt, what, asked, code, &pending.record) {
            true => pending.close(),
            false => pending.forget(),
        }
    }

    /// Records a refused read, or counts it.
    pub fn record_refused_read(&self, attempt: &Attempt, read: &ReadAttempt<'_>, error: &GatewayError) {
        let mut record = read_record(attempt, read);
        let code = ended(&mut record, attempt.started, Err(error));
        if self.keeps_read(attempt, read.what, digest(read.asked), code, &record) {
            self.write(record);
        }
    }

    /// Returns whether a read has a record of its own; if not, it is counted.
    fn keeps_read(
        &self,
        attempt: &Attempt,
        what: &'static str,
        asked: [u8; 32],
        code: Option<&'static str>,
        record: &Record,
    ) -> bool {
        let same = ReadKind { tenant: record.tenant, key: record.key, what, asked, code };
        self.reads.keeps(same, record, || code != Some("forbidden") || self.keeps_forbidden(attempt))
    }

    /// Writes one record for each read that was repeated since the last call.
    pub(in crate::gateway) fn record_repeated_reads(&self) {
        let repeated = self.reads.take().into_iter().filter(|(_, repeats)| repeats.count > 0);
        for (ReadKind { tenant, key, what, code, .. }, repeats) in repeated {
            let ReadRepeats { of, server, key_name, owner, source, status, first, count } = repeats;
            let mut record = Record::start(tenant, RecordKind::Admin, source, first);
            record.key = key;
            record.key_name = key_name;
            record.owner = owner;
            record.parent_id = Some(of);
            record.tool = Some(what.to_owned());
            record.server = server;
            record.tier = Some(Tier::Read);
            record.status = status;
            record.error_code = code.map(str::to_owned);
            record.arguments = Some(format!(r#"{{"count":{count}}}"#));
            record.warning = Some(format!("{count} more of these within a minute"));
            self.write(record);
        }
    }
}

fn digest(asked: &str) -> [u8; 32] {
    Sha256::digest(asked.as_bytes()).into()
}

fn read_record(attempt: &Attempt, read: &ReadAttempt<'_>) -> Record {
    let mut record = attempt.record(RecordKind::Admin);
    record.tool = Some(read.what.to_owned());
    record.tier = Some(Tier::Read);
    record.server = read.server.map(str::to_owned);
    record.arguments = Some(redact::preview(read.asked, ACT_BYTES_MAX).text);
    record
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gateway::clock;

    fn same(key: u128) -> ReadKind {
        ReadKind {
            tenant: TenantId::PLATFORM,
            key: Some(KeyId(uuid::Uuid::from_u128(key))),
            what: "keys.list",
            asked: digest("/keys"),
            code: None,
        }
    }

    fn record() -> Record {
        Record::start(TenantId::PLATFORM, RecordKind::Admin, Source::Rest, clock::now())
    }

    #[test]
    fn memory_is_bounded_and_nothing_is_lost_by_it() {
        let reads = ReadCounts::default();
        let is_kept = |key| reads.keeps(same(key), &record(), || true);
        for key in 0..READS_MAX as u128 {
            assert!(is_kept(key));
        }
        // beyond the bound each read is recorded by itself
        assert!(is_kept(u128::MAX));
        assert!(is_kept(u128::MAX));
        assert!(!is_kept(0));
        let taken = reads.take();
        assert_eq!((taken.len(), taken[&same(0)].count), (READS_MAX, 1));
        // the next minute begins with a record
        assert!(is_kept(0));
    }

    #[test]
    fn another_outcome_route_path_or_query_is_another_read() {
        let reads = ReadCounts::default();
        let is_kept = |same| reads.keeps(same, &record(), || true);
        assert!(is_kept(same(1)));
        assert!(is_kept(ReadKind { code: Some("forbidden"), ..same(1) }));
        assert!(is_kept(ReadKind { what: "settings.get", ..same(1) }));
        assert!(is_kept(ReadKind { asked: digest("/keys?limit=1"), ..same(1) }));
        assert!(is_kept(ReadKind { key: None, ..same(1) }));
        assert!(!is_kept(same(1)));
    }

    #[test]
    fn what_was_not_recorded_is_not_repeated() {
        let reads = ReadCounts::default();
        assert!(!reads.keeps(same(1), &record(), || false));
        assert!(reads.keeps(same(1), &record(), || true));
        assert!(!reads.keeps(same(1), &record(), || true));
    }
}
