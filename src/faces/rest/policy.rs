//! `/policy` of the tenant and `/keys/{id}/policy`.

use std::sync::Arc;

use serde::Serialize;
use serde_json::value::RawValue;
use uuid::Uuid;

use super::cursor::{self, DEFINITIONS_BYTES_MAX, DEFINITIONS_MEMORY_BYTES};
use super::error::RestError;
use super::exchange::Exchange;
use super::fields::Nulls;
use super::params::{ParamNames, Params};
use super::show::RestAnswer;
use super::{keys, show};
use crate::domain::id::KeyId;
use crate::domain::operation::Variant;
use crate::domain::policy::{Assurance, Effect, Entrance, PolicyDocument, PolicyLayer, PolicyMode, Ruling};
use crate::domain::risk::RiskLevel;
use crate::gateway::{ExplainRequest, Explained, GatewayError, PolicyView};
use crate::store::PolicyVersion;

/// Parameters of the list of versions.
pub(super) const VERSIONS: ParamNames = &["key", "version", "cursor", "limit"];
/// Memory of the answer with the largest rules, as loaded and as JSON, in bytes.
const RULES_MEMORY_BYTES: usize = 1024 * 1024;

#[derive(Serialize)]
struct ShownPolicy<'a> {
    version: i64,
    mode: PolicyMode,
    rules: &'a RawValue,
    warnings: &'a [String],
}

#[derive(Serialize)]
struct ShownVersion<'a> {
    version: i64,
    /// Mode that was set along with the rules; `None` if it was left alone.
    mode: Option<&'a str>,
    rules: &'a RawValue,
    created_by: Option<Uuid>,
    created_at: String,
}

#[derive(Serialize)]
struct ShownExplanation<'a> {
    mode: PolicyMode,
    /// Consequence for the call, which the mode `observe` softens.
    ruling: Ruling,
    /// Effect of the rules, which no mode softens.
    effect: Effect,
    rule: Option<&'a str>,
    risk: ShownRisk,
    /// Terms on which a person is asked, or would be; `None` where nobody is.
    ask: Option<ShownTerms>,
    trace: Vec<ShownStep<'a>>,
}

#[derive(Serialize)]
struct ShownTerms {
    assurance: Assurance,
    channels: Vec<&'static str>,
    ttl_s: u32,
}

#[derive(Serialize)]
struct ShownRisk {
    level: RiskLevel,
    reasons: Vec<&'static str>,
}

#[derive(Serialize)]
struct ShownStep<'a> {
    layer: PolicyLayer,
    rule: Option<&'a str>,
    matched: bool,
    effect: Option<Effect>,
    why: &'a str,
}

pub(super) async fn of_tenant(exchange: Arc<Exchange>, _: Params) -> RestAnswer {
    read(&exchange, None).await
}

pub(super) async fn of_key(exchange: Arc<Exchange>, _: Params) -> RestAnswer {
    read(&exchange, Some(keys::id(&exchange)?)).await
}

pub(super) async fn put_tenant(exchange: Arc<Exchange>) -> RestAnswer {
    put(&exchange, None).await
}

pub(super) async fn put_key(exchange: Arc<Exchange>) -> RestAnswer {
    let key = keys::id(&exchange)?;
    put(&exchange, Some(key)).await
}

async fn read(exchange: &Exchange, key: Option<KeyId>) -> RestAnswer {
    exchange.expect_answer(RULES_MEMORY_BYTES).await?;
    shown(&exchange.gateway().tenants.read_policy(exchange.caller(), key).await?)
}

/// Replaces a policy. The document has one reader, which names faults by their path.
async fn put(exchange: &Exchange, key: Option<KeyId>) -> RestAnswer {
    exchange.expect_answer(RULES_MEMORY_BYTES).await?;
    let read = || -> Result<PolicyDocument, RestError> {
        let (body, _) = exchange.object()?;
        let text = std::str::from_utf8(body).unwrap_or_default();
        let document = PolicyDocument::parse(text);
        Ok(document.map_err(|fault| GatewayError::invalid(fault.path.clone(), fault.to_string()))?)
    };
    let document = exchange.parse(read).await?;
    shown(&exchange.gateway().tenants.put_policy(exchange.caller(), key, document).await?)
}

