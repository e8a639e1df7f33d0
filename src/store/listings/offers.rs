//! Changes that a listing makes to a server's prompts, resources and templates.

use std::collections::{HashMap, HashSet};

use serde_json::{Map, Value};
use sqlx::types::Json;

use super::found::NewOffers;
use super::pinning::{KnownPins, Pinning, Written, known};
use super::spelling::{self, PROMPT_NAMES};
use super::{Discovered, Right, Tally, lock};
use crate::domain::fingerprint::Fingerprinting;
use crate::domain::id::{ServerId, TenantId};
use crate::domain::offer::OfferKind;
use crate::domain::quota::Quotas;
use crate::domain::server::ConnectionState;
use crate::store::offer_pins::{self, offer_bytes};
use crate::store::revisions::{self, RevisionKind};
use crate::store::tools::stored_bytes;
use crate::store::tx::{Lane, TxAccess};
use crate::store::unit::Unit;
use crate::store::{Store, StoreError, quotas};

/// Most names of prompts remembered per server; above it new prompts get no safe spelling.
const PROMPT_NAMES_MAX: i64 = 10_000;

/// Changes that a listing of offers made.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AppliedOffers {
    /// Number of offers that changed.
    pub changes: usize,
    /// New revision; `None` if nothing changed.
    pub rev: Option<i64>,
    /// New remark on offers that could not be listed or exceed the quota; `None` if it is unchanged or gone.
    pub remark: Option<String>,
    /// Kinds that were not written: another listing of them was stored meanwhile and may be newer.
    pub overtaken: Vec<OfferKind>,
    /// Kinds that are stored as they were found, all within the quota.
    pub stored: Vec<OfferKind>,
}

/// Offers that a listing writes and removes.
#[derive(Default)]
pub(super) struct OffersPlan<'a> {
    write: Vec<Written<'a>>,
    remove: Vec<(OfferKind, String)>,
    /// Number of offers that are left out for lack of quota.
    left_out: usize,
}

impl<'a> OffersPlan<'a> {
    /// Compares found offers with the stored ones, within the quota of definition bytes. `own_tools` are the bytes of
    /// the server's tools, which take precedence.
    pub(super) async fn make(
        tx: &mut Unit,
        (tenant, server): (TenantId, ServerId),
        (found, pinning): (&NewOffers<'a>, &Pinning),
        own_tools: i64,
        deployment: &Quotas,
    ) -> Result<OffersPlan<'a>, StoreError> {
        if found.is_empty() {
            return Ok(OffersPlan::default());
        }
        let known = known(tx, tenant, server).await?;
        let mut plan = Self::compare(&known, found, pinning);
        if !plan.write.is_empty() {
            // other listings of the tenant wait from here on
            revisions::lock(tx, tenant, RevisionKind::Catalogue).await?;
            let quotas = quotas::of(tx, tenant, deployment).await?;
            let others = bytes_of_others(tx, tenant, server).await?;
            plan.fit(&known, quotas.definition_bytes.saturating_sub(others).saturating_sub(own_tools));
        }
        Ok(plan)
    }

