//! Explanations of tokens and rules for administrators: every rule is looked at, where verification ends at the first
//! fault.
//!
//! The texts repeat what the token itself says, shortened, and of rules only the names of claims and operators.

use serde_json::{Map, Value};

use super::algorithm::{TokenFault, TokenType};
use super::audience::TokenReach;
use super::claims::{ClaimRules, shown};
use super::rules::{IdentityRule, RuleCondition, claim_of};
use super::token::{SplitToken, object};

/// Longest value of a token that is repeated, in characters.
const SHOWN_CHARS_MAX: usize = 120;
/// Most values of one claim that are repeated.
const SHOWN_VALUES_MAX: usize = 5;

/// Outcome of one rule for the claims of a token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClaimFinding {
    /// Name of the rule.
    pub check: &'static str,
    /// Fault by which the token is refused; `None` if the rule is kept.
    pub fault: Option<TokenFault>,
    /// Sentence with what was found and what was expected.
    pub says: String,
}

/// Person that a token names, verified or not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TokenHolder {
    /// Subject.
    pub subject: String,
    /// Name of the person, for display.
    pub owner: String,
    /// Time of issue, in seconds since 1970; `None` if the token does not say.
    pub issued_s: Option<i64>,
}

/// Returns the header of a token as text: `alg`, `typ` and `kid`; `None` if it cannot be read.
pub fn header_of(token: &str) -> Option<String> {
    let (header, _) = token.split_once('.')?;
    let (_, header) = object(header, "").ok()?;
    Some(["alg", "typ", "kid"].map(|name| format!("{name} {}", found(header.get(name)))).join(", "))
}

/// Returns a claim as it is shown: texts in quotes, shortened.
fn found(claim: Option<&Value>) -> String {
    match claim {
        None => "absent".to_owned(),
        Some(Value::String(text)) => quoted(text),
        Some(Value::Array(items)) => {
            let mut items: Vec<String> =
                items.iter().take(SHOWN_VALUES_MAX + 1).map(|item| found(Some(item))).collect();
            if items.len() > SHOWN_VALUES_MAX {
                items.truncate(SHOWN_VALUES_MAX);
                items.push("…".to_owned());
            }
            shown(&format!("[{}]", items.join(", ")))
        }
        Some(Value::Object(_)) => "an object".to_owned(),
        Some(other) => other.to_string(),
    }
}

fn quoted(text: &str) -> String {
    let line: String = text.chars().filter(|c| !c.is_control()).take(SHOWN_CHARS_MAX).collect();
    let more = if text.chars().count() > SHOWN_CHARS_MAX { "…" } else { "" };
    format!("'{line}{more}'")
}

/// Returns a time relative to now.
fn relative(at_s: i64, now_s: i64) -> String {
    match at_s.saturating_sub(now_s) {
        ahead if ahead > 0 => format!("in {ahead} s"),
        behind => format!("{} s ago", behind.saturating_neg()),
    }
}

