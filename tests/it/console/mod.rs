//! The console, as a browser meets it.

mod doors;
mod ends;
mod forms;
mod login;
