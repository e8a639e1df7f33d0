//! The client against upstreams on loopback.

mod calls;
mod eras;
mod fake;
mod limits;
mod wire;
