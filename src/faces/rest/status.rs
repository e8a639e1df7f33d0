//! `/status`: identity of the key, and state of the replica that answers.

use std::sync::Arc;

use serde::Serialize;

use super::exchange::Exchange;
use super::params::Params;
use super::show;
use super::show::RestAnswer;
use crate::domain::annotations::Unannotated;
use crate::domain::id::{IdentityId, KeyId};
use crate::domain::intent::IntentMode;
use crate::domain::operation::OperationType;
use crate::domain::policy::PolicyMode;
use crate::domain::reason::Language;
use crate::domain::settings::ToolNames;
use crate::domain::tenant::{Action, Role};
use crate::gateway::{AskingKeys, Caller, Gateway, NamedKeys, Readiness, ToolCounts};

#[derive(Serialize)]
struct Status<'a> {
    version: &'static str,
    replica_id: String,
    /// Name of the tenant; `platform` for a platform key that names none.
    tenant: &'a str,
    role: Role,
    key_id: Option<KeyId>,
    /// Identity of a person who logged in, or whom an administrator named for the key.
    identity_id: Option<IdentityId>,
    owner: &'a str,
    /// Whether the tenant is suspended. Only a platform key can see `true` here, since all others are refused.
    suspended: bool,
    ready: bool,
    /// Whether the deployment has `/mcp/direct`.
    direct_enabled: bool,
    /// Whether this key has `/mcp/direct`.
    direct_endpoint: bool,
    settings: InForce<'a>,
    /// Tools that lists and searches show this key; `None` for a role without tools, and outside of tenants.
    tools: Option<ToolsStatus>,
    /// Permission requests; `None` for a platform key that names no tenant.
    consent: Option<ConsentStatus>,
}

/// Numbers of the tools that this key has. The tiers count tools with annotations only.
#[derive(Serialize)]
struct ToolsStatus {
    total: usize,
    read: usize,
    write: usize,
    destructive: usize,
    /// Number of tools that do not say whether they only read. The key's `unannotated_tools` decides about them.
    unannotated: usize,
}

impl From<ToolCounts> for ToolsStatus {
    fn from(counts: ToolCounts) -> ToolsStatus {
        let ToolCounts { total, read, write, destructive, unannotated } = counts;
        ToolsStatus { total, read, write, destructive, unannotated }
    }
}

/// Permission requests that wait, and keys whose calls may ask. For roles that do not see the requests of the tenant, the
/// keys are the own one alone.
#[derive(Serialize)]
struct ConsentStatus {
    /// Number of requests of the tenant that wait, a few seconds ago; `None` if the role does not see them.
    pending: Option<i64>,
    /// Number of keys whose calls may ask a person.
    asking_keys: usize,
    /// Number of these keys for which the bootstrap key alone may decide.
    unanswered_keys: usize,
    /// Number of these keys that may need another person, where only keys of the same person may decide.
    unapproved_keys: usize,
    /// The first few keys for which the bootstrap key alone may decide.
    unanswered: Vec<ShownKey>,
    /// The first few keys that may need another person.
    unapproved: Vec<ShownKey>,
}

/// Key whose calls may ask.
#[derive(Serialize)]
struct ShownKey {
    key_id: KeyId,
    owner: String,
}

fn named(keys: NamedKeys) -> Vec<ShownKey> {
    keys.first.into_iter().map(|(key_id, owner)| ShownKey { key_id, owner }).collect()
}

impl ConsentStatus {
    fn of(gateway: &Gateway, caller: &Caller) -> Option<ConsentStatus> {
        let AskingKeys { asking, unanswered, unapproved } = gateway.tenants.asking_keys(caller)?;
        Some(ConsentStatus {
            pending: gateway.consent.count_pending(caller),
            asking_keys: asking,
            unanswered_keys: unanswered.count,
            unapproved_keys: unapproved.count,
            unanswered: named(unanswered),
            unapproved: named(unapproved),
        })
    }
}

/// Settings in force for the key, since its tools depend on them, even if it may not read settings. They combine those of
/// key, tenant and deployment, as in [`crate::domain::settings::Effective`].
#[derive(Serialize)]
struct InForce<'a> {
    strict_server_validation: bool,
    intent_declaration: IntentMode,
    unannotated_tools: Unannotated,
    max_operation: OperationType,
    /// List of the key itself; `None` if it has none. Outer lists are not shown, since they name what others have.
    allowed_tools: Option<&'a [String]>,
    /// Level of the innermost list that narrows (`key`, `tenant`, `deployment`); `None` if no list narrows.
    allowed_tools_from: Option<&'static str>,
    tool_names: ToolNames,
    rate_limit: Option<u32>,
    response_limit: u32,
    policy_mode: PolicyMode,
    in_band_answers: bool,
    host_prompts: &'a [OperationType],
    locale: Language,
}

impl InForce<'_> {
    fn of(caller: &Caller) -> InForce<'_> {
        let settings = &caller.settings;
        // lists mean nothing to a role that has no tools
        let from = settings.allowed_tools_from.filter(|_| caller.role.may(Action::UseTools));
        InForce {
            strict_server_validation: settings.strict,
            intent_declaration: settings.intent_declaration,
            unannotated_tools: settings.unannotated_tools,
            max_operation: settings.max_operation,
            allowed_tools: settings.allowed_tools.innermost().filter(|_| from == Some("key")),
            allowed_tools_from: from,
            tool_names: settings.tool_names,
            rate_limit: caller.rate_limit(),
            response_limit: settings.response_limit,
            policy_mode: settings.policy_mode,
            in_band_answers: settings.in_band_answers,
            host_prompts: &settings.host_prompts,
            locale: settings.locale,
        }
    }
}

pub(super) async fn get(exchange: Arc<Exchange>, _: Params) -> RestAnswer {
    let caller = exchange.caller();
    let gateway = exchange.gateway();
    show::ok(&Status {
        version: env!("CARGO_PKG_VERSION"),
        replica_id: gateway.options.replica.to_string(),
        tenant: caller.tenant_name(),
        role: caller.role,
        key_id: caller.key_id(),
        identity_id: caller.identity_id(),
        owner: &caller.owner,
        suspended: caller.is_suspended(),
        ready: matches!(gateway.upkeep.readiness(), Readiness::Ready | Readiness::Degraded),
        direct_enabled: exchange.faces.options.direct_enabled,
        direct_endpoint: exchange.faces.has_direct(caller),
        settings: InForce::of(caller),
        tools: caller.count_tools().await.map(ToolsStatus::from),
        consent: ConsentStatus::of(gateway, caller),
    })
}