impl SplitToken<'_> {
    /// Returns the claims, none of which is verified: only to explain the token.
    pub fn unverified_claims(&self) -> &Map<String, Value> {
        &self.claims
    }

    /// Returns the person that the token names, verified or not; `None` without a subject. Only to explain the token.
    pub fn unverified_holder(&self, rules: &ClaimRules<'_>) -> Option<TokenHolder> {
        let subject = self.subject(rules).ok()?.to_owned();
        let owner = self.owner(rules).unwrap_or_else(|| shown(&subject));
        let issued_s = self.begun("iat", rules, i64::MAX / 2).ok().flatten();
        Some(TokenHolder { subject, owner, issued_s })
    }

    /// Returns the outcome of every rule of [`SplitToken::check_claims`], at `now_s` seconds since 1970.
    pub fn explain_claims(&self, rules: &ClaimRules<'_>, now_s: i64) -> Vec<ClaimFinding> {
        let finding = |check, outcome: Result<String, TokenFault>, otherwise: String| match outcome {
            Ok(says) => ClaimFinding { check, fault: None, says },
            Err(fault) => ClaimFinding { check, fault: Some(fault), says: format!("{fault}: {otherwise}") },
        };
        let claim = |name: &str| found(self.claims.get(name));
        let leeway = format!("clocks may differ by {} s", rules.leeway_s);
        let exp = self.unexpired(rules, now_s).and_then(|()| self.expiry());
        let ends = self.expiry().map_or_else(|_| claim("exp"), |at| relative(at, now_s));
        let begins = |name: &'static str| {
            let begun = self.begun(name, rules, now_s);
            let at = begun.map(|at| at.map_or("absent, not needed".to_owned(), |at| relative(at, now_s)));
            let ahead = self.begun(name, rules, i64::MAX / 2).ok().flatten();
            let otherwise = ahead.map_or_else(|| claim(name), |at| relative(at, now_s));
            finding(name, at, format!("{otherwise}; {leeway}"))
        };
        let lifetime_max = format!("at most {} s (identity.token_lifetime_max_s)", rules.lifetime_max_s);
        let lifetime = self.lifetime(rules, now_s).map(|lifetime| format!("{lifetime} s, {lifetime_max}"));
        let subject = format!("the claim {} is {}", rules.subject_claim, claim(rules.subject_claim));
        vec![
            finding("iss", self.issued_by(rules).map(|()| claim("iss")), self.other_issuer(rules)),
            finding(
                "kind",
                self.is_access(rules).map(|()| "an access token".to_owned()),
                self.other_kind(rules),
            ),
            finding("exp", exp.map(|_| ends.clone()), format!("{ends}; {leeway}")),
            begins("nbf"),
            begins("iat"),
            finding("lifetime", lifetime, lifetime_max),
            finding(
                "aud",
                self.reach(rules).map(|reach| self.fitting_audience(reach)),
                self.other_audience(rules),
            ),
            finding("subject", self.subject(rules).map(|_| subject.clone()), subject),
        ]
    }

    fn other_issuer(&self, rules: &ClaimRules<'_>) -> String {
        let (iss, expected) = (self.claims.get("iss"), rules.issuer);
        let is_slash = |iss: &str| iss.trim_end_matches('/') == expected.trim_end_matches('/');
        let slash = match iss.and_then(Value::as_str).is_some_and(is_slash) {
            true => "; they differ in the slash at the end",
            false => "",
        };
        format!("{}, expected {} byte by byte{slash}", found(iss), quoted(expected))
    }

    /// Returns which kinds are accepted, or which claims say that the token is of another kind.
    fn other_kind(&self, rules: &ClaimRules<'_>) -> String {
        let has = |kinds: &&[TokenType]| !self.token_type.is_some_and(|kind| kinds.contains(&kind));
        if let Some(kinds) = rules.token_types.filter(has) {
            let kinds: Vec<&str> = kinds.iter().map(|kind| kind.as_str()).collect();
            return format!("the entry accepts {} alone", kinds.join(", "));
        }
        let names = ["nonce", "at_hash", "c_hash", "events", "typ", "token_use"];
        let has: Vec<&str> = names.into_iter().filter(|name| self.claims.contains_key(*name)).collect();
        format!("an access token was expected, and this one has {}", has.join(", "))
    }

    fn fitting_audience(&self, reach: TokenReach) -> String {
        let audience = match self.claims.get("aud") {
            None => "absent; the client is among the issuer's audiences".to_owned(),
            some => found(some),
        };
        match reach {
            TokenReach::Gateway => audience,
            TokenReach::Mcp => format!("{audience}: opens MCP alone, never REST"),
        }
    }

    fn other_audience(&self, rules: &ClaimRules<'_>) -> String {
        let accepted: Vec<String> =
            rules.audiences.accepted().take(SHOWN_VALUES_MAX + 1).map(quoted).collect();
        let expected = format!("expected one of {}", accepted.join(", "));
        match self.claims.get("aud") {
            None => {
                format!("absent, and so azp or client_id must be among the issuer's audiences; {expected}")
            }
            some => format!("{}, {expected}", found(some)),
        }
    }
}

impl IdentityRule {
    /// Returns what keeps the rule from people with these claims of an issuer, a text for each obstacle.
    /// The texts have names of claims and operators, and no value.
    pub fn misses(&self, issuer: &str, claims: &Map<String, Value>) -> Vec<String> {
        let other = self.issuer.as_deref().is_some_and(|own| own != issuer);
        let other = other.then(|| "it is for another issuer".to_owned());
        let missed = self.conditions.iter().filter(|condition| !condition.holds(claims));
        other.into_iter().chain(missed.map(|condition| condition.miss(claims))).collect()
    }
}

