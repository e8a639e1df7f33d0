//! Checks 1 to 10 of a tool call, in the contract's order.

pub(in crate::gateway::calls) mod direct;

use std::borrow::Cow;
use std::sync::Arc;

use bytes::Bytes;

use super::{Pinned, approved, open};
use crate::domain::annotations::Tier;
use crate::domain::id::split_canonical;
use crate::domain::intent::{self, RawIntent};
use crate::domain::json;
use crate::domain::operation::Variant;
use crate::domain::refusal::{Code, Refusal};
use crate::domain::validation::{self, Verdict};
use crate::domain::web_page::facts::PageFacts;
use crate::gateway::calls::cookies::KeptCookies;
use crate::gateway::calls::drafts::DraftClaim;
use crate::gateway::calls::own::ToolWay;
use crate::gateway::calls::pipeline::door::Door;
use crate::gateway::calls::pipeline::facts::Facts;
use crate::gateway::calls::pipeline::request::ToolRequest;
use crate::gateway::catalog::{SchemaCheck, Tool, sees};
use crate::gateway::tenants::Caller;
use crate::upstream::param_headers;

/// A tool call that passed its checks.
#[derive(Debug)]
pub(in crate::gateway::calls::pipeline) struct CheckedTool {
    door: Door,
    /// Name of the tool in the caller's spelling.
    name: String,
    pub(in crate::gateway::calls::pipeline) tool: Arc<Tool>,
    pub(in crate::gateway::calls::pipeline) tier: Tier,
    pub(in crate::gateway::calls::pipeline) variant: Variant,
    /// True if the variant contradicts the annotations, and the key is not strict.
    pub(in crate::gateway::calls::pipeline) is_mismatched: bool,
    /// The arguments object, exactly as checked, with the draft that the call sends.
    pub(in crate::gateway::calls::pipeline) arguments: Bytes,
    /// Form that the call sends; `None` for all other calls.
    pub(in crate::gateway::calls::pipeline) form: Option<Box<FormCall>>,
}

/// Form that a call sends, with its values.
#[derive(Debug)]
pub(in crate::gateway::calls::pipeline) struct FormCall {
    /// Facts of the approved form.
    pub(in crate::gateway::calls::pipeline) facts: Arc<PageFacts>,
    /// Values for its fields, a JSON object.
    pub(in crate::gateway::calls::pipeline) values: Bytes,
    /// Draft that has the values; `None` if the call itself has them.
    pub(in crate::gateway::calls::pipeline) draft: Option<DraftClaim>,
    /// Cookies of earlier calls; `None` if the server keeps none.
    pub(in crate::gateway::calls::pipeline) cookies: Option<KeptCookies>,
}

impl FormCall {
    /// Returns the values as text.
    pub(in crate::gateway::calls::pipeline) fn values(&self) -> &str {
        std::str::from_utf8(&self.values).unwrap_or_default()
    }
}

impl CheckedTool {
    /// Returns the `Mcp-Param-*` headers that the tool's definition asks for.
    pub(super) fn param_headers(&self) -> Vec<(String, String)> {
        let rules = &self.tool.shape.param_headers;
        if rules.is_empty() {
            return Vec::new();
        }
        std::str::from_utf8(&self.arguments).map(|text| param_headers(rules, text)).unwrap_or_default()
    }
}

/// Runs checks 1 to 9. Notes the facts as far as they are known, also on a refusal.
pub(in crate::gateway::calls::pipeline) fn run(
    caller: &Caller,
    request: &ToolRequest,
    facts: &mut Facts,
) -> Result<CheckedTool, Refusal> {
    let door = facts.door();
    let (name, tool, tier) = match door {
        Door::Variant(variant) => {
            let name = tool_name(request, facts)?;
            facts.arguments = Some(arguments(request)?);
            declaration(caller, variant, request, facts)?;
            let (tool, tier) = resolve(caller, variant, &name)?;
            facts.tier = Some(tier);
            facts.subject = Some(tool.canonical.to_string());
            (name, tool, tier)
        }
        Door::Direct => {
            // the tool determines the variant, so it is found first; nothing is declared here
            let found = direct::resolve(caller, request, facts)?;
            facts.arguments = Some(direct::arguments(request)?);
            found
        }
    };
    let variant = door.variant().unwrap_or(tier.call_with());
    caller.check_scope(variant.operation().max(tier.operation()))?;
    available(&tool)?;
    let mismatch = annotations(caller, variant, &tool)?;
    let is_mismatched = mismatch.is_some() && !caller.settings.strict;
    facts.warnings.extend(mismatch);
    let arguments = facts.arguments.clone().unwrap_or_default();
    Ok(CheckedTool { door, name, tool, tier, variant, is_mismatched, arguments, form: None })
}

