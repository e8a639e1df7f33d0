//! Row-level security, asked directly: the second lock.

use serde_json::json;
use sqlx::{AssertSqlSafe, Connection, PgConnection, Row};
use uuid::Uuid;

use crate::support::{Mcp, Stage, Upstream, upstream};

/// Tables with a `tenant_id`, without partitions.
async fn tenant_tables(connection: &mut PgConnection) -> Vec<String> {
    sqlx::query_scalar(
        "select c.relname from pg_class c join pg_namespace n on n.oid = c.relnamespace
         where n.nspname = 'public' and c.relkind in ('r', 'p') and not c.relispartition
            and exists (select from pg_attribute a where a.attrelid = c.oid and a.attname = 'tenant_id')
         order by 1",
    )
    .fetch_all(connection)
    .await
    .unwrap()
}

#[tokio::test]
async fn every_tenant_table_is_locked() {
    let stage = Stage::start().await;
    let mut connection = stage.database.connect().await;
    let tables = tenant_tables(&mut connection).await;
    for known in
        ["tenants", "api_keys", "settings", "servers", "tools", "activity", "activity_open", "revisions"]
    {
        assert!(tables.iter().any(|table| table == known), "{known} is not among {tables:?}");
    }
    for table in &tables {
        let row = sqlx::query(
            "select relrowsecurity, relforcerowsecurity, pg_get_userbyid(relowner) as owner,
                exists (select from pg_policies p where p.tablename = relname and p.policyname = 'tenant') as has_policy
             from pg_class where oid = to_regclass($1)",
        )
        .bind(table)
        .fetch_one(&mut connection)
        .await
        .unwrap();
        assert!(row.get::<bool, _>("relrowsecurity"), "{table}: row-level security is off");
        assert!(row.get::<bool, _>("relforcerowsecurity"), "{table}: row-level security is not forced");
        assert!(row.get::<bool, _>("has_policy"), "{table}: no policy for tenants");
        assert_eq!(row.get::<String, _>("owner"), "mcpproxy_owner", "{table}");
    }
    let open: Vec<String> = sqlx::query_scalar(
        "select relname from pg_class where relispartition and relkind = 'r' and has_table_privilege(
            'mcpproxy_app', oid, 'select, insert, update, delete, truncate')",
    )
    .fetch_all(&mut connection)
    .await
    .unwrap();
    assert_eq!(open, [""; 0], "partitions are reached through their parent only");
    let writable: Vec<String> = sqlx::query_scalar(
        "select r || ' ' || p || ' ' || t from unnest(array['mcpproxy_app', 'mcpproxy_system']) r,
            unnest(array['update', 'delete', 'truncate']) p, unnest(array['activity', 'web_provenance']) t
         where has_table_privilege(r, t, p)",
    )
    .fetch_all(&mut connection)
    .await
    .unwrap();
    assert_eq!(writable, [""; 0], "final records are immutable");
}

#[tokio::test]
async fn opening_records_is_for_the_log_alone() {
    let stage = Stage::start().await;
    let mut connection = stage.database.connect().await;
    // the release before has a function of its own
    let open = |arguments: usize| format!("select open_activity({})", vec!["null"; arguments].join(", "));
    for (role, arguments) in [("mcpproxy_app", 40), ("mcpproxy_owner", 40), ("mcpproxy_app", 39)] {
        sqlx::query(AssertSqlSafe(format!("set role {role}"))).execute(&mut connection).await.unwrap();
        let refused = sqlx::query(AssertSqlSafe(open(arguments))).execute(&mut connection).await.unwrap_err();
        assert_eq!(
            refused.as_database_error().unwrap().code().as_deref(),
            Some("42501"),
            "{role}: {refused}"
        );
    }
    // a record that is said to be committed is durable, whatever the login's own setting
    sqlx::raw_sql("reset role; set synchronous_commit = off").execute(&mut connection).await.unwrap();
    let mut tx = connection.begin().await.unwrap();
    sqlx::query(AssertSqlSafe(open(40))).execute(&mut *tx).await.unwrap();
    let durable: String = sqlx::query_scalar("show synchronous_commit").fetch_one(&mut *tx).await.unwrap();
    assert_eq!(durable, "on");
}

/// A login that may do nothing but make things of its own, among them an operator that the check of
/// `open_activity` compares with.
#[tokio::test]
async fn what_a_stranger_plants_does_not_run_as_the_owner() {
    let stage = Stage::start().await;
    let mut connection = stage.database.connect().await;
    let stranger = format!("stranger_{}", stage.database.name());
    let plant = format!(
        "create role {stranger};
         create schema planted authorization {stranger};
         set role {stranger};
         grant usage on schema planted to public;
         create function planted.differs(a text, b text) returns boolean language plpgsql
             as $$ begin raise exception 'this runs as %', current_user; end $$;
         create operator planted.<> (function = planted.differs, leftarg = text, rightarg = text);
         set search_path = planted, pg_catalog;
         set session authorization {stranger}"
    );
    sqlx::raw_sql(AssertSqlSafe(plant)).execute(&mut connection).await.unwrap();
    let nulls = vec!["null"; 37].join(", ");
    let open = format!("select public.open_activity({nulls})");
    let refused = sqlx::query(AssertSqlSafe(open)).execute(&mut connection).await.unwrap_err();
    let refused = refused.as_database_error().unwrap();
    assert_eq!(refused.code().as_deref(), Some("42501"), "{refused}");
    assert_eq!(refused.message(), "open_activity is for mcpproxy_system");
    sqlx::raw_sql(AssertSqlSafe(format!(
        "reset session authorization; drop owned by {stranger}; drop role {stranger}"
    )))
    .execute(&mut connection)
    .await
    .unwrap();
}

