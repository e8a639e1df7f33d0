//! How long the gateway takes for its clients.

use crate::domain::measure::{Between, Operation, Series};

/// Requests of MCP clients, and sessions with them.
#[derive(Debug)]
pub struct Measures {
    /// What was asked.
    pub operations: Series<Operation>,
    /// Sessions whose client said that it ends them: of others nobody knows.
    pub sessions: Series<(Between, Option<&'static str>)>,
}

impl Default for Measures {
    fn default() -> Measures {
        Measures { operations: Series::of_operations(), sessions: Series::of_operations() }
    }
}