/// Repeats checks 7 to 9 if the catalogue has changed since. Returns the current tool: its server may have a new address or
/// credential, but its definition is the one that was checked.
pub(in crate::gateway::calls::pipeline) fn again(
    caller: &Caller,
    checked: &CheckedTool,
) -> Result<Arc<Tool>, Refusal> {
    let current = caller.catalogue();
    let tool = current.as_ref().and_then(|catalogue| catalogue.tool(&checked.tool.canonical));
    if let Some(same) = tool.filter(|tool| Arc::ptr_eq(tool, &checked.tool)) {
        return Ok(Arc::clone(same));
    }
    let name = &checked.tool.canonical;
    let (tool, tier) = match checked.door {
        Door::Variant(variant) => resolve(caller, variant, name)?,
        Door::Direct => direct::find(caller, name).ok_or_else(|| direct::unknown(&checked.name))?,
    };
    caller.check_scope(checked.variant.operation().max(tier.operation()))?;
    available(&tool)?;
    if tool.shape.pin() != checked.tool.shape.pin() {
        let message =
            format!("The definition of tool '{}' changed meanwhile; nothing was run", tool.canonical);
        return Err(Refusal::new(Code::ToolChanged, message));
    }
    // the first run noted the warnings
    annotations(caller, checked.variant, &tool)?;
    Ok(tool)
}

/// Runs check 1 for the name.
fn tool_name(request: &ToolRequest, facts: &mut Facts) -> Result<String, Refusal> {
    let raw = present(request.name.as_ref());
    let Some(name) = raw.and_then(|raw| serde_json::from_str::<String>(raw).ok()) else {
        let message =
            "Invalid tool name: name must be a string of the form server:tool, as retrieve_tools gives it";
        return Err(Refusal::new(Code::InvalidName, message));
    };
    let shown: String = name.chars().take(300).collect();
    facts.subject = Some(shown.clone());
    let Some((server, tool)) = split_canonical(&name) else {
        facts.note_tool(None, &shown);
        let message = format!(
            "Invalid tool name '{shown}': must be of the form server:tool, as retrieve_tools gives it"
        );
        return Err(Refusal::new(Code::InvalidName, message));
    };
    facts.note_tool(Some(server), tool);
    Ok(name)
}

/// Runs check 1 for the arguments: at most one of the two forms, an object, without duplicate members.
fn arguments(request: &ToolRequest) -> Result<Bytes, Refusal> {
    let invalid = |message: String| Refusal::new(Code::InvalidArguments, message);
    if let Some(unknown) = &request.unknown {
        // a misspelt name must not run a tool with nothing
        let shown: String = unknown.chars().take(100).collect();
        return Err(invalid(format!(
            "Invalid arguments: unknown argument '{shown}'; known: {}. The tool's own arguments go into args or args_json",
            ToolRequest::ARGUMENTS.join(", ")
        )));
    }
    let args = present(request.args.as_ref());
    let args_json = present(request.args_json.as_ref()).filter(|raw| *raw != "\"\"");
    match (args, args_json) {
        (Some(_), Some(_)) => Err(invalid("Invalid arguments: give args or args_json, not both".to_owned())),
        (None, None) => Ok(Bytes::from_static(b"{}")),
        // the parser of the request refused duplicate members already
        (Some(raw), None) if raw.starts_with('{') => Ok(request.args.clone().unwrap_or_default()),
        (Some(_), None) => Err(invalid("Invalid arguments: args must be a JSON object".to_owned())),
        (None, Some(raw)) => {
            let text: String = serde_json::from_str(raw).map_err(|_| {
                invalid("Invalid arguments: args_json must be a string holding a JSON object".into())
            })?;
            json::members_of_text(&text)
                .map_err(|fault| invalid(format!("Invalid arguments: args_json: {fault}")))?;
            Ok(Bytes::from(text.trim().to_owned()))
        }
    }
}

