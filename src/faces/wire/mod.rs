//! Wire shapes that more than one face uses.

pub mod call;
pub mod credentials;
pub mod error;
pub mod headers;
pub mod managed;
pub mod session;
pub mod trace;
