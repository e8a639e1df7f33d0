//! The call pipeline: resolve, validate, record, dispatch, close (behaviour, section 5).
//!
//! It outlives whoever waits for it: a call whose connection is lost goes on in a task of its own, so a
//! record is closed whatever happens to the connection. What was checked is byte for byte what is sent.

mod ask;
mod checks;
mod door;
mod ending;
mod record;
mod round;
mod sending;

use std::pin::pin;
use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use self::checks::Checked;
use self::ending::{from_upstream, status_of, withdrawn};
use self::round::{Asking, InvalidState, Opened};
use self::sending::{About, Sending};
use super::Calls;
use super::cancel::{CancelBy, Named};
use crate::domain::activity::Record;
use crate::domain::annotations::Tier;
use crate::domain::operation::{OperationType, Variant};
use crate::domain::refusal::{Code, Refusal};
use crate::domain::tool::ResultHead;
use crate::gateway::catalog::Tool;
use crate::gateway::log::{Attempt, Pending, RecordUnavailable, record_unavailable};
use crate::gateway::outlive::Outlive;
use crate::gateway::tenants::Caller;
use crate::gateway::tenants::Shed;
use crate::gateway::{clock, trace};
use crate::upstream::{self, Answer, Sent, ToolCall, UpstreamError, param_headers};

pub use self::ask::{Asked, OfferRequest};
pub(super) use self::checks::direct::find as find_directly;
pub use self::door::Door;
pub use self::round::{Replaced, RoundRequest};

/// A call as it came: raw JSON values, nothing checked yet. Absent and `null` are the same. By [`Door::Direct`] only name
/// and `args` are looked at.
#[derive(Clone, Debug, Default)]
pub struct CallRequest {
    /// `name`
    pub name: Option<Bytes>,
    /// `args`, an object.
    pub args: Option<Bytes>,
    /// `args_json`, a string holding an object.
    pub args_json: Option<Bytes>,
    /// An argument that is none of these, which must not be passed over.
    pub unknown: Option<String>,
    /// The nested `intent`.
    pub intent: Option<Bytes>,
    /// The flat spelling.
    pub intent_operation_type: Option<Bytes>,
    /// The flat spelling.
    pub intent_data_sensitivity: Option<Bytes>,
    /// The flat spelling.
    pub intent_reason: Option<Bytes>,
    /// Members of `_meta` that travel on to the upstream.
    pub meta: Vec<(String, Bytes)>,
    /// Where progress goes, when the caller wants it: raw `params` of each notification.
    pub progress: Option<mpsc::Sender<Bytes>>,
    /// What it says about its rounds.
    pub round: RoundRequest,
}

/// How a call ended.
#[derive(Debug)]
pub enum CallOutcome {
    /// The upstream's result, raw.
    Result {
        /// The result object, byte for byte.
        raw: Bytes,
        /// What the calls itself read of it.
        head: ResultHead,
        /// A warning for the result's `_meta`.
        warning: Option<String>,
        /// What was cut off it, for its `_meta`: an object, raw.
        truncated: Option<String>,
    },
    /// The upstream's question to the caller, who may ask again with the answer.
    InputRequired {
        /// The result object, byte for byte.
        raw: Bytes,
        /// The part of it that is the upstream's own state, and what the caller gets instead.
        state: Option<Replaced>,
    },
    /// The state that the caller brought back was not given for this request, or not lately. Nothing was run.
    InvalidState,
    /// The upstream's JSON-RPC error object, raw.
    UpstreamError {
        /// The error object.
        raw: Bytes,
        /// Its code.
        code: i64,
    },
    /// Not run, or run without a usable answer: the code's class tells.
    Refused(Refused),
}

/// A refusal with what its `structuredContent` says about the call.
#[derive(Debug)]
pub struct Refused {
    /// Code, text, recommendation.
    pub refusal: Refusal,
    /// The canonical name, as far as one was given.
    pub tool: Option<String>,
    /// The variant that was used; `None` by [`Door::Direct`] while the tool is not known.
    pub variant: Option<Variant>,
    /// What the caller declared.
    pub declared: Option<OperationType>,
    /// Whether it may stand in `structuredContent`: not where clients may hold that against an output schema.
    pub is_structured: bool,
}

impl Refused {
    /// A refusal of a call of which nothing is known yet.
    fn before_checks(door: Door, refusal: Refusal) -> Refused {
        let is_structured = door != Door::Direct;
        Refused { refusal, tool: None, variant: door.variant(), declared: None, is_structured }
    }
}

