//! Creation of the roles, and migrations.

use std::time::{Duration, Instant};

use sqlx::migrate::{MigrateError, Migrator};
use sqlx::postgres::PgConnectOptions;
use sqlx::{AssertSqlSafe, Connection, PgConnection};

use super::connect::connect;
use super::{Store, StoreError, StoreOptions, connect_options, pooler};
use crate::domain::backoff::{Backoff, chance};

pub(super) static MIGRATOR: Migrator = sqlx::migrate!("./migrations");

/// Attempts to create the roles. Roles are cluster-wide: another database's migration may be creating them at this
/// moment.
const ROLE_ATTEMPTS: u32 = 20;
const ROLE_RETRY: Duration = Duration::from_millis(50);
/// Lock timeout of a migration: a session that waits for a table makes those behind it wait as well, serving replicas
/// among them.
const LOCK_WAIT_MAX: Duration = Duration::from_secs(2);
const LOCK_RETRY_MIN: Duration = Duration::from_secs(1);
const LOCK_RETRY_MAX: Duration = Duration::from_secs(8);
/// Longest time for which a locked table is retried: a migration of the chart has 240 s in all.
const LOCKED_MAX: Duration = Duration::from_secs(180);

/// Creates roles, tables and the next partitions; existing ones stay. The login of `url`, which will serve, gets the
/// roles too. Returns the number of files that were applied.
///
/// # Errors
/// [`StoreError::Unreachable`] if the database does not answer, [`StoreError::Schema`] if a pooler is in the way or the
/// login lacks rights. [`StoreError::Busy`] if others hold a table for too long, [`StoreError::Migrate`] if a file
/// fails. Other errors come from the database.
pub async fn migrate(options: &StoreOptions) -> Result<usize, StoreError> {
    let direct = connect_options(&options.direct_url, options.statement_cache)?;
    let serving = connect_options(&options.url, options.statement_cache)?;
    // later, errors of a pooler would be hard to explain
    pooler::check_direct(&direct).await?;
    let mut connection = connect(&direct).await?;
    create_roles(&mut connection, serving.get_username()).await?;
    connection.close().await?;
    let applied = apply_patiently(&direct).await?;
    let store = Store::new(options)?;
    let made = store.upkeep_partitions().await;
    let checked = store.check_schema().await;
    store.close().await;
    made.and(checked).map(|()| applied)
}

/// Applies the files; while others lock a table, retries with backoff for at most [`LOCKED_MAX`].
async fn apply_patiently(direct: &PgConnectOptions) -> Result<usize, StoreError> {
    let begun = Instant::now();
    let mut backoff = Backoff::new(LOCK_RETRY_MIN, LOCK_RETRY_MAX);
    let mut is_first = true;
    let mut before = None;
    loop {
        match apply(direct, &mut before).await {
            Err(error) if is_locked(&error) && begun.elapsed() >= LOCKED_MAX => return Err(locked()),
            Err(error) if is_locked(&error) => {
                if std::mem::take(&mut is_first) {
                    tracing::warn!(
                        "the migration waits for others who use its tables, a backup perhaps; it tries again"
                    );
                }
                tokio::time::sleep(backoff.jittered(chance())).await;
            }
            done => return done,
        }
    }
}

/// Applies the files once, on a connection of its own: a connection that failed still holds the lock that keeps other
/// migrations out. `before` is the number of files that the first attempt found.
async fn apply(direct: &PgConnectOptions, before: &mut Option<i64>) -> Result<usize, StoreError> {
    let mut connection = connect(direct).await?;
    // settings of the session are right here: this connection is direct, ours alone, and closed below
    let settings = format!("set role mcpproxy_owner; set lock_timeout = {}", LOCK_WAIT_MAX.as_millis());
    sqlx::raw_sql(AssertSqlSafe(settings)).execute(&mut connection).await?;
    // migrations of a newer release are additive: going back to this one is fine
    let applied = run_files(&mut connection, before).await;
    // a failed goodbye does not matter
    drop(connection.close().await);
    applied
}

/// Runs the files. Returns how many were applied since the first attempt, here or by a concurrent migration.
async fn run_files(connection: &mut PgConnection, before: &mut Option<i64>) -> Result<usize, StoreError> {
    let mut migrator = Migrator::with_migrations(MIGRATOR.iter().cloned().collect());
    let before = match *before {
        Some(before) => before,
        None => *before.insert(count_applied(connection).await?),
    };
    migrator.set_ignore_missing(true).run(&mut *connection).await?;
    let after = count_applied(connection).await?;
    Ok(usize::try_from(after - before).unwrap_or_default())
}

