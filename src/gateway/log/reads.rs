//! Records of reads over REST: all reads of sensitive routes, and refused reads of the others.
//!
//! Programs poll. For each key, route and outcome the first read of a minute is recorded in full; further ones are counted
//! in one record per minute. A polling program therefore leaves two records a minute.

use std::collections::HashMap;
use std::time::Instant;

use parking_lot::Mutex;
use chrono::{DateTime, Utc};

use super::Log;
use super::activity::Pending;
use super::attempt::Attempt;
use super::reports::{ACT_BYTES_MAX, ended};
use crate::domain::activity::{Record, RecordKind, Source, Status};
use crate::domain::annotations::Tier;
use crate::domain::id::{KeyId, TenantId};
use crate::domain::redact;
use crate::gateway::error::GatewayError;

/// Combinations of key, route and outcome counted within a minute. Reads beyond that are recorded one by one.
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
    started: Instant,
}

/// Key of the counters: reads of one tenant, API key, route and outcome are counted together.
#[derive(Debug, PartialEq, Eq, Hash)]
struct ReadKind {
    tenant: TenantId,
    key: Option<KeyId>,
    what: &'static str,
    code: Option<&'static str>,
}

/// Reads that followed the recorded one.
#[derive(Debug)]
struct ReadRepeats {
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
    /// Counts a read if an equal one was recorded in this minute already. Returns whether it did.
    fn count(&self, same: ReadKind, record: &Record) -> bool {
        let mut reads = self.0.lock();
        if let Some(repeats) = reads.get_mut(&same) {
            if repeats.count == 0 {
                repeats.first = record.started_at();
            }
            repeats.count += 1;
            return true;
        }
        if reads.len() < READS_MAX {
            let Record { owner, source, status, .. } = record;
            let first = record.started_at();
            reads.insert(
                same,
                ReadRepeats { owner: owner.clone(), source: *source, status: *status, first, count: 0 },
            );
        }
        false
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
        Ok(ReadUnderWay { pending, what: read.what, started: attempt.started })
    }

    /// Records the outcome of a sensitive read, or counts it.
    pub fn end_read(&self, mut reading: ReadUnderWay, outcome: Result<(), &GatewayError>) {
        let record = &mut reading.pending.record;
        let code = ended(record, reading.started, outcome);
        let same = ReadKind { tenant: record.tenant, key: record.key, what: reading.what, code };
        match self.reads.count(same, record) {
            true => reading.pending.forget(),
            false => reading.pending.close(),
        }
    }

    /// Records a refused read, or counts it.
    pub fn record_refused_read(&self, attempt: &Attempt, read: &ReadAttempt<'_>, error: &GatewayError) {
        let mut record = read_record(attempt, read);
        let code = ended(&mut record, attempt.started, Err(error));
        let same = ReadKind { tenant: record.tenant, key: record.key, what: read.what, code };
        if !self.reads.count(same, &record) {
            self.write(record);
        }
    }

    /// Writes one record for each key, route and outcome that was repeated since the last call.
    pub(in crate::gateway) fn record_repeated_reads(&self) {
        let repeated = self.reads.take().into_iter().filter(|(_, repeats)| repeats.count > 0);
        for (ReadKind { tenant, key, what, code }, ReadRepeats { owner, source, status, first, count }) in
            repeated
        {
            let mut record = Record::start(tenant, RecordKind::Admin, source, first);
            record.key = key;
            record.owner = owner;
            record.tool = Some(what.to_owned());
            record.tier = Some(Tier::Read.as_str());
            record.status = status;
            record.error_code = code.map(str::to_owned);
            record.arguments = Some(format!(r#"{{"count":{count}}}"#));
            record.warning = Some(format!("{count} more of these within a minute"));
            self.write(record);
        }
    }
}

fn read_record(attempt: &Attempt, read: &ReadAttempt<'_>) -> Record {
    let mut record = attempt.record(RecordKind::Admin);
    record.tool = Some(read.what.to_owned());
    record.tier = Some(Tier::Read.as_str());
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
            code: None,
        }
    }

    #[test]
    fn memory_is_bounded_and_nothing_is_lost_by_it() {
        let reads = ReadCounts::default();
        let record = Record::start(TenantId::PLATFORM, RecordKind::Admin, Source::Rest, clock::now());
        for key in 0..READS_MAX as u128 {
            assert!(!reads.count(same(key), &record));
        }
        // beyond the bound each read is recorded by itself
        assert!(!reads.count(same(u128::MAX), &record));
        assert!(!reads.count(same(u128::MAX), &record));
        assert!(reads.count(same(0), &record));
        let taken = reads.take();
        assert_eq!((taken.len(), taken[&same(0)].count), (READS_MAX, 1));
        // the next minute begins with a record
        assert!(!reads.count(same(0), &record));
    }

    #[test]
    fn another_outcome_or_route_is_another_read() {
        let reads = ReadCounts::default();
        let record = Record::start(TenantId::PLATFORM, RecordKind::Admin, Source::Rest, clock::now());
        assert!(!reads.count(same(1), &record));
        assert!(!reads.count(ReadKind { code: Some("forbidden"), ..same(1) }, &record));
        assert!(!reads.count(ReadKind { what: "settings.get", ..same(1) }, &record));
        assert!(!reads.count(ReadKind { key: None, ..same(1) }, &record));
        assert!(reads.count(same(1), &record));
    }
}
