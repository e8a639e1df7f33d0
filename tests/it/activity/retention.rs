//! What is kept of the log, for how long, and that nobody waits while the rest is removed.

use std::time::{Duration, Instant};

use chrono::{Days, NaiveDate, Utc};
use serde_json::json;
use sqlx::{AssertSqlSafe, Connection, Executor, PgConnection};

use crate::support::{Api, Database, Gateway, Mcp, Stage, Tool, Upstream, settle};

/// Every second instead of every hour.
const OFTEN: (&str, &str) = ("MCPPROXY__LIMITS__RETENTION_INTERVAL_S", "1");
const SOON: Duration = Duration::from_secs(15);

fn days_ago(days: u64) -> NaiveDate {
    Utc::now().date_naive() - Days::new(days)
}

fn partition(day: NaiveDate) -> String {
    format!("activity_{}", day.format("%Y%m%d"))
}

async fn run(connection: &mut PgConnection, statement: &str) {
    connection.execute(AssertSqlSafe(statement.to_owned())).await.unwrap();
}

/// A day of the past with a few records of a tenant.
async fn a_day_of(connection: &mut PgConnection, tenant: &str, days: u64, records: usize) {
    let (day, name) = (days_ago(days), partition(days_ago(days)));
    let next = day + Days::new(1);
    run(
        connection,
        &format!(
            "set role mcpproxy_owner;
             create table if not exists {name} (like activity including defaults including indexes);
             alter table {name} enable row level security, force row level security;
             do $$ begin
                 if not exists (select from pg_inherits where inhrelid = '{name}'::regclass) then
                     alter table activity attach partition {name} for values from ('{day}Z') to ('{next}Z');
                 end if;
             end $$;
             reset role;
             insert into activity (tenant_id, started_at, id, replica_id, type, source, status)
             select tenant_id, '{day}Z'::timestamptz + interval '1 hour' + n * interval '1 millisecond',
                 gen_random_uuid(), gen_random_uuid(), 'tool_call', 'mcp', 'success'
             from tenants, generate_series(1, {records}) n where name = '{tenant}'"
        ),
    )
    .await;
}

async fn of_tenant(database: &Database, tenant: &str, days: u64) -> i64 {
    sqlx::query_scalar(
        "select count(*) from activity where tenant_id in (select tenant_id from tenants where name = $1)
         and started_at::date = $2",
    )
    .bind(tenant)
    .bind(days_ago(days))
    .fetch_one(&mut database.connect().await)
    .await
    .unwrap()
}

/// Tables of the log's days, attached or not.
async fn tables(database: &Database) -> Vec<String> {
    sqlx::query_scalar(
        "select relname::text from pg_class where relkind = 'r' and relname ~ '^activity_[0-9]{8}$' order by 1",
    )
    .fetch_all(&mut database.connect().await)
    .await
    .unwrap()
}

/// From yesterday to fourteen days ahead.
fn expected(and: &[u64]) -> Vec<String> {
    let mut names: Vec<String> = and.iter().map(|days| partition(days_ago(*days))).collect();
    names.extend((0..16).map(|ahead| partition(days_ago(1) + Days::new(ahead))));
    names.sort();
    names
}

