//! Tokens of OpenID Connect that a login by browser brings: ID tokens, and the provider's notices of a logout.

use serde_json::{Map, Value};

use super::algorithm::{TokenAlgorithm, TokenFault};
use super::audience::TokenReach;
use super::claims::{ClaimRules, SUBJECT_BYTES_MAX, VerifiedToken, shown, shown_email, time};
use super::jwks::KeyDigest;
use super::token::{SplitToken, object};

/// Event of a logout, as a member of `events` (OpenID Connect Back-Channel Logout 1.0).
const LOGOUT_EVENT: &str = "http://schemas.openid.net/event/backchannel-logout";
/// Oldest notice of a logout that is accepted, in seconds.
const NOTICE_AGE_MAX_S: i64 = 300;

/// Rules for an ID token, besides those for the claims of its issuer.
#[derive(Clone, Copy, Debug)]
pub struct LoginRules<'a> {
    /// Client id of the gateway at the provider.
    pub client_id: &'a str,
    /// Random text that the login was begun with.
    pub nonce: &'a str,
}

/// Holder of an ID token that was verified.
#[derive(Clone, Debug, PartialEq)]
pub struct LoginClaims {
    /// Person, as a verified token names one.
    pub token: VerifiedToken,
    /// Claim `sub`: the person, for the provider's notices of a logout.
    pub sub: String,
    /// Claim `sid`: the provider's session; `None` if it names none.
    pub sid: Option<String>,
}

/// Notice of a provider that a session there, or all of a person, has ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogoutNotice {
    /// Claim `sub` of the person; `None` for a session alone.
    pub sub: Option<String>,
    /// Claim `sid` of the session; `None` for all of the person.
    pub sid: Option<String>,
    /// Time of issue, in seconds since 1970.
    pub issued_s: i64,
}

impl SplitToken<'_> {
    /// Checks the claims of an ID token whose signature was found good, at `now_s` seconds since 1970.
    ///
    /// # Errors
    /// [`TokenFault`], by the reason.
    pub fn check_login(
        self,
        rules: &ClaimRules<'_>,
        login: LoginRules<'_>,
        key: KeyDigest,
        now_s: i64,
    ) -> Result<LoginClaims, TokenFault> {
        self.issued_by(rules)?;
        let expires_s = self.expiry()?;
        let issued_s = self.begun("iat", rules, now_s)?;
        issued_s.ok_or(TokenFault::Unverifiable("iat is missing"))?;
        self.begun("nbf", rules, now_s)?;
        self.lifetime(rules, now_s)?;
        for_client(&self.claims, login.client_id)?;
        self.unexpired(rules, now_s)?;
        if self.claims.get("nonce").and_then(Value::as_str) != Some(login.nonce) {
            return Err(TokenFault::Unverifiable("nonce is another login's"));
        }
        if self.claims.contains_key("events") {
            return Err(TokenFault::Unverifiable("a logout token"));
        }
        let sub = text(&self.claims, "sub").ok_or(TokenFault::Unverifiable("sub is missing"))?;
        let sid = text(&self.claims, "sid");
        let token = VerifiedToken::of_login(self, rules, key, expires_s)?;
        Ok(LoginClaims { token, sub, sid })
    }

    /// Checks the claims of a notice of a logout whose signature was found good, at `now_s` seconds since 1970.
    ///
    /// # Errors
    /// [`TokenFault`], by the reason.
    pub fn check_logout(
        &self,
        rules: &ClaimRules<'_>,
        client_id: &str,
        now_s: i64,
    ) -> Result<LogoutNotice, TokenFault> {
        self.issued_by(rules)?;
        let issued_s = self.begun("iat", rules, now_s)?;
        let issued_s = issued_s.ok_or(TokenFault::Unverifiable("iat is missing"))?;
        if issued_s + NOTICE_AGE_MAX_S < now_s {
            return Err(TokenFault::Expired);
        }
        if time(&self.claims, "exp")?.is_some_and(|at| at.saturating_add(rules.leeway_s) <= now_s) {
            return Err(TokenFault::Expired);
        }
        for_client(&self.claims, client_id)?;
        let event = self.claims.get("events").and_then(|events| events.get(LOGOUT_EVENT));
        if !event.is_some_and(Value::is_object) {
            return Err(TokenFault::Unverifiable("events names no logout"));
        }
        if self.claims.contains_key("nonce") {
            return Err(TokenFault::Unverifiable("a notice of a logout with nonce"));
        }
        text(&self.claims, "jti").ok_or(TokenFault::Unverifiable("jti is missing"))?;
        let notice =
            LogoutNotice { sub: text(&self.claims, "sub"), sid: text(&self.claims, "sid"), issued_s };
        match (&notice.sub, &notice.sid) {
            (None, None) => Err(TokenFault::Unverifiable("neither sub nor sid")),
            _ => Ok(notice),
        }
    }
}