impl Calls {
    /// Runs a call. Its record is closed whether or not anybody waits for the outcome: dropped, the call
    /// goes on in a task of its own, to its end or to its cancellation.
    pub fn call_tool(
        self: &Arc<Self>,
        attempt: Attempt,
        door: Door,
        request: CallRequest,
        cancel_by: CancelBy<'_>,
    ) -> Outlive<CallOutcome> {
        let (calls, span) = (Arc::clone(self), attempt.span());
        if cancel_by == CancelBy::Nothing {
            let call = calls.run_call(attempt, door, request, std::future::pending(), None);
            return Outlive::new(&self.life.tasks, trace::within(span, call));
        }
        let cancel = CancellationToken::new();
        let named = match cancel_by {
            CancelBy::Notification(id) => self.name_call(&attempt, id, cancel.clone()),
            _ => None,
        };
        let call = calls.run_call(attempt, door, request, cancel.clone().cancelled_owned(), named);
        let work = Outlive::new(&self.life.tasks, trace::within(span, call));
        if cancel_by == CancelBy::Disconnect { work.telling(cancel) } else { work }
    }

    /// `_named`: while it runs, it can be taken back by its name.
    async fn run_call(
        self: Arc<Self>,
        attempt: Attempt,
        door: Door,
        mut request: CallRequest,
        cancelled: impl Future<Output = ()> + Send,
        _named: Option<Named>,
    ) -> CallOutcome {
        let Ok(pending) = self.log.activity.begin_call(record::begin(&attempt, door)).await else {
            return CallOutcome::Refused(Refused::before_checks(door, record_unavailable()));
        };
        let (mut pending, checked, mut opened) =
            match self.prepare(pending, &attempt, door, &mut request).await {
                Ok(ready) => ready,
                Err(outcome) => return outcome,
            };
        let round = std::mem::take(&mut opened.round);
        let key = attempt.caller.key.map(|key| key.0);
        let about = ("tools/call", About::Tool(&checked.tool.name));
        let (server, meta) = (&checked.tool.server, &mut request.meta);
        let sending =
            Sending::begin(self.upstreams.measures(), &attempt, server, &pending.record, about, meta);
        let mut cancelled = pin!(cancelled);
        let ended = tokio::select! {
            biased;
            // one that was taken back while it waited for its record, or for its turn, is not sent at all
            () = &mut cancelled => Err(withdrawn(&sending.sent)),
            ended = self.dispatch(&checked, request, (round, key), Arc::clone(&sending.sent)) => {
                ended.map_err(|error| from_upstream(&error))
            }
        };
        let record = &mut pending.record;
        record.upstream_ms = Some(clock::milliseconds(sending.elapsed()));
        let asking = Asking { attempt: &attempt, server, opened: &opened, record: record.id };
        let concluded = self.conclude(&asking, record, ended, || round::digest(&attempt, &checked)).await;
        let took = sending.ended(&concluded);
        let outcome = concluded.unwrap_or_else(|refusal| CallOutcome::Refused(checked.refused(refusal)));
        let outcome = self.shorten(&attempt, record, outcome).await;
        let whole = attempt.started.elapsed();
        record.duration_ms = Some(clock::milliseconds(whole));
        if let Some(took) = took {
            self.overhead.observe(checked.tier.as_str(), whole.saturating_sub(took));
        }
        pending.close();
        outcome
    }

    /// All that comes before the dispatch: the checks, the state of the round before, and the commit of the record.
    async fn prepare(
        &self,
        mut pending: Pending,
        attempt: &Attempt,
        door: Door,
        request: &mut CallRequest,
    ) -> Result<(Pending, Checked, Opened), CallOutcome> {
        // every attempt counts, also one that a check is about to refuse with an answer of its own
        let admitted = self.tenants.limits.admit(&attempt.caller, Instant::now());
        let is_over = admitted.is_err();
        let (caller, preview_bytes) = (&attempt.caller, self.options.preview_bytes);
        let run = || checks::run(caller, door, request, &mut pending.record, preview_bytes);
        // of the arguments, only text within text has still to be parsed
        let parsed_bytes = request.args_json.as_ref().map_or(0, Bytes::len);
        let mut checked = match self.upstreams.aside(caller.tenant_id().0, parsed_bytes, run).await {
            Ok(checked) => checked,
            Err(refused) => return Err(self.refuse(pending, attempt, refused, is_over).await),
        };
        // above its rate nothing is compiled for it, nor held against a schema
        let fitting = match admitted {
            Ok(()) => self.check_arguments(caller, &mut checked, &mut pending.record).await,
            Err(limited) => Err(limited),
        };
        if let Err(refusal) = fitting {
            return Err(self.refuse(pending, attempt, checked.refused(refusal), is_over).await);
        }
        let round = std::mem::take(&mut request.round);
        let opened = match self.open_round(attempt, round, || round::digest(attempt, &checked)) {
            Ok(opened) => opened,
            Err(InvalidState) => return Err(self.refuse_state(pending, attempt, &checked).await),
        };
        pending.record.parent_id = opened.first;
        if checked.tier == Tier::Read {
            return Ok((pending, checked, opened));
        }
        // should it fail, the log closes the record itself: the row may land later
        let opening = pending.open().await;
        let pending = opening
            .map_err(|RecordUnavailable| CallOutcome::Refused(checked.refused(record_unavailable())))?;
        // the commit may have taken a while: what was allowed then may not be now
        match self.check_again(caller, &checked) {
            Ok(current) => checked.tool = current,
            Err(refusal) => return Err(self.refuse(pending, attempt, checked.refused(refusal), false).await),
        }
        if !opened.is_of(|| round::digest(attempt, &checked)) {
            return Err(self.refuse_state(pending, attempt, &checked).await);
        }
        Ok((pending, checked, opened))
    }

