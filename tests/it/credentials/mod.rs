//! Credentials of upstream servers: sent to their own server, and shown to nobody.

mod keys;
mod places;
mod secrecy;
mod sending;
