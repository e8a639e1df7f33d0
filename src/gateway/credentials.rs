//! Credentials of upstream servers: sealed when an administrator gives them, opened when a snapshot is made.
//!
//! The master key wraps a data key per tenant; the data key seals each server's headers, bound to that server and its
//! address. This release seals with the origin only, so that the previous release can read it; the row names the full place,
//! which is compared. Seals with the full place, made by the next release, can be read already. A credential that cannot be
//! opened makes only its own server unavailable.

mod fields;
mod headers;
mod named;
mod veil;

use std::collections::HashMap;

use http::header::{HeaderName, HeaderValue};
use uuid::Uuid;
use zeroize::Zeroizing;

pub use self::fields::FieldSecrets;
pub use self::headers::Headers;
pub(super) use self::veil::veil;
use crate::domain::id::TenantId;
use crate::domain::origin::Origin;
use crate::domain::seal::{self, KEY_BYTES, Key, Keyring, NONCE_BYTES, Place};
use crate::domain::server_kind::ServerKind;
use crate::domain::server_url::ServerPlace;
use crate::gateway::error::GatewayError;
use crate::store::{DataKey, SecretRows, Server, ServerSecret, Store};
use crate::upstream::Credential;

/// Credential and headers of a server, opened.
#[derive(Debug)]
pub(super) struct Opened {
    /// Identity of the credential: another one means another connection and session.
    pub(super) credential: Credential,
    /// Custom headers; empty if there are none or they could not be opened.
    pub(super) headers: Vec<(HeaderName, HeaderValue)>,
    /// Secrets for fields of web pages, by name; empty for other kinds, or if they could not be opened.
    pub(super) fields: Vec<(String, Zeroizing<String>)>,
}

impl Opened {
    fn without(credential: Credential) -> Opened {
        Opened { credential, headers: Vec::new(), fields: Vec::new() }
    }
}

/// Opener of a tenant's credentials. Holds the data keys that the keyring can unwrap, wiped when dropped.
pub(super) struct Opener<'a> {
    tenant: TenantId,
    secrets: HashMap<Uuid, &'a ServerSecret>,
    keys: HashMap<Uuid, Key>,
}

