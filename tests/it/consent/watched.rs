//! The stream of permission requests.

use serde_json::json;

use super::{asked, asking, decide};
use crate::support::{Events, Gateway};

const STREAM: &str = "/api/v1/consent/stream";

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
}
