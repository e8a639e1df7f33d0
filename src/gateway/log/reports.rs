//! Reports on the activity log, and records of administrators' acts.

use std::time::Instant;

use chrono::{DateTime, Utc};
use ulid::Ulid;
use uuid::Uuid;

use super::Log;
use super::activity::Pending;
use super::attempt::Attempt;
use crate::domain::activity::{Record, RecordKind, Source, Status};
use crate::domain::id::{KeyId, split_canonical};
use crate::domain::provenance::{self, LedgerRecord, LedgerRow};
use crate::domain::redact;
use crate::domain::tenant::Action;
use crate::gateway::clock;
use crate::gateway::error::GatewayError;
use crate::gateway::outlive::Outlive;
use crate::gateway::tenants::Caller;
use crate::gateway::tenants::Shed;
use crate::store::{
    ActivityFilter, ActivityHits, ActivityRow, ActivitySummary, MinuteCalls, PastCalls, PastTimes,
    StoreError, SummaryScope,
};

/// Most bytes of each text in the record of an administrator's act.
pub(super) const ACT_BYTES_MAX: usize = 2000;
/// Most records on one page of an export.
const EXPORT_ROWS: i64 = 1000;
/// Most bytes of texts on one page of an export or a stream: the page stays in memory until its client has read it.
const PAGE_BYTES_MAX: usize = 256 * 1024;
/// Most tools and servers listed in a summary.
const SUMMARY_TOP: usize = 20;

/// Returns how many of these rows fit on a page of [`PAGE_BYTES_MAX`] bytes of texts, at least one.
pub(super) fn fitting<'a>(rows: impl Iterator<Item = &'a ActivityRow>) -> usize {
    let mut bytes = 0;
    let sizes = rows.map(ActivityRow::text_bytes);
    let fits = sizes.take_while(|size| {
        bytes += size;
        bytes <= PAGE_BYTES_MAX
    });
    fits.count().max(1)
}

impl Caller {
    /// Narrows a filter to the records this caller may see; `None` if there can be none.
    pub(super) fn visible(&self, mut filter: ActivityFilter) -> Result<Option<ActivityFilter>, GatewayError> {
        self.authorise(Action::ReadOwnActivity)?;
        if self.authorise(Action::ReadActivity).is_err() {
            // a filter for another key's records matches none that this caller may see
            if filter.key.is_some_and(|key| Some(key) != self.key) {
                return Ok(None);
            }
            filter.key = self.key;
        }
        Ok(Some(filter))
    }

    /// Returns the key to whose records this caller is narrowed; `None` for a caller that may see all of its tenant.
    pub(super) fn own_records(&self) -> Result<Option<KeyId>, GatewayError> {
        self.authorise(Action::ReadOwnActivity)?;
        match self.authorise(Action::ReadActivity) {
            Ok(()) => Ok(None),
            Err(error) => self.key.ok_or(error).map(Some),
        }
    }
}

impl Log {
    /// Returns a page of the activity log. A key that may see only its own records gets only those.
    ///
    /// # Errors
    /// [`GatewayError::Forbidden`] for the role, [`GatewayError::Busy`] if too many reports of the tenant are under way, or
    /// [`GatewayError::Unavailable`].
    pub async fn list_activity(
        &self,
        caller: &Caller,
        filter: ActivityFilter,
        limit: i64,
    ) -> Result<Vec<ActivityRow>, GatewayError> {
        let Some(filter) = caller.visible(filter)? else { return Ok(Vec::new()) };
        let _turn = self.report_lane.enter(caller.tenant_id()).await?;
        let page = self.store.list_activity(caller.tenant_id(), &filter, limit).await;
        page.map_err(|error| GatewayError::from_store(error, "activity record"))
    }

    /// Returns the newest records that hold the text of the filter, as far as one second of work finds them.
    ///
    /// # Errors
    /// Errors of [`Log::list_activity`].
    pub async fn search_activity(
        &self,
        caller: &Caller,
        filter: ActivityFilter,
        limit: i64,
    ) -> Result<ActivityHits, GatewayError> {
        let nothing = ActivityHits { rows: Vec::new(), searched_to: filter.start, next: None };
        let Some(filter) = caller.visible(filter)? else { return Ok(nothing) };
        let _turn = self.report_lane.enter(caller.tenant_id()).await?;
        let hits = self.store.search_activity(caller.tenant_id(), &filter, limit).await;
        hits.map_err(|error| GatewayError::from_store(error, "activity record"))
    }

