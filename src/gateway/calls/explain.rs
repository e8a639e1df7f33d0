//! Explanation of policies: the decision about a call that is not made, with every step that leads to it.

use std::sync::Arc;

use super::Calls;
use super::pipeline::policy::{PolicySubject, PolicyVerdict};
use crate::domain::id::KeyId;
use crate::domain::near;
use crate::domain::operation::Variant;
use crate::domain::policy::{Entrance, PolicyLayer, PolicyMode, Ruling, TraceStep};
use crate::domain::refusal::{Code, Refusal};
use crate::domain::risk::Sensitivity;
use crate::domain::settings::Effective;
use crate::domain::tenant::Action;
use crate::domain::validation::{self, Verdict};
use crate::gateway::catalog::{Tool, sees};
use crate::gateway::clock;
use crate::gateway::consent::ConsentView;
use crate::gateway::error::GatewayError;
use crate::gateway::tenants::Caller;

/// Arguments of a call whose own are not known.
pub(super) const NO_ARGUMENTS: &str = "{}";
/// Longest part of an unknown name that an error repeats, in characters.
const TOOL_SHOWN_CHARS_MAX: usize = 80;

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
    /// Value of `policy_mode` that holds for the key that calls.
    pub mode: PolicyMode,
}

impl Calls {
    /// Explains what the policies say of a call. Nothing is run.
    ///
    /// # Errors
    /// [`GatewayError::Forbidden`] for the role, [`GatewayError::Refused`] for an unknown tool, [`GatewayError::NotFound`] for
    /// the key, [`GatewayError::Invalid`] without a tenant.
    pub async fn explain(
        &self,
        caller: &Caller,
        request: &ExplainRequest,
    ) -> Result<Explained, GatewayError> {
        caller.authorise(Action::SeePolicies)?;
        let calling = self.tenants.stand_in(caller, request.key)?;
        let catalogue = caller.catalogue();
        let explain = || match catalogue.as_ref().and_then(|catalogue| catalogue.tool(&request.tool)) {
            Some(tool) => Ok(self.explain_call(&calling, tool, request)),
            None => {
                let known: Vec<&str> =
                    catalogue.iter().flat_map(|catalogue| catalogue.tool_names()).collect();
                let refusal = Refusal::new(Code::NotFound, unknown_tool(&request.tool, &known));
                Err(GatewayError::Refused(Box::new(refusal)))
            }
        };
        self.upstreams.in_turn(caller.tenant_id().0, explain).await
    }

    /// Returns the layer that refuses the call of a permission request now, whatever its arguments, what it declares of its data, and the way
    /// by which it comes in: no answer lets the call run then. `None` if none does, and where that is not known, as of a tool that is gone.
    pub fn refused_now(&self, caller: &Caller, asked: &ConsentView) -> Option<PolicyLayer> {
        let row = &asked.row;
        let calling = self.tenants.stand_in(caller, asked.key()).ok()?;
        let (settings, operation) = (&calling.settings, row.operation_type.known()?);
        let catalogue = caller.catalogue()?;
        let tool = catalogue.tool(&format!("{}:{}", row.server, row.tool))?;
        let mut refused = None;
        for (entrance, sensitivity) in
            Entrance::ALL.into_iter().flat_map(|entrance| Sensitivity::ALL.map(|of| (entrance, of)))
        {
            let subject = PolicySubject {
                tool,
                page: tool.shape.page.as_deref(),
                tier: tool.tier(settings.unannotated_tools),
                operation,
                is_mismatched: is_mismatched(settings, tool, operation.variant()),
                sensitivity: Some(sensitivity),
                arguments: NO_ARGUMENTS,
                entrance,
                at: clock::now(),
            };
            // the risk is that of the call with its arguments
            let (decided, ..) =
                self.weigh(&calling, &subject, Some(asked.risk), |layers, call| layers.evaluate_past(call));
            if decided.ruling != Some(Ruling::Denied) {
                return None;
            }
            refused = Some(decided.layer);
        }
        refused
    }