    /// Check 10, and of 12 what is known beforehand.
    async fn check_arguments(
        &self,
        caller: &Caller,
        checked: &mut Checked,
        record: &mut Record,
    ) -> Result<(), Refusal> {
        let (outcome, took_turn) =
            self.tenants.catalog.check_schema(caller.tenant_id(), &checked.tool, &checked.arguments).await;
        checks::schema(outcome, &checked.tool, record)?;
        if took_turn {
            self.tenants.forget_if_ended(caller.tenant_id());
            // the turn may have taken a while: what was allowed then may not be now
            checked.tool = self.check_again(caller, checked)?;
        }
        checks::reachable(&checked.tool.server)
    }

    /// Checks 7 to 9 again when the catalogue moved meanwhile, and the key's validity in any case.
    /// Gives the tool to dispatch to.
    fn check_again(&self, caller: &Caller, checked: &Checked) -> Result<Arc<Tool>, Refusal> {
        if !self.tenants.is_valid(caller) {
            return Err(Refusal::new(
                Code::OperationNotPermitted,
                "This key is not valid any more; nothing was run",
            ));
        }
        checks::again(caller, checked)
    }

    /// Ends a call that a check refused. Unless it is about a tool that only reads, its record is committed
    /// before the answer. Calls over the limit of their key are counted instead, but for the first of a minute that
    /// another check refused.
    async fn refuse(
        &self,
        mut pending: Pending,
        attempt: &Attempt,
        mut refused: Refused,
        is_over: bool,
    ) -> CallOutcome {
        if self.is_shed(attempt, &refused.refusal, is_over) {
            pending.forget();
            return CallOutcome::Refused(refused);
        }
        let record = &mut pending.record;
        record.status = status_of(refused.refusal.code);
        record::error(record, &refused.refusal);
        if self.close_refused(pending, attempt).await.is_err() {
            refused.refusal = record_unavailable();
        }
        CallOutcome::Refused(refused)
    }

    /// Returns whether a refused attempt is counted into its key's record of the minute, which this does, and has none of
    /// its own.
    fn is_shed(&self, attempt: &Attempt, refusal: &Refusal, is_over: bool) -> bool {
        if refusal.code == Code::RateLimited {
            self.tenants.limits.count_shed(&attempt.caller, Shed::Call, attempt.started_at);
            return true;
        }
        is_over && !self.tenants.limits.keeps_record(&attempt.caller, Shed::Call, attempt.started_at)
    }

    /// The same for one that passed all checks, but brought back a state that is not its own.
    async fn refuse_state(&self, mut pending: Pending, attempt: &Attempt, checked: &Checked) -> CallOutcome {
        round::note_invalid(&mut pending.record);
        match self.close_refused(pending, attempt).await {
            Ok(()) => CallOutcome::InvalidState,
            Err(RecordUnavailable) => CallOutcome::Refused(checked.refused(record_unavailable())),
        }
    }

    async fn close_refused(&self, mut pending: Pending, attempt: &Attempt) -> Result<(), RecordUnavailable> {
        pending.record.duration_ms = Some(clock::milliseconds(attempt.started.elapsed()));
        if pending.record.tier == Some(Tier::Read.as_str()) {
            pending.close();
            return Ok(());
        }
        pending.close_committed().await
    }

    /// Dropping it tells the upstream that the answer is not wanted any more.
    async fn dispatch(
        &self,
        checked: &Checked,
        request: CallRequest,
        (round, key): (upstream::Round, Option<Uuid>),
        sent: Arc<Sent>,
    ) -> Result<Answer, UpstreamError> {
        let server = &checked.tool.server;
        let arguments = checked.arguments.clone();
        let rules = &checked.tool.shape.param_headers;
        let headers = match std::str::from_utf8(&arguments) {
            Ok(text) if !rules.is_empty() => param_headers(rules, text),
            _ => Vec::new(),
        };
        let call = ToolCall {
            name: checked.tool.name.to_string(),
            arguments,
            meta: request.meta,
            param_headers: headers,
            progress: request.progress,
            round,
            key,
            timeout: server.target.limits.call_timeout,
            sent,
        };
        self.upstreams.connection(&server.target).call(call).await
    }
}
