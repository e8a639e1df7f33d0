//! One bad upstream costs its own callers only.

mod latency;
mod listing;
mod memory;
pub mod requests;
mod unread;
mod vices;
