//! The gateway's private Postgres: its processes, and what one insert costs it.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use sqlx::{Connection, Executor, PgConnection};
use tokio::task::JoinSet;

use crate::cpu;
use crate::load::Slice;

/// Bytes of the inserted text: about one activity record.
const ROW_BYTES: usize = 1000;

/// The server that a gateway runs for itself.
#[derive(Clone, Debug)]
pub struct Postgres {
    pid: u32,
    /// Where to connect, as its superuser.
    pub url: String,
}

impl Postgres {
    /// Finds it by what it notes in its cluster.
    ///
    /// # Errors
    /// If no server runs there.
    pub fn find(data_dir: &Path) -> Result<Postgres> {
        let path = cluster(data_dir).join("postmaster.pid");
        let text = std::fs::read_to_string(&path).with_context(|| path.display().to_string())?;
        let mut lines = text.lines().map(str::trim);
        let pid = lines.next().and_then(|line| line.parse().ok()).context("no process id")?;
        let folder = lines.nth(3).context("no socket folder")?;
        let folder = folder.replace('%', "%25").replace('/', "%2F");
        let path = data_dir.join("postgres.password");
        let password = std::fs::read_to_string(&path).with_context(|| path.display().to_string())?;
        Ok(Postgres {
            pid,
            url: format!(
                "postgres://mcpproxy:{password}@localhost:5432/mcpproxy?host={folder}&sslmode=disable"
            ),
        })
    }

    /// The server and all its workers.
    pub fn pids(&self) -> Vec<u32> {
        cpu::family(self.pid)
    }

    /// Makes the scratch table.
    ///
    /// # Errors
    /// If the database does not answer.
    pub async fn prepare(&self) -> Result<()> {
        let mut connection = PgConnection::connect(&self.url).await?;
        sqlx::query(
            "create table bench_scratch (id bigint generated always as identity primary key, body text)",
        )
        .execute(&mut connection)
        .await?;
        Ok(connection.close().await?)
    }

    /// Runs statements on a tenant's behalf; `$TENANT` in them is its id.
    ///
    /// # Errors
    /// If the database refuses.
    pub async fn run(&self, statements: &str, tenant: uuid::Uuid) -> Result<()> {
        let mut connection = PgConnection::connect(&self.url).await?;
        let text = statements.replace("$TENANT", &format!("'{tenant}'"));
        connection.execute(sqlx::AssertSqlSafe(text)).await?;
        Ok(connection.close().await?)
    }

    /// Inserts rows one by one, each committed by itself, on as many connections as clients.
    ///
    /// # Errors
    /// If an insert fails.
    pub async fn insert(&self, clients: usize, time: Duration) -> Result<Slice> {
        let mut ready = Vec::with_capacity(clients);
        for _ in 0..clients {
            ready.push(PgConnection::connect(&self.url).await?);
        }
        let begun = Instant::now();
        let mut tasks = JoinSet::new();
        for mut connection in ready {
            tasks.spawn(async move {
                let body = "x".repeat(ROW_BYTES);
                let mut slice = Slice::default();
                while begun.elapsed() < time {
                    let sent = Instant::now();
                    let insert = sqlx::query("insert into bench_scratch (body) values ($1)").bind(&body);
                    insert.execute(&mut connection).await?;
                    slice.note(sent);
                }
                Ok::<_, anyhow::Error>(slice)
            });
        }
        let mut total = Slice::default();
        while let Some(done) = tasks.join_next().await {
            total.add(done??);
        }
        total.elapsed = begun.elapsed();
        Ok(total)
    }
}

/// The cluster, which is not always in the data directory: the server's user must be able to reach it.
fn cluster(data_dir: &Path) -> PathBuf {
    let link = data_dir.join("postgres");
    std::fs::read_link(&link).map_or(link, |target| data_dir.join(target))
}
