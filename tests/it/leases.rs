//! What becomes of a replica that looked after the servers and was away for too long.

use std::time::Duration;

use serde_json::json;

use crate::support::upstream::Era;
use crate::support::{Database, Gateway, Stage, Tenant, Tool, Upstream, eventually, settle};

/// Within this the next replica has taken over, once the lease is free; no more than a little is needed, the machine may
/// be busy.
const TAKEN_OVER: Duration = Duration::from_secs(20);
const SOON: Duration = Duration::from_secs(5);
/// Said by a replica of a listing that came too late.
const TOO_LATE: &str = "another replica has taken over";

/// All that listings write, as the database has it.
async fn written(database: &Database) -> String {
    sqlx::query_scalar(
        "select (select string_agg(s::text, e'\n' order by name) from servers s) || e'\n'
             || (select string_agg(t::text, e'\n' order by server_id, name) from tools t)",
    )
    .fetch_one(&mut database.connect().await)
    .await
    .unwrap()
}

/// The same, once it was found as it was before for a while.
async fn unchanged(database: &Database) -> String {
    let last = std::cell::RefCell::new((String::new(), 0));
    eventually("an end of the writing", SOON, || async {
        let now = written(database).await;
        let mut last = last.borrow_mut();
        let looks = if last.0 == now { last.1 + 1 } else { 0 };
        *last = (now, looks);
        (looks == 20).then(|| last.0.clone())
    })
    .await
}

async fn tools(tenant: &Tenant, server: &str) -> Vec<String> {
    let items = tenant.platform.items(&format!("/api/v1/servers/{server}/tools")).await;
    items.iter().map(|tool| tool["name"].as_str().unwrap().to_owned()).collect()
}

/// Of three servers one answers it before it wakes up, one has gone away, and one announces a change: it has much to
/// write down when it wakes up.
#[tokio::test]
async fn a_replica_that_wakes_up_after_it_lost_its_lease_writes_nothing() {
    const OFTEN: [(&str, &str); 2] =
        [("MCPPROXY__LIMITS__RELIST_INTERVAL_S", "1"), ("MCPPROXY__LIMITS__LISTING_TIMEOUT_S", "60")];
    const ONCE: [(&str, &str); 1] = [("MCPPROXY__LIMITS__RELIST_INTERVAL_S", "3600")];
    let stage = Stage::with(&OFTEN).await;
    let frozen = &stage.gateway;
    let tenant = stage.tenant("acme").await;
    let late = Upstream::handshake(vec![Tool::reads("alpha")]).await;
    let mut gone = Upstream::modern(vec![Tool::reads("alpha")]).await;
    let heard = Upstream::announcing(Era::Modern, vec![Tool::reads("alpha")]).await;
    let all = [("late", &late), ("gone", &gone), ("heard", &heard)];
    for (name, upstream) in all {
        tenant.add_with(name, upstream, json!({"auto_approve": true})).await;
    }
    settle(1, Duration::from_secs(10), || async { heard.listeners() }).await;
    late.hold_lists();
    gone.hold_lists();
    let asked = [&late, &gone].map(|upstream| upstream.counts().lists);
    settle(true, SOON, || async {
        [&late, &gone].iter().zip(asked).all(|(upstream, before)| upstream.counts().lists > before)
    })
    .await;

    frozen.freeze();
    // as it will be after 10 s
    let aged = "update replicas set heartbeat_at = heartbeat_at - interval '10 s'";
    sqlx::query(aged).execute(&mut stage.database.connect().await).await.unwrap();
    late.release_lists();
    gone.release_lists();
    gone.go_down().await;
    gone.come_back().await;
    for upstream in [&late, &gone, &heard] {
        upstream.set_tools(vec![Tool::reads("beta")]);
    }
    let listed = heard.counts().lists;
    heard.announce(1);
    let other = Gateway::start(&stage.database, &ONCE).await;
    let there = Tenant::of(&other.ask_as(&tenant.platform), &other.anonymous());
    for server in ["late", "gone", "heard"] {
        settle(vec!["beta".to_owned()], TAKEN_OVER, || tools(&there, server)).await;
    }
    // it has listed what it listens to, and has nothing more to write
    settle((2, listed + 2), TAKEN_OVER, || async { (heard.listeners(), heard.counts().lists) }).await;
    let before = unchanged(&stage.database).await;

    frozen.wake();
    for server in ["late", "gone"] {
        eventually(server, SOON, || async {
            let log = frozen.log();
            log.lines().any(|line| line.contains(TOO_LATE) && line.contains(server)).then_some(())
        })
        .await;
    }
    settle(1, SOON, || async { heard.listeners() }).await;
    assert_eq!(written(&stage.database).await, before);
    // the two replicas agree, and people are served by either
    tenant.platform.post("/api/v1/servers/late/refresh", &json!({})).await.expect(200);
    assert_eq!(tools(&tenant, "late").await, ["beta"]);
}
