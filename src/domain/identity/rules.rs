//! Rules of a tenant that map claims of a verified token to a role and settings: the first rule that matches counts.

use std::fmt;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::domain::glob;
use crate::domain::operation::OperationType;
use crate::domain::settings::{Scope, Settings};
use crate::domain::tenant::Role;
use crate::domain::text_enum::text_enum;

/// Most rules of a tenant.
pub const RULES_MAX: usize = 200;
/// Most conditions of a rule.
pub const CONDITIONS_MAX: usize = 20;
/// Longest name of a claim, and longest text in a condition, in bytes.
const TEXT_BYTES_MAX: usize = 500;
/// Most texts of a condition `any_of`.
const TEXTS_MAX: usize = 500;

text_enum! {
    /// Test of a condition (`op`).
    pub enum ConditionTest {
        /// The claim is this text, number or boolean.
        Equals = "equals",
        /// The claim, or one of its elements, is one of these texts.
        AnyOf = "any_of",
        /// The claim is a list with this text, or words separated by spaces with this one.
        Contains = "contains",
        /// The claim, or one of its elements, matches this pattern: `*` is any run, `?` one character.
        Glob = "glob",
        /// The claim is there, whatever its value.
        Present = "present",
    }
}

/// Condition on one claim.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RuleCondition {
    /// Name of the claim. Where no claim has the name, dots lead into objects: `realm_access.roles`.
    pub claim: String,
    /// Test of the claim.
    pub op: ConditionTest,
    /// Value to compare with; absent for `present`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub value: Option<Value>,
}

/// Rule of a tenant.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct IdentityRule {
    /// Name of the issuer whose tokens the rule is for; `None` for every issuer of the tenant.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub issuer: Option<String>,
    /// Conditions, all of which must hold.
    #[serde(default)]
    pub conditions: Vec<RuleCondition>,
    /// Role that the rule gives. Never `platform`.
    pub role: Role,
    /// Settings that the rule gives, as an API key has them.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    pub settings: Map<String, Value>,
}

/// Fault in a rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RuleFault {
    /// Path of the faulty member, such as `rules[2].conditions[0].value`.
    pub path: String,
    /// Sentence for the caller.
    pub message: String,
}

impl fmt::Display for RuleFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.path, self.message)
    }
}

/// Role and settings of a person, by the rule that matches.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RuleGrant {
    /// Role of the person.
    pub role: Role,
    /// Settings of the person, as an API key has them.
    pub settings: Settings,
    /// Highest operation that the scopes of the token allow; `None` if it has no scope of this gateway. Scopes only narrow.
    pub scope_ceiling: Option<OperationType>,
}

impl RuleGrant {
    /// Returns the grant with settings that the scopes of the token narrow.
    pub fn within_scopes(mut self) -> RuleGrant {
        if let Some(ceiling) = self.scope_ceiling {
            let own = self.settings.max_operation;
            self.settings.max_operation = Some(own.map_or(ceiling, |own| own.min(ceiling)));
        }
        self
    }
}

impl IdentityRule {
    /// Checks the rules of a tenant.
    ///
    /// # Errors
    /// [`RuleFault`] for the first fault.
    pub fn check_all(rules: &[IdentityRule]) -> Result<(), RuleFault> {
        if rules.len() > RULES_MAX {
            let message = format!("at most {RULES_MAX} rules");
            return Err(RuleFault { path: "rules".to_owned(), message });
        }
        rules.iter().enumerate().try_for_each(|(at, rule)| rule.check(&format!("rules[{at}]")))
    }

    fn check(&self, path: &str) -> Result<(), RuleFault> {
        let fault = |member: &str, message: &str| RuleFault {
            path: format!("{path}.{member}"),
            message: message.to_owned(),
        };
        if self.conditions.len() > CONDITIONS_MAX {
            return Err(fault("conditions", "at most 20 conditions"));
        }
        match self.role {
            Role::Platform => return Err(fault("role", "platform is not a role of people")),
            Role::Admin | Role::Approver if self.conditions.is_empty() => {
                return Err(fault("conditions", "admin and approver need at least one condition"));
            }
            _ => {}
        }
        for (at, condition) in self.conditions.iter().enumerate() {
            condition.check(&format!("{path}.conditions[{at}]"))?;
        }
        let settings = Settings::default().patched(&self.settings, Scope::Key);
        settings.map(drop).map_err(|error| fault(&format!("settings.{}", error.field), &error.message))
    }

