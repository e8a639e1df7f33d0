//! Subscriptions to resources: who may subscribe to which, as far as that is known beforehand.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::timeout;

use super::checks::Checked;
use super::checks::offer;
use super::door::Door;
use super::ending::from_upstream;
use super::facts::Facts;
use super::request::{OfferRequest, Wanted};
use crate::domain::id::ServerId;
use crate::domain::refusal::Refusal;
use crate::gateway::calls::Calls;
use crate::gateway::catalog::ServerEntry;
use crate::gateway::sessions::{ClientSessions, readable};
use crate::gateway::tenants::Caller;
use crate::store::SESSION_URIS_MAX;

/// Longest wait for a server to say whether it announces updates, when a stream is opened.
const DECLARATION_WAIT_MAX: Duration = Duration::from_secs(2);

/// Reason why a subscription is refused.
#[derive(Clone, Debug)]
pub enum SubscribeFault {
    /// The caller may not read the resource now, or this cannot be stored.
    Refused(Refusal),
    /// The server does not announce updates of its resources; a sentence for the caller.
    Unwatched(String),
    /// The session has this many subscriptions, which is the limit.
    Full(usize),
}

impl Calls {
    /// Subscribes a session to a resource that the caller may read. It counts against the rate, and is not recorded.
    ///
    /// # Errors
    /// [`SubscribeFault`], with the same refusals as for reading the resource.
    pub async fn subscribe(
        &self,
        sessions: &ClientSessions,
        caller: &Arc<Caller>,
        session: &str,
        uri: &str,
    ) -> Result<(), SubscribeFault> {
        let server = self.server_of(caller, uri).map_err(SubscribeFault::Refused)?;
        self.check_announces(&server).await?;
        match sessions.subscribe(caller, session, uri).await {
            Ok(true) => Ok(()),
            Ok(false) => Err(SubscribeFault::Full(SESSION_URIS_MAX)),
            Err(refusal) => Err(SubscribeFault::Refused(refusal)),
        }
    }

    fn server_of(&self, caller: &Caller, uri: &str) -> Result<Arc<ServerEntry>, Refusal> {
        let request = OfferRequest { wanted: Wanted::Resource(uri.to_owned()), members: Vec::new() };
        let admitted = self.tenants.admit_list(caller);
        let checked = offer::run(caller, request, &mut Facts::new(Door::Direct), admitted)?;
        Ok(Arc::clone(Checked::Offer(checked).server()))
    }

    async fn check_announces(&self, server: &ServerEntry) -> Result<(), SubscribeFault> {
        let name = &server.name;
        if server.target.upstream.is_run_here() {
            return Err(SubscribeFault::Unwatched(format!(
                "Server '{name}' is a program; updates of its resources are not announced"
            )));
        }
        if server.has_own_logins() {
            return Err(SubscribeFault::Unwatched(format!(
                "Server '{name}' is called with each person's own login; updates of its resources are not announced"
            )));
        }
        let declared = self.upstreams.connection(&server.target).offers().await;
        let declared = declared.map_err(|error| SubscribeFault::Refused(from_upstream(&error, name)))?;
        match declared.subscriptions {
            true => Ok(()),
            false => Err(SubscribeFault::Unwatched(format!(
                "Server '{name}' does not announce updates of its resources (resources.subscribe)"
            ))),
        }
    }

    /// Returns those of the URIs, in their order, that can be watched for a caller: it may read them, and nothing is known of
    /// their servers that speaks against it. Only the first [`SESSION_URIS_MAX`] count.
    pub async fn watchable(&self, caller: &Arc<Caller>, mut uris: Vec<String>) -> Vec<String> {
        uris.truncate(SESSION_URIS_MAX);
        let Some(catalogue) = caller.catalogue().filter(|_| !uris.is_empty()) else { return Vec::new() };
        let find = || {
            let server = |uri: String| readable(caller, &catalogue, &uri).map(|server| (uri, server));
            uris.into_iter().filter_map(server).collect::<Vec<_>>()
        };
        let found = self.upstreams.in_turn(caller.tenant_id().0, find).await;
        let servers: HashMap<ServerId, Arc<ServerEntry>> =
            found.iter().map(|(_, server)| (server.id, Arc::clone(server))).collect();
        let checks = servers.into_iter().map(|(id, server)| async move {
            let checked = timeout(DECLARATION_WAIT_MAX, self.check_announces(&server)).await;
            (id, !matches!(checked, Ok(Err(SubscribeFault::Unwatched(_)))))
        });
        let can: HashMap<ServerId, bool> = futures_util::future::join_all(checks).await.into_iter().collect();
        let is_watchable = |server: &ServerEntry| can.get(&server.id).copied().unwrap_or_default();
        found.into_iter().filter(|(_, server)| is_watchable(server)).map(|(uri, _)| uri).collect()
    }
}
