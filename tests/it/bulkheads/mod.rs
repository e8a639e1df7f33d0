//! One bad upstream costs its own callers only.

mod latency;
mod listing;
mod unread;
mod vices;
