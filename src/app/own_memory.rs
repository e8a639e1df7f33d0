//! Protection of this process's memory from other processes of its user, such as the programs that it runs.

use std::io;

/// Restricts reading this process's environment and memory, and tracing it, to root. Child processes are not affected.
/// Does nothing on systems other than Linux.
pub(super) fn close() -> io::Result<()> {
    #[cfg(target_os = "linux")]
    {
        use rustix::process::{DumpableBehavior, set_dumpable_behavior};
        set_dumpable_behavior(DumpableBehavior::NotDumpable)?;
    }
    Ok(())
}
