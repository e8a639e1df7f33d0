//! Requests with keys that nobody has: they cost other tenants nothing.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use serde_json::json;
use sqlx::Executor;

use crate::support::{Api, Gateway, Mcp, Stage, Tool, Upstream, eventually, settle};

/// Well-formed unknown keys that are presented, per second.
const PER_SECOND: usize = 400;
/// Time for which unknown keys are presented.
const FLOOD: Duration = Duration::from_secs(4);
/// Number of connections that present unknown keys.
const CLIENTS: usize = 16;
/// Least number of unknown keys that are refused, on a busy machine: with fewer the test proves nothing.
const ANSWERED_MIN: usize = 100;
/// Longest time of another client's request while look-ups are blocked.
const PATIENCE: Duration = Duration::from_secs(1);

/// Returns a well-formed key that nobody has.
pub fn stranger() -> String {
    let [one, other] = [uuid::Uuid::new_v4(), uuid::Uuid::new_v4()];
    format!("mcpk_{}{:011x}", one.simple(), other.as_u128() >> 84)
}

/// Flood of requests, each with another unknown key, evenly over time.
struct Flood {
    stop: Arc<AtomicBool>,
    answered: Arc<AtomicUsize>,
    tasks: Vec<tokio::task::JoinHandle<()>>,
}

impl Flood {
    fn of(replicas: &[Api]) -> Flood {
        let (stop, answered) = (Arc::<AtomicBool>::default(), Arc::<AtomicUsize>::default());
        let start = |n: usize| {
            let (api, stop, answered) =
                (replicas[n % replicas.len()].clone(), Arc::clone(&stop), Arc::clone(&answered));
            tokio::spawn(async move {
                let mut pace =
                    tokio::time::interval(Duration::from_secs(1) * CLIENTS as u32 / PER_SECOND as u32);
                while !stop.load(Ordering::Relaxed) {
                    pace.tick().await;
                    let status = api.with_key(&stranger()).get("/api/v1/status").await.status;
                    assert!(status == 401 || status == 503, "{status}");
                    answered.fetch_add(usize::from(status == 401), Ordering::Relaxed);
                }
            })
        };
        let tasks = (0..CLIENTS).map(start).collect();
        Flood { stop, answered, tasks }
    }

    async fn end(self) -> usize {
        self.stop.store(true, Ordering::Relaxed);
        for task in self.tasks {
            task.await.unwrap();
        }
        self.answered.load(Ordering::Relaxed)
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn fresh_keys_work_at_once_in_a_flood_of_unknown_ones() {
    let stage = Stage::start().await;
    let other = Gateway::start(&stage.database, &[]).await;
    let tenant = stage.tenant("acme").await;
    let upstream = Upstream::handshake(vec![Tool::writes("put")]).await;
    tenant.add("up", &upstream).await;
    let (admin, agent) = (tenant.admin().await, tenant.agent().await);
    let flood = Flood::of(&[stage.gateway.anonymous(), other.anonymous()]);
    let (began, mut turns) = (Instant::now(), 0);
    while began.elapsed() < FLOOD || turns == 0 {
        admin.get("/api/v1/servers").await.expect(200);
        Mcp::bare(&agent).run("write", "up:put", &json!({})).await.ok();
        // a key that was made works at once, wherever
        let fresh = tenant.agent().await;
        other.ask_as(&fresh).get("/api/v1/status").await.expect(200);
        fresh.get("/api/v1/status").await.expect(200);
        turns += 1;
    }
    let answered = flood.end().await;
    assert!(answered >= ANSWERED_MIN, "{answered} refused, {turns} turns");
}

/// Checks that look-ups that wait for the table of keys leave connections to other requests.
#[tokio::test(flavor = "multi_thread")]
async fn look_ups_that_take_long_leave_connections_free() {
    let stage = Stage::start().await;
    let tenant = stage.tenant("acme").await;
    let admin = tenant.admin().await;
    admin.get("/api/v1/servers").await.expect(200);
    let mut connection = stage.database.connect().await;
    let mut held = sqlx::Connection::begin(&mut connection).await.unwrap();
    held.execute("lock table api_keys in access exclusive mode").await.unwrap();
    let anonymous = stage.gateway.anonymous();
    let strangers: Vec<_> =
        (0..100).map(|_| tokio::spawn(anonymous.with_key(&stranger()).get("/api/v1/status"))).collect();
    let watcher = &stage.database;
    let waiting = "select count(*) from pg_stat_activity where wait_event_type = 'Lock' and datname = current_database()";
    settle(true, Duration::from_secs(10), || async { watcher.count(waiting).await > 0 }).await;
    let began = Instant::now();
    admin.get("/api/v1/servers").await.expect(200);
    assert!(began.elapsed() < PATIENCE, "{:?}", began.elapsed());
    assert_eq!(watcher.count(waiting).await, 1, "one connection looks keys up");
    held.rollback().await.unwrap();
    for stranger in strangers {
        let status = stranger.await.unwrap().status;
        assert!(status == 401 || status == 503, "{status}");
    }
}

/// Checks that a key works as soon as it is valid, also where it was refused before.
#[tokio::test]
async fn a_key_that_was_asked_for_too_early_works_once_it_is_there() {
    let stage = Stage::start().await;
    let other = Gateway::start(&stage.database, &[]).await;
    let tenant = stage.tenant("acme").await;
    let soon = chrono::Utc::now() + Duration::from_millis(1500);
    let key = tenant.key(&json!({"role": "agent", "expires_at": soon.to_rfc3339()})).await;
    let there = other.ask_as(&key);
    // until it has expired; then it is unknown to the replica that never knew it
    settle(true, Duration::from_secs(5), || async { chrono::Utc::now() > soon }).await;
    there.get("/api/v1/status").await.expect(401);
    // as a replica of an earlier release prolongs it during a roll-out; the change of its name tells every replica
    let mut connection = stage.database.connect().await;
    connection
        .execute("update api_keys set expires_at = now() + interval '1 hour' where expires_at < now()")
        .await
        .unwrap();
    let own = format!("/api/v1/keys/{}", key.id);
    tenant.platform.patch(&own, &json!({"name": "prolonged"})).await.expect(200);
    eventually("the key to work", Duration::from_millis(500), || async {
        (there.get("/api/v1/status").await.status == 200).then_some(())
    })
    .await;
}
