//! Separation of duties: an operator cannot decide about servers that the same person added (behaviour, section 3).

use super::Servers;
use crate::domain::id::KeyId;
use crate::domain::tenant::{Action, Role};
use crate::gateway::GatewayError;
use crate::gateway::tenants::Caller;
use crate::store::Server;

impl Servers {
    /// Returns whether a caller may release a server from quarantine and approve its definitions.
    pub fn may_approve(&self, caller: &Caller, server: &Server) -> bool {
        caller.role.may(Action::Approve) && forbid_own(caller, server).is_ok()
    }
}

/// Refuses an operator who is the person that added the server, or last moved it.
///
/// Compares with that person as recorded then and, while its key or a rotation of it lives, as known now: an owner may be named
/// later.
///
/// # Errors
/// [`GatewayError::Forbidden`], also if the person is unknown: then an admin has to decide.
pub(in crate::gateway) fn forbid_own(caller: &Caller, server: &Server) -> Result<(), GatewayError> {
    if caller.role != Role::Operator {
        return Ok(());
    }
    let then = server.adder();
    let root = then.as_ref().and_then(|adder| adder.root);
    let now = server.added_by.map(KeyId).map(|key| caller.persons_of(key, root.unwrap_or(key)));
    let mut adders = then.into_iter().chain(now.into_iter().flatten()).peekable();
    if adders.peek().is_none() {
        return Err(GatewayError::Forbidden(format!(
            "It is not known any more who added server '{}'. An admin has to decide.",
            server.name
        )));
    }
    // servers of the bootstrap key are the platform's: the operators that it appoints are there to decide about them
    match adders.any(|adder| adder.key.is_some() && adder.is_same_as(&caller.person)) {
        true => Err(own_approval(&server.name)),
        false => Ok(()),
    }
}

/// Returns the refusal of an operator's decision about its own server.
pub(super) fn own_approval(server: &str) -> GatewayError {
    GatewayError::Forbidden(format!(
        "Server '{server}' is of the person who holds this key: somebody else has to approve it."
    ))
}
