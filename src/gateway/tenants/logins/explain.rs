//! Explanation of a token: every step from its header to a role, as verification takes them. The token is not kept.

use std::sync::Arc;

use super::book::KnownIssuer;
use super::findings::IssuerFindings;
use super::people::PersonBar;
use crate::domain::id::IdentityId;
use crate::domain::identity::{
    IdentityRule, KeySet, RuleGrant, SplitToken, TokenFault, TokenHolder, header_of, identity_id, is_token,
};
use crate::domain::settings::Effective;
use crate::gateway::clock;
use crate::gateway::error::GatewayError;
use crate::gateway::tenants::Tenants;
use crate::gateway::tenants::live::LiveTenant;
use crate::gateway::tenants::live::access::Access;

/// Most tenants of a token that are explained.
const TENANTS_MAX: usize = 10;
/// Most rules of a tenant that have a finding of their own, besides the one that fits.
const RULES_MAX: usize = 30;

impl Tenants {
    /// Explains a token of an issuer. `live` is the provider's key set of now.
    ///
    /// # Errors
    /// [`GatewayError::Unavailable`] if a tenant cannot be loaded.
    pub(super) async fn explain_token(
        &self,
        issuer: &KnownIssuer,
        live: Option<&KeySet>,
        token: &str,
    ) -> Result<IssuerFindings, GatewayError> {
        let mut findings = IssuerFindings::default();
        let Some(split) = self.read_token(token, &mut findings) else {
            findings.bad("verdict", "the gateway refuses this token");
            return Ok(findings);
        };
        self.explain_signature(issuer, live, &split, &mut findings).await?;
        let rules = self.claim_rules(issuer);
        for finding in split.explain_claims(&rules, clock::now().timestamp()) {
            match finding.fault {
                None => findings.good(finding.check, finding.says),
                Some(_) => findings.bad(finding.check, finding.says),
            }
        }
        self.explain_other_issuer(issuer, &split, &mut findings);
        let is_verified = !findings.has_bad();
        let given = self.explain_tenants(issuer, &split, &mut findings).await?;
        match (is_verified, given.as_slice()) {
            (true, []) => findings.bad("verdict", "the token is good, and nothing gives this account access"),
            (true, tenants) => {
                findings.good("verdict", format!("the gateway accepts this token in {}", tenants.join(", ")));
            }
            (false, _) => {
                findings.bad("verdict", "the gateway refuses this token, whatever the tenants' rules say");
            }
        }
        Ok(findings)
    }

