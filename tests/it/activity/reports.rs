//! Reports of one tenant take turns; another tenant's do not wait for them.

use std::time::{Duration, Instant};

use sqlx::Connection;

use crate::support::{Stage, settle};

#[tokio::test(flavor = "multi_thread")]
async fn one_tenant_cannot_take_all_connections_for_reports() {
    let stage = Stage::start().await;
    let (busy, other) = (stage.tenant("busy").await, stage.tenant("other").await);
    let (auditor, theirs) = (busy.auditor().await, other.auditor().await);
    for one in [&auditor, &theirs] {
        one.get("/api/v1/activity").await.expect(200);
    }
    let mut connection = stage.database.connect().await;
    let mut tx = connection.begin().await.unwrap();
    // what the reports of both read first, so that each stands where it is
    sqlx::query("lock table activity_open in access exclusive mode").execute(&mut *tx).await.unwrap();
    let began = Instant::now();
    let ask = |api: &crate::support::Api| {
        let asked = api.get("/api/v1/activity");
        tokio::spawn(async move { (asked.await, began.elapsed()) })
    };
    let asked: Vec<_> = (0..5).map(|_| ask(&auditor)).collect();
    let standing = "select count(*) from pg_stat_activity where datname = current_database()
         and wait_event_type = 'Lock' and query ilike '%from activity_open where tenant_id%'";
    settle(2, Duration::from_secs(5), || stage.database.count(standing)).await;
    let of_other = ask(&theirs);
    settle(3, Duration::from_secs(2), || stage.database.count(standing)).await;
    // the others of the busy tenant wait for a while, and are told to come back
    let held = Duration::from_millis(5500);
    settle(true, held * 2, || async { began.elapsed() >= held }).await;
    tx.rollback().await.unwrap();
    assert_eq!(of_other.await.unwrap().0.status, 200);
    let mut refused = 0;
    for one in asked {
        let (answer, took) = one.await.unwrap();
        if answer.status == 200 {
            continue;
        }
        assert!(answer.refused(503, "unavailable").contains("try again"), "{answer:?}");
        assert!(took >= Duration::from_millis(4900) && took < Duration::from_secs(7), "{took:?}");
        refused += 1;
    }
    assert_eq!(refused, 3);
    auditor.get("/api/v1/activity").await.expect(200);
}
