//! What an administrative use case answers when it cannot.

use thiserror::Error;

use crate::domain::refusal::Refusal;
use crate::store::StoreError;

/// A failure of a use case, as callers may know it. Texts are for callers; causes are logged where they
/// happen and never leave.
#[derive(Debug, Error)]
pub enum GatewayError {
    /// It does not exist for this caller.
    #[error("{0} not found")]
    NotFound(&'static str),
    /// The caller's role may not do this.
    #[error("{0}")]
    Forbidden(String),
    /// Something in the request cannot be taken.
    #[error("{message}")]
    Invalid {
        /// The field, when it is about one.
        field: Option<String>,
        /// What to do.
        message: String,
    },
    /// A name is taken or a version moved.
    #[error("{0}")]
    Conflict(String),
    /// A bound of this deployment, or of this tenant, is reached.
    #[error("{0}")]
    Limit(String),
    /// Too much of this is under way; the text says what to do.
    #[error("{0}")]
    Busy(&'static str),
    /// The database cannot be reached now.
    #[error("the gateway cannot reach its database now; try again shortly")]
    Unavailable,
    /// A refusal of the call pipeline.
    #[error("{}", .0.message)]
    Refused(Box<Refusal>),
}

impl GatewayError {
    /// A field that cannot be taken.
    pub fn invalid(field: impl Into<String>, message: impl Into<String>) -> GatewayError {
        GatewayError::Invalid { field: Some(field.into()), message: message.into() }
    }

    /// Maps a store's failure; `what` names the thing in "not found".
    pub(super) fn from_store(error: StoreError, what: &'static str) -> GatewayError {
        match error {
            StoreError::NotFound => GatewayError::NotFound(what),
            StoreError::Conflict(text) => GatewayError::Conflict(text.to_owned()),
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