#[tokio::test(flavor = "multi_thread")]
async fn old_days_go_whole_and_a_tenant_may_keep_less() {
    let stage = Stage::with(&[("MCPPROXY__ACTIVITY__RETENTION_DAYS", "30"), OFTEN]).await;
    let database = &stage.database;
    let (short, long, gone) =
        (stage.tenant("short").await, stage.tenant("long").await, stage.tenant("gone").await);
    assert_eq!(tables(database).await, expected(&[]));
    let mut connection = database.connect().await;
    for tenant in ["short", "long", "gone"] {
        for days in [3, 10, 29] {
            a_day_of(&mut connection, tenant, days, 1500).await;
        }
    }
    let set = json!({"activity_retention_days": 7});
    let read = short.platform.patch("/api/v1/settings", &set).await.expect(200);
    assert_eq!(read["activity_retention_days"], json!({"value": 7, "origin": "tenant"}));
    let more =
        long.platform.patch("/api/v1/settings", &json!({"activity_retention_days": 365})).await.expect(200);
    assert_eq!(more["activity_retention_days"], json!({"value": 30, "origin": "deployment"}));
    gone.platform.delete("/api/v1/tenants/gone").await.expect(204);
    a_day_of(&mut connection, "long", 31, 10).await;
    a_day_of(&mut connection, "long", 60, 10).await;

    settle(expected(&[3, 10, 29]), SOON, || tables(database)).await;
    settle((0, 0), SOON, || async {
        (of_tenant(database, "short", 10).await, of_tenant(database, "short", 29).await)
    })
    .await;
    settle(0, SOON, || database.count(
        "select count(*) from activity where tenant_id in (select tenant_id from tenants where name = 'gone')",
    ))
    .await;
    // everything else stays
    assert_eq!(of_tenant(database, "short", 3).await, 1500);
    for days in [3, 10, 29] {
        assert_eq!(of_tenant(database, "long", days).await, 1500, "{days}");
    }
    // who serves requests may still not delete
    run(&mut connection, "set role mcpproxy_system").await;
    let denied = connection.execute("delete from activity").await.unwrap_err();
    assert_eq!(denied.as_database_error().unwrap().code().as_deref(), Some("42501"));
}

/// What the database's clock says is off by so much from now on, also for the sessions that are open.
async fn shift(connection: &mut PgConnection, by: &str) {
    run(
        connection,
        &format!(
            "create or replace function other.clock_timestamp() returns timestamptz language sql as
                 $$ select pg_catalog.clock_timestamp() + interval '{by}' $$"
        ),
    )
    .await;
}

/// A replica whose clock is far ahead of the database's drops nothing that is kept; one that is far behind makes the days
/// ahead, and drops what is old. Both record.
#[tokio::test(flavor = "multi_thread")]
async fn what_is_old_goes_by_the_databases_clock() {
    let database = Database::migrated().await;
    let mut connection = database.connect().await;
    let name = database.name();
    run(
        &mut connection,
        &format!(
            "create schema other; grant usage on schema other to public;
             alter database \"{name}\" set search_path = public, other, pg_catalog"
        ),
    )
    .await;
    shift(&mut connection, "-100 days").await;
    // no partition for what the replica records today
    run(&mut connection, &format!("drop table {}", partition(days_ago(0)))).await;
    let stage = Stage { gateway: Gateway::start(&database, &[OFTEN]).await, database };
    let database = &stage.database;
    let tenant = stage.tenant("acme").await;
    tenant.platform.patch("/api/v1/settings", &json!({"activity_retention_days": 7})).await.expect(200);
    stage.tenant("long").await;
    for days in [100, 104, 115] {
        a_day_of(&mut connection, "acme", days, 10).await;
        a_day_of(&mut connection, "long", days, 10).await;
    }
    // 95 days old by the database's clock: once it is gone, so was everything that is to go
    a_day_of(&mut connection, "long", 195, 10).await;
    settle(0, SOON, || of_tenant(database, "acme", 115)).await;
    let mut there: Vec<String> = expected(&[104, 115]);
    // from the database's yesterday to fourteen days ahead of it
    there.extend((86..=101).map(|days| partition(days_ago(days))));
    there.sort();
    settle(there, SOON, || tables(database)).await;
    for (name, days) in [("acme", 100), ("acme", 104), ("long", 100), ("long", 104), ("long", 115)] {
        assert_eq!(of_tenant(database, name, days).await, 10, "{name}, {days} days ago");
    }
    settle(true, SOON, || async { of_tenant(database, "acme", 0).await > 0 }).await;

    shift(&mut connection, "30 days").await;
    // 89 days old by the database's clock, and 105
    a_day_of(&mut connection, "long", 59, 10).await;
    a_day_of(&mut connection, "long", 75, 10).await;
    let ahead = (29..=44).map(|days| partition(days_ago(0) + Days::new(days)));
    let there: Vec<String> = expected(&[59]).into_iter().chain(ahead).collect();
    settle(there, SOON, || tables(database)).await;
    assert_eq!(of_tenant(database, "long", 59).await, 10);
}

