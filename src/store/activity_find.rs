//! Search for the newest final records with certain values, among millions.
//!
//! Records can be read by time, through the primary key: fast for values that many records have. They can also be read
//! by value, through the index of each filter, which has no order: fast for rare values. Postgres guesses wrong where a
//! value is common on one day and rare on another. So the newest records are read by time first, and the number of hits
//! decides how to go on.

use std::time::{Duration, Instant};

use chrono::{DateTime, NaiveTime, TimeDelta, Utc};
use uuid::Uuid;

use super::activity_read::{ActivityFilter, ActivityRow, push_before, push_filter, push_values, select};
use super::tx::{Lane, TxAccess};
use super::unit::Unit;
use super::{Store, StoreError};
use crate::domain::id::TenantId;

/// Records that are read by time before the method is chosen.
const PROBE_ROWS: i64 = 1000;
/// Most records that are read by time in one statement.
const CHUNK_ROWS_MAX: i64 = 20_000;
/// Fewest hits among [`PROBE_ROWS`] with which reading by time goes on; with fewer, the rest is read by value.
const HITS_MIN: i64 = 4;

/// Longest time for which one search looks for a text.
const TEXT_SEARCH_MAX: Duration = Duration::from_secs(1);
/// Time that one statement of such a search should take. Its number of records follows from the time of the one before.
const TEXT_STEP: Duration = Duration::from_millis(100);
/// Number of records that the first statement of such a search reads, and fewest of a later one.
const TEXT_ROWS_MIN: i64 = 100;
/// Most records that one statement of such a search reads.
const TEXT_ROWS_MAX: i64 = 10_000;

/// Records that a search for a text found, and how far it came.
#[derive(Clone, Debug)]
pub struct ActivityHits {
    /// Records, newest first.
    pub rows: Vec<ActivityRow>,
    /// Time back to which all records were looked at.
    pub searched_to: DateTime<Utc>,
    /// Start and id of the last record that was looked at, from which to go on; `None` when there are no further ones.
    pub next: Option<(DateTime<Utc>, Uuid)>,
}

impl Store {
    /// Returns the newest records that match the filter, open ones included, at most `limit`. The search ends after
    /// [`TEXT_SEARCH_MAX`] whatever it found: no index holds texts.
    ///
    /// # Errors
    /// The database is out of reach or fails.
    pub async fn search_activity(
        &self,
        tenant: TenantId,
        filter: &ActivityFilter,
        limit: i64,
    ) -> Result<ActivityHits, StoreError> {
        let began = Instant::now();
        let mut tx = self.begin(Lane::Report, TxAccess::TenantSnapshot(tenant)).await?;
        let mut query = select("activity_open", tenant);
        push_filter(&mut query, filter);
        push_before(&mut query, filter.before);
        query.push(" order by started_at desc, id desc limit ").push_bind(limit);
        let open: Vec<ActivityRow> = query.build_query_as().fetch_all(&mut *tx).await?;
        let mut search = Search::new(tenant, filter, limit);
        let next = search.text_until(&mut tx, began + TEXT_SEARCH_MAX).await?;
        tx.commit().await?;
        let mut rows = search.found;
        // older open ones come with the page that reaches them
        rows.extend(open.into_iter().filter(|row| next.is_none_or(|next| (row.started_at, row.id) >= next)));
        rows.sort_by_key(|row| std::cmp::Reverse((row.started_at, row.id)));
        let is_cut = i64::try_from(rows.len()).is_ok_and(|found| found >= limit);
        rows.truncate(usize::try_from(limit).unwrap_or(0));
        let last = rows.last().filter(|_| is_cut).map(|row| (row.started_at, row.id));
        let next = last.or(next);
        Ok(ActivityHits { rows, searched_to: next.map_or(filter.start, |(at, _)| at), next })
    }

    /// Returns a page of records, newest first, open ones included.
    ///
    /// # Errors
    /// The database is out of reach or fails.
    pub async fn list_activity(
        &self,
        tenant: TenantId,
        filter: &ActivityFilter,
        limit: i64,
    ) -> Result<Vec<ActivityRow>, StoreError> {
        let mut tx = self.begin(Lane::Report, TxAccess::TenantSnapshot(tenant)).await?;
        let mut query = select("activity_open", tenant);
        push_filter(&mut query, filter);
        push_before(&mut query, filter.before);
        query.push(" order by started_at desc, id desc limit ").push_bind(limit);
        let mut rows: Vec<ActivityRow> = query.build_query_as().fetch_all(&mut *tx).await?;
        rows.extend(find(&mut tx, tenant, filter, limit).await?);
        tx.commit().await?;
        rows.sort_by_key(|row| std::cmp::Reverse((row.started_at, row.id)));
        rows.truncate(usize::try_from(limit).unwrap_or(0));
        Ok(rows)
    }
}

/// Returns the newest final records that match the filter, at most `limit`.
async fn find(
    tx: &mut Unit,
    tenant: TenantId,
    filter: &ActivityFilter,
    limit: i64,
) -> Result<Vec<ActivityRow>, StoreError> {
    let mut search = Search::new(tenant, filter, limit);
    if filter.has_values() {
        search.by_time_while_it_pays(tx).await?;
        search.by_value(tx).await?;
    } else {
        search.by_time(tx, filter.start, None).await?;
    }
    Ok(search.found)
}

/// A search under way: records that are not older than `before` and `end` have been read.
struct Search<'a> {
    tenant: TenantId,
    filter: &'a ActivityFilter,
    limit: i64,
    before: Option<(DateTime<Utc>, Uuid)>,
    end: DateTime<Utc>,
    found: Vec<ActivityRow>,
}

