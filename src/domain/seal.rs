//! Envelopes for secrets: AES-256-GCM, bound to the place that a secret belongs to.
//!
//! Keys and nonces are parameters. An envelope is one byte of form, the nonce, the sealed text and its tag. It can be
//! opened only with its key and for the place that it was sealed for.

use std::fmt;

use ring::aead::{AES_256_GCM, Aad, LessSafeKey, Nonce, UnboundKey};
use ring::hmac;
use sha2::{Digest, Sha256};
use thiserror::Error;
use zeroize::{Zeroize, Zeroizing};

use super::id::{ServerId, TenantId};
use super::origin::Origin;
use super::server_url::ServerPlace;
use uuid::Uuid;

/// Length of a key, in bytes.
pub const KEY_BYTES: usize = 32;
/// Length of a nonce, in bytes. Each is used once per key; random ones suffice for the few secrets of a tenant.
pub const NONCE_BYTES: usize = 12;
/// First byte of an envelope: the only form so far.
const FORM: u8 = 1;
/// Bytes of a key's digest that make its id.
const ID_BYTES: usize = 8;

/// Error for an envelope that does not open: another key, another place, or altered bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("it does not open with this key in this place")]
pub struct Unopenable;

/// Encryption key, never shown, and wiped when it is dropped.
pub struct Key(Zeroizing<[u8; KEY_BYTES]>);

impl Key {
    /// Creates a key from its bytes.
    pub fn new(bytes: [u8; KEY_BYTES]) -> Key {
        Key(Zeroizing::new(bytes))
    }

    /// Reads a key that was an envelope's content; `None` if its length is wrong.
    pub fn read(bytes: &[u8]) -> Option<Key> {
        Some(Key(Zeroizing::new(bytes.try_into().ok()?)))
    }

    /// Returns the bytes, to seal them with another key.
    pub fn expose(&self) -> &[u8; KEY_BYTES] {
        &self.0
    }

    /// Returns a short id that reveals nothing about the key, but distinguishes it from others.
    pub fn id(&self) -> String {
        let digest = Sha256::new_with_prefix("mcpproxy key id v1\0").chain_update(*self.0).finalize();
        digest.iter().take(ID_BYTES).map(|byte| format!("{byte:02x}")).collect()
    }

    /// Derives a key for one purpose of a secret with several: the keys of different purposes are independent.
    pub fn of_secret(secret: &[u8], purpose: &[u8]) -> Key {
        mixed(secret, &[purpose])
    }

    /// Derives a key for one item, named by `token`. If the token is secret, opening the item takes both key and token.
    /// If each token seals one item only, no derived key seals twice.
    pub fn derive(&self, token: &[u8]) -> Key {
        mixed(self.0.as_slice(), &[b"mcpproxy token v1\0", token])
    }

    fn cipher(&self) -> Result<LessSafeKey, Unopenable> {
        UnboundKey::new(&AES_256_GCM, self.0.as_slice()).map(LessSafeKey::new).map_err(|_| Unopenable)
    }
}

/// Derives a key from a secret and public parts (HMAC-SHA-256).
fn mixed(secret: &[u8], parts: &[&[u8]]) -> Key {
    let mut context = hmac::Context::with_key(&hmac::Key::new(hmac::HMAC_SHA256, secret));
    parts.iter().for_each(|part| context.update(part));
    let mut bytes = [0; KEY_BYTES];
    bytes.copy_from_slice(context.sign().as_ref());
    let key = Key::new(bytes);
    bytes.zeroize();
    key
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("[redacted]")
    }
}

