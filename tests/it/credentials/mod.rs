//! Credentials of upstream servers: sent to their own server, and shown to nobody.

mod keys;
mod moves;
mod places;
mod queries;
mod secrecy;
mod sending;
mod upgrade;