    /// Returns the next records of an export; an empty page is the end.
    ///
    /// # Errors
    /// [`GatewayError::Forbidden`] if the key is not valid any more; otherwise as [`Log::list_activity`].
    pub async fn export_activity(
        &self,
        caller: &Caller,
        filter: &ActivityFilter,
    ) -> Result<Vec<ActivityRow>, GatewayError> {
        if !self.tenants.is_valid(caller) {
            return Err(GatewayError::Forbidden("this key is not valid any more".to_owned()));
        }
        let mut rows = self.list_activity(caller, filter.clone(), EXPORT_ROWS).await?;
        rows.truncate(fitting(rows.iter()));
        Ok(rows)
    }

    /// Summarises the activity of a scope. A key that may see only its own records gets only those counted.
    ///
    /// # Errors
    /// [`GatewayError::Forbidden`] for the role, [`GatewayError::Busy`] if too many reports of the tenant are under way, or
    /// [`GatewayError::Unavailable`].
    pub async fn summarize_activity(
        &self,
        caller: &Caller,
        mut scope: SummaryScope,
    ) -> Result<ActivitySummary, GatewayError> {
        if let Some(own) = caller.own_records()? {
            scope.key = Some(own);
        }
        let _turn = self.report_lane.enter(caller.tenant_id()).await?;
        let summary = self.store.summarize_activity(caller.tenant_id(), &scope, SUMMARY_TOP).await;
        summary.map_err(|error| GatewayError::from_store(error, "activity record"))
    }

    /// Counts the calls that began from `start`, inclusive, to `end`, exclusive, by minute and outcome; minutes without
    /// calls are left out. A key that may see only its own records gets only those counted.
    ///
    /// # Errors
    /// As [`Log::summarize_activity`].
    pub async fn count_minutes(
        &self,
        caller: &Caller,
        range: (DateTime<Utc>, DateTime<Utc>),
    ) -> Result<Vec<MinuteCalls>, GatewayError> {
        let own = caller.own_records()?;
        let _turn = self.report_lane.enter(caller.tenant_id()).await?;
        let minutes = self.store.count_minutes(caller.tenant_id(), own, range).await;
        minutes.map_err(|error| GatewayError::from_store(error, "activity record"))
    }

    /// Counts past calls that a policy decided on, by what their records keep of them; see [`PastCalls`].
    ///
    /// # Errors
    /// [`GatewayError::Forbidden`] for the role, [`GatewayError::Busy`] if too many reports of the tenant are under way, or
    /// [`GatewayError::Unavailable`].
    pub(in crate::gateway) async fn count_past_calls(
        &self,
        caller: &Caller,
        range: (DateTime<Utc>, DateTime<Utc>),
        times: PastTimes,
        limit: i64,
    ) -> Result<Vec<PastCalls>, GatewayError> {
        caller.authorise(Action::ReadActivity)?;
        let _turn = self.report_lane.enter(caller.tenant_id()).await?;
        let groups = self.store.count_past_calls(caller.tenant_id(), range, times, limit).await;
        groups.map_err(|error| GatewayError::from_store(error, "activity record"))
    }

    /// Returns one record.
    ///
    /// # Errors
    /// [`GatewayError::NotFound`], also for a record that the caller may not see; [`GatewayError::Forbidden`] for the role,
    /// [`GatewayError::Busy`], or [`GatewayError::Unavailable`].
    pub async fn get_activity(&self, caller: &Caller, id: Ulid) -> Result<ActivityRow, GatewayError> {
        caller.authorise(Action::ReadOwnActivity)?;
        let _turn = self.report_lane.enter(caller.tenant_id()).await?;
        let found = self.store.get_activity(caller.tenant_id(), id).await;
        let row = found.map_err(|error| GatewayError::from_store(error, "activity record"))?;
        let principal = row.key_id.or(row.identity_id);
        let own = principal.is_some() && principal == caller.key.map(|key| key.0);
        if caller.authorise(Action::ReadActivity).is_err() && !own {
            return Err(GatewayError::from_store(StoreError::NotFound, "activity record"));
        }
        Ok(row)
    }

    /// Returns the ledger of a call, and whether it is as it was written; `None` without rows, unless the record says that there were
    /// some.
    ///
    /// # Errors
    /// As [`Log::get_activity`].
    pub async fn provenance(
        &self,
        caller: &Caller,
        id: Ulid,
    ) -> Result<(Vec<LedgerRow>, Option<bool>), GatewayError> {
        let record = self.get_activity(caller, id).await?;
        let tenant = caller.tenant_id();
        let _turn = self.report_lane.enter(tenant).await?;
        let failed = |error| GatewayError::from_store(error, "ledger");
        let rows = self.store.read_provenance(tenant, id).await.map_err(failed)?;
        let said = LedgerRecord::of(&record.status, record.has_ledger);
        let is_whole = provenance::is_whole(&rows, (id, said), tenant, &self.options.consent_keys);
        Ok((rows, is_whole))
    }

