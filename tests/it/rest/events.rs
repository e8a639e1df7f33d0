//! `/events`: the state of the servers, from any replica, as it changes.

use std::time::Duration;

use serde_json::{Value, json};

use crate::support::{Events, Gateway, Stage, Tool, Upstream};

const EVENTS: &str = "/api/v1/events";

fn server(name: &str, enabled: bool, quarantined: bool, tools: [usize; 2]) -> Value {
    json!({"name": name, "enabled": enabled, "quarantined": quarantined, "connected": enabled,
        "tools": {"approved": tools[0], "pending": tools[1], "changed": 0, "blocked": 0}})
}

#[tokio::test]
async fn every_change_is_told_and_no_other_tenants() {
    let stage = Stage::start().await;
    let other = Gateway::start(&stage.database, &[]).await;
    let (tenant, foreign) = (stage.tenant("acme").await, stage.tenant("globex").await);
    let upstream = Upstream::handshake(vec![Tool::reads("reader")]).await;
    tenant.add("zoo", &upstream).await;
    let auditor = tenant.auditor().await;
    let mut here = Events::open(&auditor, EVENTS, None).await;
    let mut there = Events::open(&other.ask_as(&auditor), EVENTS, None).await;
    let mut strange = Events::open(&foreign.auditor().await, EVENTS, None).await;
    for events in [&mut here, &mut there] {
        assert_eq!(events.next().await.unwrap(), json!({"items": [server("zoo", true, false, [1, 0])]}));
    }
    assert_eq!(strange.next().await.unwrap(), json!({"items": []}));

    let platform = &tenant.platform;
    platform.post("/api/v1/servers/zoo/disable", &json!({})).await.expect(200);
    platform.post("/api/v1/servers/zoo/quarantine", &json!({})).await.expect(200);
    for events in [&mut here, &mut there] {
        let mut last = events.next().await.unwrap();
        while last["quarantined"] != true {
            assert_eq!(last, server("zoo", false, false, [1, 0]));
            last = events.next().await.unwrap();
        }
        assert_eq!(last, server("zoo", false, true, [1, 0]));
    }
    platform.delete("/api/v1/servers/zoo").await.expect(204);
    for events in [&mut here, &mut there] {
        assert_eq!(events.next().await.unwrap(), json!({"name": "zoo"}));
    }
    // its own is the first that a stranger hears
    foreign.add("lab", &upstream).await;
    let mut first = strange.next().await.unwrap();
    assert_eq!(first["name"].take(), "lab");
}

#[tokio::test]
async fn a_stream_is_for_those_who_may_see_servers() {
    let stage = Stage::start().await;
    let tenant = stage.tenant("acme").await;
    for may_not in [tenant.agent().await, tenant.approver().await] {
        may_not.get(EVENTS).await.refused(403, "forbidden");
    }
    stage.platform().get(EVENTS).await.refused(400, "invalid_request");
    let operator = tenant.operator().await;
    operator.get(&format!("{EVENTS}?server=zoo")).await.refused(400, "invalid_request");
    let mut events = Events::open(&operator, EVENTS, None).await;
    assert!(events.next().await.is_some());
    tenant.platform.delete(&format!("/api/v1/keys/{}", operator.id)).await.expect(204);
    let ended = tokio::time::timeout(Duration::from_secs(5), events.next()).await;
    assert_eq!(ended.expect("an end of the stream"), None);
}
