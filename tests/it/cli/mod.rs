//! The command line.

mod activity;
mod admin;
mod apply;
mod call;
mod config;
mod connect;
mod connection;
mod import;
mod man;
mod unannotated;
mod watch;
