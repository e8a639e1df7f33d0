//! The limit of open files (`RLIMIT_NOFILE`): every connection is an open file.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use super::config::LimitSettings;
use crate::faces::admin;

/// Files of a running program: its pipes and the handle that its end is awaited on.
const FILES_PER_PROGRAM: u64 = 4;
/// Files for all else: standard streams, listeners, the log of the private database, name look-ups, exports of traces.
const OTHER_FILES: u64 = 128;

/// Raises the limit of open files to what `limits` need, as far as the system allows, and warns if that is not enough.
pub(super) fn raise(limits: &LimitSettings) {
    let needed = needed(limits);
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    let Some(current) = current.filter(|current| *current < needed) else { return };
    let most = maximum.map_or(needed, |maximum| maximum.min(needed));
    let now = match setrlimit(Resource::Nofile, Rlimit { current: Some(most), maximum }) {
        Ok(()) => most,
        Err(error) => {
            tracing::debug!(%error, "RLIMIT_NOFILE could not be set");
            current
        }
    };
    if now > current {
        tracing::info!(from = current, to = now, "raised the limit of open files (RLIMIT_NOFILE)");
    }
    if now < needed {
        let connections = limits.connections_max;
        tracing::warn!(
            "the limit of open files is {now}, and the settings need {needed}: limits.connections_max is {connections}, and a \
             call on each takes a connection to a server. At the limit no connection is accepted or made. Raise it \
             (`ulimit -n`, LimitNOFILE= of systemd, --ulimit nofile= of a container), or lower limits.connections_max"
        );
    }
}

/// Returns how many files may be open at once under these limits. A client's connection has one call under way, which
/// takes one connection to a server.
fn needed(limits: &LimitSettings) -> u64 {
    let count = |number: usize| u64::try_from(number).unwrap_or(u64::MAX);
    let pools = [limits.database_pool_commit, limits.database_pool_control, limits.database_pool_report];
    let connections = count(limits.connections_max).saturating_mul(2);
    // announcements of lists, and updates of resources
    let streams = count(limits.upstream_streams_max).saturating_mul(2);
    let of_servers = streams.saturating_add(count(limits.relist_concurrency));
    let programs = count(limits.stdio_running_max).saturating_mul(FILES_PER_PROGRAM);
    [connections, of_servers, programs, count(admin::CONNECTIONS_MAX), OTHER_FILES]
        .into_iter()
        .chain(pools.map(u64::from))
        .fold(0, u64::saturating_add)
}
