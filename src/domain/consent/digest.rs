//! Keyed digest of the call that a permission request is about.

use crate::domain::canonical::canonical;
use crate::domain::id::{ServerId, TenantId};
use crate::domain::seal::Key;

/// Length of a digest, in bytes.
pub const DIGEST_BYTES: usize = 32;

/// Call that a permission request is about, besides its principal and the pin of the definition.
#[derive(Clone, Copy, Debug)]
pub struct ConsentSubject<'a> {
    /// Tenant of the call.
    pub tenant: TenantId,
    /// Server that the call goes to.
    pub server: ServerId,
    /// Origin of that server.
    pub origin: &'a str,
    /// The tool's own name.
    pub tool: &'a str,
    /// Tool variant.
    pub variant: &'a str,
    /// Arguments, a JSON object in any spelling.
    pub arguments: &'a str,
}

impl ConsentSubject<'_> {
    /// Returns the keyed digest of the call. Without the key, not even a small set of possible arguments can be tried.
    pub fn digest(&self, key: &Key) -> [u8; DIGEST_BYTES] {
        // white space and the order of members make no difference
        let arguments = canonical(self.arguments).unwrap_or_else(|_| self.arguments.to_owned());
        let mut text = self.server.0.as_bytes().to_vec();
        for field in [self.origin, self.tool, self.variant, &arguments] {
            // the length first, so that different fields never make the same bytes
            text.extend((field.len() as u64).to_le_bytes());
            text.extend(field.as_bytes());
        }
        *key.derive(self.tenant.0.as_bytes()).derive(&text).expose()
    }
}
