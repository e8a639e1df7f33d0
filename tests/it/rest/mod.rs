//! `/api/v1`.

mod calls;
mod content_types;
mod document;
mod duties;
mod events;
mod fuzz;
mod keys;
mod persons;
mod pins;
mod roles;
mod rotations;
mod servers;
mod settings;
mod tenants;
