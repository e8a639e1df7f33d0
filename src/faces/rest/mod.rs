//! stub
use std::sync::Arc;
/// stub
pub fn router() -> axum::Router<Arc<crate::faces::Faces>> {
    axum::Router::new()
}
