//! Floor 0: pure values and decisions. No IO, no async, no clock.

pub mod activity;
pub mod annotations;
pub mod canonical;
pub mod cut;
pub mod damping;
pub mod glob;
pub mod id;
pub mod intent;
pub mod json;
pub mod log_line;
pub mod names;
pub mod origin;
pub mod page;
pub mod pin;
pub mod quota;
pub mod redact;
pub mod refusal;
pub mod schema;
mod schema_cost;
pub mod seal;
pub mod search;
pub mod settings;
pub mod signature;
pub mod tenant;
pub mod tool;
pub mod validation;
