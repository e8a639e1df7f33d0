//! Asking: one transaction that finds the earlier outcome of the same call, or asks a person.

use chrono::{DateTime, TimeDelta, Utc};
use uuid::Uuid;

use super::cooldown::cooling_down;
use super::fence::{self, CallTurn, HeldFence, lock_key};
use super::read::request_columns;
use super::steps::{self, StepAuthor, StepTaken};
use super::{ConsentRow, principal, state_now};
use crate::domain::consent::{ConsentDecision, ConsentState, DIGEST_BYTES, LapseReason};
use crate::domain::id::{IdentityId, KeyId, ServerId, TenantId};
use crate::domain::operation::OperationType;
use crate::domain::policy::Assurance;
use crate::domain::reason::AskReason;
use crate::domain::risk::RiskLevel;
use crate::store::tx::{Lane, TxAccess};
use crate::store::unit::Unit;
use crate::store::{Store, StoreError};

/// Time after its end for which a caller is told of a request that nobody answered.
const TOLD_WITHIN: TimeDelta = TimeDelta::hours(1);
/// Time over which asks are counted.
const MINUTE: TimeDelta = TimeDelta::minutes(1);

/// Permission request to be made.
#[derive(Clone, Debug)]
pub struct NewConsent {
    /// Id of the request, if a new one is needed: ordered by time.
    pub id: Uuid,
    /// Turn of the call, with the key that calls.
    pub turn: CallTurn,
    /// Owner of the key.
    pub owner: String,
    /// Owner for separation of duties; `None` if nobody named one.
    pub person: Option<String>,
    /// E-mail address of a person who logged in; `None` for keys.
    pub email: Option<String>,
    /// Identity of the person who holds the key; `None` if nobody named one.
    pub identity: Option<IdentityId>,
    /// Key that created the calling one.
    pub creator: Option<KeyId>,
    /// First key of the line of rotations that the caller's key belongs to; `None` for the bootstrap key.
    pub root: Option<KeyId>,
    /// Server of the tool.
    pub server_id: ServerId,
    /// Name of that server.
    pub server: String,
    /// The tool's own name.
    pub tool: String,
    /// Operation type of the variant.
    pub operation: OperationType,
    /// Pin of the definition.
    pub pin: String,
    /// Keyed digests of the call, one for each key in use; the first is stored.
    pub digests: Vec<[u8; DIGEST_BYTES]>,
    /// Way by which the call came in.
    pub endpoint: &'static str,
    /// Level and signals of risk, the action and the words of others, all masked.
    pub reason: AskReason,
    /// Rule that asks; `None` if the mode does.
    pub rule: Option<String>,
    /// Version of the tenant's policy.
    pub policy_version: i64,
    /// Kind of answer that is needed.
    pub assurance: Assurance,
    /// Decisions on offer.
    pub options: Vec<ConsentDecision>,
    /// Channels by which people are reached.
    pub channels: Vec<&'static str>,
    /// Time until the request ends, in seconds.
    pub ttl_s: u32,
    /// W3C trace id.
    pub trace_id: Option<String>,
    /// Author of the records about what asking changes.
    pub author: StepAuthor,
}

/// Limits on the asks of one key.
#[derive(Clone, Copy, Debug)]
pub struct AskLimits {
    /// Most new asks per minute.
    pub per_minute: i64,
    /// Most asks that are open at the same time.
    pub pending: i64,
}

/// Outcome of asking.
#[derive(Clone, Debug)]
pub enum AskOutcome {
    /// A person allowed this call, which has not run yet.
    Granted(Box<ConsentRow>),
    /// A person is being asked.
    Pending(Box<ConsentRow>),
    /// A person refused this call.
    Denied(Box<ConsentRow>),
    /// No person answered in time; told once.
    TimedOut(Box<ConsentRow>),
    /// The tool has changed since a person allowed the call.
    Lapsed(Box<ConsentRow>),
    /// A person ended the turn.
    Fenced(HeldFence),
    /// The tool was refused several times.
    CoolingDown {
        /// Number of refusals that count.
        denials: i64,
        /// Time until which calls of the tool are refused.
        until: DateTime<Utc>,
    },
    /// The key has too many asks.
    Throttled {
        /// Number of open asks.
        pending: i64,
        /// True if these are too many; false if too many were made within a minute.
        is_full: bool,
        /// Seconds after which one more may be made, if nobody answers.
        retry_s: i64,
    },
}

