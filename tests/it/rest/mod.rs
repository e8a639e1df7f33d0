//! `/api/v1`.

mod calls;
mod keys;
mod pins;
mod roles;
mod servers;
mod settings;
mod tenants;