    /// Begins an administrator's act: its record is committed when this returns.
    ///
    /// # Errors
    /// The act must not be done: [`GatewayError::Unavailable`] if its record could not be committed,
    /// [`GatewayError::Forbidden`] if the key has become invalid.
    pub async fn begin_act(&self, attempt: &Attempt, act: &Act<'_>) -> Result<Acting, GatewayError> {
        let pending = self.activity.begin_call(act_record(attempt, act)).await;
        let pending = pending.map_err(|_| GatewayError::Unavailable)?;
        let pending = pending.open().await.map_err(|_| GatewayError::Unavailable)?;
        let acting = Acting { pending, failure: None };
        if self.tenants.is_valid(&attempt.caller) {
            return Ok(acting);
        }
        let error = GatewayError::Forbidden("this key is not valid any more; nothing was done".to_owned());
        self.end_act(attempt, acting, Err(&error));
        Err(error)
    }

    /// Records the outcome of an administrator's act, or counts it.
    pub fn end_act(&self, attempt: &Attempt, acting: Acting, outcome: Result<(), &GatewayError>) {
        let mut pending = acting.pending;
        ended(&mut pending.record, attempt.started, outcome);
        if let Some(failure) = acting.failure.filter(|_| outcome.is_ok()) {
            pending.record.status = Status::Error;
            pending.record.error_message = Some(redact::preview(&failure, ACT_BYTES_MAX).text);
        }
        let is_forbidden = outcome.is_err_and(GatewayError::is_forbidden);
        match is_forbidden && !self.keeps_forbidden(attempt) {
            true => pending.forget(),
            false => pending.close(),
        }
    }

    /// Records an act that was refused before it began. Nothing is committed first, since nothing is to be done.
    ///
    /// # Errors
    /// `Unavailable` if the log has no room.
    pub async fn record_refused_act(
        &self,
        attempt: &Attempt,
        act: &Act<'_>,
        error: &GatewayError,
    ) -> Result<(), GatewayError> {
        let mut record = act_record(attempt, act);
        ended(&mut record, attempt.started, Err(error));
        let pending = self.activity.begin_call(record).await.map_err(|_| GatewayError::Unavailable)?;
        pending.close();
        Ok(())
    }

    /// Returns whether a forbidden attempt has a record of its own; if not, it is counted. Over REST the first ones of a key
    /// and minute have one. Over MCP all have one, since they count towards the rate.
    pub fn keeps_forbidden(&self, attempt: &Attempt) -> bool {
        let Attempt { caller, source, started_at, .. } = attempt;
        let is_over_mcp = matches!(source, Source::Mcp | Source::Direct);
        is_over_mcp || self.tenants.limits.keeps_record(caller, Shed::Forbidden, *started_at)
    }

    /// Wraps work that runs to its end whether or not it is awaited. A shutdown waits for it.
    pub fn outlive<T: Send + 'static>(&self, work: impl Future<Output = T> + Send + 'static) -> Outlive<T> {
        Outlive::new(&self.life.tasks, work)
    }

    /// Records or counts an attempt that was refused before any use case: an unknown tool, unusable parameters, or a role
    /// without permission.
    pub fn record_refused(&self, attempt: &Attempt, refused: &RefusedAttempt<'_>) {
        if self.keeps_record(attempt, refused) {
            self.record_refused_counted(attempt, refused);
        }
    }

    /// Records such an attempt if it was counted against its key's rate already.
    pub fn record_refused_counted(&self, attempt: &Attempt, refused: &RefusedAttempt<'_>) {
        self.write(self.refused_record(attempt, refused));
    }

    /// Counts a refused attempt against the rate. Returns whether it has a record of its own.
    pub(in crate::gateway) fn keeps_record(&self, attempt: &Attempt, refused: &RefusedAttempt<'_>) -> bool {
        let what = match refused.kind {
            RecordKind::Search => Shed::Search,
            RecordKind::CacheRead => Shed::Read,
            _ => Shed::Call,
        };
        self.tenants.limits.note(&attempt.caller, what, attempt.started_at, Instant::now())
    }

    pub(in crate::gateway) fn refused_record(
        &self,
        attempt: &Attempt,
        refused: &RefusedAttempt<'_>,
    ) -> Record {
        let mut record = attempt.record(refused.kind);
        let (server, tool) = called(refused).unzip();
        record.server = server.map(str::to_owned);
        record.tool = tool.or(refused.tool).map(|name| redact::preview(name, ACT_BYTES_MAX).text);
        record.arguments = refused.body.map(|body| redact::preview(body, self.options.preview_bytes).text);
        record.request_bytes = refused.body.and_then(|body| i64::try_from(body.len()).ok());
        record.status = Status::Blocked;
        record.error_code = Some(refused.code.to_owned());
        record.error_message = Some(redact::preview(refused.message, ACT_BYTES_MAX).text);
        record.duration_ms = Some(clock::milliseconds(attempt.started.elapsed()));
        record
    }

    /// Writes a record without waiting for its commit. If the log is full, the record is lost and an error is logged.
    pub(in crate::gateway) fn write(&self, record: Record) {
        let kind = record.kind;
        match self.activity.begin(record) {
            Ok(pending) => pending.close(),
            Err(_) => tracing::error!(kind = kind.as_str(), "an act could not be recorded: the log is full"),
        }
    }
}

