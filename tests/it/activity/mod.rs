//! The activity log.

mod admin;
mod export;
mod filters;
mod forbidden;
mod late;
mod paging;
mod reads;
mod records;
mod redaction;
mod refused;
mod reports;
mod retention;
mod stream;
mod stubs;
