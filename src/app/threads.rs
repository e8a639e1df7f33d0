//! Threads that serve requests: the runtime of `mcpproxy serve`.

use std::io;
use std::num::NonZeroUsize;
use std::thread::available_parallelism;

use tokio::runtime::{Builder, Runtime};

/// Most threads without `server.workers`. A container without a limit may use all processors of its machine, and more threads than
/// this cost memory that a replica rarely needs.
const DEFAULT_MAX: usize = 16;

/// Creates the runtime with `workers` threads. 0 stands for one for each processor that the process may use, by its affinity and the limit of
/// its control group (rounded down, but at least one), at most [`DEFAULT_MAX`].
///
/// # Errors
/// The system gives no more threads or files.
pub(super) fn start(workers: usize) -> io::Result<Runtime> {
    Builder::new_multi_thread().worker_threads(number(workers, available_parallelism())).enable_all().build()
}

fn number(workers: usize, processors: io::Result<NonZeroUsize>) -> usize {
    match workers {
        0 => processors.map_or(1, NonZeroUsize::get).min(DEFAULT_MAX),
        workers => workers,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_large_machine_gets_no_thread_for_each_processor() {
        let processors = |number| Ok(NonZeroUsize::new(number).unwrap());
        assert_eq!(number(0, processors(2)), 2);
        assert_eq!(number(0, processors(64)), DEFAULT_MAX);
        assert_eq!(number(64, processors(2)), 64);
        assert_eq!(number(0, Err(io::ErrorKind::Unsupported.into())), 1);
    }

    #[test]
    fn the_runtime_has_the_threads_that_are_set() {
        let runtime = start(3).unwrap();
        assert_eq!(runtime.metrics().num_workers(), 3);
    }
}
