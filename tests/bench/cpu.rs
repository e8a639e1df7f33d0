//! What the system says about processes: CPU time and memory, from `/proc`.

use std::collections::HashMap;
use std::fs;

/// CPU time of threads at one moment, nanoseconds.
pub struct Reading(HashMap<(u32, u32), u64>);

impl Reading {
    /// Of all threads of these processes, not of their children.
    pub fn of(pids: &[u32]) -> Reading {
        let threads = pids.iter().flat_map(|&pid| {
            numbers(&format!("/proc/{pid}/task")).into_iter().filter_map(move |thread| {
                let text = fs::read_to_string(format!("/proc/{pid}/task/{thread}/schedstat")).ok()?;
                Some(((pid, thread), text.split_whitespace().next()?.parse().ok()?))
            })
        });
        Reading(threads.collect())
    }

    /// Nanoseconds since an earlier reading. What a thread used that has ended meanwhile is not seen.
    pub fn since(&self, earlier: &Reading) -> u64 {
        let used = |(thread, now): (&(u32, u32), &u64)| {
            now.saturating_sub(earlier.0.get(thread).copied().unwrap_or_default())
        };
        self.0.iter().map(used).sum()
    }
}

/// A process and its children.
pub fn family(pid: u32) -> Vec<u32> {
    let parent = |child: &u32| {
        let stat = fs::read_to_string(format!("/proc/{child}/stat")).ok()?;
        // the name before may hold anything
        let (_, rest) = stat.rsplit_once(')')?;
        rest.split_whitespace().nth(1)?.parse::<u32>().ok()
    };
    let children = numbers("/proc").into_iter().filter(|child| parent(child) == Some(pid));
    std::iter::once(pid).chain(children).collect()
}

/// Memory of a process with shared pages split among their users (PSS), MiB.
pub fn memory_mib(pid: u32) -> Option<f64> {
    mib(&format!("/proc/{pid}/smaps_rollup"), "Pss:")
}

/// Returns the memory that a process has in use (resident set), MiB.
pub fn resident_mib(pid: u32) -> Option<f64> {
    mib(&format!("/proc/{pid}/status"), "VmRSS:")
}

/// Returns the most that it ever had in use, MiB.
pub fn resident_peak_mib(pid: u32) -> Option<f64> {
    mib(&format!("/proc/{pid}/status"), "VmHWM:")
}

/// Returns a line of KiB with this name, as MiB.
fn mib(path: &str, name: &str) -> Option<f64> {
    let text = fs::read_to_string(path).ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix(name))?;
    let kib: f64 = line.split_whitespace().next()?.parse().ok()?;
    Some(kib / 1024.0)
}

fn numbers(folder: &str) -> Vec<u32> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect()
}
