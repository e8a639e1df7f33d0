//! Summaries of the activity log over a period, counted in the database.
//!
//! Each day is counted in one pass and a transaction of its own, so that no statement is long however many days there
//! are. Durations are counted in classes, which can be added up, instead of sorted.

use std::collections::{BTreeMap, HashMap};
use std::hash::Hash;

use chrono::{DateTime, NaiveTime, TimeDelta, Utc};
use sqlx::FromRow;
use uuid::Uuid;

use super::tx::{Lane, TxAccess};
use super::{Store, StoreError};
use crate::domain::annotations::Tier;
use crate::domain::id::{KeyId, TenantId};

/// Number of records of one type, status, operation type and tier.
#[derive(Clone, Debug)]
pub struct ActivityCount {
    /// Type of the records (`type`).
    pub kind: String,
    /// Status of the records (`status`).
    pub status: String,
    /// Operation type, as declared or as implied by the tool variant; `None` if a record has none.
    pub intent_type: Option<String>,
    /// Tier of the tool at the time of the call; `None` if a record has none.
    pub tier: Option<String>,
    /// Number of records.
    pub count: i64,
}

/// Counts and durations of the calls of one tool, or of all tools of a server.
#[derive(Clone, Debug)]
pub struct CallSummary {
    /// Name of the server.
    pub server: String,
    /// Name of the tool; `None` for a whole server.
    pub tool: Option<String>,
    /// Number of calls, whatever their end.
    pub calls: i64,
    /// Number of calls that ran and did not succeed: `upstream_error`, `error`, `unknown`.
    pub failed: i64,
    /// Number of calls that were not run: `blocked`, `rejected`.
    pub refused: i64,
    /// Median duration of the calls that were not refused, in milliseconds, within 5 %; `None` if none has ended.
    pub p50_ms: Option<f64>,
    /// 95th percentile of the duration of calls that were not refused, in milliseconds, within 5 %; `None` if none has
    /// ended.
    pub p95_ms: Option<f64>,
}

/// Number of calls of one tool on which one rule decided otherwise than to allow them.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, FromRow)]
pub struct DecisionCount {
    /// Decision (`decision`).
    pub decision: String,
    /// Rule that decided; `None` if the mode or a person did.
    pub rule: Option<String>,
    /// Name of the server.
    pub server: Option<String>,
    /// Name of the tool.
    pub tool: Option<String>,
    /// Number of calls.
    pub calls: i64,
}

/// Summary of a tenant's activity over a period.
#[derive(Clone, Debug)]
pub struct ActivitySummary {
    /// Numbers of records by type, status, operation type and tier.
    pub counts: Vec<ActivityCount>,
    /// Tools with the most calls, in descending order.
    pub tools: Vec<CallSummary>,
    /// Tools with the longest durations, by 95th percentile, in descending order.
    pub slowest: Vec<CallSummary>,
    /// Servers with the most calls, in descending order.
    pub servers: Vec<CallSummary>,
    /// Numbers of calls that a policy did not simply allow, by decision.
    pub by_decision: Vec<(String, i64)>,
    /// Decisions on the most calls, in descending order.
    pub decisions: Vec<DecisionCount>,
}

/// Records that a summary covers.
#[derive(Clone, Copy, Debug)]
pub struct SummaryScope {
    /// Only records of this principal: of a key by its id, or of a person by the id of the identity; `None` for all.
    pub key: Option<KeyId>,
    /// Only calls of tools of this tier; `None` for all records.
    pub tier: Option<Tier>,
    /// True for only those calls whose tool was not of tier read.
    pub not_read: bool,
    /// Earliest start of a record, inclusive.
    pub start: DateTime<Utc>,
    /// Latest start of a record, exclusive.
    pub end: DateTime<Utc>,
}

/// Duration classes per octave: each class is twice as long as the eighth before it, so that its middle is within 5 %.
const CLASSES_PER_OCTAVE: f64 = 8.0;
/// Most rows of one pass: counts first, then the cells of tools with the most calls.
const ROWS_MAX: i64 = 100_000;
/// Most tools, and most servers, that are kept from one day to the next.
const TALLIES_MAX: usize = 5000;

