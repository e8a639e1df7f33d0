//! Statistics that Postgres gathers of the log, which take it time that calls wait for.

use std::time::Duration;

use sqlx::{AssertSqlSafe, Executor};

use crate::support::{Database, Gateway, Stage, settle};

const SOON: Duration = Duration::from_secs(10);

/// Returns how many columns of all days of the log meet the condition.
async fn columns(database: &Database, condition: &str) -> i64 {
    let count = format!(
        "select count(*) from pg_attribute a join pg_inherits i on i.inhrelid = a.attrelid
         where i.inhparent = 'activity'::regclass and a.attnum > 0 and not a.attisdropped and {condition}"
    );
    sqlx::query_scalar(AssertSqlSafe(count)).fetch_one(&mut database.connect().await).await.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_statistics_of_every_day_are_bounded_also_after_an_upgrade() {
    const UNBOUNDED: &str = "coalesce(a.attstattarget, -1) not in (0, 20)";
    let stage = Stage::start().await;
    let database = &stage.database;
    settle(0, SOON, || columns(database, UNBOUNDED)).await;
    let days = columns(database, "a.attname = 'tool' and a.attstattarget = 20").await;
    assert!(days >= 15, "{days}");
    assert_eq!(columns(database, "a.attname = 'arguments' and a.attstattarget = 0").await, days);
    // a day of another release, and a column that came later: Postgres takes the largest sample that any column wants
    let other = "do $$ begin
             execute format('alter table %s alter column tool set statistics -1',
                 (select inhrelid::regclass from pg_inherits where inhparent = 'activity'::regclass limit 1));
         end $$;
         alter table activity add column later text";
    database.connect().await.execute(other).await.unwrap();
    assert_eq!(columns(database, UNBOUNDED).await, days + 1);
    let _upgraded = Gateway::start(database, &[]).await;
    settle(0, SOON, || columns(database, UNBOUNDED)).await;
}
