//! Claims of a token whose signature is good.

use serde_json::{Map, Value};

use super::algorithm::TokenFault;
use super::audience::{Audiences, TokenReach};
use super::token::SplitToken;

/// Longest subject, in bytes.
const SUBJECT_BYTES_MAX: usize = 255;
/// Longest owner that is shown, in characters.
const OWNER_CHARS_MAX: usize = 200;
/// Claims that name the owner where the issuer's entry names none; the first that a token has counts.
const OWNER_CLAIMS: [&str; 4] = ["email", "preferred_username", "name", "sub"];
/// Latest time that a token may name, in seconds since 1970: the year 9999.
const TIME_MAX: f64 = 253_402_300_799.0;

/// Rules for the claims of an issuer's tokens.
#[derive(Clone, Debug)]
pub struct ClaimRules<'a> {
    /// Issuer, compared byte by byte.
    pub issuer: &'a str,
    /// Audiences that are accepted.
    pub audiences: &'a Audiences,
    /// Claim that identifies the person.
    pub subject_claim: &'a str,
    /// Claim that names the person for display; `None` for the usual ones.
    pub owner_claim: Option<&'a str>,
    /// Tolerated difference of clocks, in seconds.
    pub leeway_s: i64,
    /// Longest lifetime of a token, in seconds.
    pub lifetime_max_s: i64,
}

/// Token whose signature and claims were verified.
#[derive(Clone, Debug, PartialEq)]
pub struct VerifiedToken {
    /// Subject: identifies the person at the issuer.
    pub subject: String,
    /// Name of the person, for display.
    pub owner: String,
    /// E-mail address of the person; `None` without one.
    pub email: Option<String>,
    /// End of the token, in seconds since 1970.
    pub expires_s: i64,
    /// Time of issue, in seconds since 1970; `None` if the token does not say.
    pub issued_s: Option<i64>,
    /// Reach of the token, by its audience.
    pub reach: TokenReach,
    /// All claims.
    pub claims: Map<String, Value>,
}

impl SplitToken<'_> {
    /// Checks the claims of a token whose signature was found good, at `now_s` seconds since 1970.
    ///
    /// # Errors
    /// [`TokenFault`], by the reason.
    pub fn check_claims(self, rules: &ClaimRules<'_>, now_s: i64) -> Result<VerifiedToken, TokenFault> {
        if self.unverified_issuer()? != rules.issuer {
            return Err(TokenFault::Unverifiable("iss is another issuer"));
        }
        if !self.is_access_token && is_other_token(&self.claims) {
            return Err(TokenFault::Unverifiable("an ID token, a refresh token or a logout token"));
        }
        let expires_s = time(&self.claims, "exp")?.ok_or(TokenFault::Unverifiable("exp is missing"))?;
        let (issued_s, not_before_s) = (time(&self.claims, "iat")?, time(&self.claims, "nbf")?);
        let latest = now_s + rules.leeway_s;
        if [issued_s, not_before_s].into_iter().flatten().any(|at| at > latest) {
            return Err(TokenFault::Unverifiable("iat or nbf is in the future"));
        }
        if expires_s.saturating_sub(issued_s.unwrap_or(now_s)) > rules.lifetime_max_s {
            return Err(TokenFault::Unverifiable("the lifetime exceeds identity.token_lifetime_max_s"));
        }
        let reach = self.reach(rules)?;
        if expires_s.saturating_add(rules.leeway_s) <= now_s {
            return Err(TokenFault::Expired);
        }
        let subject = text(&self.claims, rules.subject_claim)
            .filter(|subject| !subject.is_empty() && subject.len() <= SUBJECT_BYTES_MAX)
            .filter(|subject| !subject.chars().any(char::is_control))
            .ok_or(TokenFault::Unverifiable("the subject is missing or too long"))?
            .to_owned();
        let owner = owner(&self.claims, rules.owner_claim).unwrap_or_else(|| shown(&subject));
        let email = text(&self.claims, "email").map(shown).filter(|email| !email.is_empty());
        Ok(VerifiedToken { subject, owner, email, expires_s, issued_s, reach, claims: self.claims })
    }

    fn reach(&self, rules: &ClaimRules<'_>) -> Result<TokenReach, TokenFault> {
        let client = text(&self.claims, "azp").or_else(|| text(&self.claims, "client_id"));
        rules.audiences.reach(self.claims.get("aud"), client).ok_or(TokenFault::Audience)
    }
}

fn text<'a>(claims: &'a Map<String, Value>, name: &str) -> Option<&'a str> {
    claims.get(name).and_then(Value::as_str)
}

/// Returns a time in whole seconds; a fraction counts as the second before.
fn time(claims: &Map<String, Value>, name: &str) -> Result<Option<i64>, TokenFault> {
    let Some(value) = claims.get(name) else { return Ok(None) };
    let seconds = value.as_f64().filter(|seconds| (0.0..=TIME_MAX).contains(seconds));
    let seconds = seconds.ok_or(TokenFault::Unverifiable("exp, iat or nbf is no number of seconds"))?;
    Ok(Some(seconds as i64))
}

/// Returns whether a token says of itself that it is no access token. Headers of ID tokens are those of older access tokens;
/// what differs are claims of OpenID Connect (`nonce` and the hashes), of its logout tokens (`events`), and those of Keycloak
/// (`typ`) and Cognito (`token_use`).
fn is_other_token(claims: &Map<String, Value>) -> bool {
    ["nonce", "at_hash", "c_hash", "events"].iter().any(|name| claims.contains_key(*name))
        || claims.get("typ").is_some_and(|typ| typ != "Bearer")
        || claims.get("token_use").is_some_and(|purpose| purpose != "access")
}

fn owner(claims: &Map<String, Value>, claim: Option<&str>) -> Option<String> {
    let named = |name: &str| text(claims, name).map(shown).filter(|owner| !owner.is_empty());
    match claim {
        Some(name) => named(name),
        None => OWNER_CLAIMS.into_iter().find_map(named),
    }
}

/// Returns a text for display: bounded, on one line.
fn shown(text: &str) -> String {
    let line: String = text.chars().filter(|c| !c.is_control()).take(OWNER_CHARS_MAX).collect();
    line.trim().to_owned()
}
