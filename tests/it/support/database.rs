//! A database per test.

use std::time::Duration;

use sqlx::{AssertSqlSafe, Connection, PgConnection};

use super::gateway::Gateway;
use super::postgres::Cluster;
use super::wait::eventually;

/// The database that [`Database::migrated`] copies.
const TEMPLATE: &str = "migrated";
/// The lock of whoever makes it: a test is a process or a thread.
const TEMPLATE_LOCK: i64 = 1;

/// Records that wait because of [`Database::hold_records`].
pub const HELD_RECORDS: &str = "select count(*) from pg_locks l join pg_database d on d.oid = l.database
    where d.datname = current_database() and l.locktype = 'advisory' and l.objid = 77 and not l.granted";

/// A fresh database, dropped at the end.
pub struct Database {
    name: String,
    /// A superuser's URL.
    url: String,
    /// The same for the database from which it is dropped; `None` when its whole cluster goes.
    admin_url: Option<String>,
}

impl Database {
    /// Makes an empty one.
    pub async fn create() -> Database {
        Database::copy_of("template1", &mut admin().await).await
    }

    /// Makes a migrated one: a copy of one that `mcpproxy migrate` made for the whole run, which takes a tenth of
    /// the time.
    pub async fn migrated() -> Database {
        let mut admin = admin().await;
        make_template(&mut admin).await;
        let copy = Database::copy_of(TEMPLATE, &mut admin).await;
        // the one right that is not copied
        execute(&mut admin, format!("grant create on database {} to mcpproxy_owner", copy.name)).await;
        copy
    }

    async fn copy_of(template: &str, admin: &mut PgConnection) -> Database {
        let name = format!("it_{}", uuid::Uuid::new_v4().simple());
        let cluster = Cluster::of_this_run();
        // files are copied in half the time of pages; before Postgres 15 nothing else was
        let is_told = admin.server_version_num().is_some_and(|version| version >= 150_000);
        let strategy = if is_told { "strategy file_copy" } else { "" };
        execute(admin, format!("create database {name} template {template} {strategy}")).await;
        Database { url: cluster.url(&name), name, admin_url: Some(cluster.url("postgres")) }
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

    /// All rows of all tables as JSON, each with the name of its table.
    pub async fn rows(&self) -> Vec<(String, String)> {
        let mut connection = self.connect().await;
        let tables: Vec<String> = sqlx::query_scalar(
            "select relname from pg_class c join pg_namespace n on n.oid = c.relnamespace
             where n.nspname = 'public' and c.relkind = 'r'",
        )
        .fetch_all(&mut connection)
        .await
        .unwrap();
        let mut rows = Vec::new();
        for table in tables {
            let select = format!("select to_jsonb(t)::text from {table} t");
            let found: Vec<String> =
                sqlx::query_scalar(AssertSqlSafe(select)).fetch_all(&mut connection).await.unwrap();
            rows.extend(found.into_iter().map(|row| (table.clone(), row)));
        }
        rows
    }

    /// Makes every record of calls of this tool wait until the returned connection ends; all others go on.
    pub async fn hold_records(&self, tool: &str) -> PgConnection {
        let mut connection = self.connect().await;
        let statements = format!(
            "select pg_advisory_lock(77);
             create function hold() returns trigger language plpgsql as $$ begin
                 perform pg_catalog.pg_advisory_xact_lock(77);
                 return new;
             end $$;
             create trigger hold before insert on activity_open for each row
                 when (new.tool = '{tool}') execute function hold();"
        );
        sqlx::raw_sql(AssertSqlSafe(statements)).execute(&mut connection).await.unwrap();
        connection
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

async fn admin() -> PgConnection {
    let url = Cluster::of_this_run().url("postgres");
    // the port answers a little before the server does
    eventually("Postgres to answer", Duration::from_secs(30), || async {
        PgConnection::connect(&url).await.ok()
    })
    .await
}

async fn execute(admin: &mut PgConnection, statement: String) {
    sqlx::query(AssertSqlSafe(statement)).execute(admin).await.unwrap();
}

/// Makes it, unless another test of this run has: one is a template when it is whole.
async fn make_template(admin: &mut PgConnection) {
    if is_made(admin).await {
        return;
    }
    sqlx::query("select pg_advisory_lock($1)").bind(TEMPLATE_LOCK).execute(&mut *admin).await.unwrap();
    if !is_made(admin).await {
        execute(admin, format!("drop database if exists {TEMPLATE} with (force)")).await;
        execute(admin, format!("create database {TEMPLATE}")).await;
        let url = Cluster::of_this_run().url(TEMPLATE);
        Gateway::migrate(&Database { name: TEMPLATE.to_owned(), url, admin_url: None });
        execute(admin, format!("alter database {TEMPLATE} is_template true")).await;
    }
    sqlx::query("select pg_advisory_unlock($1)").bind(TEMPLATE_LOCK).execute(admin).await.unwrap();
}

async fn is_made(admin: &mut PgConnection) -> bool {
    sqlx::query_scalar("select exists (select from pg_database where datname = $1 and datistemplate)")
        .bind(TEMPLATE)
        .fetch_one(admin)
        .await
        .unwrap()
}

fn drop_quietly<T>(_: T) {}
