//! Logs of servers. Lines come from this replica's programs and listings, are written to the database once a second, and can
//! be read on any replica.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use chrono::{DateTime, Utc};
use tokio::sync::mpsc;

use super::Servers;
use crate::domain::id::{ServerId, TenantId};
use crate::domain::log_line::{self, Raw};
use crate::domain::tenant::Action;
use crate::gateway::GatewayError;
use crate::gateway::tenants::Caller;
use crate::store::{NewLogLine, StoredLogLine};
use crate::upstream::{LINE_BYTES_MAX, LogLine, LogSource};

/// Most lines on a page.
pub const LOG_LIMIT_MAX: usize = 500;
/// Most lines that wait to be written; further ones are dropped.
pub(super) const WAITING_MAX: usize = 4096;
/// Pause between two writes, unless a whole batch waits already.
const PAUSE: Duration = Duration::from_secs(1);
/// Most lines per write.
const BATCH: usize = 1000;
/// Deadline of the last write at shutdown.
const LAST_WRITE_MAX: Duration = Duration::from_secs(2);

/// A page of a server's log.
#[derive(Debug)]
pub struct LogPage {
    /// Lines, oldest first.
    pub lines: Vec<StoredLogLine>,
    /// Cursor of the page: later lines come after this position.
    pub end: i64,
}

impl Servers {
    /// Returns the newest lines of a server's log; with `after`, the first lines after that position.
    ///
    /// # Errors
    /// [`GatewayError::Forbidden`] for the role, [`GatewayError::NotFound`], [`GatewayError::Invalid`] without a tenant, or
    /// [`GatewayError::Unavailable`].
    pub async fn server_log(
        &self,
        caller: &Caller,
        name: &str,
        after: Option<i64>,
        limit: usize,
    ) -> Result<LogPage, GatewayError> {
        caller.authorise(Action::ChangeServers)?;
        let server = self.get_server(caller, name).await?;
        let tenant = caller.tenant()?.id;
        let limit = i64::try_from(limit.min(LOG_LIMIT_MAX)).unwrap_or(1);
        let lines = self.store.read_log(tenant, server.id(), after, limit).await;
        let lines = lines.map_err(|error| GatewayError::from_store(error, "server"))?;
        let end = lines.last().map(|line| line.log_id).or(after).unwrap_or_default();
        Ok(LogPage { lines, end })
    }

    /// Adds a line to a server's log; drops it if too many lines wait to be written.
    pub(in crate::gateway) fn log_server(&self, tenant: TenantId, server: ServerId, text: &str) {
        let Some(text) = log_line::fit(Raw::Whole(text.as_bytes()), LINE_BYTES_MAX, std::iter::empty())
        else {
            return;
        };
        let source = LogSource::Gateway;
        let line =
            LogLine { tenant: tenant.0, server: server.0, at: SystemTime::now(), source, text, turn: None };
        drop(self.journal.try_send(line));
    }

    /// Takes the receiver of log lines, for the task that writes them; `None` after the first call.
    pub(in crate::gateway) fn take_journal(&self) -> Option<mpsc::Receiver<LogLine>> {
        self.journal_lines.lock().take()
    }

    /// Writes log lines, at most once a second, until all senders are gone or the gateway stops.
    pub(in crate::gateway) async fn write_server_logs(self: Arc<Self>, mut lines: mpsc::Receiver<LogLine>) {
        loop {
            let mut batch = Vec::new();
            tokio::select! {
                taken = lines.recv_many(&mut batch, BATCH) => if taken == 0 { return },
                () = self.life.stop.cancelled() => break,
            }
            self.write_log_batch(&batch).await;
            drop(batch);
            if lines.len() >= BATCH {
                // another whole batch waits already
                continue;
            }
            tokio::select! {
                () = tokio::time::sleep(PAUSE) => {}
                () = self.life.stop.cancelled() => break,
            }
        }
        let mut last = Vec::new();
        while last.len() < WAITING_MAX
            && let Ok(line) = lines.try_recv()
        {
            last.push(line);
        }
        drop(tokio::time::timeout(LAST_WRITE_MAX, self.write_log_batch(&last)).await);
    }

    async fn write_log_batch(&self, batch: &[LogLine]) {
        if batch.is_empty() {
            return;
        }
        let lines: Vec<NewLogLine> = batch.iter().map(new_line).collect();
        let mut written = self.store.write_logs(&lines).await;
        if written.is_err() {
            // a server may have been removed under its lines, or another writer was slow
            written = self.store.write_logs(&lines).await;
        }
        if let Err(error) = written {
            tracing::warn!(%error, lines = lines.len(), "lines of servers' logs are lost");
        }
    }
}

fn new_line(line: &LogLine) -> NewLogLine {
    NewLogLine {
        tenant: TenantId(line.tenant),
        server: ServerId(line.server),
        at: DateTime::<Utc>::from(line.at),
        source: match line.source {
            LogSource::Stderr => "stderr",
            LogSource::Gateway => "gateway",
        },
        line: line.text.clone(),
    }
}
