//! Keeps what this process knows from others of its own user: the programs that it runs are such.

use std::io;

/// From now on only root can read this process' environment and memory, or trace it. What it starts is not bound by
/// that. Elsewhere than on Linux nothing is done.
pub(super) fn close() -> io::Result<()> {
    #[cfg(target_os = "linux")]
    {
        use rustix::process::{DumpableBehavior, set_dumpable_behavior};
        set_dumpable_behavior(DumpableBehavior::NotDumpable)?;
    }
    Ok(())
}
