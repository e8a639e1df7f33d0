//! Memory budget of requests and answers: the configured value, or 60 % of the process's memory limit.

use std::fs;
use std::path::{Path, PathBuf};

use super::config::ConfigError;

/// Default budget, in percent of the process's memory limit.
const PERCENT: u64 = 60;
/// Memory limit assumed for a process whose control group sets none, in bytes.
const WITHOUT_LIMIT_BYTES: u64 = 1 << 30;

/// Returns the memory budget in bytes: `set`, or the default where `set` is 0.
///
/// # Errors
/// [`ConfigError::Memory`] if `set` is more than the control group allows the whole process.
pub(super) fn resolve(set: usize) -> Result<usize, ConfigError> {
    of(set, limit_of(Path::new("/")))
}

fn of(set: usize, limit: Option<u64>) -> Result<usize, ConfigError> {
    if set == 0 {
        let bytes = limit.unwrap_or(WITHOUT_LIMIT_BYTES) / 100 * PERCENT;
        return Ok(usize::try_from(bytes).unwrap_or(usize::MAX));
    }
    if let Some(limit) = limit.filter(|limit| set as u64 > *limit) {
        return Err(ConfigError::Memory { set, limit, percent: PERCENT });
    }
    Ok(set)
}

/// Returns the least memory limit of this process's control groups, in bytes; `None` without a limit. `root`
/// is the root of the file system.
fn limit_of(root: &Path) -> Option<u64> {
    let groups = fs::read_to_string(root.join("proc/self/cgroup")).ok()?;
    let limits = groups.lines().filter_map(|line| {
        let (controllers, path) = line.split_once(':')?.1.split_once(':')?;
        let (mount, file) = match controllers {
            "" => ("sys/fs/cgroup", "memory.max"),
            _ if controllers.split(',').any(|name| name == "memory") => {
                ("sys/fs/cgroup/memory", "memory.limit_in_bytes")
            }
            _ => return None,
        };
        least(&root.join(mount), Path::new(path.trim_start_matches('/')), file)
    });
    limits.min()
}

/// Returns the least limit of a control group and its ancestors, in bytes; `None` without a limit. In a
/// container `group` may be the host's path, which is not mounted. The root of the mount is then the group.
fn least(mount: &Path, group: &Path, file: &str) -> Option<u64> {
    let groups: Vec<PathBuf> = group.ancestors().map(|group| mount.join(group).join(file)).collect();
    let limits = groups.iter().filter_map(|path| fs::read_to_string(path).ok()?.trim().parse::<u64>().ok());
    // version 1 writes the largest number of pages for "none"
    limits.filter(|limit| *limit < 1 << 60 && *limit > 0).min()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A file system with these files.
    fn root(files: &[(&str, &str)]) -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        for (path, text) in files {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        root
    }

    #[test]
    fn limits_of_both_versions_and_of_groups_around() {
        let v2 = |max: &'static str| ("sys/fs/cgroup/memory.max", max);
        let own = ("proc/self/cgroup", "0::/\n");
        let nested = ("proc/self/cgroup", "0::/a/b\n");
        let (outer, inner) = ("sys/fs/cgroup/a/memory.max", "sys/fs/cgroup/a/b/memory.max");
        let v1 = ("proc/self/cgroup", "5:cpu,cpuacct:/x\n4:memory:/docker/7\n0::/\n");
        let (v1_root, v1_own) = (
            "sys/fs/cgroup/memory/memory.limit_in_bytes",
            "sys/fs/cgroup/memory/docker/7/memory.limit_in_bytes",
        );
        for (files, expected) in [
            (vec![own, v2("1073741824\n")], Some(1 << 30)),
            (vec![own, v2("max\n")], None),
            (vec![own], None),
            (vec![], None),
            (vec![nested, (outer, "100\n"), (inner, "max\n")], Some(100)),
            (vec![nested, (outer, "100\n"), (inner, "50\n")], Some(50)),
            (vec![nested, v2("70\n")], Some(70)),
            (vec![v1, (v1_root, "9223372036854771712\n"), (v1_own, "4096\n")], Some(4096)),
            (vec![v1, (v1_root, "9223372036854771712\n")], None),
        ] {
            assert_eq!(limit_of(root(&files).path()), expected, "{files:?}");
        }
    }

    #[test]
    fn the_budget_is_what_is_set_or_a_part_of_what_there_is() {
        assert_eq!(of(0, Some(1000)).unwrap(), 600);
        assert_eq!(of(0, None).unwrap(), 644_245_080);
        assert_eq!(of(7, Some(7)).unwrap(), 7);
        assert_eq!(of(7, None).unwrap(), 7);
        let refused = of(8, Some(7)).unwrap_err().to_string();
        assert!(refused.contains("limits.memory_bytes_max is 8") && refused.contains("7 bytes"), "{refused}");
    }
}
