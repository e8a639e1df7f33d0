//! Web pages as servers (R5): what their authors say that forms do, and what the forms themselves say.

mod besides;
pub mod charset;
pub mod checks;
pub mod cookies;
pub mod definition;
pub mod dom;
pub mod draft;
pub mod facts;
pub mod field;
pub mod file;
pub mod fill;
pub mod form;
pub mod gates;
pub mod inspect;
pub mod needs;
pub mod plan;
pub mod reading;
pub mod report;
pub mod result;
pub mod robots;
pub mod schema_source;
pub mod sensitive;
pub mod settings;
pub mod spec;
pub mod tool;
pub mod wording;