/// Memory of a pass for each of its hash tables. With less, Postgres sorts all records on disk, which takes four times
/// as long.
const WORK_MEM: &str = "select set_config('work_mem', '16MB', true)";
/// Query of one pass, with two groupings: all records by type, status, operation type and tier, and calls by tool, outcome
/// and duration class. Both aggregate an inner grouping by all these columns. That has far fewer rows, and Postgres
/// computes it in parallel.
const PASS: &str = "
    select type, status, intent_type, tier, server, tool, outcome, class, sum(count)::bigint as count from (
        select type, status, intent_type, tier,
            case when type in ('tool_call', 'direct_call') then server end as server,
            case when type in ('tool_call', 'direct_call') then tool end as tool,
            case when status in ('upstream_error', 'error', 'unknown') then 'failed'
                when status in ('blocked', 'rejected') then 'refused' else 'other' end as outcome,
            case when duration_ms is not null then floor(ln(greatest(duration_ms, 0.001)) * $4)::int end as class,
            count(*) as count
        from activity
        where tenant_id = $1 and started_at >= $2 and started_at < $3 and ($5::uuid is null or coalesce(key_id, identity_id) = $5)
            and ($7::text is null or tier = $7) and (not $8 or tier <> 'read')
        group by 1, 2, 3, 4, 5, 6, 7, 8
    ) as alike
    group by grouping sets ((type, status, intent_type, tier), (server, tool, outcome, class))
    having grouping(server) = 1 or server is not null
    order by grouping(server) desc, sum(count) desc limit $6";

/// Query for records of calls under way: they are counted as well, but have no duration yet.
const OPEN: &str = "
    select type, status, intent_type, tier, null::text as server, null::text as tool, null::text as outcome,
        null::int as class, count(*) as count
    from activity_open
    where tenant_id = $1 and started_at >= $2 and started_at < $3 and ($4::uuid is null or coalesce(key_id, identity_id) = $4)
        and ($5::text is null or tier = $5) and (not $6 or tier <> 'read')
    group by 1, 2, 3, 4";

/// Query for calls that a policy did not simply allow. The index of the filter finds them.
const DECISIONS: &str = "
    select decision, rule, server, tool, count(*) as calls
    from activity
    where tenant_id = $1 and started_at >= $2 and started_at < $3 and ($4::uuid is null or coalesce(key_id, identity_id) = $4)
        and decision <> 'allowed' and ($6::text is null or tier = $6) and (not $7 or tier <> 'read')
    group by 1, 2, 3, 4
    order by 5 desc limit $5";

/// Row of a pass: with a type in the first grouping, with an outcome in the second.
#[derive(FromRow)]
struct Cell {
    #[sqlx(rename = "type")]
    kind: Option<String>,
    status: Option<String>,
    intent_type: Option<String>,
    tier: Option<String>,
    server: Option<String>,
    tool: Option<String>,
    outcome: Option<String>,
    class: Option<i32>,
    count: i64,
}

/// Counts of calls, in total and by outcome and duration class.
#[derive(Default)]
struct Tally {
    calls: i64,
    failed: i64,
    refused: i64,
    classes: HashMap<i32, i64>,
}

impl Tally {
    fn add(&mut self, outcome: &str, class: Option<i32>, count: i64) {
        self.calls += count;
        match outcome {
            "failed" => self.failed += count,
            "refused" => self.refused += count,
            _ => {}
        }
        // refused calls took no time, and would distort the durations of the others
        if let Some(class) = class.filter(|_| outcome != "refused") {
            *self.classes.entry(class).or_default() += count;
        }
    }

    /// Returns the middle of the duration class at quantile `share`, in milliseconds; `None` without durations.
    fn quantile_ms(&self, share: f64) -> Option<f64> {
        let mut classes: Vec<(i32, i64)> =
            self.classes.iter().map(|(class, count)| (*class, *count)).collect();
        classes.sort_unstable();
        let total: i64 = classes.iter().map(|(_, count)| count).sum();
        let wanted = (total as f64 * share).ceil();
        let mut passed = 0;
        let found = classes.into_iter().find(|(_, count)| {
            passed += count;
            passed as f64 >= wanted
        });
        found.map(|(class, _)| ((f64::from(class) + 0.5) / CLASSES_PER_OCTAVE).exp2())
    }

    fn summary(&self, server: &str, tool: Option<&str>) -> CallSummary {
        CallSummary {
            server: server.to_owned(),
            tool: tool.map(str::to_owned),
            calls: self.calls,
            failed: self.failed,
            refused: self.refused,
            p50_ms: self.quantile_ms(0.5),
            p95_ms: self.quantile_ms(0.95),
        }
    }
}

/// Sums of all passes.
#[derive(Default)]
struct Sums {
    /// Numbers of records by type, status, operation type and tier.
    counts: HashMap<(String, String, Option<String>, Option<String>), i64>,
    tools: HashMap<(String, String), Tally>,
    servers: HashMap<String, Tally>,
    /// Numbers of calls, by decisions whose own number is 0.
    decisions: HashMap<DecisionCount, i64>,
}

impl Sums {
    fn add_decision(&mut self, mut decision: DecisionCount) {
        let calls = std::mem::take(&mut decision.calls);
        *self.decisions.entry(decision).or_default() += calls;
    }

