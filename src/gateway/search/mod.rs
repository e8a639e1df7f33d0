//! Search for tools.

mod disclosure;
mod embeddings;
mod retrieve_tools;

pub use self::retrieve_tools::{Detail, LIMIT_DEFAULT, LIMIT_MAX, SearchRequest, SearchResult};

pub(in crate::gateway) use self::embeddings::Embeddings;

use std::sync::Arc;

use super::{Ground, Log, Options, Tenants};
use crate::upstream::UpstreamError;

/// Use case of searching the catalogues of live tenants.
pub struct Search {
    options: Arc<Options>,
    tenants: Arc<Tenants>,
    log: Arc<Log>,
    /// Embeddings service; `None` without one.
    pub(super) embeddings: Option<Arc<Embeddings>>,
}

impl Search {
    pub(super) fn new(
        ground: &Ground,
        tenants: &Arc<Tenants>,
        log: &Arc<Log>,
        tls: Option<Arc<rustls::ClientConfig>>,
    ) -> Result<Search, UpstreamError> {
        let options = Arc::clone(&ground.options);
        let embeddings =
            options.embeddings.as_ref().map(|options| Embeddings::new(options, tls)).transpose()?;
        let (tenants, log) = (Arc::clone(tenants), Arc::clone(log));
        Ok(Search { options, tenants, log, embeddings: embeddings.map(Arc::new) })
    }
}
