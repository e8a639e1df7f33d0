//! Programs and schemas of different releases, and several programs that migrate at once.

use crate::support::{Database, Gateway, run_to_end};

#[tokio::test]
async fn the_release_before_migrates_and_serves_on_a_newer_schema() {
    let database = Database::create().await;
    Gateway::migrate(&database);
    let mut connection = database.connect().await;
    sqlx::query(
        "insert into _sqlx_migrations (version, description, success, checksum, execution_time)
         values (29990101000000, 'of a later release', true, '\\x00', 0)",
    )
    .execute(&mut connection)
    .await
    .unwrap();
    Gateway::migrate(&database);
    drop(Gateway::start(&database, &[]).await);

    sqlx::query("insert into schema_minimum values ('0.0.1'), ('99.0.0')")
        .execute(&mut connection)
        .await
        .unwrap();
    for command in ["migrate", "serve"] {
        let ended = run_to_end(&database, &[command], &[]);
        let said = String::from_utf8_lossy(&ended.stderr).into_owned();
        assert!(!ended.status.success(), "{command}: {said}");
        assert!(said.contains("a schema for mcpproxy 99.0.0 and newer"), "{command}: {said}");
    }
}

/// As replicas do that migrate before they serve.
#[tokio::test]
async fn many_may_migrate_at_once() {
    let database = Database::create().await;
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| Gateway::migrate(&database));
        }
    });
    Gateway::start(&database, &[]).await;
}