    fn add(&mut self, cell: Cell) {
        match (cell.kind, cell.status, cell.server, cell.outcome) {
            (Some(kind), Some(status), ..) => {
                *self.counts.entry((kind, status, cell.intent_type, cell.tier)).or_default() += cell.count;
            }
            (_, _, Some(server), Some(outcome)) => {
                self.servers.entry(server.clone()).or_default().add(&outcome, cell.class, cell.count);
                if let Some(tool) = cell.tool {
                    self.tools.entry((server, tool)).or_default().add(&outcome, cell.class, cell.count);
                }
            }
            _ => {}
        }
    }

    /// Drops the least called tools and servers above a bound, because callers can invent names without end.
    fn forget_the_rarest(&mut self) {
        keep_most_called(&mut self.tools, |tally| tally.calls);
        keep_most_called(&mut self.servers, |tally| tally.calls);
        keep_most_called(&mut self.decisions, |calls| *calls);
    }

    fn summary(self, top: usize) -> ActivitySummary {
        let count = |((kind, status, intent_type, tier), count)| ActivityCount {
            kind,
            status,
            intent_type,
            tier,
            count,
        };
        let mut tools: Vec<_> = self.tools.iter().collect();
        tools.sort_unstable_by_key(|(name, tally)| (std::cmp::Reverse(tally.calls), *name));
        let mut servers: Vec<_> = self.servers.iter().collect();
        servers.sort_unstable_by_key(|(name, tally)| (std::cmp::Reverse(tally.calls), *name));
        let mut by_decision: BTreeMap<String, i64> = BTreeMap::new();
        for (decision, calls) in &self.decisions {
            *by_decision.entry(decision.decision.clone()).or_default() += calls;
        }
        let mut decisions: Vec<DecisionCount> =
            self.decisions.into_iter().map(|(decision, calls)| DecisionCount { calls, ..decision }).collect();
        decisions.sort_unstable_by(|a, b| b.calls.cmp(&a.calls).then_with(|| a.cmp(b)));
        decisions.truncate(top);
        let tool = |((server, tool), tally): &(&(String, String), &Tally)| tally.summary(server, Some(tool));
        let mut timed: Vec<_> =
            tools.iter().filter_map(|tool| Some((tool.1.quantile_ms(0.95)?, tool))).collect();
        timed.sort_by(|(one, _), (other, _)| other.total_cmp(one));
        ActivitySummary {
            tools: tools.iter().take(top).map(tool).collect(),
            slowest: timed.iter().take(top).map(|(_, timed)| tool(timed)).collect(),
            servers: servers.iter().take(top).map(|(name, tally)| tally.summary(name, None)).collect(),
            counts: self.counts.into_iter().map(count).collect(),
            by_decision: by_decision.into_iter().collect(),
            decisions,
        }
    }
}

fn keep_most_called<K: Clone + Eq + Hash, V>(tallies: &mut HashMap<K, V>, calls_of: impl Fn(&V) -> i64) {
    if tallies.len() <= TALLIES_MAX {
        return;
    }
    let mut calls: Vec<i64> = tallies.values().map(&calls_of).collect();
    let (_, least, _) = calls.select_nth_unstable_by(TALLIES_MAX, |a, b| b.cmp(a));
    let least = *least;
    tallies.retain(|_, tally| calls_of(tally) > least);
}

impl Store {
    /// Counts a tenant's records, and finds the `top` most called tools and servers.
    ///
    /// # Errors
    /// The database is out of reach or fails.
    pub async fn summarize_activity(
        &self,
        tenant: TenantId,
        scope: &SummaryScope,
        top: usize,
    ) -> Result<ActivitySummary, StoreError> {
        let mut sums = Sums::default();
        let mut start = scope.start;
        while start < scope.end {
            let midnight = start.date_naive().and_time(NaiveTime::MIN).and_utc();
            let end = (midnight + TimeDelta::days(1)).min(scope.end);
            let (cells, decisions) =
                self.summarize_pass(tenant, &SummaryScope { start, end, ..*scope }).await?;
            cells.into_iter().for_each(|cell| sums.add(cell));
            decisions.into_iter().for_each(|decision| sums.add_decision(decision));
            sums.forget_the_rarest();
            start = end;
        }
        Ok(sums.summary(top))
    }