/// Result of asking.
#[derive(Clone, Debug)]
pub struct ConsentAsked {
    /// Outcome for the call.
    pub outcome: AskOutcome,
    /// States of earlier requests of this call that ended on the way.
    pub ended: Vec<ConsentState>,
}

impl NewConsent {
    fn digests(&self) -> Vec<&[u8]> {
        self.digests.iter().map(<[u8; DIGEST_BYTES]>::as_slice).collect()
    }
}

impl Store {
    /// Returns the outcome of an earlier request of the same call, or asks anew.
    ///
    /// # Errors
    /// The database is out of reach or fails.
    pub async fn ask_consent(
        &self,
        tenant: TenantId,
        new: &NewConsent,
        limits: AskLimits,
    ) -> Result<ConsentAsked, StoreError> {
        self.stepping(&new.author, || self.try_ask(tenant, new, limits)).await
    }

    async fn try_ask(
        &self,
        tenant: TenantId,
        new: &NewConsent,
        limits: AskLimits,
    ) -> Result<ConsentAsked, StoreError> {
        let mut tx = self.begin(Lane::Control, TxAccess::Tenant(tenant)).await?;
        let fence = fence::held(&mut tx, tenant, &new.turn).await?;
        let mut asking =
            Asking { tx: &mut tx, tenant, new, steps: Vec::new(), ended: Vec::new(), is_changed: false };
        let outcome = match fence {
            Some(fence) => AskOutcome::Fenced(fence),
            None => match asking.earlier().await? {
                Some(outcome) => outcome,
                None => match asking.refused(limits).await? {
                    Some(outcome) => outcome,
                    None => asking.insert().await?,
                },
            },
        };
        let (ended, is_changed) = (std::mem::take(&mut asking.ended), asking.is_changed);
        let names = (new.server.as_str(), new.tool.as_str());
        let taken = |&(id, step)| StepTaken { tenant, id, step, names };
        let steps: Vec<StepTaken<'_>> = asking.steps.iter().map(taken).collect();
        steps::write(&mut tx, &new.author, &steps).await?;
        match is_changed {
            true => tx.commit_change().await?,
            // nothing changed that must last
            false => tx.commit().await?,
        }
        Ok(ConsentAsked { outcome, ended })
    }
}

struct Asking<'a> {
    tx: &'a mut Unit,
    tenant: TenantId,
    new: &'a NewConsent,
    /// Requests that this moved, each with the name of the step.
    steps: Vec<(Uuid, &'static str)>,
    /// States of requests that this ended.
    ended: Vec<ConsentState>,
    /// True if something was written that must last.
    is_changed: bool,
}

