//! Claims of a token whose signature is good.

use serde_json::{Map, Value};

use super::algorithm::{TokenAlgorithm, TokenFault, TokenType};
use super::audience::{Audiences, TokenReach};
use super::jwks::{KeyDigest, KeySet};
use super::token::SplitToken;

/// Longest subject, in bytes.
pub(super) const SUBJECT_BYTES_MAX: usize = 255;
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
    /// Kinds of tokens that are accepted; `None` for all, and for tokens that do not say theirs.
    pub token_types: Option<&'a [TokenType]>,
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
    /// All claims, as the JSON that the token holds: decoded, small objects would take many times its bytes.
    pub(super) payload: Box<str>,
    pub(super) algorithm: TokenAlgorithm,
    pub(super) token_type: Option<TokenType>,
    /// True for an ID token, which counts once: for the login that it was issued for.
    pub(super) is_login: bool,
    /// Digest of the key that signed the token.
    pub(super) key: KeyDigest,
}

impl VerifiedToken {
    /// Returns all claims.
    pub fn claims(&self) -> Map<String, Value> {
        // read once before, when it was verified
        serde_json::from_str(&self.payload).unwrap_or_default()
    }

    /// Returns whether the token would be verified by these keys, algorithms and rules as well, with the same subject and reach. The
    /// token's end is not looked at. Of an ID token, issuer and subject alone are: its key and audience counted when its login ended.
    pub fn is_verified_by(&self, keys: &KeySet, allowed: &[TokenAlgorithm], rules: &ClaimRules<'_>) -> bool {
        if self.is_login {
            let read = SplitToken::read_before(self.algorithm, self.token_type, self.claims());
            return read.issued_by(rules).is_ok() && read.subject(rules) == Ok(self.subject.as_str());
        }
        let before_its_end = self.expires_s.saturating_sub(1);
        let read = || SplitToken::read_before(self.algorithm, self.token_type, self.claims());
        let checked = || read().check_claims(rules, self.key, before_its_end);
        allowed.contains(&self.algorithm)
            && keys.has(&self.key)
            && checked()
                .is_ok_and(|(checked, _)| checked.subject == self.subject && checked.reach == self.reach)
    }
}

