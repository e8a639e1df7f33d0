//! The command line.

mod activity;
mod admin;
mod apply;
mod call;
mod config;
mod connection;
mod watch;
