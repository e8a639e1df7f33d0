//! Admission of requests to an upstream: circuit breakers, slots, shares of memory, and the egress rules.

pub(super) mod breaker;
pub(super) mod egress;
pub(super) mod gate;
pub(super) mod health;
pub(super) mod pace;
pub(super) mod shares;