impl SplitToken<'_> {
    /// Checks the claims of a token whose signature was found good, at `now_s` seconds since 1970. Returns the claims beside the
    /// token, which keeps their text alone.
    ///
    /// # Errors
    /// [`TokenFault`], by the reason.
    pub fn check_claims(
        self,
        rules: &ClaimRules<'_>,
        key: KeyDigest,
        now_s: i64,
    ) -> Result<(VerifiedToken, Map<String, Value>), TokenFault> {
        self.issued_by(rules)?;
        self.is_access(rules)?;
        let expires_s = self.expiry()?;
        let issued_s = self.begun("iat", rules, now_s)?;
        self.begun("nbf", rules, now_s)?;
        self.lifetime(rules, now_s)?;
        let reach = self.reach(rules)?;
        self.unexpired(rules, now_s)?;
        let subject = self.subject(rules)?.to_owned();
        let owner = self.owner(rules).unwrap_or_else(|| shown(&subject));
        let email = shown_email(&self.claims);
        let (algorithm, token_type) = (self.algorithm, self.token_type);
        let payload = self.payload.into();
        let token = VerifiedToken {
            subject,
            owner,
            email,
            expires_s,
            issued_s,
            reach,
            payload,
            algorithm,
            token_type,
            is_login: false,
            key,
        };
        Ok((token, self.claims))
    }

    /// Checks that the token names the very issuer.
    pub(super) fn issued_by(&self, rules: &ClaimRules<'_>) -> Result<(), TokenFault> {
        let is_same = self.unverified_issuer()? == rules.issuer;
        is_same.then_some(()).ok_or(TokenFault::Unverifiable("iss is another issuer"))
    }

    /// Checks that the token is of an accepted kind, and does not say of itself that it is no access token.
    pub(super) fn is_access(&self, rules: &ClaimRules<'_>) -> Result<(), TokenFault> {
        let has = |kinds: &[TokenType]| self.token_type.is_some_and(|kind| kinds.contains(&kind));
        if !rules.token_types.is_none_or(has) {
            return Err(TokenFault::Unverifiable("the header's typ is not among the issuer's token_types"));
        }
        let is_other = self.token_type != Some(TokenType::AccessToken) && is_other_token(&self.claims);
        let fault = TokenFault::Unverifiable("an ID token, a refresh token or a logout token");
        if is_other { Err(fault) } else { Ok(()) }
    }

    /// Returns the end of the token, in seconds since 1970.
    pub(super) fn expiry(&self) -> Result<i64, TokenFault> {
        time(&self.claims, "exp")?.ok_or(TokenFault::Unverifiable("exp is missing"))
    }

    /// Returns `iat` or `nbf`, which must not be in the future; `None` if the token does not have it.
    pub(super) fn begun(
        &self,
        name: &str,
        rules: &ClaimRules<'_>,
        now_s: i64,
    ) -> Result<Option<i64>, TokenFault> {
        let at = time(&self.claims, name)?;
        if at.is_some_and(|at| at > now_s + rules.leeway_s) {
            return Err(TokenFault::Unverifiable("iat or nbf is in the future"));
        }
        Ok(at)
    }

    /// Returns the lifetime of the token in seconds, from its issue, or from now if it does not say.
    pub(super) fn lifetime(&self, rules: &ClaimRules<'_>, now_s: i64) -> Result<i64, TokenFault> {
        let issued_s = time(&self.claims, "iat")?;
        let lifetime_s = self.expiry()?.saturating_sub(issued_s.unwrap_or(now_s));
        if lifetime_s > rules.lifetime_max_s {
            return Err(TokenFault::Unverifiable("the lifetime exceeds identity.token_lifetime_max_s"));
        }
        Ok(lifetime_s)
    }

    /// Checks that the token has not expired.
    pub(super) fn unexpired(&self, rules: &ClaimRules<'_>, now_s: i64) -> Result<(), TokenFault> {
        let is_over = self.expiry()?.saturating_add(rules.leeway_s) <= now_s;
        if is_over { Err(TokenFault::Expired) } else { Ok(()) }
    }

    /// Returns the reach of the token, by its audience.
    pub(super) fn reach(&self, rules: &ClaimRules<'_>) -> Result<TokenReach, TokenFault> {
        self.reach_by(rules.audiences).ok_or(TokenFault::Audience)
    }

    /// Returns whether the token is for one of these audiences.
    pub(super) fn is_for(&self, audiences: &Audiences) -> bool {
        self.reach_by(audiences).is_some()
    }

    fn reach_by(&self, audiences: &Audiences) -> Option<TokenReach> {
        let client = text(&self.claims, "azp").or_else(|| text(&self.claims, "client_id"));
        audiences.reach(self.claims.get("aud"), client)
    }

    /// Returns the subject.
    pub(super) fn subject(&self, rules: &ClaimRules<'_>) -> Result<&str, TokenFault> {
        text(&self.claims, rules.subject_claim)
            .filter(|subject| is_subject(subject))
            .ok_or(TokenFault::Unverifiable("the subject is missing or too long"))
    }

    /// Returns the name of the person for display; `None` if the token has none.
    pub(super) fn owner(&self, rules: &ClaimRules<'_>) -> Option<String> {
        owner(&self.claims, rules.owner_claim)
    }
}

/// Returns whether a text can be the subject of a token: 1 to 255 bytes without control characters.
pub fn is_subject(text: &str) -> bool {
    !text.is_empty() && text.len() <= SUBJECT_BYTES_MAX && !text.chars().any(char::is_control)
}

fn text<'a>(claims: &'a Map<String, Value>, name: &str) -> Option<&'a str> {
    claims.get(name).and_then(Value::as_str)
}

/// Returns the e-mail address for display; `None` without one.
pub(super) fn shown_email(claims: &Map<String, Value>) -> Option<String> {
    text(claims, "email").map(shown).filter(|email| !email.is_empty())
}

/// Returns a time in whole seconds; a fraction counts as the second before.
pub(super) fn time(claims: &Map<String, Value>, name: &str) -> Result<Option<i64>, TokenFault> {
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
pub(super) fn shown(text: &str) -> String {
    let line: String = text.chars().filter(|c| !c.is_control()).take(OWNER_CHARS_MAX).collect();
    line.trim().to_owned()
}
