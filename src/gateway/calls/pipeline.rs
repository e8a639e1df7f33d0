//! The pipeline of requests to servers: check, record, send, close (behaviour, section 5). Calls of tools, prompts,
//! resources and completions all pass through it. A request whose connection is lost goes on in a task of its own, so its
//! record is always closed. The arguments are sent byte for byte as they were checked.

pub(super) mod checks;
mod door;
mod ending;
mod facts;
mod form;
mod ledger;
mod letters;
mod logins;
mod outcome;
mod permit;
pub(super) mod policy;
mod record;
mod rehearse;
mod relay;
mod request;
mod resume;
mod round;
mod sending;
mod subscribe;

use std::pin::pin;
use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use futures_util::future::Either;
use tokio_util::sync::CancellationToken;

use self::checks::tool::CheckedTool;
use self::checks::{Checked, offer, tool};
use self::ending::{from_upstream, status_of, withdrawn};
use self::ledger::{LedgerClerk, LedgerEnd};
use self::policy::PolicyStep;
use self::relay::{CallRelay, Relayed};
use self::round::{Asking, InvalidState, OpenedRound};
use self::sending::Sending;
use super::Calls;
use super::cancel::{CallName, CancelBy};
use super::under_way::{CallStop, UnderWay};
use crate::domain::annotations::Tier;
use crate::domain::refusal::{Code, Refusal};
use crate::gateway::catalog::{ServerEntry, Tool};
use crate::gateway::consent::{UsedPermit, key_gone};
use crate::gateway::log::{Attempt, Pending, RecordUnavailable, record_unavailable};
use crate::gateway::outlive::{Outlive, Work};
use crate::gateway::tenants::{Caller, Shed};
use crate::gateway::{clock, trace};
use crate::upstream::{Answer, FailureKind, Request, Subject, UpstreamError};

pub use self::door::Door;
pub(super) use self::facts::Facts;
pub(super) use self::letters::{AnswerLetter, OutcomeLetter};
pub use self::outcome::{CallOutcome, Refused, Replaced, Unanswered};
pub use self::rehearse::Rehearsed;
pub(super) use self::request::HeldAs;
pub use self::request::{CallRequest, Callee, OfferRequest, RoundRequest, ToolRequest, Wanted};
pub use self::subscribe::SubscribeFault;

/// The result of a completion that a server does not offer.
const NO_COMPLETION: &[u8] = br#"{"completion":{"values":[]}}"#;

/// Reason of a refusal for a client that gave a server no answer.
const UNANSWERED: &str = "the server wants input that this client did not give";

/// A request under way.
struct Run<'a> {
    attempt: &'a Attempt,
    /// True if the request has a record that stays.
    is_recorded: bool,
    /// True if the request exceeds the rate of its key or tenant.
    is_over: bool,
}

/// A request that may be sent: its checks passed, and its record is committed if that must come first.
struct Ready {
    pending: Pending,
    facts: Facts,
    checked: Checked,
    opened: OpenedRound,
    /// Permission that this call has used up.
    permit: Option<UsedPermit>,
}

impl Calls {
    /// Runs a request. Its record is closed whether or not the caller waits for the outcome: a dropped request goes on in a
    /// task of its own, to its end or its cancellation.
    pub fn run(
        self: &Arc<Self>,
        attempt: Attempt,
        mut request: CallRequest,
        cancel_by: CancelBy<'_>,
    ) -> Outlive<CallOutcome> {
        let (calls, span) = (Arc::clone(self), attempt.span());
        if cancel_by == CancelBy::Nothing {
            let under_way = self.register(&attempt, None);
            let run = calls.run_whole(attempt, request, std::future::pending(), under_way);
            return Outlive::new(&self.life.tasks, trace::within(span, run));
        }
        let cancel = CancellationToken::new();
        let name = match cancel_by {
            CancelBy::Notification(id) => CallName::new(&attempt.caller, attempt.session_id.as_deref(), id),
            _ => None,
        };
        let under_way = self.register(&attempt, name.map(|name| (name, cancel.clone())));
        let (line, cancelled) = (request.line.take(), cancel.clone());
        let may_be_held = cancel_by == CancelBy::Disconnect && request.round.may_be_asked();
        // each is boxed as it is made: a future of ten kilobytes is copied whenever it moves
        let run: Work<CallOutcome> = match line {
            Some(line) => Box::pin(calls.run_asking(attempt, request, line, cancelled, under_way)),
            None if may_be_held => Box::pin(calls.run_holding(attempt, request, cancelled, under_way)),
            None => Box::pin(calls.run_whole(attempt, request, cancelled.cancelled_owned(), under_way)),
        };
        let work = match span {
            None => Outlive::boxed(&self.life.tasks, run),
            span => Outlive::new(&self.life.tasks, trace::within(span, run)),
        };
        if cancel_by == CancelBy::Disconnect { work.telling(cancel) } else { work }
    }

