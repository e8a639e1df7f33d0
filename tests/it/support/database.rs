//! A database per test.

use std::time::Duration;

use sqlx::{AssertSqlSafe, Connection, PgConnection};

use super::postgres::Cluster;
use super::wait::eventually;

/// A fresh database, dropped at the end.
pub struct Database {
    name: String,
}

impl Database {
    /// Makes one.
    pub async fn create() -> Database {
        let name = format!("it_{}", uuid::Uuid::new_v4().simple());
        // the port answers a little before the server does
        let mut admin = eventually("Postgres to answer", Duration::from_secs(30), || async {
            PgConnection::connect(&Cluster::of_this_run().url("postgres")).await.ok()
        })
        .await;
        sqlx::query(AssertSqlSafe(format!("create database {name}"))).execute(&mut admin).await.unwrap();
        Database { name }
    }

    /// A superuser's URL.
    pub fn url(&self) -> String {
        Cluster::of_this_run().url(&self.name)
    }

    /// A superuser's connection.
    pub async fn connect(&self) -> PgConnection {
        PgConnection::connect(&self.url()).await.unwrap()
    }
}

impl Drop for Database {
    fn drop(&mut self) {
        let drop = format!("drop database if exists {} with (force)", self.name);
        let url = Cluster::of_this_run().url("postgres");
        // a runtime of its own: this runs while the test's is in use
        let dropper = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
            runtime.block_on(async {
                let mut admin = PgConnection::connect(&url).await?;
                sqlx::query(AssertSqlSafe(drop)).execute(&mut admin).await?;
                Ok::<_, anyhow::Error>(())
            })
        });
        // the whole cluster goes at the end of the run
        drop_quietly(dropper.join());
    }
}

fn drop_quietly<T>(_: T) {}
