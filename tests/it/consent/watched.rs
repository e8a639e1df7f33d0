//! The stream of permission requests.

use std::collections::HashSet;

use serde_json::json;

use super::{asked, asking, decide};
use crate::support::{Events, Gateway};

const STREAM: &str = "/api/v1/consent/stream";
/// Requests at once: a key may have twenty open.
const MANY: usize = 15;

#[tokio::test]
async fn every_step_is_told_on_every_replica() {
    let (stage, tenant, _upstream) = asking(&[], json!([])).await;
    let other = Gateway::start(&stage.database, &[]).await;
    let (agent, approver) = (tenant.agent().await, tenant.approver().await);
    let first = asked(&agent, &json!({"n": 1})).await;
    let mut here = Events::open(&approver, STREAM, None).await;
    let mut there = Events::open(&other.ask_as(&approver), STREAM, None).await;
    let mut strange = Events::open(&tenant.agent().await, STREAM, None).await;
    for events in [&mut here, &mut there] {
        let event = events.next().await.unwrap();
        assert_eq!((&event["id"], &event["state"]), (&json!(first), &json!("pending")));
    }
    let second = asked(&agent, &json!({"n": 2})).await;
    decide(&approver, &second, "reject_once").await.expect(200);
    for events in [&mut here, &mut there] {
        let mut event = events.next().await.unwrap();
        assert_eq!(event["id"], second);
        while event["state"] == "pending" {
            event = events.next().await.unwrap();
        }
        assert_eq!((&event["id"], &event["state"]), (&json!(second), &json!("denied")));
    }
    // another agent hears of its own alone
    let own = tenant.agent().await;
    drop(strange);
    strange = Events::open(&own, STREAM, None).await;
    let third = asked(&own, &json!({})).await;
    assert_eq!(strange.next().await.unwrap()["id"], third);
    // many at once: the decision on each is told to every stream, and nothing of before afterwards
    let asks = (0..MANY).map(|n| {
        let (own, approver) = (&own, &approver);
        async move {
            let id = asked(own, &json!({ "n": n })).await;
            decide(approver, &id, "allow_once").await.expect(200);
            id
        }
    });
    let ids = futures_util::future::join_all(asks).await;
    for events in [&mut here, &mut there, &mut strange] {
        let mut granted = HashSet::new();
        while granted.len() < MANY {
            let event = events.next().await.unwrap();
            let id = event["id"].as_str().unwrap().to_owned();
            assert!(event["state"] == "granted" || !granted.contains(&id), "{event} afterwards");
            if event["state"] == "granted" && ids.contains(&id) {
                granted.insert(id);
            }
        }
    }
}
