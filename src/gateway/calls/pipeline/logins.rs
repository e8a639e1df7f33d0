//! Refusals of calls to servers at which the gateway cannot log in.

use crate::domain::refusal::{Code, Refusal};
use crate::domain::server_login::LoginNeed;
use crate::gateway::calls::Calls;
use crate::gateway::catalog::ServerEntry;
use crate::gateway::tenants::Caller;

/// Returns the refusal of a call to a server whose login service gives no token, for so many seconds if that is known.
pub(super) fn login_unavailable(server: &str, retry_s: Option<u32>) -> Refusal {
    let again = retry_s.map_or_else(|| "later".to_owned(), |retry_s| format!("in {retry_s} seconds"));
    let refusal = Refusal::new(
        Code::UpstreamAuthUnavailable,
        format!(
            "The login service of server '{server}' does not answer; nothing was sent; try again {again}"
        ),
    );
    retry_s.into_iter().fold(refusal, |refusal, retry_s| refusal.retry_after(retry_s.into()))
}

/// Returns the refusal of a call to a server that refuses the gateway's own credentials.
pub(super) fn login_refused(server: &str) -> Refusal {
    Refusal::new(
        Code::UpstreamAuthRefused,
        format!("Server '{server}' refuses the gateway's own credentials; an administrator must renew them"),
    )
}

/// Returns the refusal of a call to a server for which the identity provider gives no token in exchange for that of the caller.
pub(super) fn exchange_refused(server: &str) -> Refusal {
    Refusal::new(
        Code::UpstreamExchangeRefused,
        format!("The identity provider does not let this account use server '{server}'"),
    )
}

/// Returns the refusal of a call to a server that takes only tokens in exchange for those of people.
fn person_needed((server, need): (&str, LoginNeed)) -> Refusal {
    let act = "log in with your organisation's account";
    let text = match need {
        LoginNeed::Ended => format!("Your login at server '{server}' has ended: {act} again"),
        LoginNeed::First | LoginNeed::MoreScopes => {
            format!("Server '{server}' needs a person's login: {act}")
        }
    };
    Refusal::new(Code::UpstreamLoginRequired, text)
}

/// Returns the refusal of a call to a server at which the caller has to log in first. `scopes` are those that the server asks for, and
/// `link` is the page of the login.
pub(super) fn login_needed((server, need): (&str, LoginNeed), scopes: &str, link: Option<&str>) -> Refusal {
    let act = match link {
        Some(link) => format!("open {link}, then try again"),
        None => format!("run mcpproxy upstream connect {server}"),
    };
    let text = match (need, link) {
        (LoginNeed::First, Some(_)) => format!("Server '{server}' needs your own login: {act}"),
        (LoginNeed::First, None) => format!("Server '{server}' needs a person's login: {act}"),
        (LoginNeed::Ended, _) => format!("Your login at server '{server}' has ended: {act}"),
        (LoginNeed::MoreScopes, _) if scopes.is_empty() => {
            format!("Server '{server}' asks for more permissions: {act}")
        }
        (LoginNeed::MoreScopes, _) => {
            format!("Server '{server}' asks for more permissions ({scopes}): {act}")
        }
    };
    Refusal { page: link.map(Box::from), ..Refusal::new(Code::UpstreamLoginRequired, text) }
}

impl Calls {
    /// Returns the refusal of a call whose caller has to log in at the server, with the page for it where there is one.
    pub(super) async fn login_needed(
        &self,
        caller: &Caller,
        server: &ServerEntry,
        (need, scopes): (LoginNeed, &str),
    ) -> Refusal {
        let login = server.target.upstream.login();
        if login.is_some_and(|login| login.exchanges) {
            return person_needed((&server.name, need));
        }
        let link = match login {
            Some(login) => self.connect.link(caller, server, login).await,
            None => None,
        };
        login_needed((&server.name, need), scopes, link.as_deref())
    }
}