    /// Returns whether the rule is for an issuer and all its conditions hold for the claims.
    pub fn matches(&self, issuer: &str, claims: &Map<String, Value>) -> bool {
        self.issuer.as_deref().is_none_or(|own| own == issuer)
            && self.conditions.iter().all(|condition| condition.holds(claims))
    }

    /// Returns what the first rule that matches gives; `None` if none does.
    pub fn first_match(
        rules: &[IdentityRule],
        issuer: &str,
        claims: &Map<String, Value>,
    ) -> Option<RuleGrant> {
        let rule = rules.iter().find(|rule| rule.matches(issuer, claims))?;
        let (settings, unknown) = Settings::read(&Value::Object(rule.settings.clone()).to_string());
        if !unknown.is_empty() {
            tracing::warn!(
                ?unknown,
                "settings of an identity rule are not known here and count as the strictest"
            );
        }
        Some(RuleGrant { role: rule.role, settings, scope_ceiling: scope_ceiling(claims) })
    }
}

/// Returns the scope that allows an operation, and those less severe.
pub fn scope_for(operation: OperationType) -> &'static str {
    match operation {
        OperationType::Read => "mcp:read",
        OperationType::Write => "mcp:write",
        OperationType::Destructive => "mcp:destructive",
    }
}

/// Returns the highest operation that the scopes of a token allow; `None` if it has no scope of this gateway.
fn scope_ceiling(claims: &Map<String, Value>) -> Option<OperationType> {
    let scopes = ["scope", "scp"].iter().filter_map(|name| claims.get(*name)).flat_map(words);
    let operation =
        |scope: &str| OperationType::ALL.iter().copied().find(|operation| scope_for(*operation) == scope);
    scopes.filter_map(operation).max()
}

/// Returns the elements of a list, or the words of a text.
fn words(value: &Value) -> Vec<&str> {
    match value {
        Value::String(text) => text.split_ascii_whitespace().collect(),
        Value::Array(items) => items.iter().filter_map(Value::as_str).collect(),
        _ => Vec::new(),
    }
}

impl RuleCondition {
    fn check(&self, path: &str) -> Result<(), RuleFault> {
        let fault = |member: &str, message: &str| {
            Err(RuleFault { path: format!("{path}.{member}"), message: message.to_owned() })
        };
        if self.claim.is_empty() || self.claim.len() > TEXT_BYTES_MAX {
            return fault("claim", "must be the name of a claim, of at most 500 bytes");
        }
        let is_text = |value: &Value| {
            value.as_str().is_some_and(|text| !text.is_empty() && text.len() <= TEXT_BYTES_MAX)
        };
        match (self.op, &self.value) {
            (ConditionTest::Present, None) => Ok(()),
            (ConditionTest::Present, Some(_)) => fault("value", "present takes no value"),
            (ConditionTest::Equals, Some(Value::Number(_) | Value::Bool(_))) => Ok(()),
            (ConditionTest::Equals, Some(value)) if is_text(value) => Ok(()),
            (ConditionTest::Equals, _) => {
                fault("value", "equals takes a text of at most 500 bytes, a number or a boolean")
            }
            (ConditionTest::AnyOf, Some(Value::Array(values)))
                if (1..=TEXTS_MAX).contains(&values.len()) && values.iter().all(is_text) =>
            {
                Ok(())
            }
            (ConditionTest::AnyOf, _) => {
                fault("value", "any_of takes a list of 1 to 500 texts, each of at most 500 bytes")
            }
            (ConditionTest::Contains | ConditionTest::Glob, Some(value)) if is_text(value) => Ok(()),
            (ConditionTest::Contains | ConditionTest::Glob, _) => {
                fault("value", "this op takes a text of at most 500 bytes")
            }
        }
    }

