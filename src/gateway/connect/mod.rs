//! Logins of people at servers, in a browser (authorization code with PKCE): begun by a program or on a page, completed when the
//! browser comes back from the authorization server, and ended.
//!
//! A login on a page belongs to the person whose session opened it, and to the browser that left from it. A login that a program
//! began belongs to whoever holds the API key: the browser carries a code back to the program, which claims the tokens with the key.

mod begin;
mod complete;
mod disconnect;

pub use self::begin::{ConnectBegun, ConnectPage, Departure};
pub use self::complete::{Arrival, ConnectEnd, Returned};

use std::fmt;
use std::sync::Arc;

use uuid::Uuid;

use super::options::Options;
use super::tenants::{Caller, Tenants, callback_path};
use super::{Ground, Lifecycle};
use crate::domain::id::{ServerId, TenantId};
use crate::domain::identity::PublicUrl;
use crate::domain::refusal::{Code, Refusal};
use crate::gateway::GatewayError;
use crate::gateway::catalog::ServerEntry;
use crate::store::{FlowRow, LoginOf, NewFlow, Store};
use crate::upstream::{Pool, TargetLogin};

/// Path of the pages of logins, below the public URL.
const PAGES: &str = "/connect/";

/// Logins of people at servers.
pub struct Connect {
    store: Store,
    upstreams: Arc<Pool>,
    options: Arc<Options>,
    life: Arc<Lifecycle>,
    tenants: Arc<Tenants>,
}

impl fmt::Debug for Connect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connect").finish_non_exhaustive()
    }
}

/// Reason why a person's login at a server came to nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ConnectFault {
    /// `state`, browser, session or `iss` belong to no login that is under way.
    Foreign,
    /// The authorization server did not log the person in.
    Declined,
    /// The authorization server is out of reach, or gives nothing that can be used.
    Provider,
    /// The login is not offered any more as it was: another authorization server, or none.
    Changed(Box<Refusal>),
    /// The gateway's own database is out of reach.
    Unavailable,
}

impl From<ConnectFault> for GatewayError {
    fn from(fault: ConnectFault) -> GatewayError {
        match fault {
            ConnectFault::Foreign => GatewayError::NotFound("login"),
            ConnectFault::Declined => {
                GatewayError::Forbidden("the login service did not log the person in".to_owned())
            }
            ConnectFault::Provider => {
                let text = "The login service of the server gives no tokens";
                GatewayError::Refused(Box::new(Refusal::new(Code::UpstreamAuthUnavailable, text)))
            }
            ConnectFault::Changed(refusal) => GatewayError::Refused(refusal),
            ConnectFault::Unavailable => GatewayError::Unavailable,
        }
    }
}

impl From<GatewayError> for ConnectFault {
    fn from(error: GatewayError) -> ConnectFault {
        match error {
            GatewayError::NotFound(_) => ConnectFault::Foreign,
            GatewayError::Forbidden(_) => ConnectFault::Declined,
            GatewayError::Refused(refusal) if refusal.code == Code::UpstreamAuthUnavailable => {
                ConnectFault::Provider
            }
            GatewayError::Refused(refusal) => ConnectFault::Changed(refusal),
            _ => ConnectFault::Unavailable,
        }
    }
}

impl Connect {
    pub(super) fn new(ground: &Ground, tenants: &Arc<Tenants>) -> Connect {
        let Ground { store, upstreams, options, life } = ground.clone();
        Connect { store, upstreams, options, life, tenants: Arc::clone(tenants) }
    }

    /// Returns the URL of the page on which a person logs in at a server; `None` for callers that no page knows, or if it cannot be
    /// told now. Two calls in a row get the same page.
    pub(in crate::gateway) async fn link(
        &self,
        caller: &Caller,
        server: &ServerEntry,
        login: TargetLogin,
    ) -> Option<String> {
        let public = self.options.logins.public_url.as_ref()?;
        // the pages are for sessions of the issuer that the console offers
        caller.login.as_ref().filter(|login| self.tenants.is_of_console(login))?;
        let new = NewFlow {
            id: Uuid::new_v4(),
            tenant: caller.tenant_id(),
            server: server.id,
            principal: caller.key?.0,
            client: login.client,
            keep_s: self.options.server_logins.keep.as_secs_f64(),
        };
        match self.store.open_flow(&new).await {
            Ok(flow) => flow.map(|flow| format!("{}{PAGES}{flow}", public.as_str())),
            Err(error) => {
                tracing::warn!(tenant = %new.tenant, %error, "a login at a server could not be offered");
                None
            }
        }
    }

    /// Returns the URL under which browsers reach the gateway.
    fn public_url(&self) -> Result<&PublicUrl, GatewayError> {
        self.options.logins.public_url.as_ref().ok_or_else(|| {
            let text = "logins at servers need server.public_url, to which browsers come back; ask whoever runs this gateway to set it";
            GatewayError::Conflict(text.to_owned())
        })
    }

    /// Returns the URL that the authorization server of a server sends browsers back to.
    fn redirect_uri(&self, server: Uuid) -> Result<String, GatewayError> {
        Ok(format!("{}{}", self.public_url()?.as_str(), callback_path(server)))
    }
}

/// Returns the login that the tokens of a flow are for.
fn login_of(tenant: TenantId, flow: &FlowRow) -> LoginOf {
    LoginOf {
        tenant,
        server: ServerId(flow.server_id),
        principal: Some(flow.principal_id),
        client: flow.client_generation,
    }
}
