//! `/activity/stream`: every record once, in one order, from any replica.

use std::collections::HashSet;

use serde_json::{Value, json};
use sqlx::Connection;

use crate::support::upstream::zoo;
use crate::support::{Api, Events, Gateway, Mcp, Stage, Tenant, Upstream};

const STREAM: &str = "/api/v1/activity/stream";
const CALLS: &str = "/api/v1/activity/stream?type=tool_call";

async fn with_upstream(stage: &Stage, name: &str) -> (Tenant, Upstream) {
    let tenant = stage.tenant(name).await;
    let upstream = Upstream::handshake(zoo()).await;
    tenant.add("up", &upstream).await;
    (tenant, upstream)
}

async fn read(api: &Api) {
    Mcp::bare(api).run("read", "up:reader", &json!({})).await.ok();
}

fn id(record: &Value) -> String {
    record["id"].as_str().unwrap().to_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn whoever_comes_back_misses_nothing_on_any_replica() {
    const TOTAL: usize = 600;
    let stage = Stage::start().await;
    let other = Gateway::start(&stage.database, &[]).await;
    let (tenant, _upstream) = with_upstream(&stage, "acme").await;
    let auditor = tenant.auditor().await;
    let both = [auditor.clone(), other.ask_as(&auditor)];
    let mut stream = Events::open(&both[0], CALLS, None).await;
    stream.opened().await;
    let agent = tenant.agent().await;
    let callers: Vec<_> = (0..6)
        .map(|number| {
            let here = if number % 2 == 0 { agent.clone() } else { other.ask_as(&agent) };
            tokio::spawn(async move {
                let client = Mcp::bare(&here);
                for call in 0..TOTAL / 6 {
                    let (variant, tool) =
                        if call % 5 == 0 { ("write", "up:writer") } else { ("read", "up:reader") };
                    client.run(variant, tool, &json!({})).await.ok();
                }
            })
        })
        .collect();
    let (mut seen, mut records, mut reconnects) = (HashSet::new(), Vec::new(), 0);
    while records.len() < TOTAL {
        let record = stream.next().await.expect("the stream goes on");
        assert!(seen.insert(id(&record)), "{record} came twice");
        records.push(record);
        if records.len() % 50 == 0 {
            // often in the middle of what one transaction committed
            reconnects += 1;
            let last = stream.last.take();
            stream = Events::open(&both[reconnects % 2], CALLS, last.as_deref()).await;
        }
    }
    for caller in callers {
        caller.await.unwrap();
    }
    let listed: HashSet<String> =
        auditor.items("/api/v1/activity?type=tool_call").await.iter().map(id).collect();
    assert_eq!(seen, listed);
    // each is what the list says
    let one = auditor.get(&format!("/api/v1/activity/{}", id(&records[7]))).await.expect(200);
    assert_eq!(one, records[7]);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_committed_late_is_told_all_the_same() {
    let stage = Stage::start().await;
    let (tenant, _upstream) = with_upstream(&stage, "acme").await;
    let (auditor, agent) = (tenant.auditor().await, tenant.agent().await);
    read(&agent).await;
    let first = id(&tenant.records("type=tool_call", 1).await[0]);
    let mut stream = Events::open(&auditor, CALLS, None).await;
    stream.opened().await;
    // somebody else in this Postgres may have held the order up until now
    let mut next = async || loop {
        let record = stream.next().await.unwrap();
        if id(&record) != first {
            return record["tool"].as_str().unwrap().to_owned();
        }
    };
    // a record whose transaction began before those of five others, and ends after them
    let mut slow = stage.database.connect().await;
    let mut tx = slow.begin().await.unwrap();
    let copied = sqlx::query(
        "insert into activity (tenant_id, started_at, id, replica_id, type, source, tool, status)
         select tenant_id, started_at, gen_random_uuid(), replica_id, type, source, 'slow', status
         from activity where type = 'tool_call'",
    );
    assert_eq!(copied.execute(&mut *tx).await.unwrap().rows_affected(), 1);
    for _ in 0..5 {
        read(&agent).await;
    }
    tenant.records("type=tool_call", 6).await;
    // what came after it waits for it: four looks at the log find nothing that is complete
    let early = tokio::time::timeout(std::time::Duration::from_secs(1), next()).await;
    assert!(early.is_err(), "{early:?}");
    tx.commit().await.unwrap();
    let mut tools = Vec::new();
    for _ in 0..6 {
        tools.push(next().await);
    }
    assert_eq!(tools, ["slow", "reader", "reader", "reader", "reader", "reader"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn everybody_hears_what_is_theirs() {
    let stage = Stage::start().await;
    let (tenant, _upstream) = with_upstream(&stage, "acme").await;
    let (stranger, _theirs) = with_upstream(&stage, "other").await;
    let (agent, colleague) = (tenant.agent().await, tenant.agent().await);
    let mut own = Events::open(&agent, STREAM, None).await;
    let mut strangers = Events::open(&stranger.auditor().await, STREAM, None).await;
    let mut writes =
        Events::open(&tenant.auditor().await, &format!("{STREAM}?intent_type=write"), None).await;
    for stream in [&mut own, &mut strangers, &mut writes] {
        stream.opened().await;
    }
    read(&colleague).await;
    Mcp::bare(&colleague).run("write", "up:writer", &json!({})).await.ok();
    tenant.records("type=tool_call", 2).await;
    read(&agent).await;
    read(&stranger.agent().await).await;
    // each stream's first is its own: what is not for it would have come before
    assert_eq!(own.next().await.unwrap()["key_id"], agent.id);
    assert_eq!(writes.next().await.unwrap()["tool"], "writer");
    let theirs = strangers.next().await.unwrap();
    let listed = stranger.platform.get(&format!("/api/v1/activity/{}", id(&theirs))).await;
    listed.expect(200);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_ends_with_its_key_and_its_gateway() {
    let stage = Stage::with(&[("MCPPROXY__LIMITS__STREAMS_PER_KEY_MAX", "2")]).await;
    let tenant = stage.tenant("acme").await;
    let (first, second) = (tenant.auditor().await, tenant.auditor().await);
    let mut ending = Events::open(&first, STREAM, None).await;
    let mut staying = Events::open(&second, STREAM, None).await;
    for stream in [&mut ending, &mut staying] {
        stream.opened().await;
    }
    let _another = Events::open(&second, STREAM, None).await;
    second.get(STREAM).await.expect(503);
    tenant.platform.delete(&format!("/api/v1/keys/{}", first.id)).await.expect(204);
    let mut end = ending.next().await;
    while end.is_some() {
        end = ending.next().await;
    }
    let ends = async {
        stage.gateway.terminate();
        while staying.next().await.is_some() {}
    };
    tokio::time::timeout(std::time::Duration::from_secs(10), ends).await.expect("the stream ends");
}

#[tokio::test]
async fn what_makes_no_sense_is_named() {
    let stage = Stage::start().await;
    let tenant = stage.tenant("acme").await;
    let auditor = tenant.auditor().await;
    for (query, field) in [("limit=5", "limit"), ("status=odd", "status"), ("start_time=x", "start_time")] {
        let answer = auditor.get(&format!("{STREAM}?{query}")).await.expect(400);
        assert_eq!(answer["error"]["field"], field, "{answer}");
    }
    let request = auditor.request(reqwest::Method::GET, STREAM).header("last-event-id", "yesterday");
    assert_eq!(auditor.send(request).await.expect(400)["error"]["field"], "Last-Event-ID");
    tenant.approver().await.get(STREAM).await.expect(403);
    // a place in the log of another tenant
    let mut elsewhere = Events::open(&stage.tenant("other").await.auditor().await, STREAM, None).await;
    elsewhere.opened().await;
    let request =
        auditor.request(reqwest::Method::GET, STREAM).header("last-event-id", elsewhere.last.unwrap());
    assert_eq!(auditor.send(request).await.expect(400)["error"]["field"], "Last-Event-ID");
    let mut stream = Events::open(&auditor, STREAM, None).await;
    stream.opened().await;
    let act = json!({"name": "robot", "role": "agent"});
    tenant.platform.post("/api/v1/keys", &act).await.expect(201);
    assert_eq!(stream.next().await.unwrap()["tool"], "keys.create");
}
