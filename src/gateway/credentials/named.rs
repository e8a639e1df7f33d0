//! Secrets with names, as given by an administrator: headers of requests, and secrets for fields of web pages.

use std::fmt;
use std::marker::PhantomData;

use serde_json::{Map, Value};
use zeroize::Zeroizing;

use crate::domain::redact;
use crate::gateway::GatewayError;

/// Most secrets of one server.
pub(super) const SECRETS_MAX: usize = 32;
/// Most bytes of all names and secrets of one server.
pub(super) const BYTES_MAX: usize = 8 * 1024;
/// Longest part of a name that an error repeats, in characters.
const NAME_SHOWN_CHARS_MAX: usize = 64;
/// Most bytes of a byte in JSON: an escape.
const ESCAPE_BYTES: usize = 6;

/// Rules for the names and values of one kind of secrets.
pub trait SecretKind {
    /// Member of requests that has the secrets.
    const MEMBER: &'static str;

    /// Checks a name. One that may be a secret in the wrong place is not repeated.
    ///
    /// # Errors
    /// [`GatewayError::Invalid`] with the member.
    fn check_name(name: &str) -> Result<(), GatewayError>;

    /// Checks a value that is not empty; the error says what is wrong with it, without the value.
    ///
    /// # Errors
    /// The rule that the value breaks.
    fn check_value(value: &str) -> Result<(), &'static str>;

    /// Returns whether two different names mean the same.
    fn is_same(name: &str, other: &str) -> bool;
}

/// Names as given, with their secrets. Only the names are ever shown.
#[derive(Clone)]
pub struct NamedSecrets<K> {
    pairs: Vec<(String, Zeroizing<String>)>,
    kind: PhantomData<fn() -> K>,
}

impl<K> Default for NamedSecrets<K> {
    fn default() -> NamedSecrets<K> {
        NamedSecrets { pairs: Vec::new(), kind: PhantomData }
    }
}

impl<K> fmt::Debug for NamedSecrets<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.names()).finish()
    }
}

impl<K> NamedSecrets<K> {
    /// Returns whether there are none.
    pub(in crate::gateway) fn is_empty(&self) -> bool {
        self.pairs.is_empty()
    }

    /// Returns the names, which may be shown.
    pub(in crate::gateway) fn names(&self) -> Vec<String> {
        self.pairs.iter().map(|(name, _)| name.clone()).collect()
    }

    /// Returns the text to seal: a JSON list of pairs. `None` if it cannot be written.
    pub(in crate::gateway) fn to_sealable(&self) -> Option<Zeroizing<Vec<u8>>> {
        let pairs: Vec<(&str, &str)> =
            self.pairs.iter().map(|(name, value)| (&**name, value.as_str())).collect();
        // growing would leave copies in memory
        let mut text = Zeroizing::new(Vec::with_capacity(ESCAPE_BYTES * BYTES_MAX + 8 * SECRETS_MAX));
        serde_json::to_writer(&mut *text, &pairs).ok()?;
        Some(text)
    }
}

impl<K: SecretKind> NamedSecrets<K> {
    /// Reads secrets from an object of names and values.
    ///
    /// # Errors
    /// [`GatewayError::Invalid`] with the member and name, for too many, malformed or empty ones; secrets are never repeated
    /// in it.
    pub fn read(given: Map<String, Value>) -> Result<NamedSecrets<K>, GatewayError> {
        let of_all = |message: String| GatewayError::invalid(K::MEMBER, format!("{}{message}", K::MEMBER));
        if given.len() > SECRETS_MAX {
            return Err(of_all(format!(" may be at most {SECRETS_MAX}")));
        }
        let mut pairs: Vec<(String, Zeroizing<String>)> = Vec::with_capacity(given.len());
        let mut bytes = 0;
        for (name, value) in given {
            K::check_name(&name)?;
            if pairs.iter().any(|(known, _)| K::is_same(known, &name)) {
                return Err(about::<K>(&name, "is there twice: case makes no difference"));
            }
            let Value::String(value) = value else { return Err(about::<K>(&name, "must be a string")) };
            let value = Zeroizing::new(value);
            if value.is_empty() {
                return Err(about::<K>(&name, "must not be empty"));
            }
            if value.contains(redact::MASK) {
                return Err(about::<K>(&name, "has the mask of a secret in it: give the secret itself"));
            }
            K::check_value(&value).map_err(|what| about::<K>(&name, what))?;
            bytes += name.len() + value.len();
            pairs.push((name, value));
        }
        if bytes > BYTES_MAX {
            return Err(of_all(format!(": names and values may have at most {BYTES_MAX} bytes together")));
        }
        Ok(NamedSecrets { pairs, kind: PhantomData })
    }
}

/// Parses the sealed text.
pub(super) fn from_sealable(text: &[u8]) -> Option<Vec<(String, Zeroizing<String>)>> {
    serde_json::from_slice(text).ok()
}

/// Returns the error about one secret, by its name.
pub(super) fn about<K: SecretKind>(name: &str, what: &str) -> GatewayError {
    let shown: String = name.chars().take(NAME_SHOWN_CHARS_MAX).collect();
    let path = format!("{}.{shown}", K::MEMBER);
    GatewayError::invalid(path.clone(), format!("{path} {what}"))
}