    /// Runs a request from its record to its outcome. `under_way` keeps it registered meanwhile.
    pub(super) async fn run_whole(
        self: Arc<Self>,
        attempt: Attempt,
        mut request: CallRequest,
        cancelled: impl Future<Output = ()> + Send,
        under_way: UnderWay,
    ) -> CallOutcome {
        let door = request.what.door();
        let stopped = async {
            tokio::select! {
                biased;
                () = cancelled => CallStop::Caller,
                stop = under_way.ended() => stop,
            }
        };
        let facts = Facts::new(door);
        let mut record = attempt.record(door.kind());
        facts.write_into(&mut record, self.options.preview_bytes);
        let Ok(pending) = self.log.activity.begin_call(record).await else {
            return CallOutcome::Refused(facts.refused(record_unavailable()));
        };
        match self.prepare(pending, facts, &attempt, &mut request).await {
            Ok(ready) => self.send(ready, &attempt, request, stopped).await,
            Err(outcome) => outcome,
        }
    }

    /// Does everything before a request is sent: checks 1 to 10, the state of the earlier round, check 11, and the commit of
    /// the record.
    async fn prepare(
        &self,
        mut pending: Pending,
        mut facts: Facts,
        attempt: &Attempt,
        request: &mut CallRequest,
    ) -> Result<Ready, CallOutcome> {
        let caller = &attempt.caller;
        // every attempt counts against the rate, also one that a check is about to refuse
        let admitted = self.tenants.limits.admit(caller, Instant::now());
        let run = Run { attempt, is_recorded: request.what.is_recorded(), is_over: admitted.is_err() };
        let checked = self.check(caller, &request.what, &mut facts, admitted).await;
        facts.write_into(&mut pending.record, self.options.preview_bytes);
        let mut checked = match checked {
            Ok(checked) => checked,
            Err(refusal) => return Err(self.refuse(pending, &run, facts.refused(refusal)).await),
        };
        let round = std::mem::take(&mut request.round);
        let relay = checked.server().target.relay;
        let opened = match self.open_round(attempt, (round, relay), || checked.digest(attempt)) {
            Ok(opened) => opened,
            Err(InvalidState) => return Err(self.refuse_state(pending, &run, facts).await),
        };
        pending.record.parent_id = opened.first;
        let Checked::Tool(call) = &mut checked else {
            return Ok(Ready { pending, facts, checked, opened, permit: None });
        };
        // a call that is held open has passed before
        let step = match &opened.held {
            Some(_) => Ok(PolicyStep::Done(None)),
            None => self.check_policy(attempt, call, &facts, &opened, &mut pending.record).await,
        };
        let permit = match step {
            Ok(PolicyStep::Done(permit)) => permit,
            Ok(PolicyStep::Ask(ask)) => {
                let (record, consent) = (pending.record.id, Some(ask.view.row.id));
                let question = self.question(attempt, &opened, &ask, record, || checked.digest(attempt));
                return Err(match (question, self.refuse(pending, &run, facts.refused(ask.refusal)).await) {
                    // a question whose record could not be written is not asked
                    (Some(raw), CallOutcome::Refused(refused))
                        if refused.refusal.code == Code::ConsentPending =>
                    {
                        let unanswered = Some(Box::new(Unanswered { consent, refused }));
                        CallOutcome::InputRequired { raw, state: None, unanswered }
                    }
                    (_, refused) => refused,
                });
            }
            Err(refusal) => return Err(self.refuse(pending, &run, facts.refused(refusal)).await),
        };
        if call.tier == Tier::Read && permit.is_none() {
            return Ok(Ready { pending, facts, checked, opened, permit: None });
        }
        if let Some(permit) = &permit {
            pending.record.consent_id = Some(permit.id);
            pending.record.wait_ms = permit.wait_ms;
        }
        // if it fails, the log closes the record itself: the row may be committed later
        let Ok(pending) = pending.open().await else {
            return Err(CallOutcome::Refused(facts.refused(record_unavailable())));
        };
        // the commit may have taken a while, and permissions may have changed meanwhile
        match self.check_again(caller, call) {
            Ok(current) => call.tool = current,
            Err(refusal) => {
                let run = Run { is_over: false, ..run };
                return Err(self.refuse(pending, &run, facts.refused(refusal)).await);
            }
        }
        if let Some(form) = call.form.as_deref_mut().filter(|form| form.cookies.is_some()) {
            // boxed: rare, it must not be part of every call's future
            Box::pin(self.drop_outdated_cookies(&mut form.cookies, &call.tool.server)).await;
        }
        if !opened.is_of(|| checked.digest(attempt)) {
            return Err(self.refuse_state(pending, &run, facts).await);
        }
        let permit = match self.use_permit(attempt, &checked, permit).await {
            Ok(permit) => permit,
            Err(refusal) => {
                let run = Run { is_over: false, ..run };
                return Err(self.refuse(pending, &run, facts.refused(refusal)).await);
            }
        };
        Ok(Ready { pending, facts, checked, opened, permit })
    }