impl VerifiedToken {
    fn of_login(
        split: SplitToken<'_>,
        rules: &ClaimRules<'_>,
        key: KeyDigest,
        expires_s: i64,
    ) -> Result<VerifiedToken, TokenFault> {
        let subject = split.subject(rules)?.to_owned();
        let owner = split.owner(rules).unwrap_or_else(|| shown(&subject));
        Ok(VerifiedToken {
            owner,
            email: shown_email(&split.claims),
            expires_s,
            issued_s: time(&split.claims, "iat")?,
            reach: TokenReach::Gateway,
            payload: split.payload.into(),
            algorithm: split.algorithm,
            token_type: split.token_type,
            is_login: true,
            key,
            subject,
        })
    }

    /// Returns the person of an ID token that was verified when a session began, by the claims that its issuer's entry names now. The
    /// session ends at `ends_s` seconds since 1970, whenever the token did.
    ///
    /// # Errors
    /// [`TokenFault`] if the token is of another issuer, or has no subject by now.
    pub fn of_session(
        id_token: &str,
        rules: &ClaimRules<'_>,
        ends_s: i64,
    ) -> Result<VerifiedToken, TokenFault> {
        let payload = id_token.split('.').nth(1).ok_or(TokenFault::Unverifiable("not a token"))?;
        let (payload, claims) = object(payload, "the payload is no JSON object with one reading")?;
        let split = SplitToken::read_before(TokenAlgorithm::Es256, None, claims).with_payload(payload);
        split.issued_by(rules)?;
        VerifiedToken::of_login(split, rules, [0; 32], ends_s)
    }
}

/// Checks that a token is for this client, and for nobody else without naming it (OpenID Connect Core, section 3.1.3.7).
fn for_client(claims: &Map<String, Value>, client_id: &str) -> Result<(), TokenFault> {
    let is_named = match claims.get("aud") {
        Some(Value::String(aud)) => aud == client_id,
        Some(Value::Array(auds)) => {
            let named = auds.iter().any(|aud| aud.as_str() == Some(client_id));
            named && (auds.len() == 1 || claims.contains_key("azp"))
        }
        _ => false,
    };
    let is_party = claims.get("azp").is_none_or(|azp| azp.as_str() == Some(client_id));
    if is_named && is_party { Ok(()) } else { Err(TokenFault::Audience) }
}

