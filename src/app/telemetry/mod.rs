//! What the program tells of itself: logs and traces.

mod logs;
mod traces;

pub(super) use logs::start;
pub(super) use traces::Traces;