    pub(super) fn holds(&self, claims: &Map<String, Value>) -> bool {
        let Some(claim) = claim_of(claims, &self.claim) else { return false };
        let text = self.value.as_ref().and_then(Value::as_str);
        match self.op {
            ConditionTest::Present => true,
            ConditionTest::Equals => self.value.as_ref() == Some(claim),
            ConditionTest::AnyOf => {
                let wanted = self.value.as_ref().and_then(Value::as_array);
                wanted.is_some_and(|wanted| any_text(claim, |text| wanted.iter().any(|value| value == text)))
            }
            ConditionTest::Contains => text.is_some_and(|text| words(claim).contains(&text)),
            ConditionTest::Glob => {
                text.is_some_and(|pattern| any_text(claim, |text| glob::matches(pattern, text)))
            }
        }
    }
}

/// Returns whether a text, or one of the texts of a list, passes a test.
fn any_text(claim: &Value, test: impl Fn(&str) -> bool) -> bool {
    match claim {
        Value::String(text) => test(text),
        Value::Array(items) => items.iter().filter_map(Value::as_str).any(test),
        _ => false,
    }
}

/// Returns whether a claim is this text, or a list with it.
pub fn claim_has(claims: &Map<String, Value>, claim: &str, value: &str) -> bool {
    claim_of(claims, claim).is_some_and(|claim| any_text(claim, |text| text == value))
}

