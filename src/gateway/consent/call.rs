//! The call that a permission is about.

use super::Consent;
use crate::domain::consent::{ConsentSubject, DIGEST_BYTES};
use crate::domain::operation::Variant;
use crate::gateway::catalog::Tool;
use crate::gateway::log::Attempt;

/// Call that a permission is about.
#[derive(Clone, Copy, Debug)]
pub(in crate::gateway) struct ConsentCall<'a> {
    pub(in crate::gateway) tool: &'a Tool,
    pub(in crate::gateway) variant: Variant,
    /// The arguments object.
    pub(in crate::gateway) arguments: &'a str,
}

impl ConsentCall<'_> {
    pub(super) fn pin(&self) -> &str {
        self.tool.shape.pin()
    }

    /// Returns server and tool, under their own names.
    pub(super) fn names(&self) -> (&str, &str) {
        (&self.tool.server.name, &self.tool.name)
    }
}

impl Consent {
    /// Returns the keyed digests of a call; long arguments take their tenant's turn for long work.
    pub(super) async fn digests(&self, attempt: &Attempt, call: &ConsentCall<'_>) -> Vec<[u8; DIGEST_BYTES]> {
        let tenant = attempt.caller.tenant_id();
        let origin = call.tool.server.target.upstream.binding();
        let subject = ConsentSubject {
            tenant,
            server: call.tool.server.id,
            origin: &origin,
            tool: &call.tool.name,
            variant: call.variant.as_str(),
            arguments: call.arguments,
        };
        let digests = || self.options.consent_keys.iter().map(|key| subject.digest(key)).collect();
        self.upstreams.aside(tenant.0, call.arguments.len(), digests).await
    }
}
