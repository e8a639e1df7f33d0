//! Nothing runs unrecorded. What is missing is counted from the upstream's own log.

mod kills;
mod locked;
mod replaced;