    /// Runs the checks of a request. Notes the facts as far as they are known, also on a refusal.
    async fn check(
        &self,
        caller: &Caller,
        what: &Callee,
        facts: &mut Facts,
        admitted: Result<(), Refusal>,
    ) -> Result<Checked, Refusal> {
        let request = match what {
            Callee::Tool(_, request) => request,
            Callee::Offer(request) => {
                return offer::run(caller, request.clone(), facts, admitted).map(Checked::Offer);
            }
        };
        // only `args_json`, a text within the text, has still to be parsed
        let parsed_bytes = request.args_json.as_ref().map_or(0, Bytes::len);
        let run = || tool::run(caller, request, facts);
        let mut call = self.upstreams.aside(caller.tenant_id().0, parsed_bytes, run).await?;
        // a request over its rate costs neither compilation nor validation of a schema
        admitted?;
        facts.warnings.extend(self.check_arguments(caller, &mut call).await?);
        self.read_form(caller, &mut call, facts).await?;
        Ok(Checked::Tool(call))
    }

    /// Runs check 10. Returns its warning, if any.
    async fn check_arguments(
        &self,
        caller: &Caller,
        call: &mut CheckedTool,
    ) -> Result<Option<String>, Refusal> {
        let tenant = caller.tenant_id();
        let (outcome, took_turn) =
            self.tenants.catalog.check_schema(tenant, &call.tool, &call.arguments).await;
        let warning = tool::schema(outcome, &call.tool)?;
        if took_turn {
            self.tenants.forget_if_ended(tenant);
            // the wait may have taken a while, and permissions may have changed meanwhile
            call.tool = self.check_again(caller, call)?;
        }
        Ok(warning)
    }

    /// Repeats checks 7 to 9 if the catalogue has changed, and always checks that the key is still valid. Returns the tool
    /// to dispatch to.
    fn check_again(&self, caller: &Caller, call: &CheckedTool) -> Result<Arc<Tool>, Refusal> {
        if !self.tenants.is_valid(caller) {
            return Err(key_gone());
        }
        tool::again(caller, call)
    }