/// Returns server and tool of a refused call, as records of other calls name them; `None` if its name is not of that form.
fn called<'a>(refused: &RefusedAttempt<'a>) -> Option<(&'a str, &'a str)> {
    let is_call = matches!(refused.kind, RecordKind::ToolCall | RecordKind::DirectCall);
    refused.tool.filter(|_| is_call).and_then(split_canonical)
}

/// An administrator's act under way.
#[derive(Debug)]
pub struct Acting {
    pending: Pending,
    /// Reason for which the act came to nothing although it is answered; `None` if it did not.
    failure: Option<String>,
}

impl Acting {
    /// Notes why an act that is answered came to nothing; `None` if it did not.
    pub fn note_failure(&mut self, failure: Option<String>) {
        self.failure = failure;
    }
}

/// An attempt that was refused before any use case.
#[derive(Clone, Copy, Debug)]
pub struct RefusedAttempt<'a> {
    /// Kind of the attempt, such as a call or a search.
    pub kind: RecordKind,
    /// Tool that was named; `None` if none was.
    pub tool: Option<&'a str>,
    /// Body of the request; `None` without one.
    pub body: Option<&'a str>,
    /// Error code of the answer.
    pub code: &'a str,
    /// Error message of the answer.
    pub message: &'a str,
}

/// An administrator's act.
#[derive(Clone, Copy, Debug)]
pub struct Act<'a> {
    /// Name of the act, such as `servers.create`.
    pub what: &'a str,
    /// Server that the act concerns; `None` for other acts.
    pub server: Option<&'a str>,
    /// Request body as JSON; `None` without one.
    pub body: Option<&'a str>,
    /// Permission request that the act concerns; `None` for other acts.
    pub consent_id: Option<Uuid>,
}

fn act_record(attempt: &Attempt, act: &Act<'_>) -> Record {
    let mut record = attempt.record(RecordKind::of_act(act.what));
    record.tool = Some(act.what.to_owned());
    record.server = act.server.map(str::to_owned);
    record.consent_id = act.consent_id;
    record.arguments = act.body.map(|body| redact::preview(body, ACT_BYTES_MAX).text);
    record
}

/// Notes the outcome of an act or a read. Returns the code of its failure; `None` on success.
pub(super) fn ended(
    record: &mut Record,
    started: Instant,
    outcome: Result<(), &GatewayError>,
) -> Option<&'static str> {
    record.duration_ms = Some(clock::milliseconds(started.elapsed()));
    record.status = Status::Success;
    let error = outcome.err()?;
    let (status, code) = act_failure(error);
    record.status = status;
    record.error_code = Some(code.to_owned());
    record.error_message = Some(redact::preview(&error.to_string(), ACT_BYTES_MAX).text);
    Some(code)
}

fn act_failure(error: &GatewayError) -> (Status, &'static str) {
    match error {
        GatewayError::NotFound(_) => (Status::Blocked, "not_found"),
        GatewayError::Forbidden(_) => (Status::Blocked, "forbidden"),
        GatewayError::MayNotDecide(why) => (Status::Blocked, why.as_str()),
        GatewayError::Invalid { .. } => (Status::Blocked, "invalid_request"),
        GatewayError::Conflict(_) => (Status::Blocked, "conflict"),
        GatewayError::Limit(_) => (Status::Rejected, "rate_limited"),
        GatewayError::Busy(_) => (Status::Rejected, "unavailable"),
        GatewayError::Unavailable => (Status::Error, "unavailable"),
        GatewayError::Refused(refusal) => (Status::Blocked, refusal.code.as_str()),
    }
}