    /// Reads the form and the header of a token.
    fn read_token<'t>(&self, token: &'t str, findings: &mut IssuerFindings) -> Option<SplitToken<'t>> {
        let max = self.options.logins.token_bytes_max;
        if token.len() > max {
            let says = format!("it has {} bytes, and limits.token_bytes_max is {max}", token.len());
            findings.bad("token", says);
            return None;
        }
        if !is_token(token) {
            let says = match token.bytes().filter(|byte| *byte == b'.').count() {
                4 => "it is encrypted (five parts): have the provider sign access tokens, not encrypt them",
                _ => {
                    "it is no signed token (JWT) of three parts between dots; opaque tokens cannot be verified"
                }
            };
            findings.bad("token", says);
            return None;
        }
        if let Some(header) = header_of(token) {
            findings.good("header", header);
        }
        match SplitToken::read(token) {
            Ok(split) => {
                findings.good("token", format!("a signed token of {} bytes", token.len()));
                Some(split)
            }
            Err(fault) => {
                findings.bad("token", fault.to_string());
                None
            }
        }
    }

    /// Checks key and signature: with the provider's keys of now, else with the stored ones.
    async fn explain_signature(
        &self,
        issuer: &KnownIssuer,
        live: Option<&KeySet>,
        split: &SplitToken<'_>,
        findings: &mut IssuerFindings,
    ) -> Result<(), GatewayError> {
        let fits = |keys: Option<&KeySet>| {
            keys.map(|keys| split.signature_check(keys, &issuer.algorithms).map(drop))
        };
        let stored = self.usable_keys(issuer);
        let keys = match (fits(live), fits(stored)) {
            (Some(Ok(())), _) => {
                findings.good("fitting_key", "a key that the provider has now fits");
                live
            }
            (Some(Err(TokenFault::UnknownKey)), Some(Ok(()))) => {
                let says = "the provider has this key no longer: the token is refused from the next fetch on";
                findings.odd("fitting_key", says);
                stored
            }
            (None, Some(Ok(()))) => {
                findings.good("fitting_key", "a stored key fits; those of now could not be fetched");
                stored
            }
            (Some(Err(fault)), _) | (None, Some(Err(fault))) => {
                findings.bad("fitting_key", fault.to_string());
                None
            }
            (None, None) => {
                findings.bad("fitting_key", "there are no keys to look in: logins are answered 503");
                None
            }
        };
        let Some(keys) = keys else {
            findings.bad("signature", "cannot be checked without the key");
            return Ok(());
        };
        let verdict = match split.signature_check(keys, &issuer.algorithms) {
            Ok(check) => {
                let verdict = self.logins.verifying.verify(issuer.id, check).await;
                verdict.map_err(|_| GatewayError::Unavailable)?
            }
            Err(fault) => Err(fault),
        };
        match verdict {
            Ok(_) => findings.good("signature", "good"),
            Err(fault) => findings.bad("signature", fault.to_string()),
        }
        Ok(())
    }

    /// Says if the token is of another issuer that is known here.
    fn explain_other_issuer(
        &self,
        issuer: &KnownIssuer,
        split: &SplitToken<'_>,
        findings: &mut IssuerFindings,
    ) {
        let book = self.logins.book();
        let named = split.unverified_issuer().ok().and_then(|url| book.by_url(url));
        if let Some(other) = named.filter(|other| other.id != issuer.id) {
            findings.odd("iss", format!("that is the issuer '{}': mcpproxy doctor issuer {0}", other.name));
        }
    }

    /// Explains to which tenants the claims lead, and what they are there. Returns the names of those that give access.
    async fn explain_tenants(
        &self,
        issuer: &KnownIssuer,
        split: &SplitToken<'_>,
        findings: &mut IssuerFindings,
    ) -> Result<Vec<String>, GatewayError> {
        let found = issuer.tenants_of(split.unverified_claims());
        let mut tenants = Vec::new();
        for (tenant, _) in found.iter().take(TENANTS_MAX) {
            let live = self.live_for_login(*tenant).await.map_err(|_| GatewayError::Unavailable)?;
            tenants.extend(live);
        }
        let names: Vec<String> = tenants.iter().map(|live| format!("'{}'", live.name)).collect();
        match names.as_slice() {
            [] if !found.is_empty() => findings.bad("tenant", "the tenant is deleted"),
            [] => {
                let claims = issuer.assigned_claims().join(", ");
                let says =
                    format!("no assignment fits; mcpproxy issuer tenants shows them. They look at: {claims}");
                findings.bad("tenant", says);
            }
            [name] => findings.good("tenant", name),
            names => {
                findings.odd("tenant", format!("several: X-Tenant must name one of {}", names.join(", ")));
            }
        }
        let holder = split.unverified_holder(&self.claim_rules(issuer));
        let mut given = Vec::new();
        for live in &tenants {
            if self.explain_person(live, issuer, (split, holder.as_ref()), findings) {
                given.push(format!("'{}'", live.name));
            }
        }
        Ok(given)
    }

    /// Explains what a person is in a tenant. Returns whether the tenant gives access.
    fn explain_person(
        &self,
        live: &Arc<LiveTenant>,
        issuer: &KnownIssuer,
        (split, holder): (&SplitToken<'_>, Option<&TokenHolder>),
        findings: &mut IssuerFindings,
    ) -> bool {
        let access = live.access();
        let Some(access) = access.as_ref().as_ref() else { return false };
        let granted = explain_rules(access, live, issuer, split, findings);
        let (Some(granted), Some(holder)) = (granted, holder) else { return false };
        let identity = identity_id(live.id, issuer.id, &holder.subject);
        if access.is_suspended {
            findings.bad("person", format!("the tenant '{}' is suspended", live.name));
            return false;
        }
        if let Some(bar) = access.bar_of(identity, holder.issued_s) {
            findings.bad("person", barred(bar, &live.name, identity));
            return false;
        }
        let scopes = granted.scope_ceiling.filter(|_| self.options.logins.step_up);
        let granted = if scopes.is_some() { granted } else { granted.within_scopes() };
        let settings = Effective::resolve(&granted.settings, &access.tenant_settings, &self.options.defaults);
        findings.good(
            "person",
            format!(
                "in the tenant '{}': role {}, owner '{}', identity {identity}, max_operation {}{}",
                live.name,
                granted.role.as_str(),
                holder.owner,
                settings.max_operation.as_str(),
                scopes.map_or_else(String::new, |scopes| format!(
                    ", by the scopes of this token {}",
                    scopes.as_str()
                )),
            ),
        );
        true
    }
}

/// Explains a tenant's rules up to the one that fits, and returns what that one gives.
fn explain_rules(
    access: &Access,
    live: &LiveTenant,
    issuer: &KnownIssuer,
    split: &SplitToken<'_>,
    findings: &mut IssuerFindings,
) -> Option<RuleGrant> {
    let (key, claims) = (issuer.id.to_string(), split.unverified_claims());
    let name = |at: usize, rule: &IdentityRule| {
        format!("tenant '{}', rules[{at}] (role {})", live.name, rule.role.as_str())
    };
    for (at, rule) in access.rules.iter().enumerate() {
        let misses = rule.misses(&key, claims);
        if misses.is_empty() {
            findings.good("rule", format!("{} fits", name(at, rule)));
            break;
        }
        if at < RULES_MAX {
            findings.good("rule", format!("{} does not fit: {}", name(at, rule), misses.join("; ")));
        }
    }
    let granted = IdentityRule::first_match(&access.rules, &key, claims);
    if granted.is_none() {
        let says = match access.rules.len() {
            0 => "has no rules",
            _ => "has no rule that fits",
        };
        let says = format!(
            "the tenant '{}' {says}: its admin says who may do what (mcpproxy identity rules)",
            live.name
        );
        findings.bad("rule", says);
    }
    granted
}

fn barred(bar: PersonBar, tenant: &str, identity: IdentityId) -> String {
    match bar {
        PersonBar::Blocked => format!(
            "the account is blocked in the tenant '{tenant}': mcpproxy identity unblock {identity} --tenant {tenant}"
        ),
        PersonBar::BeforeBlock => format!(
            "the token was issued before the account was blocked in the tenant '{tenant}', and is refused for good: a \
             new login gives another"
        ),
    }
}
