//! Tenants from the platform's side: what they may have, and that nothing of them stays.

mod deleting;
mod quotas;
mod removing;
mod suspending;
mod unreadable;
