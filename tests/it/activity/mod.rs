//! The activity log.

mod admin;
mod export;
mod filters;
mod paging;
mod records;
mod redaction;
mod refused;
mod reports;
mod retention;
mod stream;
