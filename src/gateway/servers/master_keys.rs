//! Check of the master keys at start, and their rotation.

use thiserror::Error;
use uuid::Uuid;

use super::Servers;
use crate::domain::id::TenantId;
use crate::domain::seal::{self, Keyring, Place};
use crate::gateway::credentials::{random, unwrap, wrap};
use crate::store::{Canary, DataKey, StoreError};

/// Plain text of every canary.
const CANARY: &[u8] = b"mcpproxy";
/// Data keys rewrapped per page.
const REWRAP_PAGE: i64 = 500;

/// Reason why the gateway must not start with these master keys.
#[derive(Debug, Error)]
pub enum MasterKeysError {
    /// The keys are another deployment's, or the old key is missing from the list.
    #[error(
        "secrets.master_key is not the key that this database's credentials are sealed with: give the key used \
         before (to replace it, the new one first and the old one behind it), then start again; the database knows \
         keys with the ids {known}, given were {given}"
    )]
    Wrong {
        /// Ids of the master keys that the canaries in the database name.
        known: String,
        /// Ids of the master keys in the configuration.
        given: String,
    },
    /// The system gave no random bytes, or the cipher failed.
    #[error("secrets.master_key could not be used: the system gave no randomness")]
    Unusable,
    /// The database failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl Servers {
    /// Checks before the start that the master keys are this deployment's: one of them must open a canary, which the first
    /// start creates. Then rewraps data keys of older master keys with the first one.
    ///
    /// # Errors
    /// [`MasterKeysError`]; the gateway must not start.
    pub async fn settle_master_keys(&self) -> Result<(), MasterKeysError> {
        let keyring = &self.options.keyring;
        self.store.settle_canary(&keyring.ids(), |found| next_canary(keyring, found)).await?;
        self.rewrap_data_keys().await?;
        let (keys, wrapped_by) = self.store.data_keys_out_of_reach(&keyring.ids()).await?;
        if keys > 0 {
            tracing::warn!(
                keys,
                wrapped_by = wrapped_by.join(", "),
                "no key of secrets.master_key opens some data keys: servers with credentials sealed by them are unavailable"
            );
        }
        Ok(())
    }

    /// Wraps for the first master key all data keys that only older ones wrap, and removes wrappings by former keys that are
    /// no longer configured. Idempotent; replicas may run it at the same time.
    pub(in crate::gateway) async fn rewrap_data_keys(&self) -> Result<(), StoreError> {
        let keyring = &self.options.keyring;
        let known = keyring.ids();
        let mut after = (TenantId(Uuid::nil()), DataKey::default());
        loop {
            let page = self.store.data_keys_to_rewrap(&known, &after, REWRAP_PAGE).await?;
            let Some(last) = page.last() else { break };
            after = last.clone();
            let rewrapped: Vec<_> = page.iter().filter_map(|row| rewrap(keyring, row)).collect();
            self.store.add_wrappings(&rewrapped).await?;
            tracing::info!(keys = rewrapped.len(), "data keys were wrapped with the first master key");
        }
        let forgotten = self.store.forget_wrappings(&known).await?;
        if forgotten > 0 {
            tracing::info!(keys = forgotten, "wrappings by former master keys were removed");
        }
        Ok(())
    }
}

/// Returns the canary to add; `None` if the first key has one. Fails if no key opens a known canary.
fn next_canary(keyring: &Keyring, found: &[Canary]) -> Result<Option<Canary>, MasterKeysError> {
    let opens = |canary: &Canary| {
        let key = keyring.find(&canary.master_id)?;
        seal::open(key, Place::Canary, &canary.sealed).ok().filter(|text| text.as_slice() == CANARY)
    };
    if !found.is_empty() && !found.iter().any(|canary| opens(canary).is_some()) {
        let known: Vec<&str> = found.iter().map(|canary| canary.master_id.as_str()).collect();
        return Err(MasterKeysError::Wrong { known: known.join(", "), given: keyring.ids().join(", ") });
    }
    let (id, key) = keyring.first();
    if found.iter().any(|canary| canary.master_id == id) {
        return Ok(None);
    }
    let nonce = random().map_err(|_| MasterKeysError::Unusable)?;
    let sealed = seal::seal(key, nonce, Place::Canary, CANARY).map_err(|_| MasterKeysError::Unusable)?;
    Ok(Some(Canary { master_id: id.to_owned(), sealed }))
}

fn rewrap(keyring: &Keyring, (tenant, row): &(TenantId, DataKey)) -> Option<(TenantId, DataKey)> {
    let Some(key) = unwrap(keyring, *tenant, row) else {
        tracing::error!(%tenant, "a data key does not open with the master key that its row names");
        return None;
    };
    wrap(keyring, *tenant, row.key_id, &key).ok().map(|wrapped| (*tenant, wrapped))
}

#[cfg(test)]
mod tests {
    use std::slice::from_ref;

    use super::*;
    use crate::domain::seal::Key;

    fn keyring(keys: &[u8]) -> Keyring {
        Keyring::new(keys.iter().map(|byte| Key::new([*byte; 32]))).unwrap()
    }

    #[test]
    fn the_canary_is_made_once_and_for_each_first_key() {
        let first = next_canary(&keyring(&[1]), &[]).unwrap().unwrap();
        assert!(next_canary(&keyring(&[1]), from_ref(&first)).unwrap().is_none());
        assert!(next_canary(&keyring(&[1, 2]), from_ref(&first)).unwrap().is_none());
        let second = next_canary(&keyring(&[2, 1]), from_ref(&first)).unwrap().unwrap();
        let wrong = next_canary(&keyring(&[2]), from_ref(&first)).unwrap_err();
        assert!(wrong.to_string().contains(&first.master_id), "{wrong}");
        let forged = Canary { master_id: second.master_id.clone(), sealed: first.sealed.clone() };
        assert!(next_canary(&keyring(&[2]), &[forged]).is_err());
        assert!(next_canary(&keyring(&[2]), &[first, second]).unwrap().is_none());
    }
}