impl RuleCondition {
    fn miss(&self, claims: &Map<String, Value>) -> String {
        let left_out = claims.get("_claim_names").and_then(|names| names.get(&self.claim));
        let why = match claim_of(claims, &self.claim) {
            Some(_) => "the claim has another value",
            None if left_out.is_some() => "the provider left the claim out (_claim_names)",
            None => "the claim is absent",
        };
        format!("{} {}: {why}", quoted(&self.claim), self.op.as_str())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::fixtures::TestKey;
    use super::super::{Audiences, PublicUrl};
    use super::*;

    const NOW: i64 = 1_700_000_000;

    fn faults(token: &str) -> Vec<(&'static str, String)> {
        let audiences = Audiences::new(&[PublicUrl::new("https://gw.example")], &["client-7".to_owned()]);
        let rules = ClaimRules {
            issuer: "https://idp.example",
            token_types: None,
            audiences: &audiences,
            subject_claim: "sub",
            owner_claim: None,
            leeway_s: 60,
            lifetime_max_s: 86_400,
        };
        let split = SplitToken::read(token).unwrap();
        let findings = split.explain_claims(&rules, NOW);
        let order = ["iss", "kind", "exp", "nbf", "iat", "lifetime", "aud", "subject"];
        assert_eq!(findings.iter().map(|finding| finding.check).collect::<Vec<_>>(), order);
        let bad = findings.into_iter().filter(|finding| finding.fault.is_some());
        let bad: Vec<_> = bad.map(|finding| (finding.check, finding.says)).collect();
        // explanation and verification agree
        assert_eq!(bad.is_empty(), split.check_claims(&rules, [0; 32], NOW).is_ok(), "{bad:?}");
        bad
    }

    #[test]
    fn every_rule_is_explained() {
        let key = TestKey::p256("a");
        let good = json!({"iss": "https://idp.example", "aud": "https://gw.example", "sub": "u1", "iat": NOW,
            "exp": NOW + 600});
        assert!(faults(&key.token(&good)).is_empty());
        for (name, value, check, says) in [
            ("iss", json!("https://idp.example/"), "iss", "they differ in the slash at the end"),
            ("iss", json!(["https://idp.example"]), "iss", "['https://idp.example'], expected"),
            ("exp", json!(NOW - 90), "exp", "expired: 90 s ago; clocks may differ by 60 s"),
            ("nbf", json!(NOW + 90), "nbf", "in 90 s; clocks may differ by 60 s"),
            ("iat", json!(NOW + 90), "iat", "in 90 s"),
            ("exp", json!(NOW + 90_000), "lifetime", "at most 86400 s"),
            ("aud", json!("x"), "aud", "'x', expected one of 'https://gw.example'"),
            ("sub", json!(7), "subject", "the claim sub is 7"),
        ] {
            let mut claims = good.clone();
            claims[name] = value;
            let found = faults(&key.token(&claims));
            assert!(
                found.len() == 1 && found[0].0 == check && found[0].1.contains(says),
                "{name}: {found:?}"
            );
        }
        let nothing = faults(&key.token(&json!({})));
        let bad: Vec<&str> = nothing.iter().map(|(check, _)| *check).collect();
        assert_eq!(bad, ["iss", "exp", "lifetime", "aud", "subject"]);
        let mut id_token = good;
        id_token["nonce"] = json!("n");
        let found = faults(&key.sign(r#"{"alg":"ES256"}"#, &id_token.to_string()));
        assert!(found[0].0 == "kind" && found[0].1.ends_with("this one has nonce"), "{found:?}");
    }

    #[test]
    fn long_values_are_shortened() {
        let long = "x".repeat(5000);
        let key = TestKey::p256("a");
        let claims = json!({"iss": long, "aud": vec![long.clone(); 100], "sub": long, "exp": long});
        let found = faults(&key.token(&claims));
        assert!(found.iter().all(|(_, says)| says.chars().count() < 700), "{found:?}");
    }

    #[test]
    fn headers_are_shown_whatever_they_say() {
        let key = TestKey::p256("a");
        let shown = |header: &str| header_of(&key.sign(header, "{}"));
        let hmac = shown(r#"{"alg":"HS256","typ":7}"#);
        assert_eq!(hmac.as_deref(), Some("alg 'HS256', typ 7, kid absent"));
        assert_eq!((shown("[]"), header_of("a.b.c"), header_of("")), (None, None, None));
    }

    #[test]
    fn a_rule_names_what_it_misses_and_no_value() {
        let rule: IdentityRule = serde_json::from_value(json!({"issuer": "acme", "role": "admin", "conditions": [
            {"claim": "groups", "op": "contains", "value": "secret-group"},
            {"claim": "vip", "op": "present"}, {"claim": "many", "op": "any_of", "value": ["secret-group"]},
            {"claim": "sub", "op": "equals", "value": "u1"},
        ]}))
        .unwrap();
        let claims = json!({"sub": "u1", "groups": ["x"], "_claim_names": {"many": "src1"}});
        let claims = claims.as_object().unwrap();
        let missed = rule.misses("other", claims);
        let expected = [
            "it is for another issuer",
            "'groups' contains: the claim has another value",
            "'vip' present: the claim is absent",
            "'many' any_of: the provider left the claim out (_claim_names)",
        ];
        assert_eq!(missed, expected);
        let whole = json!({"sub": "u1", "groups": ["secret-group"], "vip": 1, "many": "secret-group"});
        assert!(rule.misses("acme", whole.as_object().unwrap()).is_empty());
    }
}
