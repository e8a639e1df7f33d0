//! The binary `mcpproxy`.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Parser, Subcommand};
use mcpproxy::app::run;

/// Gives memory back after load; its settings are in `.cargo/config.toml`.
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

/// A multi-tenant MCP gateway: one URL, one key, every call checked and recorded.
#[derive(Parser)]
#[command(name = "mcpproxy", version)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Run the gateway until SIGTERM or Ctrl-C
    Serve {
        /// Configuration file (TOML); the environment (MCPPROXY__SECTION__KEY) wins over it
        #[arg(long, value_name = "PATH")]
        config: Option<PathBuf>,
    },
    /// Bring the database to this version's schema
    Migrate {
        /// Configuration file (TOML); the environment (MCPPROXY__SECTION__KEY) wins over it
        #[arg(long, value_name = "PATH")]
        config: Option<PathBuf>,
    },
}

/// An error with its causes, each said once: many repeat what they were caused by.
fn sentence(error: &anyhow::Error) -> String {
    let mut text = String::new();
    for cause in error.chain().map(ToString::to_string) {
        if text.contains(&cause) {
            continue;
        }
        if !text.is_empty() {
            text.push_str(": ");
        }
        text.push_str(&cause);
    }
    text
}

#[expect(clippy::print_stderr, reason = "a start that fails says why before there is a log")]
fn main() -> ExitCode {
    let cli = Cli::parse();
    let runtime = match tokio::runtime::Builder::new_multi_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            eprintln!("mcpproxy: the runtime could not start: {error}");
            return ExitCode::FAILURE;
        }
    };
    let outcome = runtime.block_on(async {
        match cli.command {
            Command::Serve { config } => run::serve(config.as_deref()).await,
            Command::Migrate { config } => run::migrate(config.as_deref()).await,
        }
    });
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("mcpproxy: {}", sentence(&error));
            ExitCode::FAILURE
        }
    }
}