/// Place that an envelope belongs to; it cannot be opened for another one.
#[derive(Clone, Copy, Debug)]
pub enum Place<'a> {
    /// Canary of the deployment, which shows whether the master keys fit the database.
    Canary,
    /// Data key of a tenant.
    DataKey {
        /// Tenant of the data key.
        tenant: TenantId,
        /// Id of the data key.
        key: Uuid,
    },
    /// Secret that a server is called with, bound to its origin.
    ServerSecret {
        /// Tenant of the server.
        tenant: TenantId,
        /// Id of the server.
        server: ServerId,
        /// Origin that the secret was given for.
        origin: &'a Origin,
    },
    /// Headers of a server, bound to its whole place. Read by this release; the next one writes it.
    ServerSecretAt {
        /// Tenant of the server.
        tenant: TenantId,
        /// Id of the server.
        server: ServerId,
        /// Place that the headers were given for.
        place: &'a ServerPlace,
    },
    /// Client secret of the gateway at an authorization server, bound to the token endpoint.
    ServerOauth {
        /// Tenant of the server.
        tenant: TenantId,
        /// Id of the server.
        server: ServerId,
        /// URL of the token endpoint.
        endpoint: &'a str,
    },
    /// Token for a server, bound to the place of that server.
    ServerToken {
        /// Tenant of the server.
        tenant: TenantId,
        /// Id of the server.
        server: ServerId,
        /// Principal whose token it is; nil for the tenant's.
        principal: Uuid,
        /// Use of the token: `access` or `refresh`.
        part: &'a str,
        /// Generation of the login's configuration.
        client: Uuid,
        /// Place that the token is for.
        place: &'a str,
    },
    /// Part of a person's login at a server that is under way.
    ConnectFlow {
        /// Tenant of the server.
        tenant: TenantId,
        /// Id of the login.
        flow: Uuid,
        /// Content: `verifier` or `tokens`.
        part: &'a str,
    },
    /// Text that was cut off a result.
    CachedText {
        /// Tenant of the call.
        tenant: TenantId,
        /// API key of the call; nil for the bootstrap key.
        principal: Uuid,
        /// Hash of the cache key that the text is read with.
        hash: &'a [u8; 32],
    },
    /// Draft of a form of a web page.
    WebDraft {
        /// Tenant of the key.
        tenant: TenantId,
        /// API key of the draft; nil for the bootstrap key.
        principal: Uuid,
        /// Id of the form's server.
        server: ServerId,
        /// Digest of the form's page and selector.
        form: &'a [u8; 32],
    },
    /// Cookies that a key keeps at a server of web pages.
    WebCookies {
        /// Tenant of the key.
        tenant: TenantId,
        /// API key of the cookies; nil for the bootstrap key.
        principal: Uuid,
        /// Id of the server.
        server: ServerId,
    },
    /// Secret that signs a tenant's webhook, bound to its receiver.
    WebhookSecret {
        /// Tenant of the webhook.
        tenant: TenantId,
        /// URL of the receiver.
        url: &'a str,
    },
    /// ID token of a person's session at the console.
    WebSession {
        /// Tenant of the session.
        tenant: TenantId,
        /// SHA-256 of the cookie's secret.
        session: &'a [u8; 32],
    },
    /// Login by browser that is under way.
    WebLogin {
        /// SHA-256 of `state`.
        state: &'a [u8; 32],
    },
    /// Position of a stream of the activity log.
    OfStream {
        /// Tenant of the log.
        tenant: TenantId,
    },
    /// Request to a client, and the client's reply.
    ClientRequest {
        /// Tenant of the client.
        tenant: TenantId,
        /// API key of the client; nil for the bootstrap key.
        principal: Uuid,
        /// Digest of the client's session.
        session: &'a [u8; 32],
    },
    /// State that a request carries from one round to the next.
    RequestState {
        /// Tenant of the request.
        tenant: TenantId,
        /// API key of the request; nil for the bootstrap key.
        principal: Uuid,
        /// Digest of all else that the state is bound to.
        digest: &'a [u8; 32],
    },
}

impl Place<'_> {
    /// Returns the bytes that identify the place. Parts of fixed length come first, so that no two places have the same
    /// bytes.
    fn associated_data(self) -> Vec<u8> {
        let mut out = vec![FORM];
        match self {
            Place::Canary => out.extend(b"canary\0"),
            Place::DataKey { tenant, key } => {
                out.extend(b"data key\0");
                out.extend(tenant.0.as_bytes());
                out.extend(key.as_bytes());
            }
            Place::ServerSecret { tenant, server, origin } => {
                out.extend(b"server secret\0");
                out.extend(tenant.0.as_bytes());
                out.extend(server.0.as_bytes());
                out.extend(origin.to_string().as_bytes());
            }
            Place::ServerSecretAt { tenant, server, place } => {
                out.extend(b"server secret at place\0");
                out.extend(tenant.0.as_bytes());
                out.extend(server.0.as_bytes());
                out.extend(place.to_string().as_bytes());
            }
            Place::ServerOauth { tenant, server, endpoint } => {
                out.extend(b"server oauth\0");
                out.extend(tenant.0.as_bytes());
                out.extend(server.0.as_bytes());
                out.extend(endpoint.as_bytes());
            }
            Place::ServerToken { tenant, server, principal, part, client, place } => {
                out.extend(b"server token\0");
                out.extend(tenant.0.as_bytes());
                out.extend(server.0.as_bytes());
                out.extend(principal.as_bytes());
                out.extend(client.as_bytes());
                out.extend(part.as_bytes());
                out.extend(b"\0");
                out.extend(place.as_bytes());
            }
            Place::ConnectFlow { tenant, flow, part } => {
                out.extend(b"connect flow\0");
                out.extend(tenant.0.as_bytes());
                out.extend(flow.as_bytes());
                out.extend(part.as_bytes());
            }
            Place::WebSession { tenant, session } => {
                out.extend(b"web session\0");
                out.extend(tenant.0.as_bytes());
                out.extend(session);
            }
            Place::WebLogin { state } => {
                out.extend(b"web login\0");
                out.extend(state);
            }
            Place::CachedText { tenant, principal, hash } => {
                out.extend(b"cached text\0");
                out.extend(tenant.0.as_bytes());
                out.extend(principal.as_bytes());
                out.extend(hash);
            }
            Place::WebDraft { tenant, principal, server, form } => {
                out.extend(b"web draft\0");
                out.extend(tenant.0.as_bytes());
                out.extend(principal.as_bytes());
                out.extend(server.0.as_bytes());
                out.extend(form);
            }
            Place::WebCookies { tenant, principal, server } => {
                out.extend(b"web cookies\0");
                out.extend(tenant.0.as_bytes());
                out.extend(principal.as_bytes());
                out.extend(server.0.as_bytes());
            }
            Place::WebhookSecret { tenant, url } => {
                out.extend(b"webhook secret\0");
                out.extend(tenant.0.as_bytes());
                out.extend(url.as_bytes());
            }
            Place::OfStream { tenant } => {
                out.extend(b"place of a stream\0");
                out.extend(tenant.0.as_bytes());
            }
            Place::ClientRequest { tenant, principal, session } => {
                out.extend(b"client request\0");
                out.extend(tenant.0.as_bytes());
                out.extend(principal.as_bytes());
                out.extend(session);
            }
            Place::RequestState { tenant, principal, digest } => {
                out.extend(b"request state\0");
                out.extend(tenant.0.as_bytes());
                out.extend(principal.as_bytes());
                out.extend(digest);
            }
        }
        out
    }
}

