//! Figures of the process from the operating system, under the names that all exporters use.

use std::fmt;
use std::fs;
use std::time::{SystemTime, UNIX_EPOCH};

use rustix::process::{Resource, getrlimit};
use rustix::time::{ClockId, clock_gettime};

use super::page::MetricsPage;

/// Figures of this process.
pub(super) struct ProcessFigures {
    began: Option<f64>,
}

impl ProcessFigures {
    /// Creates the figures; the process counts as started now.
    pub(super) fn begin() -> ProcessFigures {
        let began = SystemTime::now().duration_since(UNIX_EPOCH).ok();
        ProcessFigures { began: began.map(|began| began.as_secs_f64()) }
    }

    pub(super) fn write(&self, page: &mut MetricsPage<'_>) -> fmt::Result {
        let spent = clock_gettime(ClockId::ProcessCPUTime);
        let spent = spent.tv_sec as f64 + spent.tv_nsec as f64 / 1e9;
        page.counter("process_cpu_seconds", "User and system time spent, in seconds", spent)?;
        let began = "When it started, in seconds since 1970";
        page.maybe_gauge("process_start_time_seconds", began, self.began)?;
        let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
        let kib = |name| field(&status, name).map(|kib| kib * 1024.0);
        let resident = "Memory in use, in bytes";
        page.maybe_gauge("process_resident_memory_bytes", resident, kib("VmRSS:"))?;
        let reserved = "Addresses in use, in bytes";
        page.maybe_gauge("process_virtual_memory_bytes", reserved, kib("VmSize:"))?;
        page.maybe_gauge("process_threads", "Threads", field(&status, "Threads:"))?;
        // the folder itself is open while it is counted
        let open = fs::read_dir("/proc/self/fd").ok().map(|open| open.count().saturating_sub(1) as f64);
        page.maybe_gauge("process_open_fds", "Files and sockets open", open)?;
        let most = getrlimit(Resource::Nofile).current.map(|most| most as f64);
        page.maybe_gauge("process_max_fds", "Files and sockets that may be open", most)
    }
}

/// Returns the number in a line of `/proc/self/status`; `None` if there is no such line.
fn field(status: &str, name: &str) -> Option<f64> {
    let rest = status.lines().find_map(|line| line.strip_prefix(name))?;
    rest.split_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::field;

    #[test]
    fn numbers_of_the_status() {
        let status = "Name:\tmcpproxy\nVmRSS:\t   25100 kB\nThreads:\t5\n";
        assert_eq!(field(status, "VmRSS:"), Some(25100.0));
        assert_eq!(field(status, "Threads:"), Some(5.0));
        assert_eq!(field(status, "VmSize:"), None);
    }
}
