//! Programs of the deployment as upstream servers: JSON-RPC, one message a line, over their standard input and
//! output.
//!
//! A [`Keeper`] starts the program of one server when it is needed (`life`), and ends it when no calls come. The
//! number of programs on this replica is limited (`children`). A [`wire::PipeWire`] carries many requests at a time
//! over one program. What a program writes to standard error goes to the server's log (`journal`).

mod children;
mod confine;
mod journal;
mod keeper;
mod life;
mod lines;
mod open;
mod process;
mod reader;
mod state;
mod usage;
mod warden;
mod wire;

pub(super) use children::Children;
pub use children::StdioRules;
pub use confine::{Confinement, become_confined, can_confine};
pub use journal::{Journal, LINE_BYTES_MAX, LogLine, LogSource};
pub(super) use keeper::Keeper;
pub use warden::run_warden;
