//! Records of what people do at the console.

use std::sync::Arc;

use crate::domain::activity::Source;
use crate::domain::json;
use crate::faces::Faces;
use crate::gateway::{Act, Attempt, Caller, GatewayError};

use super::gate::Visit;

/// Returns an attempt of a visitor as this caller.
pub(super) fn attempt(visit: &Visit, caller: &Arc<Caller>) -> Attempt {
    let mut attempt = Attempt::now(Arc::clone(caller), Source::Console);
    attempt.request_id = visit.request_id().map(str::to_owned);
    attempt.client = visit.client.clone();
    attempt.language = visit.language;
    attempt.client_address = visit.address;
    attempt
}

/// Runs an act that a visitor asks for, and records it as `what`. The record is committed first, and the act outlives its
/// connection.
///
/// # Errors
/// Error of the act, or [`GatewayError::Unavailable`] if the act could not be recorded.
pub(super) async fn act<T: Send + 'static>(
    faces: &Arc<Faces>,
    (visit, caller): (&Visit, &Arc<Caller>),
    (what, path): (&'static str, &str),
    work: impl Future<Output = Result<T, GatewayError>> + Send + 'static,
) -> Result<T, GatewayError> {
    let attempt = attempt(visit, caller);
    let mut body = String::from(r#"{"path":"#);
    json::escape_into(&mut body, path);
    body.push('}');
    let gateway = Arc::clone(&faces.gateway);
    let recorded = async move {
        let act = Act { what, server: None, body: Some(&body), consent_id: None };
        let acting = gateway.log.begin_act(&attempt, &act).await?;
        let done = work.await;
        gateway.log.end_act(&attempt, acting, done.as_ref().map(|_| ()));
        done
    };
    faces.gateway.log.outlive(recorded).await
}
