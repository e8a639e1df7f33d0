//! Floor 4: the composition root. Builds everything, owns configuration, telemetry and the life of the process.

pub mod config;
pub mod local_postgres;
pub mod run;
mod telemetry;
