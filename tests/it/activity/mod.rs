//! The activity log.

mod admin;
mod contains;
mod export;
mod filters;
mod forbidden;
mod late;
mod ledger;
mod paging;
mod reads;
mod records;
mod redaction;
mod refused;
mod reports;
mod retention;
mod reviewed;
mod statistics;
mod stream;
mod stubs;
mod twice;
