//! Telemetry of the program: logs, metrics and traces.

mod logs;
mod metrics;
mod traces;

pub(super) use logs::{LogDirectives, start};
pub(super) use metrics::Metrics;
pub(super) use traces::Traces;