fn text(claims: &Map<String, Value>, name: &str) -> Option<String> {
    let text = claims.get(name).and_then(Value::as_str)?;
    Some(text.to_owned()).filter(|text| !text.is_empty() && text.len() <= SUBJECT_BYTES_MAX)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::domain::identity::Audiences;

    const NOW: i64 = 1_800_000_000;

    fn split(claims: Value) -> SplitToken<'static> {
        let Value::Object(claims) = claims else { panic!("claims are an object") };
        let payload = serde_json::to_string(&claims).unwrap();
        SplitToken::read_before(TokenAlgorithm::Es256, None, claims).with_payload(payload)
    }

    fn with(mut claims: Value, change: &Value) -> Value {
        claims.as_object_mut().unwrap().extend(change.as_object().unwrap().clone());
        claims.as_object_mut().unwrap().retain(|_, value| !value.is_null());
        claims
    }

    fn rules(audiences: &Audiences) -> ClaimRules<'_> {
        ClaimRules {
            issuer: "https://idp.example",
            token_types: None,
            audiences,
            subject_claim: "oid",
            owner_claim: None,
            leeway_s: 60,
            lifetime_max_s: 3600,
        }
    }

    #[test]
    fn an_id_token_is_for_one_login_of_one_client() {
        let claims = json!({
            "iss": "https://idp.example", "sub": "s1", "oid": "o1", "aud": "client", "nonce": "n", "sid": "at-1",
            "iat": NOW, "exp": NOW + 300, "email": "ana@acme.example",
        });
        let audiences = Audiences::default();
        let rules = rules(&audiences);
        let check = |change: Value| {
            let login = LoginRules { client_id: "client", nonce: "n" };
            split(with(claims.clone(), &change)).check_login(&rules, login, [1; 32], NOW)
        };
        let good = check(json!({})).unwrap();
        assert_eq!((good.sub.as_str(), good.sid.as_deref()), ("s1", Some("at-1")));
        let token = &good.token;
        assert_eq!((token.subject.as_str(), token.owner.as_str()), ("o1", "ana@acme.example"));
        for fine in [json!({"aud": ["client"]}), json!({"aud": ["client", "x"], "azp": "client"})] {
            assert!(check(fine.clone()).is_ok(), "{fine}");
        }
        for (change, fault) in [
            (json!({"aud": "x"}), TokenFault::Audience),
            (json!({"aud": ["client", "x"]}), TokenFault::Audience),
            (json!({"aud": ["client", "x"], "azp": "x"}), TokenFault::Audience),
            (json!({"azp": "x"}), TokenFault::Audience),
            (json!({"aud": null, "azp": "client"}), TokenFault::Audience),
            (json!({"exp": NOW - 60}), TokenFault::Expired),
        ] {
            assert_eq!(check(change.clone()).unwrap_err(), fault, "{change}");
        }
        for change in [
            json!({"nonce": "m"}),
            json!({"nonce": null}),
            json!({"iss": "https://idp.example/"}),
            json!({"iat": null}),
            json!({"iat": NOW + 61}),
            json!({"exp": NOW + 4000}),
            json!({"sub": null}),
            json!({"oid": null}),
            json!({"events": {}}),
        ] {
            assert!(matches!(check(change.clone()), Err(TokenFault::Unverifiable(_))), "{change}");
        }
    }

    #[test]
    fn a_session_takes_the_claims_that_the_entry_names_now() {
        let audiences = Audiences::default();
        let mut rules = rules(&audiences);
        let payload =
            json!({"iss": "https://idp.example", "sub": "s1", "oid": "o1", "name": "Ana", "iat": NOW});
        let encoded = base64::Engine::encode(
            &base64::engine::general_purpose::URL_SAFE_NO_PAD,
            payload.to_string().as_bytes(),
        );
        let id_token = format!("h.{encoded}.s");
        let person = VerifiedToken::of_session(&id_token, &rules, NOW + 5).unwrap();
        let found = (person.subject.as_str(), person.owner.as_str(), person.issued_s, person.expires_s);
        assert_eq!(found, ("o1", "Ana", Some(NOW), NOW + 5));
        rules.subject_claim = "sub";
        assert_eq!(VerifiedToken::of_session(&id_token, &rules, NOW).unwrap().subject, "s1");
        rules.issuer = "https://other.example";
        assert!(VerifiedToken::of_session(&id_token, &rules, NOW).is_err());
        assert!(VerifiedToken::of_session("h", &rules, NOW).is_err());
    }

    #[test]
    fn a_notice_names_a_logout_and_nothing_else() {
        let claims = json!({
            "iss": "https://idp.example", "sub": "s1", "aud": "client", "iat": NOW, "jti": "j",
            "events": {LOGOUT_EVENT: {}},
        });
        let audiences = Audiences::default();
        let rules = rules(&audiences);
        let check = |change: Value| split(with(claims.clone(), &change)).check_logout(&rules, "client", NOW);
        let notice = check(json!({"sid": "x"})).unwrap();
        assert_eq!(notice, LogoutNotice { sub: Some("s1".into()), sid: Some("x".into()), issued_s: NOW });
        assert!(check(json!({"sub": null, "sid": "x"})).is_ok());
        for change in [
            json!({"sub": null}),
            json!({"nonce": "n"}),
            json!({"jti": null}),
            json!({"iat": null}),
            json!({"iat": NOW - 301}),
            json!({"exp": NOW - 60}),
            json!({"aud": "x"}),
            json!({"iss": "https://idp.example/"}),
            json!({"events": null}),
            json!({"events": {LOGOUT_EVENT: true}}),
            json!({"events": {"x": {}}}),
        ] {
            assert!(check(change.clone()).is_err(), "{change}");
        }
    }
}
