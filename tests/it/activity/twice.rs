//! A record that is closed already when its own end comes.

use std::time::Duration;

use serde_json::json;
use sqlx::Executor;

use crate::support::upstream::Say;
use crate::support::{Mcp, Stage, Tool, Upstream, settle};

/// Calls that end together, more than one statement inserts.
const CALLS: usize = 20;
const SOON: Duration = Duration::from_secs(10);

#[tokio::test(flavor = "multi_thread")]
async fn a_record_that_exists_already_stays_as_it_is_and_keeps_no_other_out() {
    let stage = Stage::start().await;
    let tenant = stage.tenant("acme").await;
    let (open, gate) = tokio::sync::watch::channel(false);
    let held = Tool::writes("put").says(Say::Gate(gate, Box::new(Say::Echo)));
    let upstream = Upstream::handshake(vec![held]).await;
    tenant.add("up", &upstream).await;
    let agent = tenant.agent().await;
    let calls: Vec<_> = (0..CALLS)
        .map(|_| {
            let client = Mcp::bare(&agent);
            tokio::spawn(async move { client.run("write", "up:put", &json!({})).await })
        })
        .collect();
    settle(CALLS, SOON, || async { upstream.counts().calls }).await;
    let still_open = || stage.database.count("select count(*) from activity_open");
    settle(i64::try_from(CALLS).unwrap(), SOON, still_open).await;
    // as another replica leaves one that closes it between two statements of this one
    let close = "do $$ declare names text; begin
             select string_agg(quote_ident(a.attname), ', ') into names
             from pg_attribute a join pg_attribute o on o.attname = a.attname and o.attrelid = 'activity_open'::regclass
             where a.attrelid = 'activity'::regclass and a.attnum > 0 and not a.attisdropped
                 and a.attname not in ('status', 'error_code');
             execute format('insert into activity (%s, status, error_code)
                 select %1$s, ''error'', ''closed_before'' from activity_open order by id limit 1', names);
         end $$";
    stage.database.connect().await.execute(close).await.unwrap();
    open.send_replace(true);
    for call in calls {
        call.await.unwrap().ok();
    }
    settle(0, SOON, still_open).await;
    let records = tenant.platform.items("/api/v1/activity?tool=put").await;
    assert_eq!(records.len(), CALLS, "none is missing, and none is there twice");
    let closed_before = |record: &&serde_json::Value| record["error_code"] == "closed_before";
    assert_eq!(records.iter().filter(closed_before).count(), 1);
    assert_eq!(records.iter().filter(|record| record["status"] == "success").count(), CALLS - 1);
}
