//! Fences: the turns of callers that a person has ended.

use chrono::{DateTime, Utc};
use sqlx::FromRow;
use uuid::Uuid;

use super::decision::NewDecision;
use super::principal;
use super::steps::{self, Moved, StepTaken};
use crate::domain::consent::{ConsentState, FENCE};
use crate::domain::id::{KeyId, TenantId};
use crate::store::revisions::{self, NOTICE_COMMENT_BYTES_MAX, TurnNotice};
use crate::store::tx::{Lane, TxAccess};
use crate::store::unit::Unit;
use crate::store::{Store, StoreError};

/// Turn that a call belongs to.
#[derive(Clone, Debug)]
pub struct CallTurn {
    /// Key that calls; `None` for the bootstrap key.
    pub key: Option<KeyId>,
    /// Session of the call; `None` without one.
    pub session: Option<String>,
    /// Time at which the session began at the latest; `None` if that is unknown.
    pub session_began: Option<DateTime<Utc>>,
}

/// Fence that holds for a call.
#[derive(Clone, Debug, FromRow)]
pub struct HeldFence {
    /// End of the fence.
    pub ends_at: DateTime<Utc>,
    /// Comment of the person who ended the turn.
    pub comment: Option<String>,
}

/// SQL for whether fence `f` holds for a call of `$2` with session `$3`, which began at `$4`. A session that is not known
/// to have begun before the fence is fenced: nothing that a client sends lifts it.
macro_rules! holds {
    () => {
        "f.tenant_id = $1 and f.principal = $2 and f.ends_at > now()
         and (f.session_id is null or $3::text is null or f.session_id = $3
              or $4::timestamptz is null or $4 >= f.begins_at)"
    };
}
pub(super) use holds;

impl CallTurn {
    /// Returns whether this turn is one that a person has ended, as fences have it.
    pub fn is_ended_by(&self, notice: &TurnNotice) -> bool {
        let is_of = |session: &String| {
            self.session.as_ref().is_none_or(|own| own == session)
                || self.session_began.is_none_or(|began| began >= notice.began_at)
        };
        self.key == notice.key && notice.session.as_ref().is_none_or(is_of)
    }
}

impl Store {
    /// Ends the turn of the key that decides, as it wants to: fences all that it has begun, and cancels its open requests.
    /// Returns how many those were.
    ///
    /// # Errors
    /// The database is out of reach or fails.
    pub async fn end_own_turn(&self, tenant: TenantId, new: &NewDecision) -> Result<u64, StoreError> {
        let mut tx = self.begin(Lane::Control, TxAccess::Tenant(tenant)).await?;
        let own = principal(new.by);
        lock_key(&mut tx, tenant, own).await?;
        let cancelled = begin(&mut tx, tenant, new, (own, None)).await?;
        let step = ConsentState::Cancelled.as_str();
        let steps: Vec<_> = cancelled.iter().map(|moved| StepTaken::of(tenant, moved, step)).collect();
        steps::write(&mut tx, &new.author, &steps).await?;
        tx.commit_change().await?;
        Ok(cancelled.len() as u64)
    }
}

/// Returns the fence that holds longest for a call, within a transaction.
pub(super) async fn held(
    tx: &mut Unit,
    tenant: TenantId,
    turn: &CallTurn,
) -> Result<Option<HeldFence>, StoreError> {
    Ok(sqlx::query_as(concat!(
        "select f.ends_at, r.comment
         from consent_fences f left join consent_requests r on r.tenant_id = f.tenant_id and r.id = f.id
         where ",
        holds!(),
        " order by f.ends_at desc limit 1"
    ))
    .bind(tenant.0)
    .bind(principal(turn.key))
    .bind(&turn.session)
    .bind(turn.session_began)
    .fetch_optional(&mut **tx)
    .await?)
}

/// Lets changes of one key's requests, of which each touches several rows, wait for each other.
pub(super) async fn lock_key(tx: &mut Unit, tenant: TenantId, principal: Uuid) -> Result<(), StoreError> {
    sqlx::query("select pg_advisory_xact_lock(hashtext($1::text), hashtext($2::text))")
        .bind(tenant.0)
        .bind(principal)
        .execute(&mut **tx)
        .await?;
    Ok(())
}

/// Fences a turn, and cancels what else is open in it. Returns those requests, with server and tool. Without a session, the
/// turn is all that the key has begun.
pub(super) async fn begin(
    tx: &mut Unit,
    tenant: TenantId,
    new: &NewDecision,
    (calling, session): (Uuid, Option<&str>),
) -> Result<Vec<Moved>, StoreError> {
    let began_at: DateTime<Utc> = sqlx::query_scalar(
        "insert into consent_fences (tenant_id, id, principal, session_id, ends_at)
         values ($1, $2, $3, $4, now() + make_interval(secs => $5)) returning begins_at",
    )
    .bind(tenant.0)
    .bind(new.id)
    .bind(calling)
    .bind(session)
    .bind(FENCE.as_seconds_f64())
    .fetch_one(&mut **tx)
    .await?;
    let key = (!calling.is_nil()).then_some(KeyId(calling));
    let comment = new.comment.as_deref().map(|comment| {
        let end = comment.floor_char_boundary(NOTICE_COMMENT_BYTES_MAX);
        comment.get(..end).unwrap_or_default().to_owned()
    });
    let notice = TurnNotice { tenant, key, session: session.map(str::to_owned), began_at, comment };
    revisions::tell_turn(tx, &notice).await?;
    // calls between two rounds are under way as well
    sqlx::query(
        "update consent_requests set kept_until = now()
         where tenant_id = $1 and principal = $2 and state = 'consumed' and kept_until > now()
           and ($3::text is null or session_id is null or session_id = $3)",
    )
    .bind(tenant.0)
    .bind(calling)
    .bind(session)
    .execute(&mut **tx)
    .await?;
    // who had allowed one that has not run yet stays who decided it
    let others = sqlx::query_as(
        "update consent_requests set state = 'cancelled', ended_at = now(),
             decided_at = case state when 'granted' then decided_at else now() end,
             decided_by = case state when 'granted' then decided_by else $4 end,
             decided_owner = case state when 'granted' then decided_owner else $5 end,
             decided_via = case state when 'granted' then decided_via else $6 end
         where tenant_id = $1 and principal = $2 and state in ('pending', 'granted') and expires_at > now()
           and ($3::text is null or session_id is null or session_id = $3)
         returning id, server, tool",
    )
    .bind(tenant.0)
    .bind(calling)
    .bind(session)
    .bind(principal(new.by))
    .bind(&new.owner)
    .bind(new.via.as_str())
    .fetch_all(&mut **tx)
    .await?;
    Ok(others)
}
