//! What another tenant owns does not exist: for every route and argument that takes an id or a name, and in
//! the database itself.

mod answers;
mod database;
