//! The command line.

mod activity;
mod admin;
mod call;
mod connection;
mod watch;
