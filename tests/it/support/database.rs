//! A database per test.

use std::time::Duration;

use sqlx::{AssertSqlSafe, Connection, PgConnection};

use super::postgres::Cluster;
use super::wait::eventually;

/// A fresh database, dropped at the end.
pub struct Database {
    name: String,
    /// A superuser's URL.
    url: String,
    /// The same for the database from which it is dropped; `None` when its whole cluster goes.
    admin_url: Option<String>,
}

impl Database {
    /// Makes one.
    pub async fn create() -> Database {
        let name = format!("it_{}", uuid::Uuid::new_v4().simple());
        let cluster = Cluster::of_this_run();
        let (url, admin_url) = (cluster.url(&name), cluster.url("postgres"));
        // the port answers a little before the server does
        let mut admin = eventually("Postgres to answer", Duration::from_secs(30), || async {
            PgConnection::connect(&admin_url).await.ok()
        })
        .await;
        sqlx::query(AssertSqlSafe(format!("create database {name}"))).execute(&mut admin).await.unwrap();
        Database { name, url, admin_url: Some(admin_url) }
    }

    /// One that is there already and goes with its cluster.
    pub(super) fn at(name: &str, url: String) -> Database {
        Database { name: name.to_owned(), url, admin_url: None }
    }

    /// A superuser's URL.
    pub fn url(&self) -> String {
        self.url.clone()
    }

    /// The port of its cluster.
    pub fn port(&self) -> u16 {
        let (_, rest) = self.url.split_once("@127.0.0.1:").unwrap();
        rest.split_once('/').unwrap().0.parse().unwrap()
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// A superuser's connection.
    pub async fn connect(&self) -> PgConnection {
        PgConnection::connect(&self.url()).await.unwrap()
    }

    /// A number, asked for by a superuser.
    pub async fn count(&self, query: &'static str) -> i64 {
        sqlx::query_scalar(query).fetch_one(&mut self.connect().await).await.unwrap()
    }
}

impl Drop for Database {
    fn drop(&mut self) {
        let Some(url) = self.admin_url.take() else { return };
        let drop = format!("drop database if exists {} with (force)", self.name);
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
