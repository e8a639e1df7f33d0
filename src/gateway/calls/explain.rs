//! Explanation of policies: the decision about a call that is not made, with every step that leads to it.

use std::sync::Arc;

use super::Calls;
use super::pipeline::policy::{PolicySubject, PolicyVerdict};
use crate::domain::id::KeyId;
use crate::domain::operation::Variant;
use crate::domain::policy::{Entrance, TraceStep};
use crate::domain::tenant::Action;
use crate::domain::validation::{self, Verdict};
use crate::gateway::catalog::{Tool, sees};
use crate::gateway::clock;
use crate::gateway::error::GatewayError;
use crate::gateway::tenants::Caller;

/// Call to be explained.
#[derive(Clone, Debug)]
pub struct ExplainRequest {
    /// Canonical name of the tool.
    pub tool: String,
    /// Arguments, a JSON object.
    pub arguments: String,
    /// Variant of the call; `None` for the one that the tool recommends.
    pub variant: Option<Variant>,
    /// Key that calls; `None` for one without settings and policy of its own.
    pub key: Option<KeyId>,
    /// Way by which the call comes in.
    pub entrance: Entrance,
}

/// Decision about a call that is not made.
#[derive(Debug)]
pub struct Explained {
    /// Decision, with the risk.
    pub verdict: PolicyVerdict,
    /// Steps that lead to it, in order.
    pub trace: Vec<TraceStep>,
}

impl Calls {
    /// Explains what the policies say of a call. Nothing is run.
    ///
    /// # Errors
    /// [`GatewayError::Forbidden`] for the role, [`GatewayError::NotFound`] for the tool or the key, [`GatewayError::Invalid`]
    /// without a tenant.
    pub async fn explain(
        &self,
        caller: &Caller,
        request: &ExplainRequest,
    ) -> Result<Explained, GatewayError> {
        caller.authorise(Action::SeePolicies)?;
        let calling = self.tenants.stand_in(caller, request.key)?;
        let catalogue = caller.catalogue();
        let tool = catalogue.as_ref().and_then(|catalogue| catalogue.tool(&request.tool));
        let tool = tool.ok_or(GatewayError::NotFound("tool"))?;
        let explain = || self.explain_call(&calling, tool, request);
        Ok(self.upstreams.in_turn(caller.tenant_id().0, explain).await)
    }

    fn explain_call(&self, calling: &Caller, tool: &Arc<Tool>, request: &ExplainRequest) -> Explained {
        let settings = &calling.settings;
        // also of a tool that the key does not see: the question is what the rules say
        let tier = sees(settings, tool).unwrap_or_else(|| tool.tier(settings.unannotated_tools));
        let variant = request.variant.unwrap_or(tier.call_with());
        let checked = validation::validate(
            &tool.canonical,
            variant,
            tool.shape.annotations,
            settings.unannotated_tools,
            settings.strictness(),
        );
        let subject = PolicySubject {
            tool,
            tier,
            operation: variant.operation(),
            is_mismatched: !settings.strict && !matches!(checked, Verdict::Allow),
            sensitivity: None,
            arguments: &request.arguments,
            entrance: request.entrance,
            at: clock::now(),
        };
        let (verdict, trace) = self.explain_steps(calling, &subject);
        Explained { verdict, trace }
    }
}
