//! Fingerprints: short hashes that tell whether two lists are the same.

use std::fmt;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use sha2::{Digest, Sha256};

/// Length of a fingerprint, in bytes.
const BYTES: usize = 12;

/// Hash of a list or text. Equal fingerprints mean equal contents.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Fingerprint([u8; BYTES]);

impl Fingerprint {
    /// Returns the fingerprint of one text.
    pub fn of(text: &str) -> Fingerprint {
        let mut making = Fingerprinting::default();
        making.field(text);
        making.finish()
    }
}

impl fmt::Display for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&URL_SAFE_NO_PAD.encode(self.0))
    }
}

impl fmt::Debug for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Fingerprint({self})")
    }
}

/// Builder of a fingerprint, field by field.
#[derive(Default)]
pub struct Fingerprinting(Sha256);

impl Fingerprinting {
    /// Adds a field. Its length goes first, so that different sequences of fields never hash the same bytes.
    pub fn field(&mut self, text: &str) {
        self.0.update((text.len() as u64).to_le_bytes());
        self.0.update(text);
    }

    /// Adds the content that another fingerprint stands for.
    pub fn print(&mut self, print: Fingerprint) {
        self.0.update(print.0);
    }

    /// Adds a field that may be absent, which is not the same as empty.
    pub fn optional(&mut self, text: Option<&str>) {
        self.0.update([u8::from(text.is_some())]);
        self.field(text.unwrap_or_default());
    }

    /// Returns the fingerprint of all that was added.
    pub fn finish(self) -> Fingerprint {
        let digest = self.0.finalize();
        let mut bytes = [0; BYTES];
        bytes.iter_mut().zip(digest.iter()).for_each(|(to, from)| *to = *from);
        Fingerprint(bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(fields: &[Option<&str>]) -> Fingerprint {
        let mut making = Fingerprinting::default();
        fields.iter().for_each(|field| making.optional(*field));
        making.finish()
    }

    #[test]
    fn equal_fields_and_no_others_have_equal_prints() {
        let all: [&[Option<&str>]; 8] = [
            &[],
            &[None],
            &[Some("")],
            &[Some("ab")],
            &[Some("a"), Some("b")],
            &[Some("b"), Some("a")],
            &[Some(""), Some("ab")],
            &[Some("ab"), None],
        ];
        for (at, one) in all.iter().enumerate() {
            for (other_at, other) in all.iter().enumerate() {
                assert_eq!(of(one) == of(other), at == other_at, "{one:?} {other:?}");
            }
        }
        assert_eq!(of(&[Some("a")]).to_string().len(), 16);
    }
}