/// Runs checks 2 to 6. Notes what could be read of the declaration.
fn declaration(
    caller: &Caller,
    variant: Variant,
    request: &ToolRequest,
    facts: &mut Facts,
) -> Result<(), Refusal> {
    let raw = RawIntent {
        nested: present(request.intent.as_ref()),
        operation_type: present(request.intent_operation_type.as_ref()),
        data_sensitivity: present(request.intent_data_sensitivity.as_ref()),
        reason: present(request.intent_reason.as_ref()),
    };
    let checked = intent::check(&raw, variant, caller.settings.intent_declaration);
    let (intent, ended) =
        checked.map_or_else(|refused| (refused.1, Err(refused.0)), |intent| (intent, Ok(())));
    facts.intent = intent;
    ended
}

/// Runs check 7. The refusal is the same for a tool that does not exist, is another tenant's, or is out of scope.
fn resolve(caller: &Caller, variant: Variant, name: &str) -> Result<(Arc<Tool>, Tier), Refusal> {
    let settings = &caller.settings;
    if variant.operation() > settings.max_operation {
        let message = format!(
            "{} is not permitted for this key, whose ceiling is {}",
            variant.as_str(),
            settings.max_operation.as_str()
        );
        return Err(Refusal::new(Code::OperationNotPermitted, message).expecting(settings.max_operation));
    }
    let tool = caller.tenant.as_ref().and_then(|tenant| tenant.catalogue().tool(name).cloned());
    tool.and_then(|tool| seen(caller, tool)).ok_or_else(|| {
        Refusal::new(Code::NotFound, format!("Tool '{name}' not found; retrieve_tools finds what there is"))
    })
}

/// Returns a tool with its tier; `None` if it is not in this key's scope.
pub(super) fn seen(caller: &Caller, tool: Arc<Tool>) -> Option<(Arc<Tool>, Tier)> {
    sees(&caller.settings, &tool).map(|tier| (tool, tier))
}

/// Runs check 8.
fn available(tool: &Tool) -> Result<(), Refusal> {
    open(&tool.server)?;
    let (server, name) = (&tool.server.name, Cow::Borrowed(&*tool.canonical));
    approved(tool.state, || Pinned { what: "tool", name, server, list: "tools" })
}

/// Runs check 9. Returns its warning, if any.
fn annotations(caller: &Caller, variant: Variant, tool: &Tool) -> Result<Option<String>, Refusal> {
    let settings = &caller.settings;
    let verdict = validation::validate(
        &tool.canonical,
        variant,
        tool.shape.annotations,
        settings.unannotated_tools,
        settings.strictness(),
    );
    match verdict {
        Verdict::Allow => Ok(None),
        Verdict::Warn(text) => Ok(Some(text)),
        Verdict::Reject(refusal) => Err(refusal),
    }
}

/// Applies the outcome of check 10. A schema that cannot be used lets the call pass with the returned warning, unless nobody else
/// checks the arguments.
pub(in crate::gateway::calls::pipeline) fn schema(
    outcome: SchemaCheck,
    tool: &Tool,
) -> Result<Option<String>, Refusal> {
    match outcome {
        SchemaCheck::Fit => Ok(None),
        // a permission is for the arguments that the form's closed schema lets through
        SchemaCheck::Unchecked(why) if !ToolWay::of(tool).takes_unchecked() => {
            let message = format!(
                "The arguments for tool '{}' could not be checked, and its form is not sent: {why}",
                tool.canonical
            );
            Err(Refusal::new(Code::InvalidArguments, message))
        }
        SchemaCheck::Unchecked(why) => {
            Ok(Some(format!("the tool's input schema could not be used, arguments were not checked: {why}")))
        }
        SchemaCheck::Late => {
            let message = "Too many calls of this tenant wait for the check of their arguments; nothing was run, try again \
                 in a few seconds";
            Err(Refusal::new(Code::Overloaded, message))
        }
        SchemaCheck::Unfit(unfit) => {
            let message = format!("Invalid arguments for tool '{}': {unfit}", tool.canonical);
            Err(Refusal::new(Code::InvalidArguments, message))
        }
    }
}

/// Returns a raw value; `None` if it is absent or `null`.
pub(super) fn present(raw: Option<&Bytes>) -> Option<&str> {
    raw.and_then(|raw| std::str::from_utf8(raw).ok()).filter(|raw| *raw != "null")
}