/// Returns the number of files that the database has; 0 if it was never migrated.
async fn count_applied(connection: &mut PgConnection) -> Result<i64, sqlx::Error> {
    let counted = sqlx::query_scalar("select count(*) from _sqlx_migrations where success");
    match counted.fetch_one(connection).await {
        Err(sqlx::Error::Database(error)) if error.code().as_deref() == Some("42P01") => Ok(0),
        counted => counted,
    }
}

/// Returns whether another session holds a lock that was asked for.
fn is_locked(error: &StoreError) -> bool {
    let (StoreError::Database(error)
    | StoreError::Migrate(MigrateError::Execute(error) | MigrateError::ExecuteMigration(error, _))) = error
    else {
        return false;
    };
    error.as_database_error().and_then(|error| error.code()).is_some_and(|code| code == "55P03")
}

fn locked() -> StoreError {
    StoreError::Busy(format!(
        "another session has used a table of mcpproxy for {} s, a backup or a long transaction perhaps, so it cannot be \
         changed (pg_stat_activity shows who): migrate when it is over",
        LOCKED_MAX.as_secs()
    ))
}

async fn create_roles(connection: &mut PgConnection, serving_login: &str) -> Result<(), StoreError> {
    let mut attempt = 1;
    loop {
        match try_create_roles(connection, serving_login).await {
            Ok(()) => return Ok(()),
            Err(error) if attempt < ROLE_ATTEMPTS && is_race(&error) => {
                attempt += 1;
                tokio::time::sleep(ROLE_RETRY).await;
            }
            Err(error) if is_denied(&error) => return Err(no_rights()),
            Err(error) => return Err(error.into()),
        }
    }
}

fn is_denied(error: &sqlx::Error) -> bool {
    error.as_database_error().and_then(|e| e.code()).is_some_and(|code| code == "42501")
}

fn no_rights() -> StoreError {
    StoreError::Schema(
        "this login may not create the roles of mcpproxy: migrate with a superuser or a login with CREATEROLE that \
         owns the database (database.direct_url), and serve with any login"
            .to_owned(),
    )
}

/// Returns whether two migrations ran at once: "tuple concurrently updated" or "duplicate role".
fn is_race(error: &sqlx::Error) -> bool {
    error
        .as_database_error()
        .and_then(|e| e.code())
        .is_some_and(|code| matches!(code.as_ref(), "XX000" | "42710" | "23505" | "40001" | "40P01"))
}

async fn try_create_roles(connection: &mut PgConnection, serving_login: &str) -> Result<(), sqlx::Error> {
    for role in ["mcpproxy_owner", "mcpproxy_app", "mcpproxy_system"] {
        let known: bool = sqlx::query_scalar("select exists (select from pg_roles where rolname = $1)")
            .bind(role)
            .fetch_one(&mut *connection)
            .await?;
        if !known {
            sqlx::query(AssertSqlSafe(format!("create role {role} nologin")))
                .execute(&mut *connection)
                .await?;
        }
        grant(connection, role, serving_login).await?;
    }
    let database: String =
        sqlx::query_scalar("select quote_ident(current_database())").fetch_one(&mut *connection).await?;
    for statement in [
        format!("grant create on database {database} to mcpproxy_owner"),
        "grant usage, create on schema public to mcpproxy_owner".to_owned(),
        "grant usage on schema public to mcpproxy_app, mcpproxy_system".to_owned(),
    ] {
        sqlx::query(AssertSqlSafe(statement)).execute(&mut *connection).await?;
    }
    Ok(())
}

/// Grants a role to the login that migrates and to the one that serves, unless they may take it already. From Postgres
/// 16 on, membership and the right to SET ROLE are separate, and creating a role gives only the first. Inheritance is
/// left out, so that no right holds outside the units of work.
async fn grant(connection: &mut PgConnection, role: &str, serving_login: &str) -> Result<(), sqlx::Error> {
    let version: i32 = sqlx::query_scalar("select current_setting('server_version_num')::int")
        .fetch_one(&mut *connection)
        .await?;
    let (right, options) =
        if version >= 160_000 { ("SET", " with inherit false, set true") } else { ("MEMBER", "") };
    let missing: Vec<String> = sqlx::query_scalar(
        "select quote_ident(rolname) from pg_roles r
         where rolname in (current_user, $2) and not pg_has_role(r.oid, $1::name, $3)",
    )
    .bind(role)
    .bind(serving_login)
    .bind(right)
    .fetch_all(&mut *connection)
    .await?;
    for login in missing {
        sqlx::query(AssertSqlSafe(format!("grant {role} to {login}{options}")))
            .execute(&mut *connection)
            .await?;
    }
    Ok(())
}