    /// Returns whether the settings of the key of a permission request, `max_operation` and `allowed_tools`, refuse its call now. `false` where that
    /// is not known, as of a tool or a key that is gone.
    pub fn is_beyond_key(&self, caller: &Caller, asked: &ConsentView) -> bool {
        let row = &asked.row;
        let (Ok(calling), Some(catalogue)) = (self.tenants.stand_in(caller, asked.key()), caller.catalogue())
        else {
            return false;
        };
        let Some(tool) = catalogue.tool(&format!("{}:{}", row.server, row.tool)) else { return false };
        let settings = &calling.settings;
        sees(settings, tool).is_none()
            || row.operation_type.known().is_some_and(|operation| operation > settings.max_operation)
    }

    /// Returns the mode that holds now for the key of a permission request; `None` for a key that is gone.
    pub fn mode_of(&self, caller: &Caller, asked: &ConsentView) -> Option<PolicyMode> {
        self.tenants.stand_in(caller, asked.key()).ok().map(|calling| calling.settings.policy_mode)
    }

    fn explain_call(&self, calling: &Caller, tool: &Arc<Tool>, request: &ExplainRequest) -> Explained {
        let settings = &calling.settings;
        // also of a tool that the key does not see: the question is what the rules say
        let tier = sees(settings, tool).unwrap_or_else(|| tool.tier(settings.unannotated_tools));
        let variant = request.variant.unwrap_or(tier.call_with());
        let subject = PolicySubject {
            tool,
            page: tool.shape.page.as_deref(),
            tier,
            operation: variant.operation(),
            is_mismatched: is_mismatched(settings, tool, variant),
            sensitivity: None,
            arguments: &request.arguments,
            entrance: request.entrance,
            at: clock::now(),
        };
        let (verdict, trace) = self.explain_steps(calling, &subject);
        Explained { verdict, trace, mode: settings.policy_mode }
    }
}

/// Returns whether a variant contradicts the annotations of a tool, and runs all the same.
pub(super) fn is_mismatched(settings: &Effective, tool: &Tool, variant: Variant) -> bool {
    let checked = validation::validate(
        &tool.canonical,
        variant,
        tool.shape.annotations,
        settings.unannotated_tools,
        settings.strictness(),
    );
    !settings.strict && !matches!(checked, Verdict::Allow)
}

/// Returns the text about a tool that does not exist: how names are written, and which one was meant.
fn unknown_tool(name: &str, known: &[&str]) -> String {
    let shown: String = name.chars().take(TOOL_SHOWN_CHARS_MAX).collect();
    // the order of the catalogue is no order
    let mut sorted = known.to_vec();
    sorted.sort_unstable();
    match (name.contains(':'), near::tool(name, &sorted)) {
        (true, Some(meant)) => format!("tool '{shown}' not found; did you mean '{meant}'?"),
        (true, None) => format!("tool '{shown}' not found"),
        (false, Some(meant)) => {
            format!("tool '{shown}' not found: a tool is named SERVER:TOOL; did you mean '{meant}'?")
        }
        (false, None) => {
            let own = |tool: &&&str| tool.split_once(':').is_some_and(|(server, _)| server == name);
            match sorted.iter().find(own) {
                Some(tool) => format!("'{shown}' is a server: write SERVER:TOOL, such as '{tool}'"),
                None => format!("tool '{shown}' not found: a tool is named SERVER:TOOL"),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_tools_come_with_what_was_meant() {
        let known = ["ops:query", "github:delete_repo", "ops:deploy", "mirror:query"];
        for (name, expected) in [
            ("query", "tool 'query' not found: a tool is named SERVER:TOOL; did you mean 'mirror:query'?"),
            ("ops", "'ops' is a server: write SERVER:TOOL, such as 'ops:deploy'"),
            ("nothing", "tool 'nothing' not found: a tool is named SERVER:TOOL"),
            ("ops:queri", "tool 'ops:queri' not found; did you mean 'ops:query'?"),
            ("gihub:delete_repo", "tool 'gihub:delete_repo' not found; did you mean 'github:delete_repo'?"),
            ("ops:nothing_like_it", "tool 'ops:nothing_like_it' not found"),
        ] {
            assert_eq!(unknown_tool(name, &known), expected);
        }
        assert!(unknown_tool(&"x".repeat(1000), &known).len() < 200);
    }
}
