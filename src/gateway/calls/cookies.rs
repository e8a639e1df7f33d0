//! Cookies that a key keeps at a server of web pages from one call to the next: sealed, and the same on every replica.

use std::fmt::Display;
use std::sync::Arc;

use chrono::Utc;
use uuid::Uuid;

use super::Calls;
use crate::domain::refusal::{Code, Refusal};
use crate::domain::seal::{self, NONCE_BYTES, Place};
use crate::domain::web_page::cookies::{COOKIES_KEPT_S, CookieJar};
use crate::domain::web_page::settings::PageCookies;
use crate::gateway::catalog::ServerEntry;
use crate::gateway::credentials::{data_key, open_data_key, random, unsealable};
use crate::gateway::error::GatewayError;
use crate::gateway::tenants::Caller;
use crate::store::{CookieOwners, CookiePlace, CookiesStored, FoundCookies, NewSealedRow, StoreError};
use crate::upstream::CallCookies;

/// Attempts to store cookies that other calls change at the same time.
const TRIES_MAX: usize = 5;

/// Cookies with which a call begins.
#[derive(Clone, Debug)]
pub(super) struct KeptCookies {
    place: CookiePlace,
    /// Server and key, as they were found; `None` if one of them is gone.
    owners: Option<CookieOwners>,
    /// Version that was read; `None` where there were no cookies.
    version: Option<Uuid>,
    /// Cookies before the call and after it.
    pub(super) cookies: Arc<CallCookies>,
}

/// Cookies of a place, opened.
struct OpenedCookies {
    owners: Option<CookieOwners>,
    version: Option<Uuid>,
    jar: CookieJar,
}

impl Calls {
    /// Returns the cookies that a caller has at a server; `None` if the server keeps none.
    pub(super) async fn kept_cookies(
        &self,
        caller: &Caller,
        server: &ServerEntry,
    ) -> Result<Option<KeptCookies>, Refusal> {
        let pages = server.target.upstream.pages();
        if pages.is_none_or(|pages| pages.settings.cookies != PageCookies::Kept) {
            return Ok(None);
        }
        let principal = caller.key.map_or(Uuid::nil(), |key| key.0);
        let place = CookiePlace { tenant: caller.tenant_id(), principal, server: server.id };
        let found = self.cookies_at(place).await.map_err(|error| {
            tracing::warn!(%error, tenant = %place.tenant, "the cookies of a call could not be read");
            let message =
                "Cookies of earlier calls cannot be read now; nothing was sent, try again in a few seconds";
            Refusal::new(Code::RecordUnavailable, message)
        })?;
        if found.owners.is_some_and(|owners| owners.server != server.target.version) {
            // the call goes by settings or secrets of before: its login must not become that of later calls
            return Ok(None);
        }
        let cookies = Arc::new(CallCookies::new(found.jar));
        Ok(Some(KeptCookies { place, owners: found.owners, version: found.version, cookies }))
    }

    /// Drops the kept cookies of a call that is about to be sent to `server`, if server or key have changed since the cookies were
    /// read, as they may while a person is asked: the cookies may be of another login.
    pub(super) async fn drop_outdated_cookies(&self, kept: &mut Option<KeptCookies>, server: &ServerEntry) {
        let Some(found) = kept else { return };
        let now = self.store.web_cookies(found.place).await;
        let is_current = now.is_ok_and(|now| {
            now.owners == found.owners
                && now.owners.is_some_and(|owners| owners.server == server.target.version)
        });
        if !is_current {
            *kept = None;
        }
    }

    /// Stores what a call has changed in its caller's cookies. If that fails, later calls go on with those of before.
    pub(super) async fn keep_cookies(&self, kept: &KeptCookies) {
        let changes = kept.cookies.changes();
        let Some(owners) = kept.owners.filter(|_| !changes.is_empty()) else { return };
        let (mut version, mut jar) = (kept.version, kept.cookies.before().clone());
        for _ in 0..TRIES_MAX {
            let changed = jar.with_changes(&changes, Utc::now().timestamp());
            match self.put_cookies(kept.place, (owners, version), &changed).await {
                Ok(CookiesStored::Done | CookiesStored::Unwanted) => return,
                Ok(CookiesStored::Superseded) => {}
                Err(error) => return not_kept(kept.place, &error),
            }
            // another call came first: this one's changes are made to what that one left
            match self.cookies_at(kept.place).await {
                Ok(found) => (version, jar) = (found.version, found.jar),
                Err(error) => return not_kept(kept.place, &error),
            }
        }
        tracing::warn!(tenant = %kept.place.tenant, "the cookies of a call are not kept: other calls change them at the same time");
    }

    /// Reads cookies. Those that no key at hand opens count as none, and make room for new ones.
    async fn cookies_at(&self, place: CookiePlace) -> Result<OpenedCookies, StoreError> {
        let FoundCookies { owners, stored } = self.store.web_cookies(place).await?;
        let Some(stored) = stored else {
            return Ok(OpenedCookies { owners, version: None, jar: CookieJar::default() });
        };
        let key = open_data_key(&self.options.keyring, place.tenant, &stored.keys, stored.data_key);
        let text = key.and_then(|key| seal::open(&key, sealed_for(place), &stored.sealed).ok());
        let jar = text.and_then(|text| CookieJar::read(&text));
        Ok(OpenedCookies { owners, version: Some(stored.version), jar: jar.unwrap_or_default() })
    }

    async fn put_cookies(
        &self,
        place: CookiePlace,
        (owners, replaces): (CookieOwners, Option<Uuid>),
        jar: &CookieJar,
    ) -> Result<CookiesStored, GatewayError> {
        let (data_key, key) = data_key(&self.store, &self.options.keyring, place.tenant).await?;
        let nonce: [u8; NONCE_BYTES] = random()?;
        let sealed = seal::seal(&key, nonce, sealed_for(place), &jar.to_text()).map_err(unsealable)?;
        let (version, keep_s) = (Uuid::now_v7(), COOKIES_KEPT_S);
        let new = NewSealedRow { replaces, version, data_key, sealed, keep_s };
        let stored = self.store.put_web_cookies(place, owners, &new).await;
        stored.map_err(|error| GatewayError::from_store(error, "cookies"))
    }
}

fn sealed_for(place: CookiePlace) -> Place<'static> {
    let CookiePlace { tenant, principal, server } = place;
    Place::WebCookies { tenant, principal, server }
}

fn not_kept(place: CookiePlace, error: &impl Display) {
    tracing::warn!(%error, tenant = %place.tenant, "the cookies of a call are not kept");
}
