//! The client against upstreams on loopback.

mod breaker;
mod calls;
mod contract;
mod eras;
mod fake;
mod limits;
mod lists;
mod measures;
mod passing;
mod refused;
mod relay;
mod updates;
mod watch;
mod way;
mod wire;
