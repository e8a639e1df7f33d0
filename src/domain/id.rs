//! Identifiers, each of its own type: a tenant's cannot be passed where a server's is meant.

use std::fmt;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

macro_rules! id {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(pub Uuid);

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }
    };
}

id!(
    /// Id of a tenant. Keys, servers and records belong to exactly one tenant.
    TenantId
);
id!(
    /// Id of an API key, which is not its secret.
    KeyId
);
id!(
    /// Id of an identity: a person at an identity provider, or one whom an administrator knows under it.
    IdentityId
);
id!(
    /// Id of an issuer of tokens: an identity provider's entry.
    IssuerId
);
id!(
    /// Id of an upstream server. A server that is removed and added again under its name gets a new id.
    ServerId
);
id!(
    /// Id of a replica: one run of one gateway process, drawn at its start.
    ReplicaId
);

impl KeyId {
    /// Returns the id under which a person is a principal: in the place of an API key's, wherever limits, sessions, caches and
    /// grants belong to whoever calls. Ids of identities are UUIDv8, those of keys UUIDv7, so that the two cannot be equal.
    pub fn of_identity(identity: IdentityId) -> KeyId {
        KeyId(identity.0)
    }

    /// Returns the identity of a principal that is a person; `None` for an API key.
    pub fn identity(self) -> Option<IdentityId> {
        (self.0.get_version_num() == 8).then_some(IdentityId(self.0))
    }
}

impl TenantId {
    /// Id of the reserved tenant `platform`, under which actions of the platform itself are recorded.
    pub const PLATFORM: TenantId = TenantId(Uuid::nil());
}

/// Name of the reserved tenant.
pub const PLATFORM_TENANT: &str = "platform";

/// Longest tool name accepted from an upstream or a caller, in bytes.
pub const TOOL_NAME_BYTES_MAX: usize = 256;

/// An upstream server's name: `[a-z0-9]([a-z0-9-]{0,30}[a-z0-9])?` without `--` (behaviour, section 2).
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(transparent)]
pub struct ServerName(String);

impl ServerName {
    /// Parses a name; `None` when the text does not follow the rule.
    pub fn parse(text: &str) -> Option<ServerName> {
        is_name(text).then(|| ServerName(text.to_owned()))
    }

    /// Returns the name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for ServerName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Returns whether a text is a valid server or tenant name.
pub fn is_name(text: &str) -> bool {
    let bytes = text.as_bytes();
    let inner = |b: &u8| b.is_ascii_lowercase() || b.is_ascii_digit() || *b == b'-';
    (1..=32).contains(&bytes.len())
        && bytes.iter().all(inner)
        && !text.starts_with('-')
        && !text.ends_with('-')
        && !text.contains("--")
}

/// Returns whether a text can be the name of a tool at its server.
pub fn is_tool_name(text: &str) -> bool {
    !text.is_empty() && text.len() <= TOOL_NAME_BYTES_MAX && !text.contains('\0')
}

/// Splits `server:tool` at the first colon; `None` when either part cannot be a name.
pub fn split_canonical(name: &str) -> Option<(&str, &str)> {
    let (server, tool) = name.split_once(':')?;
    (is_name(server) && !tool.is_empty() && tool.len() <= TOOL_NAME_BYTES_MAX).then_some((server, tool))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_follow_the_rule() {
        for good in ["a", "a1", "a-b", "github", "x".repeat(32).as_str()] {
            assert!(is_name(good), "{good}");
        }
        for bad in ["", "-a", "a-", "a--b", "A", "a_b", "a:b", "x".repeat(33).as_str(), "é"] {
            assert!(!is_name(bad), "{bad}");
        }
    }

    #[test]
    fn tools_may_have_almost_any_name() {
        assert!(is_tool_name("a/b:c"));
        for bad in ["", "a\0", "x".repeat(TOOL_NAME_BYTES_MAX + 1).as_str()] {
            assert!(!is_tool_name(bad), "{bad:?}");
        }
    }

    #[test]
    fn the_first_colon_splits() {
        assert_eq!(split_canonical("gh:a:b"), Some(("gh", "a:b")));
        for bad in ["gh", "gh:", ":x", "Gh:x", ""] {
            assert_eq!(split_canonical(bad), None, "{bad}");
        }
    }
}
