//! Seals of tokens at servers, and of the gateway's own secrets at authorization servers.

use uuid::Uuid;
use zeroize::Zeroizing;

use super::answer::GoodAnswer;
use crate::domain::id::{ServerId, TenantId};
use crate::domain::seal::{self, Keyring, NONCE_BYTES, Place};
use crate::domain::server_login::ClientAuthWay;
use crate::gateway::GatewayError;
use crate::gateway::credentials::{data_key, open_data_key, random, unsealable};
use crate::store::{DataKey, LoginOf, NewTokens, SealedText, Store};
use crate::upstream::ClientAuth;

/// Use of an access token, to which its seal is bound.
pub(in crate::gateway) const ACCESS: &str = "access";
/// Use of a token that renews a login.
pub(in crate::gateway) const REFRESH: &str = "refresh";

/// Returns the place of a token's seal.
pub(in crate::gateway) fn token_place<'a>(of: LoginOf, part: &'a str, place: &'a str) -> Place<'a> {
    let principal = of.principal.unwrap_or_default();
    Place::ServerToken { tenant: of.tenant, server: of.server, principal, part, client: of.client, place }
}

/// Opens a sealed text; `None` if it does not open, or is no text.
pub(in crate::gateway) fn open(
    keyring: &Keyring,
    tenant: TenantId,
    (text, keys): (&SealedText, &[DataKey]),
    place: Place<'_>,
) -> Option<Zeroizing<String>> {
    let key = open_data_key(keyring, tenant, keys, text.data_key_id)?;
    let opened = seal::open(&key, place, &text.sealed).ok()?;
    Some(Zeroizing::new(std::str::from_utf8(&opened).ok()?.to_owned()))
}

/// Seals a text with a data key of the tenant.
pub(in crate::gateway) async fn seal_text(
    store: &Store,
    keyring: &Keyring,
    tenant: TenantId,
    place: Place<'_>,
    text: &str,
) -> Result<SealedText, GatewayError> {
    let (data_key_id, key) = data_key(store, keyring, tenant).await?;
    let sealed = seal::seal(&key, random::<NONCE_BYTES>()?, place, text.as_bytes()).map_err(unsealable)?;
    Ok(SealedText { data_key_id, sealed })
}

/// Seals the tokens of an answer. Without a usable access token, only what renews the login is there.
pub(in crate::gateway) async fn seal_tokens(
    (store, keyring): (&Store, &Keyring),
    (of, place): (LoginOf, &str),
    good: Option<&GoodAnswer>,
    refresh: Option<&str>,
) -> Result<NewTokens, GatewayError> {
    let mut new = NewTokens::default();
    if let Some(good) = good {
        let bound = token_place(of, ACCESS, place);
        new.access = Some(seal_text(store, keyring, of.tenant, bound, &good.token).await?);
        (new.expires_s, new.renew_s) = (good.life_s, good.renew_s());
    }
    if let Some(refresh) = refresh {
        let bound = token_place(of, REFRESH, place);
        new.refresh = Some(seal_text(store, keyring, of.tenant, bound, refresh).await?);
    }
    Ok(new)
}

/// Client of the gateway at an authorization server, opened.
pub(in crate::gateway) struct OpenClient {
    id: String,
    way: ClientAuthWay,
    secret: Zeroizing<String>,
}

impl OpenClient {
    /// Opens a client. The error is a sentence for administrators; true if another try may help.
    pub(in crate::gateway) fn open(
        keyring: &Keyring,
        (tenant, server, endpoint): (TenantId, Uuid, &str),
        (id, way): (&str, &str),
        (secret, keys): (Option<&SealedText>, &[DataKey]),
    ) -> Result<OpenClient, (&'static str, bool)> {
        let way = ClientAuthWay::parse(way).ok_or(("this release does not know its client_auth", false))?;
        let place = Place::ServerOauth { tenant, server: ServerId(server), endpoint };
        let secret = match secret {
            None => Zeroizing::default(),
            Some(sealed) => open(keyring, tenant, (sealed, keys), place)
                .ok_or(("its client secret cannot be opened with the master keys at hand", true))?,
        };
        Ok(OpenClient { id: id.to_owned(), way, secret })
    }

    /// Returns the client as it authenticates.
    pub(in crate::gateway) fn auth(&self) -> ClientAuth<'_> {
        match self.way {
            ClientAuthWay::Basic => ClientAuth::Basic(&self.id, &self.secret),
            ClientAuthWay::Post => ClientAuth::Post(&self.id, &self.secret),
            ClientAuthWay::Public => ClientAuth::Public(&self.id),
        }
    }
}
