//! The logs of servers: lines come from this replica's programs and listings, go to the database once a second,
//! and are read from there, on whichever replica.

use std::sync::{Arc, PoisonError};
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

/// Most lines of a page.
pub const LOG_LIMIT_MAX: usize = 500;
/// Lines that wait to be written; further ones are left out.
pub(super) const WAITING_MAX: usize = 4096;
/// Between two writes, unless a whole batch waits already.
const PAUSE: Duration = Duration::from_secs(1);
/// Lines written at once.
const BATCH: usize = 1000;
/// How long writing may take when the gateway stops.
const LAST_WRITE_MAX: Duration = Duration::from_secs(2);

/// A part of a server's log.
#[derive(Debug)]
pub struct LogPage {
    /// The oldest first.
    pub lines: Vec<StoredLogLine>,
    /// What was written since has places after this.
    pub end: i64,
}

impl Servers {
    /// The newest lines of a server's log, or with `after` the first ones since then.
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

    /// Notes what became of a server; left out if too much waits to be written.
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

    /// Takes the receiver of lines, for the one who writes them; `None` after the first time.
    pub(in crate::gateway) fn take_journal(&self) -> Option<mpsc::Receiver<LogLine>> {
        self.journal_lines.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// Writes what comes, at most once a second, until nobody can send any more or the gateway has stopped.
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
                // what waits is more than goes at once
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
            // a server may have gone under its lines, or another writer was slow
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