/// A deleted tenant's credentials go at once; what a request that was under way stored afterwards, at the next pass.
#[tokio::test(flavor = "multi_thread")]
async fn late_credentials_of_a_deleted_tenant_go_too() {
    let stage = Stage::with(&[OFTEN]).await;
    let tenant = stage.tenant("gone").await;
    let upstream = Upstream::handshake(vec![Tool::writes("echo")]).await;
    tenant.add_with("up", &upstream, json!({"headers": {"X-Key": "one"}})).await;
    let mut connection = stage.database.connect().await;
    run(
        &mut connection,
        "create table kept_keys as select * from data_keys; create table kept_secrets as select * from server_secrets",
    )
    .await;
    tenant.platform.delete("/api/v1/tenants/gone").await.expect(204);
    let left = "select (select count(*) from data_keys) + (select count(*) from server_secrets)";
    assert_eq!(stage.database.count(left).await, 0);
    run(
        &mut connection,
        // the server they belong to may be gone by now
        "set session_replication_role = replica;
         insert into data_keys select * from kept_keys; insert into server_secrets select * from kept_secrets",
    )
    .await;
    assert_eq!(stage.database.count("select count(*) from kept_secrets").await, 1);
    settle(0, SOON, || stage.database.count(left)).await;
}

/// Records of one tenant cannot be deleted: those of the tenants after it are.
#[tokio::test(flavor = "multi_thread")]
async fn one_tenant_does_not_hold_up_the_retention_of_others() {
    let stage = Stage::with(&[OFTEN]).await;
    let mut connection = stage.database.connect().await;
    let names = ["stuck-1", "stuck-2", "fine"];
    let mut tenants = Vec::new();
    for name in names {
        tenants.push(stage.tenant(name).await);
        a_day_of(&mut connection, name, 10, 10).await;
    }
    run(
        &mut connection,
        "create function refuse() returns trigger language plpgsql as $$ begin
             if old.tenant_id in (select tenant_id from public.tenants where name like 'stuck%') then
                 raise exception 'it is stuck';
             end if;
             return old;
         end $$;
         alter function refuse() security definer;
         create trigger refuse before delete on activity for each row execute function refuse()",
    )
    .await;
    for tenant in &tenants {
        let set = json!({"activity_retention_days": 7});
        tenant.platform.patch("/api/v1/settings", &set).await.expect(200);
    }
    settle(0, SOON, || of_tenant(&stage.database, "fine", 10)).await;
    assert_eq!(of_tenant(&stage.database, "stuck-1", 10).await, 10);
    assert_eq!(stage.gateway.log().matches("it is stuck").count(), 1, "{}", stage.gateway.log());
}

/// A row whose day has no partition, left open by a replica that is gone: it is closed, and so are all others.
#[tokio::test(flavor = "multi_thread")]
async fn an_open_record_of_a_day_without_a_partition_is_closed() {
    let stage = Stage::start().await;
    stage.tenant("acme").await;
    let mut connection = stage.database.connect().await;
    run(
        &mut connection,
        "insert into activity_open (tenant_id, started_at, id, replica_id, type, source, status)
         select tenant_id, now() - days * interval '1 day', gen_random_uuid(), gen_random_uuid(), 'tool_call', 'mcp',
             'pending'
         from tenants, unnest(array[0, 40, 500]) days where name = 'acme'",
    )
    .await;
    settle(0, SOON, || stage.database.count("select count(*) from activity_open")).await;
    let closed = "select count(*) from activity where status = 'unknown'";
    assert_eq!(stage.database.count(closed).await, 3);
}

