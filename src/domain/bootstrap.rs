//! Key of the platform operator, by its digests.

use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;

/// Bootstrap key: digests of the texts that are accepted as the key, and the name by which records know it.
#[derive(Clone, Debug)]
pub struct BootstrapKey {
    name: Option<String>,
    digests: Vec<[u8; 32]>,
}

impl BootstrapKey {
    /// Creates the key of a setting's whole text. For one of the form `name:secret`, `named` is its two parts. The whole text
    /// is accepted as well, so that a key which only looks like that locks nobody out.
    pub fn new(text: &str, named: Option<(&str, &str)>) -> BootstrapKey {
        let mut digests = vec![digest(text)];
        digests.extend(named.map(|(_, secret)| digest(secret)));
        BootstrapKey { name: named.map(|(name, _)| name.to_owned()), digests }
    }

    /// Returns the name of the key; `None` without one.
    pub fn name(&self) -> Option<&str> {
        self.name.as_deref()
    }

    /// Returns whether `hash` is the SHA-256 of an accepted text, in constant time.
    pub fn is(&self, hash: &[u8; 32]) -> bool {
        let found = self.digests.iter().map(|known| hash.ct_eq(known));
        found.fold(subtle::Choice::from(0), |any, one| any | one).into()
    }

    /// Returns whether `proof` is what `prove` makes of the SHA-256 of an accepted text, in constant time.
    pub fn is_proved(&self, proof: &[u8], prove: impl Fn(&[u8; 32]) -> [u8; 32]) -> bool {
        let found = self.digests.iter().map(|known| prove(known).ct_eq(proof));
        found.fold(subtle::Choice::from(0), |any, one| any | one).into()
    }
}

fn digest(text: &str) -> [u8; 32] {
    Sha256::digest(text.as_bytes()).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_named_key_is_its_secret_and_its_whole_text() {
        let key = BootstrapKey::new("ops:secret", Some(("ops", "secret")));
        for (text, is_it) in [("secret", true), ("ops:secret", true), ("ops", false), ("", false)] {
            assert_eq!(key.is(&digest(text)), is_it, "{text}");
        }
        assert_eq!(key.name(), Some("ops"));
        let plain = BootstrapKey::new("ops:secret", None);
        assert!(plain.is(&digest("ops:secret")) && !plain.is(&digest("secret")));
        assert_eq!(plain.name(), None);
    }
}