fn shown(policy: &PolicyView) -> RestAnswer {
    let PolicyView { version, mode, rules, warnings } = policy;
    show::ok(&ShownPolicy { version: *version, mode: *mode, rules: show::raw(rules)?, warnings })
}

pub(super) async fn versions(exchange: Arc<Exchange>, params: Params) -> RestAnswer {
    let key = params.id("key")?.map(KeyId);
    let mut page = params.page()?;
    let mut before = page.after(i64::MAX, |key| key.parse().ok())?;
    let version = params.count("version", 0, u32::MAX as usize)?;
    let version = i64::try_from(version).ok().filter(|version| *version > 0);
    if let Some(version) = version {
        (page.limit, before) = (1, version + 1);
    }
    exchange.expect_answer(DEFINITIONS_MEMORY_BYTES).await?;
    let tenants = &exchange.gateway().tenants;
    let (caller, rows) = (exchange.caller(), page.fetch());
    let mut rows = tenants.list_policies(caller, key, before, rows, DEFINITIONS_BYTES_MAX).await?;
    rows.retain(|row| version.is_none_or(|version| row.version == version));
    page.fit(rows.iter().map(|row| row.rules.len()));
    cursor::list(
        &rows,
        &page,
        |row| row.version.to_string(),
        |row: &PolicyVersion| {
            Ok(ShownVersion {
                version: row.version,
                mode: row.mode.as_deref(),
                rules: show::raw(&row.rules)?,
                created_by: row.created_by,
                created_at: show::time(row.created_at),
            })
        },
    )
}

pub(super) async fn explain(exchange: Arc<Exchange>) -> RestAnswer {
    let allowed = ["tool", "args", "tool_variant", "key_id", "endpoint"];
    let mut fields = exchange.fields(&allowed, Nulls::Absent).await?;
    let arguments = fields.object("args")?.unwrap_or_default();
    let request = ExplainRequest {
        tool: fields.needed_text("tool")?,
        arguments: serde_json::Value::Object(arguments).to_string(),
        variant: word(fields.text("tool_variant")?, "tool_variant", Variant::parse, &Variant::WORDS)?,
        key: match fields.text("key_id")?.map(|id| Uuid::try_parse(&id)) {
            None => None,
            Some(Ok(id)) => Some(KeyId(id)),
            Some(Err(_)) => {
                return Err(GatewayError::invalid("key_id", "key_id must be the id of a key (a UUID)").into());
            }
        },
        entrance: word(fields.text("endpoint")?, "endpoint", Entrance::parse, &Entrance::WORDS)?
            .unwrap_or(Entrance::Mcp),
    };
    let Explained { verdict, trace, mode } =
        exchange.gateway().calls.explain(exchange.caller(), &request).await?;
    show::ok(&ShownExplanation {
        mode,
        ruling: verdict.decision.ruling,
        effect: verdict.decision.effect,
        rule: verdict.decision.rule.as_deref(),
        risk: ShownRisk {
            level: verdict.risk.level,
            reasons: verdict.risk.signals.iter().map(|signal| signal.as_str()).collect(),
        },
        ask: verdict.decision.ask.map(|ask| ShownTerms {
            assurance: ask.assurance,
            channels: ask.channels.iter().collect(),
            ttl_s: ask.ttl_s,
        }),
        trace: trace
            .iter()
            .map(|step| ShownStep {
                layer: step.layer,
                rule: step.rule.as_deref(),
                matched: step.matched,
                effect: step.effect,
                why: &step.why,
            })
            .collect(),
    })
}

/// Reads one of a few words.
fn word<T>(
    given: Option<String>,
    name: &str,
    parse: impl Fn(&str) -> Option<T>,
    words: &[&str],
) -> Result<Option<T>, GatewayError> {
    let Some(given) = given else { return Ok(None) };
    let wrong = || GatewayError::invalid(name, format!("{name} must be one of: {}", words.join(", ")));
    parse(&given).map(Some).ok_or_else(wrong)
}