    fn compare(known: &[KnownPins], found: &NewOffers<'a>, pinning: &Pinning) -> OffersPlan<'a> {
        let mut plan = OffersPlan::default();
        for kind in OfferKind::ALL {
            let Some(found) = found.of(kind) else { continue };
            let known: HashMap<&str, &KnownPins> = known
                .iter()
                .filter(|offer| offer.kind == kind)
                .map(|offer| (offer.name.as_str(), offer))
                .collect();
            // of two with one name the first counts
            let mut names = HashSet::new();
            for offer in found.iter().filter(|offer| names.insert(offer.name.as_str())) {
                let known = known.get(offer.name.as_str()).copied();
                plan.write.extend(Written::of(known, kind, offer, pinning.takes(kind)));
            }
            let gone = known.values().filter(|known| known.pin.is_some() && !names.contains(&*known.name));
            plan.remove.extend(gone.map(|known| (kind, known.name.clone())));
        }
        plan
    }

    /// Leaves out offers that exceed `room`, in bytes. Their stored definitions stay as they were, and so does their
    /// precedence over servers that offer the same.
    fn fit(&mut self, known: &[KnownPins], mut room: i64) {
        let gone: HashSet<(&str, &str)> =
            self.remove.iter().map(|(kind, name)| (kind.as_str(), name.as_str())).collect();
        let mut stored = HashMap::new();
        for offer in known {
            let of = (offer.kind.as_str(), offer.name.as_str());
            if !gone.contains(&of) {
                room = room.saturating_sub(offer.bytes());
                stored.insert(of, offer.bytes());
            }
        }
        let all = self.write.len();
        self.write.retain(|written| {
            let of = (written.kind.as_str(), written.offer.name.as_str());
            let more = written.bytes.saturating_sub(stored.get(&of).copied().unwrap_or_default());
            let fits = more <= room.max(0);
            if fits {
                room -= more;
            }
            fits
        });
        self.left_out = all - self.write.len();
    }

    /// Returns the number of offers to be written or removed.
    pub(super) fn changes(&self) -> usize {
        self.write.len() + self.remove.len()
    }

    /// Returns why kinds could not be listed or offers are left out; `null` for what is well.
    pub(super) fn faults(&self, found: &NewOffers<'_>) -> Value {
        let mut faults = Map::new();
        for kind in OfferKind::ALL {
            if let Some(found) = found.asked_for(kind) {
                faults.insert(kind.as_str().to_owned(), found.err().into());
            }
        }
        let is_told = |kind| found.of(kind).is_some() || found.stored.contains(&kind);
        let is_whole = OfferKind::ALL.into_iter().all(is_told);
        let room = (self.left_out > 0).then(|| {
            format!(
                "{} prompts, resources or templates are left out, or stay as they were: the tenant's quota of definition_bytes is used up",
                self.left_out
            )
        });
        if is_whole || room.is_some() {
            faults.insert("room".to_owned(), room.into());
        }
        Value::Object(faults)
    }

    /// Returns the kinds that are stored as they were found.
    fn stored(&self, found: &NewOffers<'_>) -> Vec<OfferKind> {
        let has_room = |kind: &OfferKind| self.left_out == 0 && found.of(*kind).is_some();
        OfferKind::ALL.into_iter().filter(has_room).collect()
    }

    /// Writes the plan under the revision `rev`, which the caller has taken.
    pub(super) async fn apply(
        &self,
        tx: &mut Unit,
        tenant: TenantId,
        server: ServerId,
        rev: i64,
    ) -> Result<(), StoreError> {
        self.remove(tx, tenant, server, rev).await?;
        self.write_texts(tx, tenant, server, rev).await?;
        let first = self.names(|written| written.approves && written.is_first);
        if !first.0.is_empty() {
            offer_pins::begin_anew(tx, tenant, server, &first).await?;
        }
        let approved = self.names(|written| written.approves);
        if !approved.0.is_empty() {
            offer_pins::approve(tx, (tenant, server), &approved, None, rev).await?;
        }
        let prompts = self.names(|written| written.kind == OfferKind::Prompt && written.is_new_text).1;
        if prompts.is_empty() || has_all_names(tx, tenant, server).await? {
            return Ok(());
        }
        spelling::assign(tx, tenant, server, &PROMPT_NAMES, prompts).await
    }

    /// Returns kinds and names of the offers to be written that match.
    fn names(&self, is_wanted: impl Fn(&Written<'_>) -> bool) -> (Vec<&str>, Vec<&str>) {
        let wanted = self.write.iter().filter(|written| is_wanted(written));
        wanted.map(|written| (written.kind.as_str(), written.offer.name.as_str())).unzip()
    }

    async fn write_texts(
        &self,
        tx: &mut Unit,
        tenant: TenantId,
        server: ServerId,
        rev: i64,
    ) -> Result<(), StoreError> {
        let offers: Vec<&Discovered> =
            self.write.iter().filter(|written| written.is_new_text).map(|written| written.offer).collect();
        if offers.is_empty() {
            return Ok(());
        }
        let (kinds, names) = self.names(|written| written.is_new_text);
        let column =
            |pick: fn(&Discovered) -> &str| offers.iter().map(|offer| pick(offer)).collect::<Vec<_>>();
        sqlx::query(
            "insert into offers (tenant_id, server_id, kind, name, definition, pin, digest, rev)
             select $1, $2, kind, name, definition, pin, digest, $8
             from unnest($3::text[], $4::text[], $5::text[], $6::text[], $7::text[])
                 as f (kind, name, definition, pin, digest)
             on conflict (tenant_id, server_id, kind, name) do update set
                 definition = excluded.definition, pin = excluded.pin, digest = excluded.digest, rev = excluded.rev",
        )
        .bind(tenant.0)
        .bind(server.0)
        .bind(kinds)
        .bind(names)
        .bind(column(|offer| &offer.definition))
        .bind(column(|offer| &offer.pin))
        .bind(offers.iter().map(|offer| digest(&offer.definition)).collect::<Vec<_>>())
        .bind(rev)
        .execute(&mut **tx)
        .await?;
        Ok(())
    }

    async fn remove(
        &self,
        tx: &mut Unit,
        tenant: TenantId,
        server: ServerId,
        rev: i64,
    ) -> Result<(), StoreError> {
        if self.remove.is_empty() {
            return Ok(());
        }
        let gone: (Vec<&str>, Vec<&str>) =
            self.remove.iter().map(|(kind, name)| (kind.as_str(), name.as_str())).unzip();
        sqlx::query(
            "delete from offers where tenant_id = $1 and server_id = $2
                 and (kind, name) in (select kind, name from unnest($3::text[], $4::text[]) as f (kind, name))",
        )
        .bind(tenant.0)
        .bind(server.0)
        .bind(&gone.0)
        .bind(&gone.1)
        .execute(&mut **tx)
        .await?;
        offer_pins::gone(tx, (tenant, server), &gone, rev).await
    }
}

impl Store {
    /// Stores a server's offers of some kinds; its tools and its state stay untouched. Lists that another listing has
    /// stored since the tally was read are left as they are.
    ///
    /// # Errors
    /// As [`Store::apply_listing`]. Also [`StoreError::Conflict`] if the server is not connected: then only a whole
    /// listing is accepted.
    pub async fn apply_offers(
        &self,
        tenant: TenantId,
        server: ServerId,
        (version, tally): (i64, &Tally),
        (offers, right): (&NewOffers<'_>, Right),
        deployment: &Quotas,
    ) -> Result<AppliedOffers, StoreError> {
        let mut tx = self.begin(Lane::Upkeep, TxAccess::Tenant(tenant)).await?;
        let state = lock(&mut tx, tenant, server, version).await?;
        right.check(&mut tx, state.rev).await?;
        if state.connection != ConnectionState::Connected {
            return Err(StoreError::Conflict("the server is not connected any more"));
        }
        let overtaken = state.tally.newer_of(offers, tally);
        let offers = &offers.without(&overtaken);
        let own = own_tools(&mut tx, tenant, server).await?;
        let pinning = state.pinning(false);
        let plan = OffersPlan::make(&mut tx, (tenant, server), (offers, &pinning), own, deployment).await?;
        let changes = plan.changes();
        let rev = match changes {
            0 => None,
            _ => Some(revisions::bump(&mut tx, tenant, RevisionKind::Catalogue).await?),
        };
        if let Some(rev) = rev {
            plan.apply(&mut tx, tenant, server, rev).await?;
        }
        let faults = plan.faults(offers);
        let remark = note(&mut tx, (tenant, server), (offers, &pinning), &faults, rev).await?;
        match rev {
            Some(rev) => revisions::commit(tx, tenant, RevisionKind::Catalogue, rev).await.map(drop)?,
            None => tx.commit().await?,
        }
        Ok(AppliedOffers { changes, rev, remark, overtaken, stored: plan.stored(offers) })
    }
}

/// Records in the server's row that kinds were listed: counters, baselines, faults by kind (`null` clears one) and
/// revision. Returns the new remark on faults; `None` if it is unchanged or gone.
pub(super) async fn note(
    tx: &mut Unit,
    (tenant, server): (TenantId, ServerId),
    (listed, pinning): (&NewOffers<'_>, &Pinning),
    faults: &Value,
    rev: Option<i64>,
) -> Result<Option<String>, StoreError> {
    // a failed listing must not make other listings look outdated
    let one_of = |kind| i64::from(listed.of(kind).is_some());
    let now: Option<Option<String>> = sqlx::query_scalar(
        "with was as (
             select nullif(jsonb_strip_nulls(coalesce(offers_error, '{}') || $3), '{}') as faults, offers_error as before
             from servers where tenant_id = $1 and server_id = $2)
         update servers set offers_error = was.faults, rev = coalesce($4, rev),
             prompts_listings = prompts_listings + $5, resources_listings = resources_listings + $6,
             templates_listings = templates_listings + $7,
             offers_baselined = array(select distinct unnest(offers_baselined || $8::text[]))
         from was where tenant_id = $1 and server_id = $2
         returning case when was.faults is distinct from was.before then
             (select string_agg(value, '; ' order by key) from jsonb_each_text(was.faults)) end",
    )
    .bind(tenant.0)
    .bind(server.0)
    .bind(Json(faults))
    .bind(rev)
    .bind(one_of(OfferKind::Prompt))
    .bind(one_of(OfferKind::Resource))
    .bind(one_of(OfferKind::Template))
    .bind(pinning.set_by(listed))
    .fetch_optional(&mut **tx)
    .await?;
    Ok(now.flatten())
}

fn digest(definition: &str) -> String {
    let mut print = Fingerprinting::default();
    print.field(definition);
    print.finish().to_string()
}

/// Returns the bytes of definitions of the tenant's other servers: tools and offers.
async fn bytes_of_others(tx: &mut Unit, tenant: TenantId, server: ServerId) -> Result<i64, StoreError> {
    let bytes: i64 = sqlx::query_scalar(concat!(
        "select (select ",
        stored_bytes!(),
        " from tools where tenant_id = $1 and server_id <> $2 and removed_at is null) + ",
        offer_bytes!("and server_id <> $2")
    ))
    .bind(tenant.0)
    .bind(server.0)
    .fetch_one(&mut **tx)
    .await?;
    Ok(bytes)
}

async fn own_tools(tx: &mut Unit, tenant: TenantId, server: ServerId) -> Result<i64, StoreError> {
    let bytes: i64 = sqlx::query_scalar(concat!(
        "select ",
        stored_bytes!(),
        " from tools where tenant_id = $1 and server_id = $2 and removed_at is null"
    ))
    .bind(tenant.0)
    .bind(server.0)
    .fetch_one(&mut **tx)
    .await?;
    Ok(bytes)
}

async fn has_all_names(tx: &mut Unit, tenant: TenantId, server: ServerId) -> Result<bool, StoreError> {
    let count: i64 =
        sqlx::query_scalar("select count(*) from prompt_names where tenant_id = $1 and server_id = $2")
            .bind(tenant.0)
            .bind(server.0)
            .fetch_one(&mut **tx)
            .await?;
    Ok(count >= PROMPT_NAMES_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn known(name: &str, pin: &str, bytes: i64) -> KnownPins {
        let pin = Some(pin.to_owned());
        KnownPins {
            kind: OfferKind::Resource.into(),
            name: name.into(),
            approved_pin: pin.clone(),
            pin,
            is_blocked: false,
            bytes,
            approved_bytes: bytes,
        }
    }

    fn found(name: &str, pin: &str, bytes: usize) -> Discovered {
        Discovered { name: name.into(), definition: "x".repeat(bytes), pin: pin.into() }
    }

    fn written(plan: &OffersPlan<'_>) -> Vec<String> {
        plan.write.iter().map(|written| written.offer.name.clone()).collect()
    }

    fn removed<'a>(plan: &'a OffersPlan<'_>) -> Vec<&'a str> {
        plan.remove.iter().map(|(_, name)| name.as_str()).collect()
    }

    #[test]
    fn only_what_was_listed_is_compared() {
        let stored = [known("a", "1", 1), known("b", "1", 1), known("c", "1", 1)];
        let listed = [found("a", "1", 1), found("b", "2", 1), found("d", "1", 1), found("d", "2", 1)];
        let both = NewOffers { resources: Some(Ok(&listed)), prompts: Some(Ok(&[])), ..NewOffers::default() };
        let plan = OffersPlan::compare(&stored, &both, &Pinning::default());
        assert_eq!((written(&plan), removed(&plan)), (vec!["b".into(), "d".into()], vec!["c"]));
        let others = NewOffers { prompts: Some(Ok(&[])), templates: Some(Ok(&[])), ..NewOffers::default() };
        assert_eq!(OffersPlan::compare(&stored, &others, &Pinning::default()).changes(), 0);
    }

    #[test]
    fn what_does_not_fit_is_left_out_and_keeps_its_place() {
        let stored = [known("a", "1", 4), known("b", "1", 4), known("d", "1", 4), known("gone", "1", 100)];
        let listed = [found("a", "1", 4), found("b", "2", 7), found("c", "1", 4), found("d", "2", 1)];
        let listed = NewOffers { resources: Some(Ok(&listed)), ..NewOffers::default() };
        let mut plan = OffersPlan::compare(&stored, &listed, &Pinning::default());
        plan.fit(&stored, 14);
        assert_eq!((written(&plan), removed(&plan)), (vec!["d".to_owned()], vec!["gone"]));
        let faults = plan.faults(&listed);
        assert!(faults["resource"].is_null() && faults.get("prompt").is_none());
        assert!(faults["room"].as_str().unwrap().starts_with("2 prompts"));
        let mut plan = OffersPlan::compare(&stored, &listed, &Pinning::default());
        plan.fit(&stored, 1);
        assert_eq!(written(&plan), ["d"], "what takes less always fits");
    }

    #[test]
    fn a_listing_in_two_parts_is_a_whole_one() {
        let (prompts, rest) = ([found("a", "1", 4)], [OfferKind::Resource, OfferKind::Template]);
        let part = NewOffers { prompts: Some(Ok(&prompts)), ..NewOffers::default() };
        let mut plan = OffersPlan::compare(&[], &part, &Pinning::default());
        let room =
            |plan: &OffersPlan<'_>, stored| plan.faults(&NewOffers { stored, ..part }).get("room").cloned();
        assert_eq!(room(&plan, &rest), Some(Value::Null), "nothing is left out any more");
        assert_eq!(room(&plan, &rest[..1]), None, "nobody knows of the templates");
        assert_eq!(plan.stored(&part), [OfferKind::Prompt]);
        plan.fit(&[], 1);
        assert!(plan.stored(&part).is_empty() && room(&plan, &rest).is_some_and(|room| room.is_string()));
    }
}
