//! The binary `mcpproxy`.

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::anyhow;
use clap::{CommandFactory, Parser, Subcommand};
use mcpproxy::app::{exit, run};
use mcpproxy::faces::cli;
use tokio::runtime::Runtime;

/// Allocator that gives memory back after load; its settings are in `.cargo/config.toml`.
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

const AFTER_HELP: &str = "\
Commands that talk to a gateway take --url, --api-key and --tenant after the command, or the variables MCPPROXY_URL,
MCPPROXY_API_KEY and MCPPROXY_TENANT, or a profile.

First steps:
  mcpproxy tenant add acme                                    with the platform's key, auth.bootstrap_key: with a private
                                                              database, `serve` logs which file it is in
  mcpproxy upstream add github https://… --tenant acme
  mcpproxy key add --role agent --owner ana --tenant acme     the key that ana's IDE sends to http://…/mcp
  mcpproxy tools search 'read a file'                         with that key
  mcpproxy call tool-read github:get_file --args '{\"path\": \"README.md\"}'
  mcpproxy activity watch --tenant acme                       everybody's calls, live
  mcpproxy activity list --tool delete_file --wide            who deleted that?

Exit codes: 0 done; 1 the tool failed; 2 makes no sense as written; 3 refused; 4 needs approval; 5 not authorised;
6 gateway not reachable. Of serve and migrate: 1 may pass, 2 wrong settings, 3 in vain until something is changed.";

/// A multi-tenant MCP gateway: one URL, one key, every call checked and recorded.
#[derive(Parser)]
#[command(name = "mcpproxy", version, after_help = AFTER_HELP)]
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
    /// Apply database migrations
    Migrate {
        /// Configuration file (TOML); the environment (MCPPROXY__SECTION__KEY) wins over it
        #[arg(long, value_name = "PATH")]
        config: Option<PathBuf>,
    },
    /// Check or show the configuration that `serve` would use
    Config(cli::ConfigCommand),
    /// For the gateway itself: ends the programs of stdio servers should it be killed
    #[command(name = run::STDIO_WARDEN, hide = true)]
    StdioWarden,
    /// For the gateway itself: becomes the program of a stdio server, without access to the gateway's files
    #[command(name = run::STDIO_PROGRAM, hide = true)]
    StdioProgram {
        /// Folder that the program must not reach
        #[arg(long, value_name = "PATH")]
        hide: Vec<PathBuf>,
        /// The program and its arguments
        #[arg(last = true, required = true)]
        argv: Vec<OsString>,
    },
    #[command(flatten)]
    Client(Box<cli::Command>),
}

/// Exit code for a program that could not be started, as shells use it.
const NOT_STARTED: u8 = 127;

/// Failure of a command.
enum Ended {
    /// Failure of a command that runs a gateway.
    Gateway(anyhow::Error),
    /// Failure of a command that talks to a gateway.
    Client(cli::Failure),
}

impl From<anyhow::Error> for Ended {
    fn from(error: anyhow::Error) -> Ended {
        Ended::Gateway(error)
    }
}

/// Returns an error with its causes, each once: many repeat the text of their own cause.
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

/// Runs a command other than `serve`, which has its own threads.
async fn run(command: Command) -> Result<(), Ended> {
    match command {
        Command::Migrate { config } => run::migrate(config.as_deref()).await.map_err(Into::into),
        Command::Config(config) => {
            let found = run::find_config(config.file()).map_err(Ended::Gateway)?;
            config.show(&found).map_err(Ended::Client)
        }
        Command::Serve { .. } | Command::StdioWarden | Command::StdioProgram { .. } => Ok(()),
        Command::Client(command) => cli::run(*command, Cli::command()).await.map_err(Ended::Client),
    }
}

#[expect(clippy::print_stderr, reason = "a start that fails says why before there is a log")]
fn main() -> ExitCode {
    let cli = Cli::parse();
    if matches!(cli.command, Command::StdioWarden) {
        run::stdio_warden();
        return ExitCode::SUCCESS;
    }
    if let Command::StdioProgram { hide, argv } = &cli.command {
        eprintln!("{}", run::stdio_program(hide, argv));
        return ExitCode::from(NOT_STARTED);
    }
    // ends after an error is printed: a name that is looked up in vain keeps it
    let runtime;
    let outcome = match cli.command {
        Command::Serve { config } => run::serve(config.as_deref()).map_err(Into::into),
        command => match Runtime::new() {
            Ok(started) => {
                runtime = started;
                runtime.block_on(run(command))
            }
            Err(error) => Err(Ended::Gateway(anyhow!(error).context("the runtime could not start"))),
        },
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(Ended::Gateway(error)) => {
            eprintln!("mcpproxy: {}", sentence(&error));
            ExitCode::from(exit::code(&error))
        }
        Err(Ended::Client(failure)) => {
            if !failure.is_silent() {
                eprintln!("mcpproxy: {}", cli::shown(&failure));
            }
            failure.exit_code()
        }
    }
}