impl<'a> Opener<'a> {
    pub(super) fn new(keyring: &Keyring, tenant: TenantId, rows: &'a SecretRows) -> Opener<'a> {
        let keys = rows.keys.iter().filter_map(|row| Some((row.key_id, unwrap(keyring, tenant, row)?)));
        Opener {
            tenant,
            secrets: rows.secrets.iter().map(|secret| (secret.server_id, secret)).collect(),
            keys: keys.collect(),
        }
    }

    /// Opens the headers of `server`, or the secrets for fields of its pages. If they cannot be opened, the credential is `Locked`.
    pub(super) fn open(&self, server: &Server) -> Opened {
        if server.header_names.is_empty() {
            return Opened::without(Credential::None);
        }
        self.try_open(server).unwrap_or_else(|| Opened::without(Credential::Locked))
    }

    fn try_open(&self, server: &Server) -> Option<Opened> {
        let text = self.open_text(server)?;
        let credential = Credential::Is(self.secrets.get(&server.server_id)?.secret_id);
        Some(match server.kind {
            ServerKind::WebPage => {
                Opened { fields: named::from_sealable(&text)?, ..Opened::without(credential) }
            }
            _ => Opened { headers: headers::from_sealable(&text)?, ..Opened::without(credential) },
        })
    }

    /// Opens the sealed text of `server`; `None` if it was sealed for another server, address or key.
    pub(super) fn open_text(&self, server: &Server) -> Option<Zeroizing<Vec<u8>>> {
        let secret = self.secrets.get(&server.server_id)?;
        let url = server.url.as_deref()?;
        let (tenant, server) = (self.tenant, server.id());
        let (here, origin) = (ServerPlace::of(url)?, Origin::of(url)?);
        let key = self.keys.get(&secret.key_id)?;
        let at_place = Place::ServerSecretAt { tenant, server, place: &here };
        if let Ok(text) = seal::open(key, at_place, &secret.sealed) {
            return Some(text);
        }
        if ServerPlace::of(secret.place.as_deref()?)? != here {
            return None;
        }
        seal::open(key, Place::ServerSecret { tenant, server, origin: &origin }, &secret.sealed).ok()
    }
}

pub(super) fn unwrap(keyring: &Keyring, tenant: TenantId, row: &DataKey) -> Option<Key> {
    let place = Place::DataKey { tenant, key: row.key_id };
    Key::read(&seal::open(keyring.find(&row.master_id)?, place, &row.wrapped).ok()?)
}

/// Unwraps the data key of this id; `None` if no master key at hand opens it.
pub(super) fn open_data_key(
    keyring: &Keyring,
    tenant: TenantId,
    rows: &[DataKey],
    key_id: Uuid,
) -> Option<Key> {
    rows.iter().filter(|row| row.key_id == key_id).find_map(|row| unwrap(keyring, tenant, row))
}

/// Wraps a data key by the first master key.
pub(super) fn wrap(
    keyring: &Keyring,
    tenant: TenantId,
    key_id: Uuid,
    key: &Key,
) -> Result<DataKey, GatewayError> {
    let (master_id, master) = keyring.first();
    let place = Place::DataKey { tenant, key: key_id };
    let wrapped = seal::seal(master, random::<NONCE_BYTES>()?, place, key.expose()).map_err(unsealable)?;
    Ok(DataKey { key_id, master_id: master_id.to_owned(), wrapped })
}

/// Returns random bytes.
pub(super) fn random<const N: usize>() -> Result<[u8; N], GatewayError> {
    let mut bytes = [0; N];
    getrandom::fill(&mut bytes).map_err(|error| {
        tracing::error!(%error, "the system's random source failed");
        GatewayError::Unavailable
    })?;
    Ok(bytes)
}

pub(super) fn unsealable(error: seal::Unopenable) -> GatewayError {
    tracing::error!(%error, "a secret could not be sealed");
    GatewayError::Unavailable
}

/// Returns the tenant's newest data key that can be unwrapped, or adds one. So credentials can be given again after a master
/// key was lost; older seals open again if that key returns.
pub(super) async fn data_key(
    store: &Store,
    keyring: &Keyring,
    tenant: TenantId,
) -> Result<(Uuid, Key), GatewayError> {
    let failed = |error| GatewayError::from_store(error, "tenant");
    let rows = store.data_keys(tenant).await.map_err(failed)?;
    if let Some(found) = rows.iter().find_map(|row| Some((row.key_id, unwrap(keyring, tenant, row)?))) {
        return Ok(found);
    }
    let (key_id, bytes) = (Uuid::now_v7(), Zeroizing::new(random::<KEY_BYTES>()?));
    let key = Key::new(*bytes);
    let row = wrap(keyring, tenant, key_id, &key)?;
    store.add_data_key(tenant, &row).await.map_err(failed)?;
    Ok((key_id, key))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const TENANT: TenantId = TenantId(Uuid::from_u128(1));

    fn server(id: u128, url: &str) -> Server {
        Server {
            server_id: Uuid::from_u128(id),
            url: Some(url.into()),
            header_names: vec!["X-A".into()],
            ..Server::example()
        }
    }

    fn keyring(keys: &[u8]) -> Keyring {
        Keyring::new(keys.iter().map(|byte| Key::new([*byte; 32]))).unwrap()
    }

    /// Returns the rows of one server with a sealed header, under the first of `keys`.
    fn rows(keys: &Keyring, server: &Server) -> SecretRows {
        let (key_id, key) = (Uuid::from_u128(7), Key::new([9; 32]));
        let origin = Origin::of(server.url.as_deref().unwrap()).unwrap();
        let place = Place::ServerSecret { tenant: TENANT, server: server.id(), origin: &origin };
        let serde_json::Value::Object(given) = json!({"X-A": "value"}) else { panic!() };
        let text = Headers::read(given).unwrap().to_sealable().unwrap();
        let sealed = seal::seal(&key, [1; 12], place, &text).unwrap();
        let place = server.url.clone();
        let (server_id, secret_id) = (server.server_id, Uuid::from_u128(8));
        let secret = ServerSecret { server_id, secret_id, key_id, place, sealed };
        SecretRows { secrets: vec![secret], keys: vec![wrap(keys, TENANT, key_id, &key).unwrap()] }
    }

    fn opened(keys: &Keyring, tenant: TenantId, server: &Server, rows: &SecretRows) -> Credential {
        let opened = Opener::new(keys, tenant, rows).open(server);
        assert_eq!(opened.headers.is_empty(), !matches!(opened.credential, Credential::Is(_)));
        opened.credential
    }

    #[test]
    fn a_credential_opens_where_it_was_given_only() {
        let (keys, here) = (keyring(&[1]), server(1, "https://a.example/mcp"));
        let good = rows(&keys, &here);
        let is = Credential::Is(Uuid::from_u128(8));
        assert_eq!(opened(&keys, TENANT, &here, &good), is);
        assert_eq!(opened(&keyring(&[2, 1]), TENANT, &here, &good), is, "an older master key");
        assert_eq!(opened(&keys, TENANT, &server(1, "https://A.example:443/mcp?q=1"), &good), is);
        let locked = [
            ("another master key", keyring(&[2]), TENANT, here.clone(), good.clone()),
            ("another tenant", keyring(&[1]), TenantId(Uuid::from_u128(2)), here.clone(), good.clone()),
            ("another origin", keyring(&[1]), TENANT, server(1, "http://a.example/mcp"), good.clone()),
            ("another path", keyring(&[1]), TENANT, server(1, "https://a.example/other"), good.clone()),
            ("no row", keyring(&[1]), TENANT, here.clone(), SecretRows::default()),
        ];
        for (why, keys, tenant, server, rows) in locked {
            assert_eq!(opened(&keys, tenant, &server, &rows), Credential::Locked, "{why}");
        }
        let mut moved = good.clone();
        moved.secrets[0].server_id = Uuid::from_u128(2);
        assert_eq!(opened(&keys, TENANT, &server(2, "https://a.example/mcp"), &moved), Credential::Locked);
        let mut placeless = good.clone();
        placeless.secrets[0].place = None;
        assert_eq!(opened(&keys, TENANT, &here, &placeless), Credential::Locked, "of no place");
        let plain = Server { header_names: Vec::new(), ..here };
        assert_eq!(opened(&keys, TENANT, &plain, &good), Credential::None);
    }

    /// The next release seals like this, and runs beside this one during an upgrade.
    #[test]
    fn a_seal_for_a_place_opens_there_whatever_the_row_says() {
        let (keys, here) = (keyring(&[1]), server(1, "https://a.example/mcp"));
        let mut next = rows(&keys, &here);
        let place = ServerPlace::of(here.url.as_deref().unwrap()).unwrap();
        let bound = Place::ServerSecretAt { tenant: TENANT, server: here.id(), place: &place };
        next.secrets[0].sealed =
            seal::seal(&Key::new([9; 32]), [2; 12], bound, br#"[["X-A","value"]]"#).unwrap();
        let is = Credential::Is(Uuid::from_u128(8));
        for row in [None, Some("https://a.example/other".to_owned())] {
            next.secrets[0].place = row;
            assert_eq!(opened(&keys, TENANT, &here, &next), is);
            let other = server(1, "https://a.example/other");
            assert_eq!(opened(&keys, TENANT, &other, &next), Credential::Locked);
        }
    }
}