/// A day that is over stays for as long as one of its records is open.
#[tokio::test(flavor = "multi_thread")]
async fn a_day_with_open_records_is_kept() {
    let stage = Stage::with(&[OFTEN]).await;
    stage.tenant("acme").await;
    let mut connection = stage.database.connect().await;
    run(
        &mut connection,
        "insert into activity_open (tenant_id, started_at, id, replica_id, type, source, status)
         select tenant_id, now() - interval '120 days', gen_random_uuid(), replica_id, 'tool_call', 'mcp', 'pending'
         from tenants, replicas where name = 'acme'",
    )
    .await;
    // what works on it: somebody who lives and is not this gateway
    run(
        &mut connection,
        "insert into replicas (replica_id, version, heartbeat_at)
             values ('00000000-0000-0000-0000-000000000001', 'x', now() + interval '1 hour');
         update activity_open set replica_id = '00000000-0000-0000-0000-000000000001'",
    )
    .await;
    for days in [119, 120] {
        a_day_of(&mut connection, "acme", days, 1).await;
    }
    settle(expected(&[120]), SOON, || tables(&stage.database)).await;
    run(&mut connection, "update replicas set stopped_at = now() where version = 'x'").await;
    settle(expected(&[]), SOON, || tables(&stage.database)).await;
}

/// Killed at any point, the next one goes on; also when a person left a partition half detached.
#[tokio::test(flavor = "multi_thread")]
async fn what_was_interrupted_is_taken_up() {
    let database = Database::migrated().await;
    let mut connection = database.connect().await;
    for days in [100, 101, 102, 103] {
        a_day_of(&mut connection, "platform", days, 10).await;
    }
    // one that was detached and not dropped
    run(&mut connection, &format!("alter table activity detach partition {}", partition(days_ago(101))))
        .await;
    // one that is half detached: a reader holds it until its detaching gives up
    let half = partition(days_ago(102));
    let mut reader = database.connect().await;
    let mut tx = reader.begin().await.unwrap();
    sqlx::query("select count(*) from activity").execute(&mut *tx).await.unwrap();
    run(&mut connection, "set lock_timeout = '50ms'").await;
    let detach = format!("alter table activity detach partition {half} concurrently");
    connection.execute(AssertSqlSafe(detach)).await.unwrap_err();
    let pending = "select count(*) from pg_inherits where inhdetachpending";
    assert_eq!(database.count(pending).await, 1);
    tx.rollback().await.unwrap();
    let _gateway = Gateway::start(&database, &[OFTEN]).await;
    settle(expected(&[]), SOON, || tables(&database)).await;
    assert_eq!(database.count(pending).await, 0);
}

/// The slowest write of each of so many seconds, a call or a refusal whose answer waits for the log's own table.
async fn slowest_by_second(agent: &Api, seconds: usize) -> Vec<Duration> {
    let client = Mcp::bare(agent);
    let mut slowest = Vec::new();
    while slowest.len() < seconds {
        let (second, mut longest) = (Instant::now(), Duration::ZERO);
        while second.elapsed() < Duration::from_secs(1) {
            let began = Instant::now();
            client.run("write", "up:echo", &json!({})).await.ok();
            let wrote = Instant::now();
            client.run("read", "up:echo", &json!({})).await.refused("server_mismatch");
            longest = longest.max(wrote - began).max(wrote.elapsed());
        }
        slowest.push(longest);
    }
    slowest.sort();
    slowest
}

