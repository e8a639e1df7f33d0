//! Second client, by rmcp, for what is rare and intricate: streams on which a server announces changes. rmcp speaks
//! the protocol, but reaches the network only through [`transport::RmcpTransport`]. Egress guard, TLS, credentials
//! and bounds are therefore those of every other request, and rmcp sees no credential.

mod client;
mod heard;
mod resources;
mod shared;
mod stream;
mod tap;
mod transport;
mod watcher;

pub use resources::{ResourceWatcher, WATCHED_MAX};
pub use watcher::{WatchEnd, Watcher};

#[cfg(test)]
pub(in crate::upstream) use client::{RmcpListener, Service, connect, own_error};
#[cfg(test)]
pub(in crate::upstream) use heard::Announcement;
#[cfg(test)]
pub(in crate::upstream) use transport::RmcpTransport;