    /// Runs one pass in one snapshot, so that a record which ends meanwhile is in exactly one of the two tables.
    async fn summarize_pass(
        &self,
        tenant: TenantId,
        scope: &SummaryScope,
    ) -> Result<(Vec<Cell>, Vec<DecisionCount>), StoreError> {
        let SummaryScope { key, tier, not_read, start, end } = *scope;
        let key: Option<Uuid> = key.map(|key| key.0);
        let tier = tier.map(Tier::as_str);
        let mut tx = self.begin(Lane::Report, TxAccess::TenantSnapshot(tenant)).await?;
        let open = sqlx::query_as(OPEN).bind(tenant.0).bind(start).bind(end).bind(key);
        let open = open.bind(tier).bind(not_read);
        let mut cells: Vec<Cell> = open.fetch_all(&mut *tx).await?;
        sqlx::query(WORK_MEM).execute(&mut *tx).await?;
        let pass = sqlx::query_as(PASS).bind(tenant.0).bind(start).bind(end);
        let pass = pass.bind(CLASSES_PER_OCTAVE / std::f64::consts::LN_2).bind(key).bind(ROWS_MAX);
        let pass = pass.bind(tier).bind(not_read);
        cells.extend(pass.fetch_all(&mut *tx).await?);
        let decisions =
            sqlx::query_as(DECISIONS).bind(tenant.0).bind(start).bind(end).bind(key).bind(ROWS_MAX);
        let decisions = decisions.bind(tier).bind(not_read).fetch_all(&mut *tx).await?;
        tx.commit().await?;
        Ok((cells, decisions))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cell(tool: &str, outcome: &str, ms: f64, count: i64) -> Cell {
        let class = Some((ms.log2() * CLASSES_PER_OCTAVE).floor() as i32);
        let (server, tool, outcome) = (Some("up".into()), Some(tool.into()), Some(outcome.into()));
        Cell { kind: None, status: None, intent_type: None, tier: None, server, tool, outcome, class, count }
    }

    #[test]
    fn quantiles_are_within_a_twentieth() {
        let mut sums = Sums::default();
        for ms in 1..=1000 {
            sums.add(cell("slow", "other", f64::from(ms), 1));
        }
        let summary = sums.summary(5);
        let tool = summary.tools.first().unwrap();
        for (got, want) in [(tool.p50_ms, 500.0), (tool.p95_ms, 950.0)] {
            let off = (got.unwrap() / want - 1.0).abs();
            assert!(off < 0.05, "{got:?} instead of {want}");
        }
        assert_eq!(Tally::default().quantile_ms(0.5), None);
    }

    #[test]
    fn the_slowest_come_first_and_refused_calls_took_no_time() {
        let mut sums = Sums::default();
        for (tool, outcome, ms, count) in [
            ("often", "other", 1.0, 50),
            ("slow", "failed", 900.0, 1),
            ("slower", "other", 5000.0, 2),
            ("shut", "refused", 1.0, 90),
        ] {
            sums.add(cell(tool, outcome, ms, count));
        }
        let names =
            |tools: &[CallSummary]| tools.iter().filter_map(|tool| tool.tool.clone()).collect::<Vec<_>>();
        let summary = sums.summary(5);
        assert_eq!(names(&summary.slowest), ["slower", "slow", "often"]);
        assert_eq!(names(&summary.tools), ["shut", "often", "slower", "slow"]);
    }

    #[test]
    fn invented_names_do_not_pile_up() {
        let mut sums = Sums::default();
        sums.add(cell("real", "other", 1.0, 3));
        for number in 0..2 * TALLIES_MAX {
            sums.add(cell(&format!("invented{number}"), "refused", 1.0, 1));
        }
        sums.forget_the_rarest();
        assert_eq!(sums.tools.len(), 1);
        assert_eq!(sums.summary(5).tools.first().and_then(|tool| tool.tool.clone()).as_deref(), Some("real"));
    }

    #[test]
    fn days_add_up_and_the_most_called_come_first() {
        let mut sums = Sums::default();
        for (tool, outcome, count) in
            [("a", "other", 3), ("b", "failed", 2), ("a", "refused", 1), ("b", "other", 4)]
        {
            sums.add(cell(tool, outcome, 10.0, count));
        }
        for _day in 0..2 {
            let (kind, status) = (Some("search".to_owned()), Some("success".to_owned()));
            sums.add(Cell { kind, status, server: None, outcome: None, ..cell("", "", 1.0, 5) });
        }
        for (tool, calls) in [("a", 2), ("b", 9), ("a", 8)] {
            let (server, tool, rule) = (Some("up".into()), Some(tool.into()), Some("r".into()));
            sums.add_decision(DecisionCount { decision: "would_ask".into(), rule, server, tool, calls });
        }
        let summary = sums.summary(1);
        assert_eq!(summary.by_decision, [("would_ask".to_owned(), 19)]);
        let decided: Vec<_> = summary.decisions.iter().map(|of| (of.tool.as_deref(), of.calls)).collect();
        assert_eq!(decided, [(Some("a"), 10)]);
        assert_eq!(summary.counts.iter().map(|count| count.count).collect::<Vec<_>>(), [10]);
        let shown = |of: &CallSummary| (of.tool.clone(), of.calls, of.failed, of.refused);
        assert_eq!(summary.tools.iter().map(shown).collect::<Vec<_>>(), [(Some("b".to_owned()), 6, 2, 0)]);
        assert_eq!(summary.servers.iter().map(shown).collect::<Vec<_>>(), [(None, 10, 2, 1)]);
    }
}
