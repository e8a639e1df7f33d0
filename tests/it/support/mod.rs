//! What every test stands on.

mod answer;
mod api;
mod balancer;
mod cli;
mod database;
mod embedder;
mod events;
mod gateway;
mod hostile;
mod line;
mod mcp;
mod own_postgres;
mod pgbouncer;
mod postgres;
mod real;
mod stage;
mod unread;
pub mod upstream;
mod wait;

pub use self::answer::Answer;
pub use self::api::Api;
pub use self::balancer::{Balancer, Exchange};
pub use self::cli::{Following, Run, cli, cli_at_terminal, cli_reading, cli_with};
pub use self::database::Database;
pub use self::embedder::{Embedder, Mood};
pub use self::events::Events;
pub use self::gateway::{Gateway, MASTER_KEY, run_to_end};
pub use self::hostile::{Hostile, Vice};
pub use self::line::{Line, Way};
pub use self::mcp::{MODERN, Mcp, Outcome};
pub use self::own_postgres::OwnPostgres;
pub use self::pgbouncer::{PgBouncer, plain};
pub use self::real::RealServer;
pub use self::stage::{Stage, Tenant};
pub use self::upstream::{Tool, Upstream};
pub use self::wait::{eventually, settle};
