//! `state` of a person's login at a server: it leads the browser's return to its tenant, and proves that the login was begun here.

use std::fmt;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use sha2::{Digest, Sha256};
use uuid::Uuid;
use zeroize::Zeroizing;

/// Bytes of a state: the ids of tenant and login, and 256 random bits.
const BYTES: usize = 16 + 16 + 32;
/// Characters of a state.
const CHARS: usize = 86;

/// State of a login that was begun. Only its hash is stored.
pub struct FlowState(Zeroizing<[u8; BYTES]>);

impl FlowState {
    /// Creates the state of a login from random bytes.
    pub fn new(tenant: Uuid, flow: Uuid, random: [u8; 32]) -> FlowState {
        let mut bytes = Zeroizing::new([0; BYTES]);
        let parts = tenant.as_bytes().iter().chain(flow.as_bytes()).chain(&random);
        bytes.iter_mut().zip(parts).for_each(|(byte, part)| *byte = *part);
        FlowState(bytes)
    }

    /// Reads a state; `None` for any text that [`FlowState::text`] does not make.
    pub fn read(text: &str) -> Option<FlowState> {
        if text.len() != CHARS {
            return None;
        }
        let bytes = Zeroizing::new(URL_SAFE_NO_PAD.decode(text).ok()?);
        Some(FlowState(Zeroizing::new(bytes.as_slice().try_into().ok()?)))
    }

    /// Returns the state as it goes to the authorization server and comes back.
    pub fn text(&self) -> Zeroizing<String> {
        Zeroizing::new(URL_SAFE_NO_PAD.encode(self.0.as_slice()))
    }

    /// Returns the SHA-256 under which the state is stored.
    pub fn hash(&self) -> [u8; 32] {
        Sha256::digest(self.0.as_slice()).into()
    }

    /// Returns the tenant and the login that the state names.
    pub fn names(&self) -> (Uuid, Uuid) {
        let id = |from: usize| {
            let bytes = self.0.get(from..from + 16).and_then(|bytes| bytes.try_into().ok());
            Uuid::from_bytes(bytes.unwrap_or_default())
        };
        (id(0), id(16))
    }
}

impl fmt::Debug for FlowState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FlowState").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_state_names_its_tenant_and_login() {
        let (tenant, flow) = (Uuid::from_u128(7), Uuid::from_u128(9));
        let state = FlowState::new(tenant, flow, [3; 32]);
        let read = FlowState::read(&state.text()).unwrap();
        assert_eq!((read.names(), read.hash()), ((tenant, flow), state.hash()));
        assert_ne!(FlowState::new(tenant, flow, [4; 32]).hash(), state.hash());
        assert!(!format!("{state:?}").contains(&*state.text()));
        for bad in ["", "x", &"A".repeat(CHARS + 1), &"=".repeat(CHARS)] {
            assert!(FlowState::read(bad).is_none(), "{bad}");
        }
    }
}
