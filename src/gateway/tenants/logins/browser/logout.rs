//! Logouts that a provider tells of (OpenID Connect Back-Channel Logout 1.0).

use std::sync::Arc;

use chrono::{DateTime, TimeDelta};

use super::LoginFault;
use crate::domain::identity::SplitToken;
use crate::gateway::clock;
use crate::gateway::tenants::Tenants;
use crate::gateway::tenants::logins::verify::refused;

impl Tenants {
    /// Ends the sessions that a provider's notice names, on all replicas. Sessions that were begun after the notice stay, so that a
    /// notice sent twice ends no later one.
    ///
    /// # Errors
    /// [`LoginFault::Refused`] for a notice that cannot be verified, [`LoginFault::NotOffered`] and [`LoginFault::Unavailable`].
    pub async fn end_sessions_by_notice(self: &Arc<Self>, notice: &str) -> Result<(), LoginFault> {
        let (options, issuer) = self.login_issuer()?;
        if notice.len() > self.options.logins.token_bytes_max {
            return Err(LoginFault::Foreign);
        }
        let split = SplitToken::read_logout(notice).map_err(|fault| refused(&issuer.name, fault))?;
        let (issuer, _) = self.verify_signature(issuer, &split).await?;
        let now_s = clock::now().timestamp();
        let notice = split.check_logout(&self.claim_rules(&issuer), &options.client_id, now_s);
        let notice = notice.map_err(|fault| {
            tracing::warn!(issuer = issuer.name, %fault, "a notice of a logout was refused");
            LoginFault::from(refused(&issuer.name, fault))
        })?;
        let until = DateTime::from_timestamp(notice.issued_s, 0).ok_or(LoginFault::Foreign)?;
        let until = until + TimeDelta::seconds(self.options.logins.leeway_s);
        let named = (notice.sub.as_deref(), notice.sid.as_deref());
        let ended = self.store.end_web_sessions_at(issuer.id, named, until).await.map_err(|error| {
            tracing::warn!(%error, "sessions could not be ended");
            LoginFault::Unavailable
        })?;
        tracing::info!(issuer = issuer.name, ended, "a provider told of a logout");
        Ok(())
    }
}
