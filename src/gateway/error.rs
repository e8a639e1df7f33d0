//! Failures of administrative use cases.

use thiserror::Error;

use crate::domain::consent::MayNotDecide;
use crate::domain::id::KeyId;
use crate::domain::refusal::Refusal;
use crate::store::StoreError;

/// A failure of a use case, for its caller. Texts are for callers; causes are logged where they occur and never leave the
/// gateway.
#[derive(Debug, Error)]
pub enum GatewayError {
    /// The item does not exist for this caller.
    #[error("{0} not found")]
    NotFound(&'static str),
    /// The caller's role does not permit this.
    #[error("{0}")]
    Forbidden(String),
    /// The caller may not decide this permission request.
    #[error("{}", .0.text())]
    MayNotDecide(MayNotDecide),
    /// A part of the request is invalid.
    #[error("{message}")]
    Invalid {
        /// Name of the invalid field; `None` if the failure concerns no single field.
        field: Option<String>,
        /// Text that says what to do.
        message: String,
    },
    /// The name is taken, or the version has changed.
    #[error("{0}")]
    Conflict(String),
    /// A limit of this deployment or tenant is reached.
    #[error("{0}")]
    Limit(String),
    /// Too many such requests are under way; the text says what to do.
    #[error("{0}")]
    Busy(&'static str),
    /// The database cannot be reached at present.
    #[error("the gateway cannot reach its database now; try again shortly")]
    Unavailable,
    /// A refusal of the call pipeline.
    #[error("{}", .0.message)]
    Refused(Box<Refusal>),
}

impl GatewayError {
    /// Returns a [`GatewayError::Invalid`] about this field.
    pub fn invalid(field: impl Into<String>, message: impl Into<String>) -> GatewayError {
        GatewayError::Invalid { field: Some(field.into()), message: message.into() }
    }

    /// Returns whether the caller lacks a right.
    pub(super) fn is_forbidden(&self) -> bool {
        matches!(self, GatewayError::Forbidden(_) | GatewayError::MayNotDecide(_))
    }

    /// Maps a failure of the store; `what` is the noun in "not found".
    pub(super) fn from_store(error: StoreError, what: &'static str) -> GatewayError {
        match error {
            StoreError::NotFound => GatewayError::NotFound(what),
            StoreError::Conflict(text) => GatewayError::Conflict(text.to_owned()),
            StoreError::Rotated(KeyId(successor)) => GatewayError::Conflict(format!(
                "the key has a successor, {successor}: rotate that one; or, if its secret was lost, revoke it (mcpproxy key revoke \
                 {successor}) and rotate this one again"
            )),
            StoreError::Limit(bound) => {
                GatewayError::Limit(format!("the limit of this deployment is reached: {bound}"))
            }
            StoreError::Quota { what, max } => GatewayError::Limit(format!(
                "this tenant's quota of {what} ({max}) is used up; ask the platform operator"
            )),
            other => {
                tracing::error!(error = %other, "the store failed");
                GatewayError::Unavailable
            }
        }
    }
}
