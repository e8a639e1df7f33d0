//! One bad upstream costs its own callers only.

mod latency;
mod listing;
mod memory;
mod requests;
mod unread;
mod vices;