#[tokio::test]
async fn a_query_without_a_filter_sees_one_tenant() {
    let stage = Stage::start().await;
    let upstream = Upstream::handshake(upstream::zoo()).await;
    for name in ["tenant-a", "tenant-b"] {
        let tenant = stage.tenant(name).await;
        tenant.add("zoo", &upstream).await;
        tenant.platform.patch("/api/v1/settings", &json!({"max_operation": "write"})).await.expect(200);
        Mcp::bare(&tenant.agent().await).run("write", "zoo:writer", &json!({})).await.ok();
        tenant.records("type=tool_call", 1).await;
    }
    let mut connection = stage.database.connect().await;
    let ours: Uuid = sqlx::query_scalar("select tenant_id from tenants where name = 'tenant-a'")
        .fetch_one(&mut connection)
        .await
        .unwrap();
    let tables = tenant_tables(&mut connection).await;
    let mut with_rows = 0;
    for table in &tables {
        let all: i64 =
            sqlx::query_scalar(AssertSqlSafe(format!("select count(distinct tenant_id) from {table}")))
                .fetch_one(&mut connection)
                .await
                .unwrap();
        let mut tx = connection.begin().await.unwrap();
        sqlx::query("select set_config('role', 'mcpproxy_app', true), set_config('app.tenant', $1, true)")
            .bind(ours.to_string())
            .execute(&mut *tx)
            .await
            .unwrap();
        let seen: Vec<Uuid> =
            sqlx::query_scalar(AssertSqlSafe(format!("select distinct tenant_id from {table}")))
                .fetch_all(&mut *tx)
                .await
                .unwrap();
        tx.rollback().await.unwrap();
        assert!(seen.iter().all(|tenant| *tenant == ours), "{table}: {seen:?}");
        if all >= 2 {
            assert_eq!(seen, [ours], "{table}");
            with_rows += 1;
        }
    }
    assert!(with_rows >= 6, "only {with_rows} tables hold rows of both: the test proves little");
}

#[tokio::test]
async fn without_a_tenant_there_is_nothing() {
    let stage = Stage::start().await;
    let upstream = Upstream::handshake(upstream::zoo()).await;
    stage.tenant("tenant-a").await.add("zoo", &upstream).await;
    let mut connection = stage.database.connect().await;
    for table in tenant_tables(&mut connection).await {
        let mut tx = connection.begin().await.unwrap();
        sqlx::query("select set_config('role', 'mcpproxy_app', true)").execute(&mut *tx).await.unwrap();
        let seen = sqlx::query_scalar::<_, i64>(AssertSqlSafe(format!("select count(*) from {table}")))
            .fetch_one(&mut *tx)
            .await;
        tx.rollback().await.unwrap();
        assert!(matches!(seen, Ok(0) | Err(_)), "{table}: {seen:?}");
    }
}

#[tokio::test]
async fn one_tenant_cannot_write_into_another() {
    let stage = Stage::start().await;
    let upstream = Upstream::handshake(upstream::zoo()).await;
    for name in ["tenant-a", "tenant-b"] {
        stage.tenant(name).await.add("zoo", &upstream).await;
    }
    let mut connection = stage.database.connect().await;
    let id = |name: &'static str| {
        sqlx::query_scalar::<_, Uuid>("select tenant_id from tenants where name = $1").bind(name)
    };
    let (ours, theirs) = (
        id("tenant-a").fetch_one(&mut connection).await.unwrap(),
        id("tenant-b").fetch_one(&mut connection).await.unwrap(),
    );
    let attempts = [
        format!("update servers set enabled = false where tenant_id = '{theirs}'"),
        "update servers set enabled = false".to_owned(),
        format!("update servers set tenant_id = '{theirs}'"),
        format!("update settings set tenant_id = '{theirs}'"),
        format!(
            "insert into settings (tenant_id, scope_id, value, rev) values ('{theirs}', gen_random_uuid(), '{{}}', 1)"
        ),
    ];
    for attempt in attempts {
        let mut tx = connection.begin().await.unwrap();
        sqlx::query("select set_config('role', 'mcpproxy_app', true), set_config('app.tenant', $1, true)")
            .bind(ours.to_string())
            .execute(&mut *tx)
            .await
            .unwrap();
        let done = sqlx::query(AssertSqlSafe(attempt.clone())).execute(&mut *tx).await;
        let may_commit = done.is_ok();
        if may_commit { tx.commit().await.unwrap() } else { tx.rollback().await.unwrap() }
    }
    let theirs: (bool, i64) =
        sqlx::query_as("select bool_and(enabled), count(*) from servers where tenant_id = $1")
            .bind(theirs)
            .fetch_one(&mut connection)
            .await
            .unwrap();
    assert_eq!(theirs, (true, 1));
}