    /// Sends a request, and closes its record with the outcome. A round of a call that is held open goes to that call instead.
    async fn send(
        self: &Arc<Self>,
        Ready { mut pending, facts, checked, mut opened, permit }: Ready,
        attempt: &Attempt,
        mut request: CallRequest,
        stopped: impl Future<Output = CallStop> + Send,
    ) -> CallOutcome {
        if let Some(round) = opened.held.take() {
            let round_of = Ready { pending, facts, checked, opened, permit };
            // boxed: large and rare, it must not be part of every call's future
            return Box::pin(self.resume(round_of, *round, attempt, stopped)).await;
        }
        let is_recorded = request.what.is_recorded();
        let (server, meta) = (checked.server(), &mut request.meta);
        let sending = Sending::begin(
            self.upstreams.measures(),
            attempt,
            server,
            &pending.record,
            checked.about(),
            meta,
        );
        let round = std::mem::take(&mut opened.round);
        let held_as = request.held_as.take();
        let mut to_send = checked.to_send(request, attempt, round, Arc::clone(&sending.sent));
        let record = pending.record.id;
        let consent = permit.as_ref().map(|permit| permit.id).or(pending.record.consent_id);
        let mut clerk = LedgerClerk::of(self, attempt, (&checked, record, consent), &mut to_send);
        let first = opened.first.unwrap_or(record);
        let relayed = Relayed { attempt, checked: &checked, record, first, held_as: held_as.as_ref() };
        let relay = CallRelay::between(self, relayed, &mut to_send);
        let own = checked.own_call(attempt);
        let exchange = match own {
            // boxed: rare, it must not be part of every call's future
            Some((own, call)) => Either::Left(Box::pin(self.answer_own(own, call))),
            None => Either::Right(self.exchange(attempt, server, to_send)),
        };
        let exchange = match &mut clerk {
            // boxed: rare, it must not be part of every call's future
            Some(clerk) => Either::Left(Box::pin(clerk.until(exchange))),
            None => Either::Right(exchange),
        };
        let exchanged = match relay {
            // boxed: large and rare, it must not be part of every call's future
            Some(relay) => Either::Left(Box::pin(relay.until(exchange))),
            None => Either::Right(exchange),
        };
        let mut stopped = pin!(stopped);
        let ended = tokio::select! {
            biased;
            // a request that was cancelled while it waited for its record is not sent at all
            stop = &mut stopped => Err(withdrawn(&stop, sending.sent.is_dispatched())),
            ended = exchanged => ended,
        };
        if let Some(clerk) = clerk {
            let end = LedgerEnd::of(&ended, sending.sent.is_dispatched());
            // boxed: rare, it must not be part of every call's future
            pending.record.has_ledger = Box::pin(clerk.end(end)).await;
        }
        let record = &mut pending.record;
        record.upstream_ms = own.is_none().then(|| clock::milliseconds(sending.elapsed()));
        let asked = sending.sent.asked();
        if !asked.is_zero() {
            record.wait_ms = Some(record.wait_ms.unwrap_or_default() + clock::milliseconds(asked));
        }
        let consent = permit.map(|permit| permit.id);
        let asking = Asking { attempt, server, opened: &opened, record: record.id, consent };
        let concluded = self.conclude(&asking, record, ended, || checked.digest(attempt)).await;
        let took = sending.ended(&concluded);
        self.finish_permit(attempt, permit, record.id, (&concluded, took.is_some())).await;
        let mut outcome = match concluded {
            Ok(CallOutcome::InputRequired { raw, state, .. }) => {
                let refusal = Refusal::after_dispatch(Code::UpstreamNeedsInput, UNANSWERED);
                let unanswered = Unanswered { consent: None, refused: facts.refused(refusal) };
                CallOutcome::InputRequired { raw, state, unanswered: Some(Box::new(unanswered)) }
            }
            Ok(outcome) => outcome,
            Err(refusal) => CallOutcome::Refused(facts.refused(refusal)),
        };
        if let Checked::Tool(_) = checked {
            outcome = self.shorten(attempt, record, outcome).await;
        }
        // the time of people is in no figure but the wait
        let whole = attempt.started.elapsed().saturating_sub(asked);
        record.duration_ms = Some(clock::milliseconds(whole));
        if let (Some(took), Checked::Tool(call)) = (took, &checked) {
            self.overhead.observe(call.tier.as_str(), whole.saturating_sub(took));
        }
        match is_recorded {
            true => pending.close(),
            false => pending.forget(),
        }
        outcome
    }