impl<'a> Search<'a> {
    fn new(tenant: TenantId, filter: &'a ActivityFilter, limit: i64) -> Search<'a> {
        let before = filter.before;
        let end = before.map_or(filter.end, |(at, _)| filter.end.min(at + TimeDelta::milliseconds(1)));
        Search { tenant, filter, limit, before, end, found: Vec::new() }
    }

    fn missing(&self) -> i64 {
        self.limit - i64::try_from(self.found.len()).unwrap_or(i64::MAX)
    }

    fn is_done(&self) -> bool {
        self.missing() <= 0 || self.end <= self.filter.start
    }

    /// Reads by time until `deadline`. Returns the position that was reached; `None` when there are no further records.
    async fn text_until(
        &mut self,
        tx: &mut Unit,
        deadline: Instant,
    ) -> Result<Option<(DateTime<Utc>, Uuid)>, StoreError> {
        let mut rows = TEXT_ROWS_MIN;
        while !self.is_done() {
            let began = Instant::now();
            let edge = self.edge(tx, rows).await?;
            self.by_time(tx, self.filter.start, edge).await?;
            let Some(edge) = edge else { return Ok(None) };
            (self.before, self.end) = (Some(edge), edge.0 + TimeDelta::milliseconds(1));
            let now = Instant::now();
            if now >= deadline {
                break;
            }
            let took_us = i64::try_from((now - began).as_micros()).unwrap_or(i64::MAX).max(1);
            let step_us = i64::try_from(TEXT_STEP.as_micros()).unwrap_or(i64::MAX);
            rows = rows.saturating_mul(step_us) / took_us;
            rows = rows.clamp(TEXT_ROWS_MIN, TEXT_ROWS_MAX);
        }
        Ok(self.before.filter(|_| self.end > self.filter.start))
    }

    /// Reads by time for as long as enough of the records match.
    async fn by_time_while_it_pays(&mut self, tx: &mut Unit) -> Result<(), StoreError> {
        let mut rows = PROBE_ROWS;
        while !self.is_done() {
            let before = self.found.len();
            let edge = self.edge(tx, rows).await?;
            self.by_time(tx, self.filter.start, edge).await?;
            let Some(edge) = edge else {
                // there are no further records
                self.end = self.filter.start;
                return Ok(());
            };
            (self.before, self.end) = (Some(edge), edge.0 + TimeDelta::milliseconds(1));
            let hits = i64::try_from(self.found.len() - before).unwrap_or(i64::MAX);
            if hits * PROBE_ROWS < HITS_MIN * rows {
                return Ok(());
            }
            // 1.5 times what would suffice at this rate of hits
            rows = (rows * self.missing() / hits * 3 / 2).clamp(PROBE_ROWS, CHUNK_ROWS_MAX);
        }
        Ok(())
    }

    /// Returns the position `rows` records further back; `None` when there are fewer.
    async fn edge(&self, tx: &mut Unit, rows: i64) -> Result<Option<(DateTime<Utc>, Uuid)>, StoreError> {
        let mut query = sqlx::QueryBuilder::new("select started_at, id from activity where tenant_id = ");
        query.push_bind(self.tenant.0).push(" and started_at >= ").push_bind(self.filter.start);
        query.push(" and started_at < ").push_bind(self.end);
        push_before(&mut query, self.before);
        query.push(" order by started_at desc, id desc limit 1 offset ").push_bind(rows - 1);
        Ok(query.build_query_as().fetch_optional(&mut **tx).await?)
    }

    /// Reads records by time, from the present position back to `from`, or to `edge` inclusive.
    async fn by_time(
        &mut self,
        tx: &mut Unit,
        from: DateTime<Utc>,
        edge: Option<(DateTime<Utc>, Uuid)>,
    ) -> Result<(), StoreError> {
        let mut query = select("activity", self.tenant);
        query.push(" and started_at >= ").push_bind(edge.map_or(from, |(at, _)| at));
        query.push(" and started_at < ").push_bind(self.end);
        push_before(&mut query, self.before);
        if let Some((at, id)) = edge {
            query.push(" and (started_at, id) >= (").push_bind(at).push(", ").push_bind(id).push(")");
        }
        push_values(&mut query, self.filter);
        query.push(" order by started_at desc, id desc limit ").push_bind(self.missing());
        self.found.extend(query.build_query_as::<ActivityRow>().fetch_all(&mut **tx).await?);
        Ok(())
    }

    /// Reads the rest by value: the rest of a day, then one day, two, four and so on. So early hits cost no more than
    /// their own days.
    async fn by_value(&mut self, tx: &mut Unit) -> Result<(), StoreError> {
        let mut days = 0;
        while !self.is_done() {
            let midnight =
                (self.end - TimeDelta::milliseconds(1)).date_naive().and_time(NaiveTime::MIN).and_utc();
            let from = (midnight - TimeDelta::days(days)).max(self.filter.start);
            let mut query = select("activity", self.tenant);
            query.push(" and started_at >= ").push_bind(from);
            query.push(" and started_at < ").push_bind(self.end);
            push_before(&mut query, self.before);
            push_values(&mut query, self.filter);
            // an order that no index has, so that Postgres cannot choose to read by time
            query.push(" order by started_at + interval '0' desc, id desc limit ").push_bind(self.missing());
            self.found.extend(query.build_query_as::<ActivityRow>().fetch_all(&mut **tx).await?);
            self.end = from;
            days = if days == 0 { 1 } else { days * 2 };
        }
        Ok(())
    }
}
