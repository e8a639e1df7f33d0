//! The command line.

mod activity;
mod admin;
mod call;
mod config;
mod connection;
mod watch;