/// Seals `text` for a place, and returns the envelope. The nonce must not have been used with this key before.
///
/// # Errors
/// [`Unopenable`] when the text is longer than the cipher takes (64 GiB).
pub fn seal(
    key: &Key,
    nonce: [u8; NONCE_BYTES],
    place: Place<'_>,
    text: &[u8],
) -> Result<Vec<u8>, Unopenable> {
    let mut sealed = Vec::with_capacity(1 + NONCE_BYTES + text.len() + AES_256_GCM.tag_len());
    sealed.push(FORM);
    sealed.extend(nonce);
    // a buffer large enough for the tag: growing would leave a copy of the text behind
    let mut body = Vec::with_capacity(text.len() + AES_256_GCM.tag_len());
    body.extend(text);
    let aad = Aad::from(place.associated_data());
    let done = key.cipher()?.seal_in_place_append_tag(Nonce::assume_unique_for_key(nonce), aad, &mut body);
    if done.is_err() {
        body.zeroize();
        return Err(Unopenable);
    }
    sealed.extend(body);
    Ok(sealed)
}

/// Opens an envelope for its place, and returns the text.
///
/// # Errors
/// [`Unopenable`] when the bytes are not exactly what [`seal`] made with this key for this place.
pub fn open(key: &Key, place: Place<'_>, sealed: &[u8]) -> Result<Zeroizing<Vec<u8>>, Unopenable> {
    let (&form, rest) = sealed.split_first().ok_or(Unopenable)?;
    let (nonce, body) = rest.split_first_chunk::<NONCE_BYTES>().ok_or(Unopenable)?;
    if form != FORM {
        return Err(Unopenable);
    }
    let mut body = Zeroizing::new(body.to_vec());
    let nonce = Nonce::assume_unique_for_key(*nonce);
    let aad = Aad::from(place.associated_data());
    let length = key.cipher()?.open_in_place(nonce, aad, &mut body).map_err(|_| Unopenable)?.len();
    body.truncate(length);
    Ok(body)
}

/// Master keys of the deployment: the first seals, all open.
#[derive(Debug)]
pub struct Keyring {
    first: (String, Key),
    others: Vec<(String, Key)>,
}

impl Keyring {
    /// Creates a keyring from the keys in their order; `None` without any.
    pub fn new(keys: impl IntoIterator<Item = Key>) -> Option<Keyring> {
        let mut keys = keys.into_iter().map(|key| (key.id(), key));
        Some(Keyring { first: keys.next()?, others: keys.collect() })
    }

    /// Returns the key that seals, with its id.
    pub fn first(&self) -> (&str, &Key) {
        (&self.first.0, &self.first.1)
    }

    /// Returns the key with this id.
    pub fn find(&self, id: &str) -> Option<&Key> {
        self.all().find(|(known, _)| known == id).map(|(_, key)| key)
    }

    /// Returns all ids, that of the sealing key first.
    pub fn ids(&self) -> Vec<&str> {
        self.all().map(|(id, _)| id.as_str()).collect()
    }

    fn all(&self) -> impl Iterator<Item = &(String, Key)> {
        std::iter::once(&self.first).chain(&self.others)
    }
}

#[cfg(test)]
mod tests;