/// Somebody reads the log for a long time: what is removed waits for them, and nobody else does. Each second has a pass
/// that wants their tables, so the median over seconds is what a pass costs, and no hiccup of the machine.
#[tokio::test(flavor = "multi_thread")]
async fn a_long_report_delays_retention_and_no_write() {
    /// Bound of docs/operations.md on the rise of the median, over seconds, of the slowest write.
    const DELAY_MAX: Duration = Duration::from_millis(100);
    /// Bound on the rise of the slowest write of all.
    const EVER: Duration = Duration::from_secs(2);
    const SECONDS: usize = 5;
    let stage = Stage::with(&[OFTEN]).await;
    let database = &stage.database;
    let tenant = stage.tenant("acme").await;
    let upstream = Upstream::handshake(vec![Tool::writes("echo")]).await;
    tenant.add("up", &upstream).await;
    let agent = tenant.agent().await;
    slowest_by_second(&agent, 1).await;
    let without = slowest_by_second(&agent, SECONDS).await;

    let mut connection = database.connect().await;
    let mut reader = database.connect().await;
    let old = partition(days_ago(120));
    a_day_of(&mut connection, "acme", 120, 10).await;
    // upkeep wants to attach a day, too
    let day = partition(days_ago(0) + Days::new(14));
    run(&mut connection, &format!("alter table activity detach partition {day}")).await;
    let mut tx = reader.begin().await.unwrap();
    sqlx::query(AssertSqlSafe(format!("select count(*) from activity, {old}")))
        .execute(&mut *tx)
        .await
        .unwrap();
    let with = slowest_by_second(&agent, SECONDS).await;
    assert!(tables(database).await.contains(&old), "nobody may take away what is being read");
    let middle = SECONDS / 2;
    assert!(with[middle] < without[middle] + DELAY_MAX, "{with:?} with, {without:?} without a report");
    assert!(with[SECONDS - 1] < without[SECONDS - 1] + EVER, "{with:?} with, {without:?} without a report");
    say(&format!(
        "slowest write of a second, median: {:?} with, {:?} without a report",
        with[middle], without[middle]
    ));
    tx.rollback().await.unwrap();
    settle(expected(&[]), SOON, || tables(database)).await;

    // and it would have been seen: somebody does in each second what retention must not do
    let mut blocking = database.connect().await;
    let blocker = tokio::spawn(async move {
        loop {
            run(
                &mut blocking,
                "begin; lock table activity in access exclusive mode; select pg_sleep(0.2); commit",
            )
            .await;
            run(&mut blocking, "select pg_sleep(0.5)").await;
        }
    });
    let blocked = slowest_by_second(&agent, 3).await;
    blocker.abort();
    assert!(blocked[1] > without[middle] + DELAY_MAX, "{blocked:?} blocked, {without:?} without");
}

/// Shown by `cargo nextest run --no-capture`.
fn say(text: &str) {
    drop(std::io::Write::write_all(&mut std::io::stderr(), format!("{text}\n").as_bytes()));
}

/// A login that may not change tables: the log says so once, and calls go on.
#[tokio::test(flavor = "multi_thread")]
async fn without_the_right_to_it_retention_complains_once() {
    let stage = Stage::with(&[OFTEN]).await;
    let tenant = stage.tenant("acme").await;
    let upstream = Upstream::handshake(vec![Tool::writes("echo")]).await;
    tenant.add("up", &upstream).await;
    let agent = tenant.agent().await;
    let mut connection = stage.database.connect().await;
    a_day_of(&mut connection, "acme", 120, 10).await;
    // somebody else's table under the name of a day
    let old = partition(days_ago(120));
    settle(false, SOON, || async { tables(&stage.database).await.contains(&old) }).await;
    run(&mut connection, &format!("create table {old} (n int)")).await;
    let complaints = || stage.gateway.log().matches("a background job failed").count();
    settle(true, SOON, || async { complaints() > 0 }).await;
    let before = Instant::now();
    while before.elapsed() < Duration::from_secs(4) {
        Mcp::bare(&agent).run("write", "up:echo", &json!({})).await.ok();
    }
    assert_eq!(complaints(), 1, "{}", stage.gateway.log());
    assert_eq!(stage.gateway.anonymous().get("/readyz").await.text.trim(), "ready");
}
