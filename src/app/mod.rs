//! Floor 4: the composition root. Builds everything, owns configuration, telemetry and the life of the process.

pub mod config;
pub mod exit;
mod lifecycle;
mod listeners;
mod live_settings;
pub mod local_postgres;
mod memory_budget;
mod open_files;
mod own_memory;
pub mod run;
mod telemetry;
mod threads;
