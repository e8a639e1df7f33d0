//! Refusals of calls to servers at which the gateway cannot log in.

use crate::domain::refusal::{Code, Refusal};

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