impl Asking<'_> {
    /// Returns the outcome of the newest request of this call that still counts.
    async fn earlier(&mut self) -> Result<Option<AskOutcome>, StoreError> {
        let Some(row) = self.newest().await? else { return Ok(None) };
        let Some(state) = row.state.known() else { return Ok(None) };
        if row.pin != self.new.pin {
            let is_open = matches!(state, ConsentState::Granted | ConsentState::Pending);
            let was_lapsed =
                is_open && self.end(&row, ConsentState::Lapsed, Some(LapseReason::ToolChanged)).await?;
            let told = was_lapsed && state == ConsentState::Granted;
            return Ok(told.then(|| AskOutcome::Lapsed(Box::new(row))));
        }
        Ok(match state {
            ConsentState::Pending => Some(AskOutcome::Pending(Box::new(row))),
            ConsentState::Granted => Some(AskOutcome::Granted(Box::new(row))),
            ConsentState::Denied if row.is_in_time => Some(AskOutcome::Denied(Box::new(row))),
            ConsentState::TimedOut
                if row.told_at.is_none() && self.end(&row, ConsentState::TimedOut, None).await? =>
            {
                Some(AskOutcome::TimedOut(Box::new(row)))
            }
            _ => None,
        })
    }

    /// Returns the newest request of this call whose answer satisfies what is needed now.
    async fn newest(&mut self) -> Result<Option<ConsentRow>, StoreError> {
        Ok(sqlx::query_as(concat!(
            "select ",
            request_columns!(),
            " from consent_requests
             where tenant_id = $1 and principal = $2 and digest = any($3)
               and (assurance = $4 or assurance = 'approver')
             order by id desc limit 1"
        ))
        .bind(self.tenant.0)
        .bind(principal(self.new.turn.key))
        .bind(self.new.digests())
        .bind(self.new.assurance.as_str())
        .fetch_optional(&mut **self.tx)
        .await?)
    }

    /// Ends an open request, and notes that the caller was told. `lapse` is the reason of one that lapses. Returns whether this call did.
    async fn end(
        &mut self,
        row: &ConsentRow,
        state: ConsentState,
        lapse: Option<LapseReason>,
    ) -> Result<bool, StoreError> {
        let was_open: Option<bool> = sqlx::query_scalar(concat!(
            "update consent_requests c set state = $3, told_at = now(), ended_at = coalesce(ended_at, now()), lapse_reason = $6
             from (select tenant_id as its_tenant, id as its_id, ended_at is null as was_open
                   from consent_requests where tenant_id = $1 and id = $2 for update) before
             where c.tenant_id = before.its_tenant and c.id = before.its_id and told_at is null and ",
            state_now!(),
            " = $4 and expires_at > now() - make_interval(secs => $5)
             returning was_open"
        ))
        .bind(self.tenant.0)
        .bind(row.id)
        .bind(state.as_str())
        .bind(row.state.as_str())
        .bind(TOLD_WITHIN.as_seconds_f64())
        .bind(lapse.map(LapseReason::as_str))
        .fetch_optional(&mut **self.tx)
        .await?;
        self.is_changed |= was_open.is_some();
        // the sweep may have ended it before, and recorded that
        if was_open == Some(true) {
            self.steps.push((row.id, state.as_str()));
            self.ended.push(state);
        }
        Ok(was_open.is_some())
    }

    /// Returns the reason for which nobody is asked.
    async fn refused(&mut self, limits: AskLimits) -> Result<Option<AskOutcome>, StoreError> {
        // asks of one key are counted one after the other
        lock_key(self.tx, self.tenant, principal(self.new.turn.key)).await?;
        let new = self.new;
        let (of, tool) = (principal(new.turn.key), (new.server_id.0, &*new.tool));
        if let Some((denials, until)) = cooling_down(self.tx, self.tenant, of, tool).await? {
            return Ok(Some(AskOutcome::CoolingDown { denials, until }));
        }
        let (pending, next_end_s, asked, oldest_s): (i64, Option<f64>, i64, Option<f64>) = sqlx::query_as(
            "select open.pending, open.next_end_s, asked.count, asked.oldest_s
             from (select count(*) as pending, extract(epoch from min(expires_at) - now())::float8 as next_end_s
                   from consent_requests
                   where tenant_id = $1 and principal = $2 and state = 'pending' and expires_at > now()) open,
                  (select count(*) as count, extract(epoch from now() - min(created_at))::float8 as oldest_s
                   from consent_requests
                   where tenant_id = $1 and principal = $2 and created_at > now() - make_interval(secs => $3)) asked",
        )
        .bind(self.tenant.0)
        .bind(principal(self.new.turn.key))
        .bind(MINUTE.as_seconds_f64())
        .fetch_one(&mut **self.tx)
        .await?;
        if pending >= limits.pending || asked >= limits.per_minute {
            let is_full = pending >= limits.pending;
            let passed = oldest_s.unwrap_or_default().clamp(0.0, MINUTE.as_seconds_f64());
            let left =
                if is_full { next_end_s.unwrap_or_default() } else { MINUTE.as_seconds_f64() - passed };
            return Ok(Some(AskOutcome::Throttled {
                pending,
                is_full,
                retry_s: (left.ceil() as i64).max(1),
            }));
        }
        Ok(None)
    }

    /// Asks a person, unless an equal ask is open.
    async fn insert(&mut self) -> Result<AskOutcome, StoreError> {
        let new = self.new;
        // one whose time is over must not stand in the way of the new one
        let over: Vec<Uuid> = sqlx::query_scalar(
            "update consent_requests set state = 'timed_out', ended_at = now()
             where tenant_id = $1 and principal = $2 and digest = any($3) and state = 'pending'
               and expires_at <= now()
             returning id",
        )
        .bind(self.tenant.0)
        .bind(principal(new.turn.key))
        .bind(self.new.digests())
        .fetch_all(&mut **self.tx)
        .await?;
        self.is_changed = true;
        self.ended.extend(over.iter().map(|_| ConsentState::TimedOut));
        self.steps.extend(over.into_iter().map(|id| (id, ConsentState::TimedOut.as_str())));
        let reason = &new.reason;
        let signals: Vec<&str> = reason.risk.signals.iter().map(|signal| signal.as_str()).collect();
        let options: Vec<&str> = new.options.iter().map(|option| option.as_str()).collect();
        let level: RiskLevel = reason.risk.level;
        let inserted: Option<ConsentRow> = sqlx::query_as(concat!(
            "insert into consent_requests (
                 tenant_id, id, principal, owner, person, creator, session_id, server_id, server, tool,
                 operation_type, pin, digest, endpoint, risk, signals, action, action_values, is_irreversible,
                 arguments, was_cut, agent_says, author_says, rule, policy_version, assurance, options, channels,
                 ttl_s, trace_id, identity_id, principal_root, person_email, arguments_bytes, masked_bytes, expires_at)
             values ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19, $20,
                 $21, $22, $23, $24, $25, $26, $27, $28, $29, $30, $31, $32, $33, $34, $35, now() + make_interval(secs => $29::float8))
             on conflict do nothing returning ",
            request_columns!()
        ))
        .bind(self.tenant.0)
        .bind(new.id)
        .bind(principal(new.turn.key))
        .bind(&new.owner)
        .bind(&new.person)
        .bind(new.creator.map(|key| key.0))
        .bind(&new.turn.session)
        .bind(new.server_id.0)
        .bind(&new.server)
        .bind(&new.tool)
        .bind(new.operation.as_str())
        .bind(&new.pin)
        .bind(new.digests.first().map(<[u8; DIGEST_BYTES]>::as_slice).unwrap_or_default())
        .bind(new.endpoint)
        .bind(level.as_str())
        .bind(signals)
        .bind(reason.action.key.as_str())
        .bind(&reason.action.values)
        .bind(reason.action.is_irreversible)
        .bind(&reason.arguments.text)
        .bind(reason.arguments.truncated)
        .bind(&reason.agent_says)
        .bind(&reason.author_says)
        .bind(&new.rule)
        .bind(new.policy_version)
        .bind(new.assurance.as_str())
        .bind(options)
        .bind(&new.channels)
        .bind(i32::try_from(new.ttl_s).unwrap_or(i32::MAX))
        .bind(&new.trace_id)
        .bind(new.identity.map(|identity| identity.0))
        .bind(new.root.map(|key| key.0))
        .bind(&new.email)
        .bind(i32::try_from(reason.arguments_bytes).unwrap_or(i32::MAX))
        .bind(i32::try_from(reason.arguments.masked).unwrap_or(i32::MAX))
        .fetch_optional(&mut **self.tx)
        .await?;
        if let Some(row) = inserted {
            self.steps.push((row.id, "asked"));
            return Ok(AskOutcome::Pending(Box::new(row)));
        }
        // another call of the same kind was first
        let row = self.newest().await?.ok_or(StoreError::Conflict("the request changed meanwhile"))?;
        Ok(AskOutcome::Pending(Box::new(row)))
    }
}