/// Returns the claim of this name, or at this path of names; `None` for one that is absent or null.
///
/// A claim that the provider left out for its size, and names in `_claim_names` instead, is absent.
pub(super) fn claim_of<'a>(claims: &'a Map<String, Value>, name: &str) -> Option<&'a Value> {
    let found = claims.get(name).or_else(|| {
        let (first, rest) = name.split_once('.')?;
        rest.split('.').try_fold(claims.get(first)?, |value, part| value.get(part))
    });
    found.filter(|value| !value.is_null())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn claims() -> Map<String, Value> {
        let claims = json!({
            "sub": "u1", "email": "ana@acme.example", "groups": ["eng", "ops", 7], "scope": "openid mcp:read",
            "level": 3, "vip": true, "gone": null, "realm_access": {"roles": ["gateway-admin"]},
            "https://acme.example/team": "red", "a.b": "flat", "a": {"b": "deep"},
        });
        claims.as_object().unwrap().clone()
    }

    fn condition(claim: &str, op: &str, value: Option<Value>) -> RuleCondition {
        RuleCondition { claim: claim.to_owned(), op: ConditionTest::parse(op).unwrap(), value }
    }

    #[test]
    fn conditions_on_claims() {
        for (claim, op, value, holds) in [
            ("email", "equals", Some(json!("ana@acme.example")), true),
            ("email", "equals", Some(json!("ANA@acme.example")), false),
            ("level", "equals", Some(json!(3)), true),
            ("level", "equals", Some(json!("3")), false),
            ("vip", "equals", Some(json!(true)), true),
            ("groups", "equals", Some(json!("eng")), false),
            ("missing", "equals", Some(json!("x")), false),
            ("groups", "any_of", Some(json!(["hr", "ops"])), true),
            ("groups", "any_of", Some(json!(["hr"])), false),
            ("sub", "any_of", Some(json!(["u1", "u2"])), true),
            ("level", "any_of", Some(json!(["3"])), false),
            ("groups", "contains", Some(json!("eng")), true),
            ("groups", "contains", Some(json!("en")), false),
            ("scope", "contains", Some(json!("mcp:read")), true),
            ("scope", "contains", Some(json!("mcp:rea")), false),
            ("realm_access", "contains", Some(json!("roles")), false),
            ("realm_access.roles", "contains", Some(json!("gateway-admin")), true),
            ("email", "glob", Some(json!("*@acme.example")), true),
            ("email", "glob", Some(json!("*@acme")), false),
            ("groups", "glob", Some(json!("o?s")), true),
            ("vip", "present", None, true),
            ("gone", "present", None, false),
            ("missing", "present", None, false),
            ("https://acme.example/team", "equals", Some(json!("red")), true),
            ("a.b", "equals", Some(json!("flat")), true),
            ("a.c", "present", None, false),
        ] {
            assert_eq!(condition(claim, op, value).holds(&claims()), holds, "{claim} {op}");
        }
    }

    #[test]
    fn the_first_rule_that_matches_counts() {
        let rule =
            |issuer: Option<&str>, conditions: Vec<RuleCondition>, role, settings: Value| IdentityRule {
                issuer: issuer.map(str::to_owned),
                conditions,
                role,
                settings: settings.as_object().unwrap().clone(),
            };
        let rules = [
            rule(Some("other"), vec![], Role::Auditor, json!({})),
            rule(None, vec![condition("groups", "contains", Some(json!("admins")))], Role::Admin, json!({})),
            rule(
                Some("acme"),
                vec![condition("vip", "present", None), condition("groups", "contains", Some(json!("eng")))],
                Role::Operator,
                json!({"max_operation": "write", "rate_limit": 7}),
            ),
            rule(None, vec![], Role::Agent, json!({})),
        ];
        let grant = IdentityRule::first_match(&rules, "acme", &claims()).unwrap();
        let ceilings = |grant: &RuleGrant| (grant.settings.max_operation, grant.scope_ceiling);
        assert_eq!((grant.role, grant.settings.rate_limit), (Role::Operator, Some(7)));
        assert_eq!(ceilings(&grant), (Some(OperationType::Write), Some(OperationType::Read)));
        // the scope mcp:read narrows the rule's ceiling
        assert_eq!(grant.within_scopes().settings.max_operation, Some(OperationType::Read));
        assert_eq!(IdentityRule::first_match(&rules, "other", &claims()).unwrap().role, Role::Auditor);
        let plain = json!({"sub": "u2", "scope": "openid"}).as_object().unwrap().clone();
        let grant = IdentityRule::first_match(&rules, "acme", &plain).unwrap();
        assert_eq!((grant.role, ceilings(&grant)), (Role::Agent, (None, None)));
        assert_eq!(grant.within_scopes().settings, Settings::default());
        assert_eq!(IdentityRule::first_match(&rules[..3], "acme", &plain), None);
        let broad = json!({"scp": ["mcp:read", "mcp:write"]}).as_object().unwrap().clone();
        let grant = IdentityRule::first_match(&rules, "acme", &broad).unwrap();
        assert_eq!(ceilings(&grant), (None, Some(OperationType::Write)));
        assert_eq!(grant.within_scopes().settings.max_operation, Some(OperationType::Write));
    }

    #[test]
    fn faults_are_named_by_their_path() {
        let good =
            json!({"conditions": [{"claim": "groups", "op": "contains", "value": "x"}], "role": "admin"});
        let read = |rule: Value| serde_json::from_value::<IdentityRule>(rule).unwrap();
        assert_eq!(IdentityRule::check_all(&[read(good.clone())]), Ok(()));
        let faulty = |path: &str, value: Value| {
            let mut rule = good.clone();
            *rule.pointer_mut(path).unwrap() = value;
            IdentityRule::check_all(&[read(good.clone()), read(rule)]).unwrap_err().path
        };
        for (path, value, named) in [
            ("/role", json!("platform"), "rules[1].role"),
            ("/conditions", json!([]), "rules[1].conditions"),
            ("/conditions/0/claim", json!(""), "rules[1].conditions[0].claim"),
            ("/conditions/0/op", json!("present"), "rules[1].conditions[0].value"),
            ("/conditions/0/op", json!("any_of"), "rules[1].conditions[0].value"),
            ("/conditions/0/value", json!(["x"]), "rules[1].conditions[0].value"),
            ("/conditions/0/value", json!("y".repeat(501)), "rules[1].conditions[0].value"),
        ] {
            assert_eq!(faulty(path, value), named);
        }
        let settings = json!({"role": "agent", "settings": {"rate_limit": 0}});
        assert_eq!(
            IdentityRule::check_all(&[read(settings)]).unwrap_err().path,
            "rules[0].settings.rate_limit"
        );
        let many = vec![read(json!({"role": "agent"})); RULES_MAX + 1];
        assert_eq!(IdentityRule::check_all(&many).unwrap_err().path, "rules");
        assert!(serde_json::from_value::<IdentityRule>(json!({"role": "agent", "roles": 1})).is_err());
    }
}