    /// Sends a request to a server and waits for the answer. Completions for a server that offers none get an empty result.
    /// If the future is dropped, the server is notified that the answer is no longer wanted.
    async fn exchange(
        &self,
        attempt: &Attempt,
        server: &ServerEntry,
        request: Request,
    ) -> Result<Answer, Refusal> {
        let connection = self.upstreams.connection(&server.target_of(attempt.caller.to_servers()));
        let answered = match request.subject == Subject::Completion {
            true => match connection.offers().await {
                Ok(offers) if !offers.completions => {
                    return Ok(Answer::Result(Bytes::from_static(NO_COMPLETION)));
                }
                Ok(_) => connection.ask(request).await,
                Err(error) => Err(error),
            },
            false => connection.ask(request).await,
        };
        match answered {
            Ok(answer) => Ok(answer),
            Err(UpstreamError { kind: FailureKind::LoginNeeded(need), detail, .. }) => {
                // boxed: rare, it must not be part of every call's future
                Err(Box::pin(self.login_needed(&attempt.caller, server, (need, &detail))).await)
            }
            Err(error) => Err(from_upstream(&error, &server.name)),
        }
    }

    /// Ends a request that a check refused. Unless the request only reads, its record is committed before the answer.
    /// Requests over the limit of their key are counted instead, except the first few of a minute that another check
    /// refused.
    async fn refuse(&self, mut pending: Pending, run: &Run<'_>, mut refused: Refused) -> CallOutcome {
        if self.is_shed(run, &refused.refusal) {
            pending.forget();
            return CallOutcome::Refused(refused);
        }
        let record = &mut pending.record;
        record.status = status_of(refused.refusal.code);
        record.consent_id = record.consent_id.or(refused.refusal.consent_id);
        record::error(record, &refused.refusal);
        if self.close_refused(pending, run).await.is_err() {
            refused.refusal = record_unavailable();
        }
        CallOutcome::Refused(refused)
    }

    /// Returns whether a refused request is counted in its key's record of the minute instead of having its own. Counts it
    /// if so.
    fn is_shed(&self, run: &Run<'_>, refusal: &Refusal) -> bool {
        let Attempt { caller, started_at, .. } = run.attempt;
        if refusal.code == Code::RateLimited {
            self.tenants.limits.count_shed(caller, Shed::Call, *started_at);
            return true;
        }
        let is_counted = run.is_over && run.is_recorded;
        is_counted && !self.tenants.limits.keeps_record(caller, Shed::Call, *started_at)
    }

    /// Ends a request that passed all checks, but returned a state that was not issued for it.
    async fn refuse_state(&self, mut pending: Pending, run: &Run<'_>, facts: Facts) -> CallOutcome {
        round::note_invalid(&mut pending.record);
        match self.close_refused(pending, run).await {
            Ok(()) => CallOutcome::InvalidState,
            Err(RecordUnavailable) => CallOutcome::Refused(facts.refused(record_unavailable())),
        }
    }

    async fn close_refused(&self, mut pending: Pending, run: &Run<'_>) -> Result<(), RecordUnavailable> {
        pending.record.duration_ms = Some(clock::milliseconds(run.attempt.started.elapsed()));
        if !run.is_recorded {
            pending.forget();
            return Ok(());
        }
        if pending.record.tier == Some(Tier::Read) {
            pending.close();
            return Ok(());
        }
        pending.close_committed().await
    }
}
